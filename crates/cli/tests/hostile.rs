//! Clients that mean harm, against a real server: whatever they send, or do not send, a good client is served
//! throughout, memory and file descriptors stay bounded, and the server ends cleanly when it is told to.

mod common;

use bimetal_nbd::{Command, NbdErrno, Request, encode_request};
use common::{Client, Served, pattern};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// What the server may hold when it is used to the full: buffers of 128 MiB, 64 connections of 384 KiB, tables.
const MOST_KIB: u64 = 256 << 10;
/// What a repetition of the same hostility may add.
const MORE_KIB: u64 = 16 << 10;

fn pid(served: &Served) -> u32 {
    served.child.as_ref().expect("serving").id()
}

/// Resident memory of the server, KiB.
fn resident_kib(served: &Served) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid(served))).expect("status");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("resident memory");
    line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
}

fn descriptors(served: &Served) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", pid(served))).expect("descriptors").count()
}

fn raw(served: &Served) -> UnixStream {
    let stream = UnixStream::connect(served.socket()).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("timeout");
    stream.set_write_timeout(Some(Duration::from_secs(30))).expect("timeout");
    stream
}

/// A client that wants nothing but to be served, on a range of its own.
struct Good {
    client: Client,
    round: u64,
    slowest: Duration,
}

impl Good {
    const AT: u64 = 100 * MIB;

    fn new(served: &Served) -> Good {
        Good { client: served.connect(), round: 0, slowest: Duration::ZERO }
    }

    /// Writes, flushes, and reads this and what it wrote before.
    fn goes_on(&mut self) {
        let start = Instant::now();
        let at = |round: u64| Good::AT + round % 64 * 65536;
        self.client.write(at(self.round), &pattern(self.round, 9000));
        self.client.flush();
        for round in [self.round, self.round.saturating_sub(1)] {
            assert!(self.client.read(at(round), 9000) == pattern(round, 9000), "round {round}");
        }
        self.round += 1;
        self.slowest = self.slowest.max(start.elapsed());
    }

    /// It was served to the end, and the server ends as it should.
    fn ends(mut self, mut served: Served) {
        self.goes_on();
        println!("{} rounds, the slowest {:?}", self.round, self.slowest);
        assert!(self.slowest < Duration::from_secs(10), "a round took {:?}", self.slowest);
        served.stop();
        served.check();
    }
}

/// Sends until nothing more is taken for a while; gives the bytes that were.
fn flood(stream: &mut UnixStream, bytes: &[u8], most: usize) -> usize {
    stream.set_nonblocking(true).expect("nonblocking");
    let (mut sent, mut refusals) = (0, 0);
    while sent < most && refusals < 20 {
        match stream.write(bytes) {
            Ok(count) => (sent, refusals) = (sent + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => break,
        }
    }
    sent
}

/// Reads to the end of the stream; the server must hang up.
fn hung_up(stream: &mut UnixStream, why: &str) {
    let mut piece = [0; 65536];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{why}: the server does not hang up: {error}"),
        }
    }
}

#[test]
fn half_a_request_and_silence_holds_up_nobody() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let header = encode_request(&Request::new(1, Command::Write, 0, 1 << 20));
    let mut silent = Vec::new();
    for part in [1, 4, 27, 28, 29, 28 + 4096, 28 + 70_000, 28 + (1 << 20) - 1] {
        let mut client = served.connect();
        let whole = [&header[..], &pattern(1, 1 << 20)].concat();
        client.stream.write_all(&whole[..part]).expect("send");
        silent.push(client);
        good.goes_on();
    }
    // The largest write there is, begun and never ended.
    let mut client = served.connect();
    client.send(&Request::new(1, Command::Write, 0, 32 << 20), &pattern(1, 5000));
    silent.push(client);
    for _ in 0..20 {
        good.goes_on();
    }
    drop(silent);
    assert_eq!(good.client.read(0, 4096), [0; 4096], "what never came whole is not written");
    good.ends(served);
}

#[test]
fn requests_without_end_whose_replies_nobody_reads_take_bounded_memory() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let tiny = |command: Command, length: u32| -> Vec<u8> {
        (0..512).flat_map(|cookie| encode_request(&Request::new(cookie, command, 0, length))).collect()
    };
    let small_write = [&encode_request(&Request::new(1, Command::Write, MIB, 1))[..], &[9]].concat();
    let kinds = [
        tiny(Command::Read, 1),
        tiny(Command::Read, 1 << 20),
        tiny(Command::Flush, 0),
        tiny(Command::Trim, 4096),
        tiny(Command::Cache, 65536),
        tiny(Command::WriteZeroes, 1),
        tiny(Command::Unknown(77), 0),
        small_write.repeat(512),
    ];
    let round = |good: &mut Good, most: usize| {
        let mut floods = Vec::new();
        for bytes in kinds.iter().chain(&kinds) {
            let mut client = served.connect();
            flood(&mut client.stream, bytes, most);
            floods.push(client);
            good.goes_on();
        }
        let held = resident_kib(&served);
        drop(floods);
        held
    };
    let first = round(&mut good, 4 << 20);
    let later = (0..2).map(|_| round(&mut good, 32 << 20)).max().expect("rounds");
    println!("{first} KiB, later {later} KiB");
    assert!(first.max(later) < MOST_KIB, "the server holds {first}, then {later} KiB");
    assert!(later < first + MORE_KIB, "from {first} to {later} KiB");
    good.ends(served);
}

#[test]
fn a_payload_that_breaks_off_leaves_old_or_new_by_sector() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let mut witness = served.connect();
    let old = pattern(1, 4 << 20);
    witness.write(8 * MIB, &old);
    witness.flush();
    for (seed, length, sent) in [
        (2, 4096, 100),
        (3, 4096, 4095),
        (4, 65536, 40_000),
        (5, 65537, 65536),
        (6, 1 << 20, 600_000),
        (7, 1 << 20, (1 << 20) - 1),
        (8, 4 << 20, 3 << 20),
    ] {
        let new = pattern(seed, length);
        let mut client = served.connect();
        client.send(&Request::new(1, Command::Write, 9 * MIB, length as u32), &new[..sent]);
        drop(client);
        good.goes_on();
        let length = length.min(3 << 20);
        let now = witness.read(9 * MIB, length);
        for (at, sector) in now.chunks(512).enumerate().map(|(i, s)| (i * 512, s)) {
            let (was, wanted) = (&old[(1 << 20) + at..][..sector.len()], &new[at..][..sector.len()]);
            assert!(sector == was || sector == wanted, "length {length}, byte {at}");
        }
        assert!(witness.read(8 * MIB, 1 << 20) == old[..1 << 20], "the blocks before it");
    }
    good.ends(served);
}

#[test]
fn wishes_beyond_measure_are_refused() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let before = resident_kib(&served);
    let size = good.client.size_bytes;
    let mut client = served.connect();
    for length in [u32::MAX, u32::MAX - 511, 1 << 31] {
        for command in [Command::Read, Command::Trim, Command::WriteZeroes, Command::Cache] {
            for offset in [0, 1, size - 1, size, u64::MAX - 1, u64::MAX, 1 << 63] {
                let reply = client.call(command, offset, length, &[]);
                let refused = [Err(NbdErrno::Invalid), Err(NbdErrno::NoSpace)].contains(&reply.result);
                assert!(refused, "{command:?} of {length} at {offset}: {:?}", reply.result);
            }
        }
    }
    for offset in [size, u64::MAX, u64::MAX - 4095] {
        for command in [Command::Read, Command::Trim, Command::WriteZeroes] {
            client.call(command, offset, 4096, &[]).result.expect_err("it lies outside");
        }
        client.call(Command::Write, offset, 4096, &[1; 4096]).result.expect_err("it lies outside");
    }
    good.goes_on();
    for length in [u32::MAX, (32 << 20) + 1] {
        let mut client = served.connect();
        client.send(&Request::new(1, Command::Write, 0, length), &[]);
        hung_up(&mut client.stream, "a payload beyond every limit");
    }
    assert!(resident_kib(&served) < before + MORE_KIB, "wishes take memory");
    good.ends(served);
}

#[test]
fn nonsense_at_any_point_ends_in_a_closed_connection() {
    let served = Served::new();
    let mut good = Good::new(&served);
    println!("seeds 1 to 60");
    for seed in 1..=60 {
        // Instead of client flags, of an option, of a request.
        let mut stream = raw(&served);
        let _ = stream.write_all(&pattern(seed, 2000));
        let _ = stream.shutdown(std::net::Shutdown::Write);
        hung_up(&mut stream, "garbage instead of flags");
        let mut stream = raw(&served);
        let _ = stream.write_all(&[&[0, 0, 0, 3], &pattern(seed, 2000)[..]].concat());
        hung_up(&mut stream, "garbage instead of an option");
        let mut client = served.connect();
        let _ = client.stream.write_all(&pattern(seed, 2000));
        hung_up(&mut client.stream, "garbage instead of a request");
        // Behind a good request, the wrong magic number: the good one may be answered.
        let mut client = served.connect();
        let mut bytes = encode_request(&Request::new(1, Command::Read, 0, 512)).to_vec();
        bytes.extend(encode_request(&Request::new(2, Command::Read, 0, 512)));
        bytes[28 + (seed % 4) as usize] ^= 1 << (seed % 8);
        client.stream.write_all(&bytes).expect("send");
        hung_up(&mut client.stream, "a wrong magic number");
        good.goes_on();
    }
    good.ends(served);
}

#[test]
fn thousands_come_and_go_and_leave_nothing() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let come_and_go = |good: &mut Good| {
        for number in 0..1500u64 {
            let mut stream = raw(&served);
            match number % 4 {
                0 => {}
                1 => drop(stream.write_all(&[0, 0, 0, 3])),
                2 => drop(stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x01\0abc")),
                _ => {
                    let mut client = Client::over(stream, "");
                    client.send(&Request::new(1, Command::Read, number * 512, 65536), &[]);
                }
            }
            if number % 100 == 0 {
                good.goes_on();
            }
        }
    };
    let descriptors_before = descriptors(&served);
    come_and_go(&mut good);
    let first = resident_kib(&served);
    come_and_go(&mut good);
    let later = resident_kib(&served);
    println!("{first} KiB, later {later} KiB");
    assert!(later < first + MORE_KIB, "from {first} to {later} KiB");
    let start = Instant::now();
    while descriptors(&served) > descriptors_before + 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} descriptors are left", descriptors(&served));
        std::thread::sleep(Duration::from_millis(20));
    }
    good.ends(served);
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut out = b"IHAVEOPT".to_vec();
    out.extend(number.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    out
}

#[test]
fn options_without_end_are_cut_off() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let flags = [0, 0, 0, 3];
    let list = option(3, &[]).repeat(100);
    let unknown = option(0xdead, &[7; 16_000]);
    let info = option(6, &[&4096u32.to_be_bytes()[..], &[b'x'; 4096], &[0, 0]].concat());
    let meta = option(10, &[&[0; 4][..], &1000u32.to_be_bytes(), &[0, 0, 0, 1, b'a'].repeat(1000)].concat());
    let before = resident_kib(&served);
    for bytes in [&list, &unknown, &info, &meta] {
        // Without reading the answers, and reading them.
        let mut mute = raw(&served);
        mute.write_all(&flags).expect("send");
        flood(&mut mute, bytes, 32 << 20);
        good.goes_on();
        let mut reader = raw(&served);
        let mut ear = reader.try_clone().expect("clone");
        reader.write_all(&flags).expect("send");
        let listening = std::thread::spawn(move || hung_up(&mut ear, "options without end"));
        for _ in 0..4000 {
            if reader.write_all(bytes).is_err() {
                break;
            }
        }
        listening.join().expect("the server hangs up");
        good.goes_on();
    }
    // An option that says it is larger than any.
    for length in [u32::MAX, 1 << 20] {
        let mut stream = raw(&served);
        stream.write_all(&flags).expect("send");
        let mut bytes = option(7, &[]);
        bytes[12..16].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&bytes).expect("send");
        hung_up(&mut stream, "an option beyond every limit");
    }
    let after = resident_kib(&served);
    assert!(after < before + MORE_KIB, "from {before} to {after} KiB");
    good.ends(served);
}

/// The control socket takes nothing in: who connects is told the state, whatever it says.
#[test]
fn the_control_socket_is_deaf() {
    let served = Served::new();
    let mut good = Good::new(&served);
    let list = |dir: &std::path::Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().map(|e| e.expect("an entry").path()).collect()
    };
    let paths = list(served.dir.path());
    let inner: Vec<_> = paths.iter().filter(|p| p.is_dir()).flat_map(|p| list(p)).collect();
    let is_control = |p: &&std::path::PathBuf| p.extension().is_some_and(|e| e == "control");
    let control = paths.iter().chain(&inner).find(is_control).expect("a control socket");
    for seed in 0..300 {
        let mut stream = UnixStream::connect(control).expect("connect");
        if seed % 3 == 0 {
            continue;
        }
        let _ = stream.write_all(&pattern(seed, 5000));
        let mut doc = Vec::new();
        // What was said and not listened to may end the connection early.
        if stream.read_to_end(&mut doc).is_ok() {
            serde_json::from_slice::<serde_json::Value>(&doc).expect("JSON");
        }
        if seed % 50 == 0 {
            good.goes_on();
        }
    }
    good.ends(served);
}

/// Buffers for the payload of clients are 64 MiB in all. Who announces payload and goes silent holds some of them, and
/// may hold up other large writes until the server's patience ends, but nobody else.
#[test]
fn silent_clients_do_not_hold_all_buffers() {
    for (clients, length) in [(2, 32 << 20), (60, 1 << 20), (60, 60 << 10)] {
        let served = Served::new();
        let mut good = Good::new(&served);
        let mut silent: Vec<Client> = (0..clients)
            .map(|_| {
                let mut client = served.connect();
                client.send(&Request::new(1, Command::Write, 0, length), &pattern(1, 5000));
                client
            })
            .collect();
        good.goes_on();
        for client in &mut silent {
            client.stream.set_nonblocking(true).expect("nonblocking");
            let state = client.stream.read(&mut [0]).expect_err("nothing was answered");
            assert_eq!(state.kind(), ErrorKind::WouldBlock, "it had to go for others to be served");
        }
        // One more of the largest waits its turn, and gets it.
        let mut large = served.connect();
        let bytes = pattern(7, 32 << 20);
        large.write(0, &bytes);
        assert!(large.read(0, bytes.len()) == bytes, "not what was written");
        drop(silent);
        good.ends(served);
    }
}

/// All at once, and then the end.
#[test]
fn the_server_ends_cleanly_amid_hostility() {
    let mut served = Served::new();
    let mut good = Good::new(&served);
    let mut hostile = Vec::new();
    for seed in 0..10 {
        let mut half = served.connect();
        half.send(&Request::new(1, Command::Write, 0, 1 << 20), &pattern(seed, 100_000));
        let mut mute = served.connect();
        let reads: Vec<u8> =
            (0..512).flat_map(|c| encode_request(&Request::new(c, Command::Read, 0, 4096))).collect();
        flood(&mut mute.stream, &reads, 1 << 20);
        let mut waiting = raw(&served);
        waiting.write_all(&[0, 0, 0, 3, b'I']).expect("send");
        hostile.push((half, mute, waiting));
    }
    good.goes_on();
    served.stop();
    served.check();
}
