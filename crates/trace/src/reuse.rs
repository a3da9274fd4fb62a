//! How soon blocks are used again: what a cache of each size would have held, by the rule of least recent use.
//!
//! Sampled as SHARDS does it (Waldspurger and others, FAST '15): only blocks whose hash is small are followed; where they
//! become too many, those with the largest hashes are let go, and each that is left stands for more.

use crate::footprint::{BLOCK, key_hash};
use serde::Serialize;
use std::collections::{BinaryHeap, HashMap};

/// Blocks that are followed: with so many the hit shares of a trace of any size are right to within 1 % or so.
const MAX_FOLLOWED: usize = 16_384;
/// Places in the order of use; taken anew when all are used up.
const PLACES: usize = 4 * MAX_FOLLOWED;
/// Classes of distances: up to 1 block, 2, 4 and so on; the last is all beyond.
const CLASSES: usize = 48;

/// What a cache would have held.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CachePoint {
    /// Its size.
    pub cache_bytes: u64,
    /// The share of blocks read or written that would have been in it.
    pub hit_share: f64,
}

/// How much is used again, and how soon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReuseSummary {
    /// Blocks of 4 KiB read or written, each time counted.
    pub block_touches: u64,
    /// The share of them that had been read or written before.
    pub reused_share: f64,
    /// By size, up to the one that holds all that is used again.
    pub caches: Vec<CachePoint>,
    /// Every block was followed; else the shares of `caches` are estimates.
    pub exact: bool,
}

/// Follows blocks.
pub(crate) struct Reuse {
    touches: u64,
    /// Blocks whose hash is at least this are not followed.
    limit: u64,
    /// Where in the order of use each stands.
    place: HashMap<u64, u32>,
    largest: BinaryHeap<u64>,
    /// Who stands at each place.
    order: Vec<Option<u64>>,
    /// Counts of who stands where, as a Fenwick tree.
    tree: Vec<u32>,
    /// Weights of uses by distance.
    again: [f64; CLASSES],
    all: f64,
}

impl Default for Reuse {
    fn default() -> Reuse {
        Reuse {
            touches: 0,
            limit: u64::MAX,
            place: HashMap::new(),
            largest: BinaryHeap::new(),
            order: Vec::new(),
            tree: vec![0; PLACES + 1],
            again: [0.0; CLASSES],
            all: 0.0,
        }
    }
}

impl Reuse {
    /// A read or a write of these bytes.
    pub(crate) fn touch(&mut self, device: u32, offset: u64, bytes: u64) {
        let (first, end) = (offset / BLOCK, (offset + bytes).div_ceil(BLOCK));
        self.touches += end - first;
        for block in first..end {
            let hash = key_hash(device, block);
            if hash < self.limit {
                self.follow(hash);
            }
        }
    }

    fn follow(&mut self, hash: u64) {
        // Each stands for so many.
        let weight = u64::MAX as f64 / self.limit as f64;
        self.all += weight;
        if let Some(place) = self.place.get(&hash).copied() {
            let since = (self.place.len() as u32 - self.before(place + 1)) as f64 * weight;
            // A cache must hold those used since, and this one.
            let class = (since + 1.0).log2().ceil() as usize;
            self.again[class.min(CLASSES - 1)] += weight;
            self.leave(place);
        } else {
            self.largest.push(hash);
        }
        self.stand_last(hash);
        if self.place.len() > MAX_FOLLOWED
            && let Some(largest) = self.largest.pop()
        {
            self.limit = largest;
            if let Some(place) = self.place.remove(&largest) {
                self.leave(place);
            }
        }
    }

    fn stand_last(&mut self, hash: u64) {
        if self.order.len() == PLACES {
            self.close_ranks();
        }
        let place = self.order.len() as u32;
        self.order.push(Some(hash));
        self.count(place, 1);
        self.place.insert(hash, place);
    }

    fn leave(&mut self, place: u32) {
        self.order[place as usize] = None;
        self.count(place, -1);
    }

    /// Takes the places anew, without gaps.
    fn close_ranks(&mut self) {
        let standing: Vec<u64> = self.order.drain(..).flatten().collect();
        self.tree.fill(0);
        for (place, hash) in standing.iter().enumerate() {
            self.order.push(Some(*hash));
            self.count(place as u32, 1);
            self.place.insert(*hash, place as u32);
        }
    }

    fn count(&mut self, place: u32, change: i32) {
        let mut node = place as usize + 1;
        while node <= PLACES {
            self.tree[node] = self.tree[node].wrapping_add_signed(change);
            node += node & node.wrapping_neg();
        }
    }

    /// How many stand before this place.
    fn before(&self, place: u32) -> u32 {
        let (mut node, mut sum) = (place as usize, 0);
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }

    /// `footprint_bytes` is what was touched in all.
    pub(crate) fn summary(self, footprint_bytes: u64) -> Option<ReuseSummary> {
        if self.touches == 0 {
            return None;
        }
        let (mut sum, mut caches) = (0.0, Vec::new());
        let last = self.again.iter().rposition(|weight| *weight > 0.0);
        for (class, weight) in self.again.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
            sum += weight;
            caches.push(CachePoint { cache_bytes: BLOCK << class, hit_share: sum / self.all.max(1.0) });
        }
        let touches = self.touches as f64;
        let reused_share = (1.0 - (footprint_bytes / BLOCK) as f64 / touches).max(0.0);
        Some(ReuseSummary {
            block_touches: self.touches,
            reused_share,
            caches,
            exact: self.limit == u64::MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(reuse: Reuse, footprint: u64, blocks: u64) -> f64 {
        let found = reuse.summary(footprint * BLOCK).expect("touches");
        let at = found.caches.iter().rev().find(|point| point.cache_bytes <= blocks * BLOCK);
        at.map_or(0.0, |point| point.hit_share)
    }

    #[test]
    fn a_loop_is_held_by_a_cache_of_its_size_only() {
        let mut reuse = Reuse::default();
        for round in 0..10 {
            for block in 0..1024 {
                reuse.touch(round / 100, block * BLOCK, BLOCK);
            }
        }
        let found = reuse.summary(1024 * BLOCK).expect("touches");
        assert!(found.exact && found.block_touches == 10_240);
        assert!((found.reused_share - 0.9).abs() < 1e-9);
        let at = |blocks: u64| {
            let point = found.caches.iter().find(|point| point.cache_bytes == blocks * BLOCK);
            point.expect("a point").hit_share
        };
        assert_eq!((at(512), at(1024)), (0.0, 0.9));
        assert_eq!(found.caches.len(), 11);
    }

    #[test]
    fn the_block_used_last_is_held_by_a_cache_of_one() {
        let mut reuse = Reuse::default();
        (0..100).for_each(|_| reuse.touch(0, 0, BLOCK));
        assert_eq!(hits(reuse, 1, 1), 0.99);
    }

    #[test]
    fn many_blocks_are_sampled() {
        let mut reuse = Reuse::default();
        // Three rounds over 400,000 blocks, and between all of them one of a hundred hot ones.
        for round in 0..3u64 {
            for block in 0..400_000u64 {
                reuse.touch(0, (1 << 30) + block * BLOCK, BLOCK);
                reuse.touch(0, (block.wrapping_mul(7919) + round) % 100 * BLOCK, BLOCK);
            }
        }
        assert!(reuse.place.len() <= MAX_FOLLOWED && reuse.limit < u64::MAX);
        let found = reuse.summary(400_100 * BLOCK).expect("touches");
        assert!(!found.exact);
        let at = |blocks: u64| {
            let point = found.caches.iter().rev().find(|point| point.cache_bytes <= blocks * BLOCK);
            point.map_or(0.0, |point| point.hit_share)
        };
        assert!((at(1 << 18) - 0.5).abs() < 0.1, "{}", at(1 << 18));
        assert!((at(1 << 19) - 0.5 - 1.0 / 3.0).abs() < 0.1, "{}", at(1 << 19));
    }
}
