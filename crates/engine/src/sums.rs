//! Checksums of the slow tier: recent ones in a list, the others in pages on the fast tier that are
//! cached within a limit.

use crate::bugs::{Bug, planted};
use crate::format::geometry::Geometry;
use crate::format::page::SUMS_PER_PAGE;
use crate::hash::IndexMap;
use crate::units::*;
use std::collections::BTreeMap;

/// What is known of a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The checksum.
    Known(u32),
    /// It is in this page of the checksum table, which is not cached.
    InPage(u32),
}

struct Cached {
    page: u32,
    used: bool,
    sums: Box<[u32]>,
}

/// Recent checksums and cached pages.
pub struct Sums {
    recent: BTreeMap<u64, u32>,
    /// Recent checksums at most.
    pub limit: usize,
    cache: Vec<Cached>,
    by_page: IndexMap<u32, usize>,
    cache_limit: usize,
    hand: usize,
    blocks_per_chunk: u64,
}

impl Sums {
    /// Nothing recent, nothing cached.
    pub fn new(geo: &Geometry, recent_limit: usize, cache_pages: usize) -> Sums {
        let least = 8 * geo.blocks_per_chunk() as usize;
        Sums {
            recent: BTreeMap::new(),
            limit: recent_limit.clamp(least, geo.list_entries as usize),
            cache: Vec::new(),
            by_page: IndexMap::default(),
            cache_limit: cache_pages.max(1),
            hand: 0,
            blocks_per_chunk: u64::from(geo.blocks_per_chunk()),
        }
    }

    /// Bytes of RAM (a tree entry is taken as 24 bytes).
    pub fn ram_bytes(&self) -> u64 {
        (self.recent.len() * 24 + self.cache.len() * BLOCK_BYTES as usize) as u64
    }

    /// The index of a block's checksum in the table.
    pub fn index(&self, slot: Slot, block: u32) -> u64 {
        u64::from(slot.0) * self.blocks_per_chunk + u64::from(block)
    }

    /// Notes a checksum that the log has recorded.
    pub fn note(&mut self, slot: Slot, block: u32, sum: u32) {
        let index = self.index(slot, block);
        self.recent.insert(index, sum);
    }

    /// Looks a checksum up.
    pub fn get(&mut self, slot: Slot, block: u32) -> Lookup {
        let index = self.index(slot, block);
        if let Some(sum) = self.recent.get(&index) {
            return Lookup::Known(*sum);
        }
        let page = (index / SUMS_PER_PAGE) as u32;
        match self.by_page.get(&page) {
            Some(i) => {
                let cached = &mut self.cache[*i];
                cached.used = true;
                Lookup::Known(cached.sums[(index % SUMS_PER_PAGE) as usize])
            }
            None => Lookup::InPage(page),
        }
    }

    /// Puts a page's payload into the cache; a page never written is empty.
    pub fn fill(&mut self, page: u32, payload: &[u8]) {
        let mut sums = vec![0; SUMS_PER_PAGE as usize].into_boxed_slice();
        for (sum, bytes) in sums.iter_mut().zip(payload.chunks_exact(4)) {
            *sum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        // What a running checkpoint has folded is in `recent` until its header is durable, and on the
        // device only then: a page loaded in between must not lack it when `recent` forgets it.
        let first = u64::from(page) * SUMS_PER_PAGE;
        for (index, sum) in self.recent.range(first..first + SUMS_PER_PAGE) {
            if planted(Bug::FoldedPageStale) {
                break;
            }
            sums[(index - first) as usize] = *sum;
        }
        let entry = Cached { page, used: true, sums };
        if let Some(i) = self.by_page.get(&page) {
            self.cache[*i] = entry;
        } else if self.cache.len() < self.cache_limit {
            self.by_page.insert(page, self.cache.len());
            self.cache.push(entry);
        } else {
            let i = self.victim();
            self.by_page.remove(&self.cache[i].page);
            self.by_page.insert(page, i);
            self.cache[i] = entry;
        }
    }

    fn victim(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.cache.len();
            if !std::mem::take(&mut self.cache[self.hand].used) {
                return self.hand;
            }
        }
    }

    /// Recent checksums.
    pub fn recent(&self) -> usize {
        self.recent.len()
    }

    /// The first page with recent checksums at or after `page`.
    pub fn next_recent_page(&self, page: u32) -> Option<u32> {
        self.recent.range(u64::from(page) * SUMS_PER_PAGE..).next().map(|(i, _)| (i / SUMS_PER_PAGE) as u32)
    }

    /// Applies the recent checksums of a cached page to it: its new payload, and what was applied.
    /// `None` when the page is not cached.
    pub fn fold(&mut self, page: u32, folded: &mut Vec<(u64, u32)>) -> Option<Vec<u8>> {
        let cached = &mut self.cache[*self.by_page.get(&page)?];
        cached.used = true;
        let first = u64::from(page) * SUMS_PER_PAGE;
        for (index, sum) in self.recent.range(first..first + SUMS_PER_PAGE) {
            cached.sums[(index - first) as usize] = *sum;
            folded.push((*index, *sum));
        }
        Some(cached.sums.iter().flat_map(|s| s.to_le_bytes()).collect())
    }

    /// Forgets recent checksums that a durable page holds, unless they changed since.
    pub fn forget(&mut self, folded: &[(u64, u32)]) {
        for (index, sum) in folded {
            if self.recent.get(index) == Some(sum) {
                self.recent.remove(index);
            }
        }
    }

    /// Recent checksums from table index `from` on.
    pub fn list(&self, from: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.recent.range(from..).map(|(i, s)| (*i, *s))
    }

    /// Notes a checksum by its table index, as a checkpoint lists it.
    pub fn note_listed(&mut self, index: u64, sum: u32) {
        self.recent.insert(index, sum);
    }
}
