//! `bimetal top --once` tells what was counted in its second, whoever counts, and names a volume that is not served.

mod common;

use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

fn run(served: &Served, words: &[&str], more: &[&str]) -> String {
    let mut command = bimetal(served.dir.path());
    text(&succeed(command.args(words).arg(served.file()).args(more)).stdout)
}

fn doc(served: &Served, words: &[&str], more: &[&str]) -> Value {
    serde_json::from_str(&run(served, words, more)).expect("one document")
}

/// Operations and bytes of all devices together.
fn counted(served: &Served) -> [f64; 4] {
    let status = doc(served, &["status"], &["--json"]);
    let tiers = status["tiers"].as_array().expect("tiers");
    let sum = |key: &str| tiers.iter().map(|tier| tier["load"][key].as_f64().expect("a count")).sum();
    ["reads", "writes", "read_bytes", "written_bytes"].map(sum)
}

#[test]
fn what_it_tells_of_a_second_is_what_was_counted() {
    let served = Served::new();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = served.connect();
            for at in 0u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let place = (at % 256) * 65536;
                client.write(place, &pattern(at, 16384));
                client.flush();
                client.read(place, 16384);
            }
        });
        let before = counted(&served);
        let top = doc(&served, &["top"], &["--once", "--json"]);
        let after = counted(&served);
        over.store(true, Ordering::Relaxed);
        let volume = &top["volumes"][0];
        assert_eq!(
            (volume["volume"].as_str(), volume["state"].as_str()),
            (Some("v"), Some("open")),
            "{volume}"
        );
        let seconds = volume["seconds"].as_f64().expect("a time");
        let devices = volume["devices"].as_array().expect("devices");
        let keys = ["reads_per_s", "writes_per_s", "read_bytes_per_s", "written_bytes_per_s"];
        for (nth, key) in keys.into_iter().enumerate() {
            let told: f64 =
                devices.iter().map(|device| device[key].as_f64().expect("a rate")).sum::<f64>() * seconds;
            let most = after[nth] - before[nth];
            assert!(told >= 0.0 && told <= most + 0.5, "{key}: {told} of {most}");
        }
        let written = devices[0]["writes_per_s"].as_f64();
        assert!(written > Some(0.0), "{volume}");
        assert_eq!(devices[0]["counted_by"], "server", "it is a file");
        assert!(volume["hits"]["ever"]["writes"].as_f64() > Some(0.0), "{volume}");
        assert!(volume["hottest"][0]["hottest"].as_u64() > Some(0), "{volume}");
    });
    let screen = run(&served, &["top"], &["--once"]);
    for words in ["v: open", "v fast", "v slow", "from the fast tier", "moves: up", "hottest"] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
}

#[test]
fn who_is_not_served_is_told_and_a_terminal_is_wanted() {
    let mut served = Served::new();
    let mut command = bimetal(served.dir.path());
    let output = command.arg("top").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no terminal; --once"), "{}", text(&output.stderr));
    let all = text(&succeed(bimetal(served.dir.path()).args(["top", "--once"])).stdout);
    assert!(all.contains("v: open"), "without a name all are shown: {all}");
    served.stop();
    assert!(run(&served, &["top"], &["--once"]).contains("v: nobody serves it"));
    let top = doc(&served, &["top"], &["--once", "--json"]);
    assert_eq!(top["volumes"][0]["state"], "not served");
}

/// What `p` asks for: moves are paused, which is said wherever one looks, and go on again.
#[test]
fn moves_are_paused_and_resumed() {
    let served = Served::new();
    let status = bimetal_serve::live_status(&control_of(&served)).expect("an answer");
    assert!(status.is_some_and(|status| !status.moves.paused));
    let ask = |pause: bool| {
        let question = bimetal_serve::Question::Moves { pause };
        let answer = bimetal_serve::live_answer(&control_of(&served), &question).expect("an answer");
        assert_eq!(answer, Some(bimetal_serve::Answer::Moves { paused: pause }));
    };
    ask(true);
    ask(true);
    assert!(run(&served, &["top"], &["--once"]).contains("PAUSED"));
    assert_eq!(doc(&served, &["top"], &["--once", "--json"])["volumes"][0]["moves_paused"], true);
    assert_eq!(doc(&served, &["status"], &["--json"])["moves"]["paused"], true);
    ask(false);
    assert_eq!(doc(&served, &["status"], &["--json"])["moves"]["paused"], false);
    let events = doc(&served, &["events"], &["--json"]);
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .filter(|kind| kind.starts_with("moves-"))
        .collect();
    assert_eq!(kinds, ["moves-paused", "moves-resumed"], "what changes nothing is no event");
}

/// Where its server answers questions.
fn control_of(served: &Served) -> std::path::PathBuf {
    let found = std::fs::read_dir(served.dir.path().join("bimetal")).expect("the folder of sockets");
    let sockets = found.map(|entry| entry.expect("an entry").path());
    let mut control = sockets.filter(|path| path.extension().is_some_and(|ending| ending == "control"));
    control.next().expect("a control socket")
}
