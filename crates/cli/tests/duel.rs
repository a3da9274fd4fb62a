//! `bimetal sim duel`.

mod common;

use common::bimetal;
use serde_json::Value;
use std::path::Path;

fn duel(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = bimetal(dir).args(["sim", "duel"]).args(arguments).output().expect("run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let (code, printed, said) = duel(dir, &[arguments, &["--json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let mut document: Value = serde_json::from_str(&printed).expect("JSON");
    document["seconds"] = Value::Null;
    document
}

/// A small workload of one's own: 4 KiB at random in a part of the volume that fits the fast tier.
const HOT: &str = r#"
fast = "nvme-present"
fast_bytes = 134217728
slow = "disk-1tb-2012"
slow_bytes = 536870912
fill_percent = 60
requests = 4000
arrival = { closed = { depth = 4 } }
[[stream]]
read_percent = 80
bytes = 4096
from_permille = 600
span_permille = 50
grid_bytes = 4096
"#;

/// The same seed gives the same duel on any number of threads, and each figure is there that scripts rely on.
#[test]
fn a_seed_is_a_duel() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let seeds = ["--seeds", "2", "--seed", "1000000", "--policies", "static,bcache"];
    let first = json(dir.path(), &[&seeds[..], &["--threads", "1"]].concat());
    assert_eq!(first, json(dir.path(), &[&seeds[..], &["--threads", "2"]].concat()));
    for policy in ["static", "bcache", "best"] {
        let of = &first["mean"][policy];
        let figure = |name: &str| of[name].as_f64().expect("a number");
        assert!(figure("worst") > 0.0 && figure("worst") <= figure("geometric"), "{first}");
        assert!((0.0..=1.0).contains(&figure("behind_share")), "{first}");
    }
    assert_eq!(first["harms"]["failures"], 0);
}

/// What ours weighs changes ours alone, and a workload of one's own is shown in microseconds.
#[test]
fn a_workload_of_ones_own_is_shown_policy_by_policy() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("hot.toml");
    std::fs::write(&file, HOT).expect("write");
    let file = file.display().to_string();
    let (code, printed, said) = duel(dir.path(), &[&file, "--policies", "static"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains("| bimetal |") && printed.contains("| static |"), "{printed}");
    let times = |arguments: &[&str]| json(dir.path(), arguments)["mean"]["static"]["geometric"].as_f64();
    let plain = times(&[&file, "--policies", "static"]).expect("a number");
    assert!(plain > 1.0, "a hot set that fits the fast tier is no faster than the disk: {plain}");
    assert_eq!(times(&[&file, "--policies", "static", "--set", "wear_run_share=x0.5"]), Some(plain));
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("wrong.toml"), HOT.replace("requests = 4000", "requests = 7"))
        .expect("write");
    let wrong = dir.path().join("wrong.toml").display().to_string();
    let refused: [(&[&str], &str); 6] = [
        (&[&wrong], "requests is 7, not from 100"),
        (&["nowhere.toml"], "nowhere.toml"),
        (&["--policies", "bimetal"], "no other policy is called"),
        (&["--devices", "nvme-present"], "write FAST,SLOW"),
        (&["--seed", "18446744073709551615"], "the last seed"),
        (&["--set", "push_worth=1,2"], "one value of one setting"),
    ];
    for (arguments, why) in refused {
        let (code, printed, said) = duel(dir.path(), arguments);
        assert_eq!((code, printed.as_str()), (Some(2), ""), "{arguments:?}: {said}");
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{arguments:?}: {said}");
    }
}
