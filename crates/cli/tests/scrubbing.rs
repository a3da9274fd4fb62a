//! A volume that was stopped, and of which bits changed meanwhile, is scrubbed: all of them are found, and nothing else.

mod common;

use common::{Client, Served, bimetal, ext4, succeed, text};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;
/// Bytes that are brought to the disk.
const COLD: u64 = 24 * MIB;
const PATIENCE: Duration = Duration::from_secs(120);
/// Bits that change on each tier.
const FLIPS: usize = 200;

fn run(served: &Served, word: &str, more: &[&str]) -> Output {
    bimetal(served.dir.path()).arg(word).arg(served.file()).args(more).output().expect("run")
}

fn scrub(served: &Served, words: &[&str]) -> (i32, Value) {
    let output = run(served, "scrub", &[words, &["--json"]].concat());
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

fn block_at(device: &Path, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    std::fs::File::open(device).and_then(|file| file.read_exact_at(&mut bytes, at)).expect("it is read");
    bytes
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
    write_stamps(&mut client, 0..200 * MIB);
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

/// What is to be on one tier is there.
fn pin(served: &Served, range: Range<u64>, tier: &str) {
    let length = (range.end - range.start).to_string();
    let output = run(served, "pin", &[&range.start.to_string(), &length, "--tier", tier]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let start = Instant::now();
    let is_there = |pin: &Value| {
        let is = |key: &str, value: u64| pin[key].as_u64() == Some(value);
        !is("offset", range.start) || is("settled_bytes", range.end - range.start)
    };
    let settled = || {
        let doc: Value =
            serde_json::from_slice(&run(served, "pins", &["--json"]).stdout).expect("one document");
        doc["pins"].as_array().expect("a list").iter().all(is_there)
    };
    while !settled() {
        assert!(start.elapsed() < PATIENCE, "what is pinned does not move");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn why(served: &Served, at: u64) -> Value {
    serde_json::from_slice(&run(served, "why", &[&at.to_string(), "--json"]).stdout).expect("one document")
}

/// Where a block of the volume is at home on this device, once nothing of its chunk is landed.
fn at_home(served: &Served, at: u64, tier: &str) -> u64 {
    let start = Instant::now();
    loop {
        let doc = why(served, at);
        if doc["tier"] == tier && doc["landed_bytes"] == 0 && doc["moving"] == false {
            let number = |key: &str| doc[key].as_u64().expect("a number");
            return number("device_offset") + at - number("offset");
        }
        assert!(start.elapsed() < PATIENCE, "{doc:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn write_stamps(client: &mut Client, range: Range<u64>) {
    for mib in range.step_by(MIB as usize) {
        let bytes: Vec<u8> = (mib..mib + MIB).step_by(BLOCK as usize).flat_map(|at| stamped(at, 1)).collect();
        client.write(mib, &bytes);
    }
    client.flush();
}

/// Blocks of a range, one a chunk and a tenth, so that they are at all places of a chunk.
fn some_blocks(range: Range<u64>) -> Vec<u64> {
    let step = (range.end - range.start) / FLIPS as u64 / BLOCK * BLOCK;
    range.step_by(step as usize).take(FLIPS).collect()
}

/// While it is served, the SSD goes bad where the disk has the same, and the disk where the SSD has a copy.
#[test]
fn all_flips_of_what_stands_elsewhere_too_are_repaired() {
    let mut served = Served::new();
    let [fast, slow] = ["fast.img", "slow.img"].map(|name| served.dir.path().join(name));
    let [risen, copied] = [0..16 * MIB, 16 * MIB..32 * MIB];
    let mut client = served.connect();
    write_stamps(&mut client, risen.start..copied.end);
    pin(&served, risen.clone(), "slow");
    pin(&served, copied.clone(), "slow");
    pin(&served, risen.clone(), "fast");
    let on_fast = some_blocks(risen.clone());
    let start = Instant::now();
    let on_slow = some_blocks(copied.clone());
    for at in &on_slow {
        while why(&served, *at)["copied_bytes"] != CHUNK {
            client.read(at / CHUNK * CHUNK, CHUNK as usize);
            assert!(start.elapsed() < PATIENCE, "no copy is made: {:#}", why(&served, *at));
        }
    }
    let homes = |blocks: &[u64], tier: &str| -> Vec<u64> {
        blocks.iter().map(|at| at_home(&served, *at, tier)).collect()
    };
    let (fast_homes, slow_homes) = (homes(&on_fast, "fast"), homes(&on_slow, "slow"));
    assert!(on_fast.iter().all(|at| why(&served, *at)["shadow_offset"].is_u64()), "they have shadows");
    for (device, homes, blocks) in [(&fast, &fast_homes, &on_fast), (&slow, &slow_homes, &on_slow)] {
        for (place, at) in homes.iter().zip(blocks) {
            assert_eq!(block_at(device, *place), stamped(*at, 1), "byte {at}");
            flip(device, *place);
        }
    }
    assert_eq!(scrub(&served, &[]).0, 0);
    let (code, doc) = until_whole(&served);
    let count = Value::from(2 * FLIPS);
    assert_eq!((code, &doc["scrub"]["wrong_blocks"], &doc["scrub"]["repaired_blocks"]), (0, &count, &count));
    assert_eq!(doc["scrub"]["lost"], Value::Array(Vec::new()));
    // What was repaired stays so, without shadows and copies.
    client.flush();
    served.kill();
    served.start();
    let mut client = served.connect();
    for at in risen.chain(copied).step_by(BLOCK as usize) {
        assert_eq!(client.read(at, BLOCK as usize), stamped(at, 1), "byte {at}");
    }
    assert_eq!(scrub(&served, &[]).0, 0);
    let (code, doc) = until_whole(&served);
    assert_eq!((code, &doc["scrub"]["wrong_blocks"]), (0, &Value::from(0)), "{doc}");
    served.stop();
}

/// The blocks of the volume that hold a whole block of a large file: of what says where files are, nothing.
fn blocks_of_files(served: &Served, tree: &Path) -> Vec<u64> {
    let block = BLOCK as usize;
    let files = (0..60).map(|i| std::fs::read(tree.join(format!("d{}/f{i}", i % 6))).expect("a file"));
    let blocks: HashSet<Vec<u8>> =
        files.flat_map(|file| file.chunks_exact(block).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect();
    let image = std::fs::read(served.dir.path().join("ext4.img")).expect("the image");
    let found = image.chunks_exact(block).enumerate().filter(|(_, bytes)| blocks.contains(*bytes));
    found.map(|(n, _)| n as u64 * BLOCK).collect()
}

/// Of files on a file system that is mounted, exactly those are named in which something is lost.
#[test]
fn files_with_something_lost_are_named() {
    if !common::can_fuse(&["mount", "mkfs.ext4"]) {
        return println!("skipped: this needs root, nbdfuse, loop devices and mkfs.ext4");
    }
    let mut served = Served::new();
    let tree = ext4::fill(&served, &mut served.connect());
    let in_files = blocks_of_files(&served, &tree);
    let inside = |start: &u64| in_files.iter().filter(|at| (*start..start + COLD).contains(*at)).count();
    let start = (0..200 * MIB).step_by(MIB as usize).max_by_key(inside).expect("a stretch with files");
    let cold = start..start + COLD;
    pin(&served, cold.clone(), "slow");
    let in_cold: Vec<u64> = in_files.into_iter().filter(|at| cold.contains(at)).collect();
    let flipped: BTreeSet<u64> = in_cold.iter().step_by(in_cold.len() / FLIPS).take(FLIPS).copied().collect();
    assert_eq!(flipped.len(), FLIPS);
    let homes: Vec<u64> = flipped.iter().map(|at| at_home(&served, *at, "slow")).collect();
    // What has copies has none after a kill.
    served.kill();
    homes.iter().for_each(|place| flip(&served.dir.path().join("slow.img"), *place));
    served.start();
    scrub(&served, &[]);
    assert_eq!(listed(&until_whole(&served).1), flipped);
    let Some(mounted) = ext4::mount(&served) else {
        return println!("skipped: there is no loop device to be had");
    };
    let mount = mounted.0.to_str().expect("a name").to_owned();
    let (code, doc) = scrub(&served, &["--files", &mount]);
    assert_eq!((code, &doc["scrub"]["state"]), (1, &Value::from("whole")), "it begins none: {doc:#}");
    let mut bad = Vec::new();
    ext4::unreadable(&mounted.0, &tree, &mut bad);
    assert!(!bad.is_empty() && bad.len() <= 60, "{} files are bad", bad.len());
    let named = ext4::Named::of(&doc);
    named.must_be(&bad, &mounted.0);
    assert!(named.unknowable.is_empty(), "{:?}", named.unknowable);
    let said = text(&run(&served, "scrub", &["--files", &mount]).stdout);
    assert!(said.contains("files have something in lost ranges") && said.contains("lost of"), "{said}");
    let output = run(&served, "scrub", &["--files", "/proc"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("not handled"));
    ext4::unmount(&served, mounted);
    served.stop();
}

/// Nothing is scrubbed while a device is missing, and nobody is led to believe it.
#[test]
fn a_volume_that_has_lost_a_device_is_not_scrubbed() {
    let mut served = Served::new();
    served.kill();
    std::fs::remove_file(served.dir.path().join("slow.img")).expect("deleted");
    let mut command = common::serve(served.dir.path());
    command.arg("--degraded");
    served.child = Some(common::start(command));
    for words in [[].as_slice(), &["--stop"]] {
        let output = run(&served, "scrub", words);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("a device is missing"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(scrub(&served, &["--status"]).1["scrub"]["state"], "never");
    served.stop();
}

#[test]
fn a_volume_that_nobody_serves_is_not_scrubbed() {
    let mut served = Served::new();
    assert_eq!(scrub(&served, &["--status"]).1["scrub"]["state"], "never");
    let output = run(&served, "scrub", &["--stop"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no scrub is under way"), "{}", text(&output.stderr));
    served.stop();
    let output = run(&served, "scrub", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("nobody serves it") && said.contains("bimetal check"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
