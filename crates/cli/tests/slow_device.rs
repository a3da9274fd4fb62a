//! A disk that answers nothing for some seconds, below a server that really runs: nobody gets an error, and
//! `status` says what everybody waits for.

mod common;

use bimetal_nbd::{Command as Nbd, Request};
use common::{Client, Guarded, Mounted, bimetal, create, pattern, start, succeed, terminate, text};
use std::time::Duration;

const MIB: u64 = 1 << 20;

#[test]
fn both_devices_are_silent_for_seconds() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(mut disk) = Mounted::new(dir.path(), "ext4", 200) else {
        return eprintln!("cannot mount a disk here: skipped");
    };
    let file = dir.path().join("v.toml");
    create(
        dir.path(),
        [(disk.place.join("fast"), "32M"), (disk.place.join("slow"), "96M")],
        &["--landing", "8M"],
    );
    let log = dir.path().join("log");
    let mut command = common::serve(dir.path());
    command.stderr(std::fs::File::create(&log).expect("a log"));
    let mut server = Guarded(start(command));
    let mut client = Client::connect(&dir.path().join("nbd.sock"));
    for place in 0..64 {
        client.write(place * MIB, &pattern(place, MIB as usize));
    }
    client.flush();
    let status = || text(&succeed(bimetal(dir.path()).arg("status").arg(&file)).stdout);
    assert!(!status().contains("has not answered"), "{}", status());
    if !disk.freeze(true) {
        return eprintln!("cannot freeze a disk here: skipped");
    }
    // One to a chunk on the fast device, one far behind, and a flush.
    let block = pattern(1000, 4096);
    client.send(&Request::new(1001, Nbd::Write, 0, 4096), &block);
    client.send(&Request::new(1002, Nbd::Write, 60 * MIB, 4096), &block);
    client.send(&Request::new(1003, Nbd::Flush, 0, 0), &[]);
    std::thread::sleep(Duration::from_secs(5));
    let said = status();
    assert!(disk.freeze(false), "the disk thaws");
    assert!(said.contains("it has not answered for"), "{said}");
    assert!(said.contains("v: open, "), "{said}");
    for _ in 0..3 {
        client.reply().result.expect("what waited succeeds");
    }
    assert!(!status().contains("has not answered"), "{}", status());
    for (place, expected) in [(0, &block[..]), (60 * MIB, &block), (MIB, &pattern(1, MIB as usize))] {
        assert!(client.read(place, expected.len()) == expected, "at byte {place}");
    }
    assert!(terminate(&mut server.0).success());
    let log = std::fs::read_to_string(&log).expect("the log");
    assert!(!log.contains("warning") && !log.contains("error"), "{log}");
    succeed(bimetal(dir.path()).arg("check").arg(&file));
}
