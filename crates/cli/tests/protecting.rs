//! The fast device of a protected volume dies under a server that is killed: what is served then is the volume of one moment.

mod common;

use common::{Served, bimetal, create, serve, start, succeed, text};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// Blocks that are written one after the other, round and round.
const PLACES: u64 = 800;
const SECONDS: u64 = 2;

fn protected(options: &[&str]) -> Served {
    let dir = tempfile::tempdir().expect("temporary directory");
    let devices = [(dir.path().join("fast.img"), "64M"), (dir.path().join("slow.img"), "512M")];
    let mut all = vec!["--landing", "8M", "--chunk", "64K", "--protect", "2s"];
    all.extend(options);
    create(dir.path(), devices, &all);
    let mut served = Served { dir, child: None };
    served.start();
    served
}

fn status(served: &Served) -> Value {
    let output = succeed(bimetal(served.dir.path()).arg("status").arg(served.file()).arg("--json"));
    serde_json::from_slice(&output.stdout).expect("a document")
}

fn now_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// Waits until there is an image of a moment that is not before this one.
fn until_image(served: &Served, from_unix_s: u64) -> Value {
    let start = Instant::now();
    loop {
        let doc = status(served)["protection"].clone();
        let is_newer = doc["image_unix_s"].as_u64() >= Some(from_unix_s);
        // Where nothing changes any more, there is no newer one.
        let is_current = doc["exposed_seconds"] == 0 && now_s() >= from_unix_s + 2;
        if doc["state"] == "image" && (is_newer || is_current) {
            return doc;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{doc}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn block(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// Where the version with this number stands: all over the volume, and partly in the same chunks.
fn place(version: u64) -> u64 {
    version % PLACES * 7 * BLOCK
}

/// Writes so many versions more, flushed now and then. Large writes between them go elsewhere.
fn write(served: &Served, from: u64, count: u64) -> u64 {
    let mut client = served.connect();
    for version in from..from + count {
        client.write(place(version), &block(version));
        if version % 7 == 0 {
            let at = (100 << 20) + version * 37 % 600 * 65536;
            client.write(at, &block(version).repeat(16));
        }
        if version % 10 == 0 {
            client.flush();
        }
    }
    from + count
}

/// The device is gone: nothing finds it where it is now.
fn lose(served: &Served, device: &str, away: &Path) {
    std::fs::rename(served.dir.path().join(device), away.join(device)).expect("it is moved away");
}

/// Serves the image, and gives the newest version in it: all before that are there, and none behind it.
fn newest_of_image(served: &mut Served, next: u64) -> u64 {
    served.start_with(&["--degraded"]);
    newest_version(served, next)
}

/// The newest version in what is served: all before that are there, and none behind it.
fn newest_version(served: &Served, next: u64) -> u64 {
    let mut client = served.connect();
    let held: Vec<u64> = (0..PLACES.min(next))
        .map(|at| {
            let bytes = client.read(at * 7 * BLOCK, BLOCK as usize);
            let version = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            assert_eq!(bytes, block(version), "place {at}");
            version
        })
        .collect();
    let newest = held.iter().copied().max().unwrap_or(0);
    for (at, version) in held.iter().enumerate() {
        let rounds = (newest + PLACES - at as u64) / PLACES;
        let expected = (rounds * PLACES + at as u64).saturating_sub(PLACES);
        assert_eq!(*version, expected, "place {at} of an image whose newest is {newest}");
    }
    newest
}

#[test]
fn what_is_served_without_the_fast_device_is_the_volume_of_one_moment() {
    let mut served = protected(&[]);
    let away = tempfile::tempdir().expect("temporary directory");
    let mut next = write(&served, 0, 3000);
    until_image(&served, now_s());
    let at_least = next;
    // Restarted, and killed, in between: the image goes on.
    served.stop();
    served.start();
    next = write(&served, next, 1500);
    served.kill();
    served.start();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3 * SECONDS) {
        next = write(&served, next, 500);
    }
    // Under such a load the image may have been given up for a new one just now.
    until_image(&served, now_s() - SECONDS);
    next = write(&served, next, 200);
    served.kill();
    lose(&served, "fast.img", away.path());
    let newest = newest_of_image(&mut served, next);
    assert!(newest + 1 >= at_least && newest < next, "{newest} of {next}, at least {at_least}");
    let doc = status(&served);
    assert_eq!((&doc["state"], &doc["loss"]["missing"]), (&"degraded".into(), &"fast".into()));
    assert_eq!(doc["loss"]["lost_bytes"], 0);
    assert!(doc["loss"]["as_of_unix_s"].as_u64().is_some_and(|as_of| as_of + 60 > now_s()));
    let output = succeed(bimetal(served.dir.path()).arg("lost").arg(served.file()).arg("--json"));
    let lost: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!((&lost["missing"], &lost["lost"]), (&"fast".into(), &Value::Array(Vec::new())));
    served.stop();
    // Nothing was written: with both it is what it was.
    std::fs::rename(away.path().join("fast.img"), served.dir.path().join("fast.img")).expect("moved");
    served.check();
}

fn replace(served: &Served, words: &[&str]) -> std::process::Output {
    let mut command = bimetal(served.dir.path());
    command
        .current_dir(served.dir.path())
        .arg("replace")
        .arg(served.file())
        .args(words)
        .output()
        .expect("run")
}

#[test]
fn a_volume_goes_on_without_its_fast_device_and_gets_another_one() {
    let mut served = protected(&[]);
    let away = tempfile::tempdir().expect("temporary directory");
    let refused = |served: &Served, why: &str| {
        let output = serve(served.dir.path()).args(["--degraded", "--writable"]).output().expect("run");
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{output:?}");
    };
    let mut next = write(&served, 0, 3000);
    until_image(&served, now_s());
    next = write(&served, next, 300);
    served.kill();
    refused(&served, "both devices");
    lose(&served, "fast.img", away.path());
    let newest = newest_of_image(&mut served, next);
    served.stop();
    // Nobody can give away what is left by mistake.
    let mut command = bimetal(served.dir.path());
    let output = command.arg("protect").arg(served.file()).arg("off").output().expect("run");
    assert!(!output.status.success() && text(&output.stderr).contains("missing"), "{output:?}");
    // What is newer than the image is gone for good; all that is written now is kept.
    served.start_with(&["--degraded", "--writable"]);
    assert_eq!(newest_version(&served, next), newest);
    assert_eq!(status(&served)["protection"]["state"], "stand-in");
    next = write(&served, newest + 1, 1500);
    served.connect().flush();
    served.kill();
    // The old fast device is back, and is not the volume's any more.
    std::fs::rename(away.path().join("fast.img"), served.dir.path().join("fast.img")).expect("moved");
    served.start();
    assert!(newest_version(&served, next) >= next - 10);
    served.stop();
    served.check();
    assert!(text(&replace(&served, &["--slow", "other.img?size=512M"]).stderr).contains("as well"));
    served.start();
    next = write(&served, newest_version(&served, next) + 1, 100);
    let output = replace(&served, &["--fast", "new.img?size=64M"]);
    assert!(output.status.success(), "{output:?}");
    next = write(&served, next, 100);
    // Whole again, and protected.
    until_image(&served, now_s() + 1);
    next = write(&served, next, 300);
    served.kill();
    lose(&served, "new.img", away.path());
    let newest = newest_of_image(&mut served, next);
    assert!(newest + 302 >= next, "{newest} of {next}");
    served.stop();
    std::fs::rename(away.path().join("new.img"), served.dir.path().join("new.img")).expect("moved");
    served.check();
}

#[test]
fn a_fast_device_that_is_gone_is_replaced_while_nobody_serves_the_volume() {
    let mut served = protected(&[]);
    let away = tempfile::tempdir().expect("temporary directory");
    let next = write(&served, 0, 2000);
    until_image(&served, now_s() + 1);
    served.kill();
    lose(&served, "fast.img", away.path());
    let output = replace(&served, &["--fast", "new.img?size=60M"]);
    assert!(text(&output.stderr).contains("at least as large"), "{output:?}");
    // Nothing has changed by that: with the old one it is as it was.
    std::fs::rename(away.path().join("fast.img"), served.dir.path().join("fast.img")).expect("moved");
    served.start();
    served.kill();
    lose(&served, "fast.img", away.path());
    let output = replace(&served, &["--fast", "new.img?size=64M", "--force"]);
    assert!(output.status.success(), "{output:?}");
    served.start();
    let newest = newest_version(&served, next);
    assert!(newest + 10 >= next, "{newest} of {next}");
    until_image(&served, 0);
    served.stop();
    served.check();
}

#[test]
fn without_an_image_it_does_not_go_on() {
    let mut served = Served::new();
    served.stop();
    std::fs::remove_file(served.dir.path().join("fast.img")).expect("removed");
    let output = serve(served.dir.path()).args(["--degraded", "--writable"]).output().expect("run");
    assert!(!output.status.success() && text(&output.stderr).contains("not protected"), "{output:?}");
}

#[test]
fn an_image_of_the_end_is_there_when_a_volume_was_closed() {
    let mut served = protected(&["--protect-strictly"]);
    let away = tempfile::tempdir().expect("temporary directory");
    until_image(&served, 0);
    let next = write(&served, 0, 2000);
    served.stop();
    lose(&served, "fast.img", away.path());
    assert_eq!(newest_of_image(&mut served, next), next - 1);
    served.stop();
}

#[test]
fn an_image_that_is_not_true_any_more_is_not_served() {
    let mut served = protected(&[]);
    let away = tempfile::tempdir().expect("temporary directory");
    until_image(&served, 0);
    served.stop();
    // Opened without protection, as an older program would.
    let file = std::fs::read_to_string(served.file()).expect("a volume file");
    std::fs::write(served.file(), file.replace("protect = \"2s\"\n", "")).expect("write");
    served.start();
    write(&served, 0, 100);
    served.stop();
    std::fs::write(served.file(), file).expect("write");
    lose(&served, "fast.img", away.path());
    let mut command = serve(served.dir.path());
    let output = command.arg("--degraded").output().expect("run");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("opened without protection"), "{said}");
}

/// The image knows nothing of what was written to the fast device alone: it is made anew.
#[test]
fn what_was_written_without_the_slow_device_is_in_the_image_that_comes_after() {
    let mut served = protected(&[]);
    let away = tempfile::tempdir().expect("temporary directory");
    let mut next = write(&served, 0, 1500);
    until_image(&served, now_s());
    served.stop();
    lose(&served, "slow.img", away.path());
    served.start_with(&["--degraded", "--writable"]);
    next = write(&served, next, 300);
    served.kill();
    std::fs::rename(away.path().join("slow.img"), served.dir.path().join("slow.img")).expect("moved");
    let back = now_s();
    served.start();
    assert_eq!(newest_version(&served, next) / 10, (next - 1) / 10, "nothing that was flushed is lost");
    until_image(&served, back);
    next = write(&served, newest_version(&served, next) + 1, 100);
    until_image(&served, now_s() + 1);
    served.kill();
    lose(&served, "fast.img", away.path());
    assert_eq!(newest_of_image(&mut served, next), next - 1);
    served.stop();
}

#[test]
fn it_is_begun_and_ended_where_there_is_room() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let devices = [(dir.path().join("fast.img"), "64M"), (dir.path().join("slow.img"), "256M")];
    create(dir.path(), devices, &["--landing", "8M", "--chunk", "64K"]);
    let protect = |words: &[&str]| {
        let mut command = bimetal(dir.path());
        command.arg("protect").arg(dir.path().join("v.toml")).args(words).output().expect("run")
    };
    let output = protect(&["30s"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("no room"), "{output:?}");
    // The devices grow.
    for (device, bytes) in [("fast.img", 65 << 20), ("slow.img", 500 << 20)] {
        let file = std::fs::OpenOptions::new().write(true).open(dir.path().join(device)).expect("a device");
        file.set_len(bytes).expect("it grows");
    }
    assert!(
        text(
            &succeed(&mut {
                let mut command = bimetal(dir.path());
                command.arg("protect").arg(dir.path().join("v.toml")).arg("30s");
                command
            })
            .stdout
        )
        .contains("is protected")
    );
    let mut child = start(serve(dir.path()));
    let output = protect(&["off"]);
    assert!(text(&output.stderr).contains("in use"), "{output:?}");
    assert!(common::terminate(&mut child).success());
    assert!(protect(&["off"]).status.success());
    assert_eq!(protect(&["off"]).status.code(), Some(2));
}

#[test]
fn a_device_that_is_longer_than_the_volume_is_known_by_its_second_superblock() {
    use std::os::unix::fs::FileExt as _;
    for device in ["fast.img", "slow.img"] {
        let mut served = protected(&[]);
        let next = write(&served, 0, 1000);
        until_image(&served, now_s());
        served.stop();
        let file = std::fs::File::options().write(true).open(served.dir.path().join(device)).expect("open");
        file.write_all_at(&block(0), 0).expect("write");
        served.start();
        assert_eq!(newest_version(&served, next), next - 1, "{device}");
        // It is protected as before, and both superblocks are whole again.
        until_image(&served, now_s());
        served.stop();
        served.check();
    }
}
