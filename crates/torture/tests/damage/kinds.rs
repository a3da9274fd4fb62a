//! Damage by name. Each function hurts the devices; false when there is nothing to hurt so.

use super::forge;
use super::image::{Group, get, put, reseal};
use super::patient::Patient;
use crate::story::BLOCK;
use bimetal_engine::format::FORMAT;
use bimetal_engine::format::geometry::header_at;
use bimetal_torture::disk::Disk;
use bimetal_units::rng::Rng;
use bimetal_units::*;

/// How a damaged volume must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// It stays closed.
    Refused,
    /// It opens, and no block is lost.
    Unharmed,
    /// It opens; blocks may be errors.
    Open,
    /// It stays closed, or blocks may be errors.
    Safe,
    /// The same, but what a kill left behind the last group known durable may be gone: nothing on the device
    /// tells such a group from one that a power cut tore before it was flushed.
    Tail,
    /// Nothing can tell that it is wrong: only no panic, no hang, no illegal I/O.
    Alive,
}

pub struct Kind {
    pub name: &'static str,
    pub ends: Ends,
    pub hurt: fn(&mut Patient<'_>, &mut Rng) -> bool,
}

const fn kind(name: &'static str, ends: Ends, hurt: fn(&mut Patient<'_>, &mut Rng) -> bool) -> Kind {
    Kind { name, ends, hurt }
}

use Ends::*;

/// All of them.
pub const KINDS: &[Kind] = &[
    kind("one superblock zeroed", Unharmed, |p, r| p.zero(superblock(p, r))),
    kind("one superblock flipped", Unharmed, |p, r| p.flip(superblock(p, r), r)),
    kind("both superblocks of a device flipped", Refused, |p, r| {
        let tier = device(r);
        (0..2).all(|copy| p.flip(p.superblock(tier, copy), r))
    }),
    kind("a superblock of the other device", Safe, |p, r| {
        let (tier, copy) = (device(r), r.below(2));
        let bytes = get(&p.scene.disks[1 - tier], p.superblock(1 - tier, copy).1, 1);
        p.put(p.superblock(tier, copy), &bytes)
    }),
    kind("one superblock of an older opening", Unharmed, |p, r| p.age_at(superblock(p, r), 0)),
    kind("both superblocks of a device of an older opening", Refused, |p, r| {
        let tier = device(r);
        (0..2).all(|copy| p.age_at(p.superblock(tier, copy), 0))
    }),
    kind("all superblocks of an older opening", Refused, |p, _| {
        (0..4).all(|i| p.age_at(p.superblock(i / 2, i as u64 % 2), 0))
    }),
    kind("one device as it was in an older opening", Refused, |p, r| {
        let tier = device(r);
        p.disks[tier] = p.scene.older[0][tier].clone();
        true
    }),
    kind("devices swapped", Refused, |p, _| {
        p.disks.swap(0, 1);
        true
    }),
    kind("a device truncated", Refused, |p, r| {
        let tier = device(r);
        let blocks = p.disks[tier].size_bytes() / BLOCK;
        let left = if r.one_in(2) { blocks - 1 } else { r.range(1, blocks - 1) };
        p.disks[tier] = truncated(&p.disks[tier], left);
        true
    }),
    kind("a device of another volume", Refused, |p, r| {
        let tier = device(r);
        p.disks[tier] = p.scene.other[tier].clone();
        true
    }),
    kind("a superblock of a newer format", Refused, |p, r| {
        let tier = device(r);
        let one = r.one_in(2);
        (u64::from(one)..2).all(|copy| {
            let at = p.superblock(tier, copy);
            let mut bytes = get(&p.disks[tier], at.1, 1);
            // A newer format may change everything behind its number.
            bytes[16] = FORMAT as u8 + 1;
            bytes[24..200].fill(r.next_u64() as u8);
            reseal(&mut bytes);
            p.put(at, &bytes)
        })
    }),
    kind("one copy of the newest checkpoint header flipped", Unharmed, |p, r| {
        let at = p.newest_header() + r.below(2);
        p.flip((0, at), r)
    }),
    kind("the newest checkpoint header flipped", Safe, |p, r| {
        (0..2).all(|copy| p.flip((0, p.newest_header() + copy), r))
    }),
    kind("the newest checkpoint header as it was", Safe, |p, r| {
        let age = r.below(p.scene.older.len() as u64) as usize;
        (0..2).all(|copy| p.age_at((0, p.newest_header() + copy), age))
    }),
    kind("both checkpoint headers flipped", Refused, |p, r| {
        (0..4).all(|i| p.flip((0, header_at(i / 2) / BLOCK + i % 2), r))
    }),
    kind("both checkpoint headers as they were", Safe, |p, r| {
        let age = r.below(p.scene.older.len() as u64) as usize;
        (0..4).all(|i| p.age_at((0, header_at(i / 2) / BLOCK + i % 2), age))
    }),
    kind("the checkpoint headers in each other's place", Refused, |p, _| {
        let [a, b] = [header_at(0) / BLOCK, header_at(1) / BLOCK];
        p.exchange((0, a), (0, b), 2)
    }),
    kind("a block of the root flipped", Unharmed, |p, r| p.flip((0, r.pick(&p.scene.layout.root)), r)),
    kind("a block of the root as it was", Unharmed, |p, r| p.age((0, r.pick(&p.scene.layout.root)), r)),
    kind("the whole root as it was", Unharmed, |p, r| p.age_all(0, &p.scene.layout.root, r)),
    kind("a directory page flipped", Unharmed, |p, r| p.flip((0, r.pick(&p.scene.layout.directory)), r)),
    kind("a directory page as it was", Unharmed, |p, r| p.age((0, r.pick(&p.scene.layout.directory)), r)),
    kind("a directory page as it is in its other place", Unharmed, |p, r| {
        p.back_to_other_place(r.pick(&p.scene.layout.directory))
    }),
    kind("a map page flipped", Unharmed, |p, r| p.flip((0, r.pick(&p.scene.layout.map_pages)), r)),
    kind("a map page of another number", Unharmed, |p, _| {
        let pages = &p.scene.layout.map_pages;
        pages.len() > 1 && p.exchange((0, pages[0]), (0, pages[1]), 1)
    }),
    kind("a map page as it was", Unharmed, |p, r| p.age((0, r.pick(&p.scene.layout.map_pages)), r)),
    kind("a map page as it is in its other place", Unharmed, |p, r| {
        p.back_to_other_place(r.pick(&p.scene.layout.map_pages))
    }),
    kind("all map pages as they were", Unharmed, |p, r| p.age_all(0, &p.scene.layout.map_pages, r)),
    kind("the map, its directory and the root as they were", Unharmed, |p, r| {
        let layout = &p.scene.layout;
        p.age_all(0, &[&layout.root[..], &layout.directory, &layout.map_pages].concat(), r)
    }),
    kind("both copies of a block of the root flipped", Refused, |p, r| {
        p.flip_both(r.pick(&p.scene.layout.root), r)
    }),
    kind("both copies of the whole root as they were", Refused, |p, r| p.age_both(&p.scene.layout.root, r)),
    kind("both copies of a directory page flipped", Refused, |p, r| {
        p.flip_both(r.pick(&p.scene.layout.directory), r)
    }),
    kind("both copies of a map page flipped", Refused, |p, r| {
        p.flip_both(r.pick(&p.scene.layout.map_pages), r)
    }),
    kind("both copies of all map pages as they were", Refused, |p, r| {
        p.age_both(&p.scene.layout.map_pages, r)
    }),
    kind("a second copy of a map page flipped", Unharmed, |p, r| {
        let at = p.twin(r.pick(&p.scene.layout.map_pages));
        p.flip((0, at), r)
    }),
    kind("all second copies flipped", Unharmed, |p, r| {
        let layout = &p.scene.layout;
        let all = [&layout.root[..], &layout.directory, &layout.map_pages].concat();
        all.into_iter().all(|at| p.flip((0, p.twin(at)), r))
    }),
    kind("the first copy of some and the second of others flipped", Unharmed, |p, r| {
        let layout = &p.scene.layout;
        let all = [&layout.root[..], &layout.directory, &layout.map_pages].concat();
        all.into_iter().all(|at| p.flip((0, if r.one_in(2) { at } else { p.twin(at) }), r))
    }),
    kind("a checksum page flipped", Open, |p, r| {
        let pages = &p.scene.layout.sum_pages;
        !pages.is_empty() && p.flip((0, r.pick(pages)), r)
    }),
    kind("a checksum page of another number", Open, |p, _| {
        let pages = &p.scene.layout.sum_pages;
        pages.len() > 1 && p.exchange((0, pages[0]), (0, pages[1]), 1)
    }),
    kind("a checksum page as it was", Open, |p, r| {
        let pages = &p.scene.layout.sum_pages;
        !pages.is_empty() && p.age((0, r.pick(pages)), r)
    }),
    kind("a checksum page as it is in its other place", Open, |p, r| {
        p.back_to_other_place(r.pick(&p.scene.layout.sum_pages))
    }),
    kind("a checksum page and the slow slots as they were", Open, |p, r| {
        let layout = &p.scene.layout;
        let age = r.below(p.scene.older.len() as u64) as usize;
        let first = layout.geo.slow_slots_at / BLOCK;
        let count = u64::from(layout.geo.slow_slots) * u64::from(layout.geo.blocks_per_chunk());
        (first..first + count).filter(|at| p.age_at((1, *at), age)).count();
        layout.sum_pages.iter().filter(|at| p.age_at((0, **at), age)).count() > 0
    }),
    kind("a segment header flipped", Tail, |p, r| p.flip((0, p.segment(r).at), r)),
    kind("the tail's segment header flipped", Refused, |p, r| p.flip((0, p.scene.layout.segments[0].at), r)),
    kind("the header flipped of a segment whose groups know of each other", Refused, |p, r| {
        let Some(s) = p.scene.layout.segments.last().copied() else { return false };
        let first = s.header.first;
        let knows = |g: &Group| g.at > s.at && g.header.durable >= first;
        p.scene.layout.groups.iter().any(knows) && p.flip((0, s.at), r)
    }),
    kind("a segment header as it was", Tail, |p, r| p.age((0, p.segment(r).at), r)),
    kind("a segment that names itself as its successor", Refused, |p, r| {
        let s = p.segment(r);
        let mut header = s.header;
        header.successor = header.area;
        p.put_segment_header(s.at, header)
    }),
    kind("a segment whose successor lies outside", Refused, |p, r| {
        let s = p.segment(r);
        let mut header = s.header;
        let geo = &p.scene.layout.geo;
        header.successor = Area(r.pick(&[0, geo.zone_first.0 - 1, geo.areas, u32::MAX]));
        p.put_segment_header(s.at, header)
    }),
    kind("a segment whose successor is one before it", Refused, |p, _| {
        let [first, .., last] = p.scene.layout.segments[..] else { return false };
        let mut header = last.header;
        header.successor = first.header.area;
        p.put_segment_header(last.at, header)
    }),
    kind("a durable group's header flipped", Refused, |p, r| {
        let Some(g) = p.durable_group(r, false) else { return false };
        p.flip((0, g.at), r)
    }),
    kind("an indexed group's header flipped", Unharmed, |p, r| {
        let Some(g) = p.durable_group(r, true) else { return false };
        p.flip((0, g.at), r)
    }),
    kind("the last group's header flipped", Tail, |p, r| p.flip((0, p.last_group().at), r)),
    kind("the last group truncated", Tail, |p, r| {
        let g = p.last_group();
        let left = r.below(g.blocks);
        (left..g.blocks).all(|i| p.zero((0, g.at + i)))
    }),
    kind("a durable group's payload flipped", Open, |p, r| {
        let Some(g) = p.durable_group(r, false).filter(|g| g.header.payload_blocks > 0) else { return false };
        p.flip_anywhere((0, payload(&g, r)), r)
    }),
    kind("the last group's payload flipped", Tail, |p, r| {
        let g = p.last_group();
        g.header.payload_blocks > 0 && p.flip_anywhere((0, payload(&g, r)), r)
    }),
    kind("a group once more behind the log's end", Unharmed, |p, r| {
        let (g, end) = (p.group(r), p.scene.layout.end);
        let fits = end % p.scene.layout.area_blocks() + g.blocks <= p.scene.layout.area_blocks();
        fits && p.copy((0, g.at), (0, end), g.blocks)
    }),
    kind("a group in place of another", Safe, |p, r| {
        let (a, b) = (p.group(r), p.group(r));
        let count = a.blocks.min(b.blocks);
        p.tail |= b.header.seq > p.known_durable();
        a.at != b.at && p.copy((0, a.at), (0, b.at), count)
    }),
    kind("two groups exchanged", Safe, |p, r| {
        let a = p.group(r);
        let same = |g: &&Group| g.blocks == a.blocks && g.at != a.at;
        let Some(b) = p.scene.layout.groups.iter().find(same) else { return false };
        p.tail |= a.header.seq.max(b.header.seq) > p.known_durable();
        p.exchange((0, a.at), (0, b.at), a.blocks)
    }),
    kind("an index flipped", Unharmed, |p, r| {
        let Some((at, blocks)) = p.index(r) else { return false };
        p.flip((0, at + r.below(2) * blocks), r)
    }),
    kind("the index of another segment", Unharmed, |p, r| {
        let (Some((at, blocks)), Some(other)) = (p.index(r), p.other_index(r)) else { return false };
        (0..=blocks)
            .all(|i| p.put((0, at + i), &other[(i * BLOCK) as usize..][..BLOCK as usize]) || i < blocks)
    }),
    kind("a slow block flipped", Open, |p, r| {
        let at = p.slow_block(r);
        p.flip_anywhere((1, at), r)
    }),
    kind("two slow slots exchanged", Open, |p, r| {
        let (a, b) = (p.slow_slot(r), p.slow_slot(r));
        let count = u64::from(p.scene.layout.geo.blocks_per_chunk());
        a != b && p.exchange((1, a), (1, b), count)
    }),
    kind("a slow slot as it was", Open, |p, r| {
        let (at, age) = (p.slow_slot(r), r.below(p.scene.older.len() as u64) as usize);
        let count = u64::from(p.scene.layout.geo.blocks_per_chunk());
        (0..count).filter(|i| p.age_at((1, at + i), age)).count() > 0
    }),
    kind("two landed blocks exchanged", Tail, |p, r| {
        let (a, b) = (p.group(r), p.group(r));
        let both = a.header.payload_blocks > 0 && b.header.payload_blocks > 0;
        both && p.exchange((0, payload(&a, r)), (0, payload(&b, r)), 1)
    }),
    kind("a fast block flipped", Open, |p, r| {
        let range = p.scene.layout.fast_slots();
        p.flip_anywhere((0, r.range(range.start, range.end - 1)), r)
    }),
    kind("zeros over the fast device's first MiB", Refused, |p, _| p.zeros(0, 0)),
    kind("zeros over a MiB of fast slots", Open, |p, r| {
        let range = p.scene.layout.fast_slots();
        p.zeros(0, r.range(range.start, range.end - 256))
    }),
    kind("zeros over a MiB of the log", Tail, |p, r| {
        let range = p.scene.layout.zone();
        p.zeros(0, r.range(range.start, range.end - 1))
    }),
    kind("zeros over the slow device's first MiB", Open, |p, _| p.zeros(1, 0)),
    kind("zeros over a MiB of slow slots", Open, |p, r| {
        let at = p.slow_slot(r);
        p.zeros(1, at)
    }),
    kind("zeros over a device's last MiB", Tail, |p, r| {
        let tier = device(r);
        let blocks = p.disks[tier].size_bytes() / BLOCK;
        p.zeros(tier, blocks - 256)
    }),
    kind("garbage over a random range", Tail, |p, r| {
        let tier = device(r);
        let blocks = p.disks[tier].size_bytes() / BLOCK;
        let (at, count) = (r.below(blocks), r.range(1, 64));
        (at..(at + count).min(blocks)).all(|at| {
            let bytes: Vec<u8> = (0..BLOCK / 8).flat_map(|_| r.next_u64().to_le_bytes()).collect();
            p.put((tier, at), &bytes)
        })
    }),
    kind("a forged superblock", Alive, forge::superblock),
    kind("forged superblocks, all of one mind", Alive, forge::superblocks),
    kind("a forged checkpoint header", Alive, forge::header),
    kind("a forged root", Unharmed, |p, r| forge::root(p, r).is_some()),
    kind("a forged directory page", Unharmed, |p, r| forge::directory(p, r).is_some()),
    kind("a forged map page", Unharmed, |p, r| forge::map_page(p, r).is_some()),
    kind("a forged checksum page", Open, |p, r| forge::sum_page(p, r).is_some()),
    kind("a forged root that the header vouches for", Alive, |p, r| {
        forge::root(p, r).is_some() && forge::vouch_for_root(p)
    }),
    kind("a forged directory page that all above vouch for", Alive, |p, r| {
        forge::directory(p, r).is_some_and(|at| forge::vouch_for(p, at))
    }),
    kind("a forged map page that all above vouch for", Alive, |p, r| {
        forge::map_page(p, r).is_some_and(|at| forge::vouch_for(p, at))
    }),
    kind("a forged checksum page that all above vouch for", Alive, |p, r| {
        forge::sum_page(p, r).is_some_and(|at| forge::vouch_for(p, at))
    }),
    kind("a forged segment header", Alive, forge::segment_header),
    kind("a forged group header", Alive, forge::group_header),
    kind("forged records of a group", Alive, forge::group_records),
    kind("a forged index", Alive, forge::index),
    kind("a forged trailer of an index", Alive, forge::trailer),
];

fn device(rng: &mut Rng) -> usize {
    rng.below(2) as usize
}

fn superblock(p: &Patient<'_>, rng: &mut Rng) -> (usize, u64) {
    p.superblock(device(rng), rng.below(2))
}

fn payload(g: &Group, rng: &mut Rng) -> u64 {
    let payload = u64::from(g.header.payload_blocks);
    g.at + g.blocks - payload + rng.below(payload)
}

fn truncated(disk: &Disk, blocks: u64) -> Disk {
    let mut short = Disk::new(blocks * BLOCK, 3);
    (0..blocks).for_each(|at| put(&mut short, at, &get(disk, at, 1)));
    short
}
