//! A volume that was stopped, and of which bits changed meanwhile, is scrubbed: all of them are found, and nothing else.

mod common;

use common::{Served, bimetal, succeed, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Bits that change on each tier.
const FLIPS: usize = 200;

fn scrub(served: &Served, words: &[&str]) -> (i32, Value) {
    let mut command = bimetal(served.dir.path());
    let output = command.arg("scrub").arg(served.file()).args(words).arg("--json").output().expect("run");
    let code = output.status.code().expect("an exit code");
    (code, serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr))))
}

/// A block that says which one it is, and of which round.
fn stamped(at: u64, round: u8) -> Vec<u8> {
    let mut bytes = vec![round; BLOCK as usize];
    bytes[..8].copy_from_slice(b"stamped:");
    bytes[8..16].copy_from_slice(&at.to_le_bytes());
    bytes[16] = round;
    bytes
}

/// The blocks of a device that are stamped: where, and what they say.
fn stamps(device: &Path) -> Vec<(u64, u64, u8)> {
    let bytes = std::fs::read(device).expect("a device");
    let blocks = (0..).step_by(BLOCK as usize).zip(bytes.chunks_exact(BLOCK as usize));
    let found = blocks.filter(|(_, block)| block.starts_with(b"stamped:"));
    found.map(|(at, b)| (at, u64::from_le_bytes(b[8..16].try_into().expect("eight bytes")), b[16])).collect()
}

fn flip(device: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(device).expect("a device");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at + 100).expect("it is read");
    file.write_all_at(&[byte[0] ^ 4], at + 100).expect("it is written");
}

fn until_whole(served: &Served) -> (i32, Value) {
    let start = Instant::now();
    loop {
        let (code, doc) = scrub(served, &["--status"]);
        if doc["scrub"]["state"] == "whole" {
            return (code, doc);
        }
        assert!(start.elapsed() < Duration::from_secs(300), "{doc}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The blocks of the volume that are listed.
fn listed(doc: &Value) -> BTreeSet<u64> {
    let number = |lost: &Value, key: &str| lost[key].as_u64().expect("a number");
    let lost = doc["scrub"]["lost"].as_array().expect("a list").iter();
    lost.flat_map(|lost| {
        let at = number(lost, "offset");
        (at..at + number(lost, "length_bytes")).step_by(BLOCK as usize)
    })
    .collect()
}

#[test]
fn all_flips_on_both_tiers_are_found_and_nothing_else() {
    let mut served = Served::new();
    let [fast, slow] = ["fast.img", "slow.img"].map(|name| served.dir.path().join(name));
    let mut client = served.connect();
    for mib in 0..200 {
        let bytes: Vec<u8> =
            (mib * MIB..(mib + 1) * MIB).step_by(BLOCK as usize).flat_map(|at| stamped(at, 1)).collect();
        client.write(mib * MIB, &bytes);
    }
    client.flush();
    served.stop();
    // What is on the disk and was never on the SSD.
    let passed: BTreeSet<u64> = stamps(&fast).into_iter().map(|(_, at, _)| at).collect();
    let mut cold: Vec<(u64, u64)> = stamps(&slow)
        .into_iter()
        .filter(|(_, at, _)| !passed.contains(at))
        .map(|(place, at, _)| (place, at))
        .collect();
    cold.sort_by_key(|(_, at)| *at);
    assert!(cold.len() > 8 * FLIPS, "{} blocks on the disk alone", cold.len());
    served.start();
    let mut client = served.connect();
    let step = cold.len() / (2 * FLIPS);
    let rewritten: Vec<u64> = cold.iter().step_by(step).map(|(_, at)| *at).collect();
    for at in &rewritten {
        client.write(*at, &stamped(*at, 2));
    }
    client.flush();
    served.stop();

    let merged: BTreeSet<u64> =
        stamps(&slow).into_iter().filter(|(_, _, round)| *round == 2).map(|(_, at, _)| at).collect();
    let landed = stamps(&fast).into_iter().filter(|(_, at, round)| *round == 2 && !merged.contains(at));
    let landed: Vec<(u64, u64)> = landed.map(|(place, at, _)| (place, at)).take(FLIPS).collect();
    let homes =
        cold.iter().skip(step / 2).step_by(step).filter(|(_, at)| !rewritten.contains(at)).take(FLIPS);
    let homes: Vec<(u64, u64)> = homes.copied().collect();
    assert_eq!((landed.len(), homes.len()), (FLIPS, FLIPS));
    landed.iter().for_each(|(place, _)| flip(&fast, *place));
    homes.iter().for_each(|(place, _)| flip(&slow, *place));
    let flipped: BTreeSet<u64> = landed.iter().chain(&homes).map(|(_, at)| *at).collect();
    assert_eq!(flipped.len(), 2 * FLIPS);

    served.start();
    let (code, doc) = scrub(&served, &[]);
    assert!(code == 0 || doc["scrub"]["lost"] != Value::Array(Vec::new()), "{doc}");
    let (code, doc) = until_whole(&served);
    assert_eq!((code, &doc["scrub"]["unlisted_bytes"]), (1, &Value::from(0)), "{doc}");
    assert_eq!(listed(&doc), flipped);
    let status = succeed(bimetal(served.dir.path()).arg("status").arg(served.file()));
    assert!(text(&status.stdout).contains("the last scrub saw everything"), "{}", text(&status.stdout));
    // Written again they are well.
    let mut client = served.connect();
    for at in &flipped {
        client.write(*at, &stamped(*at, 3));
    }
    client.flush();
    assert_eq!(scrub(&served, &[]).0, 0);
    let (code, doc) = until_whole(&served);
    assert_eq!((code, listed(&doc).len()), (0, 0), "{doc}");
    served.stop();
    served.check();
}

#[test]
fn a_volume_that_nobody_serves_is_not_scrubbed() {
    let mut served = Served::new();
    assert_eq!(scrub(&served, &["--status"]).1["scrub"]["state"], "never");
    let output =
        bimetal(served.dir.path()).arg("scrub").arg(served.file()).arg("--stop").output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no scrub is under way"), "{}", text(&output.stderr));
    served.stop();
    let output = bimetal(served.dir.path()).arg("scrub").arg(served.file()).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("nobody serves it") && said.contains("bimetal check"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
