//! Moving in and out: disks and images into volumes and back, whole and verified, over kills, and never over what somebody
//! has there.

mod common;

use common::{Served, bimetal, pattern, succeed, text};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Where the choices of a test begin: printed, and taken from the environment to be had again.
fn seed() -> u64 {
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.subsec_nanos().into());
    let seed = std::env::var("COPYING_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(clock);
    eprintln!("COPYING_SEED={seed}");
    seed
}

/// A number below a bound.
fn draw(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

/// A volume of some hundred MiB that is blank, and stopped.
fn blank() -> Served {
    let mut served = Served::sized("128M", "384M");
    served.stop();
    served
}

/// A sparse image with data at its beginning, at its end, and strewn over it.
fn image(dir: &Path, bytes: u64, state: &mut u64) -> PathBuf {
    let path = dir.join("image.raw");
    let file = File::create(&path).expect("an image");
    file.set_len(bytes).expect("its size");
    for _ in 0..40 {
        let length = 1 + draw(state, 3 * MIB);
        let at = draw(state, bytes - length);
        file.write_all_at(&pattern(*state, length as usize), at).expect("data");
    }
    file.write_all_at(&pattern(1, 5000), 0).expect("data");
    file.write_all_at(&pattern(2, 777), bytes - 777).expect("data");
    path
}

fn import(served: &Served, source: &Path, options: &[&str]) -> Command {
    let mut command = bimetal(served.dir.path());
    command.arg("import").arg(source).arg(served.file()).arg("--json").args(options);
    command
}

fn export(served: &Served, target: &Path, options: &[&str]) -> Command {
    let mut command = bimetal(served.dir.path());
    command.arg("export").arg(served.file()).arg(target).arg("--json").args(options);
    command
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&succeed(command).stdout).expect("one document")
}

/// Exit code 2, and one sentence with these words.
fn refused(command: &mut Command, words: &[&str]) {
    let output = command.output().expect("run");
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{command:?}: {message}");
    assert!(output.stdout.is_empty() && message.lines().count() == 1, "{message}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// Whether a file begins with what another one holds, and reads zeros behind that.
fn begins_with(whole: &Path, part: &Path) -> bool {
    let (whole, part) = (fs::read(whole).expect("a file"), fs::read(part).expect("a file"));
    whole[..part.len()] == part[..] && whole[part.len()..].iter().all(|&byte| byte == 0)
}

#[test]
fn an_image_moves_in_and_out_again_and_stays_sparse() {
    let mut state = seed();
    let served = blank();
    let dir = served.dir.path();
    // It ends in the middle of a sector.
    let source = image(dir, 200 * MIB + 300, &mut state);
    let told = json(&mut import(&served, &source, &[]));
    assert_eq!((&told["complete"], &told["size_bytes"]), (&true.into(), &(200 * MIB + 300).into()), "{told}");
    let written = told["written_bytes"].as_u64().expect("bytes");
    assert!(written > 5000 && written < 150 * MIB, "zeros are not written: {told}");
    assert!(!dir.join("v.import").exists(), "the journal goes when the copy is complete");
    served.check();

    let out = dir.join("out.raw");
    let told = json(&mut export(&served, &out, &[]));
    assert_eq!(told["complete"], true, "{told}");
    assert!(begins_with(&out, &source));
    let taken = fs::metadata(&out).expect("the target").blocks() * 512;
    assert!(taken < 160 * MIB, "{taken} bytes are taken");
    assert!(!dir.join("v.export").exists());
}

#[test]
fn nothing_is_overwritten_unasked() {
    let mut state = seed();
    let mut served = blank();
    let dir = served.dir.path().to_owned();
    let source = image(&dir, 20 * MIB, &mut state);
    let at = |name: &str| dir.join(name);
    // Of the source.
    refused(&mut import(&served, &at("nowhere"), &[]), &["nowhere"]);
    fs::write(at("empty"), "").expect("a file");
    refused(&mut import(&served, &at("empty"), &[]), &["empty"]);
    File::create(at("large")).and_then(|file| file.set_len(4096 * MIB)).expect("a file");
    refused(&mut import(&served, &at("large"), &[]), &["more than", "larger volume"]);
    fs::write(at("image.qcow2"), b"QFI\xfb\0\0\0\x03").expect("a file");
    refused(&mut import(&served, &at("image.qcow2"), &[]), &["qcow2", "qemu-img convert"]);
    refused(&mut import(&served, &at("fast.img"), &[]), &["in use"]);

    // Of the volume.
    served.start();
    refused(&mut import(&served, &source, &["--force"]), &["served", "stop its server"]);
    refused(&mut export(&served, &at("out"), &["--force"]), &["served", "stop its server"]);
    served.connect().write(123_456, &pattern(9, 4096));
    served.stop();
    refused(&mut import(&served, &source, &[]), &["holds data", "--force"]);
    served.start();
    assert_eq!(served.connect().read(123_456, 4096), pattern(9, 4096));
    served.stop();
    assert_eq!(json(&mut import(&served, &source, &["--force"]))["complete"], true);

    // Of the target.
    refused(&mut export(&served, &source, &[]), &["holds", "--force"]);
    refused(&mut export(&served, &served.file(), &["--force"]), &["volume file"]);
    refused(&mut export(&served, &at("slow.img"), &["--force"]), &["in use"]);
    refused(&mut export(&served, Path::new("/dev/no-such-disk"), &["--force"]), &["/dev/no-such-disk"]);
    assert!(!Path::new("/dev/no-such-disk").exists());
    fs::write(at("other"), pattern(7, 3 << 20)).expect("a file");
    refused(&mut export(&served, &at("other"), &[]), &["holds data", "--force"]);
    assert_eq!(fs::read(at("other")).expect("the file"), pattern(7, 3 << 20));
    json(&mut export(&served, &at("other"), &["--force"]));
    assert!(begins_with(&at("other"), &source));
    served.check();
}

/// Gives a command again and again and kills it at moments that are drawn, until one comes to its end. Where each began.
fn over_kills(state: &mut u64, longest_ms: u64, mut command: impl FnMut() -> Command) -> Vec<u64> {
    let mut resumed = Vec::new();
    for round in 0..200 {
        // Later runs are let go on for longer, so that it ends.
        let patience = Duration::from_millis(draw(state, longest_ms) + 10 * round);
        let mut child = command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
        std::thread::sleep(patience);
        let ended = child.try_wait().expect("wait").is_some();
        child.kill().expect("kill");
        let output = child.wait_with_output().expect("wait");
        if !ended && !output.status.success() {
            assert_eq!(output.status.code(), None, "{}", text(&output.stderr));
            continue;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).expect("a document");
        resumed.push(told["resumed_at_bytes"].as_u64().expect("bytes"));
        return resumed;
    }
    panic!("it never comes to its end");
}

#[test]
fn copies_that_are_killed_go_on_and_are_whole() {
    let mut state = seed();
    let served = blank();
    let dir = served.dir.path();
    let source = image(dir, 300 * MIB, &mut state);
    let resumed = over_kills(&mut state, 600, || import(&served, &source, &[]));
    eprintln!("the import's last run began at {resumed:?}");
    served.check();
    let out = dir.join("out.raw");
    let resumed = over_kills(&mut state, 600, || export(&served, &out, &[]));
    eprintln!("the export's last run began at {resumed:?}");
    assert!(begins_with(&out, &source));
    served.check();
}

/// A copy that was killed when its journal had come so far.
fn killed_after(mut command: Command, journal: &Path, done_bytes: u64) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start");
    loop {
        let told = fs::read(journal).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if told.and_then(|told| told["done_bytes"].as_u64()).is_some_and(|done| done >= done_bytes) {
            break;
        }
        assert!(child.try_wait().expect("wait").is_none(), "it was over before it could be killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("kill");
    child.wait().expect("wait");
}

#[test]
fn a_copy_goes_on_only_with_what_is_still_the_same() {
    let mut state = seed();
    let mut served = blank();
    let dir = served.dir.path().to_owned();
    let source = image(&dir, 300 * MIB, &mut state);
    let journal = dir.join("v.import");
    killed_after(import(&served, &source, &[]), &journal, 64 * MIB);
    // Who only looks changes nothing.
    succeed(bimetal(&dir).arg("status").arg(served.file()));
    let told = {
        killed_after(import(&served, &source, &[]), &journal, 128 * MIB);
        json(&mut import(&served, &source, &[]))
    };
    assert!(told["resumed_at_bytes"].as_u64() >= Some(128 * MIB), "{told}");

    // Who writes to the volume meanwhile is not overwritten; nor is a source taken for the same that is not.
    for at in [10 * MIB, 250 * MIB] {
        json(&mut import(&served, &source, &["--force"]));
        let mut again = import(&served, &source, &["--force"]);
        again.args(["--log", "warn"]);
        killed_after(again, &journal, 64 * MIB);
        served.start();
        let mut client = served.connect();
        client.write(at, &pattern(at, 4096));
        client.flush();
        drop(client);
        served.stop();
        refused(&mut import(&served, &source, &[]), &["holds data", "--force"]);
        served.start();
        assert_eq!(served.connect().read(at, 4096), pattern(at, 4096));
        served.stop();
    }
    killed_after(import(&served, &source, &["--force"]), &journal, 64 * MIB);
    File::options().write(true).open(&source).and_then(|file| file.write_all_at(b"new", 0)).expect("data");
    refused(&mut import(&served, &source, &[]), &["holds data", "as it is now", "--force"]);
    assert_eq!(json(&mut import(&served, &source, &["--force"]))["resumed_at_bytes"], 0);

    // An export goes on, and begins again where the volume was opened by somebody since.
    let (out, journal) = (dir.join("out.raw"), dir.join("v.export"));
    killed_after(export(&served, &out, &[]), &journal, 64 * MIB);
    killed_after(export(&served, &out, &[]), &journal, 128 * MIB);
    served.start();
    served.connect().write(MIB, &pattern(5, 100_000));
    served.stop();
    assert_eq!(json(&mut export(&served, &out, &[]))["resumed_at_bytes"], 0);
    File::options()
        .write(true)
        .open(&source)
        .and_then(|file| file.write_all_at(&pattern(5, 100_000), MIB))
        .expect("data");
    assert!(begins_with(&out, &source));
    served.check();
}
