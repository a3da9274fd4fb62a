//! Chunks that are pinned to the other tier are moved there, and room is made for them.

use crate::api::why::Reason;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::placement::pins::place::Placing;
use crate::placement::policy::{Destination, Move};
use bimetal_units::*;

/// Pinned chunks looked at in one call, so that it stays short.
const CHUNKS_PER_SCAN: u32 = 64 << 10;

impl<A: Arena> Engine<A> {
    /// The list has changed.
    pub(crate) fn obey_pins(&mut self) {
        self.placement.pins.placing = Placing::begin(true);
        // A run that is being pushed down for the landing zone may hold what is pinned now.
        let slots = &mut self.space.slots[FAST];
        let pinned =
            |slot| slots.owner(Slot(slot)).is_some_and(|chunk| !self.placement.pins.list.allows(chunk, SLOW));
        if slots.closing().is_some_and(|mut range| range.any(pinned)) {
            slots.stop_closing();
        }
        self.mover.planner.place_anew();
    }

    /// Up to `budget` moves that bring pinned chunks to their tier, and others out of their way.
    pub(crate) fn pin_moves(&mut self, budget: usize) -> Vec<Move> {
        if !self.pins_are_astray() || self.io.now < self.placement.pins.placing.not_before || budget == 0 {
            return Vec::new();
        }
        let fast_room = self.space.slots[FAST].free() as usize;
        let slow_room = (self.space.slots[SLOW].free() as usize).saturating_sub(1);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        // Those that rise into no free slot: others make room for them, and the pass goes on with them.
        let (mut waiting, mut back) = (0, None);
        for _ in 0..CHUNKS_PER_SCAN {
            if up.len() + down.len() == budget || waiting == budget.div_ceil(2) {
                break;
            }
            let here = (self.placement.pins.placing.range, self.placement.pins.placing.within);
            let Some((chunk, tier)) = self.placement.pins.next() else {
                if back.is_none() {
                    self.placement.pins.end_pass(self.io.now);
                }
                break;
            };
            if self.state.map.home(chunk).is_none_or(|home| home.tier == tier) {
                continue;
            }
            self.placement.pins.placing.again = true;
            if self.state.map.is_busy(chunk) {
                continue;
            }
            if tier == SLOW && down.len() < slow_room {
                down.push(chunk);
            } else if tier == FAST && up.len() < fast_room {
                up.push(chunk);
            } else if tier == FAST {
                waiting += 1;
                back.get_or_insert(here);
            }
        }
        let needed = waiting.min(budget - up.len() - down.len()).min(slow_room - down.len());
        let victims = self.make_room(needed);
        if let Some(back) = back {
            (self.placement.pins.placing.range, self.placement.pins.placing.within) = back;
            if up.is_empty() && down.is_empty() && victims.is_empty() {
                self.placement.pins.end_pass(self.io.now);
            }
        }
        let to = |tier| move |chunk| Move { chunk, to: Destination::Tier(tier) };
        let pinned: Vec<Move> = up.into_iter().map(to(FAST)).chain(down.into_iter().map(to(SLOW))).collect();
        self.decide(&pinned, |_| Reason::Pinned);
        pinned.into_iter().chain(victims).collect()
    }

    /// The coldest chunks of the fast tier go down.
    fn make_room(&mut self, chunks: usize) -> Vec<Move> {
        if chunks == 0 {
            return Vec::new();
        }
        let now = self.io.now;
        let victims = self.ask_policy(|policy, view| policy.victims(now, view, chunks));
        let moves: Vec<Move> =
            victims.into_iter().map(|chunk| Move { chunk, to: Destination::Tier(SLOW) }).collect();
        self.decide(&moves, |_| Reason::MakesRoom);
        moves
    }
}
