//! A real server and its clients: good, clumsy, hostile and gone.

mod common;

use bimetal_nbd::{
    Chunk, Command, Contexts, Extent, MetaContext, NbdErrno, Request, SIMPLE_REPLY_BYTES, Terms,
    TransmissionFlags, encode_request, parse_simple_reply,
};
use common::{Client, Served, ask, bimetal, negotiate, pattern, start, start_many, succeed, terminate, text};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn what_was_written_is_read_over_restarts_and_kills() {
    let mut served = Served::new();
    let mut client = served.connect();
    let (large, odd) = (pattern(1, 3 << 20), pattern(2, 777));
    client.write(5 * MIB, &large);
    client.write(40 * MIB + 13, &odd);
    assert_eq!(client.read(5 * MIB, large.len()), large);
    assert_eq!(client.read(40 * MIB + 13, odd.len()), odd);
    assert_eq!(client.read(40 * MIB, 13), [0; 13]);
    client.flush();
    served.kill();
    served.start();
    let mut client = served.connect();
    assert_eq!(client.read(5 * MIB, large.len()), large);
    assert_eq!(client.read(40 * MIB + 13, odd.len()), odd);
    client.call(Command::WriteZeroes, 5 * MIB + 1, 2, &[]).result.expect("zeroes");
    client.call(Command::Trim, 6 * MIB, MIB as u32, &[]).result.expect("trim");
    served.stop();
    served.check();
    served.start();
    let mut client = served.connect();
    let mut expected = large.clone();
    expected[1..3].fill(0);
    expected[1 << 20..2 << 20].fill(0);
    assert_eq!(client.read(5 * MIB, large.len()), expected);
}

#[test]
fn the_largest_requests_work_aligned_and_not() {
    let served = Served::new();
    let mut client = served.connect();
    let bytes = pattern(3, 32 << 20);
    for offset in [0, 33 * MIB + 1000] {
        client.write(offset, &bytes);
        assert!(client.read(offset, bytes.len()) == bytes, "at {offset}");
    }
    let end = client.size_bytes;
    assert_eq!(client.call(Command::Read, 0, (32 << 20) + 1, &[]).result, Err(NbdErrno::Invalid));
    assert_eq!(client.call(Command::Read, end - 1, 2, &[]).result, Err(NbdErrno::Invalid));
    let payload = pattern(4, 200_000);
    assert_eq!(client.call(Command::Write, end, 200_000, &payload).result, Err(NbdErrno::NoSpace));
    assert_eq!(client.call(Command::Unknown(99), 0, 0, &[]).result, Err(NbdErrno::Invalid));
    client.write(end - 1, &[7]);
    assert_eq!(client.read(end - 1, 1), [7]);
}

#[test]
fn clients_that_vanish_or_talk_nonsense_cost_only_their_connection() {
    let served = Served::new();
    let mut witness = served.connect();
    witness.write(0, &pattern(5, 4096));
    for seed in 0..8 {
        // Nonsense instead of a handshake.
        let mut stream = UnixStream::connect(served.socket()).expect("connect");
        let _ = stream.write_all(&pattern(seed, 3000));
        // Nonsense instead of a request: the server hangs up.
        let mut client = served.connect();
        client.stream.write_all(&pattern(seed, 28)).expect("send");
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).expect("the end of the stream");
        assert!(rest.is_empty());
        // A payload that never comes whole, from a client that goes.
        let mut client = served.connect();
        client.send(&Request::new(1, Command::Write, MIB, 1 << 20), &pattern(seed, 300_000));
        drop(client);
        // Half a header.
        let mut client = served.connect();
        client
            .stream
            .write_all(&encode_request(&Request::new(1, Command::Read, 0, 4096))[..20])
            .expect("send");
        drop(client);
        // Many requests, and gone before the replies.
        let mut client = served.connect();
        for cookie in 0..50 {
            client.send(&Request::new(cookie, Command::Read, cookie * 65536, 65536), &[]);
        }
        drop(client);
        // A payload beyond every limit.
        let mut client = served.connect();
        client.send(&Request::new(1, Command::Write, 0, u32::MAX), &[]);
        assert_eq!(client.stream.read(&mut [0; 1]).expect("the end of the stream"), 0);
        assert_eq!(witness.read(0, 4096), pattern(5, 4096));
    }
    assert_eq!(witness.read(MIB, 4096), [0; 4096], "half a write must not be written");
}

#[test]
fn a_client_that_does_not_read_its_replies_stops_nobody_else() {
    let served = Served::new();
    let mut slow: Vec<Client> = (0..3).map(|_| served.connect()).collect();
    for client in &mut slow {
        client.stream.set_nonblocking(true).expect("nonblocking");
        for cookie in 0..100 {
            let header = encode_request(&Request::new(cookie, Command::Read, 0, 1 << 20));
            if client.stream.write_all(&header).is_err() {
                break;
            }
        }
    }
    let mut witness = served.connect();
    for round in 0..50u64 {
        witness.write(round * 65536, &pattern(round, 65536));
        assert_eq!(witness.read(round * 65536, 65536), pattern(round, 65536));
    }
    // And the slow ones get theirs when they read.
    let client = &mut slow[0];
    client.stream.set_nonblocking(false).expect("blocking");
    let mut data = vec![0; 1 << 20];
    for _ in 0..100 {
        client.reply().result.expect("read");
        client.stream.read_exact(&mut data).expect("data");
    }
}

#[test]
fn disconnecting_answers_what_is_in_flight_first() {
    let served = Served::new();
    let mut client = served.connect();
    for cookie in 0..20 {
        client.send(&Request::new(cookie, Command::Write, cookie * 4096, 4096), &pattern(cookie, 4096));
    }
    client.send(&Request::new(99, Command::Disconnect, 0, 0), &[]);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let reply = client.reply();
        reply.result.expect("write");
        seen.push(reply.cookie);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    assert_eq!(client.stream.read(&mut [0; 1]).expect("the end of the stream"), 0);
}

#[test]
fn one_client_more_than_there_is_room_for_waits_its_turn() {
    let served = Served::new();
    let mut clients: Vec<Client> = (0..64).map(|_| served.connect()).collect();
    let mut waiting = UnixStream::connect(served.socket()).expect("connect");
    waiting.set_read_timeout(Some(Duration::from_millis(200))).expect("timeout");
    assert!(waiting.read(&mut [0; 1]).is_err(), "nobody greets it yet");
    for (place, client) in clients.iter_mut().enumerate() {
        client.write(place as u64 * 4096, &pattern(place as u64, 4096));
    }
    clients.truncate(60);
    waiting.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
    let mut client = Client::over(waiting, "");
    assert_eq!(client.read(63 * 4096, 4096), pattern(63, 4096));
}

const MODERN: Terms = Terms {
    structured: true,
    contexts: Contexts::NONE.with(MetaContext::Allocation).with(MetaContext::Tier),
};

#[test]
fn holes_are_told_and_not_sent() {
    let served = Served::new();
    let mut plain = served.connect();
    let bytes = pattern(6, 8192);
    plain.write(MIB, &bytes);
    let mut stream = UnixStream::connect(served.socket()).expect("connect");
    let export = negotiate(&mut stream, "v", MODERN);
    assert_eq!(export.terms, MODERN);
    let flags = TransmissionFlags::SEND_DF
        .union(TransmissionFlags::SEND_CACHE)
        .union(TransmissionFlags::SEND_FAST_ZERO)
        .union(TransmissionFlags::CAN_MULTI_CONN);
    assert!(export.flags.contains(flags) && !export.flags.contains(TransmissionFlags::ROTATIONAL));

    let read = Request::new(1, Command::Read, MIB - 4096, 16384);
    let (chunks, data) = ask(&mut stream, &read).expect("read");
    let expected = [
        Chunk::Hole { offset: MIB - 4096, length: 4096 },
        Chunk::Data { offset: MIB, length: 8192 },
        Chunk::Hole { offset: MIB + 8192, length: 4096 },
    ];
    assert_eq!(chunks, expected);
    assert_eq!(
        (&data[..4096], &data[4096..12288], &data[12288..]),
        (&[0; 4096][..], &bytes[..], &[0; 4096][..])
    );
    let (chunks, data) = ask(&mut stream, &Request { df: true, ..read }).expect("read");
    assert_eq!(chunks, [Chunk::Data { offset: MIB - 4096, length: 16384 }]);
    assert_eq!(data[4096..12288], bytes);

    let status = Request::new(2, Command::BlockStatus, MIB - 4096, 16384);
    let (chunks, _) = ask(&mut stream, &status).expect("status");
    let extents = |words: [u32; 3]| -> Vec<Extent> {
        [4096, 8192, 4096].into_iter().zip(words).map(|(length, word)| Extent { length, word }).collect()
    };
    assert_eq!(chunks[0], Chunk::Status { context: 1, extents: extents([3, 0, 3]) });
    assert_eq!(chunks[1], Chunk::Status { context: 2, extents: extents([0, 1, 0]) });
    assert_eq!(chunks.len(), 2);
    let (chunks, _) = ask(&mut stream, &Request { req_one: true, ..status }).expect("status");
    assert_eq!(chunks[0], Chunk::Status { context: 1, extents: extents([3, 0, 3])[..1].to_vec() });
    let beyond = Request::new(3, Command::BlockStatus, export.size_bytes - 1, 2);
    assert_eq!(ask(&mut stream, &beyond), Err(NbdErrno::Invalid));
    let huge = Request::new(4, Command::Read, 0, u32::MAX);
    assert_eq!(ask(&mut stream, &huge), Err(NbdErrno::Invalid));
    assert_eq!(ask(&mut stream, &Request { df: true, ..huge }), Err(NbdErrno::Overflow));

    // What has no payload is answered simply.
    for (command, length, result) in [
        (Command::Cache, MIB as u32, Ok(())),
        (Command::WriteZeroes, 4096, Ok(())),
        (Command::WriteZeroes, 4097, Err(NbdErrno::NotSupported)),
    ] {
        let fast_zero = command == Command::WriteZeroes;
        let request = Request { fast_zero, ..Request::new(5, command, MIB, length) };
        stream.write_all(&encode_request(&request)).expect("send");
        let mut header = [0; SIMPLE_REPLY_BYTES];
        stream.read_exact(&mut header).expect("reply");
        assert_eq!(parse_simple_reply(&header).expect("valid").expect("whole").result, result);
    }
    assert_eq!(plain.read(MIB, 8192), [&[0; 4096], &bytes[4096..]].concat());
}

#[test]
fn many_questions_at_once_are_all_answered() {
    let served = Served::new();
    let mut stream = UnixStream::connect(served.socket()).expect("connect");
    negotiate(&mut stream, "", MODERN);
    let mut requests = Vec::new();
    for cookie in 0..300 {
        requests.extend(encode_request(&Request::new(cookie, Command::Cache, 0, 1 << 20)));
    }
    let status = |cookie| Request::new(cookie, Command::BlockStatus, 0, 1 << 20);
    for cookie in 300..600 {
        requests.extend(encode_request(&status(cookie)));
    }
    stream.write_all(&requests).expect("send");
    for cookie in 0..300 {
        let mut header = [0; SIMPLE_REPLY_BYTES];
        stream.read_exact(&mut header).expect("reply");
        let reply = parse_simple_reply(&header).expect("valid").expect("whole");
        assert_eq!((reply.cookie, reply.result), (cookie, Ok(())));
    }
    // Two contexts of one extent each: two chunks of 32 bytes.
    let mut replies = vec![0; 300 * 64];
    stream.read_exact(&mut replies).expect("replies");
    let (chunks, _) = ask(&mut stream, &status(7)).expect("status");
    assert_eq!(chunks.len(), 2);
}

#[test]
fn reads_of_many_pieces_keep_their_data_apart() {
    let served = Served::new();
    let mut plain = served.connect();
    let bytes = pattern(7, 4096);
    for block in (0..64).step_by(2) {
        plain.write(block * 4096, &bytes[..4096 - block as usize]);
    }
    let mut stream = UnixStream::connect(served.socket()).expect("connect");
    negotiate(&mut stream, "", MODERN);
    // Small pieces are copied behind their heads, large ones are sent from where they are.
    for (offset, length) in [(0, 64 * 4096), (4000, 200), (100, 4500), (8000, 100_000), (3, 17)] {
        let (chunks, data) = ask(&mut stream, &Request::new(1, Command::Read, offset, length)).expect("read");
        assert!(chunks.len() <= 16, "{}", chunks.len());
        assert!(data == plain.read(offset, length as usize), "{offset} {length}");
    }
}

#[test]
fn several_sockets_serve_one_volume_that_clients_may_not_change() {
    let mut served = Served::new();
    served.connect().write(0, &pattern(1, 4096));
    served.stop();
    let (dir, file) = (served.dir.path().to_owned(), served.file());
    let serve = |address: &str| {
        let mut command = bimetal(&dir);
        command.arg("serve").arg(&file).arg("--nbd").arg(address);
        command
    };
    let mut command = serve("127.0.0.1:0");
    command.arg("--nbd").arg(format!("unix:{}", served.socket().display())).arg("--read-only");
    let (child, uris) = start_many(command, 2);
    served.child = Some(child);
    let address = uris[0].strip_prefix("nbd://").and_then(|rest| rest.strip_suffix('/')).expect("a TCP URI");
    let mut stream = TcpStream::connect(address).expect("connect");
    let export = negotiate(&mut stream, "", MODERN);
    assert!(export.flags.contains(TransmissionFlags::READ_ONLY));
    assert!(!export.flags.contains(TransmissionFlags::SEND_WRITE_ZEROES));
    let (_, data) = ask(&mut stream, &Request::new(1, Command::Read, 0, 8192)).expect("read");
    assert_eq!(data, [pattern(1, 4096), vec![0; 4096]].concat());
    let mut client = served.connect();
    for command in [Command::Write, Command::WriteZeroes, Command::Trim] {
        let payload = if command == Command::Write { &data[..4096] } else { &[] };
        assert_eq!(client.call(command, 4096, 4096, payload).result, Err(NbdErrno::NotPermitted));
    }
    client.call(Command::Cache, 0, 4096, &[]).result.expect("cache");
    client.flush();
    served.stop();
    served.check();
    for address in ["0.0.0.0:0", "[::]:10809", "10.1.2.3:10809"] {
        let output = serve(address).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{address}");
        assert!(text(&output.stderr).contains("other machines"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_client_that_never_negotiates_gives_its_place_to_one_that_waits() {
    let served = Served::new();
    let mut idle = served.connect();
    let silent: Vec<UnixStream> = (0..63)
        .map(|place| {
            let mut stream = UnixStream::connect(served.socket()).expect("connect");
            // Some say nothing at all, some stop half way through an option.
            if place % 2 == 0 {
                stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0").expect("send");
            }
            stream
        })
        .collect();
    let start = Instant::now();
    let mut client = served.connect();
    assert!(start.elapsed() > Duration::from_secs(5), "nobody had to give way");
    client.write(0, &pattern(1, 4096));
    assert_eq!(idle.read(0, 4096), pattern(1, 4096), "a client that asks for nothing keeps its place");
    drop(silent);
}

#[test]
fn sigterm_closes_with_clients_connected() {
    let mut served = Served::new();
    let mut busy = served.connect();
    let _idle = served.connect();
    for cookie in 0..100 {
        busy.send(&Request::new(cookie, Command::Write, cookie * 8192, 8192), &pattern(cookie, 8192));
    }
    served.stop();
    assert!(!served.socket().exists());
    served.check();
}

#[test]
fn status_is_live_while_it_is_served() {
    let mut served = Served::new();
    let mut client = served.connect();
    client.write(0, &pattern(1, 1 << 20));
    let status = |served: &Served| {
        let output = succeed(bimetal(served.dir.path()).arg("status").arg(served.file()).arg("--json"));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let live = status(&served);
    assert_eq!(live["state"], "open");
    assert_eq!(live["size_bytes"], client.size_bytes);
    assert_eq!(live["clients"], 1);
    assert!(live["tiers"][0]["write_share"].as_f64().expect("a share") > 0.0);
    served.stop();
    assert_eq!(status(&served)["state"], "closed");
}

#[test]
fn up_makes_a_volume_survives_a_kill_and_comes_up_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let up = || {
        let mut command = bimetal(dir.path());
        command.arg("up").arg("--dir").arg(dir.path().join("up"));
        command
    };
    let socket = dir.path().join("up/nbd.sock");
    let bytes = pattern(9, 100_000);
    let mut first = start(up());
    assert_eq!(slow_model(dir.path()), "disk-1tb-2012");
    let mut client = Client::connect(&socket);
    assert!(client.size_bytes > 8 << 30);
    client.write(12345, &bytes);
    client.flush();
    let second = up().output().expect("run");
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("in use"), "{}", text(&second.stderr));
    first.kill().expect("kill");
    first.wait().expect("wait");
    let mut again = start(up());
    assert_eq!(Client::connect(&socket).read(12345, bytes.len()), bytes);
    assert!(terminate(&mut again).success());
    // Timing is not a property of the data: another model, or none, serves the same, and the choice is kept.
    for model in ["ssd-128gb-2012", "none"] {
        let mut command = up();
        command.args(["--slow-model", model]);
        let mut served = start(command);
        assert_eq!(
            slow_model(dir.path()),
            if model == "none" { serde_json::Value::Null } else { model.into() }
        );
        assert_eq!(Client::connect(&socket).read(12345, bytes.len()), bytes);
        assert!(terminate(&mut served).success());
    }
    let mut last = start(up());
    assert_eq!(slow_model(dir.path()), serde_json::Value::Null);
    assert!(terminate(&mut last).success());
    let wrong = up().args(["--slow-model", "abacus"]).output().expect("run");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("disk-1tb-2012, "), "{}", text(&wrong.stderr));
}

/// The model that `status` shows for the slow tier of the volume that `up` serves in `dir`.
fn slow_model(dir: &std::path::Path) -> serde_json::Value {
    let output = succeed(bimetal(dir).arg("status").arg(dir.join("up/volume.toml")).arg("--json"));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    status["tiers"][1]["model"].clone()
}

#[test]
fn a_slice_of_real_kills() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let output = succeed(
        bimetal(dir.path())
            .args(["sim", "kill", "--rounds", "3", "--seconds", "0.3", "--json", "--dir"])
            .arg(dir.path()),
    );
    let doc: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(doc["violations"].as_array().map(Vec::len), Some(0), "{doc}");
    assert!(doc["acknowledged_writes"].as_u64() > Some(0), "{doc}");
}
