//! The slow device of a volume is gone: what is left is served, what is not is listed to the byte and by file, and nothing
//! is written, unless somebody asks for that.

mod common;

use bimetal_nbd::{Command as Nbd, NbdErrno};
use common::{Client, Served, bimetal, ext4, pattern, start, succeed, text};
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What is pinned to the slow tier: it lies on the device that will be gone.
const COLD: std::ops::Range<u64> = 2 * MIB..10 * MIB;
/// What is not.
const WARM: std::ops::Range<u64> = 16 * MIB..32 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

fn run(served: &Served, words: &[&str], more: &[&str]) -> Output {
    let mut command = bimetal(served.dir.path());
    command.args(words).arg(served.file()).args(more).output().expect("run")
}

fn doc(output: Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn lost(served: &Served) -> Value {
    doc(run(served, &["lost"], &["--json"]))
}

fn bytes_at(at: u64) -> Vec<u8> {
    pattern(at, 65536)
}

fn write(client: &mut Client, range: std::ops::Range<u64>) {
    range.step_by(65536).for_each(|at| client.write(at, &bytes_at(at)));
}

/// A volume whose server was killed when some of it lay on the slow tier, all of it at home.
fn killed() -> Served {
    let mut served = Served::new();
    let (offset, length) = (COLD.start.to_string(), (COLD.end - COLD.start).to_string());
    succeed(
        bimetal(served.dir.path()).arg("pin").arg(served.file()).args([&offset, &length, "--tier", "slow"]),
    );
    let mut client = served.connect();
    write(&mut client, COLD);
    write(&mut client, WARM);
    client.flush();
    let settled = |doc: &Value| doc["pins"][0]["settled_bytes"] == json!(COLD.end - COLD.start);
    let since = Instant::now();
    while !settled(&doc(run(&served, &["pins"], &["--json"]))) {
        assert!(since.elapsed() < PATIENCE, "what is pinned does not go down");
        std::thread::sleep(Duration::from_millis(50));
    }
    client.flush();
    served.kill();
    served
}

fn in_dir(served: &Served, name: &str) -> PathBuf {
    served.dir.path().join(name)
}

/// Serves what is left.
fn serve_degraded(served: &mut Served) -> PathBuf {
    let log = in_dir(served, "log");
    let mut command = common::serve(served.dir.path());
    command.arg("--degraded").stderr(File::create(&log).expect("a log"));
    served.child = Some(start(command));
    log
}

fn expected(served: &Served, missing: Value, ranges: Value) -> Value {
    let size = doc(run(served, &["status"], &["--json"]))["size_bytes"].as_u64().expect("a size");
    let lost: u64 =
        ranges.as_array().expect("ranges").iter().map(|range| range["length"].as_u64().expect("bytes")).sum();
    json!({
        "volume": "v", "missing": missing, "as_of_unix_s": null, "good_bytes": size - lost, "lost": ranges,
        "suspect": [], "files": [], "unknowable": []
    })
}

#[test]
fn what_is_left_is_served_what_is_not_is_listed_and_nothing_is_written() {
    let mut served = killed();
    std::fs::create_dir(in_dir(&served, "away")).expect("a folder");
    std::fs::rename(in_dir(&served, "slow.img"), in_dir(&served, "away/slow.img")).expect("it is gone");
    let fast = std::fs::read(in_dir(&served, "fast.img")).expect("the fast file");
    let file = in_dir(&served, "fast.img");
    let is_untouched = || std::fs::read(&file).expect("the fast file") == fast;

    // As ever it is not served, and what can be done is said.
    for words in ["serve", "status"] {
        let output = run(&served, &[words], &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for word in ["slow.img does not exist", "--degraded", "lost"] {
            assert!(said.contains(word), "{words}: {said}");
        }
    }
    let ranges = json!([{ "offset": COLD.start, "length": COLD.end - COLD.start }]);
    let alone = lost(&served);
    assert_eq!(alone["lost"], ranges);
    let said = text(&run(&served, &["lost"], &[]).stdout);
    assert!(said.contains("slow device is missing") && said.contains("8 MiB is lost, in 1 ranges"), "{said}");
    assert!(is_untouched());

    let log = serve_degraded(&mut served);
    assert_eq!(expected(&served, json!("slow"), ranges), lost(&served));
    assert_eq!(alone, lost(&served), "its server says the same");
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(
        said.contains("slow device") && said.contains("is missing") && said.contains("8 MiB is lost"),
        "{said}"
    );
    let status = doc(run(&served, &["status"], &["--json"]));
    assert_eq!((&status["state"], &status["loss"]["missing"]), (&json!("degraded"), &json!("slow")));
    assert_eq!(status["loss"]["lost_bytes"], json!(COLD.end - COLD.start));
    let said = text(&run(&served, &["status"], &[]).stdout);
    assert!(said.contains("the slow device is missing"), "{said}");
    reads_as_listed(&served);
    served.stop();
    assert!(is_untouched(), "nothing is written, at opening, serving and closing");

    // It comes back, and all is there.
    std::fs::rename(in_dir(&served, "away/slow.img"), in_dir(&served, "slow.img")).expect("it is back");
    let output = run(&served, &["serve"], &["--degraded"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("both devices"), "{said}");
    assert_eq!(lost(&served)["missing"], Value::Null);
    let said = text(&run(&served, &["lost"], &[]).stdout);
    assert!(said.contains("nothing is lost"), "{said}");
    served.start();
    assert_eq!(expected(&served, Value::Null, json!([])), lost(&served));
    let mut client = served.connect();
    for at in COLD.chain(WARM).step_by(65536) {
        assert_eq!(client.read(at, 65536), bytes_at(at), "byte {at}");
    }
    served.stop();
    served.check();
}

/// Over NBD: what is good is what was written, what is lost is an error at once, and nothing can be changed.
fn reads_as_listed(served: &Served) {
    let mut client = served.connect();
    for at in WARM.step_by(65536) {
        assert_eq!(client.read(at, 65536), bytes_at(at), "byte {at}");
    }
    let blank = client.read(COLD.end, 65536);
    assert!(blank.iter().all(|byte| *byte == 0), "what was never written");
    let since = Instant::now();
    for at in COLD.step_by(65536) {
        assert_eq!(client.call(Nbd::Read, at, 4096, &[]).result, Err(NbdErrno::Io), "byte {at}");
    }
    assert_eq!(client.call(Nbd::Read, COLD.end - 512, 1024, &[]).result, Err(NbdErrno::Io));
    assert!(since.elapsed() < PATIENCE, "nobody waits for a device that is not there");
    assert_eq!(client.call(Nbd::Write, WARM.start, 512, &[7; 512]).result, Err(NbdErrno::NotPermitted));
    client.flush();
}

#[test]
fn a_device_that_is_blank_or_another_volumes_is_missing_too() {
    let served = killed();
    let slow = in_dir(&served, "slow.img");
    let other = Served::new();
    let ranges = json!([{ "offset": COLD.start, "length": COLD.end - COLD.start }]);
    let size = std::fs::metadata(&slow).expect("it is there").len();
    std::fs::remove_file(&slow).expect("removed");
    File::create(&slow).expect("a blank one").set_len(size).expect("as large");
    let said = text(&run(&served, &["serve"], &[]).stderr);
    assert!(said.contains("no valid superblock") && said.contains("--degraded"), "{said}");
    assert_eq!(lost(&served)["lost"], ranges);
    std::fs::copy(in_dir(&other, "slow.img"), &slow).expect("another volume's");
    let said = text(&run(&served, &["serve"], &[]).stderr);
    assert!(said.contains("another Bimetal volume") && said.contains("--degraded"), "{said}");
    assert_eq!(lost(&served)["lost"], ranges);
    // Without the fast device nothing is known where there are no marks, and nobody is told that it can be served.
    std::fs::remove_file(in_dir(&served, "fast.img")).expect("removed");
    for words in [["serve"].as_slice(), &["lost"]] {
        let output = run(&served, words, &[]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("fast.img does not exist"), "{said}");
        assert!(said.contains("if it was made with --marks"), "{said}");
    }
}

/// Nobody makes good what is wrong with the device that is left, so what is left of it has to do.
#[test]
fn one_superblock_is_enough_and_a_device_that_takes_no_writes() {
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
    let mut served = killed();
    std::fs::remove_file(in_dir(&served, "slow.img")).expect("deleted");
    let file = in_dir(&served, "fast.img");
    let fast = File::options().write(true).open(&file).expect("the fast file");
    fast.write_all_at(&[0x55; 4096], 0).expect("its first superblock is gone");
    drop(fast);
    let read_only = std::fs::Permissions::from_mode(0o400);
    std::fs::set_permissions(&file, read_only).expect("nobody writes to it");
    let before = std::fs::read(&file).expect("the fast file");
    let log = serve_degraded(&mut served);
    reads_as_listed(&served);
    served.stop();
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("this superblock is not valid"), "{said}");
    assert!(std::fs::read(&file).expect("the fast file") == before, "nothing is written");
}

/// The disk is unplugged, the volume is used without it, also after a crash, and the disk comes back.
#[test]
fn what_is_left_is_written_to_until_the_disk_is_back() {
    let mut served = killed();
    let (slow, away) = (in_dir(&served, "slow.img"), in_dir(&served, "away/slow.img"));
    let stale = in_dir(&served, "stale/slow.img");
    for folder in ["away", "stale"] {
        std::fs::create_dir(in_dir(&served, folder)).expect("a folder");
    }
    std::fs::copy(&slow, &stale).expect("a copy of it");
    std::fs::rename(&slow, &away).expect("it is gone");

    let said = text(&run(&served, &["serve"], &[]).stderr);
    assert!(said.contains("--writable"), "{said}");
    let log = in_dir(&served, "log");
    let begin = |served: &mut Served| {
        let mut command = common::serve(served.dir.path());
        command.args(["--degraded", "--writable"]).stderr(File::create(&log).expect("a log"));
        served.child = Some(start(command));
    };
    begin(&mut served);
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(said.contains("what is written goes to the fast device"), "{said}");
    let status = doc(run(&served, &["status"], &["--json"]));
    assert_eq!((&status["state"], &status["loss"]["writable"]), (&json!("degraded"), &json!(true)));
    // Whole blocks and sectors of what is on the disk, what is on the fast device, and what was blank.
    let new = |at: u64, len: usize| pattern(at + 1, len);
    let written =
        [(COLD.start, 65536), (COLD.start + MIB + 512, 1024), (WARM.start, 65536), (WARM.end, 65536)];
    let mut client = served.connect();
    for (at, len) in written {
        client.write(at, &new(at, len));
    }
    client.flush();
    let is_there = |served: &Served, is_alone: bool| {
        let mut client = served.connect();
        for (at, len) in written {
            assert_eq!(client.read(at, len), new(at, len), "byte {at}");
        }
        assert_eq!(client.read(WARM.start + MIB, 65536), bytes_at(WARM.start + MIB));
        // Beside what was written, and elsewhere on the disk.
        for at in [COLD.start + MIB, COLD.start + 2 * MIB] {
            match is_alone {
                true => {
                    assert_eq!(client.call(Nbd::Read, at, 512, &[]).result, Err(NbdErrno::Io), "byte {at}")
                }
                false => assert_eq!(client.read(at, 512), bytes_at(at)[..512], "byte {at}"),
            }
        }
    };
    is_there(&served, true);
    served.kill();
    begin(&mut served);
    is_there(&served, true);
    let left = lost(&served);
    assert_eq!(
        left["lost"][0]["offset"],
        json!(COLD.start + 65536),
        "what was written is not lost: {left:#}"
    );
    assert_eq!(left["lost"][1]["offset"], json!(COLD.start + MIB + 1536), "nor are its sectors: {left:#}");
    for refused in [&["scrub"][..], &["protect", "30s"]] {
        let output = run(&served, &refused[..1], &refused[1..]);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{refused:?}");
    }
    served.stop();

    // What was used with it before is no part of the volume any more; what was left behind is.
    let served_once = |served: &mut Served| {
        served.start();
        is_there(served, false);
        let mut client = served.connect();
        for at in COLD.chain(WARM).step_by(65536) {
            let is_new = written.iter().any(|&(new, len)| at < new + len as u64 && new < at + 65536);
            assert!(is_new || client.read(at, 65536) == bytes_at(at), "byte {at}");
        }
        served.stop();
    };
    std::fs::rename(&away, &slow).expect("it is back");
    served_once(&mut served);
    served.check();
    served_once(&mut served);
    std::fs::rename(&stale, &slow).expect("a copy of it from before");
    let output = run(&served, &["serve"], &[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("another generation"), "{said}");
}

/// A server that was started with both has the deleted file still.
#[test]
fn a_server_that_still_has_the_device_is_to_be_stopped_first() {
    let mut served = Served::new();
    std::fs::remove_file(in_dir(&served, "slow.img")).expect("deleted");
    let output = run(&served, &["lost"], &[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("stop it"), "{said}");
    served.kill();
}

#[test]
fn every_file_with_something_lost_is_named() {
    if !common::can_fuse(&["mount", "mkfs.ext4"]) {
        return println!("skipped: this needs root, nbdfuse, loop devices and mkfs.ext4");
    }
    let mut served = Served::sized("48M", "256M");
    let tree = ext4::fill(&served, &mut served.connect());
    served.kill();
    std::fs::remove_file(in_dir(&served, "slow.img")).expect("the disk has died");
    serve_degraded(&mut served);
    let Some(mounted) = ext4::mount(&served) else {
        return println!("skipped: there is no loop device to be had");
    };
    let mount = &mounted.0;
    let found = doc(run(&served, &["lost"], &["--json", "--files", mount.to_str().expect("a name")]));
    let mut bad = Vec::new();
    ext4::unreadable(mount, &tree, &mut bad);
    assert!(!bad.is_empty() && bad.len() < 360, "some of it is lost: {} files, {found:#}", bad.len());
    ext4::Named::of(&found).must_be(&bad, mount);
    // What is mounted elsewhere is no device of the volume.
    let output = run(&served, &["lost"], &["--files", "/proc"]);
    assert!(text(&output.stderr).contains("not handled"), "{}", text(&output.stderr));
    ext4::unmount(&served, mounted);
    served.stop();
}
