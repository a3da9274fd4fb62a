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

    /// A slow slot, where it would be were all in the volume's order, or else behind the last one taken; where they are not
    /// plentiful, shadows give way for it.
    pub(crate) fn take_slow_slot(&mut self, chunk: Chunk, in_order: bool) -> Option<Slot> {
        if self.lacks_slow() && !planted(Bug::AloneTakesSlowSlot) {
            return None;
        }
        for _ in 0..self.tuning.economy.shadows_giving_way {
            if self.slow_slots_are_plentiful() {
                break;
            }
            let Some(home) = self.space.shadows.next() else { break };
            self.end_shadow(home);
        }
        if !in_order {
            return self.space.slots[SLOW].take();
        }
        let place = self.place_in_order(chunk);
        self.space.slots[SLOW].take_near(place)
    }

    /// Where a chunk would be, were the slow tier in the volume's order: behind the chunk before it, or else in proportion.
    fn place_in_order(&self, chunk: Chunk) -> Slot {
        let slots = &self.space.slots[SLOW];
        let before = chunk.0.checked_sub(1).and_then(|before| self.state.map.home(Chunk(before)));
        let behind = before.filter(|home| home.tier == SLOW).map(|home| Slot(home.slot.0 + 1));
        behind.filter(|slot| slot.0 < slots.count() && !slots.is_used(*slot)).unwrap_or_else(|| {
            let place = u64::from(chunk.0) * u64::from(slots.count()) / u64::from(self.state.geo.chunks);
            Slot(place as u32)
        })
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
        let Some(slot) = self.space.shadows.take(home) else { return };
        if self.space.slots[SLOW].has_readers(slot) {
            self.space.slots[SLOW].reclaim(slot);
            self.free_slot(Home { tier: SLOW, slot }, Seq(0), false);
        } else {
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
