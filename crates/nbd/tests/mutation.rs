//! Random and mutated streams: nothing panics, no more is consumed than was shown, and how a stream is cut
//! into pieces never changes what comes of it. Deterministic; the seed is printed first.

mod common;

use bimetal_nbd::{
    ClientHandshake, ClientStep, Contexts, MetaContext, NbdErrno, Placement, Terms, data_chunk, error_chunk,
    hole_chunk, parse_chunk, parse_simple_reply, status_chunk,
};
use common::*;

const ALL_TERMS: Terms = Terms {
    structured: true,
    contexts: Contexts::NONE.with(MetaContext::Allocation).with(MetaContext::Tier),
};

fn random_option(rng: &mut Rng) -> Vec<u8> {
    let name: &[u8] = rng.pick(&[b"".as_slice(), b"vault", b"attic", b"cellar"]);
    let number = rng.pick(&[
        EXPORT_NAME,
        ABORT,
        LIST,
        STARTTLS,
        INFO,
        INFO,
        GO,
        8,
        8,
        LIST_META,
        SET_META,
        SET_META,
        99,
    ]);
    match number {
        EXPORT_NAME => option(number, name),
        INFO | GO => {
            let wanted: Vec<u16> = (0..rng.below(4)).map(|_| rng.below(5) as u16).collect();
            option(number, &info_data(name, &wanted))
        }
        LIST_META | SET_META => {
            let known: [&[u8]; 6] =
                [b"base:allocation", b"x-bimetal:tier", b"base:", b"x-bimetal:", b"", b"qemu:dirty-bitmap:x"];
            let queries: Vec<&[u8]> = (0..rng.below(4)).map(|_| rng.pick(&known)).collect();
            option(number, &meta_data(name, &queries))
        }
        _ => {
            let length = rng.pick(&[0, 0, 0, 1, 40]);
            option(number, &rng.bytes(length))
        }
    }
}

fn random_handshake(rng: &mut Rng) -> Vec<u8> {
    let flags = rng.pick(&[FIXED, FIXED_NO_ZEROES, FIXED_NO_ZEROES, 0]);
    let options: Vec<Vec<u8>> = (0..rng.below(6)).map(|_| random_option(rng)).collect();
    let mut stream = client_stream(flags, &options);
    if rng.chance(60) {
        rng.mutate(&mut stream);
    }
    stream
}

fn random_requests(rng: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..rng.below(6) {
        let command = rng.pick(&[0, 1, 1, 1, 3, 4, 5, 6, 7, 99]);
        let flags = rng.pick(&[0, 0, 1, 2, 3, 4, 8, 16, 18]);
        let length = rng.pick(&[0, 1, 27, 28, 29, 90]);
        let (cookie, offset) = (rng.next(), rng.next());
        stream.extend(request(flags, command, cookie, offset, length));
        if command == 1 {
            stream.extend(rng.bytes(length as usize));
        }
    }
    if rng.chance(30) {
        stream.extend(request(0, 2, 0, 0, 0));
    }
    if rng.chance(60) {
        rng.mutate(&mut stream);
    }
    stream
}

fn check_handshake(rng: &mut Rng, stream: &[u8]) {
    let exports = exports();
    let whole = run_handshake(&exports, stream, &[]);
    for cut in 0..=stream.len() {
        assert_eq!(run_handshake(&exports, stream, &[cut]), whole, "cut at {cut}: {stream:02x?}");
    }
    let every: Vec<usize> = (0..=stream.len()).collect();
    let several = rng.cuts(stream.len());
    assert_eq!(run_handshake(&exports, stream, &every), whole, "byte by byte: {stream:02x?}");
    assert_eq!(run_handshake(&exports, stream, &several), whole, "cut at {several:?}: {stream:02x?}");
}

fn check_transmission(rng: &mut Rng, stream: &[u8]) {
    let whole = run_transmission(stream, &[]);
    for cut in 0..=stream.len() {
        assert_eq!(run_transmission(stream, &[cut]), whole, "cut at {cut}: {stream:02x?}");
    }
    let every: Vec<usize> = (0..=stream.len()).collect();
    let several = rng.cuts(stream.len());
    assert_eq!(run_transmission(stream, &every), whole, "byte by byte: {stream:02x?}");
    assert_eq!(run_transmission(stream, &several), whole, "cut at {several:?}: {stream:02x?}");
}

#[test]
fn handshakes_do_not_depend_on_how_they_are_cut() {
    let mut rng = Rng::from_env(1);
    let mut chosen = 0;
    let mut failed = 0;
    for _ in 0..1500 {
        let stream = random_handshake(&mut rng);
        check_handshake(&mut rng, &stream);
        match run_handshake(&exports(), &stream, &[]).end {
            Ok(bimetal_nbd::HandshakeStep::Transmission { .. }) => chosen += 1,
            Ok(_) => {}
            Err(_) => failed += 1,
        }
    }
    println!("{chosen} chose an export, {failed} failed");
    assert!(chosen > 50 && failed > 50, "the streams no longer reach both ends");
}

#[test]
fn request_streams_do_not_depend_on_how_they_are_cut() {
    let mut rng = Rng::from_env(2);
    let mut requests = 0;
    let mut failed = 0;
    let exports = exports();
    for _ in 0..1500 {
        let stream = random_requests(&mut rng);
        check_transmission(&mut rng, &stream);
        let outcome = run_transmission(&stream, &[]);
        failed += usize::from(outcome.error.is_some());
        requests += outcome.requests.len();
        for request in outcome.requests {
            for export in exports.as_slice() {
                let _ = request.validate(export, &Terms::default());
                let _ = request.validate(export, &ALL_TERMS);
            }
        }
    }
    println!("{requests} requests, {failed} streams failed");
    assert!(requests > 500 && failed > 50, "the streams no longer reach both ends");
}

#[test]
fn plain_noise_does_no_harm() {
    let mut rng = Rng::from_env(3);
    for _ in 0..500 {
        let length = rng.below(120) as usize;
        let noise = rng.bytes(length);
        check_handshake(&mut rng, &noise);
        check_transmission(&mut rng, &noise);
        let _ = parse_simple_reply(&noise);
        let _ = parse_chunk(&noise);
    }
}

/// The chunks of a stream as the client reads them, and how it ended.
fn run_chunks(stream: &[u8], cuts: &[usize]) -> String {
    let (mut used, mut seen) = (0, String::new());
    for &received in cuts.iter().chain([&stream.len()]) {
        while used <= received {
            match parse_chunk(&stream[used..received]) {
                Ok(None) => break,
                Ok(Some((consumed, head, chunk))) => {
                    assert!(consumed > 0 && consumed <= received - used);
                    used += consumed;
                    if let bimetal_nbd::Chunk::Data { length, .. } = chunk {
                        used += length as usize;
                    }
                    seen.push_str(&format!("{head:?} {chunk:?} "));
                }
                Err(error) => return seen + &error.to_string(),
            }
        }
    }
    seen
}

#[test]
fn chunks_do_not_depend_on_how_they_are_cut() {
    let mut rng = Rng::from_env(5);
    let placements = [Placement::Hole, Placement::Fast, Placement::Slow, Placement::Landed, Placement::Lost];
    for _ in 0..1500 {
        let mut stream = Vec::new();
        for _ in 0..=rng.below(4) {
            let (cookie, done, offset) = (rng.next(), rng.chance(50), rng.next());
            match rng.below(4) {
                0 => {
                    let length = rng.pick(&[1, 2, 30]);
                    stream.extend(data_chunk(cookie, done, offset, length));
                    stream.extend(rng.bytes(length as usize));
                }
                1 => stream.extend(hole_chunk(cookie, done, offset, rng.next() as u32)),
                2 => stream.extend(error_chunk(cookie, rng.pick(&[NbdErrno::Io, NbdErrno::Overflow]))),
                _ => {
                    let extents: Vec<_> =
                        (0..=rng.below(3)).map(|_| (rng.below(9) as u32, rng.pick(&placements))).collect();
                    let context = rng.pick(&MetaContext::ALL);
                    status_chunk(&mut stream, cookie, done, context, extents, rng.chance(20));
                }
            }
        }
        if rng.chance(60) {
            rng.mutate(&mut stream);
        }
        let whole = run_chunks(&stream, &[]);
        for cut in 0..=stream.len() {
            assert_eq!(run_chunks(&stream, &[cut]), whole, "cut at {cut}: {stream:02x?}");
        }
        let every: Vec<usize> = (0..=stream.len()).collect();
        assert_eq!(run_chunks(&stream, &every), whole, "byte by byte: {stream:02x?}");
    }
}

/// Feeds a client in pieces; returns what it sent and how it ended.
fn run_client(wishes: Terms, stream: &[u8], cuts: &[usize]) -> (Vec<u8>, String) {
    let mut client = ClientHandshake::wishing("vault", wishes).unwrap();
    let (mut out, mut used, mut end) = (Vec::new(), 0, String::new());
    for &received in cuts.iter().chain([&stream.len()]) {
        let input = &stream[used..received];
        match client.on_bytes(input, &mut out) {
            Ok((consumed, step)) => {
                assert!(consumed <= input.len());
                used += consumed;
                end = format!("{step:?}, {} left", stream.len() - used);
                if matches!(step, ClientStep::Transmission(_)) {
                    break;
                }
            }
            Err(error) => return (out, error.to_string()),
        }
    }
    (out, end)
}

#[test]
fn the_client_does_not_depend_on_how_answers_are_cut() {
    let mut rng = Rng::from_env(4);
    let go = client_stream(FIXED_NO_ZEROES, &[option(GO, &info_data(b"vault", &[1, 2, 3]))]);
    let simple = run_handshake(&exports(), &go, &[]).out;
    let queries: [&[u8]; 2] = [b"base:allocation", b"x-bimetal:tier"];
    let modern = [
        option(STRUCTURED_REPLY, &[]),
        option(SET_META, &meta_data(b"vault", &queries)),
        option(GO, &info_data(b"vault", &[3])),
    ];
    let modern = run_handshake(&exports(), &client_stream(FIXED_NO_ZEROES, &modern), &[]).out;
    for round in 0..1200 {
        let (wishes, answers) =
            if round % 2 == 0 { (Terms::default(), &simple) } else { (ALL_TERMS, &modern) };
        let mut stream = answers.clone();
        rng.mutate(&mut stream);
        let whole = run_client(wishes, &stream, &[]);
        for cut in 0..=stream.len() {
            assert_eq!(run_client(wishes, &stream, &[cut]), whole, "cut at {cut}: {stream:02x?}");
        }
        let every: Vec<usize> = (0..=stream.len()).collect();
        assert_eq!(run_client(wishes, &stream, &every), whole, "byte by byte: {stream:02x?}");
    }
}
