//! The landing zone grows into slots that nobody misses and gives them back: what `placement/elastic.rs` weighs, done.

use crate::api::why::Reason;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::mover::copies::Copies;
use crate::placement::elastic::{Run, far_step};
use crate::placement::policy::{Destination, Move, Policy as _};
use bimetal_units::*;
use std::ops::Range;

/// Areas looked at in one call for some that nobody misses, so that it stays short: of most, one slot is looked at.
const LOOKS_PER_CALL: u32 = 64;
/// Attempts to push down what is left in a run, before it is left alone.
const MAX_ATTEMPTS: u32 = 3;
/// Pause after that, ns.
const PAUSE_NS: u64 = Nanos::SECOND;
/// Borrowed areas given back in one call, so that it stays short.
const AREAS_PER_CALL: usize = 64;

impl<A: Arena> Engine<A> {
    fn areas_per_run(&self) -> u32 {
        let areas = self.tuning.economy.push_run_bytes / self.state.geo.area_bytes;
        areas.min(self.state.zone.own_len() / 8).max(1)
    }

    /// Slots of areas that are on call.
    fn slots_on_call(&self) -> u32 {
        let geo = &self.state.geo;
        self.state.zone.len().saturating_sub(geo.assured_zone_areas()) * geo.slots_per_area()
    }

    /// Free slots that no landed chunk will need.
    fn slots_to_spare(&self) -> u32 {
        (self.space.slots[FAST].free() + self.space.slots[SLOW].free())
            .saturating_sub(self.state.map.homeless())
    }

    fn is_assured(&self, run: u32) -> bool {
        self.state.zone.len() + run <= self.state.geo.assured_zone_areas()
    }

    fn pushing_is_worth_it(&self) -> bool {
        let borrowing = &self.mover.planner.borrowing;
        borrowing.pushing.is_part_of(&borrowing.merging, self.tuning.push_worth)
    }

    /// Whether it is worth so much that the zone may have nearly all of the fast tier.
    fn pushing_is_worth_most(&self) -> bool {
        let borrowing = &self.mover.planner.borrowing;
        let share = self.tuning.push_worth.max(1);
        let is_part = |share| borrowing.pushing.is_part_of(&borrowing.merging, share);
        borrowing.pushing.blocks > 0
            && (is_part(share * self.tuning.economy.push_worth_most)
                || is_part(share) && !self.mover.copies.have_proved(self.io.now))
    }

    /// Whether the zone may have a further run without touching what is left to chunks that become used.
    fn run_is_to_spare(&self, run: u32) -> bool {
        let geo = &self.state.geo;
        let on_call = (self.state.zone.len() + run).saturating_sub(geo.assured_zone_areas());
        let slots = on_call * geo.slots_per_area();
        let left = match self.pushing_is_worth_most() {
            true => self.slots_left_at_least(slots),
            false if self.takes_the_better_half(run) => return false,
            false => self.slots_left_beside(slots),
        };
        on_call == 0 || self.slots_to_spare() > left + run * geo.slots_per_area()
    }

    /// Slots that may be taken before the zone is asked again whether it owes them: one by each piece in flight whose chunk has no
    /// home, and one by each block of the two segments that the log must go through before it has left those that it is in. A home
    /// that goes away under a piece leaves a slot for the next one.
    fn slots_at_stake(&self) -> u32 {
        self.front.slot_takers + 2 * self.state.geo.area_blocks()
    }

    /// Slots that are left to chunks that become used where so many are on call: as many as those, and most of what there was
    /// when this burst began.
    fn slots_left_beside(&self, on_call: u32) -> u32 {
        let by_this_burst = on_call.saturating_sub(self.mover.planner.borrowing.taken_before);
        let left = by_this_burst.saturating_mul(self.tuning.economy.on_call_share - 1).max(on_call);
        left.max(2 * self.slots_at_stake()).min(u32::MAX / 2)
    }

    /// The same, where the zone may have as much as it can get.
    fn slots_left_at_least(&self, on_call: u32) -> u32 {
        self.slots_left_beside(on_call).min(self.state.geo.slots(FAST).max(2 * self.slots_at_stake()))
    }

    /// Whether more is on call than may be: the zone is to give it back.
    pub(crate) fn zone_gives_back(&self) -> bool {
        let on_call = self.slots_on_call();
        on_call > 0 && self.slots_to_spare() < self.slots_left_at_least(on_call)
    }

    /// Whether nothing more may land before areas that are on call have been given back. The log leaves the two that it is
    /// in only when more lands.
    pub(crate) fn zone_owes_slots(&self) -> bool {
        let on_call = self.slots_on_call();
        if on_call == 0 || self.slots_to_spare() > self.slots_at_stake() {
            return false;
        }
        let zone = &self.state.zone;
        let written = [self.log.place, zone.get(self.log.place).successor];
        let held = written.into_iter().filter(|place| zone.is_borrowed(*place)).count() as u32;
        zone.borrowed().count() as u32 > held
    }

    /// Whether more lands than can be merged, and so many further areas, beside those that are being emptied for it, would be
    /// within bounds.
    fn zone_may_grow(&self, areas: u32) -> bool {
        let closing = self.space.slots[FAST].closing().map_or(0, |range| range.len() as u32);
        let run = areas + closing / self.state.geo.slots_per_area();
        let lately_ns = self.tuning.economy.grows_after_write_ns;
        (self.io.now.since(self.front.last_change) < lately_ns || self.landing_is_starved())
            && !self.is_idle()
            && self.zone_runs_short()
            && self.run_is_to_spare(run)
            && !self.life.shutdown.began()
            && self.mover.barren.is_none()
            && self.state.zone.may_borrow() >= run as usize
    }

    /// Whether it is to grow at the price of pushing something down.
    fn zone_is_to_grow(&self) -> bool {
        let run = self.areas_per_run();
        let slots = run * self.state.geo.slots_per_area();
        !self.lacks_slow()
            && self.zone_may_grow(run)
            && (self.is_assured(run) || self.pushing_is_worth_it())
            && self.io.now >= self.mover.planner.borrowing.not_before
            && self.space.slots[SLOW].free() > 2 * slots
    }

    /// Borrows areas in which nothing is but copies that nobody has read, while the zone may grow and there are free slots
    /// beside them. What was pushed down leaves such copies behind. Not before it is short: what is borrowed stays with the
    /// zone, and bursts that would have ended before are many.
    fn borrow_what_is_idle(&mut self) {
        // A small zone runs short before it is half full, and would give back at once what it borrowed. Where copies
        // have proved worth their slots, those not read yet may be tomorrow's.
        if !self.zone_is_half_full()
            || !self.idle_area_is_wanted()
            || self.mover.copies.have_proved(self.io.now)
        {
            return;
        }
        let areas = self.state.geo.zone_first.0;
        for _ in 0..LOOKS_PER_CALL.min(areas) {
            let hand = (self.mover.planner.borrowing.idle_hand + 1) % areas;
            self.mover.planner.borrowing.idle_hand = hand;
            let taken = self.borrow_but_for_copies(Area(hand), Copies::are_unread_in);
            self.wanted.wake |= taken;
            if !self.idle_area_is_wanted() {
                return;
            }
        }
    }

    /// Borrows an area in which nothing is but copies that may go, and of which none is being read; whether it did.
    fn borrow_but_for_copies(&mut self, area: Area, may_go: fn(&Copies, Slot) -> bool) -> bool {
        let range = self.state.geo.slots_in(area);
        let is_idle = |slot| !self.space.slots[FAST].is_used(slot) || may_go(&self.mover.copies, slot);
        if !range.clone().map(Slot).all(is_idle) {
            return false;
        }
        self.drop_copies_in(range.clone());
        let taken = self.space.slots[FAST].take_empty(range);
        if taken {
            self.state.zone.borrow(area);
        }
        taken
    }

    /// Whether the zone is short of one more area, may have it, and leaves free slots.
    fn idle_area_is_wanted(&self) -> bool {
        let left = self.space.slots[FAST].free().saturating_sub(self.state.geo.slots_per_area());
        self.zone_is_short() && self.zone_may_grow(1) && self.placement.policy.settles_fast(left)
    }

    /// Begins to push down what is in the way of the zone's growth; false when there is nothing of the kind to do.
    pub(crate) fn push_down(&mut self, room: usize) -> bool {
        if !self.pushing_may_append() {
            return false;
        }
        let range = match self.space.slots[FAST].closing() {
            Some(range) => range,
            None if self.zone_is_to_grow() => {
                let Some(range) = self.cold_run() else { return false };
                self.space.slots[FAST].close(range.clone());
                self.drop_copies_in(range.clone());
                self.mover.planner.borrowing.attempts = 0;
                range
            }
            None => return false,
        };
        let slots = &self.space.slots[FAST];
        let owners = range.clone().filter_map(|slot| slots.owner(Slot(slot)));
        let moves: Vec<Move> =
            owners.take(room).map(|chunk| Move { chunk, to: Destination::Tier(SLOW) }).collect();
        if moves.is_empty() {
            return false;
        }
        self.mover.planner.borrowing.attempts += 1;
        if self.mover.planner.borrowing.attempts > MAX_ATTEMPTS {
            self.space.slots[FAST].stop_closing();
            self.mover.planner.borrowing.not_before = self.io.now.after(PAUSE_NS);
            return false;
        }
        self.decide(&moves, |_| Reason::ZoneGrows);
        self.start_batch(&moves, true);
        true
    }

    /// Whether the zone would have more than half of the areas that hold slots, which it takes only from what is no hotter
    /// than what is on the slow device: what has earned its place there is worth more than a longer burst.
    fn takes_the_better_half(&self, run: u32) -> bool {
        self.state.zone.len() + run - self.state.zone.own_len() > self.state.geo.zone_first.0 / 2
    }

    /// The heat of some chunks on the slow device, and how many they are.
    fn heat_of_the_slow(&self) -> (u64, u64) {
        let chunks = self.state.geo.chunks;
        let step = (chunks / self.tuning.economy.slow_sample_chunks).max(1);
        let first = self.mover.planner.borrowing.hand % step;
        let of_slow = |chunk: &Chunk| self.state.map.home(*chunk).is_some_and(|home| home.tier == SLOW);
        let sample = (first..chunks).step_by(step as usize).map(Chunk).filter(of_slow);
        sample.fold((0, 0), |(heat, count), chunk| {
            (heat + u64::from(self.placement.policy.heat(chunk, self.io.now)), count + 1)
        })
    }

    /// The run that was emptied last has a neighbour that is as cold as the coldest of some here and there, and holds about as
    /// little: that one, for so many in a row; or else the coldest, and of those the one with the fewest chunks. Each of their
    /// slots is free or holds a chunk that can be moved. None where the zone may not have it.
    ///
    /// The flash below erases far more than a run at once, of what was written together. Where a run has been emptied here and
    /// one there, it finds nothing that is free as a whole, and moves the rest whenever something is written.
    fn cold_run(&mut self) -> Option<Range<u32>> {
        let (run, borrowing) = (self.areas_per_run(), &self.mover.planner.borrowing);
        let runs = self.state.geo.zone_first.0 / run;
        let (step, last) = (far_step(runs), borrowing.emptied);
        let sampled = self.tuning.economy.push_sample_runs.min(runs);
        let sample = (1..=sampled).map(|n| (borrowing.hand + n * step) % runs);
        let hand = (borrowing.hand + sampled * step) % runs;
        let coldest = sample.filter_map(|number| self.look_at_run(number)).min();
        let most = self.takes_the_better_half(run).then(|| self.heat_of_the_slow());
        let may_go = |found: &Run| {
            let slots = self.slots_of_run(found.number).len() as u64;
            most.is_none_or(|(slow_heat, count)| u64::from(found.heat) * count <= slow_heat * slots)
        };
        let most_in_a_row = self.tuning.economy.push_runs_in_a_row;
        let beside = (borrowing.in_a_row < most_in_a_row && last + 1 < runs).then_some(last + 1);
        let beside = beside.and_then(|number| self.look_at_run(number)).filter(|beside| {
            may_go(beside) && coldest.as_ref().is_none_or(|least| beside.is_about_as_cold(least))
        });
        let in_a_row = if beside.is_some() { borrowing.in_a_row + 1 } else { 1 };
        let found = beside.or(coldest).filter(may_go);
        let borrowing = &mut self.mover.planner.borrowing;
        borrowing.hand = hand;
        let number = found?.number;
        (borrowing.emptied, borrowing.in_a_row) = (number, in_a_row);
        Some(self.slots_of_run(number))
    }

    fn slots_of_run(&self, number: u32) -> Range<u32> {
        let (run, geo) = (self.areas_per_run(), &self.state.geo);
        geo.slots_in(Area(number * run)).start..geo.slots_in(Area((number + 1) * run - 1)).end
    }

    /// What a run holds; none where a chunk of it cannot be moved.
    fn look_at_run(&self, number: u32) -> Option<Run> {
        let slots = || self.slots_of_run(number).map(Slot);
        let heat = slots().map(|slot| self.heat_of(slot)).sum::<Option<u32>>()?;
        let chunks = slots().filter(|slot| self.space.slots[FAST].owner(*slot).is_some()).count() as u32;
        Some(Run { heat, chunks, number })
    }

    /// The heat of what is in a fast slot; none where that cannot be moved.
    fn heat_of(&self, slot: Slot) -> Option<u32> {
        if !self.space.slots[FAST].is_used(slot) {
            return Some(0);
        }
        if self.mover.copies.are_in(slot) {
            // They give way without being moved.
            return Some(0);
        }
        let (chunk, map) = (self.space.slots[FAST].owner(slot)?, &self.state.map);
        let there = map.home(chunk) == Some(Home { tier: FAST, slot });
        let may_leave = !map.is_busy(chunk) && self.placement.pins.list().allows(chunk, SLOW);
        (there && may_leave).then(|| self.placement.policy.heat(chunk, self.io.now))
    }

    /// Borrows areas in which nothing is until the log's reserve is there. Free segments whose areas were borrowed when the volume was
    /// last open are named by nothing, and slots again; were all others in the chain, not even the record could be appended
    /// that frees them. There are as many such areas as there were segments then.
    pub(crate) fn borrow_again(&mut self) {
        for area in (0..self.state.geo.zone_first.0).map(Area) {
            if !self.zone_is_full() || self.state.zone.may_borrow() == 0 {
                return;
            }
            // What hints say is there counts as nothing.
            self.borrow_but_for_copies(area, Copies::are_in);
        }
    }

    /// Takes over what was emptied; gives back what the zone does not need any more.
    pub(crate) fn pump_borrowing(&mut self) {
        if let Some(range) = self.space.slots[FAST].take_closed() {
            let per_area = self.state.geo.slots_per_area();
            for area in range.start / per_area..range.end / per_area {
                self.state.zone.borrow(Area(area));
            }
            self.wanted.wake = true;
        }
        let gives_back = self.zone_gives_back();
        if !self.is_idle() && self.zone_runs_short() {
            self.mover.planner.borrowing.short_at = self.io.now;
        }
        if self.io.now >= self.front.last_change.after(self.tuning.economy.borrowed_unwritten_ns) {
            self.mover.planner.borrowing.taken_before = self.slots_on_call();
        }
        self.borrow_what_is_idle();
        self.shorten_chain();
        if !self.is_idle() && !gives_back && !self.zone_may_shrink() {
            return;
        }
        if !self.mover.is_busy(true) {
            self.space.slots[FAST].stop_closing();
        }
        for _ in 0..AREAS_PER_CALL {
            let now = self.zone_may_shrink() || self.zone_gives_back() && !self.zone_is_full();
            let Some(area) = now.then(|| self.state.zone.give_back()).flatten() else { return };
            self.space.slots[FAST].reopen(self.state.geo.slots_in(area));
            self.wanted.wake = true;
        }
    }

    /// Whether the zone may give back what it has borrowed.
    fn zone_may_shrink(&self) -> bool {
        self.shrinking_is_due() && self.chain_is_short()
    }

    fn shrinking_is_due(&self) -> bool {
        self.zone_shrinks_at().is_some_and(|at| at <= self.io.now)
    }

    fn chain_is_short(&self) -> bool {
        self.state.zone.chain().len() as u32 * 2 <= self.state.zone.own_len()
    }

    /// When the zone is to give back what it has borrowed, if nobody asks for anything until then.
    pub(crate) fn zone_shrinks_at(&self) -> Option<Nanos> {
        let idle_at = self.front.last_client.after(self.tuning.idle_after_ns);
        let economy = &self.tuning.economy;
        let kept_until = self.mover.planner.borrowing.short_at.after(economy.borrowed_kept_ns).max(idle_at);
        let has_borrowed = self.state.zone.len() > self.state.zone.own_len();
        has_borrowed.then(|| self.front.last_change.after(economy.borrowed_unwritten_ns).min(kept_until))
    }

    /// Where only records keep the chain so long that nothing can be given back, a checkpoint frees it.
    fn shorten_chain(&mut self) {
        self.wanted.checkpoint |= self.shrinking_is_due()
            && !self.chain_is_short()
            && self.state.landed.len() == 0
            && self.recorded() > self.checkpoint.applied();
    }
}
