//! What the engine writes to the fast device of its own accord is held against the budget for that.

use crate::api::options::WearStatus;
use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Chunks that may be moved up now, as far as wear goes; none while moves are paused.
    pub(crate) fn may_rise(&self) -> usize {
        if self.mover.planner.is_paused() {
            return 0;
        }
        self.placement.wear.may_rise(u64::from(self.state.geo.chunk_bytes), self.io.now)
    }

    /// When the budget lets something rise again, if it does not now; none where that is never.
    pub(crate) fn rises_again(&self) -> Option<Nanos> {
        self.placement.wear.rises_again(u64::from(self.state.geo.chunk_bytes), self.io.now)
    }

    /// Whether another copy of a chunk may be made, as far as wear goes; none is while moves are paused.
    pub(crate) fn may_copy(&self) -> bool {
        !self.mover.planner.is_paused()
            && self.placement.wear.may_copy(u64::from(self.state.geo.chunk_bytes), self.io.now)
    }

    /// A chunk that moves up is about to be written. False: what was left is gone meanwhile, and it may not be; one that
    /// is pinned there always may.
    pub(crate) fn wear_by_move(&mut self, chunk: Chunk, bytes: u64) -> bool {
        if self.placement.pins.list().tier_of(chunk) != Some(FAST)
            && !self.placement.wear.has(bytes, self.io.now)
        {
            return false;
        }
        self.placement.wear.spend(bytes, self.io.now);
        self.placement.wear.moved_bytes += bytes;
        true
    }

    /// A copy is about to be written. False: what was left is gone meanwhile, and it may not be.
    pub(crate) fn wear_by_copy(&mut self, bytes: u64) -> bool {
        if !self.placement.wear.may_copy(bytes, self.io.now) {
            return false;
        }
        self.placement.wear.spend(bytes, self.io.now);
        self.placement.wear.copied_bytes += bytes;
        true
    }

    pub(crate) fn wear_status(&self) -> WearStatus {
        self.placement.wear.status(self.io.now)
    }
}
