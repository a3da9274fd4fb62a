//! `bimetal files` is, to the byte, what FIEMAP says of each file, cut with `x-bimetal:tier`; on ext4 and on XFS.

mod common;

use bimetal_driver::fiemap::file_extents;
use common::ext4::Mount;
use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const KINDS: [&str; 5] = ["hole_bytes", "fast_bytes", "slow_bytes", "landed_bytes", "lost_bytes"];

/// A volume with a file system of this kind, mounted; none where that cannot be had.
fn mounted(kind: &str) -> Option<(Served, Mount)> {
    let make = format!("mkfs.{kind}");
    if !common::can_fuse(&[&make]) {
        println!("skipped: this needs root, nbdfuse, {make} and loop devices");
        return None;
    }
    let served = Served::sized("256M", "1G");
    let mut command = bimetal(served.dir.path());
    let output = command.arg("attach").arg(served.file()).args(["--as", "fuse"]).output().expect("run");
    if text(&output.stderr).contains("losetup has ended") {
        println!("skipped: there is no loop device to be had");
        return None;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let device = text(&output.stdout).trim().to_owned();

    succeed(Command::new(format!("/sbin/{make}")).arg("-q").arg(&device));
    let place = served.dir.path().join("mnt");
    std::fs::create_dir(&place).expect("a folder");
    succeed(Command::new("mount").arg(&device).arg(&place));
    Some((served, Mount(place)))
}

fn fill(place: &Path) {
    std::fs::create_dir(place.join("deep")).expect("a folder");
    for nth in 0..40u64 {
        let folder = if nth % 2 == 0 { place.join("deep") } else { place.into() };
        std::fs::write(folder.join(format!("f{nth}")), pattern(nth, 50_000 + nth as usize * 40_000))
            .expect("a file");
    }
    // One with holes, one with two names, one that is allocated and never written.
    let sparse = File::create(place.join("sparse")).expect("a file");
    for at in [0, 5 << 20, 9 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&sparse, &pattern(at, 70_000), at).expect("written");
    }
    std::fs::hard_link(place.join("f1"), place.join("also-f1")).expect("a link");
    succeed(Command::new("fallocate").args(["-l", "3M"]).arg(place.join("allocated")));
    sync(place);
}

fn sync(place: &Path) {
    succeed(Command::new("sync").arg("-f").arg(place));
}

fn files(served: &Served, place: &Path, more: &[&str]) -> Value {
    let mut command = bimetal(served.dir.path());
    let output = succeed(command.arg("files").arg(place).args(more).arg("--json"));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// Every regular file below a folder.
fn regular(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        match entry.file_type().expect("a kind") {
            kind if kind.is_dir() => regular(&entry.path(), found),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Bytes of each file by kind, cut anew from what FIEMAP and the NBD context say.
fn cut(served: &Served, place: &Path) -> BTreeMap<PathBuf, [u64; 5]> {
    let size = served.connect().size_bytes;
    let tiers = common::tiers(&served.socket(), 0, size);
    let mut paths = Vec::new();
    regular(place, &mut paths);
    let of = |path: &PathBuf| {
        let mut bytes = [0; 5];
        for extent in file_extents(File::open(path).expect("a file")).expect("extents") {
            let (from, to) = (extent.physical.expect("on the device"), extent.len);
            let to = from + to;
            for (at, length, kind) in &tiers {
                bytes[*kind as usize] += to.min(at + length).saturating_sub(from.max(*at));
            }
        }
        (path.clone(), bytes)
    };
    paths.iter().map(of).collect()
}

fn told(doc: &Value) -> BTreeMap<PathBuf, [u64; 5]> {
    let of = |file: &Value| {
        let path = PathBuf::from(file["path"].as_str().expect("a path"));
        (path, KINDS.map(|kind| file[kind].as_u64().expect("bytes")))
    };
    doc["files"].as_array().expect("a list").iter().map(of).collect()
}

/// What both say when nothing moved in between.
fn agree(served: &Served, place: &Path) -> Value {
    let since = Instant::now();
    loop {
        let before = cut(served, place);
        let doc = files(served, place, &[]);
        let mut told = told(&doc);
        // A file that has two names is told by one.
        for (one, other) in [("f1", "also-f1"), ("also-f1", "f1")] {
            if let Some(bytes) = told.get(&place.join(one)).copied() {
                told.entry(place.join(other)).or_insert(bytes);
            }
        }
        if told == before && cut(served, place) == before {
            return doc;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{told:?} is not {before:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_what_both_say(kind: &str) {
    let Some((served, mount)) = mounted(kind) else { return };
    let place = mount.0.clone();
    fill(&place);
    let doc = agree(&served, &place);
    let list = doc["files"].as_array().expect("a list");
    for key in ["volume", "mountpoint", "path", "count", "total", "files", "unknowable"] {
        assert!(doc.get(key).is_some(), "{key}: {doc}");
    }
    for key in ["path", "bytes", "unknown_bytes", "heat", "hottest"] {
        assert!(list[0].get(key).is_some(), "{key}: {doc}");
    }
    assert_eq!(doc["count"].as_u64(), Some(list.len() as u64));
    let sizes: Vec<u64> = list.iter().map(|file| file["bytes"].as_u64().expect("bytes")).collect();
    assert!(sizes.is_sorted_by(|one, next| one >= next), "{sizes:?}");
    let total: u64 = KINDS.iter().map(|kind| doc["total"][*kind].as_u64().expect("bytes")).sum();
    assert_eq!(total, sizes.iter().sum::<u64>());
    assert!(doc["total"]["fast_bytes"].as_u64() > Some(0), "{}", doc["total"]);
    let allocated =
        list.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with("allocated")));
    assert_eq!(allocated.expect("the file")["bytes"], 0, "what was never written is nowhere");

    // A directory of it is pinned to the slow tier, and goes there.
    let doc = files(&served, &place, &["deep", "--pin", "slow"]);
    assert!(doc["pins"]["tiers"][1]["pinned_bytes"].as_u64() >= doc["total"]["fast_bytes"].as_u64(), "{doc}");
    let since = Instant::now();
    loop {
        let doc = files(&served, &place, &["deep"]);
        let total = &doc["total"];
        if total["fast_bytes"] == 0 && total["landed_bytes"] == 0 && total["slow_bytes"].as_u64() > Some(0) {
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{total}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let doc = agree(&served, &place);
    assert!(doc["total"]["slow_bytes"].as_u64() > Some(0));
    let doc = files(&served, &place, &["deep", "--unpin"]);
    assert_eq!(doc["pins"]["pins"], serde_json::json!([]));

    pins_follow(&served, &place);

    let hottest = files(&served, &place, &["--by", "heat", "--top", "3"]);
    let heats: Vec<f64> = hottest["files"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| file["heat"].as_f64().expect("heat"))
        .collect();
    assert!(heats.len() == 3 && heats.is_sorted_by(|one, next| one >= next), "{heats:?}");
    drop(mount);
    let output = bimetal(served.dir.path()).arg("detach").arg(served.file()).output().expect("run");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Bytes of the ranges that hold something of a file, and of those that are pinned, as they are asked for.
fn pinned(served: &Served, place: &Path) -> (u64, Value) {
    let doc = files(served, place, &["--keep-pins"]);
    (doc["pins"]["tiers"][0]["pinned_bytes"].as_u64().expect("bytes"), doc)
}

/// A pin goes with a file that is written anew, renamed, and deleted.
fn pins_follow(served: &Served, place: &Path) {
    let doc = files(served, place, &["f1", "--pin", "fast"]);
    let bytes = doc["pins"]["tiers"][0]["pinned_bytes"].as_u64().expect("bytes");
    assert!(bytes > 0, "{doc}");
    let (same, doc) = pinned(served, place);
    assert_eq!(
        (same, &doc["kept"][0]["pinned_bytes"], &doc["kept"][0]["missing"]),
        (bytes, &0.into(), &false.into())
    );
    // A larger one takes its place, as editors write.
    std::fs::write(place.join("f1.new"), pattern(77, 900_000)).expect("a file");
    std::fs::rename(place.join("f1.new"), place.join("f1")).expect("renamed");
    sync(place);
    let (anew, doc) = pinned(served, place);
    assert!(doc["kept"][0]["pinned_bytes"].as_u64() > Some(0) && anew >= 900_000, "{doc}");
    assert!(anew < 900_000 + 10 * 65536 + bytes, "where it lay is let go: {doc}");
    // Another name is the same file.
    std::fs::rename(place.join("f1"), place.join("deep/renamed")).expect("renamed");
    let (renamed, doc) = pinned(served, place);
    assert_eq!((renamed, doc["kept"][0]["path"].as_str()), (anew, Some("deep/renamed")), "{doc}");
    // A part of what is pinned is not unpinned alone; and nothing is left of what is gone.
    std::fs::remove_file(place.join("deep/renamed")).expect("removed");
    sync(place);
    let (none, doc) = pinned(served, place);
    assert_eq!((none, &doc["kept"][0]["missing"]), (0, &true.into()), "{doc}");
    files(served, place, &["deep", "--pin", "fast"]);
    let output = bimetal(served.dir.path())
        .arg("files")
        .arg(place)
        .args(["deep/f0", "--unpin"])
        .output()
        .expect("run");
    assert!(text(&output.stderr).contains("as a part of deep"), "{output:?}");
    let doc = files(served, place, &["deep", "--unpin"]);
    assert_eq!(doc["pins"]["pins"], serde_json::json!([]));
}

#[test]
fn on_ext4_it_is_what_both_say() {
    is_what_both_say("ext4");
}

#[test]
fn on_xfs_it_is_what_both_say() {
    is_what_both_say("xfs");
}

#[test]
fn what_is_on_no_volume_is_refused() {
    let served = Served::new();
    let refused = |place: &Path| {
        let output = bimetal(served.dir.path()).arg("files").arg(place).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        text(&output.stderr)
    };
    assert!(refused(&served.dir.path().join("none")).contains("cannot find"));
    assert!(refused(served.dir.path()).contains("no mount point"));
    assert!(refused(Path::new("/proc")).contains("not handled"));
}
