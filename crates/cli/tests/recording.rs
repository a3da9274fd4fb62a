//! `bimetal trace record`: what is recorded is what was asked for, and nobody waits for who records.

mod common;

use bimetal_nbd::{Command as Nbd, Request, SIMPLE_REPLY_BYTES, encode_request};
use bimetal_trace::{Marks, Op, Record, Trace};
use common::{Client, Guarded, Served, bimetal, pattern, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// A recorder that has begun.
struct Recorder {
    child: Guarded,
    file: PathBuf,
}

impl Recorder {
    fn start(served: &Served, name: &str, options: &[&str]) -> Recorder {
        let file = served.dir.path().join(name);
        let mut command = bimetal(served.dir.path());
        command.args(["trace", "record"]).arg(served.file()).arg("-o").arg(&file).arg("--json").args(options);
        let child = Guarded(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start"));
        let recorder = Recorder { child, file };
        let start = Instant::now();
        // The file is made when the server has begun to tell.
        while !recorder.file.exists() {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not begin");
            std::thread::sleep(Duration::from_millis(2));
        }
        recorder
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).expect("signal");
    }

    /// Waits for its end: exit code, what it printed, and what is in the file.
    fn end(mut self) -> (i32, Value, Vec<Record>, u64) {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.0.stdout.take().expect("piped").read_to_end(&mut stdout).expect("read");
        self.child.0.stderr.take().expect("piped").read_to_end(&mut stderr).expect("read");
        let status = self.child.0.wait().expect("wait");
        let document = serde_json::from_slice(&stdout).unwrap_or_else(|_| panic!("{}", text(&stderr)));
        let (records, lost) = read(&self.file);
        (status.code().expect("no signal"), document, records, lost)
    }
}

/// All of a trace that is whole, and what was lost.
fn read(file: &PathBuf) -> (Vec<Record>, u64) {
    let mut trace = Trace::open(&[file]).expect("a trace");
    let records = trace.by_ref().map(|found| found.expect("sound")).collect();
    (records, trace.lost())
}

/// Many requests at a time; returns when all are answered.
fn pipelined(client: &mut Client, requests: &[Request]) {
    for some in requests.chunks(64) {
        let heads: Vec<u8> = some.iter().flat_map(encode_request).collect();
        client.stream.write_all(&heads).expect("send");
        let bytes = some.iter().map(|request| SIMPLE_REPLY_BYTES + request.length as usize).sum();
        client.stream.read_exact(&mut vec![0; bytes]).expect("replies");
    }
}

#[test]
fn what_is_recorded_is_what_was_asked_for() {
    let served = Served::new();
    let mut client = served.connect();
    client.write(0, &pattern(1, 4096));
    let recorder = Recorder::start(&served, "a.trace", &[]);
    let mut cookie = 1000;
    let mut call = |command, offset, length: u32, fua, payload: &[u8]| {
        cookie += 1;
        let request = Request { fua, ..Request::new(cookie, command, offset, length) };
        client.send(&request, payload);
        client.reply().result.expect("it is done");
        if command == Nbd::Read {
            client.stream.read_exact(&mut vec![0; length as usize]).expect("data");
        }
    };
    let block = pattern(2, 8192);
    call(Nbd::Write, 4096, 8192, false, &block);
    call(Nbd::Read, 512, 1024, false, &[]);
    call(Nbd::Write, 65_536, 4096, true, &block[..4096]);
    call(Nbd::Flush, 0, 0, false, &[]);
    call(Nbd::Trim, 4096, 4096, false, &[]);
    call(Nbd::WriteZeroes, 1 << 20, 1 << 20, false, &[]);
    call(Nbd::WriteZeroes, 8192, 4096, true, &[]);
    call(Nbd::Trim, 0, 4096, true, &[]);
    recorder.signal(Signal::INT);
    let (code, document, records, lost) = recorder.end();
    assert_eq!((code, lost), (0, 0));
    assert_eq!((&document["ended"], &document["records"]), (&"stopped".into(), &8.into()), "{document}");
    let (plain, fua) = (Marks::default(), Marks { fua: true, zeroes: false });
    let zeroes = Marks { fua: false, zeroes: true };
    let expected = [
        (Op::Write, 4096, 8192, plain),
        (Op::Read, 512, 1024, plain),
        (Op::Write, 65_536, 4096, fua),
        (Op::Flush, 0, 0, plain),
        (Op::Discard, 4096, 4096, plain),
        (Op::Write, 1 << 20, 1 << 20, zeroes),
        (Op::Write, 8192, 4096, Marks { fua: true, zeroes: true }),
        (Op::Discard, 0, 4096, fua),
    ];
    let found: Vec<_> =
        records.iter().map(|record| (record.op, record.offset, record.bytes, record.marks)).collect();
    assert_eq!(found, expected);
    let times: Vec<u64> = records.iter().map(|record| record.time.expect("a time").0).collect();
    assert!(times[0] == 0 && times.is_sorted(), "{times:?}");
    for (record, next) in records.iter().zip(&times[1..]) {
        let response = record.response.expect("answered").0;
        assert!(response > 0 && record.time.expect("a time").0 + response <= *next, "one at a time");
    }
}

#[test]
fn requests_of_several_clients_are_in_the_order_in_which_they_began() {
    const EACH: u64 = 4000;
    let served = Served::new();
    let recorder = Recorder::start(&served, "b.trace", &[]);
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let mut client = served.connect();
            scope.spawn(move || {
                let requests: Vec<Request> = (0..EACH)
                    .map(|at| Request::new(at, Nbd::Read, (number * EACH + at) * 4096, 512 << (at % 4)))
                    .collect();
                pipelined(&mut client, &requests);
            });
        }
    });
    recorder.signal(Signal::TERM);
    let (code, _, records, lost) = recorder.end();
    assert_eq!((code, lost, records.len() as u64), (0, 0, 4 * EACH));
    assert!(records.is_sorted_by_key(|record| record.time.map(|time| time.0)));
    for number in 0..4 {
        // Each client's in the order in which it sent them, and all of them.
        let own = records.iter().filter(|record| record.offset / 4096 / EACH == number);
        let own: Vec<(u64, u64)> = own.map(|record| (record.offset, record.bytes)).collect();
        let sent: Vec<_> = (0..EACH).map(|at| ((number * EACH + at) * 4096, 512 << (at % 4))).collect();
        assert_eq!(own, sent);
    }
    assert!(records.iter().all(|record| record.response.is_some()));
}

#[test]
fn it_ends_when_it_has_enough() {
    let served = Served::new();
    let mut client = served.connect();
    let recorder = Recorder::start(&served, "c.trace", &["--requests", "10"]);
    (0..30).for_each(|at| drop(client.read(at * 4096, 512)));
    let (code, document, records, _) = recorder.end();
    assert_eq!((code, &document["ended"], records.len()), (0, &"limit".into(), 10));
    assert_eq!(records[9].offset, 9 * 4096);
    let recorder = Recorder::start(&served, "d.trace", &["--seconds", "1"]);
    client.read(0, 512);
    let (code, document, records, _) = recorder.end();
    assert_eq!((code, &document["ended"], records.len()), (0, &"limit".into(), 1));
}

#[test]
fn one_records_at_a_time_and_the_next_may_when_it_is_gone() {
    let served = Served::new();
    let mut client = served.connect();
    let refused = |name: &str| {
        let mut command = bimetal(served.dir.path());
        command.args(["trace", "record"]).arg(served.file()).arg("-o").arg(served.dir.path().join(name));
        let Output { status, stderr, .. } = command.output().expect("run");
        assert_eq!(status.code(), Some(2));
        assert!(!served.dir.path().join(name).exists());
        text(&stderr)
    };
    let mut first = Recorder::start(&served, "e.trace", &[]);
    assert!(refused("f.trace").contains("one can at a time"));
    client.read(0, 512);
    first.child.0.kill().expect("kill");
    first.child.0.wait().expect("wait");
    // The server sees that he is gone with the next thing it has to tell, at the latest.
    client.read(512, 512);
    std::thread::sleep(Duration::from_millis(300));
    let second = Recorder::start(&served, "g.trace", &[]);
    client.read(1024, 512);
    second.signal(Signal::INT);
    let (code, _, records, _) = second.end();
    assert_eq!((code, records.len(), records[0].offset), (0, 1, 1024));
}

#[test]
fn it_ends_with_the_server_however_that_ends() {
    let mut served = Served::new();
    for kill in [false, true] {
        let mut client = served.connect();
        let recorder = Recorder::start(&served, if kill { "h.trace" } else { "i.trace" }, &[]);
        (0..100).for_each(|at| drop(client.read(at * 4096, 512)));
        if kill {
            // What waits for company is told within 100 ms.
            std::thread::sleep(Duration::from_millis(500));
            served.kill();
        } else {
            drop(client);
            served.stop();
        }
        let (code, document, records, _) = recorder.end();
        let expected = if kill { (1, "server-gone") } else { (0, "server-stopped") };
        assert_eq!((code, document["ended"].as_str().expect("a word")), expected);
        assert_eq!(records.len(), 100);
        if !kill {
            served.start();
        }
    }
    let mut command = bimetal(served.dir.path());
    command.args(["trace", "record"]).arg(served.file()).args(["-o", "none"]);
    let said = text(&command.output().expect("run").stderr);
    assert!(said.contains("nobody serves it"), "{said}");
}

#[test]
fn a_recorder_that_stands_still_holds_up_nobody_and_what_is_lost_is_counted() {
    const REQUESTS: u64 = 160_000;
    let served = Served::new();
    let mut client = served.connect();
    let recorder = Recorder::start(&served, "j.trace", &[]);
    recorder.signal(Signal::STOP);
    let requests: Vec<Request> =
        (0..REQUESTS).map(|at| Request::new(at, Nbd::Read, at % 1000 * 4096, 512)).collect();
    pipelined(&mut client, &requests);
    recorder.signal(Signal::CONT);
    // He goes on where he was; what comes now has room again.
    std::thread::sleep(Duration::from_millis(500));
    client.read(1 << 20, 512);
    recorder.signal(Signal::INT);
    let (code, document, records, lost) = recorder.end();
    assert_eq!((code, document["lost"].as_u64()), (0, Some(lost)));
    assert!(lost > 0 && records.len() as u64 + lost == REQUESTS + 1, "{} and {lost}", records.len());
    assert_eq!(records.last().map(|record| record.offset), Some(1 << 20));
}
