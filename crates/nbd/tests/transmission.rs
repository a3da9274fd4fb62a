//! Each path of the request parser, of validation and of the reply header.

mod common;

use bimetal_nbd::limits::MAX_PAYLOAD_BYTES;
use bimetal_nbd::{
    Chunk, ChunkHead, ClientError, Command, Contexts, Export, Extent, MetaContext, NbdErrno, Parse,
    Placement, ProtocolError, Request, Terms, Transmission, data_chunk, encode_request, error_chunk,
    hole_chunk, parse_chunk, simple_reply, status_chunk,
};
use common::{exports, request, run_transmission};

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;

fn parse(bytes: &[u8]) -> Request {
    match Transmission::new().next(bytes) {
        Ok(Parse::Request { consumed: 28, request }) => request,
        other => panic!("no request: {other:?}"),
    }
}

fn verdict(flags: u16, command: u16, offset: u64, length: u32, export: &Export) -> Result<(), NbdErrno> {
    parse(&request(flags, command, 9, offset, length)).validate(export, &Terms::default())
}

/// The verdict for a client that agreed on structured replies and a context.
fn modern(flags: u16, command: u16, offset: u64, length: u32, export: &Export) -> Result<(), NbdErrno> {
    let terms = Terms { structured: true, contexts: Contexts::NONE.with(MetaContext::Tier) };
    parse(&request(flags, command, 9, offset, length)).validate(export, &terms)
}

#[test]
fn every_command_is_parsed_and_encoded_back() {
    let commands = [
        (0, Command::Read),
        (1, Command::Write),
        (2, Command::Disconnect),
        (3, Command::Flush),
        (4, Command::Trim),
        (5, Command::Cache),
        (6, Command::WriteZeroes),
        (7, Command::BlockStatus),
        (8, Command::Unknown(8)),
        (u16::MAX, Command::Unknown(u16::MAX)),
    ];
    for (code, command) in commands {
        for flags in [0, FUA, NO_HOLE, FUA | NO_HOLE, DF, REQ_ONE, FAST_ZERO, u16::MAX] {
            let bytes = request(flags, code, 0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788, 0x0102_0304);
            let parsed = parse(&bytes);
            assert_eq!(parsed.command, command);
            assert_eq!(parsed.cookie, 0x0123_4567_89ab_cdef);
            assert_eq!((parsed.offset, parsed.length), (0x1122_3344_5566_7788, 0x0102_0304));
            assert_eq!(parsed.fua, flags & FUA != 0);
            assert_eq!(parsed.no_hole, flags & NO_HOLE != 0 && command == Command::WriteZeroes);
            assert_eq!(parsed.fast_zero, flags & FAST_ZERO != 0 && command == Command::WriteZeroes);
            assert_eq!(parsed.df, flags & DF != 0 && command == Command::Read);
            assert_eq!(parsed.req_one, flags & REQ_ONE != 0 && command == Command::BlockStatus);
            assert_eq!(encode_request(&parsed)[..], bytes);
        }
    }
}

#[test]
fn a_header_that_is_not_whole_waits() {
    let bytes = request(0, 0, 1, 0, 512);
    for length in 0..bytes.len() {
        assert_eq!(Transmission::new().next(&bytes[..length]), Ok(Parse::NeedMore));
    }
}

#[test]
fn only_a_write_has_payload() {
    let mut stream = request(0, 1, 1, 0, 4);
    stream.extend(b"\x25\x60\x95\x13"); // payload that looks like a request
    stream.extend(request(0, 4, 2, 0, u32::MAX));
    stream.extend(request(0, 0, 3, 0, 512));
    let outcome = run_transmission(&stream, &[]);
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.requests.iter().map(|request| request.cookie).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn bad_magic_ends_the_connection() {
    let mut bytes = request(0, 0, 1, 0, 512);
    bytes[3] = 0x14;
    let error = ProtocolError::BadRequestMagic { found: 0x2560_9514 };
    assert_eq!(run_transmission(&bytes, &[]).error, Some(error));
}

#[test]
fn payload_above_the_limit_ends_the_connection() {
    assert_eq!(parse(&request(0, 1, 1, 0, MAX_PAYLOAD_BYTES)).payload_bytes(), MAX_PAYLOAD_BYTES);
    let length = MAX_PAYLOAD_BYTES + 1;
    let outcome = run_transmission(&request(0, 1, 1, 0, length), &[]);
    assert_eq!(outcome.error, Some(ProtocolError::PayloadTooLong { length }));
}

#[test]
fn nothing_follows_a_disconnect() {
    let mut stream = request(0, 2, 1, 0, 0);
    assert_eq!(run_transmission(&stream, &[]).error, None);
    stream.push(0);
    let outcome = run_transmission(&stream, &[]);
    assert_eq!(outcome.error, Some(ProtocolError::RequestAfterDisconnect));
    assert_eq!(outcome.requests.len(), 1);
}

#[test]
fn ranges_are_held_to_the_export() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    let size = vault.size_bytes;
    for (command, beyond) in [
        (0, NbdErrno::Invalid),
        (1, NbdErrno::NoSpace),
        (4, NbdErrno::Invalid),
        (5, NbdErrno::Invalid),
        (6, NbdErrno::NoSpace),
    ] {
        assert_eq!(verdict(0, command, 0, 1, vault), Ok(()));
        assert_eq!(verdict(0, command, size - 512, 512, vault), Ok(()));
        assert_eq!(verdict(0, command, size - 511, 512, vault), Err(beyond));
        assert_eq!(verdict(0, command, size, 1, vault), Err(beyond));
        assert_eq!(verdict(0, command, u64::MAX, 1, vault), Err(beyond));
        assert_eq!(verdict(0, command, 0, 0, vault), Err(NbdErrno::Invalid));
    }
    assert_eq!(verdict(0, 0, 0, MAX_PAYLOAD_BYTES, vault), Ok(()));
    assert_eq!(verdict(0, 0, 0, MAX_PAYLOAD_BYTES + 1, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(0, 4, 0, 1 << 30, vault), Ok(()), "a trim has no payload to limit");
}

#[test]
fn flags_are_held_to_what_was_offered() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    for command in [0, 1, 4, 6] {
        assert_eq!(verdict(FUA, command, 0, 512, vault), Ok(()));
    }
    assert_eq!(verdict(FUA, 3, 0, 0, vault), Ok(()));
    assert_eq!(verdict(FUA | NO_HOLE, 6, 0, 512, vault), Ok(()));
    assert_eq!(verdict(NO_HOLE, 1, 0, 512, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(DF, 0, 0, 512, vault), Err(NbdErrno::Invalid), "not without structured replies");
    assert_eq!(modern(DF, 0, 0, 512, vault), Ok(()));
    assert_eq!(modern(DF, 1, 0, 512, vault), Err(NbdErrno::Invalid));
    assert_eq!(modern(REQ_ONE, 0, 0, 512, vault), Err(NbdErrno::Invalid));
    assert_eq!(
        modern(1 << 5, 0, 0, 512, vault),
        Err(NbdErrno::Invalid),
        "PAYLOAD_LEN needs extended headers"
    );
}

#[test]
fn a_read_only_export_refuses_what_writes() {
    let exports = exports();
    let attic = &exports.as_slice()[1];
    for command in [1, 4, 6] {
        assert_eq!(verdict(0, command, 0, 512, attic), Err(NbdErrno::NotPermitted));
    }
    assert_eq!(verdict(0, 5, 0, 512, attic), Ok(()), "where data is kept is no part of what it says");
    assert_eq!(modern(0, 7, 0, 512, attic), Ok(()));
    assert_eq!(verdict(0, 0, 0, 4097, attic), Ok(()));
    assert_eq!(verdict(0, 3, 0, 0, attic), Ok(()));
}

#[test]
fn flush_disconnect_and_unknown_commands() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    assert_eq!(verdict(0, 3, 0, 0, vault), Ok(()));
    assert_eq!(verdict(0, 3, 1, 0, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(0, 3, 0, 1, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(u16::MAX, 2, 1, 1, vault), Ok(()));
    assert_eq!(verdict(0, 8, 0, 512, vault), Err(NbdErrno::Invalid));
}

#[test]
fn fast_zeroing_is_for_whole_blocks() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    assert_eq!(verdict(FAST_ZERO, 6, 4096, 1 << 20, vault), Ok(()));
    assert_eq!(verdict(FAST_ZERO | NO_HOLE | FUA, 6, 0, 4096, vault), Ok(()));
    for (offset, length) in [(1, 4096), (0, 4097), (512, 512), (4096, 100_000)] {
        assert_eq!(verdict(FAST_ZERO, 6, offset, length, vault), Err(NbdErrno::NotSupported));
        assert_eq!(verdict(0, 6, offset, length, vault), Ok(()));
    }
    assert_eq!(verdict(FAST_ZERO, 6, vault.size_bytes, 1, vault), Err(NbdErrno::NoSpace));
}

#[test]
fn block_status_needs_a_context() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    let status = parse(&request(REQ_ONE, 7, 9, 0, u32::MAX >> 2));
    assert_eq!(status.validate(vault, &Terms::default()), Err(NbdErrno::Invalid));
    let bare = Terms { structured: true, contexts: Contexts::NONE };
    assert_eq!(status.validate(vault, &bare), Err(NbdErrno::Invalid));
    assert_eq!(modern(REQ_ONE, 7, 0, 1 << 30, vault), Ok(()));
    assert_eq!(modern(0, 7, 1, 1 << 30, vault), Err(NbdErrno::Invalid));
    assert_eq!(modern(0, 7, 0, 0, vault), Err(NbdErrno::Invalid));
}

#[test]
fn a_read_of_four_gigabytes_is_refused_and_one_that_must_not_be_cut_is_told_why() {
    let exports = exports();
    let vault = &exports.as_slice()[0];
    assert_eq!(verdict(0, 0, 0, u32::MAX, vault), Err(NbdErrno::Invalid));
    assert_eq!(modern(0, 0, 0, u32::MAX, vault), Err(NbdErrno::Invalid));
    assert_eq!(modern(DF, 0, 0, MAX_PAYLOAD_BYTES + 1, vault), Err(NbdErrno::Overflow));
    assert_eq!(modern(DF, 0, 0, MAX_PAYLOAD_BYTES, vault), Ok(()));
}

#[test]
fn only_reads_and_block_status_get_structured_replies() {
    let terms = Terms { structured: true, contexts: Contexts::NONE };
    for code in 0..10 {
        let request = parse(&request(0, code, 1, 0, 512));
        assert_eq!(request.wants_structured(&terms), code == 0 || code == 7, "{code}");
        assert!(!request.wants_structured(&Terms::default()));
    }
}

#[test]
fn chunks_byte_by_byte() {
    let cookie = 0x0102_0304_0506_0708;
    assert_eq!(
        &data_chunk(cookie, false, 0x1000, 3),
        b"\x66\x8e\x33\xef\0\0\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0b\0\0\0\0\0\0\x10\0"
    );
    assert_eq!(
        &hole_chunk(1, true, 0x2000, 0x1234),
        b"\x66\x8e\x33\xef\0\x01\0\x02\0\0\0\0\0\0\0\x01\0\0\0\x0c\0\0\0\0\0\0\x20\0\0\0\x12\x34"
    );
    assert_eq!(
        error_chunk(1, NbdErrno::Invalid),
        b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x01\0\0\0\x16\0\0\0\x16\0\x10invalid argument"
    );
}

#[test]
fn block_status_byte_by_byte() {
    use Placement::*;
    let extents = [(10, Fast), (20, Slow), (30, Hole), (40, Hole), (50, Landed), (60, Lost)];
    let told = |context, one: bool| {
        let mut out = Vec::new();
        status_chunk(&mut out, 1, !one, context, extents, one);
        let (head, body) = out.split_at(20);
        assert_eq!(head[..4], *b"\x66\x8e\x33\xef");
        assert_eq!(head[4..6], u16::from(!one).to_be_bytes());
        assert_eq!(head[6..16], *b"\0\x05\0\0\0\0\0\0\0\x01");
        assert_eq!(head[16..], (body.len() as u32).to_be_bytes());
        body.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(told(MetaContext::Allocation, false), [1, 30, 0, 70, 3, 110, 0]);
    assert_eq!(told(MetaContext::Allocation, true), [1, 30, 0]);
    assert_eq!(told(MetaContext::Tier, false), [2, 10, 1, 20, 2, 70, 0, 50, 3, 60, 4]);
    assert_eq!(told(MetaContext::Tier, true), [2, 10, 1]);
}

#[test]
fn chunks_are_understood_by_the_client() {
    let mut out = Vec::new();
    status_chunk(&mut out, 5, true, MetaContext::Tier, [(4096, Placement::Slow)], false);
    let extents = vec![Extent { length: 4096, word: 2 }];
    let cases = [
        (data_chunk(5, true, 9, 7).to_vec(), Chunk::Data { offset: 9, length: 7 }),
        (hole_chunk(5, true, 9, 7).to_vec(), Chunk::Hole { offset: 9, length: 7 }),
        (out, Chunk::Status { context: 2, extents }),
        (
            error_chunk(5, NbdErrno::Overflow),
            Chunk::Error { error: NbdErrno::Overflow, message: "value too large".into() },
        ),
    ];
    for (bytes, chunk) in cases {
        for length in 0..bytes.len() {
            assert_eq!(parse_chunk(&bytes[..length]), Ok(None), "cut to {length}");
        }
        let head = ChunkHead { cookie: 5, done: true };
        assert_eq!(parse_chunk(&bytes), Ok(Some((bytes.len(), head, chunk))));
        let mut nonsense = bytes.clone();
        nonsense[16] = 0xff;
        assert!(matches!(parse_chunk(&nonsense), Err(ClientError::BadChunk { .. })));
    }
    let empty = data_chunk(5, false, 0, 0);
    assert_eq!(parse_chunk(&empty), Err(ClientError::BadChunk { kind: 1 }), "it could go on for ever");
}

#[test]
fn reply_headers() {
    assert_eq!(
        &simple_reply(0x0102_0304_0506_0708, None),
        b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08"
    );
    assert_eq!(&simple_reply(1, Some(NbdErrno::NoSpace))[4..8], b"\0\0\0\x1c");
}

#[test]
fn error_numbers_go_there_and_back() {
    for code in [1, 5, 12, 22, 28, 75, 95, 108] {
        assert_eq!(NbdErrno::from_code(code).code(), code);
    }
    assert_eq!(NbdErrno::from_code(4242), NbdErrno::Invalid);
}
