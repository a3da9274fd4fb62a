//! Requests and replies: what parses is encoded back to the same bytes, and nothing panics.
#![no_main]

use bimetal_nbd::{Export, Parse, Transmission, encode_request, parse_simple_reply, simple_reply};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let export =
        Export { name: String::new(), description: String::new(), size_bytes: 1 << 30, read_only: false };
    let mut parser = Transmission::new();
    let mut rest = data;
    while let Ok(Parse::Request { consumed, request }) = parser.next(rest) {
        assert_eq!(encode_request(&request)[..], rest[..consumed]);
        let _ = request.validate(&export);
        let skip = consumed + request.payload_bytes() as usize;
        let Some(next) = rest.get(skip..) else { break };
        rest = next;
    }
    if let Ok(Some(reply)) = parse_simple_reply(data) {
        let again = parse_simple_reply(&simple_reply(reply.cookie, reply.result.err()));
        assert_eq!(again, Ok(Some(reply)));
    }
});
