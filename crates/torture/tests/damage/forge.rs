//! Structures that lie under a correct checksum: what bad luck does not make, and malice does.

use super::image::{get, reseal};
use super::patient::{At, Patient};
use crate::story::BLOCK;
use bimetal_engine::format::codec::seal_sum;
use bimetal_engine::format::geometry::header_at;
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::log::{HomeRecord, Index, Record};
use bimetal_engine::format::page::{self, REF_BYTES, REFS_PER_PAGE};
use bimetal_engine::mask::BlockMask;
use bimetal_engine::sectors::{Remains, Sectors};
use bimetal_units::rng::Rng;
use bimetal_units::*;

/// A number that is likely to hurt.
fn nasty(old: u64, rng: &mut Rng) -> u64 {
    let edge = 1 << rng.below(64);
    match rng.below(8) {
        0 => 0,
        1 => u64::MAX - rng.below(3),
        2 => u64::from(u32::MAX) - rng.below(3),
        3 => old.wrapping_add(rng.below(5)).wrapping_sub(2),
        4 => edge,
        5 => edge - 1,
        6 => rng.below(1000),
        _ => rng.next_u64(),
    }
}

/// Puts wrong numbers into fields from byte `from` of a sealed structure, and seals it again.
fn twist(bytes: &mut [u8], from: usize, rng: &mut Rng) {
    let len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let end = (16 + len).min(bytes.len());
    if end < from + 8 {
        return;
    }
    for _ in 0..rng.range(1, 3) {
        let size = rng.pick(&[1, 4, 4, 8]);
        let at = from + rng.below((end - from) as u64) as usize / size * size;
        let at = at.min(end - size);
        let mut old = [0; 8];
        old[..size].copy_from_slice(&bytes[at..at + size]);
        let new = nasty(u64::from_le_bytes(old), rng).to_le_bytes();
        bytes[at..at + size].copy_from_slice(&new[..size]);
    }
    if rng.one_in(10) {
        let len = rng.below((end - 15) as u64) as u32;
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
    }
    reseal(bytes);
}

fn twist_at(p: &mut Patient<'_>, at: At, from: usize, rng: &mut Rng) -> bool {
    let mut bytes = p.get(at);
    let len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
    // Another damage may have been here before.
    if u64::from(len) > BLOCK - 16 {
        return false;
    }
    twist(&mut bytes, from, rng);
    p.put(at, &bytes)
}

pub fn superblock(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let at = p.superblock(rng.below(2) as usize, rng.below(2));
    twist_at(p, at, 40, rng)
}

/// The same lie in all four.
pub fn superblocks(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let alike = rng.clone();
    (0..4).for_each(|i| {
        let at = p.superblock(i / 2, i as u64 % 2);
        // Behind what differs between them.
        twist_at(p, at, 56, &mut alike.clone());
    });
    rng.next_u64();
    true
}

pub fn header(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let place = (p.scene.layout.header.number + u64::from(rng.one_in(4))) % 2;
    twist_at(p, (0, header_at(place) / BLOCK + rng.below(2)), 32, rng)
}

/// Twists one of these blocks of the fast device; which one, if anything changed.
fn twist_one(p: &mut Patient<'_>, blocks: &[u64], from: usize, rng: &mut Rng) -> Option<u64> {
    let at = rng.pick(blocks);
    twist_at(p, (0, at), from, rng).then_some(at)
}

pub fn root(p: &mut Patient<'_>, rng: &mut Rng) -> Option<u64> {
    twist_one(p, &p.scene.layout.root, if rng.one_in(2) { 56 } else { 32 }, rng)
}

pub fn directory(p: &mut Patient<'_>, rng: &mut Rng) -> Option<u64> {
    twist_one(p, &p.scene.layout.directory, if rng.one_in(2) { 56 } else { 32 }, rng)
}

pub fn map_page(p: &mut Patient<'_>, rng: &mut Rng) -> Option<u64> {
    twist_one(p, &p.scene.layout.map_pages, 48, rng)
}

pub fn sum_page(p: &mut Patient<'_>, rng: &mut Rng) -> Option<u64> {
    twist_one(p, &p.scene.layout.sum_pages, 48, rng)
}

/// Puts another checksum into a reference, and seals the page that it stands in.
fn refer(p: &mut Patient<'_>, at: u64, entry: u32, sum: u32) {
    let mut bytes = p.get((0, at));
    let from = 56 + entry as usize * REF_BYTES + 1;
    bytes[from..from + 4].copy_from_slice(&sum.to_le_bytes());
    reseal(&mut bytes);
    p.put((0, at), &bytes);
}

fn sum_of(p: &Patient<'_>, at: u64) -> u32 {
    seal_sum(&p.get((0, at))).expect("a block is longer than its seal")
}

/// Makes all that refers to a page, up to the header, name it as it is now.
pub fn vouch_for(p: &mut Patient<'_>, at: u64) -> bool {
    let layout = &p.scene.layout;
    let (geo, first) = (&layout.geo, layout.geo.map_at / BLOCK);
    let number = (at - first) as u32 / 2;
    let sum = sum_of(p, at);
    if number < geo.table_pages() {
        let parent = number / REFS_PER_PAGE;
        let Some(parent_at) = layout.directory.get(parent as usize).copied() else { return false };
        refer(p, parent_at, number % REFS_PER_PAGE, sum);
        vouch_for(p, parent_at)
    } else {
        refer(p, layout.root[0], number - geo.table_pages(), sum);
        vouch_for_root(p)
    }
}

/// Makes the header name the root as it is now.
pub fn vouch_for_root(p: &mut Patient<'_>) -> bool {
    let layout = &p.scene.layout;
    let sum = layout.root.iter().fold(0, |so_far, at| page::root_sum(so_far, sum_of(p, *at)));
    let mut block = vec![0; BLOCK as usize];
    let header = CheckpointHeader { root_sum: sum, ..layout.header.clone() };
    header.encode(&mut block, &layout.superblocks[0].volume);
    let at = p.newest_header();
    (0..2).all(|copy| p.put((0, at + copy), &block))
}

pub fn segment_header(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let at = p.segment(rng).at;
    twist_at(p, (0, at), 32, rng)
}

pub fn group_header(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let group = if rng.one_in(2) { p.last_group() } else { p.group(rng) };
    twist_at(p, (0, group.at), 32, rng)
}

fn mask(rng: &mut Rng) -> BlockMask {
    match rng.below(4) {
        0 => BlockMask::EMPTY,
        1 => BlockMask::range(0, 16),
        _ => BlockMask::from_words([rng.next_u64() as u32].into_iter()),
    }
}

/// Records as the engine writes them, with any numbers.
fn records(p: &Patient<'_>, rng: &mut Rng) -> (Vec<u8>, u32) {
    let geo = &p.scene.layout.geo;
    let (mut out, mut payload) = (Vec::new(), 0);
    for _ in 0..rng.range(1, 6) {
        let near = rng.below(p.scene.blocks);
        let block = Block(if rng.one_in(4) { nasty(p.scene.blocks, rng) } else { near });
        let record = match rng.below(7) {
            0 => Record::Data {
                block,
                sums: vec![1; rng.below(40) as usize],
                sectors: Sectors::ALL,
                lost: false,
            },
            4 => Record::Data { block, sums: vec![1], sectors: Sectors::touching(0, 512), lost: true },
            5 => {
                let chunk = Chunk(nasty(u64::from(geo.chunks), rng) as u32);
                let remains = Remains { landed: Sectors::touching(0, 512), sum: 3 };
                let rest = |rng: &mut Rng| (nasty(16, rng) as u16 as u32, remains);
                Record::Merging { chunk, rests: (0..rng.below(20)).map(|_| rest(rng)).collect() }
            }
            1 => Record::Discard { block, count: nasty(16, rng) as u32 },
            2 => Record::Bad { block, was: LogPos(nasty(1 << 20, rng)) },
            6 => {
                let back = nasty(u64::from(payload), rng) as u16;
                Record::Shared { block, sectors: Sectors::touching(512, 4096), back }
            }
            _ => {
                let summed = mask(rng);
                let slot = Slot(nasty(u64::from(geo.slow_slots), rng) as u32);
                let home = Home { tier: rng.pick(&[FAST, SLOW]), slot };
                let wild = nasty(u64::from(geo.chunks), rng) as u32;
                let near = rng.below(u64::from(geo.chunks)) as u32;
                Record::Home(Box::new(HomeRecord {
                    chunk: Chunk(if rng.one_in(2) { wild } else { near }),
                    home: (!rng.one_in(4)).then_some(home),
                    ends: LogPos(nasty(1 << 20, rng)),
                    valid: mask(rng),
                    summed,
                    sums: vec![2; summed.count() as usize],
                }))
            }
        };
        payload += record.payload_blocks();
        record.encode(&mut out, geo.mask_words());
    }
    (out, payload)
}

/// A group in its place, with its own numbers, and records that are well made and wrong.
pub fn group_records(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let group = if rng.one_in(2) { p.last_group() } else { p.group(rng) };
    let (records, payload) = records(p, rng);
    let mut header = group.header;
    if rng.one_in(2) {
        header.payload_blocks = payload;
    }
    let mut block = vec![0; BLOCK as usize];
    header.encode(&mut block, &p.scene.layout.superblocks[0].volume, &records);
    p.put((0, group.at), &block)
}

/// An index in its place that names what is not there.
pub fn index(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let Some((at, blocks)) = p.index(rng) else { return false };
    let volume = p.scene.layout.superblocks[0].volume;
    let area = at / p.scene.layout.area_blocks();
    let whole = |s: &&super::image::Segment| s.at / p.scene.layout.area_blocks() == area;
    let Some(segment) = p.scene.layout.segments.iter().find(whole).copied() else { return false };
    let mut bytes = get(&p.disks[0], at, blocks + 1);
    let Some(old) = Index::decode(&bytes, &volume, segment.header.ordinal) else { return false };
    let mut new = Index::default();
    for (seq, offset, head, old_records) in old.groups().flatten() {
        let offset = if rng.one_in(5) { nasty(u64::from(offset), rng) as u32 } else { offset };
        let head = if rng.one_in(5) { nasty(u64::from(head), rng) as u32 } else { head };
        let seq = if rng.one_in(20) { Seq(nasty(seq.0, rng)) } else { seq };
        let wrong = rng.one_in(5).then(|| records(p, rng).0);
        let records = wrong.as_deref().unwrap_or(old_records);
        new.add(seq, old.epoch, offset, head, records);
    }
    if rng.one_in(8) {
        new.last = Seq(nasty(new.last.0, rng));
    }
    // It must be found from its trailer, whose length stays as it is.
    let room = (blocks * BLOCK) as usize - 56;
    new.entries.resize(new.entries.len().min(room), 0);
    new.encode(&mut bytes, &volume, segment.header.ordinal);
    let changed = |i: &u64| p.put((0, at + i), &bytes[(i * BLOCK) as usize..][..BLOCK as usize]);
    (0..blocks).filter(changed).count() > 0
}

pub fn trailer(p: &mut Patient<'_>, rng: &mut Rng) -> bool {
    let Some((at, blocks)) = p.index(rng) else { return false };
    twist_at(p, (0, at + blocks), 32, rng)
}
