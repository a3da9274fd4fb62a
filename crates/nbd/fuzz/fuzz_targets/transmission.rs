//! Requests and replies: what parses is encoded back to the same bytes, and nothing panics.
#![no_main]

use bimetal_nbd::{
    Chunk, Contexts, Export, MetaContext, Parse, Terms, Transmission, data_chunk, encode_request, hole_chunk,
    parse_chunk, parse_simple_reply, simple_reply,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let export =
        Export { name: String::new(), description: String::new(), size_bytes: 1 << 30, read_only: false };
    let mut parser = Transmission::new();
    let mut rest = data;
    while let Ok(Parse::Request { consumed, request }) = parser.next(rest) {
        assert_eq!(encode_request(&request)[..], rest[..consumed]);
        let _ = request.validate(&export, &Terms::default());
        let contexts = Contexts::NONE.with(MetaContext::Allocation).with(MetaContext::Tier);
        let _ = request.validate(&export, &Terms { structured: true, contexts });
        let skip = consumed + request.payload_bytes() as usize;
        let Some(next) = rest.get(skip..) else { break };
        rest = next;
    }
    if let Ok(Some(reply)) = parse_simple_reply(data) {
        let again = parse_simple_reply(&simple_reply(reply.cookie, reply.result.err()));
        assert_eq!(again, Ok(Some(reply)));
    }
    let mut rest = data;
    while let Ok(Some((used, head, chunk))) = parse_chunk(rest) {
        assert!(used > 0 && used <= rest.len());
        let mut skip = used;
        match chunk {
            Chunk::Data { offset, length } => {
                let again = data_chunk(head.cookie, head.done, offset, length);
                assert_eq!(parse_chunk(&again), Ok(Some((again.len(), head, chunk))));
                skip += length as usize;
            }
            Chunk::Hole { offset, length } => {
                let again = hole_chunk(head.cookie, head.done, offset, length);
                assert_eq!(parse_chunk(&again), Ok(Some((again.len(), head, chunk))));
            }
            _ => {}
        }
        let Some(next) = rest.get(skip..) else { break };
        rest = next;
    }
});
