//! Devices being hurt.

use super::image::{Group, Segment, get, put};
use super::scene::Scene;
use crate::story::{BLOCK, twin};
use bimetal_engine::format::geometry::header_at;
use bimetal_engine::format::log::SegmentHeader;
use bimetal_torture::disk::Disk;
use bimetal_units::rng::Rng;
use bimetal_units::*;

/// A block of a device.
pub type At = (usize, u64);

/// The devices of a scene, and where what is on them.
pub struct Patient<'a> {
    pub scene: &'a Scene,
    pub disks: Vec<Disk>,
    /// What was hurt includes groups that nothing says were durable.
    pub tail: bool,
}

impl<'a> Patient<'a> {
    pub fn of(scene: &'a Scene) -> Patient<'a> {
        Patient { scene, disks: scene.disks.clone(), tail: false }
    }

    /// Overwrites a block; false where the device does not reach, or nothing changes.
    pub fn put(&mut self, at: At, bytes: &[u8]) -> bool {
        let disk = &mut self.disks[at.0];
        let fits = at.1 < disk.size_bytes() / BLOCK;
        let changes = fits && get(disk, at.1, 1) != bytes;
        if changes {
            put(disk, at.1, bytes);
        }
        changes
    }

    pub fn get(&self, at: At) -> Vec<u8> {
        let fits = at.1 < self.disks[at.0].size_bytes() / BLOCK;
        if fits { get(&self.disks[at.0], at.1, 1) } else { vec![0; BLOCK as usize] }
    }

    pub fn zero(&mut self, at: At) -> bool {
        self.put(at, &[0; BLOCK as usize]);
        true
    }

    pub fn zeros(&mut self, tier: usize, first: u64) -> bool {
        (first..first + 256).for_each(|at| {
            self.zero((tier, at));
        });
        true
    }

    /// Flips a bit of what the seal covers.
    pub fn flip(&mut self, at: At, rng: &mut Rng) -> bool {
        let mut bytes = self.get(at);
        let len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes"));
        let covered = (16 + u64::from(len)).min(BLOCK);
        bytes[rng.below(covered) as usize] ^= 1 << rng.below(8);
        self.put(at, &bytes)
    }

    /// The same in both copies of a block of a root, of the map or of the directory.
    pub fn flip_both(&mut self, at: u64, rng: &mut Rng) -> bool {
        self.flip((0, at), rng) && self.flip((0, self.twin(at)), rng)
    }

    /// Both copies of these blocks as they were at the same time.
    pub fn age_both(&mut self, blocks: &[u64], rng: &mut Rng) -> bool {
        let twins = blocks.iter().map(|at| self.twin(*at));
        let all: Vec<u64> = blocks.iter().copied().chain(twins).collect();
        self.age_all(0, &all, rng)
    }

    pub fn twin(&self, at: u64) -> u64 {
        twin(&self.scene.layout.geo, at).expect("it has a second copy")
    }

    pub fn flip_anywhere(&mut self, at: At, rng: &mut Rng) -> bool {
        let mut bytes = self.get(at);
        bytes[rng.below(BLOCK) as usize] ^= 1 << rng.below(8);
        self.put(at, &bytes)
    }

    /// The block as it was at some earlier time.
    pub fn age(&mut self, at: At, rng: &mut Rng) -> bool {
        let age = rng.below(self.scene.older.len() as u64) as usize;
        self.age_at(at, age)
    }

    pub fn age_at(&mut self, at: At, age: usize) -> bool {
        let old = get(&self.scene.older[age][at.0], at.1, 1);
        self.put(at, &old)
    }

    pub fn copy(&mut self, from: At, to: At, count: u64) -> bool {
        let blocks: Vec<_> = (0..count).map(|i| self.get((from.0, from.1 + i))).collect();
        let changed = |(i, bytes): (u64, Vec<u8>)| self.put((to.0, to.1 + i), &bytes);
        (0..count).zip(blocks).map(changed).filter(|changed| *changed).count() > 0
    }

    pub fn exchange(&mut self, a: At, b: At, count: u64) -> bool {
        let old: Vec<_> = (0..count).map(|i| self.get((a.0, a.1 + i))).collect();
        let changed = self.copy(b, a, count);
        (0..count).zip(old).for_each(|(i, bytes)| {
            self.put((b.0, b.1 + i), &bytes);
        });
        changed
    }

    /// All these blocks of a device as they were at the same time.
    pub fn age_all(&mut self, tier: usize, blocks: &[u64], rng: &mut Rng) -> bool {
        let age = rng.below(self.scene.older.len() as u64) as usize;
        blocks.iter().filter(|at| self.age_at((tier, **at), age)).count() > 0
    }

    /// A page in force overwritten with what its other place holds.
    pub fn back_to_other_place(&mut self, at: u64) -> bool {
        // Both places of each page lie together, in all tables.
        let first = self.scene.layout.geo.map_at / BLOCK;
        self.copy((0, first + ((at - first) ^ 1)), (0, at), 1)
    }

    pub fn superblock(&self, tier: usize, copy: u64) -> At {
        let end = self.scene.layout.geo.second_superblock_at(Tier(tier as u8));
        (tier, copy * end / BLOCK)
    }

    /// The first block of the newest checkpoint header's place.
    pub fn newest_header(&self) -> u64 {
        header_at(self.scene.layout.header.number % 2) / BLOCK
    }

    pub fn segment(&self, rng: &mut Rng) -> Segment {
        rng.pick(&self.scene.layout.segments)
    }

    pub fn put_segment_header(&mut self, at: u64, header: SegmentHeader) -> bool {
        let mut block = vec![0; BLOCK as usize];
        header.encode(&mut block, &self.scene.layout.superblocks[0].volume);
        self.put((0, at), &block)
    }

    pub fn group(&self, rng: &mut Rng) -> Group {
        rng.pick(&self.scene.layout.groups)
    }

    pub fn last_group(&self) -> Group {
        *self.scene.layout.groups.last().expect("a log")
    }

    /// The newest group that something on the device says is durable.
    pub fn known_durable(&self) -> Seq {
        let layout = &self.scene.layout;
        let groups = layout.groups.iter().map(|g| g.header.durable);
        let segments = layout.segments.iter().map(|s| s.header.durable);
        groups.chain(segments).fold(layout.header.durable, Seq::max)
    }

    /// A group that others say is durable, with or without an index over it.
    pub fn durable_group(&self, rng: &mut Rng, indexed: bool) -> Option<Group> {
        let last = self.scene.layout.segments.last().map_or(0, |s| s.at);
        let known = self.known_durable();
        // Those that know must not be those that are behind it in the same segment's unread part.
        let fits = |g: &&Group| g.indexed == indexed && g.header.seq <= known && (indexed || g.at >= last);
        let groups: Vec<Group> = self.scene.layout.groups.iter().filter(fits).copied().collect();
        (!groups.is_empty()).then(|| rng.pick(&groups))
    }

    /// Where the body of some segment's index begins, and how many blocks before the trailer it has.
    pub fn index(&self, rng: &mut Rng) -> Option<(u64, u64)> {
        let layout = &self.scene.layout;
        let indexes = layout.segments.iter().filter_map(|s| {
            let body = s.index?;
            Some((s.at + layout.area_blocks() - 1 - body, body))
        });
        let indexes: Vec<_> = indexes.collect();
        (!indexes.is_empty()).then(|| rng.pick(&indexes))
    }

    /// The last blocks of some area that ended with another index at some time: as much as an index can have.
    pub fn other_index(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        let layout = &self.scene.layout;
        let (mine, area) = (self.index(&mut rng.clone())?, layout.area_blocks());
        let trailer = get(&self.scene.disks[0], mine.0 + mine.1, 1);
        let ends = layout.zone().step_by(area as usize).map(|at| at + area - 1);
        let images = self.scene.older.iter().flat_map(|disks| ends.clone().map(move |at| (&disks[0], at)));
        let others = images.filter(|(disk, at)| {
            let block = get(disk, *at, 1);
            block.starts_with(b"BMTLindx") && block != trailer
        });
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return None;
        }
        let (disk, at) = rng.pick(&others);
        Some(get(disk, at - mine.1, mine.1 + 1))
    }

    pub fn slow_slot(&self, rng: &mut Rng) -> u64 {
        let geo = &self.scene.layout.geo;
        let slot = Slot(rng.below(u64::from(geo.slow_slots)) as u32);
        geo.slot_at(Home { tier: SLOW, slot }) / BLOCK
    }

    pub fn slow_block(&self, rng: &mut Rng) -> u64 {
        self.slow_slot(rng) + rng.below(u64::from(self.scene.layout.geo.blocks_per_chunk()))
    }
}
