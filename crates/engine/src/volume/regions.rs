//! Which of the checksum pages of the fast tier count, and which are to be written.
//!
//! A *region* is what one page holds the checksums of: 1,010 blocks of neighbouring fast slots. Where the checkpoint in force
//! names a page of it, it is *closed*: its checksums count, whoever opens the volume after a crash. Any record behind that
//! checkpoint which names a block of the region opens it, in memory and in a replay. So nothing of a closed region may be
//! overwritten in place before such a record is durable; what is no chunk's home yet may be, as a record comes to name it.
//!
//! In memory a page counts for as long as its region has one, but for the blocks that were written since.

use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::format::geometry::Geometry;
use crate::format::page::SUMS_PER_PAGE;
use crate::volume::ends::Ends;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

/// Blocks of a region.
const BLOCKS: u32 = SUMS_PER_PAGE as u32;
/// A region is at rest when it was not written for this many ages.
const AGES_AT_REST: u8 = 2;
/// A checkpoint is made for so many that are at rest, ...
const MANY_AT_REST: usize = 64;
/// ... or for one that was not written for so many ages: each writes the list of recent checksums anew.
const AGES_AT_MOST: u8 = 10;
/// Pages that a checkpoint writes at most, unless it is the last: while it runs, the log frees nothing.
const PAGES_AT_ONCE: usize = 1024;
/// What is left is written this much later, ns.
const REST_OF_THEM_NS: u64 = Nanos::SECOND;
/// Regions at most of which it is known which blocks were written; beyond them all of a region's were.
const STALE_AT_MOST: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum Hold {
    /// What is written goes in place.
    #[default]
    Open,
    /// A record opens it that may not be durable.
    Opening,
    /// A page of it is named, or is to be.
    Closed,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Region {
    hold: Hold,
    /// The version of its page in force holds what it says, but for stale blocks.
    has_page: bool,
    /// Something is known, or was written, that its page does not hold.
    is_dirty: bool,
    /// How often it was seen since it was written.
    age: u8,
}

/// What a checkpoint does with a region's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It writes one.
    Close,
    /// It names none.
    Open,
}

/// A region that a running checkpoint closes.
#[derive(Serialize, Deserialize)]
struct Closing {
    region: u32,
    /// What it was.
    before: Hold,
    /// The checkpoint in force names a page that it must not name again.
    was_opened: bool,
}

/// The regions of the fast tier; none in a volume that has no such pages.
#[derive(Default, Serialize, Deserialize)]
pub struct Regions {
    regions: Vec<Region>,
    /// The page of the table that is the first region's.
    first_page: u32,
    blocks_per_chunk: u32,
    /// Those that a record opens.
    opening: Ends<u32>,
    opening_since: Option<Nanos>,
    /// Of which the checkpoint in force names a page, and the next must not.
    opened: BTreeSet<u32>,
    /// The blocks that were written since the page in force was.
    stale: BTreeMap<u32, BlockMask>,
    /// What the running checkpoint closes, and opens.
    closing: Vec<Closing>,
    unnaming: Vec<u32>,
    /// The blocks that were written since a page was made of what the running checkpoint closes.
    stale_since: BTreeMap<u32, BlockMask>,
    dirty: usize,
    /// When regions grow older.
    ages_at: Option<Nanos>,
    /// When those are written that one checkpoint had too many of.
    rest_of_them_at: Option<Nanos>,
    /// What the checkpoint in force holds is being replayed: it opens none.
    pub(crate) is_settled: bool,
}

/// Bytes of RAM of which blocks of a region were written.
const MASK_BYTES: u64 = size_of::<BlockMask>() as u64 + 16;

/// Bytes of RAM of so many regions, none of them written.
pub fn ram_bytes(pages: u32) -> u64 {
    u64::from(pages) * size_of::<Region>() as u64
}

/// Bytes of RAM at most of what is known beside that.
pub fn masks_ram_bytes_at_most(pages: u32) -> u64 {
    2 * u64::from(pages).min(STALE_AT_MOST as u64) * MASK_BYTES
}

impl Regions {
    /// All open, none of them ever written.
    pub fn new(geo: &Geometry) -> Regions {
        Regions {
            regions: vec![Region::default(); geo.fast_sum_pages as usize],
            first_page: geo.sum_pages,
            blocks_per_chunk: geo.blocks_per_chunk(),
            ..Regions::default()
        }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        let masks = self.stale.len() + self.stale_since.len();
        ram_bytes(self.regions.len() as u32) + masks as u64 * MASK_BYTES
    }

    /// The page of the table that is a region's.
    pub fn page(&self, region: u32) -> u32 {
        self.first_page + region
    }

    /// The region that a page of the table is of, if it is one of the fast tier's.
    pub fn of_page(&self, page: u32) -> Option<u32> {
        page.checked_sub(self.first_page).filter(|region| (*region as usize) < self.regions.len())
    }

    /// The slots, and of each the blocks, of which a region's page has the checksums, one behind the other.
    pub fn slots(&self, region: u32) -> impl Iterator<Item = (Slot, Range<u32>)> + use<> {
        let (first, per) = (u64::from(region) * SUMS_PER_PAGE, u64::from(self.blocks_per_chunk));
        let end = first + SUMS_PER_PAGE;
        (first / per..end.div_ceil(per)).map(move |slot| {
            let within = |at: u64| at.clamp(slot * per, (slot + 1) * per) - slot * per;
            (Slot(slot as u32), within(first) as u32..within(end) as u32)
        })
    }

    fn at(&self, slot: Slot, block: u32) -> (u32, u32) {
        let at = u64::from(slot.0) * u64::from(self.blocks_per_chunk) + u64::from(block);
        ((at / SUMS_PER_PAGE) as u32, (at % SUMS_PER_PAGE) as u32)
    }

    /// The regions between two blocks of a slot.
    fn between(&self, slot: Slot, first: u32, last: u32) -> Range<usize> {
        let end = self.regions.len();
        let (first, last) = (self.at(slot, first).0 as usize, self.at(slot, last).0 as usize);
        first.min(end)..(last + 1).min(end)
    }

    fn of(&self, slot: Slot, blocks: &BlockMask) -> Range<usize> {
        let Some((first, last)) = blocks.bounds() else { return 0..0 };
        self.between(slot, first, last)
    }

    /// Where the checksum of a block is, if its page says it.
    pub fn find(&self, slot: Slot, block: u32) -> Option<(u32, usize)> {
        let (region, place) = self.at(slot, block);
        let has_page = self.regions.get(region as usize)?.has_page;
        let is_stale = || self.stale.get(&region).is_some_and(|stale| stale.has(place));
        (has_page && !is_stale()).then(|| (self.page(region), place as usize))
    }

    /// Whether a crash might bring back checksums of some of these blocks.
    pub fn hold(&self, slot: Slot, blocks: &BlockMask) -> bool {
        self.regions[self.of(slot, blocks)].iter().any(|region| region.hold != Hold::Open)
    }

    /// These blocks are being written.
    pub fn touch(&mut self, slot: Slot, blocks: &BlockMask) {
        for region in self.of(slot, blocks) {
            if self.soil(region) {
                let region = region as u32;
                let here = blocks.iter().map(|block| self.at(slot, block)).filter(|at| at.0 == region);
                let places: Vec<u32> = here.map(|at| at.1).collect();
                self.stain(region, &places);
            }
        }
    }

    /// All of the slot is, or is somebody else's.
    pub fn touch_slot(&mut self, slot: Slot) {
        self.touch(slot, &BlockMask::range(0, self.blocks_per_chunk));
    }

    /// What is known of a region changes; whether it has a page, or is to have one.
    fn soil(&mut self, region: usize) -> bool {
        let it = &mut self.regions[region];
        it.age = 0;
        self.dirty += usize::from(!mem::replace(&mut it.is_dirty, true));
        it.has_page || !self.closing.is_empty()
    }

    /// What these blocks were written as is known.
    pub fn learn(&mut self, slot: Slot, blocks: &BlockMask) {
        self.of(slot, blocks).for_each(|region| _ = self.soil(region));
    }

    fn stain(&mut self, region: u32, places: &[u32]) {
        let stain = |masks: &mut BTreeMap<u32, BlockMask>| {
            let known = masks.len() < STALE_AT_MOST || masks.contains_key(&region);
            if known {
                let mask = masks.entry(region).or_default();
                places.iter().for_each(|place| mask.set(*place));
            }
            known
        };
        let it = &mut self.regions[region as usize];
        it.has_page &= stain(&mut self.stale);
        if self.closing.binary_search_by_key(&region, |closing| closing.region).is_ok()
            && !stain(&mut self.stale_since)
        {
            let all = BlockMask::range(0, BLOCKS);
            self.stale_since.insert(region, all);
        }
    }

    /// A record that names these blocks is in the log, in a group that [`Regions::ended_by`] will tell.
    pub fn open(&mut self, slot: Slot, blocks: &BlockMask) {
        for region in self.of(slot, blocks) {
            if self.regions[region].hold == Hold::Closed && !self.is_settled {
                self.soil(region);
                let early = planted(Bug::RegionOpensEarly);
                self.regions[region].hold = if early { Hold::Open } else { Hold::Opening };
                self.opening.push(region as u32);
                self.opened.insert(region as u32);
            }
        }
    }

    /// A record that names the slot is durable.
    pub fn open_slot(&mut self, slot: Slot) {
        for region in self.between(slot, 0, self.blocks_per_chunk - 1) {
            if self.regions[region].hold == Hold::Closed && !self.is_settled {
                self.soil(region);
                self.regions[region].hold = Hold::Open;
                self.opened.insert(region as u32);
            }
        }
    }

    /// Since when records that open regions are not known to be durable.
    pub fn opening_since(&self) -> Option<Nanos> {
        self.opening_since.filter(|_| !self.opening.is_empty())
    }

    /// Such records are waited for from now on, unless they are already; `again`: in any case.
    pub fn wait_for_opening(&mut self, now: Nanos, again: bool) {
        let since = self.opening_since().filter(|_| !again);
        self.opening_since = (!self.opening.is_empty()).then(|| since.unwrap_or(now));
    }

    /// The next checkpoint is to open these, without a record: there is no room for one. Whether nobody has asked for that yet.
    pub fn open_by_checkpoint(&mut self, slot: Slot, blocks: &BlockMask) -> bool {
        let mut is_new = false;
        for region in self.of(slot, blocks) {
            if self.regions[region].hold == Hold::Closed {
                self.soil(region);
                is_new |= self.opened.insert(region as u32);
            }
        }
        is_new
    }

    /// What opened of late was opened by records in groups up to this one.
    pub fn ended_by(&mut self, group: Seq) {
        self.opening.ended_by(group);
    }

    /// The groups that are waited for.
    pub fn waits(&mut self) -> impl Iterator<Item = &mut Seq> {
        self.opening.waits()
    }

    /// Groups up to this one are durable. Whether that has opened something.
    pub fn durable(&mut self, group: Seq) -> bool {
        let opened = self.opening.durable(group);
        for region in &opened {
            let hold = &mut self.regions[*region as usize].hold;
            if *hold == Hold::Opening {
                *hold = Hold::Open;
            }
        }
        !opened.is_empty()
    }

    /// The checkpoint that a volume is read from names a page of this region.
    pub fn found(&mut self, region: u32) {
        let it = &mut self.regions[region as usize];
        (it.hold, it.has_page) = (Hold::Closed, true);
    }

    /// The log was replayed, and all that was found of it is durable: of what it opened nobody knows which blocks were written.
    pub fn settle(&mut self) {
        self.opening = Ends::default();
        self.regions.iter_mut().for_each(|region| region.is_dirty = false);
        self.dirty = 0;
        if planted(Bug::RegionStaysClosed) {
            self.regions
                .iter_mut()
                .filter(|region| region.has_page)
                .for_each(|region| region.hold = Hold::Closed);
            return self.opened.clear();
        }
        for region in &self.opened {
            let it = &mut self.regions[*region as usize];
            (it.hold, it.has_page) = (Hold::Open, false);
        }
    }

    /// No page counts: the log may not have said all that was done to what they tell of.
    pub fn distrust(&mut self) {
        self.regions.iter_mut().for_each(|region| region.has_page = false);
    }

    /// A region's page cannot be read, or is not the one in force.
    pub fn page_is_lost(&mut self, region: u32) {
        self.regions[region as usize].has_page = false;
        self.stale.remove(&region);
    }

    /// Whether a checkpoint is worth while for what rests: regions grow older, `rest_ns` from the first write and each time
    /// after that.
    pub fn want_checkpoint(&mut self, now: Nanos, rest_ns: u64) -> bool {
        if self.dirty == 0 {
            (self.ages_at, self.rest_of_them_at) = (None, None);
            return false;
        }
        let is_over = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        let rest_of_them = self.rest_of_them_at.take_if(|at| *at <= now).is_some();
        let grow = is_over(self.ages_at);
        if grow || self.ages_at.is_none() {
            self.ages_at = Some(now.after(rest_ns));
        }
        rest_of_them || grow && self.grow_older()
    }

    /// Whether enough are at rest, or one has been for long enough.
    fn grow_older(&mut self) -> bool {
        let (mut at_rest, mut oldest) = (0, 0);
        for region in self.regions.iter_mut().filter(|region| region.is_dirty) {
            region.age = region.age.saturating_add(1);
            if region.hold != Hold::Opening {
                at_rest += usize::from(region.age >= AGES_AT_REST);
                oldest = oldest.max(region.age);
            }
        }
        at_rest >= MANY_AT_REST || oldest >= AGES_AT_MOST
    }

    /// When that is to be asked again.
    pub fn due_at(&self) -> Option<Nanos> {
        self.ages_at.into_iter().chain(self.rest_of_them_at).min()
    }

    /// The first region from this one on of which a checkpoint writes a page, or names none any more; `all`: it is the last.
    pub fn next(&mut self, from: u32, all: bool, now: Nanos) -> Option<(u32, Step)> {
        if self.dirty == 0 && self.opened.is_empty() {
            return None;
        }
        let is_full = self.closing.len() >= PAGES_AT_ONCE && !all;
        let may_close =
            |it: &Region| it.is_dirty && it.hold != Hold::Opening && (all || it.age >= AGES_AT_REST);
        let opened = self.opened.range(from..).next().copied();
        let opened = opened.filter(|_| !planted(Bug::OpenedRegionNamed));
        let rest = self.regions.iter().enumerate().skip(from as usize);
        let closes = rest.map(|(region, it)| (region as u32, it)).find(|(_, it)| may_close(it));
        let closes = closes.map(|(region, _)| region);
        if is_full && closes.is_some() {
            self.rest_of_them_at = Some(now.after(REST_OF_THEM_NS));
        }
        match (opened, closes.filter(|_| !is_full)) {
            (Some(opened), closes) if closes.is_none_or(|closes| opened < closes) => {
                Some((opened, Step::Open))
            }
            (_, closes) => Some((closes?, Step::Close)),
        }
    }

    /// Whether a region's page has something to say that is not known otherwise.
    pub fn has_page(&self, region: u32) -> bool {
        self.regions[region as usize].has_page
    }

    /// A page was made of what is known: from here on what is written in place lands first.
    pub fn close(&mut self, region: u32) {
        let it = &mut self.regions[region as usize];
        let before = mem::replace(&mut it.hold, Hold::Closed);
        self.dirty -= usize::from(mem::take(&mut it.is_dirty));
        let was_opened = self.opened.remove(&region);
        self.closing.push(Closing { region, before, was_opened });
    }

    /// Nothing is known of a region: there is nothing to write. Whether the checkpoint has to say that it names none.
    pub fn has_nothing(&mut self, region: u32) -> bool {
        self.dirty -= usize::from(mem::take(&mut self.regions[region as usize].is_dirty));
        self.opened.contains(&region)
    }

    /// The running checkpoint names no page of a region.
    pub fn unname(&mut self, region: u32) {
        self.opened.remove(&region);
        self.unnaming.push(region);
    }

    /// The checkpoint is in force. Gives the pages of which another version is, and those of which none is.
    pub fn published(&mut self) -> Vec<u32> {
        for region in &self.unnaming {
            let it = &mut self.regions[*region as usize];
            it.has_page = false;
            if it.hold == Hold::Closed {
                it.hold = Hold::Open;
            }
            self.stale.remove(region);
        }
        for closing in &self.closing {
            self.regions[closing.region as usize].has_page = true;
            match self.stale_since.remove(&closing.region) {
                Some(stale) => self.stale.insert(closing.region, stale),
                None => self.stale.remove(&closing.region),
            };
        }
        self.stale_since.clear();
        let closed = mem::take(&mut self.closing).into_iter().map(|closing| closing.region);
        closed.chain(mem::take(&mut self.unnaming)).map(|region| self.first_page + region).collect()
    }

    /// The checkpoint failed: all is as it was.
    pub fn aborted(&mut self) {
        for Closing { region, before, was_opened } in mem::take(&mut self.closing) {
            let it = &mut self.regions[region as usize];
            if it.hold == Hold::Closed {
                it.hold = before;
            }
            self.dirty += usize::from(!mem::replace(&mut it.is_dirty, true));
            if was_opened {
                self.opened.insert(region);
            }
        }
        self.stale_since.clear();
        self.opened.extend(mem::take(&mut self.unnaming));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::options::{CreateOptions, DeviceInfo};

    const SECOND: u64 = Nanos::SECOND;

    /// Chunks of 32 blocks: the first region is of 31 slots, and of the first blocks of the next.
    fn regions() -> Regions {
        let device = |gib: u64| DeviceInfo { name: String::new(), size_bytes: gib << 30 };
        let geo = Geometry::plan(&[device(1), device(8)], &CreateOptions::new([1; 16])).expect("a layout");
        Regions::new(&geo)
    }

    fn one(block: u32) -> BlockMask {
        BlockMask::range(block, 1)
    }

    /// What a checkpoint does with regions, at this second.
    fn steps(regions: &mut Regions, second: u64) -> Vec<(u32, Step)> {
        let now = Nanos(second * SECOND);
        regions.want_checkpoint(now, SECOND);
        let (mut from, mut all) = (0, Vec::new());
        while let Some((region, step)) = regions.next(from, false, now) {
            match step {
                Step::Close => regions.close(region),
                Step::Open => regions.unname(region),
            }
            all.push((region, step));
            from = region + 1;
        }
        all
    }

    #[test]
    fn what_rests_is_closed_and_what_a_record_names_is_opened() {
        let mut regions = regions();
        regions.touch(Slot(31), &BlockMask::range(16, 4));
        assert_eq!([0, 1].map(|second| steps(&mut regions, second)), [[], []]);
        // Blocks 16 and 17 of slot 31 are the last of the first region.
        assert_eq!(steps(&mut regions, 2), [(0, Step::Close), (1, Step::Close)]);
        assert!(regions.hold(Slot(31), &one(17)) && regions.hold(Slot(31), &one(18)));
        assert_eq!(regions.find(Slot(31), 17), None, "the checkpoint is not in force");
        assert_eq!(regions.published(), [regions.page(0), regions.page(1)]);
        assert_eq!(regions.find(Slot(31), 17), Some((regions.page(0), 1009)));
        assert_eq!(regions.find(Slot(31), 18), Some((regions.page(1), 0)));
        assert!(!regions.want_checkpoint(Nanos(3 * SECOND), SECOND));
        assert_eq!(regions.due_at(), None, "nothing is left to do");

        regions.open(Slot(31), &one(18));
        assert!(regions.hold(Slot(31), &one(18)), "its record is not durable");
        regions.durable(Seq(9));
        regions.ended_by(Seq(7));
        regions.durable(Seq(6));
        assert!(regions.hold(Slot(31), &one(18)));
        regions.durable(Seq(7));
        assert!(regions.hold(Slot(31), &one(17)) && !regions.hold(Slot(31), &one(18)));
        regions.touch(Slot(32), &one(5));
        assert_eq!(
            (regions.find(Slot(32), 5), regions.find(Slot(32), 6)),
            (None, Some((regions.page(1), 20)))
        );
        assert_eq!(steps(&mut regions, 5), [(1, Step::Open)]);
        regions.aborted();
        assert_eq!(steps(&mut regions, 5), [(1, Step::Open)], "nobody has said so yet");
        regions.published();
        assert_eq!(regions.find(Slot(32), 6), None);
        assert_eq!(steps(&mut regions, 6), []);
    }

    /// What was written after a page was made is not what it says, though the page it takes the place of did not say it either.
    #[test]
    fn what_is_written_while_a_checkpoint_runs_is_not_what_its_page_says() {
        let mut regions = regions();
        regions.touch(Slot(0), &BlockMask::range(0, 32));
        (0..2).for_each(|second| assert_eq!(steps(&mut regions, second), []));
        assert_eq!(steps(&mut regions, 2), [(0, Step::Close)]);
        regions.touch(Slot(0), &one(3));
        regions.touch_slot(Slot(1));
        regions.published();
        let known = [(0, 2), (0, 3), (1, 0), (2, 0)].map(|(slot, block)| regions.find(Slot(slot), block));
        let page = regions.page(0);
        assert_eq!(known, [Some((page, 2)), None, None, Some((page, 64))]);
        // One that fails leaves what was before.
        assert_eq!(steps(&mut regions, 3), []);
        assert_eq!(steps(&mut regions, 4), [(0, Step::Close)]);
        regions.aborted();
        let again = [(0, 2), (0, 3)].map(|(slot, block)| regions.find(Slot(slot), block));
        assert_eq!(again, [Some((page, 2)), None]);
    }

    /// Few that are at rest wait for a checkpoint that comes anyway, though not for ever; many are worth one.
    #[test]
    fn few_at_rest_are_worth_no_checkpoint_of_their_own_for_a_while() {
        for (written, expected) in [(1, 10), (63, 10), (64, 2)] {
            let mut regions = regions();
            (0..written).for_each(|region| regions.touch(Slot(region * 32), &one(0)));
            let wanted = (0..20).find(|second| regions.want_checkpoint(Nanos(second * SECOND), SECOND));
            assert_eq!(wanted, Some(expected), "{written}");
        }
    }

    /// A crash: what the log names behind the checkpoint is open, and nothing is known of it.
    #[test]
    fn a_replay_opens_what_it_names() {
        let mut regions = regions();
        [0, 1, 2].into_iter().for_each(|region| regions.found(region));
        regions.is_settled = true;
        regions.open(Slot(0), &one(0));
        regions.is_settled = false;
        regions.open(Slot(40), &one(0));
        regions.open_slot(Slot(70));
        regions.settle();
        let held = [0, 40, 70].map(|slot| (regions.hold(Slot(slot), &one(0)), regions.find(Slot(slot), 1)));
        assert_eq!(held, [(true, Some((regions.page(0), 1))), (false, None), (false, None)]);
        assert_eq!(steps(&mut regions, 1), [(1, Step::Open), (2, Step::Open)]);
    }
}
