//! The flight recorder: a device that stands still on a volume that is served is recorded, and the engine does the same again
//! from the file alone.

mod common;

use common::{Client, Guarded, Served, bimetal, create, pattern, serve, start, succeed, terminate, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How long the slow device answers nothing.
const STALL: Duration = Duration::from_secs(20);

/// A volume whose slow device is an export of another one, served with a recorder.
struct Recorded {
    backend: Served,
    dir: tempfile::TempDir,
    server: Guarded,
}

impl Recorded {
    fn start(options: &[&str]) -> Recorded {
        let backend = Served::sized("64M", "512M");
        let dir = tempfile::tempdir().expect("a folder");
        let slow = format!("nbd+unix:///?socket={}", backend.socket().display());
        let fast = format!("{}?size=64M", dir.path().join("fast.img").display());
        let mut command = bimetal(dir.path());
        command.arg("create").arg(dir.path().join("v.toml")).args(["--fast", &fast, "--slow", &slow]);
        succeed(command.args(["--landing", "8M", "--chunk", "64K"]));
        let mut command = serve(dir.path());
        command.args(options);
        let server = Guarded(start(command));
        Recorded { backend, dir, server }
    }

    fn client(&self) -> Client {
        Client::connect(&self.dir.path().join("nbd.sock"))
    }

    fn flight(&self, output: &Path) -> std::process::Output {
        let mut command = bimetal(self.dir.path());
        command.arg("flight").arg(self.dir.path().join("v.toml")).arg(output).arg("--json");
        command.output().expect("run")
    }
}

/// Replays a file where there is no volume: exit code, document, complaint.
fn replay(file: &Path) -> (i32, Value, String) {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let mut command = bimetal(elsewhere.path());
    let output = command.args(["sim", "replay-recording", "--json"]).arg(file).output().expect("run");
    let code = output.status.code().expect("no signal");
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (code, document, text(&output.stderr))
}

#[test]
fn a_slow_device_that_stalls_is_recorded_and_stalls_again_elsewhere() {
    let recorded = Recorded::start(&["--flight-recorder", "64M"]);
    let mut client = recorded.client();
    let part = 1 << 20;
    // A stream goes to the slow device, and the fast one holds what is small.
    for at in 0..96u64 {
        client.write(at * part, &pattern(at, part as usize));
    }
    client.write(200 << 20, b"a fast one");
    client.flush();
    let backend = Pid::from_child(recorded.backend.child.as_ref().expect("serving"));
    kill_process(backend, Signal::STOP).expect("stop");
    let waits = std::thread::spawn(move || {
        for at in 96..100u64 {
            client.write(at * part, &pattern(at, part as usize));
        }
        client.flush();
        for at in 0..100u64 {
            assert!(client.read(at * part, 4096) == pattern(at, part as usize)[..4096], "part {at}");
        }
    });
    std::thread::sleep(STALL);
    kill_process(backend, Signal::CONT).expect("continue");
    waits.join().expect("all is answered");
    let file = recorded.dir.path().join("stall.flight");
    let output = recorded.flight(&file);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = std::fs::read(&file).expect("it is there");
    assert!(!bytes.windows(24).any(|part| part == &pattern(3, 4096)[..24]), "payload is in it");
    let (code, document, complaint) = replay(&file);
    assert_eq!((code, &document["difference"]), (0, &Value::Null), "{complaint}");
    let stall = STALL.as_micros() as u64 / 10 * 9;
    let took = document["slowest_slow"]["took_us"].as_u64().expect("it was used");
    assert!(took >= stall, "{document}");
    assert!(document["longest_request"]["took_us"].as_u64() >= Some(stall), "{document}");
    assert!(document["replies"].as_u64() >= Some(200), "{document}");
    // Nothing of it is the volume's business: it goes on.
    let Recorded { mut server, .. } = recorded;
    assert!(terminate(&mut server.0).success());
}

#[test]
fn who_is_not_recorded_says_so_and_what_is_no_recording_is_refused() {
    let served = Served::new();
    let file = served.dir.path().join("v.flight");
    let mut command = bimetal(served.dir.path());
    let output = command.arg("flight").arg(served.file()).arg(&file).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--flight-recorder"), "{}", text(&output.stderr));
    assert!(!file.exists());
    for (content, why) in [
        (&b"something else"[..], "it is no recording of `bimetal flight`"),
        (&[0; 200], "it is no recording of `bimetal flight`"),
    ] {
        std::fs::write(&file, content).expect("write");
        let (code, document, complaint) = replay(&file);
        assert_eq!((code, document), (2, Value::Null));
        assert!(complaint.contains(why) && complaint.lines().count() == 1, "{complaint}");
    }
    let (code, _, complaint) = replay(served.dir.path());
    assert_eq!(code, 2, "{complaint}");
    let (code, _, complaint) = replay(Path::new("/nowhere/at.all"));
    assert!(code == 2 && complaint.contains("cannot read"), "{complaint}");
}

#[test]
fn with_too_little_memory_a_volume_is_served_and_not_recorded() {
    let dir = tempfile::tempdir().expect("a folder");
    let devices = [(dir.path().join("fast.img"), "64M"), (dir.path().join("slow.img"), "256M")];
    create(dir.path(), devices, &["--landing", "8M"]);
    let mut command = serve(dir.path());
    command.args(["--flight-recorder", "4K"]);
    let mut server = Guarded(start(command));
    Client::connect(&dir.path().join("nbd.sock")).write(0, b"served");
    let mut command = bimetal(dir.path());
    command.arg("flight").arg(dir.path().join("v.toml")).arg(dir.path().join("x"));
    assert_eq!(command.output().expect("run").status.code(), Some(2));
    assert!(terminate(&mut server.0).success());
}
