//! The client and the server of this crate talk to each other in memory, in pieces of every small size.

mod common;

use std::collections::VecDeque;

use bimetal_nbd::{
    BlockSize, ClientError, ClientHandshake, ClientStep, Command, Contexts, Handshake, HandshakeStep,
    MetaContext, NbdErrno, Parse, RemoteExport, Request, SIMPLE_REPLY_BYTES, Terms, Transmission,
    TransmissionFlags, encode_request, parse_simple_reply, simple_reply,
};
use common::exports;

/// One direction of a connection: what was sent, and what has arrived but is not used up.
#[derive(Default)]
struct Pipe {
    sent: VecDeque<u8>,
    received: Vec<u8>,
}

impl Pipe {
    fn send(&mut self, bytes: &mut Vec<u8>) {
        self.sent.extend(bytes.drain(..));
    }

    /// Delivers up to `count` bytes; false where there were none.
    fn deliver(&mut self, count: usize) -> bool {
        let count = count.min(self.sent.len());
        self.received.extend(self.sent.drain(..count));
        count > 0
    }
}

type Negotiated = (Result<ClientStep, ClientError>, HandshakeStep);

/// Negotiates until nobody has anything more to say.
fn negotiate(name: &str, wishes: Terms, piece: usize) -> Negotiated {
    let (mut up, mut down, mut out) = (Pipe::default(), Pipe::default(), Vec::new());
    let mut server = Handshake::new(exports(), &mut out);
    let mut client = ClientHandshake::wishing(name, wishes).unwrap();
    let mut client_end;
    let mut server_end = HandshakeStep::NeedMore;
    down.send(&mut out);
    loop {
        let mut moved = down.deliver(piece);
        match client.on_bytes(&down.received, &mut out) {
            Ok((consumed, step)) => {
                down.received.drain(..consumed);
                client_end = step;
            }
            Err(error) => return (Err(error), server_end),
        }
        up.send(&mut out);
        moved |= up.deliver(piece);
        let (consumed, step) = server.on_bytes(&up.received, &mut out).unwrap();
        up.received.drain(..consumed);
        server_end = step;
        down.send(&mut out);
        if !moved {
            return (Ok(client_end), server_end);
        }
    }
}

#[test]
fn both_sides_agree_on_an_export() {
    for piece in 1..100 {
        let (client, server) = negotiate("vault", Terms::default(), piece);
        let Ok(ClientStep::Transmission(RemoteExport { size_bytes, flags, block_size, .. })) = client else {
            panic!("the client was not granted its export: {client:?}");
        };
        assert_eq!(size_bytes, 1 << 30);
        assert!(flags.contains(TransmissionFlags::HAS_FLAGS.union(TransmissionFlags::CAN_MULTI_CONN)));
        let announced = BlockSize { minimum: 1, preferred: 4096, maximum: 32 << 20 };
        assert_eq!(block_size, Some(announced));
        assert!(matches!(server, HandshakeStep::Transmission { export, .. } if export.get() == 0));
    }
}

#[test]
fn both_sides_agree_on_terms() {
    let contexts = MetaContext::ALL.into_iter().fold(Contexts::NONE, Contexts::with);
    let all = Terms { structured: true, contexts };
    let tier = Terms { structured: true, contexts: Contexts::NONE.with(MetaContext::Tier) };
    let structured = Terms { structured: true, contexts: Contexts::NONE };
    for wishes in [all, tier, structured, Terms::default()] {
        for piece in 1..60 {
            let (client, server) = negotiate("vault", wishes, piece);
            let Ok(ClientStep::Transmission(export)) = client else {
                panic!("the client was not granted its export: {client:?}");
            };
            assert_eq!(export.terms, wishes);
            assert_eq!(export.flags.contains(TransmissionFlags::SEND_DF), wishes.structured);
            assert!(matches!(server, HandshakeStep::Transmission { terms, .. } if terms == wishes));
        }
    }
    let (client, _) = negotiate("cellar", all, 7);
    assert!(matches!(client, Err(ClientError::Refused { code: 6, .. })), "{client:?}");
}

#[test]
fn a_refusal_reaches_the_client_with_its_reason() {
    let (client, server) = negotiate("cellar", Terms::default(), 7);
    let message = "there is no export of this name".to_owned();
    assert_eq!(client, Err(ClientError::Refused { code: 6, message }));
    assert_eq!(server, HandshakeStep::NeedMore);
}

#[test]
fn the_client_rejects_what_is_no_nbd_server() {
    let mut out = Vec::new();
    let too_long = ClientHandshake::new(&"x".repeat(4097)).unwrap_err();
    assert_eq!(too_long, ClientError::NameTooLong { length: 4097 });
    for greeting in
        [b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53\0\0", b"SSH-2.0-OpenSSH_10", b"NBDMAGICIHAVEOPT\0\0"]
    {
        let mut client = ClientHandshake::new("").unwrap();
        assert_eq!(client.on_bytes(greeting, &mut out), Err(ClientError::BadGreeting));
    }
    let mut client = ClientHandshake::new("").unwrap();
    let mut bytes = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    bytes.extend([0; 20]);
    assert_eq!(client.on_bytes(&bytes, &mut out), Err(ClientError::BadOptionReply));
    assert_eq!(client.on_bytes(&[], &mut out), Err(ClientError::BadOptionReply), "an error must stick");
}

/// A server over a plain buffer, with the loop a driver has.
fn serve(stream: &[u8], disk: &mut [u8]) -> Vec<u8> {
    let exports = exports();
    let export = &exports.as_slice()[0];
    let (mut parser, mut at, mut out) = (Transmission::new(), 0, Vec::new());
    while let Parse::Request { consumed, request } = parser.next(&stream[at..]).unwrap() {
        at += consumed;
        let payload = &stream[at..at + request.payload_bytes() as usize];
        at += payload.len();
        if request.command == Command::Disconnect {
            break;
        }
        let error = request.validate(export, &Terms::default()).err();
        out.extend(simple_reply(request.cookie, error));
        if error.is_some() {
            continue;
        }
        let range = request.offset as usize..request.offset as usize + request.length as usize;
        match request.command {
            Command::Read => out.extend(&disk[range]),
            Command::Write => disk[range].copy_from_slice(payload),
            Command::Trim | Command::WriteZeroes => disk[range].fill(0),
            _ => {}
        }
    }
    out
}

#[test]
fn requests_are_answered_and_an_invalid_write_is_skipped() {
    let mut stream = Vec::new();
    let mut ask = |request: Request, payload: &[u8]| {
        stream.extend(encode_request(&request));
        stream.extend(payload);
    };
    ask(Request::new(1, Command::Write, 2, 4).with_fua(), b"abcd");
    ask(Request::new(2, Command::Write, 1 << 30, 4), b"lost");
    ask(Request::new(3, Command::WriteZeroes, 3, 1), b"");
    ask(Request::new(4, Command::Unknown(99), 0, 1), b"");
    ask(Request::new(5, Command::Flush, 0, 0), b"");
    ask(Request::new(6, Command::Read, 0, 8), b"");
    ask(Request::new(7, Command::Disconnect, 0, 0), b"");
    let out = serve(&stream, &mut [b'.'; 8]);
    let expected = [
        (1, Ok(())),
        (2, Err(NbdErrno::NoSpace)),
        (3, Ok(())),
        (4, Err(NbdErrno::Invalid)),
        (5, Ok(())),
        (6, Ok(())),
    ];
    for (place, (cookie, result)) in expected.into_iter().enumerate() {
        let reply = parse_simple_reply(&out[place * SIMPLE_REPLY_BYTES..]).unwrap().unwrap();
        assert_eq!((reply.cookie, reply.result), (cookie, result));
    }
    assert_eq!(&out[expected.len() * SIMPLE_REPLY_BYTES..], b"..a\0cd..");
}

#[test]
fn simple_replies_wait_for_their_whole_header_and_check_magic() {
    let header = simple_reply(5, Some(NbdErrno::Io));
    for length in 0..SIMPLE_REPLY_BYTES {
        assert_eq!(parse_simple_reply(&header[..length]), Ok(None));
    }
    assert_eq!(parse_simple_reply(&[0; 16]), Err(ClientError::BadReplyMagic { found: 0 }));
}

/// A server's greeting, and its yes to STARTTLS.
fn ready_for_tls() -> (Vec<u8>, Vec<u8>) {
    let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
    greeting.extend_from_slice(&3u16.to_be_bytes());
    let mut yes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
    [5u32, 1, 0].iter().for_each(|field| yes.extend_from_slice(&field.to_be_bytes()));
    (greeting, yes)
}

#[test]
fn a_client_that_wants_encryption_says_nothing_else_before() {
    let (greeting, yes) = ready_for_tls();
    let mut client = ClientHandshake::new("a secret name").unwrap().securely();
    let mut out = Vec::new();
    assert_eq!(client.on_bytes(&greeting, &mut out), Ok((18, ClientStep::NeedMore)));
    // Its flags, and STARTTLS without data.
    let asked = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &5u32.to_be_bytes(), &0u32.to_be_bytes()].concat();
    assert_eq!(out, asked);
    out.clear();
    assert_eq!(client.on_bytes(&yes, &mut out), Ok((20, ClientStep::Secure)));
    assert!(out.is_empty());
    client.secured(&mut out);
    assert!(out.windows(13).any(|bytes| bytes == b"a secret name"), "negotiation goes on");
    // What stands behind the yes was not encrypted: anybody could have put it there.
    let mut client = ClientHandshake::new("").unwrap().securely();
    client.on_bytes(&greeting, &mut out).unwrap();
    let more = [&yes[..], &[0]].concat();
    assert_eq!(client.on_bytes(&more, &mut out), Err(ClientError::TalksOn));
}

#[test]
fn a_server_that_does_not_encrypt_is_left() {
    let (mut down, mut up) = (Vec::new(), Vec::new());
    let mut server = Handshake::new(exports(), &mut down);
    let mut client = ClientHandshake::new("vault").unwrap().securely();
    client.on_bytes(&down, &mut up).unwrap();
    down.clear();
    server.on_bytes(&up, &mut down).unwrap();
    up.clear();
    let refused = client.on_bytes(&down, &mut up);
    assert!(matches!(refused, Err(ClientError::NotSecure { code: 1, .. })), "{refused:?}");
    assert!(up.is_empty(), "it goes on without");
}
