//! What nothing lands in holds copies: free segments of the landing zone are lent to them, and recalled as the log goes on.
//!
//! Nothing on the devices tells of that. A segment that is lent has left the chain, which a durable checkpoint needs no more,
//! so whatever is written into it is what the log would write over. It is free again only when no I/O is in flight in it.

use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Free segments that stay with the log, which is to find them ready.
    fn segments_at_hand(&self) -> u32 {
        let kept = self.state.zone.len() / self.tuning.economy.lent_kept_share;
        self.reserve_segments() + self.tuning.kept_from_copies.max(1) + kept
    }

    /// The slots of a segment that nothing lands in are trays from here on; false where none is to spare, or clients write:
    /// a segment that is recalled can be had only when the devices have ended what is in flight in it, and writes that wait
    /// for devices which take seconds for each command are not to wait for that too.
    pub(crate) fn lend_segment(&mut self) -> bool {
        let unwritten = self.io.now.since(self.front.last_change) >= self.tuning.lend_after_ns;
        let spare = self.state.zone.free_segments() > self.segments_at_hand();
        let lends = unwritten && spare && !self.moves_are_over();
        let Some(area) = lends.then(|| self.state.zone.lend()).flatten() else { return false };
        self.state.geo.slots_in(area).map(Slot).for_each(|slot| self.mover.copies.add_tray(slot));
        true
    }

    /// Wants lent segments back in time for what lands, and takes those that nothing is in any more.
    pub(crate) fn pump_lending(&mut self) {
        while self.state.zone.free_segments() + self.state.zone.recalled() < self.segments_at_hand() {
            let Some(area) = self.state.zone.recall() else { break };
            self.drop_copies_in(self.state.geo.slots_in(area));
        }
        if self.state.zone.recalled() == 0 {
            return;
        }
        let (geo, slots, copies) = (&self.state.geo, &self.space.slots[FAST], &self.mover.copies);
        let is_left = |area: Area| {
            planted(Bug::RecalledTooEarly)
                || geo.slots_in(area).map(Slot).all(|slot| !copies.are_in(slot) && !slots.has_readers(slot))
        };
        self.wanted.wake |= self.state.zone.take_recalled(is_left);
    }
}
