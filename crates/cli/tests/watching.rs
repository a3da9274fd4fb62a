//! What is kept of a served volume: its events, its history, and the program that hears of them.

mod common;

use bimetal_watch::{Sample, Step, read};
use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn events(served: &Served, options: &[&str]) -> Vec<Value> {
    let mut command = bimetal(served.dir.path());
    let output = succeed(command.arg("events").arg(served.file()).arg("--json").args(options));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    document["events"].as_array().expect("a list").clone()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().expect("a kind")).collect()
}

fn pin(served: &Served, offset: &str) {
    let mut command = bimetal(served.dir.path());
    succeed(command.arg("pin").arg(served.file()).args([offset, "64K", "--tier", "fast"]));
}

/// Waits until something is so, which takes seconds at most.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_happens_is_listed_whether_the_volume_is_served_or_not() {
    let mut served = Served::new();
    pin(&served, "0");
    wait_until("the pin is noted", || kinds(&events(&served, &[])).contains(&"pin"));
    served.kill();
    served.start();
    served.stop();
    // By nobody's server.
    succeed(bimetal(served.dir.path()).arg("unpin").arg(served.file()).args(["0", "64K"]));
    let all = events(&served, &[]);
    assert_eq!(kinds(&all), ["opened", "pin", "opened", "recovered", "closed", "unpin"]);
    assert!(all.iter().all(|event| event["volume"] == "v" && event["unix_ms"].as_u64() > Some(0)));
    assert_eq!(all[3]["level"], "warning");
    assert_eq!(events(&served, &["--since", "1d"]).len(), 6);
    assert_eq!(events(&served, &["--since", "2100-01-01"]).len(), 0);
    let plain = succeed(bimetal(served.dir.path()).arg("events").arg(served.file()));
    let plain = text(&plain.stdout);
    assert_eq!(plain.lines().count(), 6);
    assert!(plain.lines().next().is_some_and(|line| line.contains("Z  opened")), "{plain}");
}

#[test]
fn who_follows_hears_at_once() {
    let mut served = Served::new();
    let mut command = bimetal(served.dir.path());
    command.arg("events").arg(served.file()).args(["--follow", "--json"]).stdout(Stdio::piped());
    let mut child = common::Guarded(command.spawn().expect("start"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("piped")).lines();
    let mut next = || {
        let line = lines.next().expect("a line").expect("read");
        serde_json::from_str::<Value>(&line).expect("a document")["kind"].clone()
    };
    assert_eq!(next(), "opened");
    pin(&served, "128K");
    assert_eq!(next(), "pin");
    served.stop();
    assert_eq!(next(), "closed");
    assert!(common::terminate(&mut child.0).success());
}

/// A program, and the volume file that names it.
fn hook(served: &Served, script: &str) {
    let program = served.dir.path().join("hook");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("write");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("permissions");
    let text = std::fs::read_to_string(served.file()).expect("read");
    std::fs::write(served.file(), format!("on_event = \"hook\"\n{text}")).expect("write");
}

#[test]
fn the_hook_hears_of_each_kind_and_of_how_many_it_missed() {
    let mut served = Served::new();
    served.stop();
    hook(&served, "line=$(cat) && echo \"$line\" >> heard");
    let mut command = common::serve(served.dir.path());
    command.current_dir(served.dir.path());
    served.child = Some(common::start(command));
    for at in 0..8 {
        pin(&served, &format!("{}K", 64 * at));
    }
    served.stop();
    let heard = std::fs::read_to_string(served.dir.path().join("heard")).expect("the hook has run");
    let heard: Vec<Value> =
        heard.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
    let of = |kind: &str| heard.iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>();
    assert_eq!((of("opened").len(), of("closed").len()), (1, 1), "{heard:?}");
    let missed: u64 = of("pin").iter().map(|event| event["missed"].as_u64().expect("a number")).sum();
    assert_eq!(of("pin").len() as u64 + missed, 8, "{heard:?}");
}

#[test]
fn a_hook_that_hangs_holds_nobody_up_and_is_ended() {
    let mut served = Served::new();
    served.stop();
    let pids = served.dir.path().join("pids");
    hook(&served, &format!("echo $$ >> {}; sleep 1000 & wait", pids.display()));
    served.start();
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    assert_eq!(client.read(0, 4096), pattern(1, 4096));
    wait_until("the hook runs", || pids.exists());
    drop(client);
    served.stop();
    for pid in std::fs::read_to_string(&pids).expect("read").lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} lives on");
    }
}

#[test]
fn a_hook_that_is_not_there_is_a_sentence() {
    let mut served = Served::new();
    served.stop();
    hook(&served, "");
    std::fs::remove_file(served.dir.path().join("hook")).expect("remove");
    let mut command = common::serve(served.dir.path());
    command.stderr(Stdio::piped());
    let mut child = common::start(command);
    assert!(common::terminate(&mut child).success());
    let said = text(&child.wait_with_output().expect("output").stderr);
    assert_eq!(said.matches("cannot be run").count(), 1, "{said}");
}

fn history(file: &Path, step: Step) -> Vec<Sample> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    read(file, step, now).expect("a history")
}

#[test]
fn the_history_has_what_was_asked_for_over_restarts_and_survives_damage() {
    let mut served = Served::new();
    let file: PathBuf = served.dir.path().join("v.history");
    for round in 1..=2u64 {
        let mut client = served.connect();
        for at in 0..50u64 {
            client.write(at * 4096, &pattern(at, 4096));
        }
        client.flush();
        (0..20u64).for_each(|at| drop(client.read(at * 4096, 4096)));
        drop(client);
        served.stop();
        for step in Step::ALL {
            let samples = history(&file, step);
            let sum = |name| samples.iter().map(|sample| sample.get(name)).sum::<u64>();
            assert_eq!(
                (sum("writes"), sum("reads"), sum("flushes")),
                (50 * round, 20 * round, round),
                "{step:?}"
            );
            assert_eq!(sum("written_bytes"), 50 * round * 4096);
            assert!(samples.iter().any(|sample| sample.get("write_p99_us") > 0));
        }
        if round == 1 {
            served.start();
        }
    }
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[..4].copy_from_slice(b"oops");
    std::fs::write(&file, bytes).expect("write");
    let mut command = common::serve(served.dir.path());
    command.stderr(Stdio::piped());
    let mut child = common::start(command);
    assert!(common::terminate(&mut child).success());
    let said = text(&child.wait_with_output().expect("output").stderr);
    assert_eq!(said.matches("v.history.bad").count(), 1, "{said}");
    assert!(served.dir.path().join("v.history.bad").exists());
    assert_eq!(history(&file, Step::Second).iter().map(|sample| sample.get("writes")).sum::<u64>(), 0);
}

#[test]
fn what_was_kept_goes_with_the_volume() {
    let mut served = Served::new();
    served.stop();
    assert!(served.dir.path().join("v.events").exists());
    succeed(bimetal(served.dir.path()).arg("destroy").arg(served.file()).arg("--yes"));
    for name in ["v.events", "v.history"] {
        assert!(!served.dir.path().join(name).exists(), "{name}");
    }
}
