//! The buckets of the SSD: what is valid in them, and which is used again.

use super::super::bits::Bits;
use super::BLOCK;
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// Blocks of a bucket: 512 KiB, what `bcache make` takes by itself.
const BUCKET_BLOCKS: u32 = 128;
/// Buckets that are looked at to find one to use again. The kernel looks at all, and keeps the best in a heap.
const SAMPLE: u64 = 256;

/// Blocks of the SSD, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Span {
    /// A command on all of it.
    pub(super) fn command(self) -> Command {
        let (offset, len) = (u64::from(self.first) * BLOCK, u64::from(self.count) * BLOCK);
        Command { kind: Kind::Read, offset, len }
    }
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    valid: u32,
    dirty: u32,
    used: Nanos,
}

/// All buckets. Memory: 4 bytes and a bit for each block of the SSD, 16 bytes for each bucket.
pub(super) struct Buckets {
    buckets: Vec<Bucket>,
    /// The block of the volume in each block of the SSD plus one; 0 for garbage.
    owners: Vec<u32>,
    dirty: Bits,
    dirty_buckets: u64,
    unused: u32,
    /// What of the open buckets is free: that for clean blocks, and that for dirty ones.
    open: [Span; 2],
    rng: Rng,
}

impl Buckets {
    pub(super) fn new(blocks: u64, seed: u64) -> Buckets {
        let count = blocks / u64::from(BUCKET_BLOCKS);
        let blocks = count * u64::from(BUCKET_BLOCKS);
        Buckets {
            buckets: vec![Bucket::default(); count as usize],
            owners: vec![0; blocks as usize],
            dirty: Bits::new(blocks),
            dirty_buckets: 0,
            unused: 0,
            open: [Span { first: 0, count: 0 }; 2],
            rng: Rng::new(seed, 2),
        }
    }

    /// Blocks that all of them hold.
    pub(super) fn blocks(&self) -> u64 {
        self.owners.len() as u64
    }

    /// Blocks that are not on the disk yet.
    pub(super) fn dirty_blocks(&self) -> u64 {
        self.dirty.count()
    }

    /// How many of a hundred buckets hold such blocks.
    pub(super) fn dirty_percent(&self) -> u64 {
        self.dirty_buckets * 100 / (self.buckets.len() as u64).max(1)
    }

    /// Takes up to so many blocks that lie together. What was in a bucket that is used again is no longer cached.
    pub(super) fn take(&mut self, now: Nanos, most: u64, dirty: bool, map: &mut [u32]) -> Option<Span> {
        let open = usize::from(dirty);
        if self.open[open].count == 0 {
            let bucket = self.empty_bucket(map)?;
            self.open[open] = Span { first: bucket * BUCKET_BLOCKS, count: BUCKET_BLOCKS };
        }
        let rest = &mut self.open[open];
        let span = Span { first: rest.first, count: most.min(u64::from(rest.count)) as u32 };
        *rest = Span { first: rest.first + span.count, count: rest.count - span.count };
        self.buckets[(span.first / BUCKET_BLOCKS) as usize].used = now;
        Some(span)
    }

    fn empty_bucket(&mut self, map: &mut [u32]) -> Option<u32> {
        if (self.unused as usize) < self.buckets.len() {
            self.unused += 1;
            return Some(self.unused - 1);
        }
        let count = self.buckets.len() as u64;
        let mut best: Option<(u64, u32)> = None;
        for _ in 0..SAMPLE {
            let number = self.rng.below(count) as u32;
            let bucket = self.buckets[number as usize];
            if bucket.dirty > 0 || self.is_open(number) {
                continue;
            }
            let worth = bucket.used.0 / Nanos::MS * u64::from(bucket.valid);
            if best.is_none_or(|best| worth < best.0) {
                best = Some((worth, number));
            }
        }
        let (_, number) = best?;
        for place in number * BUCKET_BLOCKS..(number + 1) * BUCKET_BLOCKS {
            if let Some(block) = self.owners[place as usize].checked_sub(1) {
                map[block as usize] = 0;
                self.owners[place as usize] = 0;
            }
        }
        self.buckets[number as usize].valid = 0;
        Some(number)
    }

    fn is_open(&self, number: u32) -> bool {
        self.open.iter().any(|open| open.count > 0 && open.first / BUCKET_BLOCKS == number)
    }

    /// A place that was taken holds this block from now on.
    pub(super) fn hold(&mut self, place: u32, block: u64, dirty: bool) {
        self.owners[place as usize] = block as u32 + 1;
        let bucket = &mut self.buckets[(place / BUCKET_BLOCKS) as usize];
        bucket.valid += 1;
        if dirty {
            self.dirty.insert(u64::from(place));
            self.dirty_buckets += u64::from(bucket.dirty == 0);
            bucket.dirty += 1;
        }
    }

    /// What a place holds is garbage from now on.
    pub(super) fn drop_block(&mut self, place: u32) {
        self.clean(place);
        self.owners[place as usize] = 0;
        self.buckets[(place / BUCKET_BLOCKS) as usize].valid -= 1;
    }

    /// What a place holds is on the disk.
    pub(super) fn clean(&mut self, place: u32) {
        if self.dirty.remove(u64::from(place)) {
            let bucket = &mut self.buckets[(place / BUCKET_BLOCKS) as usize];
            bucket.dirty -= 1;
            self.dirty_buckets -= u64::from(bucket.dirty == 0);
        }
    }

    /// A place was read.
    pub(super) fn use_block(&mut self, now: Nanos, place: u32) {
        self.buckets[(place / BUCKET_BLOCKS) as usize].used = now;
    }
}
