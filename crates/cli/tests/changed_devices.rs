//! Devices that change below a server: cut, replaced, deleted, taken by somebody else. It is noticed within seconds, said
//! by name, and nobody is told that something is kept which is not.

mod common;

use bimetal_nbd::{Command as Nbd, SimpleReply};
use common::{Client, Served, bimetal, pattern, start, succeed, text};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Far more than it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A served volume with its log in a file, and a client that has written.
fn served() -> (Served, Client, PathBuf) {
    let mut served = Served::new();
    served.stop();
    let (client, log) = begin(&mut served);
    (served, client, log)
}

fn begin(served: &mut Served) -> (Client, PathBuf) {
    let log = served.dir.path().join("log");
    let mut command = common::serve(served.dir.path());
    command.stderr(File::create(&log).expect("a log"));
    served.child = Some(start(command));
    let mut client = served.connect();
    for place in 0..16 {
        client.write(place * MIB, &pattern(place, 65536));
    }
    client.flush();
    (client, log)
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).expect("a log")
}

/// The server ends by itself, with a problem and a sentence with these words.
#[track_caller]
fn ends(served: &mut Served, log: &Path, words: &[&str]) {
    let start = Instant::now();
    let mut child = served.child.take().expect("serving");
    let status = loop {
        if let Some(status) = child.try_wait().expect("wait") {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the server goes on: {}", read(log));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = read(log);
    assert_eq!(status.code(), Some(1), "{said}");
    for words in words {
        assert!(
            said.lines().any(|line| line.contains("error:") && line.contains(words)),
            "{words:?}: {said}"
        );
        assert!(
            said.lines().any(|line| line.starts_with("bimetal: ") && line.contains(words)),
            "{words:?}: {said}"
        );
    }
}

/// Writes until something fails; false when the server only ends the stream.
fn write_until_it_fails(client: &mut Client) -> bool {
    let start = Instant::now();
    loop {
        let request = bimetal_nbd::Request::new(7, Nbd::Write, 32 * MIB, 4096);
        use std::io::Write as _;
        let sent = client.stream.write_all(&bimetal_nbd::encode_request(&request));
        if sent.and_then(|()| client.stream.write_all(&[9; 4096])).is_err() {
            return false;
        }
        let mut reply = [0; bimetal_nbd::SIMPLE_REPLY_BYTES];
        if client.stream.read_exact(&mut reply).is_err() {
            return false;
        }
        let SimpleReply { result, .. } =
            bimetal_nbd::parse_simple_reply(&reply).expect("valid").expect("whole");
        if result.is_err() {
            return true;
        }
        assert!(start.elapsed() < PATIENCE, "writes go on");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("cut");
}

#[test]
fn a_file_that_is_cut_ends_the_server_and_its_clients_get_errors() {
    for (name, bytes) in [("fast.img", 0), ("fast.img", 32 * MIB), ("slow.img", 0), ("slow.img", 255 * MIB)] {
        let (mut served, mut client, log) = served();
        cut(&served.dir.path().join(name), bytes);
        write_until_it_fails(&mut client);
        ends(&mut served, &log, &[&format!("{name} has shrunk to"), "; the volume uses"]);
    }
}

#[test]
fn nothing_is_promised_on_a_file_that_was_cut() {
    for (flags, name) in [(0, "fast.img"), (1, "fast.img"), (0, "slow.img")] {
        let (mut served, mut client, log) = served();
        cut(&served.dir.path().join(name), MIB);
        let mut write = bimetal_nbd::Request::new(7, Nbd::Write, 32 * MIB, 65536);
        write.fua = flags == 1;
        client.send(&write, &pattern(7, 65536));
        if flags == 0 {
            // Whatever the write says.
            let _ = client.reply();
            client.send(&bimetal_nbd::Request::new(8, Nbd::Flush, 0, 0), &[]);
        }
        let mut reply = [0; bimetal_nbd::SIMPLE_REPLY_BYTES];
        if client.stream.read_exact(&mut reply).is_ok() {
            let reply = bimetal_nbd::parse_simple_reply(&reply).expect("valid").expect("whole");
            assert!(reply.result.is_err(), "{name}, {flags}: it is said to be kept: {}", read(&log));
        }
        ends(&mut served, &log, &[&format!("{name} has shrunk to")]);
    }
}

#[test]
fn a_server_without_clients_notices_too() {
    let (mut served, client, log) = served();
    drop(client);
    cut(&served.dir.path().join("fast.img"), MIB);
    ends(&mut served, &log, &["has shrunk to 1048576 bytes"]);
}

#[test]
fn a_file_that_was_cut_and_made_as_long_again_at_once_has_lost_its_end() {
    for bytes in [0, 32 * MIB] {
        let (mut served, mut client, log) = served();
        let fast = served.dir.path().join("fast.img");
        let length = std::fs::metadata(&fast).expect("the file").len();
        cut(&fast, bytes);
        cut(&fast, length);
        write_until_it_fails(&mut client);
        ends(&mut served, &log, &["fast.img: the superblock at byte"]);
    }
}

#[test]
fn a_file_that_grew_is_as_good() {
    let (mut served, mut client, log) = served();
    for name in ["fast.img", "slow.img"] {
        cut(&served.dir.path().join(name), 300 * MIB);
    }
    std::thread::sleep(Duration::from_millis(2500));
    client.write(0, &pattern(99, 4096));
    client.flush();
    assert_eq!(client.read(0, 4096), pattern(99, 4096));
    served.stop();
    assert!(!read(&log).contains("error"), "{}", read(&log));
    served.check();
}

/// All that was flushed can be read, changes are refused, and the server ends with a problem when it is told to.
fn only_reads(mut served: Served, mut client: Client, log: &Path, words: &str) {
    assert!(write_until_it_fails(&mut client), "an error, and not the end");
    assert!(client.call(Nbd::Flush, 0, 0, &[]).result.is_err(), "a flush promises nothing");
    for place in 0..16 {
        assert!(client.read(place * MIB, 65536) == pattern(place, 65536), "at {place} MiB");
    }
    let status = text(&succeed(bimetal(served.dir.path()).arg("status").arg(served.file())).stdout);
    assert!(status.contains("read-only"), "{status}");
    let code = common::terminate(served.child.as_mut().expect("serving")).code();
    assert_eq!(code, Some(1), "{}", read(log));
    let said = read(log);
    assert!(said.lines().any(|line| line.contains("error:") && line.contains(words)), "{words:?}: {said}");
}

#[test]
fn a_file_that_is_deleted_is_kept_to_be_copied_away() {
    let (served, client, log) = served();
    std::fs::remove_file(served.dir.path().join("fast.img")).expect("remove");
    only_reads(served, client, &log, "fast.img was deleted");
}

#[test]
fn a_file_that_is_replaced_takes_no_more_changes() {
    let (served, client, log) = served();
    let at = |name: &str| served.dir.path().join(name);
    std::fs::copy(at("slow.img"), at("new.img")).expect("copy");
    std::fs::rename(at("new.img"), at("slow.img")).expect("rename");
    only_reads(served, client, &log, "slow.img was replaced");
}

#[test]
fn a_file_that_is_renamed_is_only_told_of() {
    let (mut served, mut client, log) = served();
    let at = |name: &str| served.dir.path().join(name);
    std::fs::rename(at("fast.img"), at("faster.img")).expect("rename");
    let start = Instant::now();
    while !read(&log).contains("fast.img was renamed") {
        assert!(start.elapsed() < PATIENCE, "{}", read(&log));
        std::thread::sleep(Duration::from_millis(20));
    }
    client.write(0, &pattern(98, 4096));
    client.flush();
    served.stop();
    served.check();
}

/// Writes another generation into the superblocks of a fast device, as somebody would who opened it.
fn raise(fast: &Path) {
    use bimetal_engine::format::superblock::{Found, Superblock};
    let file = File::options().read(true).write(true).open(fast).expect("open");
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, 0).expect("read");
    let Found::Valid(mut superblock) = Superblock::decode(&block, 0) else { panic!("a superblock") };
    superblock.generation.0 += 1;
    for at in [0, superblock.geometry.second_superblock_at(superblock.tier)] {
        superblock.encode(&mut block, at);
        file.write_all_at(&block, at).expect("write");
    }
}

#[test]
fn a_server_whose_generation_was_raised_by_somebody_else_stops_at_once() {
    // Also one that has rested, and that nobody asks for anything.
    for rests in [false, true] {
        let (mut served, mut client, log) = served();
        if rests {
            std::thread::sleep(Duration::from_secs(3));
        }
        raise(&served.dir.path().join("fast.img"));
        if !rests {
            write_until_it_fails(&mut client);
        }
        ends(&mut served, &log, &["fast.img was opened by somebody else (generation "]);
        let bytes = std::fs::read(served.dir.path().join("fast.img")).expect("the file");
        std::thread::sleep(Duration::from_millis(300));
        assert!(bytes == std::fs::read(served.dir.path().join("fast.img")).expect("the file"));
    }
}

#[test]
fn another_volume_on_the_device_of_a_served_one_stops_it() {
    let (mut served, _client, log) = served();
    // What a program does that knows no locks.
    let file = File::options().write(true).open(served.dir.path().join("fast.img")).expect("open");
    file.write_all_at(&pattern(3, 8192), 0).expect("write");
    ends(&mut served, &log, &["fast.img: the superblock at byte 0 is gone"]);
}

#[test]
fn one_rotten_bit_in_a_superblock_is_told_of_and_stops_nobody() {
    let (mut served, mut client, log) = served();
    let fast = File::options().read(true).write(true).open(served.dir.path().join("fast.img")).expect("open");
    let mut byte = [0];
    fast.read_exact_at(&mut byte, 100).expect("read");
    fast.write_all_at(&[byte[0] ^ 4], 100).expect("write");
    let start = Instant::now();
    while !read(&log).contains("the superblock at byte 0 has decayed") {
        assert!(start.elapsed() < PATIENCE, "{}", read(&log));
        std::thread::sleep(Duration::from_millis(20));
    }
    client.write(0, &pattern(97, 4096));
    client.flush();
    served.stop();
    served.check();
}

#[test]
fn a_server_that_rests_reads_nothing() {
    let (mut served, _client, log) = served();
    let pid = served.child.as_ref().expect("serving").id();
    let read_bytes = || {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let count = io.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse::<u64>().ok());
        count.unwrap_or_default()
    };
    // What the engine does by itself ends some time.
    let start = Instant::now();
    let mut before = read_bytes();
    loop {
        std::thread::sleep(Duration::from_millis(3500));
        let now = read_bytes();
        if now == before {
            break;
        }
        before = now;
        assert!(start.elapsed() < 2 * PATIENCE, "it reads on: {}", read(&log));
    }
    served.stop();
}

#[test]
fn what_is_below_a_loop_device_is_looked_after_too() {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let losetup = |args: &[&str]| {
        let done = Command::new("losetup").env("PATH", &path).args(args).output().ok()?;
        done.status.success().then(|| text(&done.stdout).trim().to_owned())
    };
    let mut served = Served::new();
    served.stop();
    let fast = served.dir.path().join("fast.img");
    let Some(device) = losetup(&["--find", "--show", &fast.display().to_string()]) else {
        return eprintln!("there are no loop devices here: skipped");
    };
    let volume = std::fs::read_to_string(served.file()).expect("a volume file");
    std::fs::write(served.file(), volume.replace("\"fast.img\"", &format!("{device:?}"))).expect("write");
    let (mut client, log) = begin(&mut served);
    cut(&fast, 32 * MIB);
    write_until_it_fails(&mut client);
    ends(&mut served, &log, &["fast.img, which "]);
    losetup(&["--detach", &device]).expect("detach");
}
