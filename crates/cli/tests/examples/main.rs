//! Whatever help, README and the documents show is run here as it is shown, by a shell, in a folder whose name has a blank,
//! with its output compared where that is shown. What cannot be run says why it is not; that its command line is understood
//! is tested beside the definition of that.

#[path = "../common/mod.rs"]
mod common;
mod extract;
mod rules;
mod world;

use extract::Example;
use rules::{Need, Way};
use std::path::{Path, PathBuf};
use world::World;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Help of the program and of all its commands, by their names.
fn all_help() -> Vec<(String, String)> {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (mut found, mut open) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(words) = open.pop() {
        let output = common::succeed(common::bimetal(dir.path()).args(&words).arg("--help"));
        let help = common::text(&output.stdout);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        for line in listed.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            let name = line.split_whitespace().next().expect("a name");
            if name != "help" {
                open.push(words.iter().cloned().chain([name.to_owned()]).collect());
            }
        }
        found.push((format!("bimetal {} --help", words.join(" ")), help));
    }
    found
}

fn all() -> Vec<Example> {
    let mut examples: Vec<Example> =
        all_help().iter().flat_map(|(name, help)| extract::of_help(name, help)).collect();
    let mut documents = vec![root().join("README.md")];
    let docs = std::fs::read_dir(root().join("docs")).expect("documents");
    documents.extend(
        docs.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    documents.sort();
    for path in documents {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a document");
        examples.extend(extract::of_document(&name, &text));
    }
    examples
}

#[test]
fn what_is_shown_does_what_is_said() {
    let examples = all();
    assert!(examples.len() > 90, "only {} examples were found", examples.len());
    // One that stands in two places is run once, with the output that any of them shows.
    let mut apart: Vec<Example> = Vec::new();
    for example in examples {
        match apart.iter_mut().find(|known| known.command == example.command) {
            Some(known) if known.output.is_empty() && known.remark.len() < example.remark.len() => {
                *known = example
            }
            Some(known) if known.output.is_empty() && !example.output.is_empty() => *known = example,
            Some(_) => {}
            None => apart.push(example),
        }
    }
    let (mut ran, mut parsed, mut wrong) = (0, 0, Vec::new());
    for example in &apart {
        match rules::way(&example.command) {
            Some((Way::Parsed(why), _)) => {
                assert!(!why.is_empty());
                parsed += 1;
            }
            Some((way, needs)) => {
                ran += 1;
                let begun = std::time::Instant::now();
                let done = attempt(example, way, needs);
                let seconds = begun.elapsed().as_secs_f64();
                eprintln!("{seconds:5.1} s  {}", example.command);
                if let Err(what) = done {
                    wrong.push(format!("{}: {}\n    {what}", example.place, example.command));
                }
            }
            None => {
                wrong.push(format!("{}: {}\n    no rule says how it is run", example.place, example.command))
            }
        }
    }
    for rule in rules::RULES {
        if !apart.iter().any(|example| rules::meets(rule, &example.command)) {
            wrong.push(format!("a rule for {:?} meets no example any more", rule.0));
        }
    }
    assert!(wrong.is_empty(), "{} examples are not as shown:\n{}", wrong.len(), wrong.join("\n"));
    eprintln!("{ran} examples were run, {parsed} only parsed");
    assert!(ran > parsed);
}

fn attempt(example: &Example, way: Way, needs: &[Need]) -> Result<(), String> {
    let world = World::with(needs, &root())?;
    let command = world.adapted(&example.command);
    let expected: Vec<String> = example.output.iter().map(|line| world.adapted(line)).collect();
    let output = match way {
        Way::Ends(code) => world.run(&command, code)?,
        Way::Serves => world.serve(&command)?,
        Way::Parsed(_) => String::new(),
    };
    let shown: Vec<String> = output.lines().map(|line| world.told(line)).collect();
    for line in expected.iter().chain(&promised(&world, &example.remark)) {
        if !shown.iter().any(|said| is_like(said, line)) {
            return Err(format!("does not print {line:?}, but {shown:?}"));
        }
    }
    Ok(())
}

/// What a remark says that it prints.
fn promised(world: &World, remark: &str) -> Vec<String> {
    let Some((_, behind)) = remark.split_once("prints `") else { return Vec::new() };
    behind.split_once('`').map(|(line, _)| world.adapted(line)).into_iter().collect()
}

/// Whether a line is what is shown: `...` and PATH stand for anything, and so do figures that are another's.
fn is_like(said: &str, shown: &str) -> bool {
    let shown = shown.replace("PATH", "...");
    let mut rest = said;
    shown.split("...").enumerate().all(|(nth, part)| match rest.find(part) {
        Some(at) if nth > 0 || at == 0 => {
            rest = &rest[at + part.len()..];
            true
        }
        _ => false,
    })
}

#[test]
fn examples_are_found_with_their_remarks_and_outputs() {
    let text = "Text.\n\n    bimetal a 'b  c'    a remark\n    said\n\n    nbdinfo x\n\nMore\n    not code of a list\n";
    let found = extract::of_document("x", text);
    assert_eq!(found[0].output, ["said"]);
    assert_eq!(found[1].command, "nbdinfo x");
    let help =
        "Usage\n\nExamples:\n  bimetal x --y      why\n  bimetal z \\\n      more\n\nProse.\n  bimetal no";
    let found: Vec<String> = extract::of_help("x", help).into_iter().map(|example| example.command).collect();
    assert_eq!(found, ["bimetal x --y", "bimetal z more"]);
    assert!(is_like("ready: nbd://x/y", "ready: PATH") && is_like("a b c", "a ... c") && !is_like("b", "a"));
}
