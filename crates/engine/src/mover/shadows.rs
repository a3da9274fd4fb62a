//! Shadows are kept, end, and become homes again.

use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    fn slow_slots_are_plentiful(&self) -> bool {
        let slow = &self.space.slots[SLOW];
        slow.unused() > slow.count() / self.tuning.economy.shadow_spare_share
    }

    /// A slow slot; where they are not plentiful, shadows give way for it.
    pub(crate) fn take_slow_slot(&mut self) -> Option<Slot> {
        for _ in 0..self.tuning.economy.shadows_giving_way {
            if self.slow_slots_are_plentiful() {
                break;
            }
            let Some(home) = self.space.shadows.next() else { break };
            self.end_shadow(home);
        }
        self.space.slots[SLOW].take()
    }

    /// A chunk was moved up as it was, which is durable: whether its old home, which nothing needs any more, is kept as its
    /// shadow. One that is still being read is not, so that a shadow can give way at once.
    pub(crate) fn keep_shadow(&mut self, chunk: Chunk, home: Home, old: Home) -> bool {
        let kept = home.tier == FAST
            && old.tier == SLOW
            && self.slow_slots_are_plentiful()
            && !self.space.slots[SLOW].has_readers(old.slot);
        if kept {
            self.space.slots[SLOW].lend(old.slot, Some(chunk));
            self.space.shadows.keep(home.slot, old.slot);
        }
        kept
    }

    /// What is at home here is about to change, or the slot of its shadow is needed.
    pub(crate) fn end_shadow(&mut self, home: Home) {
        if let Some(slot) = self.space.shadows.take(home) {
            self.space.slots[SLOW].take_back(slot);
            self.wanted.wake = true;
        }
    }

    /// A chunk's home is elsewhere from here on.
    pub(crate) fn leave_shadow(&mut self, left: Option<Home>) {
        if let Some(home) = left.filter(|_| !planted(Bug::ShadowOutlivesHome)) {
            self.end_shadow(home);
        }
    }

    /// The shadow of what is at home here, to become its home: the slot is the caller's from here on.
    pub(crate) fn take_shadow(&mut self, home: Home) -> Option<Home> {
        let slot = self.space.shadows.take(home)?;
        self.space.slots[SLOW].reclaim(slot);
        Some(Home { tier: SLOW, slot })
    }
}
