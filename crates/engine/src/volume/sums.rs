//! Checksums. Of the slow tier: recent ones in a list, the others in pages on the fast tier that are
//! cached within a limit.

use crate::api::options::Tuning;
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::base::mask::BlockMask;
use crate::format::geometry::Geometry;
use crate::format::page::SUMS_PER_PAGE;
use crate::volume::fast_sums::FastSums;
use crate::volume::live_sums::{LiveSums, UNKNOWN};
use crate::volume::regions::Regions;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What a recent checksum takes at most, bytes: alone in its page of the table, an entry of the tree with its share
/// of a node that is half full; many in a page share that, and take 8 each in a vector that may be twice as large.
pub const RECENT_BYTES: u64 = 56;

/// Of what there is room for beyond eight chunks' worth, one in so many are of the fast tier at most: those are not folded.
const FAST_SHARE: usize = 8;

/// Of a place in the cache that is free.
const NO_PAGE: u32 = u32::MAX;

/// Recent checksums of one page of the table: place in the page, checksum; by place.
type RecentPage = SmallVec<[(u16, u32); 2]>;

/// What is known of a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The checksum.
    Known(u32),
    /// It is in this page of the checksum table, which is not cached.
    InPage(u32),
}

#[derive(Serialize, Deserialize)]
struct Cached {
    page: u32,
    used: bool,
    sums: Box<[u32]>,
}

/// Recent checksums and cached pages.
#[derive(Serialize, Deserialize)]
pub struct Sums {
    /// By page. Most come in runs: streams, sorted merges. So a page of them is found once for all.
    recent: BTreeMap<u32, RecentPage>,
    /// How many there are.
    count: usize,
    /// Recent checksums at most, those of the fast tier included.
    pub limit: usize,
    /// Those of the fast tier that are listed.
    pub fast: FastSums,
    /// Those of the fast tier that are in memory alone.
    pub live: LiveSums,
    /// Which pages say those of the fast tier.
    pub regions: Regions,
    /// A fast slot that is being read, and whether it was written meanwhile.
    watched: Option<(Slot, bool)>,
    /// The index of the first of them in the list: behind those of the slow tier.
    first_fast: u64,
    cache: Vec<Cached>,
    by_page: IndexMap<u32, usize>,
    cache_limit: usize,
    hand: usize,
    blocks_per_chunk: u64,
}

impl Sums {
    /// Nothing recent, nothing cached.
    pub fn new(geo: &Geometry, tuning: &Tuning) -> Sums {
        let least = 8 * geo.blocks_per_chunk() as usize;
        let limit = tuning.recent_checksums.clamp(least, geo.list_entries as usize);
        Sums {
            recent: BTreeMap::new(),
            count: 0,
            watched: None,
            limit,
            fast: FastSums::new((limit - least) / FAST_SHARE),
            first_fast: u64::from(geo.slow_slots) * u64::from(geo.blocks_per_chunk()),
            cache: Vec::new(),
            by_page: IndexMap::default(),
            regions: Regions::new(geo),
            live: LiveSums::new(tuning.fast_checksum_bytes, geo.blocks_per_chunk()),
            cache_limit: tuning.checksum_cache_pages.max(1),
            hand: 0,
            blocks_per_chunk: u64::from(geo.blocks_per_chunk()),
        }
    }

    /// Bytes of RAM at most.
    pub fn ram_bytes(&self) -> u64 {
        (self.count + self.fast.len()) as u64 * RECENT_BYTES
            + (self.cache.len() * BLOCK_BYTES as usize) as u64
            + self.live.ram_bytes()
            + self.regions.ram_bytes()
    }

    /// The index of a block's checksum in the table.
    pub fn index(&self, slot: Slot, block: u32) -> u64 {
        u64::from(slot.0) * self.blocks_per_chunk + u64::from(block)
    }

    /// Notes checksums that the log has recorded, of these blocks in their order.
    pub fn note(&mut self, slot: Slot, blocks: &BlockMask, sums: &[u32]) {
        let first = self.index(slot, 0);
        let mut left = blocks.iter().map(|block| first + u64::from(block)).zip(sums).peekable();
        while let Some(&(index, _)) = left.peek() {
            let page = page_of(index);
            let recent = self.recent.entry(page).or_default();
            let before = recent.len();
            while let Some((index, sum)) = left.next_if(|&(index, _)| page_of(index) == page) {
                put(recent, index, *sum);
            }
            self.count += recent.len() - before;
        }
    }

    /// Looks a checksum up.
    pub fn get(&mut self, slot: Slot, block: u32) -> Lookup {
        let index = self.index(slot, block);
        let page = page_of(index);
        if let Some(recent) = self.recent.get(&page)
            && let Ok(at) = recent.binary_search_by_key(&place_of(index), |&(place, _)| place)
        {
            return Lookup::Known(recent[at].1);
        }
        self.in_page(page, usize::from(place_of(index)))
    }

    /// What a page says, if it is cached.
    fn in_page(&mut self, page: u32, place: usize) -> Lookup {
        let Some(at) = self.by_page.get(&page) else { return Lookup::InPage(page) };
        let cached = &mut self.cache[*at];
        cached.used = true;
        Lookup::Known(cached.sums[place])
    }

    /// What a block of a fast slot must have, if it is known, or which page may say so.
    pub fn of_fast(&mut self, slot: Slot, block: u32) -> Option<Lookup> {
        if let Some(sum) = self.fast.get(slot, block).or_else(|| self.live.get(slot, block)) {
            return Some(Lookup::Known(sum));
        }
        let (page, place) = self.regions.find(slot, block)?;
        Some(self.in_page(page, place)).filter(|known| *known != Lookup::Known(UNKNOWN))
    }

    /// The same for who asks for one block at a time: a page is read only where memory keeps what it says. Else each read would
    /// be two.
    pub fn of_fast_at_once(&mut self, slot: Slot, block: u32) -> Option<Lookup> {
        let known = self.of_fast(slot, block);
        known.filter(|known| matches!(known, Lookup::Known(_)) || self.live.has_room_for(slot))
    }

    /// Whether some of these blocks of a home have a checksum, or a crash might bring one back.
    pub fn any_fast(&self, slot: Slot, blocks: &BlockMask) -> bool {
        self.fast.any(slot, blocks) || self.regions.hold(slot, blocks)
    }

    /// A record is in the log that ends the checksums of these blocks of a home, in a group that [`Sums::ended_by`] will tell.
    pub fn end_fast(&mut self, slot: Slot, blocks: &BlockMask) {
        self.fast.end(slot, blocks);
        self.regions.open(slot, blocks);
    }

    /// What was ended of late was ended by records in groups up to this one.
    pub fn ended_by(&mut self, group: Seq) {
        self.fast.ended_by(group);
        self.regions.ended_by(group);
    }

    /// The groups that ends of checksums wait for.
    pub fn waits(&mut self) -> impl Iterator<Item = &mut Seq> {
        self.fast.waits().chain(self.regions.waits())
    }

    /// Groups up to this one are durable. Whether somebody may write in place who could not before.
    pub fn durable(&mut self, group: Seq) -> bool {
        self.fast.durable(group);
        self.regions.durable(group)
    }

    /// What the checkpoint in force holds is being replayed, or that is over.
    pub fn settled(&mut self, is_settled: bool) {
        (self.fast.is_settled, self.regions.is_settled) = (is_settled, is_settled);
    }

    /// These blocks of a fast slot are being written.
    pub fn forget_fast(&mut self, slot: Slot, blocks: &BlockMask) {
        self.live.forget(slot, blocks);
        self.see_write(slot);
        self.regions.touch(slot, blocks);
    }

    /// These blocks of a fast slot were written, in their order with these checksums.
    pub fn note_fast(&mut self, slot: Slot, blocks: &BlockMask, sums: impl Iterator<Item = u32>) {
        self.live.note(slot, blocks, sums);
        self.regions.learn(slot, blocks);
    }

    /// What a fast slot holds is not known.
    pub fn forget_fast_slot(&mut self, slot: Slot) {
        self.live.forget_slot(slot);
        self.see_write(slot);
        self.regions.touch_slot(slot);
    }

    /// What the fast device was told of late it may not hold. What pages say was durable when they were written.
    pub fn forget_all_fast(&mut self) {
        self.live.forget_all();
        self.watched = None;
    }

    /// A slot is being read: from now on it is seen whether it is written; `is_written`: it is already.
    pub fn watch(&mut self, slot: Slot, is_written: bool) {
        self.watched = Some((slot, is_written));
    }

    /// Whether nothing was written to a slot since it is watched.
    pub fn was_not_written(&self, slot: Slot) -> bool {
        self.watched == Some((slot, false))
    }

    fn see_write(&mut self, slot: Slot) {
        if let Some((watched, was_written)) = &mut self.watched {
            *was_written |= *watched == slot;
        }
    }

    /// The page that must be read before a checkpoint makes another of its region, or names none.
    pub fn missing_page(&self, region: u32) -> Option<u32> {
        let page = self.regions.page(region);
        (self.regions.has_page(region) && !self.by_page.contains_key(&page)).then_some(page)
    }

    /// What a page of a region holds now, of blocks of which `counts` says that they count; none where nothing is known.
    pub fn region_payload(&mut self, region: u32, counts: impl Fn(Slot) -> BlockMask) -> Option<Vec<u8>> {
        let (mut payload, mut any) = (Vec::with_capacity(4 * SUMS_PER_PAGE as usize), false);
        for (slot, blocks) in self.regions.slots(region) {
            let held = counts(slot);
            for block in blocks {
                let known = if held.has(block) { self.of_fast(slot, block) } else { None };
                let sum = if let Some(Lookup::Known(sum)) = known { sum } else { UNKNOWN };
                any |= sum != UNKNOWN;
                payload.extend_from_slice(&sum.to_le_bytes());
            }
        }
        any.then_some(payload)
    }

    /// Keeps in memory what the page of a region says, as far as there is room: no checkpoint will name it any more.
    pub fn keep_region(&mut self, region: u32, counts: impl Fn(Slot) -> BlockMask) {
        for (slot, blocks) in self.regions.slots(region) {
            let held = counts(slot);
            if held.is_empty() || !self.live.has_room_for(slot) {
                continue;
            }
            let known = blocks.filter(|block| held.has(*block)).filter_map(|block| {
                let Some(Lookup::Known(sum)) = self.of_fast(slot, block) else { return None };
                Some((block, sum))
            });
            let (blocks, sums): (Vec<u32>, Vec<u32>) = known.unzip();
            let mut mask = BlockMask::EMPTY;
            blocks.iter().for_each(|block| mask.set(*block));
            if !mask.is_empty() {
                self.live.note(slot, &mask, sums.into_iter());
            }
        }
    }

    /// A checkpoint is in force: pages of regions are others, or count no more.
    pub fn regions_published(&mut self) {
        for page in self.regions.published() {
            if let Some(place) = self.by_page.remove(&page) {
                (self.cache[place].page, self.cache[place].used) = (NO_PAGE, false);
            }
        }
    }

    /// A checksum that is in memory.
    pub fn in_memory(&self, slot: Slot, block: u32) -> Option<u32> {
        let index = self.index(slot, block);
        let (page, place) = (page_of(index), place_of(index));
        let recent = self.recent.get(&page).and_then(|recent| {
            recent.binary_search_by_key(&place, |&(place, _)| place).ok().map(|at| recent[at].1)
        });
        recent.or_else(|| self.by_page.get(&page).map(|i| self.cache[*i].sums[usize::from(place)]))
    }

    /// Puts a page's payload into the cache; a page never written is empty.
    pub fn fill(&mut self, page: u32, payload: &[u8]) {
        let place = self.place_for(page);
        let cached = &mut self.cache[place];
        cached.used = true;
        let (known, unknown) = cached.sums.split_at_mut((payload.len() / 4).min(SUMS_PER_PAGE as usize));
        for (sum, bytes) in known.iter_mut().zip(payload.chunks_exact(4)) {
            *sum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        unknown.fill(0);
        // What a running checkpoint has folded is in `recent` until its header is durable, and on the
        // device only then: a page loaded in between must not lack it when `recent` forgets it.
        for &(place, sum) in self.recent.get(&page).into_iter().flatten() {
            if planted(Bug::FoldedPageStale) {
                break;
            }
            cached.sums[usize::from(place)] = sum;
        }
    }

    /// The place of a page in the cache: where it is, a new one, or that of another page, which is forgotten.
    fn place_for(&mut self, page: u32) -> usize {
        if let Some(&place) = self.by_page.get(&page) {
            return place;
        }
        let place = if self.cache.len() < self.cache_limit {
            let sums = vec![0; SUMS_PER_PAGE as usize].into_boxed_slice();
            self.cache.push(Cached { page, used: true, sums });
            self.cache.len() - 1
        } else {
            let place = self.victim();
            self.by_page.remove(&self.cache[place].page);
            self.cache[place].page = page;
            place
        };
        self.by_page.insert(page, place);
        place
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
        self.count
    }

    /// The first page with recent checksums at or after `page`.
    pub fn next_recent_page(&self, page: u32) -> Option<u32> {
        self.recent.range(page..).next().map(|(&page, _)| page)
    }

    /// Applies the recent checksums of a cached page to it: its new payload, and what was applied.
    /// `None` when the page is not cached.
    pub fn fold(&mut self, page: u32, folded: &mut Vec<(u64, u32)>) -> Option<Vec<u8>> {
        let cached = &mut self.cache[*self.by_page.get(&page)?];
        cached.used = true;
        for &(place, sum) in self.recent.get(&page).into_iter().flatten() {
            cached.sums[usize::from(place)] = sum;
            folded.push((index_of(page, place), sum));
        }
        let mut payload = Vec::with_capacity(size_of_val(&*cached.sums));
        cached.sums.iter().for_each(|sum| payload.extend_from_slice(&sum.to_le_bytes()));
        Some(payload)
    }

    /// Forgets recent checksums that a durable page holds, unless they changed since. In the order of their indexes.
    pub fn forget(&mut self, folded: &[(u64, u32)]) {
        for folded in folded.chunk_by(|a, b| page_of(a.0) == page_of(b.0)) {
            let page = page_of(folded[0].0);
            let Some(recent) = self.recent.get_mut(&page) else { continue };
            let before = recent.len();
            let mut folded = folded.iter().peekable();
            recent.retain(|&mut (place, sum)| {
                let index = index_of(page, place);
                while folded.next_if(|entry| entry.0 < index).is_some() {}
                folded.peek() != Some(&&(index, sum))
            });
            self.count -= before - recent.len();
            match recent.is_empty() {
                true => drop(self.recent.remove(&page)),
                false => recent.shrink_to_fit(),
            }
        }
    }

    /// What a checkpoint lists from index `from` on behind the recent checksums of the slow tier: those of the fast tier.
    pub fn list_fast(&self, from: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let first = self.first_fast;
        let slot = from.saturating_sub(first) / self.blocks_per_chunk;
        let all = self.fast.list(Slot(slot as u32));
        all.map(move |(slot, block, sum)| (first + self.index(slot, block), sum))
            .skip_while(move |&(index, _)| index < from)
    }

    /// Recent checksums from table index `from` on.
    pub fn list(&self, from: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let pages = self.recent.range(page_of(from)..);
        let all = pages
            .flat_map(|(&page, recent)| recent.iter().map(move |&(place, sum)| (index_of(page, place), sum)));
        all.skip_while(move |&(index, _)| index < from)
    }

    /// Notes a checksum by its index, as a checkpoint lists it.
    pub fn note_listed(&mut self, index: u64, sum: u32) {
        if let Some(fast) = index.checked_sub(self.first_fast) {
            let (slot, block) = (fast / self.blocks_per_chunk, fast % self.blocks_per_chunk);
            let block = BlockMask::range(block as u32, 1);
            return self.fast.note(Slot(slot as u32), &block, [sum].into_iter());
        }
        let recent = self.recent.entry(page_of(index)).or_default();
        let before = recent.len();
        put(recent, index, sum);
        self.count += recent.len() - before;
    }
}

/// The page of the table that holds an index.
fn page_of(index: u64) -> u32 {
    (index / SUMS_PER_PAGE) as u32
}

/// An index's place in its page.
fn place_of(index: u64) -> u16 {
    (index % SUMS_PER_PAGE) as u16
}

fn index_of(page: u32, place: u16) -> u64 {
    u64::from(page) * SUMS_PER_PAGE + u64::from(place)
}

fn put(recent: &mut RecentPage, index: u64, sum: u32) {
    let place = place_of(index);
    if recent.last().is_none_or(|&(last, _)| last < place) {
        return recent.push((place, sum));
    }
    match recent.binary_search_by_key(&place, |&(place, _)| place) {
        Ok(at) => recent[at].1 = sum,
        Err(at) => recent.insert(at, (place, sum)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::options::{CreateOptions, DeviceInfo};
    use crate::base::hash::mix;

    fn sums() -> Sums {
        let device = |gib: u64| DeviceInfo { name: String::new(), size_bytes: gib << 30 };
        let geo = Geometry::plan(&[device(1), device(8)], &CreateOptions::new([1; 16])).expect("a layout");
        let tuning = Tuning { recent_checksums: 1 << 20, checksum_cache_pages: 4, ..Tuning::default() };
        Sums::new(&geo, &tuning)
    }

    /// Against a plain map, over runs that cross pages, single blocks, what was folded and changed since.
    #[test]
    fn recent_checksums_are_a_map_by_index() {
        let (mut sums, mut plain) = (sums(), BTreeMap::new());
        let mut throws = 0;
        let mut next = |below: u64| {
            throws += 1;
            mix(throws) % below
        };
        for round in 0..3000u32 {
            let slot = Slot(next(300) as u32);
            let first = next(32) as u32;
            let mut blocks = BlockMask::range(first, 1 + next(32 - u64::from(first)) as u32);
            if next(2) == 0 {
                blocks = blocks.minus(BlockMask::range(first, 1));
            }
            let new: Vec<u32> = blocks.iter().map(|block| round * 100 + block).collect();
            sums.note(slot, &blocks, &new);
            blocks.iter().zip(&new).for_each(|(block, &sum)| {
                plain.insert(u64::from(slot.0) * 32 + u64::from(block), sum);
            });
            if next(50) == 0 {
                let from = next(9600);
                // Some of what is there, some of it changed since.
                let folded: Vec<(u64, u32)> = plain
                    .range(from..)
                    .take(500)
                    .map(|(&index, &sum)| (index, sum + u32::from(next(4) == 0)))
                    .collect();
                sums.forget(&folded);
                folded.iter().for_each(|(index, sum)| {
                    if plain.get(index) == Some(sum) {
                        plain.remove(index);
                    }
                });
            }
            assert_eq!(sums.recent(), plain.len());
            let from = next(9600);
            assert!(sums.list(from).eq(plain.range(from..).map(|(&index, &sum)| (index, sum))));
            let (slot, block) = (Slot(next(300) as u32), next(32) as u32);
            let index = sums.index(slot, block);
            let expected =
                plain.get(&index).map_or(Lookup::InPage(page_of(index)), |&sum| Lookup::Known(sum));
            assert_eq!(sums.get(slot, block), expected);
        }
    }
}
