//! What the lab itself costs: I/Os a second on a target that does nothing, and on a server that does nothing.

use bimetal_lab::job::{Job, Ops};
use bimetal_lab::load::{self, Going, LoadTarget};
use bimetal_lab::target::{Nbd, NbdAddress, Null};
use bimetal_nbd::{Command, Export, Exports, Handshake, HandshakeStep, Parse, Transmission, simple_reply};
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

const SIZE_BYTES: u64 = 1 << 40;
const SECONDS: u64 = 3;

fn main() {
    for (name, depth, read_percent) in [("reads", 1, 100), ("reads", 32, 100), ("writes", 32, 0)] {
        measure(&mut Null::default(), "nothing", name, depth, read_percent);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("null.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || serve(socket));
        }
    });
    for (name, read_percent) in [("reads", 100), ("writes", 0)] {
        for connections in [1, 2] {
            let address = NbdAddress::Unix(path.clone());
            let mut nbd = Nbd::connect(&address, "", connections).expect("it is granted");
            measure(&mut nbd, &format!("NBD, {connections} connections"), name, 32, read_percent);
        }
    }
}

fn measure<T: LoadTarget>(target: &mut T, what: &str, name: &str, depth: u32, read_percent: u32) {
    let mut job = Job::new(name, 0..SIZE_BYTES);
    (job.depth, job.ops) = (depth, Ops::ReadWrite { read_percent });
    (job.runtime_ns, job.time_based) = (Some(SECONDS * 1_000_000_000), true);
    let names = ["target".to_owned()];
    let before = ticks();
    let ran = load::run(target, &[job], &names, 0, 1_000_000_000, &mut |_: &Going| true);
    for ran in ran.expect("there is room") {
        let ios = (ran.read.ios + ran.write.ios) as f64;
        let million = ios * 1e3 / ran.elapsed_ns as f64;
        let busy = (ticks() - before) as f64 * 1e7 / ios;
        println!(
            "{what}, {name} of 4 KiB at depth {depth}: {million:.2} million a second, {busy:.0} ns of this thread"
        );
    }
}

/// What this thread has needed of a processor, hundredths of a second (proc(5), /proc/self/stat, 14 and 15).
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|&n| fields.get(n)?.parse::<u64>().ok()).sum()
}

/// Answers whatever is asked, as fast as it can be said.
fn serve(mut socket: UnixStream) {
    let export = Export {
        name: "null".to_owned(),
        description: String::new(),
        size_bytes: SIZE_BYTES,
        read_only: false,
    };
    let exports = Arc::new(Exports::new(vec![export]).expect("one export"));
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::new(exports, &mut out);
    let mut more = vec![0; 256 << 10];
    loop {
        if socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
        let Ok(read @ 1..) = socket.read(&mut more) else { return };
        input.extend_from_slice(&more[..read]);
        let Ok((used, step)) = handshake.on_bytes(&input, &mut out) else { return };
        input.drain(..used);
        if let HandshakeStep::Transmission { .. } = step {
            break;
        }
    }
    let mut requests = Transmission::new();
    let (mut at, zeros) = (0, [0; 4096]);
    loop {
        while let Ok(Parse::Request { consumed, request }) = requests.next(&input[at..]) {
            let payload = request.payload_bytes() as usize;
            if input.len() - at < consumed + payload {
                break;
            }
            at += consumed + payload;
            out.extend_from_slice(&simple_reply(request.cookie, None));
            if request.command == Command::Read {
                (0..request.length / 4096).for_each(|_| out.extend_from_slice(&zeros));
            }
        }
        input.drain(..at);
        at = 0;
        if socket.write_all(&out).is_err() {
            return;
        }
        out.clear();
        let Ok(read @ 1..) = socket.read(&mut more) else { return };
        input.extend_from_slice(&more[..read]);
    }
}
