//! A volume as a block device of this machine, as far as that can be tried without a driver of the kernel's: what is said
//! where there is none, and the way by `nbdfuse`. The others are tried in a guest (tests/long/attach.sh).

mod common;

use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

fn ask(served: &Served, words: &[&str]) -> Output {
    let mut command = bimetal(served.dir.path());
    command.arg(words[0]).arg(served.file()).args(&words[1..]);
    command.output().expect("run")
}

/// Exit code, and the one sentence that says why.
fn refused(served: &Served, words: &[&str]) -> (Option<i32>, String) {
    let output = ask(served, words);
    let message = text(&output.stderr);
    assert!(output.stdout.is_empty(), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.starts_with("bimetal: "), "{message}");
    (output.status.code(), message)
}

fn attached(served: &Served) -> Value {
    let output = ask(served, &["status", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    document["attached"].clone()
}

#[test]
fn what_is_not_served_or_not_attached_is_said() {
    let mut served = Served::new();
    let (code, message) = refused(&served, &["detach"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("v is not attached"), "{message}");
    assert_eq!(attached(&served), Value::Null);
    served.stop();
    let (code, message) = refused(&served, &["attach"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("nobody serves v") && message.contains("serve"), "{message}");
    assert_eq!(refused(&served, &["detach"]).0, Some(1));
    for words in [["attach", "--as", "scsi"], ["attach", "--wait", "0"], ["attach", "--wait", "long"]] {
        let (code, message) = refused(&served, &words);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(words[2]), "{message}");
    }
    // A record that is none keeps nobody from serving, and is named.
    let record = record_of(&served);
    std::fs::write(&record, "nonsense").expect("written");
    assert!(refused(&served, &["detach"]).1.contains(".attached"));
    served.start();
    assert_eq!(served.connect().read(0, 512).len(), 512);
}

/// Where the record of an attached volume is.
fn record_of(served: &Served) -> PathBuf {
    let text = std::fs::read_to_string(served.file()).expect("the volume file");
    let id = &text.split("volume_id = \"").nth(1).expect("an identity")[..8];
    served.dir.path().join("bimetal").join(format!("v-{id}.attached"))
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    let served = Served::new();
    let absent = [("ublk", "/dev/ublk-control"), ("nbd", "/sys/module/nbd")];
    for (way, sign) in absent {
        if Path::new(sign).exists() {
            println!("skipped: this machine has a driver for {way}");
            continue;
        }
        let (code, message) = refused(&served, &["attach", "--as", way]);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(&format!("not by {way}: ")) && message.contains("module"), "{message}");
        assert_eq!(attached(&served), Value::Null);
    }
    assert_eq!(served.connect().read(0, 512).len(), 512);
}

#[test]
fn nbdfuse_and_a_loop_device_are_a_way() {
    if !common::can_fuse(&[]) {
        return println!("skipped: this needs root, nbdfuse, /dev/fuse and loop devices");
    }
    let mut served = Served::new();
    let output = ask(&served, &["attach", "--as", "fuse"]);
    let told = text(&output.stderr);
    if told.contains("losetup has ended") {
        return println!("skipped: there is no loop device to be had");
    }
    assert!(output.status.success(), "{told}");
    assert!(told.contains("does not outlive this server"), "{told}");
    let path = PathBuf::from(text(&output.stdout).trim().to_owned());
    let doc = attached(&served);
    assert_eq!((doc["kind"].as_str(), doc["served"].as_bool()), (Some("fuse"), Some(true)), "{doc}");
    let device = doc["device"].as_str().expect("a device").to_owned();
    assert!(device.starts_with("/dev/loop"), "{doc}");
    assert_eq!(path.canonicalize().expect("it is there"), PathBuf::from(&device));

    let mut file = std::fs::File::options().read(true).write(true).open(&path).expect("open");
    assert_eq!(file.seek(SeekFrom::End(0)).expect("its size"), status_size(&served));
    let bytes = pattern(7, 100_000);
    file.seek(SeekFrom::Start(8192)).expect("seek");
    file.write_all(&bytes).expect("written");
    file.sync_all().expect("synced");
    assert_eq!(served.connect().read(8192, bytes.len()), bytes);
    let (code, message) = refused(&served, &["detach"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&device) && message.contains("open in"), "{message}");
    let mut read = vec![0; bytes.len()];
    file.seek(SeekFrom::Start(8192)).expect("seek");
    file.read_exact(&mut read).expect("it is still there");
    assert_eq!(read, bytes);
    drop(file);

    // Asked again, it is the same one; by another way it is refused.
    assert_eq!(text(&succeed(&mut attach(&served)).stdout).trim(), path.display().to_string());
    let (code, message) = refused(&served, &["attach", "--as", "nbd"]);
    assert!(code == Some(2) && message.contains("by fuse"), "{message}");
    let output = ask(&served, &["detach"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(attached(&served), Value::Null);
    gone(&device);
    served.stop();
    served.check();
}

fn attach(served: &Served) -> std::process::Command {
    let mut command = bimetal(served.dir.path());
    command.arg("attach").arg(served.file());
    command
}

fn status_size(served: &Served) -> u64 {
    let output = ask(served, &["status", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    document["size_bytes"].as_u64().expect("a number")
}

/// Waits until a loop device stands on nothing any more.
fn gone(device: &str) {
    let backing = Path::new("/sys/block").join(Path::new(device).file_name().expect("a name")).join("loop");
    let start = Instant::now();
    while backing.exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "{device} is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}
