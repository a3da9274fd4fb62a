//! A device takes another's place while a client writes: nothing that was flushed is lost, whenever the server is killed, and the
//! old device is refused in the end.

mod common;

use common::{Client, Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const FAST: &str = "48M";
const SLOW: &str = "256M";
/// Blocks that the client writes to.
const BLOCKS: u64 = 16 << 10;
/// Behind them it is full up to here.
const FILLED: u64 = 256 << 20;
/// Servers that are killed on the way of each device, unless KILLS says how many.
const KILLS: u64 = 8;
const SEED: u64 = 4711;

/// A client that knows what it has written.
struct Writer {
    next: u64,
    /// What each block holds at least, and what it may hold besides.
    flushed: BTreeMap<u64, u64>,
    since: BTreeMap<u64, Vec<u64>>,
    /// What was written before a kill, and not flushed: it came through, or not.
    uncertain: BTreeMap<u64, Vec<u64>>,
}

impl Writer {
    fn new() -> Writer {
        Writer { next: 1, flushed: BTreeMap::new(), since: BTreeMap::new(), uncertain: BTreeMap::new() }
    }

    fn random(&mut self) -> u64 {
        self.next += 1;
        let mut x = self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ SEED;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 27)
    }

    fn write(&mut self, client: &mut Client, times: u32) {
        for _ in 0..times {
            let (first, many) = (self.random() % BLOCKS, 1 + self.random() % 24);
            let (many, version) = (many.min(BLOCKS - first), self.next);
            client.write(first * BLOCK, &pattern(version, (many * BLOCK) as usize));
            for block in first..first + many {
                self.since.entry(block).or_default().push(version << 8 | (block - first));
            }
        }
    }

    fn flush(&mut self, client: &mut Client) {
        client.flush();
        for (block, versions) in std::mem::take(&mut self.since) {
            self.uncertain.remove(&block);
            self.flushed.extend(versions.last().map(|last| (block, *last)));
        }
    }

    /// The server was killed.
    fn killed(&mut self) {
        for (block, versions) in std::mem::take(&mut self.since) {
            self.uncertain.entry(block).or_default().extend(versions);
        }
    }

    /// Reads all of it; what may have been lost is known from then on.
    fn verify(&mut self, client: &mut Client) {
        let known = self.flushed.keys().chain(self.since.keys()).chain(self.uncertain.keys());
        let mut blocks: Vec<u64> = known.copied().collect();
        blocks.sort_unstable();
        blocks.dedup();
        for block in blocks {
            let held = client.read(block * BLOCK, BLOCK as usize);
            let later = [&self.uncertain, &self.since].into_iter().filter_map(|later| later.get(&block));
            let later = later.flatten().copied();
            let mut may = self.flushed.get(&block).copied().into_iter().chain(later);
            let is_it = |of: &u64| {
                let whole = pattern(of >> 8, ((of & 0xff) + 1) as usize * BLOCK as usize);
                whole[(of & 0xff) as usize * BLOCK as usize..] == held[..]
            };
            match may.find(is_it) {
                Some(found) => drop(self.flushed.insert(block, found)),
                None => assert!(
                    !self.flushed.contains_key(&block) && held.iter().all(|byte| *byte == 0),
                    "block {block} holds nothing that was written to it since the last flush"
                ),
            }
        }
        self.since.clear();
        self.uncertain.clear();
    }
}

/// What nobody needs is not copied: most of both devices is in use from now on.
fn fill(served: &Served, end: u64) {
    let (mut client, filler) = (served.connect(), pattern(1, 1 << 20));
    (BLOCKS * BLOCK..end).step_by(filler.len()).for_each(|at| client.write(at, &filler));
    client.flush();
}

fn served() -> Served {
    let served = Served::sized(FAST, SLOW);
    println!("seed {SEED}");
    fill(&served, FILLED);
    served
}

fn replace(served: &Served, words: &[&str]) -> Output {
    bimetal(served.dir.path()).arg("replace").arg(served.file()).args(words).output().expect("run")
}

fn begin(served: &Served, tier: &str, device: &str) -> Child {
    let mut command = bimetal(served.dir.path());
    command.arg("replace").arg(served.file()).args([format!("--{tier}"), device.to_owned()]);
    command.stdout(Stdio::null()).spawn().expect("run")
}

/// The same, once the server has heard of it: where it is killed before, the command does all by itself, beside the next server.
fn begin_served(served: &Served, tier: &str, device: &str) -> Child {
    let mut child = begin(served, tier, device);
    while standing(served)["state"] == "none" && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn standing(served: &Served) -> Value {
    let output = replace(served, &["--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

fn device(served: &Served, name: &str) -> String {
    served.dir.path().join(name).display().to_string()
}

/// The devices that the volume file names.
fn named(served: &Served) -> Vec<PathBuf> {
    let file = std::fs::read_to_string(served.file()).expect("a volume file");
    let names = file.lines().filter_map(|line| line.strip_prefix("device = \"")?.strip_suffix('"'));
    names.map(|name| served.dir.path().join(name)).collect()
}

fn until_over(served: &Served, writer: &mut Writer, client: &mut Client) -> Value {
    let start = Instant::now();
    loop {
        writer.write(client, 20);
        writer.flush(client);
        let now = standing(served);
        // The command may not have come so far yet.
        if !["none", "copying", "whole", "taking-over"].contains(&now["state"].as_str().expect("a state")) {
            return now;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "{now}");
    }
}

/// Swaps the old device back in, and expects to be refused.
fn old_is_refused(served: &Served, tier: usize, old: &Path) {
    let (kept, now) = (std::fs::read_to_string(served.file()).expect("a volume file"), named(served));
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let away = served.dir.path().join("away");
    std::fs::create_dir_all(&away).expect("a folder");
    std::fs::rename(&now[tier], away.join(name(&now[tier]))).expect("moved away");
    std::fs::write(served.file(), kept.replace(&name(&now[tier]), &name(old))).expect("a volume file");
    let output = bimetal(served.dir.path()).arg("check").arg(served.file()).output().expect("run");
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(!output.status.success() && said.contains("was replaced"), "{said}");
    std::fs::rename(away.join(name(&now[tier])), &now[tier]).expect("moved back");
    std::fs::write(served.file(), kept).expect("a volume file");
}

#[test]
fn each_device_is_replaced_while_a_client_writes_and_the_old_one_is_refused() {
    let (mut served, mut writer) = (served(), Writer::new());
    let mut client = served.connect();
    writer.write(&mut client, 600);
    writer.flush(&mut client);
    for (place, tier, size) in [(1, "slow", SLOW), (0, "fast", FAST)] {
        let old = named(&served)[place].clone();
        let new = device(&served, &format!("new-{tier}"));
        let mut child = begin(&served, tier, &format!("{new}?size={size}"));
        let end = until_over(&served, &mut writer, &mut client);
        assert_eq!(end["state"], "done", "{end}");
        assert!(child.wait().expect("it ends").success());
        assert_eq!(named(&served)[place], Path::new(&new));
        writer.write(&mut client, 100);
        writer.flush(&mut client);
        writer.verify(&mut client);
        // What is not the volume's any more can go.
        let kept = old.with_extension("kept");
        std::fs::rename(&old, &kept).expect("taken away");
        writer.write(&mut client, 100);
        writer.flush(&mut client);
        served.kill();
        writer.killed();
        old_is_refused(&served, place, &kept);
        std::fs::remove_file(&kept).expect("removed");
        served.start();
        client = served.connect();
        writer.verify(&mut client);
    }
    drop(client);
    served.stop();
    served.check();
}

#[test]
fn a_server_that_is_killed_again_and_again_loses_nothing_and_comes_to_the_end() {
    let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().expect("KILLS is a number"));
    let cases = [("slow", FAST, "1G", "1G", 800 << 20), ("fast", "384M", SLOW, "384M", 480 << 20)];
    for (tier, fast, slow, size, filled) in cases {
        println!("seed {SEED}");
        let (mut served, mut writer) = (Served::sized(fast, slow), Writer::new());
        fill(&served, filled);
        let (mut on_the_way, mut round, mut old) = (0, 0, format!("{tier}.img"));
        let mut client = served.connect();
        writer.write(&mut client, 300);
        writer.flush(&mut client);
        let spec =
            |served: &Served, round: u32| format!("{}?size={size}", device(served, &format!("new-{round}")));
        let mut child = begin_served(&served, tier, &spec(&served, round));
        for kill in 0..kills {
            if kill > 0 && ["done", "none"].contains(&standing(&served)["state"].as_str().unwrap_or_default())
            {
                child.wait().expect("it ends");
                // Unless it never began, as there was no server at that moment: the next one.
                if named(&served).contains(&served.dir.path().join(format!("new-{round}"))) {
                    std::fs::remove_file(device(&served, &old)).expect("removed");
                    old = format!("new-{round}");
                    round += 1;
                }
                child = begin_served(&served, tier, &spec(&served, round));
            }
            for _ in 0..writer.random() % 4 {
                writer.write(&mut client, 10);
                if writer.random() % 2 == 0 {
                    writer.flush(&mut client);
                }
            }
            // A header is written every two seconds: some are killed before that, some after it.
            let most = [20, 60, 200, 2400][(writer.random() % 4) as usize];
            std::thread::sleep(Duration::from_millis(writer.random() % most));
            on_the_way += u64::from(
                ["copying", "whole"].contains(&standing(&served)["state"].as_str().unwrap_or_default()),
            );
            served.kill();
            writer.killed();
            served.start();
            client = served.connect();
            // That takes longer than a copy: it is for every few of them.
            if kill % 8 == 7 {
                writer.verify(&mut client);
            }
        }
        // It went with its server.
        child.wait().expect("it ends");
        // It may have gone before the server had heard of it; or all had ended before one of the kills.
        let is_named = || named(&served).contains(&served.dir.path().join(format!("new-{round}")));
        let mut end = standing(&served);
        if end["state"] == "none" && !is_named() {
            child = begin_served(&served, tier, &spec(&served, round));
        }
        // What is told is a moment old: it may have ended since.
        if !is_named() || !["none", "done"].contains(&end["state"].as_str().expect("a state")) {
            end = until_over(&served, &mut writer, &mut client);
            child.wait().expect("it ends");
        }
        println!(
            "{on_the_way} of {kills} servers of a volume whose {tier} device was being replaced were killed on the way"
        );
        assert!(end["state"] == "done" || end["state"] == "none", "{end}");
        assert!(is_named());
        writer.verify(&mut client);
        drop(client);
        served.stop();
        served.check();
    }
}

#[test]
fn it_ends_when_it_is_cancelled_and_begins_only_where_it_can() {
    let (mut served, mut writer) = (served(), Writer::new());
    let refused = |served: &Served, words: &[&str], why: &str| {
        let output = replace(served, words);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{words:?}: {said}");
    };
    let mut client = served.connect();
    writer.write(&mut client, 300);
    writer.flush(&mut client);
    let devices = named(&served);
    refused(&served, &["--cancel"], "no device is being replaced");
    refused(&served, &["--slow", &device(&served, "absent")], "does not exist");
    refused(&served, &["--slow", &format!("{}?size=16M", device(&served, "small"))], "at least as large");
    refused(&served, &["--slow", &devices[0].display().to_string()], "which is the volume's");
    refused(&served, &["--slow", "nbd://127.0.0.1:1/x"], "NBD export");
    std::fs::write(served.dir.path().join("full"), pattern(1, 256 << 20)).expect("a file");
    refused(&served, &["--slow", &device(&served, "full")], "--force");
    assert_eq!(standing(&served)["state"], "none");
    // Again at once: whoever heard that one has ended may begin the next.
    for round in 0..5 {
        // What was copied stays on it: it would take --force to begin with that one again.
        let new = device(&served, &format!("new-{round}"));
        let mut child = begin(&served, "slow", &format!("{new}?size={SLOW}"));
        while standing(&served)["state"] != "copying" {
            assert!(child.try_wait().expect("a child").is_none(), "it ended on its own");
        }
        succeed(bimetal(served.dir.path()).arg("replace").arg(served.file()).arg("--cancel"));
        child.wait().expect("it ends");
    }
    writer.write(&mut client, 50);
    writer.flush(&mut client);
    assert_eq!(named(&served), devices);
    drop(client);
    served.stop();
    served.start();
    let mut client = served.connect();
    assert_eq!(standing(&served)["state"], "none");
    writer.verify(&mut client);
    drop(client);
    served.stop();
    served.check();
}

#[test]
fn a_volume_that_nobody_serves_has_its_devices_replaced_too() {
    let (mut served, mut writer) = (served(), Writer::new());
    let mut client = served.connect();
    writer.write(&mut client, 300);
    writer.flush(&mut client);
    drop(client);
    served.stop();
    // Larger ones do as well.
    for (tier, size) in [("slow", "300M"), ("fast", "64M")] {
        let new = format!("{}?size={size}", device(&served, tier));
        let output = replace(&served, &[&format!("--{tier}"), &new, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let doc: Value = serde_json::from_slice(&output.stdout).expect("a document");
        assert_eq!(doc["state"], "done", "{doc}");
        served.check();
    }
    served.start();
    let mut client = served.connect();
    writer.verify(&mut client);
    drop(client);
    served.stop();
    served.check();
}
