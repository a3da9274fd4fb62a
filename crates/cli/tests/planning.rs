//! `bimetal plan`: what it says of a trace, and what it refuses.

mod common;

use common::{Guarded, Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/small.csv");

fn plan(dir: &Path, arguments: &[&str]) -> Output {
    bimetal(dir).arg("plan").args(arguments).current_dir(dir).output().expect("it runs")
}

#[test]
fn a_plan_is_a_sentence_a_table_a_document_and_a_picture() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let said = plan(dir, &[SMALL, "--fast-model", "nvme-present", "--fast-model", "ssd-128gb-2012"]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    let said = text(&said.stdout);
    let lines: Vec<&str> = said.lines().collect();
    // The sentence, what was run, the heads, five sizes and one further device.
    assert!(lines.len() == 10 && lines[0].contains("fast tier"), "{lines:#?}");
    assert!(lines[2].contains("all of it was run") && lines[9].contains("ssd-128gb-2012"), "{lines:#?}");
    let output = plan(dir, &[SMALL, "--json", "--plot", "plan.svg"]);
    let doc: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let sizes: Vec<u64> = doc["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| row["fast_bytes"].as_u64().expect("bytes") >> 20)
        .collect();
    assert_eq!(sizes, [64, 128, 256, 512, 1024]);
    for key in ["fast_model", "slow_model", "mean_us", "p99_us", "wear_bytes_per_day", "wakeups_per_day"] {
        assert!(!doc["rows"][4][key].is_null(), "{key}: {doc}");
    }
    assert_eq!(
        (&doc["source"], &doc["requests"], &doc["sampled_share"]),
        (&SMALL.into(), &40.into(), &1.0.into())
    );
    assert!(doc["rows"][0]["fast_share"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{doc}");
    let svg = std::fs::read_to_string(dir.join("plan.svg")).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.matches("<rect").count() >= 10);
}

#[test]
fn what_cannot_be_planned_with_is_refused_in_a_sentence() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    std::fs::write(dir.join("empty.csv"), "").expect("is written");
    std::fs::write(dir.join("words.csv"), "these are\nno records\n").expect("is written");
    let whole = std::fs::read(SMALL).expect("a trace");
    let converted =
        bimetal(dir).args(["trace", "convert", SMALL, "-o", "small.trace"]).current_dir(dir).output();
    assert!(converted.expect("it runs").status.success());
    let own = std::fs::read(dir.join("small.trace")).expect("a trace");
    std::fs::write(dir.join("short.trace"), &own[..40]).expect("is written");
    for (arguments, said) in [
        (vec!["none.csv"], "none.csv"),
        (vec!["."], "is a directory"),
        (vec!["empty.csv"], "is empty"),
        (vec!["words.csv"], "no trace in a format"),
        (vec!["short.trace"], "short.trace"),
        (vec![SMALL, "--fast", "1M"], "from 64 MiB to 16 TiB"),
        (vec![SMALL, "--fast-model", "ssd-of-tomorrow"], "ssd-of-tomorrow"),
        (vec![SMALL, "--share", "0"], "above 0 and up to 1"),
        (vec![SMALL, "--threads", "0"], "use 1 or more"),
    ] {
        let output = plan(dir, &arguments);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(said), "{arguments:?}: {told}");
        assert!(!told.contains("panicked"), "{told}");
    }
    // A line that is none is told of, and the others are planned with.
    let damaged = [whole.as_slice(), b"and so on\n"].concat();
    std::fs::write(dir.join("damaged.csv"), damaged).expect("is written");
    let output = plan(dir, &["damaged.csv", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let doc: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(doc["malformed"], 1);
}

/// A trace that is cut or damaged anywhere is planned with or refused, and nothing panics.
#[test]
fn damage_is_survived() {
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let mut convert: Command = bimetal(dir);
    convert.args(["trace", "convert", SMALL, "-o", "small.trace"]).current_dir(dir);
    assert!(convert.output().expect("it runs").status.success());
    let whole = std::fs::read(dir.join("small.trace")).expect("a trace");
    for part in 1..8 {
        let mut bytes = whole.clone();
        let at = whole.len() * part / 8;
        match part % 2 {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 0x55,
        }
        std::fs::write(dir.join("bad.trace"), &bytes).expect("is written");
        let output = plan(dir, &["bad.trace"]);
        assert!(matches!(output.status.code(), Some(0..=2)), "{part}: {output:?}");
        assert!(!text(&output.stderr).contains("panicked"), "{part}: {}", text(&output.stderr));
    }
}

/// What a server has noted plans what a trace of the same requests does.
#[test]
fn a_served_volume_is_planned_with_what_it_was_asked_for() {
    let served = Served::new();
    let dir = served.dir.path();
    let mut client = served.connect();
    let of_volume = |arguments: &[&str]| plan(dir, &[&["v.toml"], arguments].concat());
    let said = of_volume(&[]);
    assert!(said.status.code() == Some(2) && text(&said.stderr).contains("use it for a while"), "{said:?}");
    let trace = dir.join("all.trace");
    let mut record = bimetal(dir);
    record.args(["trace", "record", "v.toml", "--requests", "601", "-o"]).arg(&trace).current_dir(dir);
    let mut recorder = Guarded(record.stdout(Stdio::null()).spawn().expect("it runs"));
    let begun = Instant::now();
    while !trace.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the recorder does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..300u64 {
        client.write(number * 7919 % 512 * 65536, &pattern(number, 8192));
        client.read(number * 104_729 % 512 * 65536 + 61440, 8192);
    }
    client.flush();
    assert!(recorder.0.wait().expect("it ends").success());
    let (of_tape, of_trace) = (of_volume(&["--json"]), plan(dir, &["all.trace", "--fast", "256M", "--json"]));
    let [of_tape, of_trace]: [Value; 2] =
        [of_tape, of_trace].map(|output| serde_json::from_slice(&output.stdout).expect("one document"));
    assert_eq!((&of_tape["source"], &of_tape["sampled_share"]), (&"v".into(), &1.0.into()));
    assert_eq!(of_tape["touched_bytes"], of_trace["touched_bytes"]);
    for (one, other) in
        of_tape["rows"].as_array().expect("rows").iter().zip(of_trace["rows"].as_array().expect("rows"))
    {
        let [one, other] = [one, other].map(|row| row["fast_share"].as_f64().expect("a share"));
        assert!((one - other).abs() < 0.02, "{of_tape} {of_trace}");
    }
    let said = of_volume(&["--share", "0.5"]);
    assert!(said.status.code() == Some(2) && text(&said.stderr).contains("a sample already"), "{said:?}");
}

/// The present size takes what the server has measured, where that is of enough requests, whatever size is asked about.
#[test]
fn means_are_those_that_a_server_has_measured() {
    let served = Served::sized("320M", "1G");
    let dir = served.dir.path();
    let mut client = served.connect();
    let mut ask = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            client.write(number * 7919 % 512 * 65536, &pattern(number, 8192));
            client.read(number * 104_729 % 512 * 65536, 8192);
        }
    };
    let planned = |arguments: &[&str]| -> Value {
        let output = plan(dir, &[&["v.toml", "--json"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("one document")
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    ask(0..499);
    let few = planned(&[]);
    let why = few["measured"]["why_not"].as_str().expect("a reason");
    assert!(few["calibrated"] == false && why.contains("998 answers"), "{few}");
    let said = text(&plan(dir, &["v.toml"]).stdout);
    assert!(said.contains(&format!("means are not scaled to what was measured: {why}")), "{said}");

    ask(499..600);
    let found = planned(&[]);
    let measured = &found["measured"];
    assert_eq!((&found["calibrated"], &measured["why_not"]), (&true.into(), &Value::Null), "{found}");
    let status = succeed(bimetal(dir).args(["status", "v.toml", "--json"]).current_dir(dir));
    let status: Value = serde_json::from_slice(&status.stdout).expect("one document");
    let sum = |what: &str| {
        ["reads", "writes"].map(|kind| number(&status["requests"][kind][what])).iter().sum::<f64>()
    };
    assert_eq!(number(&measured["answered"]), sum("count"));
    let mean_us = sum("response_us") / sum("count");
    assert!((number(&measured["mean_us"]) / mean_us - 1.0).abs() < 0.01, "{mean_us} {found}");
    let present = &found["rows"][2];
    assert!((number(&present["mean_us"]) / mean_us - 1.0).abs() < 0.01, "{mean_us} {found}");
    let scaled = number(&measured["planned_mean_us"]) * number(&measured["factor"]);
    assert!((scaled / mean_us - 1.0).abs() < 0.01, "{found}");
    let said = text(&plan(dir, &["v.toml"]).stdout);
    assert!(
        said.contains("means are scaled to what was measured: ") && said.contains("1200 answers"),
        "{said}"
    );

    let larger = planned(&["--fast", "2G"]);
    assert_eq!((&larger["calibrated"], larger["rows"].as_array().map(Vec::len)), (&true.into(), Some(5)));
    let times = number(&larger["measured"]["factor"]) / number(&measured["factor"]);
    assert!((times - 1.0).abs() < 0.01, "{larger} {found}");
}

#[test]
fn a_volume_that_nobody_notes_or_serves_is_told_as_such() {
    let mut served = Served::new();
    served.stop();
    let said = |served: &Served| {
        let output = plan(served.dir.path(), &["v.toml"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    assert!(said(&served).contains("nobody serves it"));
    served.start_with(&["--plan-tape", "0"]);
    served.connect().write(0, &[7; 4096]);
    assert!(said(&served).contains("serve it without --plan-tape 0"));
}
