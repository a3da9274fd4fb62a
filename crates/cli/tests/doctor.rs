//! `bimetal doctor` on real volumes: sicknesses of files, file systems and servers are named, and nothing is invented.

mod common;

use common::{Mounted, Served, bimetal, pattern, start, succeed, text};
use serde_json::Value;

use std::process::Output;

fn doctor(served: &Served, more: &[&str]) -> Output {
    let mut command = bimetal(served.dir.path());
    command.arg("doctor").arg(served.file()).args(more).output().expect("run")
}

/// What it finds; its exit code is held against that.
fn kinds(served: &Served) -> Vec<String> {
    let output = doctor(served, &["--json"]);
    let doc: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
    let findings = doc["findings"].as_array().expect("a list");
    assert_eq!(output.status.code(), Some(i32::from(!findings.is_empty())), "{doc}");
    for finding in findings {
        for key in ["what", "cure", "severity"] {
            assert!(finding[key].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
        }
    }
    let kinds = findings.iter().map(|finding| finding["kind"].as_str().expect("a word").to_owned());
    kinds.filter(|kind| kind != "in-memory" || !is_in_memory(served)).collect()
}

/// What is wrong with a volume that is well.
const WELL: [&str; 0] = [];

/// Whether this machine keeps temporary files in memory, which a doctor tells of every volume there.
fn is_in_memory(served: &Served) -> bool {
    /// `TMPFS_MAGIC`
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::statfs(served.dir.path()).is_ok_and(|system| system.f_type == TMPFS)
}

/// A volume that nobody serves, whose slow tier is modelled, so that it does not matter that both are on one disk.
fn modelled(fast: &str, slow: &str, options: &[&str]) -> Served {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let slow = format!("model:disk-1tb-2012?file={}&size={slow}", file("slow.img"));
    let fast = format!("{}?size={fast}", file("fast.img"));
    let mut command = bimetal(dir.path());
    command.arg("create").arg(file("v.toml")).args(["--fast", &fast, "--slow", &slow]).args(options);
    succeed(&mut command);
    Served { dir, child: None }
}

#[test]
fn nothing_is_invented_on_volumes_that_are_well() {
    let mut seen = 0;
    for (fast, slow) in [("64M", "256M"), ("128M", "1G"), ("256M", "4G")] {
        for chunk in ["64K", "128K", "1M"] {
            let mut served = modelled(fast, slow, &["--chunk", chunk]);
            assert_eq!(kinds(&served), WELL, "new, and not served");
            served.start();
            let mut client = served.connect();
            (0..16).for_each(|at| client.write(at << 20, &pattern(at, 100_000)));
            client.flush();
            assert_eq!(kinds(&served), WELL, "served");
            drop(client);
            if chunk == "128K" {
                served.kill();
            } else {
                served.stop();
            }
            assert_eq!(kinds(&served), WELL, "served once, and closed or killed");
            seen += 3;
        }
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn it_writes_nothing() {
    let mut served = modelled("64M", "256M", &[]);
    served.start();
    let mut client = served.connect();
    (0..64).for_each(|at| client.write(at * 65536, &pattern(at, 4096)));
    drop(client);
    served.kill();
    let bytes = |name: &str| std::fs::read(served.dir.path().join(name)).expect("a device");
    let before = [bytes("fast.img"), bytes("slow.img"), bytes("v.toml")];
    assert_eq!(kinds(&served), WELL);
    assert!(before == [bytes("fast.img"), bytes("slow.img"), bytes("v.toml")], "something was written");
}

#[test]
fn what_is_wrong_with_devices_is_named() {
    let served = modelled("64M", "256M", &[]);
    let at = |name: &str| served.dir.path().join(name);
    let rename = |from: &str, to: &str| std::fs::rename(at(from), at(to)).expect("renamed");
    std::fs::create_dir(at("away")).expect("a folder");

    rename("slow.img", "other.img");
    assert_eq!(kinds(&served), ["moved-device"]);
    rename("other.img", "away/slow.img");
    assert_eq!(kinds(&served), ["missing-device"]);
    rename("away/slow.img", "slow.img");
    rename("fast.img", "away/fast.img");
    assert_eq!(kinds(&served), ["missing-device"]);
    rename("away/fast.img", "fast.img");

    rename("slow.img", "one.img");
    std::fs::copy(at("one.img"), at("two.img")).expect("a copy");
    assert_eq!(kinds(&served), ["two-of-one"]);
    std::fs::remove_file(at("two.img")).expect("removed");
    rename("one.img", "slow.img");

    let file = std::fs::read_to_string(served.file()).expect("the volume file");
    std::fs::write(served.file(), file.replace("version = 1", "version = 1\nunfinished = true"))
        .expect("written");
    assert_eq!(kinds(&served), ["unfinished"]);
    std::fs::write(served.file(), file).expect("written");

    assert_eq!(kinds(&served), WELL);
    let device = std::fs::OpenOptions::new().write(true).open(at("slow.img")).expect("the slow device");
    device.set_len(128 << 20).expect("it shrinks");
    assert_eq!(kinds(&served), ["broken"]);
    let output = doctor(&served, &[]);
    assert!(text(&output.stdout).contains("ERROR (broken)"), "{}", text(&output.stdout));
}

#[test]
fn what_is_wrong_with_what_is_below_is_named() {
    // Both tiers on one disk, and no model.
    let mut served = Served::new();
    if !is_in_memory(&served) {
        assert_eq!(kinds(&served), ["same-disk"]);
    }
    served.stop();

    let served = modelled("64M", "256M", &[]);
    let moved = |kind: &str, mib: u64| {
        let small = Mounted::new(served.dir.path(), kind, mib)?;
        let slow = served.dir.path().join("slow.img");
        succeed(std::process::Command::new("cp").arg("--sparse=always").arg(&slow).arg(&small.place));
        std::fs::remove_file(&slow).expect("removed");
        std::os::unix::fs::symlink(small.place.join("slow.img"), &slow).expect("a link");
        Some(small)
    };
    let back = |small: Mounted| {
        let slow = served.dir.path().join("slow.img");
        std::fs::remove_file(&slow).expect("removed");
        succeed(
            std::process::Command::new("cp")
                .arg("--sparse=always")
                .arg(small.place.join("slow.img"))
                .arg(&slow),
        );
        drop(small);
        std::fs::remove_dir(served.dir.path().join("small")).expect("removed");
    };
    let Some(memory) = moved("tmpfs", 512) else { return };
    if !is_in_memory(&served) {
        assert_eq!(kinds(&served), ["in-memory"]);
    }
    back(memory);
    assert_eq!(kinds(&served), WELL);
    let Some(little) = moved("ext4", 64) else { return };
    assert_eq!(kinds(&served), ["little-room"]);
    let remount = |options: &str| {
        succeed(std::process::Command::new("mount").args(["-o", options]).arg(&little.place));
    };
    remount("remount,nobarrier");
    assert_eq!(kinds(&served), ["no-flush", "little-room"]);
    remount("remount,barrier,ro");
    assert!(kinds(&served).contains(&"read-only-device".to_owned()));
}

#[test]
fn a_server_without_a_disk_is_named() {
    let mut served = modelled("64M", "256M", &[]);
    std::fs::rename(served.dir.path().join("slow.img"), served.dir.path().join("gone")).expect("renamed");
    std::fs::write(served.dir.path().join("gone"), "").expect("emptied");
    let mut command = common::serve(served.dir.path());
    command.arg("--degraded");
    served.child = Some(start(command));
    let found = kinds(&served);
    assert!(
        found.contains(&"degraded".to_owned()) && found.contains(&"missing-device".to_owned()),
        "{found:?}"
    );
}

#[test]
fn who_cannot_look_says_why() {
    let served = modelled("64M", "256M", &[]);
    let lock = std::fs::File::open(served.dir.path().join("slow.img")).expect("the slow device");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    let output = doctor(&served, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("in use by another process"), "{}", text(&output.stderr));
}

#[test]
fn what_it_tries_is_told() {
    let served = modelled("64M", "256M", &[]);
    let output = doctor(&served, &["--active"]);
    let said = text(&output.stdout);
    assert!(output.status.success() || is_in_memory(&served), "{said}{}", text(&output.stderr));
    assert!(
        said.contains("tried: a scratch volume: written, moved down and up, its server killed"),
        "{said}"
    );
}
