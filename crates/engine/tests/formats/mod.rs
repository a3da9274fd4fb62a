//! What both the fuzzer and the plain tests do with bytes that claim to be from a device. The first byte says
//! what they are, the rest is the body behind a seal, which is made whole: a checksum is no obstacle to malice,
//! and would be one to a fuzzer. What parses must come back the same when it is written and parsed again.

use bimetal_engine::format::codec::{Get, Put, seal};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::hints::{Hints, HintsOf};
use bimetal_engine::format::log::{GroupHeader, Index, Record, SegmentHeader};
use bimetal_engine::format::page::{self, PageKind};
use bimetal_engine::format::pins::{get_pins, put_pins};
use bimetal_engine::format::scrub::{get_scrub, put_scrub};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::*;

pub const VOLUME: [u8; 16] = [7; 16];
/// The stop whose hints are tried.
pub const HINTS_OF: HintsOf = HintsOf {
    volume: VOLUME,
    generation: Generation(3),
    checkpoint: 9,
    part_blocks: 1,
    touch_ns: 1_000_000_000,
};
const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks of the longest structure that is tried.
const BLOCKS: usize = 8;

fn sealed(magic: &[u8; 8], body: &[u8], blocks: usize) -> Vec<u8> {
    let mut out = vec![0; blocks * BLOCK];
    let room = out.len() - 16;
    seal(&mut out, magic, &body[..body.len().min(room)]);
    out
}

/// Superblocks, checkpoint headers, segment headers, pages, hints.
pub fn metadata(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    match kind % 5 {
        0 => superblock(&sealed(b"BMTLsupr", body, 1)),
        1 => checkpoint_header(&sealed(b"BMTLckpt", body, 1)),
        2 => segment_header(&sealed(b"BMTLsegm", body, 1)),
        4 => hints(&sealed(b"BMTLhint", body, 1)),
        _ => pages(&sealed(b"BMTLpage", body, 1)),
    }
}

fn superblock(block: &[u8]) {
    let Found::Valid(s) = Superblock::decode(block, 0) else { return };
    let g = &s.geometry;
    // What the layout promises to whoever uses it.
    for tier in [FAST, SLOW] {
        let last = Home { tier, slot: Slot(g.slots(tier).saturating_sub(1)) };
        let end = g.slot_at(last) + u64::from(g.chunk_bytes);
        assert!(g.slots(tier) == 0 || end <= g.device_bytes[usize::from(tier.0)]);
    }
    assert!(g.area_at(Area(g.areas)) <= g.second_superblock_at(FAST));
    assert!(g.page_at(g.pages() - 1, 1) < g.device_bytes[0]);
    assert!(g.mirror_at.is_none_or(|at| at + g.mirror_bytes() <= g.second_superblock_at(FAST)));
    assert!(g.volume_bytes() > 0 && g.zone_areas() > 1);
    let mut again = vec![0; BLOCK];
    s.encode(&mut again, 0);
    assert!(matches!(Superblock::decode(&again, 0), Found::Valid(t) if t == s));
}

fn hints(block: &[u8]) {
    let Some((hints, next)) = Hints::decode(block, &HINTS_OF, 4) else { return };
    let mut again = vec![0; BLOCK];
    hints.encode(&mut again, &HINTS_OF, 4, next);
    assert_eq!(Hints::decode(&again, &HINTS_OF, 4), Some((hints, next)));
}

fn checkpoint_header(block: &[u8]) {
    for place in 0..2 {
        let Some(header) = CheckpointHeader::decode(block, &VOLUME, place) else { continue };
        let mut again = vec![0; BLOCK];
        header.encode(&mut again, &VOLUME);
        assert_eq!(CheckpointHeader::decode(&again, &VOLUME, place), Some(header));
    }
}

fn segment_header(block: &[u8]) {
    let Some(header) = SegmentHeader::decode(block, &VOLUME, Area(9)) else { return };
    let mut again = vec![0; BLOCK];
    header.encode(&mut again, &VOLUME);
    assert_eq!(SegmentHeader::decode(&again, &VOLUME, Area(9)), Some(header));
}

fn pages(block: &[u8]) {
    use PageKind::{Directory, Map, Pins, Root, Scrub, Sums};
    for kind in [Map, Sums, Root, Directory, Pins, Scrub] {
        let Some((payload, _)) = page::decode(block, kind, &VOLUME, 4) else { continue };
        assert!(payload.len() <= page::PAGE_PAYLOAD);
        // Masks of one word and of the most there can be.
        for words in [1, 32] {
            let mut get = Get(payload);
            while let Some((home, valid)) = page::get_map_entry(&mut get, words) {
                let mut again = Vec::new();
                page::put_map_entry(&mut again, home, words, &valid);
                assert_eq!(page::get_map_entry(&mut Get(&again), words), Some((home, valid)));
            }
        }
        if let Some(scrub) = get_scrub(payload, 1000, 1 << 40) {
            let mut again = Vec::new();
            put_scrub(&mut again, &scrub);
            assert_eq!(get_scrub(&again, 1000, 1 << 40), Some(scrub));
        }
        if let Some(pins) = get_pins(payload, 1000) {
            let mut again = Vec::new();
            put_pins(&mut again, &pins);
            assert_eq!(get_pins(&again, 1000), Some(pins));
        }
        let mut get = Get(payload);
        while let Some(version) = page::get_ref(&mut get) {
            let mut again = Vec::new();
            page::put_ref(&mut again, version);
            assert_eq!(page::get_ref(&mut Get(&again)), Some(version));
        }
    }
}

/// Groups, indexes, trailers, bare records.
pub fn log(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    match kind % 4 {
        0 => group(&sealed(b"BMTLgrup", body, BLOCKS)),
        1 => index(&sealed(b"BMTLindx", body, BLOCKS)),
        2 => drop(Index::decode_trailer(&sealed(b"BMTLindx", body, 1), &VOLUME, 2)),
        _ => [1, 2, 32].iter().for_each(|words| records(body, *words)),
    }
}

fn group(blocks: &[u8]) {
    assert!(GroupHeader::claimed_blocks(blocks) as usize <= BLOCKS);
    let Some((header, bytes, length)) = GroupHeader::decode(blocks, &VOLUME) else { return };
    assert!(length >= header.payload_blocks);
    records(bytes, 1);
    let mut again = vec![0; blocks.len()];
    header.encode(&mut again, &VOLUME, bytes);
    assert_eq!(GroupHeader::decode(&again, &VOLUME), Some((header, bytes, length)));
}

fn index(blocks: &[u8]) {
    let Some(index) = Index::decode(blocks, &VOLUME, 2) else { return };
    let mut again = Index::default();
    for (seq, offset, header_blocks, bytes) in index.groups().flatten() {
        records(bytes, 1);
        again.add(seq, index.epoch, offset, header_blocks, bytes);
    }
    let mut out = vec![0; Index::blocks(again.entries.len()) as usize * BLOCK];
    again.encode(&mut out, &VOLUME, 2);
    let body = Index::blocks(again.entries.len()) - 1;
    assert_eq!(Index::decode_trailer(&out[body as usize * BLOCK..], &VOLUME, 2), Some(body));
    assert!(index.groups().flatten().eq(again.groups().flatten()));
}

fn records(bytes: &[u8], words: usize) {
    let mut get = Get(bytes);
    while let Some(record) = Record::decode(&mut get, words) {
        let mut again = Vec::new();
        record.encode(&mut again, words);
        assert!(again.len() <= bytes.len());
        assert_eq!(Record::decode(&mut Get(&again), words), Some(record));
    }
}

/// An input: what it is, and the body of a sealed structure that the engine wrote.
pub fn input(kind: u8, sealed: &[u8]) -> Vec<u8> {
    let mut length = Get(&sealed[12..]);
    let length = length.u32().expect("a length") as usize;
    let mut out = Vec::new();
    Put(&mut out).u8(kind).bytes(&sealed[16..16 + length]);
    out
}
