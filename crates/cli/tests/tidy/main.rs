//! Rules of the house that no compiler checks. Each failure names the file and the line.

mod doors;
mod limits;

use std::path::{Path, PathBuf};

/// Lines in a source file at most: what does not fit has more than one subject.
const MAX_LINES: usize = 1000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// All files under `dir` with this ending, build output aside.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.map(|entry| entry.expect("a directory entry")) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                files(&path, ending, found);
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&root().join(dir), ".rs", &mut found);
    assert!(!found.is_empty(), "no sources under {dir}");
    found
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).expect("a source file")))
        .collect()
}

/// The lines of production code: no comments, and nothing from a test module on.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tests = text.find("\n#[cfg(test)]\nmod tests").unwrap_or(text.len());
    text[..tests]
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

/// Whether a file is there for tests only.
fn is_test(path: &Path) -> bool {
    let folder = |name: &str| path.components().any(|part| part.as_os_str() == name);
    folder("tests") || folder("examples") || folder("fuzz") || path.ends_with("tests.rs")
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn the_engine_the_protocol_and_the_session_know_no_world() {
    let forbidden =
        ["std::time", "std::thread", "std::fs", "std::net", "std::os", "std::env", "std::process"];
    let mut problems = Vec::new();
    for dir in [
        "crates/engine/src",
        "crates/nbd/src",
        "crates/protect/src",
        "crates/remote/src",
        "crates/replace/src",
    ] {
        for (path, text) in sources(dir).into_iter().filter(|(path, _)| !is_test(path)) {
            for (number, line) in code_lines(&text) {
                for word in forbidden.iter().filter(|&&word| line.contains(word)) {
                    problems.push(format!("{}:{number}: {word}", path.display()));
                }
                let hashed = line.contains("HashMap") || line.contains("HashSet");
                if hashed && !line.contains("Hasher") && !line.contains("hasher") {
                    problems
                        .push(format!("{}:{number}: a map whose order differs between runs", path.display()));
                }
            }
        }
    }
    report(problems);
}

#[test]
fn files_are_short() {
    let mut problems = Vec::new();
    for (path, text) in sources("crates") {
        let lines = text.lines().count();
        if lines > MAX_LINES {
            problems.push(format!("{}: {lines} lines, more than {MAX_LINES}", path.display()));
        }
    }
    report(problems);
}

#[test]
fn nothing_is_left_undone() {
    let mut problems = Vec::new();
    for (path, text) in sources("crates") {
        if path.ends_with("tidy/main.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for word in ["todo!", "unimplemented!", "dbg!(", "FIXME", "TODO", "XXX"] {
                if line.contains(word) {
                    problems.push(format!("{}:{}: {word}", path.display(), number + 1));
                }
            }
        }
        if !is_test(&path) {
            for (number, _) in code_lines(&text).filter(|(_, line)| line.contains(".unwrap()")) {
                problems.push(format!("{}:{number}: unwrap() outside tests", path.display()));
            }
        }
    }
    report(problems);
}

#[test]
fn unsafe_code_stays_where_it_is_argued_for() {
    let allowed = ["blockdev", "fiemap", "inherit", "memory", "ring", "signals", "ublk"]
        .map(|room| format!("crates/driver/src/{room}.rs"));
    let mut problems = Vec::new();
    for (path, text) in sources("crates") {
        if is_test(&path) || allowed.iter().any(|allowed| path.ends_with(allowed)) {
            continue;
        }
        for (number, line) in code_lines(&text) {
            if line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl") {
                problems.push(format!("{}:{number}: unsafe", path.display()));
            }
        }
    }
    report(problems);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    let mut documents = Vec::new();
    files(&root, ".md", &mut documents);
    let mut problems = Vec::new();
    for path in documents {
        let text = std::fs::read_to_string(&path).expect("a document");
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            if !path.parent().is_some_and(|dir| dir.join(target).exists()) {
                problems.push(format!("{}: {target} does not exist", path.display()));
            }
        }
    }
    report(problems);
}

/// Of crates whose tests are one program.
#[test]
fn no_file_of_tests_is_left_out() {
    let mut problems = Vec::new();
    for name in ["sim", "torture"] {
        let folder = root().join("crates").join(name).join("tests");
        let all = std::fs::read_to_string(folder.join("all.rs")).expect("the program of all tests");
        for entry in std::fs::read_dir(folder).expect("the folder of tests") {
            let file = entry.expect("a directory entry").file_name().to_string_lossy().into_owned();
            let Some(module) = file.strip_suffix(".rs").filter(|module| *module != "all") else { continue };
            if !all.contains(&format!("\nmod {module};\n")) {
                problems.push(format!("crates/{name}/tests/{file} is not compiled, and so never run"));
            }
        }
    }
    report(problems);
}
