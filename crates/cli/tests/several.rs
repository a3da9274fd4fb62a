//! Several volumes on one server: each client gets the one it names, and what happens to one of them.

mod common;

use bimetal_nbd::{Command, Request};
use common::{Client, Served, bimetal, pattern, start_many, succeed, terminate, text};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

/// Volumes in one directory, one server.
struct House {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl House {
    fn new(names: &[&str]) -> House {
        let dir = tempfile::tempdir().expect("temporary directory");
        for (place, name) in names.iter().enumerate() {
            let at = |kind: &str| dir.path().join(format!("{name}-{kind}.img")).display().to_string();
            let mut command = bimetal(dir.path());
            command.arg("create").arg(dir.path().join(format!("{name}.toml")));
            command.arg("--fast").arg(format!("{}?size=64M", at("fast")));
            command.arg("--slow").arg(format!("{}?size={}M", at("slow"), 256 + 64 * place));
            succeed(command.args(["--landing", "8M"]));
        }
        House { dir, child: None }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.toml"))
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("nbd.sock")
    }

    fn command(&self, names: &[&str]) -> std::process::Command {
        let mut command = bimetal(self.dir.path());
        command.arg("serve").args(names.iter().map(|name| self.file(name)));
        command.arg("--nbd").arg(format!("unix:{}", self.socket().display()));
        command
    }

    fn start(&mut self, names: &[&str]) -> Vec<String> {
        let (child, uris) = start_many(self.command(names), names.len());
        self.child = Some(child);
        uris
    }

    fn stop(&mut self) {
        let status = terminate(&mut self.child.take().expect("serving"));
        assert!(status.success(), "{status}");
    }

    fn connect(&self, name: &str) -> Client {
        Client::to(&self.socket(), name)
    }

    fn check(&self, name: &str) {
        let output = succeed(bimetal(self.dir.path()).arg("check").arg(self.file(name)).arg("--json"));
        assert!(text(&output.stdout).contains("\"clean\": true"), "{}", text(&output.stdout));
    }

    fn clients(&self, name: &str) -> u64 {
        let output = succeed(bimetal(self.dir.path()).arg("status").arg(self.file(name)).arg("--json"));
        let doc: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        doc["clients"].as_u64().expect("a number")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn each_client_gets_the_volume_it_names() {
    let mut house = House::new(&["a", "b", "c"]);
    let uris = house.start(&["a", "b", "c"]);
    for (uri, name) in uris.iter().zip(["a", "b", "c"]) {
        assert!(uri.starts_with(&format!("nbd+unix:///{name}?socket=")), "{uri}");
    }
    let sizes = ["a", "b", "c", ""].map(|name| house.connect(name).size_bytes);
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2] && sizes[3] == sizes[0], "{sizes:?}");
    for round in 0..2 {
        for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
            let mut client = house.connect(name);
            client.write(round << 20, &pattern(10 * round + place as u64, 200_000));
            client.flush();
        }
        // What was flushed outlives the process, in each of them.
        let mut child = house.child.take().expect("serving");
        child.kill().expect("kill");
        child.wait().expect("wait");
        house.start(&["c", "b", "a"]);
        for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
            let mut client = house.connect(name);
            for earlier in 0..=round {
                let data = client.read(earlier << 20, 200_000);
                assert!(data == pattern(10 * earlier + place as u64, 200_000), "{name} {earlier}");
            }
        }
    }
    house.stop();
    ["a", "b", "c"].iter().for_each(|name| house.check(name));
}

/// The first request may come with the choice of the export, before the client has seen the answer to it.
#[test]
fn what_a_client_sends_behind_its_choice_goes_with_it() {
    let mut house = House::new(&["a", "b"]);
    house.start(&["a", "b"]);
    house.connect("b").write(0, &pattern(5, 4096));
    for _ in 0..50 {
        let mut stream = UnixStream::connect(house.socket()).expect("connect");
        let mut all = vec![0, 0, 0, 3];
        // EXPORT_NAME, which is answered with nothing but size and flags.
        all.extend_from_slice(b"IHAVEOPT\0\0\0\x01\0\0\0\x01b");
        for cookie in 0..20 {
            all.extend_from_slice(&bimetal_nbd::encode_request(&Request::new(
                cookie,
                Command::Read,
                0,
                4096,
            )));
        }
        stream.write_all(&all).expect("send");
        let mut greeting = [0; 18 + 10];
        stream.read_exact(&mut greeting).expect("greeting");
        for _ in 0..20 {
            let mut reply = vec![0; 16 + 4096];
            stream.read_exact(&mut reply).expect("reply");
            assert!(reply[16..] == pattern(5, 4096));
        }
    }
    house.stop();
    house.check("b");
}

#[test]
fn places_are_shared_by_all_volumes() {
    let mut house = House::new(&["a", "b"]);
    house.start(&["a", "b"]);
    let mut crowd: Vec<Client> = (0..64).map(|n| house.connect(["a", "b"][n % 2])).collect();
    let settled = Instant::now();
    while (house.clients("a"), house.clients("b")) != (32, 32) {
        assert!(settled.elapsed() < Duration::from_secs(20), "{} {}", house.clients("a"), house.clients("b"));
        std::thread::sleep(Duration::from_millis(5));
    }
    // One more waits until somebody goes, from whichever volume.
    for name in ["b", "a"] {
        let mut waiting = UnixStream::connect(house.socket()).expect("connect");
        waiting.set_read_timeout(Some(Duration::from_millis(300))).expect("timeout");
        let mut byte = [0];
        waiting.read_exact(&mut byte).expect_err("there is no place");
        let leaving = crowd.iter().rposition(|_| true).expect("somebody");
        drop(crowd.remove(if name == "b" { leaving } else { 0 }));
        waiting.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
        waiting.read_exact(&mut byte).expect("the greeting");
        drop(waiting);
        crowd.push(house.connect(name));
    }
    house.stop();
    house.check("a");
}

#[test]
fn one_that_does_not_open_keeps_all_closed() {
    let mut house = House::new(&["a", "b"]);
    for broken in ["a", "b"] {
        let image = house.dir.path().join(format!("{broken}-fast.img"));
        let whole = std::fs::read(&image).expect("read");
        let mut damaged = whole.clone();
        damaged[..4096].fill(0xaa);
        let last = damaged.len() - 4096;
        damaged[last..].fill(0xaa);
        std::fs::write(&image, &damaged).expect("damage");
        let output = house.command(&["a", "b"]).output().expect("run");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{broken}-fast.img")), "{said}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        std::fs::write(&image, &whole).expect("mend");
        // The other one was closed as it should be.
        ["a", "b"].iter().for_each(|name| house.check(name));
    }
    let output = house.command(&["a", "a"]).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("same name"), "{}", text(&output.stderr));
    house.start(&["a", "b"]);
    house.stop();
}

/// A thread that opened its volume and did not yet block SIGTERM when the first one said "ready" was where the kernel
/// delivered it: the process died of the signal, and every volume had to recover.
#[test]
fn once_ready_no_thread_dies_of_a_stop_signal() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut house = House::new(&names);
    for _ in 0..5 {
        house.start(&names);
        let pid = house.child.as_ref().expect("serving").id();
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads") {
            let status =
                std::fs::read_to_string(task.expect("thread").path().join("status")).expect("status");
            let blocked =
                status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask").trim();
            let blocked = u64::from_str_radix(blocked, 16).expect("hexadecimal");
            // SIGINT is 2 and SIGTERM 15; the lowest bit is signal 1.
            assert!(blocked & (1 << 1) != 0 && blocked & (1 << 14) != 0, "{status}");
        }
        house.stop();
    }
}

/// A volume served with others is as one served alone.
#[test]
fn a_volume_moves_between_servers() {
    let mut served = Served::new();
    served.connect().write(0, &pattern(1, 9000));
    served.stop();
    let mut house = House::new(&["z"]);
    let mut command = house.command(&["z"]);
    command.arg(served.file());
    let (child, uris) = start_many(command, 2);
    house.child = Some(child);
    assert!(uris[1].starts_with("nbd+unix:///v?socket="), "{uris:?}");
    assert!(house.connect("v").read(0, 9000) == pattern(1, 9000));
    house.stop();
    served.start();
    let mut client = Client::connect(&served.socket());
    assert!(client.read(0, 9000) == pattern(1, 9000));
    drop(client);
    served.stop();
    served.check();
}

/// The service manager hears of all volumes from one of them, and of life only while each goes round.
#[test]
fn the_watchdog_watches_every_volume() {
    let mut house = House::new(&["a", "b"]);
    let path = house.dir.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).expect("bind");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let hear = |words: &str| loop {
        let mut bytes = [0; 4096];
        let count = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("no {words}: {error}"));
        if text(&bytes[..count]).contains(words) {
            break text(&bytes[..count]);
        }
    };
    let mut command = house.command(&["a", "b"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    house.child = Some(start_many(command, 2).0);
    assert!(hear("READY=1").contains("STATUS=serving a, b"));
    for _ in 0..5 {
        hear("WATCHDOG=1");
    }
    house.connect("b").write(0, &pattern(1, 4096));
    hear("WATCHDOG=1");
    house.stop();
    hear("STOPPING=1");
}
