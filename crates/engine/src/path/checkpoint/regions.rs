//! The checksum pages of the fast tier: a checkpoint writes those of regions that are at rest, and names no more those of regions
//! that a record has opened.
//!
//! It comes to them behind the map, and that is what makes a page safe that is made while the log goes on: a record that names a
//! block of a region after its page was made is behind whatever the map pages say, so that a replay finds the block at home
//! there, and opens the region.

use super::*;
use crate::base::mask::BlockMask;
use crate::volume::landed::Landed;
use crate::volume::map::Map;
use crate::volume::regions::Step;
use crate::volume::state::State;

impl<A: Arena> Engine<A> {
    /// Whether enough of what was written is at rest.
    pub(super) fn regions_want_checkpoint(&mut self) -> bool {
        self.state.sums.regions.want_checkpoint(self.io.now, self.tuning.fast_checksum_rest_ns)
    }

    /// When that is to be looked at.
    pub(crate) fn regions_deadline(&self) -> Option<Nanos> {
        let over = self.life.is_read_only() || self.life.shutdown.began();
        let waits = self.checkpoint.is_idle() && self.checkpoint.retry_at.is_none() && !over;
        self.state.sums.regions.due_at().filter(|_| waits)
    }

    pub(super) fn step_regions(&mut self) {
        let all = self.life.shutdown.makes_last_checkpoint();
        while self.may_write()
            && !self.checkpoint.fold_waits
            && let Some((region, step)) =
                self.state.sums.regions.next(self.checkpoint.cursor, all, self.io.now)
        {
            if let Some(page) = self.state.sums.missing_page(region) {
                self.checkpoint.fold_waits = true;
                self.want_sum_page(page, SumWaiter::Checkpoint);
                // It may have come at once, and all of this been done.
                return;
            }
            let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
            let payload = match step {
                Step::Close => self.region_payload(region),
                Step::Open => None,
            };
            self.checkpoint.cursor = region + 1;
            let number = self.state.geo.map_pages + self.state.sums.regions.page(region);
            match payload {
                Some(payload) => {
                    self.state.sums.regions.close(region);
                    self.write_page(number, PageKind::FastSums, &payload, buf);
                }
                None => {
                    self.io.arena.free(buf);
                    self.name_no_page(region, step, number);
                }
            }
        }
        let done = self.state.sums.regions.next(self.checkpoint.cursor, all, self.io.now).is_none();
        if done && self.checkpoint.in_flight == 0 && !self.checkpoint.failed && !self.checkpoint.fold_waits {
            self.checkpoint.stage = CheckpointStage::Directory;
            self.checkpoint.cursor = 0;
        }
    }

    /// What a region's page says from now on, of what homes hold; none if nothing is known. Not of that over which something has
    /// landed: a merge may overwrite it while that is the newest copy, and no record behind the checkpoint says so.
    fn region_payload(&mut self, region: u32) -> Option<Vec<u8>> {
        // Of that, memory keeps what the page before said.
        self.keep_region(region);
        let (State { sums, map, landed, .. }, slots) = (&mut self.state, &self.space.slots[FAST]);
        let held = |slot: Slot| held_by(slots.owner(slot), slot, map);
        let over = |slot: Slot| landed_over(slots.owner(slot), map, landed);
        sums.region_payload(region, |slot| held(slot).minus(over(slot)))
    }

    /// Keeps in memory what a region's page says of what homes hold, as far as there is room.
    pub(crate) fn keep_region(&mut self, region: u32) {
        let (State { sums, map, .. }, slots) = (&mut self.state, &self.space.slots[FAST]);
        sums.keep_region(region, |slot| held_by(slots.owner(slot), slot, map));
    }

    fn name_no_page(&mut self, region: u32, step: Step, number: u32) {
        let regions = &mut self.state.sums.regions;
        if step == Step::Close && !regions.has_nothing(region) {
            return;
        }
        regions.unname(region);
        self.keep_region(region);
        self.push_moved(number, PageRef::default());
    }
}

/// The blocks that a slot holds as its chunk's home.
fn held_by(owner: Option<Chunk>, slot: Slot, map: &Map) -> BlockMask {
    let home = Some(Home { tier: FAST, slot });
    owner.filter(|chunk| map.home(*chunk) == home).map_or(BlockMask::EMPTY, |chunk| map.valid(chunk))
}

/// The blocks of a slot's chunk that have landed.
fn landed_over(owner: Option<Chunk>, map: &Map, landed: &Landed) -> BlockMask {
    let mut over = BlockMask::EMPTY;
    let Some(chunk) = owner.filter(|chunk| map.may_be_landed(*chunk)) else { return over };
    let valid = map.valid(chunk);
    valid
        .iter()
        .filter(|block| landed.get(map.join(chunk, *block)).is_some())
        .for_each(|block| over.set(block));
    over
}
