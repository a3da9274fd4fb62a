//! What the lab itself costs: I/Os a second on a target that does nothing, and on a server that does nothing.

#[path = "../tests/common/server.rs"]
mod server;

use bimetal_lab::job::{Job, Ops};
use bimetal_lab::load::{self, Going, LoadTarget};
use bimetal_lab::target::{Nbd, NbdAddress, Null};
use server::serve;
use std::os::unix::net::UnixListener;

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
            std::thread::spawn(move || serve(socket, SIZE_BYTES, |_| None));
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
