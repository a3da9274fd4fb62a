//! Device files are sparse: the disk below them may fill up. The write that meets this fails; what was
//! acknowledged and flushed stays, is read while the disk is full, and is there when the volume is opened
//! again with room made.

mod common;

use bimetal_nbd::{Command as Nbd, NbdErrno};
use common::{Client, Guarded, Mounted, bimetal, create, pattern, start, terminate, text};
use std::fs::File;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Serves the volume; what it says goes to the file `log`.
fn serve(dir: &Path) -> (Guarded, Client) {
    let mut command = common::serve(dir);
    command.stderr(File::create(dir.join("log")).expect("a log"));
    let server = Guarded(start(command));
    (server, Client::connect(&dir.join("nbd.sock")))
}

/// What the client knows of one MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Nothing,
    Written,
    Flushed,
}

/// Writes MiB by MiB, flushing now and then, until something fails; returns what is known of each.
fn write_until_full(client: &mut Client, mib: u64) -> Vec<Known> {
    let mut known = vec![Known::Nothing; mib as usize];
    for place in 0..mib {
        let bytes = pattern(place, MIB as usize);
        if let Err(error) = client.call(Nbd::Write, place * MIB, MIB as u32, &bytes).result {
            assert_eq!(error, NbdErrno::NoSpace, "the write of MiB {place}");
            return known;
        }
        known[place as usize] = Known::Written;
        if place % 8 == 7 {
            if let Err(error) = client.call(Nbd::Flush, 0, 0, &[]).result {
                assert_eq!(error, NbdErrno::NoSpace, "the flush after MiB {place}");
                return known;
            }
            known[..=place as usize].fill(Known::Flushed);
        }
    }
    panic!("the disk did not fill up");
}

fn verify(client: &mut Client, known: &[Known], least: Known) {
    for (place, &state) in known.iter().enumerate() {
        if state == Known::Flushed || state == least {
            let bytes = client.read(place as u64 * MIB, MIB as usize);
            assert!(bytes == pattern(place as u64, MIB as usize), "MiB {place}, {state:?}");
        }
    }
}

/// `full`: which of the devices lies on the small disk.
fn fills_up(kind: &str, full: &str) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let Some(small) = Mounted::new(dir.path(), kind, 200) else {
        eprintln!("cannot mount {kind} here: skipped");
        return;
    };
    let place = |tier: &str| if tier == full { small.place.clone() } else { dir.path().to_owned() };
    // In the way, to be removed later.
    let balloon = small.place.join("balloon");
    std::fs::write(&balloon, vec![1; 100 << 20]).expect("a large file");
    let (fast, slow) = if full == "fast" { ("160M", "512M") } else { ("64M", "1G") };
    let devices = [(place("fast").join("fast"), fast), (place("slow").join("slow"), slow)];
    create(dir.path(), devices, &["--landing", "16M"]);
    let (mut server, mut client) = serve(dir.path());
    let known = write_until_full(&mut client, 600);
    let written = known.iter().filter(|&&known| known != Known::Nothing).count();
    eprintln!("{kind}, {full} device: {written} MiB fitted");
    assert!(written >= 32, "only {written} MiB fitted");
    // Whatever was acknowledged is read while the disk is full.
    verify(&mut client, &known, Known::Written);
    if full == "slow" {
        // Small writes have room: their blocks are on the fast device, or land there.
        client.write(0, &pattern(0, MIB as usize)[..4096]);
        client.flush();
    }
    let end = terminate(&mut server.0);
    eprintln!("{kind}, {full} device: closing ended with {end}");
    drop(server);
    let log = std::fs::read_to_string(dir.path().join("log")).expect("the log");
    eprintln!("{log}");
    assert!(log.contains(" failed: No space left on device (os error 28)"), "the log names the error");
    std::fs::remove_file(&balloon).expect("make room");
    let (mut server, mut client) = serve(dir.path());
    verify(&mut client, &known, Known::Flushed);
    for place in 0..8 {
        client.write(place * MIB, &pattern(place + 1000, MIB as usize));
    }
    client.flush();
    assert!(terminate(&mut server.0).success());
    let check = bimetal(dir.path()).arg("check").arg(dir.path().join("v.toml")).output().expect("run");
    assert!(check.status.success(), "{}", text(&check.stdout));
}

#[test]
fn a_full_disk_below_the_slow_device() {
    fills_up("ext4", "slow");
    fills_up("tmpfs", "slow");
}

#[test]
fn a_full_disk_below_the_fast_device() {
    fills_up("ext4", "fast");
    fills_up("tmpfs", "fast");
}
