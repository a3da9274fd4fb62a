//! Random and mutated streams: nothing panics, no more is consumed than was shown, and how a stream is cut
//! into pieces never changes what comes of it. Deterministic; the seed is printed first.

mod common;

use bimetal_nbd::{ClientHandshake, ClientStep, parse_simple_reply};
use common::*;

fn random_option(rng: &mut Rng) -> Vec<u8> {
    let name: &[u8] = rng.pick(&[b"".as_slice(), b"vault", b"attic", b"cellar"]);
    let number =
        rng.pick(&[EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, INFO, INFO, GO, STRUCTURED_REPLY, 10, 99]);
    match number {
        EXPORT_NAME => option(number, name),
        INFO | GO => {
            let wanted: Vec<u16> = (0..rng.below(4)).map(|_| rng.below(5) as u16).collect();
            option(number, &info_data(name, &wanted))
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
        let command = rng.pick(&[0, 1, 1, 1, 3, 4, 6, 7, 99]);
        let flags = rng.pick(&[0, 0, 1, 2, 3, 16]);
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
                let _ = request.validate(export);
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
    }
}

/// Feeds a client in pieces; returns what it sent and how it ended.
fn run_client(stream: &[u8], cuts: &[usize]) -> (Vec<u8>, String) {
    let mut client = ClientHandshake::new("vault").unwrap();
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
    let answers = run_handshake(&exports(), &go, &[]).out;
    for _ in 0..800 {
        let mut stream = answers.clone();
        rng.mutate(&mut stream);
        let whole = run_client(&stream, &[]);
        for cut in 0..=stream.len() {
            assert_eq!(run_client(&stream, &[cut]), whole, "cut at {cut}: {stream:02x?}");
        }
        let every: Vec<usize> = (0..=stream.len()).collect();
        assert_eq!(run_client(&stream, &every), whole, "byte by byte: {stream:02x?}");
    }
}
