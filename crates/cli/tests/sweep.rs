//! `bimetal sim sweep`, and `[tuning]` in scenarios.

mod common;

use common::bimetal;
use std::path::Path;
use std::process::Output;

/// Files that are read round and round beside what fills the fast tier.
const SCENARIO: &str = r#"
name = "round"
[volume]
fast = { model = "ssd-128gb-2012", size = "256M" }
slow = { model = "disk-1tb-2012", size = "1G" }
[[phase]]
name = "fill"
create_files = { count = 10, size = "32M" }
[[phase]]
name = "hot"
load = [{ pattern = "zipf", theta = 1.2, read_percent = 90, block = "4K", rate_iops = 50, from = "240M", span = "64M" }]
seconds = 30
"#;

fn sweep(dir: &Path, arguments: &[&str]) -> (Output, String, String) {
    let output = bimetal(dir).args(["sim", "sweep"]).args(arguments).output().expect("run");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    (output, printed, said)
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("write");
    path.display().to_string()
}

#[test]
fn what_moves_a_figure_is_told_from_what_moves_none() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = write(dir.path(), "round.toml", SCENARIO);
    let json = dir.path().join("sweep.json").display().to_string();
    // What is no stream lands, and has to be merged; a wear budget that is not there weighs nothing.
    let sets = ["--set", "stream_bytes=1T", "--set", "wear_run_share=x0.5,x1"];
    let (output, printed, said) = sweep(dir.path(), &[&[file.as_str(), "--json", &json], &sets[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(printed.contains("| stream_bytes = 1T, wear_run_share = 1/512 | round | hot |"), "{printed}");
    assert!(printed.contains("\n## What moved\n"), "{printed}");
    let text = std::fs::read_to_string(&json).expect("JSON");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let lines = document["lines"].as_array().expect("lines");
    assert_eq!(lines.len(), 3 * 2, "as it is, and two combinations, of two phases");
    let hot = |number: usize| &lines[2 * number + 1];
    assert_eq!(hot(0)["set"].as_array().map(Vec::len), Some(0));
    assert_eq!(hot(1)["figures"][0]["by_seed"].as_array().map(Vec::len), Some(3));
    assert_eq!(hot(0)["figures"][0]["ratio"], 1.0);
    assert_eq!(hot(0)["figures"][0]["beyond_noise"], false);
    // The two combinations differ by what moves nothing.
    assert_eq!(hot(1)["figures"], hot(2)["figures"]);
    let moves = |line: &serde_json::Value| {
        line["figures"].as_array().is_some_and(|all| all.iter().any(|figure| figure["beyond_noise"] == true))
    };
    assert!(moves(&lines[2]) && !moves(&lines[0]), "{}", lines[2]);
    // The file is kept.
    let (output, _, said) = sweep(dir.path(), &[&[file.as_str(), "--json", &json], &sets[..]].concat());
    assert!(output.status.code() == Some(2) && said.contains("is there already"), "{said}");
}

#[test]
fn all_settings_are_listed_and_can_be_set_one_at_a_time() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (output, list, _) = sweep(dir.path(), &["--list"]);
    assert_eq!(output.status.code(), Some(0));
    let names: Vec<&str> = list.lines().filter(|line| !line.starts_with(' ')).collect();
    assert!(names.len() > 50 && names.contains(&"push_worth = 4, from 0 to 1000 times"), "{list}");
    let short = SCENARIO.replace("seconds = 30", "seconds = 1").replace("count = 10", "count = 1");
    let file = write(dir.path(), "short.toml", &short);
    let (output, printed, said) =
        sweep(dir.path(), &[&file, "--set", "all=x2", "--seeds", "1", "--jobs", "1"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let rows =
        |word: &str| printed.lines().filter(|line| line.starts_with("| ") && line.contains(word)).count();
    assert_eq!(rows("| 2 |"), names.len() - printed.matches("\n- ").count(), "{printed}");
    assert!(said.contains(" runs"), "progress: {said}");
}

#[test]
fn a_trace_is_replayed_without_a_scenario() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut trace = "fio version 3 iolog\n0 /dev/x add\n0 /dev/x open\n".to_owned();
    for request in 0..4000u64 {
        let offset = request * 7_919 % 8000 * 65_536;
        trace += &format!(
            "{} /dev/x {} {offset} 4096\n",
            request * 2,
            if request % 3 == 0 { "write" } else { "read" }
        );
    }
    let trace = write(dir.path(), "made.iolog", &trace);
    let (output, printed, said) =
        sweep(dir.path(), &["--trace", &trace, "--set", "busy_share=x2", "--seeds", "2"]);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(printed.contains("made.iolog, 10% of it fast, as recorded | replay |"), "{printed}");
}

#[test]
fn what_cannot_be_swept_is_refused_with_its_cure() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = write(dir.path(), "round.toml", SCENARIO);
    let device =
        "name = \"d\"\n[device]\nmodel = \"disk-1tb-2012\"\n[[phase]]\nname = \"p\"\npause_seconds = 1\n";
    let device = write(dir.path(), "device.toml", device);
    let many = format!("push_worth={}", (0..1001).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let thousand =
        format!("rest_after_ns={}", (0..1001).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    for (arguments, words) in [
        (&[file.as_str()][..], &["--set NAME=VALUES", "--list"][..]),
        (&["--set", "push_worth=2"], &["name a scenario", "--trace"]),
        (&[&file, "--set", "push_wort=2"], &["push_wort", "the nearest is push_worth, from 0 to 1000"]),
        (&[&file, "--set", "push_worth=1001"], &["push_worth = 1001 is out of its range, from 0 to 1000"]),
        (&[&file, "--set", "push_worth"], &["NAME=VALUE"]),
        (&[&file, "--set", "busy_share=2", "--set", "busy_share=3"], &["busy_share is set twice"]),
        (&[&file, "--set", "all=x2", "--set", "busy_share=3"], &["no other --set"]),
        (&[&file, "--set", "all=3"], &["all=x0.5,x2"]),
        (&[&file, "--set", "caution_least=300"], &["caution_least", "caution_first", "do not go together"]),
        (&[&device, "--set", "push_worth=2"], &["a device alone places nothing"]),
        (&["--trace", &file, "--set", "push_worth=2"], &["no trace"]),
        (&[&file, "--set", &many, "--set", &thousand], &["combinations, more than"]),
        (&[&file, "--set", "push_worth=2", "--jobs", "0"], &["0"]),
    ] {
        let (output, _, said) = sweep(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{arguments:?}: {said}");
        assert!(said.lines().count() <= 3, "{said}");
    }
}

#[test]
fn a_scenario_says_what_it_sets_and_what_is_wrong_with_that() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let run = |name: &str, text: &str, arguments: &[&str]| {
        let file = write(dir.path(), name, text);
        let output = bimetal(dir.path()).args(["sim", "run", &file]).args(arguments).output().expect("run");
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let short = SCENARIO.replace("seconds = 30", "seconds = 1").replace("count = 10", "count = 1");
    let set = format!("{short}\n[tuning]\nbusy_share = \"1/20\"\npush_run_bytes = \"32M\"\n");
    let (printed, _) = run("set.toml", &set, &[]);
    assert!(printed.contains("busy_share = 1/20 is set; the default is 1/10"), "{printed}");
    assert!(printed.contains("push_run_bytes = 32M is set; the default is 16M"), "{printed}");
    let (printed, _) = run("set.toml", &set, &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(report["tuning"][0]["value"], 20);
    let (printed, _) = run("plain.toml", &short, &["--json"]);
    assert!(!printed.contains("\"tuning\""), "{printed}");
    let wrong = format!("{short}\n[tuning]\nbusy_share = 20\nbusy_shar = 3\n");
    let (_, said) = run("wrong.toml", &wrong, &[]);
    let line = format!("line {}", wrong.lines().count());
    assert!(
        [line.as_str(), "busy_shar", "the nearest is busy_share"].iter().all(|word| said.contains(word)),
        "{said}"
    );
}
