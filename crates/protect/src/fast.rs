//! What the image lacks of the fast device: blocks while the volume is open, regions of them for the next opening after a crash.

use crate::blocks::Blocks;
use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Ranges};
use crate::header::{MOST_REGIONS, Map};
use std::collections::VecDeque;
use std::ops::Range;

/// A region has so many blocks at least.
pub(crate) const LEAST_REGION: u64 = 256;

/// What the image lacks of the fast device.
pub(crate) struct Fast {
    blocks: u64,
    /// Written since the last freeze.
    dirty: Blocks,
    /// What is to be copied for the epoch, and was not read yet.
    frozen: Blocks,
    /// What of it nobody has begun with.
    todo: Blocks,
    /// All of the epoch.
    epoch: Blocks,
    epoch_is_open: bool,
    cursor: u64,
    /// Somebody waits for these.
    urgent: VecDeque<Range<u64>>,
    /// What goes to the copy for an image that is made anew, and nobody has begun with.
    base: Blocks,
    /// These could not be read together.
    single: VecDeque<u64>,
    /// These could not be read at all.
    pub(crate) lost: Ranges,
    regions: Regions,
}

struct Regions {
    each: u64,
    /// So many are open with the one before them.
    ahead: usize,
    /// The image may lack something of it.
    open: Vec<bool>,
    /// The newest map says so.
    durable: Vec<bool>,
    /// What a map that is being written says.
    being_written: Option<Vec<bool>>,
    /// Some are to be open that the newest map does not know.
    lacks: bool,
    number: u64,
}

impl Fast {
    /// Of a device of so many blocks. Of what regions a map says are open, the image may lack all.
    pub(crate) fn new(blocks: u64, (unit, ahead): (u64, usize), map: Option<&Map>) -> Fast {
        let each = blocks.div_ceil(MOST_REGIONS).next_multiple_of(unit.max(1));
        let count = blocks.div_ceil(each) as usize;
        let fits = map.filter(|map| map.region_blocks == each && map.open.len() == count);
        let open = fits.map_or(vec![true; count], |map| map.open.clone());
        let mut dirty = Blocks::none(blocks);
        for (place, _) in open.iter().enumerate().filter(|(_, open)| **open) {
            dirty.insert(&(place as u64 * each..((place as u64 + 1) * each).min(blocks)));
        }
        let number = map.map_or(0, |map| map.number);
        // A map that is not there does not say that they are open.
        let durable = if fits.is_some() { open.clone() } else { vec![false; count] };
        Fast {
            blocks,
            dirty,
            frozen: Blocks::none(blocks),
            todo: Blocks::none(blocks),
            epoch: Blocks::none(blocks),
            epoch_is_open: false,
            cursor: 0,
            urgent: VecDeque::new(),
            base: Blocks::none(blocks),
            single: VecDeque::new(),
            lost: Ranges::default(),
            regions: Regions {
                each,
                ahead,
                open,
                durable,
                being_written: None,
                lacks: fits.is_none(),
                number,
            },
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// There is a map of this number already, which need not be the one that counts.
    pub(crate) fn maps_go_on_from(&mut self, number: u64) {
        self.regions.number = self.regions.number.max(number);
    }

    /// Blocks that the image lacks.
    pub(crate) fn lacking(&self) -> u64 {
        self.dirty.count() + self.frozen.count()
    }

    /// A write begins, or has ended: what it left is not in what was frozen before.
    pub(crate) fn written(&mut self, range: &Range<u64>) {
        self.dirty.insert(range);
    }

    /// An image is made anew: what the copy may lack of the last one goes to it, which is also what the ring has of it; all,
    /// where there was none. What is written from now on is told from that.
    pub(crate) fn begin_base(&mut self, unapplied: Option<&Extents>) {
        let mut base = Blocks::none(self.blocks);
        match unapplied {
            None => base.insert(&(0..self.blocks)),
            Some(unapplied) => {
                [&self.dirty, &self.frozen, &self.epoch].into_iter().for_each(|blocks| base.append(blocks));
                self.lost.iter().for_each(|range| base.insert(&range));
                let ring = unapplied.iter().filter(|_| !planted(Bug::RingForgotten));
                ring.for_each(|(range, _)| base.insert(&range));
            }
        }
        self.base = base;
        for blocks in [&mut self.dirty, &mut self.frozen, &mut self.todo, &mut self.epoch] {
            blocks.take();
        }
        self.urgent.clear();
        self.single.clear();
        self.lost.clear();
        self.regions.open.fill(false);
    }

    /// The next run that goes to the copy, from this block on.
    pub(crate) fn next_of_base(&self, from: u64, most: u64) -> Option<Range<u64>> {
        self.base.next(from, most)
    }

    /// How many blocks are to be frozen next.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.count()
    }

    /// How many blocks of the epoch are still to be read.
    pub(crate) fn unread(&self) -> u64 {
        self.frozen.count()
    }

    /// An epoch begins: what was written until now is to be copied as it is now.
    pub(crate) fn freeze(&mut self) {
        self.frozen = self.dirty.take();
        self.todo = self.frozen.clone();
        self.epoch = self.frozen.clone();
        self.epoch_is_open = false;
        self.cursor = 0;
        self.urgent.clear();
        self.single.clear();
    }

    /// Whether the map says of all of the epoch that the image may lack it: only then it goes to the ring. After a crash it is copied
    /// once more, so that what the ring has of an epoch that came to nothing is in no later image.
    pub(crate) fn epoch_is_open(&mut self) -> bool {
        if !self.epoch_is_open && !planted(Bug::EpochNotOpened) {
            let mut open = true;
            for place in 0..self.regions.open.len() as u64 {
                let start = place * self.regions.each;
                let range = start..(start + self.regions.each).min(self.blocks);
                open &= !self.epoch.overlaps(&range) || self.regions.open(&range);
            }
            self.epoch_is_open = open;
        }
        self.epoch_is_open || planted(Bug::EpochNotOpened)
    }

    /// The epoch is given up: all of it is lacking still.
    pub(crate) fn unfreeze(&mut self) {
        let epoch = self.epoch.take();
        self.dirty.append(&epoch);
        self.frozen.take();
        self.todo.take();
        self.urgent.clear();
        self.single.clear();
    }

    /// All of the epoch has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.frozen.count() == 0
    }

    /// Whether a write may begin: not before the map says that the image may lack it, nor before what was frozen is read.
    pub(crate) fn admits(&mut self, range: &Range<u64>) -> bool {
        let open = self.regions.open(range);
        let frozen = self.frozen.overlaps(range) && !planted(Bug::FrozenOverwritten);
        if frozen && !self.urgent.contains(range) {
            self.urgent.push_back(range.clone());
        }
        open && !frozen
    }

    /// The next run to read for the epoch. A write that was on its way at the freeze may still be: either is what a crash at the
    /// freeze may have left, and what it leaves in the end is noted when it ends.
    pub(crate) fn choose(&mut self, most: u64) -> Option<Range<u64>> {
        if let Some(block) = self.single.pop_front() {
            return Some(block..block + 1);
        }
        while let Some(range) = self.urgent.pop_front() {
            let run = self.todo.next(range.start, most).filter(|run| run.start < range.end);
            if let Some(run) = run.map(|run| run.start..run.end.min(range.end)) {
                self.urgent.push_front(run.end..range.end);
                self.todo.remove(&run);
                return Some(run);
            }
        }
        let run = self.todo.next(self.cursor, most)?;
        self.todo.remove(&run);
        self.cursor = run.end;
        Some(run)
    }

    /// A run that was chosen is not begun with after all.
    pub(crate) fn put_back(&mut self, run: &Range<u64>) {
        self.todo.insert(run);
        self.cursor = self.cursor.min(run.start);
    }

    /// A run is read: the writes that waited for it may begin.
    pub(crate) fn read(&mut self, run: &Range<u64>) {
        self.frozen.remove(run);
        self.lost.remove(run);
    }

    /// A run could not be read. Its blocks are tried by themselves; one that is alone is lost.
    pub(crate) fn cannot_read(&mut self, run: &Range<u64>) {
        if run.end - run.start > 1 {
            self.single.extend(run.clone());
        } else {
            self.frozen.remove(run);
            if !planted(Bug::UnreadIsCopied) {
                self.lost.insert(run.clone());
            }
        }
    }

    /// An image has all of the epoch: regions that nobody has written to since may be closed.
    pub(crate) fn committed(&mut self, is_busy: impl Fn(&Range<u64>) -> bool) {
        self.epoch.take();
        for place in 0..self.regions.open.len() {
            let start = place as u64 * self.regions.each;
            let range = start..(start + self.regions.each).min(self.blocks);
            if self.regions.open[place] && !self.dirty.overlaps(&range) && !is_busy(&range) {
                self.regions.open[place] = false;
            }
        }
    }

    /// Whether somebody waits for a map.
    pub(crate) fn lacks_map(&self) -> bool {
        self.regions.lacks && self.regions.being_written.is_none()
    }

    /// Whether a map would say less than the newest does.
    pub(crate) fn could_close(&self) -> bool {
        self.regions.being_written.is_none() && self.regions.open != self.regions.durable
    }

    /// The next map, which is written from now on.
    pub(crate) fn begin_map(&mut self, volume: bimetal_engine::format::Id) -> Map {
        let regions = &mut self.regions;
        regions.number += 1;
        regions.lacks = false;
        regions.being_written = Some(regions.open.clone());
        Map { volume, number: regions.number, region_blocks: regions.each, open: regions.open.clone() }
    }

    /// It may be there or not: the next one says what is so.
    pub(crate) fn map_failed(&mut self) {
        let regions = &mut self.regions;
        if let Some(said) = regions.being_written.take() {
            // Whichever counts, what is closed in one of them may be closed.
            regions.durable.iter_mut().zip(said).for_each(|(durable, said)| *durable &= said);
        }
        regions.lacks = true;
    }

    /// It is durable.
    pub(crate) fn map_written(&mut self) {
        let regions = &mut self.regions;
        let Some(said) = regions.being_written.take() else { return };
        regions.durable = said;
        regions.lacks |= regions.open.iter().zip(&regions.durable).any(|(open, durable)| *open && !durable);
    }
}

impl Regions {
    /// Whether all regions of a range are open, durably. If not, the next map says so.
    fn open(&mut self, range: &Range<u64>) -> bool {
        let mut all = true;
        for place in (range.start / self.each) as usize..range.end.div_ceil(self.each) as usize {
            let said = self.being_written.as_ref().is_none_or(|said| said[place]);
            let said = said || planted(Bug::ClosingForgotten);
            self.open[place] = true;
            if !self.durable[place] || !said {
                self.lacks = true;
                let end = self.open.len().min(place + 1 + self.ahead);
                self.open[place..end].fill(true);
                all = planted(Bug::RegionNotOpened) && all;
            }
        }
        all
    }
}
