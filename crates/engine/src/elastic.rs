//! The landing zone grows while more lands than the slow device can take, and shrinks when it is quiet.
//!
//! It borrows areas of the fast device that hold slots: their chunks are pushed down in long runs, at the slow device's
//! sequential speed, into what is held back there for that; landed blocks could be merged only one by one. So a burst
//! of random writes may be as large as what is held back, and the size of the volume stays what it is.

use crate::arena::Arena;
use crate::engine::Engine;
use crate::moves::{Destination, Move};
use crate::units::*;
use crate::why::Reason;
use std::ops::Range;

/// How much is pushed down at a time, bytes: a run that the slow device writes in some 120 ms, beside which a seek and
/// a flush cost little.
const RUN_BYTES: u32 = 16 << 20;
/// Runs of slots looked at to find a cold one.
const SAMPLE: u32 = 16;
/// Attempts to push down what is left in a run, before it is left alone.
const MAX_ATTEMPTS: u32 = 3;
/// Pause after that, ns.
const PAUSE_NS: u64 = Nanos::SECOND;
/// Borrowed areas given back in one call, so that it stays short.
const AREAS_PER_CALL: usize = 64;

/// How far borrowing has come.
#[derive(Default)]
pub struct Borrowing {
    /// The run that was looked at last.
    hand: u32,
    attempts: u32,
    /// Not before this is another run looked for.
    not_before: Nanos,
}

impl<A: Arena> Engine<A> {
    fn areas_per_run(&self) -> u32 {
        (RUN_BYTES / self.state.geo.area_bytes).min(self.state.zone.own_len() / 8).max(1)
    }

    /// Whether more lands than can be merged, and there is something to be had.
    fn zone_is_to_grow(&self) -> bool {
        let run = self.areas_per_run();
        let slots = run * self.state.geo.slots_per_area();
        !self.is_idle()
            && !self.shutdown.began()
            && self.mover.barren_since.is_none()
            && self.zone_runs_short()
            && self.now >= self.mover.planner.borrowing.not_before
            && self.state.zone.may_borrow() >= run as usize
            && self.slots[1].free() > 2 * slots
    }

    /// Begins to push down what is in the way of the zone's growth; false when there is nothing of the kind to do.
    pub(crate) fn push_down(&mut self, room: usize) -> bool {
        let range = match self.slots[0].closing() {
            Some(range) => range,
            None if self.zone_is_to_grow() => {
                let Some(range) = self.cold_run() else { return false };
                self.slots[0].close(range.clone());
                self.drop_copies_in(range.clone());
                self.mover.planner.borrowing.attempts = 0;
                range
            }
            None => return false,
        };
        let slots = &self.slots[0];
        let owners = range.clone().filter_map(|slot| slots.owner(Slot(slot)));
        let moves: Vec<Move> =
            owners.take(room).map(|chunk| Move { chunk, to: Destination::Tier(SLOW) }).collect();
        if moves.is_empty() {
            return false;
        }
        self.mover.planner.borrowing.attempts += 1;
        if self.mover.planner.borrowing.attempts > MAX_ATTEMPTS {
            self.slots[0].stop_closing();
            self.mover.planner.borrowing.not_before = self.now.after(PAUSE_NS);
            return false;
        }
        self.decide(&moves, |_| Reason::ZoneGrows);
        self.start_batch(&moves, true);
        true
    }

    /// The coldest of some runs of areas of which each slot is free or holds a chunk that can be moved.
    fn cold_run(&mut self) -> Option<Range<u32>> {
        let (run, geo) = (self.areas_per_run(), &self.state.geo);
        let runs = geo.zone_first.0 / run;
        let mut coldest: Option<(u32, Range<u32>)> = None;
        for _ in 0..SAMPLE.min(runs) {
            let hand = &mut self.mover.planner.borrowing.hand;
            *hand = (*hand + 1) % runs;
            let first = Area(*hand * run);
            let last = Area(first.0 + run - 1);
            let range = geo.slots_in(first).start..geo.slots_in(last).end;
            let heat = range.clone().map(|slot| self.heat_of(Slot(slot))).sum::<Option<u32>>();
            if let Some(heat) = heat
                && coldest.as_ref().is_none_or(|(least, _)| heat < *least)
            {
                coldest = Some((heat, range));
            }
        }
        coldest.map(|(_, range)| range)
    }

    /// The heat of what is in a fast slot; none where that cannot be moved.
    fn heat_of(&self, slot: Slot) -> Option<u32> {
        if !self.slots[0].is_used(slot) {
            return Some(0);
        }
        let (chunk, map) = (self.slots[0].owner(slot)?, &self.state.map);
        if self.copies.is_in(chunk, slot) {
            // It gives way without being moved.
            return Some(0);
        }
        let there = map.home(chunk) == Some(Home { tier: FAST, slot });
        let may_leave = !map.is_busy(chunk) && self.pins.list().allows(chunk, SLOW);
        (there && may_leave).then(|| self.policy.heat(chunk, self.now))
    }

    /// Takes over what was emptied; gives back what the zone does not need any more.
    pub(crate) fn pump_borrowing(&mut self) {
        if let Some(range) = self.slots[0].take_closed() {
            let per_area = self.state.geo.slots_per_area();
            for area in range.start / per_area..range.end / per_area {
                self.state.zone.borrow(Area(area));
            }
            self.wanted.wake = true;
        }
        if !self.is_idle() {
            return;
        }
        if !self.mover.is_busy(true) {
            self.slots[0].stop_closing();
        }
        if !self.zone_may_shrink() {
            return;
        }
        for _ in 0..AREAS_PER_CALL {
            let Some(area) = self.state.zone.give_back() else { return };
            self.slots[0].reopen(self.state.geo.slots_in(area));
            self.wanted.wake = true;
        }
    }

    /// Whether the zone has borrowed more than it needs.
    pub(crate) fn zone_may_shrink(&self) -> bool {
        let zone = &self.state.zone;
        zone.len() > zone.own_len() && zone.chain.len() as u32 * 2 <= zone.own_len()
    }
}
