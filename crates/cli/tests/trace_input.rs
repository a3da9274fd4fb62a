//! Traces and texts as they come: through a pipe, with a byte order mark, out of order, from machines whose clocks
//! differ, and with sizes that a target cannot do.

mod common;

use common::{bimetal, text};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

const MARK: &str = "\u{feff}";
/// Two records of a second's distance, as SYSTOR '17 has them.
const TWO: &str = "1456095145.1,0.001,R,0,4096,8192\n1456095145.2,0.001,W,0,65536,4096\n";

fn run(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut command = bimetal(dir);
    command.args(arguments).current_dir(dir);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // Who needs no input may have ended.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// Every command that reads a trace takes it from standard input, marked or not.
#[test]
fn traces_come_through_a_pipe() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    for input in [TWO.to_owned(), format!("{MARK}{TWO}"), format!("{MARK}{}", TWO.replace('\n', "\r\n"))] {
        let summary = json(&run(dir, &["trace", "stat", "-", "--json"], &input));
        assert_eq!((&summary["records"], &summary["malformed"]["count"]), (&2.into(), &0.into()));
        let out = run(dir, &["trace", "convert", "-", "-o", "out.trace", "--force"], &input);
        assert!(out.status.success(), "{}", text(&out.stderr));
        assert_eq!(json(&run(dir, &["trace", "stat", "out.trace", "--json"], ""))["records"], 2);
        for file in ["-", "/dev/stdin"] {
            let replayed = run(dir, &["trace", "replay", file, "--target", "null:", "--json"], &input);
            assert_eq!(json(&replayed)["fidelity"]["records"], 2);
        }
    }
    let twice = run(dir, &["trace", "stat", "-", "-"], TWO);
    assert!(text(&twice.stderr).contains("only once"), "{}", text(&twice.stderr));
    let wide: String = TWO.chars().flat_map(|c| [c, '\0']).collect();
    std::fs::write(dir.join("wide.csv"), [b"\xff\xfe".as_slice(), wide.as_bytes()].concat())
        .expect("written");
    let wide = run(dir, &["trace", "stat", "wide.csv"], "");
    assert!(text(&wide.stderr).contains("iconv -f UTF-16"), "{}", text(&wide.stderr));
}

#[test]
fn texts_may_begin_with_a_mark_and_come_through_a_pipe() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let scenario =
        "name = 'marked'\n[device]\nmodel = 'ssd-128gb-2012'\n[[phase]]\nname = 'x'\npause_seconds = 1\n";
    for input in [scenario.to_owned(), format!("{MARK}{}", scenario.replace('\n', "\r\n"))] {
        let report = json(&run(dir, &["sim", "run", "-", "--json"], &input));
        assert_eq!(report["scenario"], "marked");
        std::fs::write(dir.join("marked.toml"), &input).expect("written");
        json(&run(dir, &["sim", "run", "marked.toml", "--json"], ""));
    }
    std::fs::write(dir.join("job.fio"), format!("{MARK}[x]\nrw=read\nsize=1m\n")).expect("written");
    let run = json(&run(dir, &["lab", "fio", "job.fio", "--target", "null:", "--json"], ""));
    assert_eq!(run["jobs"][0]["read"]["total_ios"], 256);
}

/// What the target cannot do is said before anything is done, with what helps.
#[test]
fn odd_sizes_name_the_reason_and_the_cure() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    std::fs::write(dir.join("d.img"), vec![1; 1 << 20]).expect("written");
    let odd = "128166372003061629,srv,0,Read,1000,24576,41286\n128166372003061630,srv,0,Read,4096,4096,703\n\
               128166372003061631,srv,0,Read,4096,4100,703\n";
    let refused = run(dir, &["trace", "replay", "-", "--target", "d.img"], odd);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--buffered"), "{said}");
    // A file system without direct I/O says so at once.
    if !said.contains("direct I/O") {
        assert!(said.contains("2 of 3 records") && said.contains("24576 bytes at byte 1000"), "{said}");
    }
    let done = run(dir, &["trace", "replay", "-", "--target", "d.img", "--buffered", "--json"], odd);
    assert_eq!(json(&done)["run"]["jobs"][0]["read"]["ios"], 3);
}

/// Nobody waits for the centuries between the clocks of two machines.
#[test]
fn files_on_different_clocks_are_found_out_before_the_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    std::fs::write(dir.join("boot.csv"), "1000,srv,0,Read,0,4096,1\n2000,srv,0,Read,4096,4096,1\n")
        .expect("written");
    std::fs::write(dir.join("today.csv"), "128166372003061629,srv,0,Read,0,4096,1\n").expect("written");
    let replay = ["trace", "replay", "boot.csv", "today.csv", "--target", "null:"];
    let began = Instant::now();
    let refused = run(dir, &replay, "");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && began.elapsed() < Duration::from_secs(60));
    assert!(
        said.contains("boot.csv ends 406 years before today.csv begins") && said.contains("--idle-at-most"),
        "{said}"
    );
    for cure in [["--idle-at-most", "1ms"], ["--mode", "closed"]] {
        let done = run(dir, &[replay.as_slice(), &cure].concat(), "");
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(text(&done.stderr).contains("their clocks differ"));
    }
}

#[test]
fn what_is_out_of_order_is_put_in_order_and_counted() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let line = |at: u32, n: u32| format!("1456095145.{at:06},0.001,R,0,{},4096\n", n * 4096);
    let trace: String = (0..300).map(|n| line(if n % 3 == 0 { 10 * n } else { 10 * n + 100 }, n)).collect();
    let summary = json(&run(dir, &["trace", "stat", "-", "--json"], &trace));
    assert!(summary["out_of_order"].as_u64().is_some_and(|count| count > 90), "{}", summary["out_of_order"]);
    assert_eq!(summary["unsorted"], 0);
    let said = text(&run(dir, &["trace", "replay", "-", "--target", "null:"], &trace).stdout);
    assert!(said.contains("out of order in the trace: 99; put where they belong: 99"), "{said}");
}
