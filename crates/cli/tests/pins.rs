//! Pins and explanations, of a volume that is served and of one that is not.

mod common;

use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The JSON document that a command about the volume prints.
fn document(served: &Served, words: &[&str]) -> Value {
    let output = succeed(&mut command(served, words, &["--json"]));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn command(served: &Served, words: &[&str], more: &[&str]) -> std::process::Command {
    let mut command = bimetal(served.dir.path());
    command.arg(words[0]).arg(served.file()).args(&words[1..]).args(more);
    command
}

/// What a command that is refused says.
fn refusal(served: &Served, words: &[&str]) -> String {
    let Output { status, stdout, stderr } = command(served, words, &[]).output().expect("run");
    let message = text(&stderr);
    assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{message}");
    assert_eq!(message.lines().filter(|line| line.starts_with("bimetal: ")).count(), 1, "{message}");
    message
}

fn listed(document: &Value) -> Vec<(u64, u64, &str)> {
    let number = |pin: &Value, key: &str| pin[key].as_u64().expect("a number");
    let pins = document["pins"].as_array().expect("a list").iter();
    pins.map(|pin| {
        (number(pin, "offset"), number(pin, "length_bytes"), pin["tier"].as_str().expect("a name"))
    })
    .collect()
}

/// Waits until everything pinned is where it belongs.
fn settled(served: &Served) -> Value {
    let start = Instant::now();
    loop {
        let pins = document(served, &["pins"]);
        let astray = |pin: &Value| pin["astray_bytes"] != 0;
        if !pins["pins"].as_array().expect("a list").iter().any(astray) {
            return pins;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{pins}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn pins_are_obeyed_and_outlive_kills_and_restarts() {
    let mut served = Served::new();
    let mut client = served.connect();
    // More than the fast tier holds: the end of it is on the slow one.
    let bytes = pattern(7, 4 << 20);
    for at in (0..80).step_by(4) {
        client.write(at * MIB, &bytes);
    }
    client.flush();
    let made = document(&served, &["pin", "76M", "2M", "--tier", "fast"]);
    assert_eq!(listed(&made), [(76 * MIB, 2 * MIB, "fast")]);
    document(&served, &["pin", "1M", "100", "--tier", "slow"]);
    let expected = [(MIB, 64 << 10, "slow"), (76 * MIB, 2 * MIB, "fast")];
    let pins = settled(&served);
    assert_eq!(listed(&pins), expected);
    assert_eq!(pins["pins"][1]["settled_bytes"], 2 * MIB);
    let status = document(&served, &["status"]);
    let pinned = |tier: usize| status["tiers"][tier]["pinned_bytes"].as_u64();
    assert_eq!([pinned(0), pinned(1)], [Some(2 * MIB), Some(64 << 10)], "{status}");
    let said = succeed(&mut command(&served, &["status"], &[]));
    assert!(text(&said.stdout).contains("2 MiB pinned to it"), "{}", text(&said.stdout));

    let why = document(&served, &["why", "77M"]);
    assert_eq!((&why["tier"], &why["pinned"]), (&"fast".into(), &"fast".into()), "{why}");
    assert_eq!(why["last_decision"]["reason"], "pinned", "{why}");
    assert!(
        why["since_unix_s"].as_u64().is_some_and(|since| since >= why["opened_unix_s"].as_u64().unwrap_or(0))
    );
    let said = text(&succeed(&mut command(&served, &["why", "77M"], &[])).stdout);
    assert!(
        said.contains("It is pinned to the fast tier.") && said.contains("because it was pinned there"),
        "{said}"
    );

    served.kill();
    // Nobody serves it: the volume itself is asked.
    assert_eq!(listed(&document(&served, &["pins"])), expected);
    served.start();
    assert_eq!(listed(&document(&served, &["pins"])), expected);
    assert_eq!(served.connect().read(76 * MIB, bytes.len()), bytes);
    served.stop();
    served.check();
    let pins = document(&served, &["unpin", "77M", "512K"]);
    assert_eq!(listed(&pins).len(), 3);
    served.start();
    assert_eq!(listed(&document(&served, &["pins"])), listed(&pins));
    let none = document(&served, &["unpin", "0", "100T"]);
    assert_eq!(listed(&none), []);
    let said = text(&succeed(&mut command(&served, &["pins"], &[])).stdout);
    assert!(said.contains("nothing is pinned"), "{said}");
    served.kill();
    assert_eq!(listed(&document(&served, &["pins"])), []);
}

#[test]
fn what_cannot_be_is_refused_in_one_sentence_served_or_not() {
    let mut served = Served::new();
    for _ in 0..2 {
        let message = refusal(&served, &["pin", "0", "200M", "--tier", "fast"]);
        assert!(message.contains("can hold") && message.contains("unpin something first"), "{message}");
        let message = refusal(&served, &["pin", "1T", "1M", "--tier", "fast"]);
        assert!(
            message.contains("not in the volume") && message.contains(&(1u64 << 40).to_string()),
            "{message}"
        );
        let message = refusal(&served, &["pin", "1M", "0", "--tier", "slow"]);
        assert!(message.contains("not in the volume"), "{message}");
        let message = refusal(&served, &["why", "1T"]);
        assert!(message.contains("behind its end"), "{message}");
        let message = refusal(&served, &["unpin", "1T", "1M"]);
        assert!(message.contains("not in the volume"), "{message}");
        assert_eq!(listed(&document(&served, &["pins"])), []);
        if served.child.is_some() {
            served.stop();
        }
    }
    assert!(refusal(&served, &["pin", "0", "1M"]).contains("--tier"));
    assert!(refusal(&served, &["pin", "0", "1M", "--tier", "warm"]).contains("warm"));
    assert!(refusal(&served, &["why", "here"]).contains("here"));
}

/// The socket on which the server is asked.
fn control(served: &Served) -> PathBuf {
    let mut found = Vec::new();
    let mut dirs = vec![served.dir.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
            if entry.path().is_dir() {
                dirs.push(entry.path());
            } else if entry.file_name().to_string_lossy().contains("control") {
                found.push(entry.path());
            }
        }
    }
    found.pop().expect("a control socket")
}

fn answer(stream: &mut UnixStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the end of the stream");
    text
}

/// Whoever comes to the control socket and says nothing gets the status, as ever; nonsense is answered with a sentence,
/// and nobody who stays silent or goes away keeps it from the others.
#[test]
fn the_control_socket_bears_all_kinds_of_visitors() {
    let served = Served::new();
    let control = control(&served);
    let visit = || UnixStream::connect(&control).expect("connect");
    let status = answer(&mut visit());
    assert!(status.contains("\"size_bytes\"") && serde_json::from_str::<Value>(&status).is_ok(), "{status}");
    let mut nonsense = visit();
    nonsense.write_all(b"{\"ask\":\"films\"}\n").expect("send");
    assert!(answer(&mut nonsense).contains("makes no sense"));
    let mut flood = visit();
    let _ = flood.write_all(&[b'x'; 100_000]);
    let mut half = visit();
    half.write_all(b"{\"ask\":").expect("send");
    let gone = visit();
    drop(gone);
    let crowd: Vec<UnixStream> = (0..40).map(|_| visit()).collect();
    let start = Instant::now();
    while command(&served, &["pins"], &["--json"]).output().expect("run").status.code() != Some(0) {
        assert!(start.elapsed() < Duration::from_secs(20), "the others are in the way");
    }
    drop(crowd);
    assert_eq!(answer(&mut half), "", "it is not waited for");
    // Many at once: one after the other.
    let commands: Vec<_> = (0..8)
        .map(|n| {
            let words = ["pin", &format!("{n}M"), "1M", "--tier", ["fast", "slow"][n % 2]].map(str::to_owned);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            command(&served, &words, &["--json"]).stdout(std::process::Stdio::null()).spawn().expect("run")
        })
        .collect();
    for mut child in commands {
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(listed(&document(&served, &["pins"])).len(), 8);
}
