//! Negotiation, both sides: how a stream is cut in two changes nothing. The first byte says where to cut.
#![no_main]

use std::sync::Arc;

use bimetal_nbd::{ClientHandshake, Contexts, Export, Exports, Handshake, MetaContext, Terms};
use libfuzzer_sys::fuzz_target;

fn exports() -> Arc<Exports> {
    let export = |name: &str, read_only| Export {
        name: name.into(),
        description: "d".into(),
        size_bytes: 1 << 30,
        read_only,
    };
    Arc::new(Exports::new(vec![export("vault", false), export("attic", true)]).expect("they are sound"))
}

fn server(first: usize, stream: &[u8]) -> (Vec<u8>, String) {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(exports(), &mut out);
    let mut used = 0;
    let mut end = String::new();
    for received in [first, stream.len()] {
        match handshake.on_bytes(&stream[used..received], &mut out) {
            Ok((consumed, step)) => {
                assert!(consumed <= received - used);
                used += consumed;
                end = format!("{used} {step:?}");
            }
            Err(error) => return (out, error.to_string()),
        }
    }
    (out, end)
}

fn client(wishes: Terms, first: usize, stream: &[u8]) -> (Vec<u8>, String) {
    let mut out = Vec::new();
    let mut handshake = ClientHandshake::wishing("vault", wishes).expect("the name is short");
    let mut used = 0;
    let mut end = String::new();
    for received in [first, stream.len()] {
        match handshake.on_bytes(&stream[used..received], &mut out) {
            Ok((consumed, step)) => {
                assert!(consumed <= received - used);
                used += consumed;
                end = format!("{used} {step:?}");
            }
            Err(error) => return (out, error.to_string()),
        }
    }
    (out, end)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, stream)) = data.split_first() else { return };
    let cut = usize::from(cut).min(stream.len());
    assert_eq!(server(cut, stream), server(stream.len(), stream));
    let contexts = Contexts::NONE.with(MetaContext::Allocation).with(MetaContext::Tier);
    for wishes in [Terms::default(), Terms { structured: true, contexts }] {
        assert_eq!(client(wishes, cut, stream), client(wishes, stream.len(), stream));
    }
});
