//! Jobs side by side: each a submitter of its own, in a thread of its own; and what is said of them is as if one loop had
//! done it.

#[path = "common/noted.rs"]
mod noted;
#[path = "common/server.rs"]
mod server;

use bimetal_lab::job::{Content, Job, Ops, Order, Sizes, side};
use bimetal_lab::load::{self, Going, LoadTarget};
use bimetal_lab::record::JobRun;
use bimetal_lab::target::{Files, Nbd, NbdAddress, Null, OpenFile, OpenHow};
use bimetal_models::Command;
use bimetal_nbd::NbdErrno;
use bimetal_units::rng::{Rng, mix};
use noted::Noted;
use server::serve;
use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

fn reads(many: usize, ios: u64) -> Vec<Job> {
    let job = |n: usize| {
        let mut job = Job::new(&format!("reads {n}"), 0..MIB);
        (job.ios, job.time_based, job.seed) = (Some(ios + n as u64), true, n as u64);
        job
    };
    (0..many).map(job).collect()
}

fn names() -> [String; 1] {
    ["target".to_owned()]
}

#[test]
fn each_job_has_a_thread_and_is_told_of_in_its_place() {
    let mut target = Noted::default();
    let ran = load::run(&mut target, &reads(5, 100), &names(), 0, SECOND, &mut |_: &Going| true);
    let ran = ran.expect("they begin");
    let found: Vec<_> = ran.iter().map(|ran| (ran.name.clone(), ran.read.ios)).collect();
    let wanted: Vec<_> = (0..5u64).map(|n| (format!("reads {n}"), 100 + n)).collect();
    assert_eq!(found, wanted);
    let asked = target.asked.lock().expect("nobody panics");
    let threads: BTreeSet<String> = asked.iter().map(|(thread, _)| format!("{thread:?}")).collect();
    assert_eq!((threads.len(), asked.len()), (5, 510));
    let here = std::thread::current().id();
    assert!(asked.iter().all(|(thread, _)| *thread != here));
}

/// Whatever jobs there are, each asks for the same in the same order, in a thread of its own as in one loop.
#[test]
fn jobs_ask_for_the_same_apart_and_in_one_loop() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed, 0);
        let many = rng.range(2, 6);
        let drawn = |n: u64, rng: &mut Rng| {
            let mut job =
                Job::new(&format!("drawn {n}"), n * 64 * MIB..n * 64 * MIB + (1 + rng.below(8)) * MIB);
            job.ops = match rng.below(5) {
                0 => Ops::Discard,
                1 => Ops::DiscardWrite,
                _ => Ops::ReadWrite { read_percent: 25 * rng.below(5) as u32 },
            };
            let random_percent = 50 * rng.below(3) as u32;
            job.order = [Order { random_percent, step_bytes: 0 }; 3];
            if rng.below(3) == 0 {
                job.sizes = std::array::from_fn(|_| Sizes::Split(vec![(4096, 70), (16 * KIB, 30)]));
            }
            (job.depth, job.seed) = (1, mix(seed ^ n));
            job.flush_every_writes = (rng.below(3) == 0).then_some(7);
            job.end_flush = rng.below(2) == 0;
            (job.ios, job.time_based) = (Some(1 + rng.below(600)), true);
            job
        };
        let jobs: Vec<Job> = (0..many).map(|n| drawn(n, &mut rng)).collect();
        let asked = [false, true].map(|is_one| {
            let mut target = Noted { is_one, ..Noted::default() };
            let ran = load::run(&mut target, &jobs, &names(), 0, SECOND, &mut |_: &Going| true);
            let sides = |ran: &JobRun| {
                [&ran.read, &ran.write, &ran.discard, &ran.flush].map(|side| (side.ios, side.bytes))
            };
            let ran: Vec<_> = ran.expect("they begin").iter().map(sides).collect();
            let asked = target.asked.lock().expect("nobody panics");
            // Flushes say nothing of where.
            let moves = |n: u64| {
                let of_it = asked.iter().map(|(_, command)| *command).filter(|command| command.len > 0);
                of_it.filter(|command| command.offset / (64 * MIB) == n).collect::<Vec<Command>>()
            };
            (ran, (0..many).map(moves).collect::<Vec<_>>())
        });
        assert_eq!(asked[0], asked[1], "seed {seed}");
    }
}

#[test]
fn one_job_alone_needs_no_thread() {
    let mut target = Noted { broken: 1, ..Noted::default() };
    let ran = load::run(&mut target, &reads(1, 10), &names(), 0, SECOND, &mut |_: &Going| true);
    assert_eq!(ran.expect("it begins")[0].read.ios, 10);
    let here = std::thread::current().id();
    assert!(target.asked.lock().expect("nobody panics").iter().all(|(thread, _)| *thread == here));
}

#[test]
fn where_one_cannot_begin_none_does() {
    let mut target = Noted { broken: 2, ..Noted::default() };
    let ran = load::run(&mut target, &reads(4, 10), &names(), 0, SECOND, &mut |_: &Going| true);
    assert!(ran.expect_err("it is broken").to_string().starts_with("there is no "));
    assert!(target.asked.lock().expect("nobody panics").is_empty());
}

/// The watch is told the sums of all, and ends all.
#[test]
fn all_end_when_they_are_told_to() {
    let mut jobs = reads(3, 0);
    for job in &mut jobs {
        (job.ios, job.runtime_ns) = (None, Some(3600 * SECOND));
    }
    let mut looks = Vec::new();
    let mut watch = |going: &Going| {
        looks.push((going.at_ns, going.done.clone()));
        looks.len() < 4
    };
    let ran = load::run(&mut Null::default(), &jobs, &names(), 0, SECOND, &mut watch).expect("they begin");
    let (at_ns, done) = looks.last().expect("it was looked at").clone();
    assert_eq!((looks.len() >= 4, done.len()), (true, 3));
    for (ran, done) in ran.iter().zip(done) {
        assert!(done[0].0 > 0 && ran.read.ios >= done[0].0, "{done:?}");
        assert!(ran.elapsed_ns >= at_ns / 2 && ran.elapsed_ns < 60 * SECOND, "{} ns", ran.elapsed_ns);
        assert_eq!(ran.unanswered, 0);
    }
    let ran = load::run(&mut Null::default(), &jobs, &names(), 0, SECOND, &mut |_: &Going| false);
    assert!(ran.expect("they begin").iter().all(|ran| (ran.read.ios, ran.elapsed_ns) == (0, 0)));
}

/// Four write a quarter each and read it again, then each finds what another one has written.
#[test]
fn jobs_share_a_file_and_find_what_others_wrote() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 * MIB)).expect("a file");
    let how = OpenHow { direct: false, write: true };
    let mut files = Files::new(vec![OpenFile::open(&path, how).expect("it opens")]).expect("a ring");
    let job = |n: u64, from: u64, read_percent: u32| {
        let mut job = Job::new(&format!("quarter {n}"), from * MIB..(from + 1) * MIB);
        (job.ops, job.verify, job.depth) = (Ops::ReadWrite { read_percent }, true, 7);
        (job.content, job.seed) = (Content::Fresh, 100 + n);
        job
    };
    let jobs: Vec<Job> = (0..4).map(|n| job(n, n, 0)).collect();
    let ran = load::run(&mut files, &jobs, &names(), 0, SECOND, &mut |_: &Going| true).expect("they begin");
    for ran in &ran {
        assert_eq!((ran.write.ios, ran.read.ios, ran.read.mismatched), (256, 256, 0), "{:?}", ran.errors);
        assert_eq!(ran.target, "target");
    }
    let jobs: Vec<Job> = (0..4).map(|n| job(n, 3 - n, 100)).collect();
    let ran = load::run(&mut files, &jobs, &names(), 0, SECOND, &mut |_: &Going| true).expect("they begin");
    assert!(ran.iter().all(|ran| (ran.read.ios, ran.read.mismatched) == (256, 0)));
    let bytes = std::fs::read(&path).expect("it is there");
    assert!(bytes.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)));
}

fn discards(span: std::ops::Range<u64>, bytes: u64) -> Job {
    let mut job = Job::new("discards", span);
    (job.ops, job.order) = (Ops::Discard, [Order::SEQUENTIAL; 3]);
    job.sizes[side::DISCARD] = Sizes::one(bytes);
    job.align_bytes = [4096; 3];
    job
}

/// They have no payload: neither memory nor any length of 32 bits is in their way.
#[test]
fn long_discards_need_no_memory_and_are_done_whole() {
    let job = Job { depth: 64, ..discards(0..1 << 44, 1 << 40) };
    let ran = load::run(&mut Null::default(), &[job], &names(), 0, SECOND, &mut |_: &Going| true);
    let ran = ran.expect("there is room").remove(0);
    assert_eq!((ran.discard.ios, ran.discard.bytes), (16, 1 << 44));
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(11 * GIB).expect("it is sparse");
    use std::os::unix::fs::FileExt as _;
    // The first and the last block of what is given back, and one in its middle behind 4 GiB; and those beside it.
    let inside = [0, 4 * GIB + 64 * KIB, 5 * GIB - 4096, 5 * GIB, 10 * GIB - 4096];
    let outside = [10 * GIB, 11 * GIB - 4096];
    for at in inside.into_iter().chain(outside) {
        file.write_all_at(&[7; 4096], at).expect("it is written");
    }
    let how = OpenHow { direct: false, write: true };
    let mut files = Files::new(vec![OpenFile::open(&path, how).expect("it opens")]).expect("a ring");
    let job = discards(0..10 * GIB, 5 * GIB);
    let ran = load::run(&mut files, &[job], &names(), 0, SECOND, &mut |_: &Going| true);
    let ran = ran.expect("there is room").remove(0);
    assert_eq!((ran.discard.ios, ran.discard.bytes, ran.errors.len()), (2, 10 * GIB, 0), "{:?}", ran.errors);
    let file = std::fs::File::open(&path).expect("it is there");
    let first = |at: u64| {
        let mut byte = [1];
        file.read_exact_at(&mut byte, at).map(|()| byte[0]).expect("it is read")
    };
    assert_eq!(inside.map(first), [0; 5]);
    assert_eq!(outside.map(first), [7; 2]);
}

/// A request as it came: the connection's number, what was asked, offset and length.
type Came = Arc<Mutex<Vec<(usize, bimetal_nbd::Command, u64, u32)>>>;

/// An NBD server that does nothing and writes down what it is asked; longer discards than so many bytes it refuses.
struct Server {
    _dir: tempfile::TempDir,
    address: NbdAddress,
    came: Came,
}

fn server(size_bytes: u64, most_discarded: u32) -> Server {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("server.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let came = Came::default();
    let noted = came.clone();
    std::thread::spawn(move || {
        for (n, socket) in listener.incoming().flatten().enumerate() {
            let noted = noted.clone();
            std::thread::spawn(move || {
                serve(socket, size_bytes, |request| {
                    let (command, length) = (request.command, request.length);
                    noted.lock().expect("nobody panics").push((n, command, request.offset, length));
                    let too_long = command == bimetal_nbd::Command::Trim && length > most_discarded;
                    too_long.then_some(NbdErrno::Invalid)
                })
            });
        }
    });
    Server { _dir: dir, address: NbdAddress::Unix(path), came }
}

/// What came of discards, one behind the other, and whether one range is covered by it from end to end, once.
fn covered(server: &Server, range: std::ops::Range<u64>) -> Vec<u32> {
    let came = server.came.lock().expect("nobody panics");
    let mut at = range.start;
    let mut lengths = Vec::new();
    for &(_, command, offset, length) in came.iter() {
        assert_eq!((command, offset), (bimetal_nbd::Command::Trim, at), "after {lengths:?}");
        at += u64::from(length);
        lengths.push(length);
    }
    assert_eq!(at, range.end);
    lengths
}

#[test]
fn long_discards_are_sent_to_a_server_whole() {
    for (span, each) in
        [(0..5 * GIB, 5 * GIB), (4096..12 * GIB + 4096, 6 * GIB), (0..4 * GIB, 4 * GIB), (0..GIB, GIB)]
    {
        let server = server(16 * GIB, u32::MAX);
        let mut nbd = Nbd::connect(&server.address, "", 1).expect("it is granted");
        let job = discards(span.clone(), each);
        let ran = load::run(&mut nbd, &[job], &names(), 0, SECOND, &mut |_: &Going| true);
        let ran = ran.expect("there is room").remove(0);
        let all = span.end - span.start;
        assert_eq!((ran.discard.ios, ran.discard.bytes), (all / each, all), "{:?}", ran.errors);
        assert!(covered(&server, span).iter().all(|&length| u64::from(length) <= GIB));
    }
}

/// A server may hold discards to what it takes of payload.
#[test]
fn a_server_that_takes_less_at_once_is_sent_less() {
    let server = server(16 * GIB, 32 << 20);
    let mut nbd = Nbd::connect(&server.address, "", 1).expect("it is granted");
    let job = discards(0..5 * GIB, 5 * GIB);
    let ran = load::run(&mut nbd, &[job], &names(), 0, SECOND, &mut |_: &Going| true);
    let ran = ran.expect("there is room").remove(0);
    assert_eq!((ran.discard.ios, ran.discard.bytes), (1, 5 * GIB), "{:?}", ran.errors);
    // The first was refused.
    let refused = server.came.lock().expect("nobody panics").remove(0);
    assert_eq!((refused.2, u64::from(refused.3)), (0, GIB));
    assert_eq!(covered(&server, 0..5 * GIB), vec![32 << 20; 160]);
}

#[test]
fn each_job_has_its_own_connections() {
    let server = server(GIB, u32::MAX);
    let mut nbd = Nbd::connect(&server.address, "", 2).expect("it is granted");
    assert_eq!(nbd.shared_because(), None);
    let mut jobs = reads(3, 100);
    for (n, job) in jobs.iter_mut().enumerate() {
        let n = n as u64;
        (job.depth, job.span) = (4, n * 64 * MIB..(n + 1) * 64 * MIB);
    }
    let ran = load::run(&mut nbd, &jobs, &names(), 0, SECOND, &mut |_: &Going| true).expect("they begin");
    assert_eq!(ran.iter().map(|ran| ran.read.ios).collect::<Vec<_>>(), [100, 101, 102]);
    let came = server.came.lock().expect("nobody panics");
    let pairs: BTreeSet<(usize, u64)> =
        came.iter().map(|&(n, _, offset, _)| (n, offset / (64 * MIB))).collect();
    let connections: BTreeSet<usize> = pairs.iter().map(|pair| pair.0).collect();
    assert_eq!((pairs.len(), connections.len()), (6, 6), "{pairs:?}");
    // The two that it had before are those of who runs alone.
    assert!(connections.iter().all(|&n| n >= 2));
}
