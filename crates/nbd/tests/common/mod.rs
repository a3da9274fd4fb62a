//! Shared by the tests: exports, byte builders written from the specification and not from the crate, drivers
//! that feed a stream in given pieces, and a small random generator.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::sync::Arc;

use bimetal_nbd::{
    Export, Exports, Handshake, HandshakeStep, Parse, ProtocolError, REQUEST_HEADER_BYTES, Request,
    Transmission,
};

pub const FIXED: u32 = 1;
pub const FIXED_NO_ZEROES: u32 = 3;
pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const LIST_META: u32 = 9;
pub const SET_META: u32 = 10;
pub const ACK: u32 = 1;
pub const META_CONTEXT: u32 = 4;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;

/// A writable and a read-only export; neither has the empty name.
pub fn exports() -> Arc<Exports> {
    let vault = Export {
        name: "vault".into(),
        description: "the big one".into(),
        size_bytes: 1 << 30,
        read_only: false,
    };
    let attic =
        Export { name: "attic".into(), description: String::new(), size_bytes: 4097, read_only: true };
    Arc::new(Exports::new(vec![vault, attic]).unwrap())
}

pub fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The data of INFO and GO.
pub fn info_data(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
    data
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn meta_data(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name);
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(*query);
    }
    data
}

pub fn client_stream(flags: u32, options: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = flags.to_be_bytes().to_vec();
    options.iter().for_each(|option| bytes.extend(option));
    bytes
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// One reply to an option: the option, the type, the data.
#[derive(Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

pub fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// Splits a server's output behind its greeting into replies; panics where it is not whole.
pub fn option_replies(mut bytes: &[u8]) -> Vec<OptionReply> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        let length = be32(&bytes[16..]) as usize;
        let data = bytes[20..20 + length].to_vec();
        replies.push(OptionReply { option: be32(&bytes[8..]), kind: be32(&bytes[12..]), data });
        bytes = &bytes[20 + length..];
    }
    replies
}

/// What came of a handshake: everything sent, the verdict, and what was left in the stream.
#[derive(Debug, PartialEq, Eq)]
pub struct HandshakeOutcome {
    pub out: Vec<u8>,
    pub end: Result<HandshakeStep, ProtocolError>,
    /// Bytes not used, where the handshake did not fail.
    pub rest: Vec<u8>,
}

/// Feeds a handshake with `stream` cut at the ascending places `cuts`, as a driver would.
pub fn run_handshake(exports: &Arc<Exports>, stream: &[u8], cuts: &[usize]) -> HandshakeOutcome {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Arc::clone(exports), &mut out);
    let mut used = 0;
    let mut end = Ok(HandshakeStep::NeedMore);
    for &received in cuts.iter().chain([&stream.len()]) {
        let input = &stream[used..received];
        end = handshake.on_bytes(input, &mut out).map(|(consumed, step)| {
            assert!(consumed <= input.len(), "consumed {consumed} of {}", input.len());
            used += consumed;
            step
        });
        if end.is_err() {
            assert_eq!(handshake.on_bytes(&[], &mut out).map(|(_, step)| step), end, "an error must stick");
            return HandshakeOutcome { out, end, rest: Vec::new() };
        }
    }
    HandshakeOutcome { out, end, rest: stream[used..].to_vec() }
}

/// What came of a request stream.
#[derive(Debug, PartialEq, Eq)]
pub struct TransmissionOutcome {
    pub requests: Vec<Request>,
    pub error: Option<ProtocolError>,
}

/// Feeds a parser with `stream` cut at the ascending places `cuts`, moving payload past it as a driver would.
pub fn run_transmission(stream: &[u8], cuts: &[usize]) -> TransmissionOutcome {
    let mut parser = Transmission::new();
    let mut requests = Vec::new();
    let mut used = 0;
    for &received in cuts.iter().chain([&stream.len()]) {
        // `used` runs ahead of what was received while a payload is still coming.
        while used <= received {
            let input = &stream[used..received];
            match parser.next(input) {
                Ok(Parse::NeedMore) => break,
                Ok(Parse::Request { consumed, request }) => {
                    assert_eq!(consumed, REQUEST_HEADER_BYTES);
                    assert!(consumed <= input.len());
                    used += consumed + request.payload_bytes() as usize;
                    requests.push(request);
                }
                Err(error) => {
                    assert_eq!(parser.next(&[0]), Err(error), "an error must stick");
                    return TransmissionOutcome { requests, error: Some(error) };
                }
            }
        }
    }
    TransmissionOutcome { requests, error: None }
}

/// SplitMix64: kept here so that a seed means the same for ever.
pub struct Rng(u64);

impl Rng {
    /// The seed of the environment variable `BIMETAL_NBD_SEED`, else `default`; printed before it is used.
    pub fn from_env(default: u64) -> Self {
        let seed = match std::env::var("BIMETAL_NBD_SEED") {
            Ok(text) => text.parse().expect("BIMETAL_NBD_SEED is a decimal number"),
            Err(_) => default,
        };
        println!("seed {seed} (repeat with BIMETAL_NBD_SEED={seed})");
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Ascending places to cut a stream of this length at.
    pub fn cuts(&mut self, length: usize) -> Vec<usize> {
        let count = self.below(6);
        let mut cuts: Vec<usize> = (0..count).map(|_| self.below(length as u64 + 1) as usize).collect();
        cuts.sort_unstable();
        cuts
    }

    /// Changes, drops, doubles or adds a few bytes.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            let place = self.below(bytes.len() as u64) as usize;
            match self.below(6) {
                0 => bytes[place] ^= 1 << self.below(8),
                1 => bytes[place] = self.pick(&[0, 1, 0x7f, 0x80, 0xff]),
                2 => drop(bytes.remove(place)),
                3 => bytes.insert(place, self.next() as u8),
                4 => bytes.truncate(place),
                _ => bytes.extend_from_within(place..),
            }
        }
    }
}
