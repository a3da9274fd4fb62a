//! The policy smq: what rises, and what gives way.
//!
//! - A hotspot queue of 64 levels counts accesses in regions of up to 16 blocks, whether cached or not; a region rises
//!   once in each second at most, and each second the levels are made equally full.
//! - A block that is not cached rises when its region's level is at least 48, 32 or 0: by whether fewer than a 16th, an
//!   8th, or more of the accesses of this second went to the upper quarter of the levels. A whole block that is
//!   written rises at once while the cache has room.
//! - The cache has a clean and a dirty queue of 64 levels; a block rises by a level once a minute at most.
//! - Where the cache is full, nothing rises; instead the oldest clean block of the lower half of the levels gives way,
//!   until a quarter is free, or, if there is none, a dirty one that was not hit for 10 s is written back.

use super::super::bits::Bits;
use super::super::levels::{LEVELS, Levels, Link};
use bimetal_units::Nanos;

/// How often hotspots are looked at, nanoseconds: `HOTSPOT_UPDATE_PERIOD`.
const HOTSPOT_PERIOD_NS: u64 = Nanos::SECOND;
/// How often the cache's levels are, nanoseconds: `CACHE_UPDATE_PERIOD`.
const CACHE_PERIOD_NS: u64 = 60 * Nanos::SECOND;
/// What was hit in the last period is not written back while busy, nanoseconds: `WRITEBACK_PERIOD`.
const WRITE_BACK_PERIOD_NS: u64 = 10 * Nanos::SECOND;
/// Blocks of a hotspot region at most.
const MOST_PER_REGION: u64 = 16;
/// Hotspot regions at least; a quarter of the cache's blocks otherwise.
const LEAST_REGIONS: u64 = 1024;
/// The topmost levels of hotspots, which hold few: `nr_top_levels`.
const TOP_LEVELS: usize = 8;
/// Accesses of this level and above count as hits: three quarters of the levels.
const HIT_LEVEL: u8 = 48;
/// Parts of a hundred that are to be free when blocks want to rise: `FREE_TARGET`.
const FREE_TARGET_PERCENT: u64 = 25;
/// Copies that wait or are being made at most: the background tracker's.
const MAX_WORK: usize = 4096;

/// What is to be done to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Promote,
    WriteBack,
}

/// A copy that the policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) want: Want,
    /// The block of the volume.
    pub(super) block: u64,
    /// The block of the cache.
    pub(super) cached: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// It is being copied up.
    Rising,
    Clean,
    Dirty,
    /// It is being written back; hit meanwhile, it is dirty again.
    Writing,
}

/// Hits and misses of a period.
#[derive(Default)]
struct Confidence {
    hits: u64,
    misses: u64,
}

impl Confidence {
    fn access(&mut self, level: Option<u8>) {
        match level {
            Some(level) if level >= HIT_LEVEL => self.hits += 1,
            _ => self.misses += 1,
        }
    }

    /// The level from which on blocks rise, and by how many levels a hit region does.
    fn assess(&self) -> (u8, u8) {
        match (self.hits << 8) / (self.hits + self.misses).max(1) {
            0..16 => (48, 4),
            16..32 => (32, 2),
            _ => (0, 1),
        }
    }
}

/// The queues. Memory: 4 bytes for each block of the volume and region, 25 for each block of the cache.
pub(super) struct Smq {
    /// Where each block of the volume is cached plus one; 0 for nowhere.
    map: Vec<u32>,
    owners: Vec<u32>,
    states: Vec<State>,
    links: Vec<Link>,
    clean: Levels,
    dirty: Levels,
    /// Blocks of the cache that were hit in this period.
    hit: Bits,
    free: Vec<u32>,
    unused: u32,
    working: usize,

    per_region: u64,
    /// Where each region is in the hotspot queue plus one; 0 for nowhere.
    regions: Vec<u32>,
    hotspot_owners: Vec<u32>,
    hotspot_links: Vec<Link>,
    hotspot_count: usize,
    hotspots: Levels,
    hotspot_hit: Bits,
    confidence: Confidence,
    promote_level: u8,
    raise: u8,

    next_hotspot_period: Nanos,
    next_cache_period: Nanos,
    next_write_back_period: Nanos,
    write_back_period: u32,
}

impl Smq {
    /// For a cache and a volume of so many blocks.
    pub(super) fn new(cached: u32, blocks: u64) -> Smq {
        let most = (u64::from(cached) / 4).max(LEAST_REGIONS);
        let mut per_region = MOST_PER_REGION;
        while per_region > 1 && per_region * most > blocks {
            per_region /= 2;
        }
        let in_top = (most / LEVELS as u64).min(u64::from(cached) / per_region);
        Smq {
            map: vec![0; blocks as usize],
            owners: vec![0; cached as usize],
            states: vec![State::Free; cached as usize],
            links: vec![Link::default(); cached as usize],
            clean: Levels::new(0, 0),
            dirty: Levels::new(0, 0),
            hit: Bits::new(u64::from(cached)),
            free: Vec::new(),
            unused: 0,
            working: 0,
            per_region,
            regions: vec![0; blocks.div_ceil(per_region) as usize],
            hotspot_owners: vec![0; most as usize],
            hotspot_links: vec![Link::default(); most as usize],
            hotspot_count: 0,
            hotspots: Levels::new(TOP_LEVELS, in_top),
            hotspot_hit: Bits::new(most),
            confidence: Confidence::default(),
            promote_level: LEVELS as u8,
            raise: 1,
            next_hotspot_period: Nanos(0),
            next_cache_period: Nanos(0),
            next_write_back_period: Nanos(0),
            write_back_period: 1,
        }
    }

    /// Ends the periods that are over.
    pub(super) fn tick(&mut self, now: Nanos) {
        if now >= self.next_write_back_period {
            self.next_write_back_period = now.after(WRITE_BACK_PERIOD_NS);
            self.write_back_period += 1;
        }
        if now >= self.next_hotspot_period {
            self.next_hotspot_period = now.after(HOTSPOT_PERIOD_NS);
            clear(&mut self.hotspot_hit);
            (self.promote_level, self.raise) = self.confidence.assess();
            self.hotspots.redistribute(&mut self.hotspot_links);
            self.confidence = Confidence::default();
        }
        if now >= self.next_cache_period {
            self.next_cache_period = now.after(CACHE_PERIOD_NS);
            clear(&mut self.hit);
            self.dirty.redistribute(&mut self.links);
            self.clean.redistribute(&mut self.links);
        }
    }

    /// Whether anything is to be written back, or is being.
    pub(super) fn has_dirty(&self) -> bool {
        self.dirty.count() > 0
    }

    /// A block is accessed: where it is cached, and what is to be copied for it. `whole`: all of it is written.
    pub(super) fn access(&mut self, block: u64, write: bool, whole: bool) -> (Option<u32>, Option<Work>) {
        let level = self.count_hotspot(block);
        if let Some(cached) = self.map[block as usize].checked_sub(1) {
            if self.states[cached as usize] == State::Rising {
                return (None, None);
            }
            self.requeue(cached);
            return (Some(cached), None);
        }
        let room = !self.free.is_empty() || (self.unused as usize) < self.states.len();
        if !(write && whole && room) && level < self.promote_level {
            return (None, None);
        }
        if !room {
            return (None, self.give_way());
        }
        if self.working >= MAX_WORK {
            return (None, None);
        }
        let cached = self.free.pop().unwrap_or(self.unused);
        self.unused = self.unused.max(cached + 1);
        self.map[block as usize] = cached + 1;
        self.owners[cached as usize] = block as u32;
        if whole {
            self.insert(cached, State::Dirty);
            return (Some(cached), None);
        }
        self.states[cached as usize] = State::Rising;
        self.working += 1;
        (None, Some(Work { want: Want::Promote, block, cached }))
    }

    /// Counts an access of a block's region; the level it has by then.
    fn count_hotspot(&mut self, block: u64) -> u8 {
        let region = (block / self.per_region) as usize;
        if let Some(hotspot) = self.regions[region].checked_sub(1) {
            self.confidence.access(Some(self.hotspot_links[hotspot as usize].level));
            let raise = if self.hotspot_hit.insert(u64::from(hotspot)) { self.raise } else { 0 };
            self.hotspots.requeue(&mut self.hotspot_links, hotspot, raise, 0);
            return self.hotspot_links[hotspot as usize].level;
        }
        self.confidence.access(None);
        let hotspot = match self.hotspot_count < self.hotspot_owners.len() {
            true => {
                self.hotspot_count += 1;
                self.hotspot_count as u32 - 1
            }
            false => {
                let Some(oldest) = self.hotspots.pop(&mut self.hotspot_links) else { return 0 };
                self.regions[self.hotspot_owners[oldest as usize] as usize] = 0;
                self.hotspot_hit.remove(u64::from(oldest));
                oldest
            }
        };
        self.regions[region] = hotspot + 1;
        self.hotspot_owners[hotspot as usize] = region as u32;
        self.hotspots.push(&mut self.hotspot_links, hotspot, 0);
        self.hotspot_links[hotspot as usize].level
    }

    fn queue(&mut self, state: State) -> Option<&mut Levels> {
        match state {
            State::Clean => Some(&mut self.clean),
            State::Dirty => Some(&mut self.dirty),
            _ => None,
        }
    }

    fn insert(&mut self, cached: u32, state: State) {
        self.states[cached as usize] = state;
        self.links[cached as usize].level = LEVELS as u8 - 1;
        self.push(cached);
    }

    fn push(&mut self, cached: u32) {
        let period = self.write_back_period;
        let mut links = std::mem::take(&mut self.links);
        if let Some(queue) = self.queue(self.states[cached as usize]) {
            queue.push(&mut links, cached, period);
        }
        self.links = links;
    }

    fn remove(&mut self, cached: u32) {
        let mut links = std::mem::take(&mut self.links);
        if let Some(queue) = self.queue(self.states[cached as usize]) {
            queue.remove(&mut links, cached);
        }
        self.links = links;
    }

    fn requeue(&mut self, cached: u32) {
        let period = self.write_back_period;
        if !self.hit.insert(u64::from(cached)) {
            return;
        }
        let mut links = std::mem::take(&mut self.links);
        if let Some(queue) = self.queue(self.states[cached as usize]) {
            queue.requeue(&mut links, cached, 1, period);
        }
        self.links = links;
    }

    /// A block of the cache is dirty from now on, or clean.
    pub(super) fn set_dirty(&mut self, cached: u32, dirty: bool) {
        let state = if dirty { State::Dirty } else { State::Clean };
        if self.states[cached as usize] != state {
            self.remove(cached);
            self.states[cached as usize] = state;
            self.push(cached);
        }
    }

    /// There is no room: a clean block gives way, or a dirty one is to be written back.
    fn give_way(&mut self) -> Option<Work> {
        let free = self.free.len() as u64 + (self.states.len() as u64 - u64::from(self.unused));
        if free >= self.states.len() as u64 * FREE_TARGET_PERCENT / 100 {
            return None;
        }
        let Some(cached) = self.clean.peek(&self.links, LEVELS / 2, u32::MAX) else {
            return self.begin_write_back(self.write_back_period);
        };
        self.remove(cached);
        self.states[cached as usize] = State::Free;
        self.map[self.owners[cached as usize] as usize] = 0;
        self.free.push(cached);
        None
    }

    /// What is to be written back next while idle.
    pub(super) fn write_back(&mut self) -> Option<Work> {
        self.begin_write_back(u32::MAX)
    }

    fn begin_write_back(&mut self, before: u32) -> Option<Work> {
        if self.working >= MAX_WORK {
            return None;
        }
        let cached = self.dirty.peek(&self.links, LEVELS, before)?;
        self.remove(cached);
        self.states[cached as usize] = State::Writing;
        self.working += 1;
        Some(Work { want: Want::WriteBack, block: u64::from(self.owners[cached as usize]), cached })
    }

    /// A copy is done.
    pub(super) fn completed(&mut self, work: Work) {
        self.working -= 1;
        match (work.want, self.states[work.cached as usize]) {
            (Want::Promote, _) => self.insert(work.cached, State::Clean),
            (Want::WriteBack, State::Writing) => self.set_dirty(work.cached, false),
            (Want::WriteBack, _) => {}
        }
    }
}

fn clear(bits: &mut Bits) {
    let mut at = 0;
    while let Some(number) = bits.next(at) {
        bits.remove(number);
        at = number + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hit_rises_and_a_full_cache_lets_something_go() {
        let mut smq = Smq::new(64, 1 << 16);
        smq.tick(Nanos(0));
        // Nothing rises at its first touch; whole blocks that are written do while there is room.
        for region in 0..640 {
            assert_eq!(smq.access(region * 16, true, false), (None, None));
        }
        for block in 0..64 {
            assert_eq!(smq.access(20_000 + block, true, true), (Some(block as u32), None));
        }
        assert_eq!(smq.access(30_000, true, true), (None, None));
        // A region that is hit each second comes to the top, and then something has to give way.
        let mut wanted = None;
        for second in 1..60 {
            smq.tick(Nanos(second * Nanos::SECOND));
            for _ in 0..10 {
                wanted = wanted.or(smq.access(0, true, false).1);
            }
        }
        let work = wanted.expect("a dirty block is to be written back");
        assert_eq!(work.want, Want::WriteBack);
        smq.completed(work);
        assert_eq!(smq.clean.count(), 1);
    }
}
