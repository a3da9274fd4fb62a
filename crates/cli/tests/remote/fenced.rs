//! Two servers of one volume, which no lock keeps apart as each has a fast device of its own: a copy, and its original. The first
//! one notices that somebody opened the volume, and stops before it writes to the export again.

use crate::common::{bimetal, start, succeed, terminate, text};
use crate::{Backend, Volume, folder, has, many, own_backend, seed, uri, wait_for};
use bimetal_nbd::{Command as Nbd, Request, encode_request};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The same volume on another machine: its file, and a copy of its fast device as a crash leaves it. The first server is stopped
/// meanwhile, for so long that it has to look.
fn other_server(volume: &Volume) -> (tempfile::TempDir, Child) {
    let there = folder();
    let first = volume.child.as_ref().expect("serving");
    let first = Pid::from_child(first);
    kill_process(first, Signal::STOP).expect("stopped");
    // What it has handed to the kernel comes to its end.
    std::thread::sleep(Duration::from_millis(2500));
    for name in ["v.toml", "fast.img"] {
        std::fs::copy(volume.dir.path().join(name), there.path().join(name)).expect("a copy");
    }
    let mut command = bimetal(there.path());
    command.arg("serve").arg(there.path().join("v.toml"));
    command.arg("--nbd").arg(format!("unix:{}", there.path().join("nbd.sock").display()));
    let child = start(command);
    kill_process(first, Signal::CONT).expect("going on");
    (there, child)
}

/// Serves a volume and says what its server says.
fn serve_aloud(volume: &mut Volume) -> std::path::PathBuf {
    let log = volume.dir.path().join("said");
    let mut command = crate::common::serve(volume.dir.path());
    command.stderr(Stdio::from(std::fs::File::create(&log).expect("a file")));
    volume.child = Some(start(command));
    log
}

fn is_over(child: &mut Child) -> bool {
    child.try_wait().expect("wait").is_some()
}

/// The first server, in use or at rest, hears of the second one; whatever is at the export afterwards is the second one's.
fn noticed(backend: Backend, dir: tempfile::TempDir, in_use: bool) {
    let mut volume = Volume::create(dir, &uri(&backend.socket), &[]);
    let log = serve_aloud(&mut volume);
    let (mut client, mut stretches) = (volume.client(), many(seed()));
    for _ in 0..900 {
        stretches.write(&mut client);
    }
    stretches.flush(&mut client);
    let (there, mut second) = other_server(&volume);
    let mut first = volume.child.take().expect("serving");
    if !in_use {
        // With the time that it has to itself it may move chunks, or not.
        std::thread::sleep(Duration::from_millis(500));
    }
    let bytes = vec![7; 128 << 10];
    let mut at = 0;
    wait_for(|| {
        // Long writes go to the export itself; the answers do not matter any more.
        let offset = (at % 700) * (128 << 10);
        at += 1;
        let header = encode_request(&Request::new(at, Nbd::Write, offset, bytes.len() as u32));
        let sent = client.stream.write_all(&header).and_then(|()| client.stream.write_all(&bytes));
        let heard = sent.and_then(|()| client.stream.read_exact(&mut [0; 16]));
        heard.is_err() && is_over(&mut first)
    });
    println!("it went on for {at} writes of 128 KiB");
    assert_eq!(first.wait().expect("wait").code(), Some(1), "a problem was found");
    let said = std::fs::read_to_string(log).expect("the log");
    assert!(said.contains("was opened by somebody else"), "{said}");
    if !in_use {
        // The first thing that was asked of the export was to say whose it is.
        let mut client = crate::common::Client::connect(&there.path().join("nbd.sock"));
        stretches.verify(&mut client, "by the second server");
    }
    assert!(terminate(&mut second).success());
    if !in_use {
        let check =
            succeed(bimetal(there.path()).arg("check").arg(there.path().join("v.toml")).arg("--json"));
        assert!(text(&check.stdout).contains("\"clean\": true"), "{}", text(&check.stdout));
    }
    // The first one's fast device is an old copy by now.
    let refused = volume.command("serve").output().expect("run");
    assert!(!refused.status.success(), "{}", text(&refused.stderr));
    println!("{}", text(&refused.stderr));
}

#[test]
fn a_second_server_is_noticed_by_the_first_one_in_use() {
    let dir = folder();
    noticed(own_backend(dir.path()), dir, true);
}

#[test]
fn a_second_server_is_noticed_before_anything_is_written_after_a_rest() {
    let dir = folder();
    noticed(own_backend(dir.path()), dir, false);
}

#[test]
fn a_second_server_is_noticed_on_an_export_of_nbdkit() {
    if !has("nbdkit") {
        return;
    }
    let dir = folder();
    let image = dir.path().join("slow.raw");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let backend = Backend::start(dir.path().join("k.sock"), move |socket| {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(socket).arg("file").arg(&image);
        command
    });
    noticed(backend, dir, false);
}
