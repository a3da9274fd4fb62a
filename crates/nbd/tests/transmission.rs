//! Each path of the request parser, of validation and of the reply header.

mod common;

use bimetal_nbd::limits::MAX_PAYLOAD_BYTES;
use bimetal_nbd::{
    Command, Export, NbdErrno, Parse, ProtocolError, Request, Transmission, encode_request, simple_reply,
};
use common::{exports, request, run_transmission};

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const FAST_ZERO: u16 = 16;

fn parse(bytes: &[u8]) -> Request {
    match Transmission::new().next(bytes) {
        Ok(Parse::Request { consumed: 28, request }) => request,
        other => panic!("no request: {other:?}"),
    }
}

fn verdict(flags: u16, command: u16, offset: u64, length: u32, export: &Export) -> Result<(), NbdErrno> {
    parse(&request(flags, command, 9, offset, length)).validate(export)
}

#[test]
fn every_command_is_parsed_and_encoded_back() {
    let commands = [
        (0, Command::Read),
        (1, Command::Write),
        (2, Command::Disconnect),
        (3, Command::Flush),
        (4, Command::Trim),
        (5, Command::Unknown(5)),
        (6, Command::WriteZeroes),
        (7, Command::Unknown(7)),
        (u16::MAX, Command::Unknown(u16::MAX)),
    ];
    for (code, command) in commands {
        for flags in [0, FUA, NO_HOLE, FUA | NO_HOLE, DF, FAST_ZERO, u16::MAX] {
            let bytes = request(flags, code, 0x0123_4567_89ab_cdef, 0x1122_3344_5566_7788, 0x0102_0304);
            let parsed = parse(&bytes);
            assert_eq!(parsed.command, command);
            assert_eq!(parsed.cookie, 0x0123_4567_89ab_cdef);
            assert_eq!((parsed.offset, parsed.length), (0x1122_3344_5566_7788, 0x0102_0304));
            assert_eq!(parsed.fua, flags & FUA != 0);
            assert_eq!(parsed.no_hole, flags & NO_HOLE != 0 && command == Command::WriteZeroes);
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
    for (command, beyond) in
        [(0, NbdErrno::Invalid), (1, NbdErrno::NoSpace), (4, NbdErrno::Invalid), (6, NbdErrno::NoSpace)]
    {
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
    assert_eq!(verdict(FAST_ZERO, 6, 0, 512, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(NO_HOLE, 1, 0, 512, vault), Err(NbdErrno::Invalid));
    assert_eq!(verdict(DF, 0, 0, 512, vault), Err(NbdErrno::Invalid));
}

#[test]
fn a_read_only_export_refuses_what_writes() {
    let exports = exports();
    let attic = &exports.as_slice()[1];
    for command in [1, 4, 6] {
        assert_eq!(verdict(0, command, 0, 512, attic), Err(NbdErrno::NotPermitted));
    }
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
    assert_eq!(verdict(0, 5, 0, 512, vault), Err(NbdErrno::Invalid));
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
