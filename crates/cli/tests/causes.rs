//! Whatever is said on the command line: a command that does not end with 0 says why in words, and none panics. Many command
//! lines that make no sense are tried with every command that there is.

mod common;

use common::{bimetal, text};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What runs longer has begun to work: it was not refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

/// A command, as its help tells of it.
#[derive(Debug)]
struct Known {
    words: Vec<String>,
    /// Options with a value, and without one.
    valued: Vec<String>,
    bare: Vec<String>,
    positionals: usize,
}

fn help(words: &[String]) -> String {
    let dir = std::env::temp_dir();
    let output = common::succeed(bimetal(&dir).args(words).arg("--help"));
    text(&output.stdout)
}

/// All commands that do something themselves.
fn commands() -> Vec<Known> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(words) = open.pop() {
        let help = help(&words);
        let listed =
            help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What goes on in the next line is indented further.
        let subs: Vec<&str> = listed
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        for sub in &subs {
            open.push(words.iter().cloned().chain([(*sub).to_owned()]).collect());
        }
        if subs.is_empty() {
            found.push(known(words, &help));
        }
    }
    found
}

fn known(words: Vec<String>, help: &str) -> Known {
    let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
    let positionals = usage.split_whitespace().skip(2).filter(|word| word.starts_with(['<', '['])).count();
    let (mut valued, mut bare) = (Vec::new(), Vec::new());
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let Some(at) = line.find("--") else { continue };
        let name: String =
            line[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
        if name.len() > 2 && !matches!(name.as_str(), "--help" | "--version") {
            let list = if line[at + name.len()..].starts_with(" <") { &mut valued } else { &mut bare };
            list.push(name);
        }
    }
    Known { words, valued, bare, positionals }
}

/// Runs a command line; `None` where it was not refused at once.
fn run(mut command: Command) -> Option<Output> {
    // Some serve a volume with a process of their own: it goes with them.
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let start = Instant::now();
    while start.elapsed() < REFUSED_WITHIN {
        if child.try_wait().expect("wait").is_some() {
            return Some(child.wait_with_output().expect("output"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process_group(Pid::from_child(&child), Signal::KILL).expect("kill");
    child.wait().expect("wait");
    None
}

/// Whether a line that the program wrote says something: several words, the first of which are its name.
fn says_why(stderr: &str) -> bool {
    stderr.lines().any(|line| line.starts_with("bimetal: ") && line.split_whitespace().count() >= 4)
}

fn hold(dir: &Path, words: &[String], arguments: &[String], wrong: &mut Vec<String>) -> bool {
    let mut command = bimetal(dir);
    command.current_dir(dir).env("TMPDIR", dir).args(words).args(arguments);
    let shown = format!("{} {arguments:?}", words.join(" "));
    let Some(output) = run(command) else { return false };
    let stderr = text(&output.stderr);
    match output.status.code() {
        Some(0) => return false,
        Some(1 | 2) if says_why(&stderr) && !stderr.contains("panicked") => {}
        code => {
            wrong.push(format!("{shown}: code {code:?}, signal {:?}, {stderr:?}", output.status.signal()))
        }
    }
    true
}

/// What may stand where a file, a target, a volume or a number is meant, and is none of use.
fn values(dir: &Path) -> Vec<String> {
    std::fs::create_dir_all(dir.join("folder")).expect("a folder");
    std::fs::write(dir.join("empty"), "").expect("write");
    std::fs::write(dir.join("garbage.toml"), [0xff, 0, b'[', b'\n', 0x80]).expect("write");
    std::fs::write(dir.join("words"), "these are\nno requests\n").expect("write");
    let fixed = [
        "",
        "-1",
        "x",
        "18446744073709551616",
        "1e400",
        "NaN",
        "0",
        "missing/file",
        "/dev/null",
        "nbd://",
        "model:none",
    ];
    let made = ["folder", "empty", "garbage.toml", "./garbage.toml", "words"];
    fixed.into_iter().chain(made).map(str::to_owned).collect()
}

#[test]
fn whatever_is_refused_is_refused_in_words() {
    let commands = commands();
    assert!(commands.len() > 25, "{commands:?}");
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let share = commands.len().div_ceil(threads);
    let (mut refused, mut wrong) = (0, Vec::new());
    std::thread::scope(|scope| {
        let all: Vec<_> = commands.chunks(share).map(|part| scope.spawn(|| try_all(part))).collect();
        for thread in all {
            let (count, found) = thread.join().expect("a thread");
            refused += count;
            wrong.extend(found);
        }
    });
    assert!(wrong.is_empty(), "{} of {refused}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused > 500, "only {refused} were refused");
}

fn try_all(commands: &[Known]) -> (usize, Vec<String>) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let values = values(dir.path());
    let (mut refused, mut wrong) = (0, Vec::new());
    for known in commands {
        let mut lines: Vec<Vec<String>> = vec![vec!["--no-such-option".to_owned()], vec!["x".to_owned(); 9]];
        // What works without any argument is not to work for long.
        if known.positionals > 0 || known.words[0] != "sim" {
            lines.push(Vec::new());
        }
        for value in &values {
            lines.push(vec![value.clone(); known.positionals.max(1)]);
        }
        for option in &known.valued {
            for value in ["", "-1", "x", "NaN", "18446744073709551616", "folder"] {
                let mut line = vec!["garbage.toml".to_owned(); known.positionals];
                line.push(format!("{option}={value}"));
                lines.push(line);
            }
        }
        for option in known.valued.iter().chain(&known.bare) {
            lines.push(vec![option.clone()]);
            lines.push(vec![option.clone(), option.clone()]);
        }
        // A server that is told nothing wrong serves, and each such line takes its time.
        let mut patience = 3;
        for line in lines {
            if patience == 0 {
                break;
            }
            let begun = Instant::now();
            refused += usize::from(hold(dir.path(), &known.words, &line, &mut wrong));
            patience -= usize::from(begun.elapsed() >= REFUSED_WITHIN);
        }
    }
    (refused, wrong)
}

#[test]
fn a_group_of_commands_without_a_command_says_so() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for words in [&[][..], &["lab"], &["sim"], &["trace"]] {
        let output = bimetal(dir.path()).args(words).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains("say which command"), "{}", text(&output.stderr));
    }
}
