//! Placement by heat: fast first; what is touched again and again rises, in runs; the coldest runs are pushed down.
//!
//! Reads and writes count alike. A sequential pass over what nobody touched before counts as having been seen, and no
//! more, so that films and backups do not rise when they are read once; later passes count as any touch does.

use super::heats::{FINE, Fine, Heat, Heats};
use super::regions::{BANDS, HotRegions, REGION_CHUNKS, band_of};
use super::{FirstWrite, Foresight, NextUse, Pace, Plan, Policy, Touch, View, Yield};
use crate::api::economy::Economy;
use crate::api::options::Tuning;
use crate::placement::policy::{Destination, Move};
use bimetal_units::*;
use std::cmp::Reverse;

/// Regions looked at in one call for one that dense, so that it stays short.
const REGIONS_PER_CALL: usize = 256;
/// A chunk rises only over one that is colder by this much at least, or the two would change places for ever.
const MARGIN: u32 = 1;
/// Chunks looked at in one call for what to move up when nothing is hot, so that it stays short.
const CHUNKS_PER_REFILL: u32 = 4096;

/// Uses ahead that make a chunk rise where they are known: a move up and one down in its stead cost the disk two accesses.
const FORESEEN_TOUCHES: u32 = 2;

/// See the module.
pub struct HeatPolicy {
    heats: Heats,
    /// Regions of which some chunk on the slow tier has become hot.
    hot: HotRegions,
    /// The region that is looked at next for what rises.
    next_region: u32,
    /// The run of slots that was looked at last for what is cold.
    hand: u32,
    /// The slot that was looked at last for copies that give way.
    copies_hand: u32,
    /// The chunk that is looked at next for what to move up when nothing is hot.
    refill: u32,
    touches: u32,
    touch_ns: u64,
    free_target: u32,
    economy: Economy,
    /// What comes, where that is known; heat is of no account then.
    foresight: Option<Foresight>,
}

/// What the policy of a volume of so many chunks takes.
pub(crate) fn ram_bytes(chunks: u64) -> u64 {
    Heats::ram_bytes(chunks) + HotRegions::ram_bytes(chunks)
}

impl HeatPolicy {
    /// For a volume of `chunks` with `fast_slots`.
    pub fn new(chunks: u32, fast_slots: u32, tuning: &Tuning) -> HeatPolicy {
        let economy = tuning.economy;
        HeatPolicy {
            heats: Heats::new(chunks, tuning.economy.heat_half_life_touches),
            hot: HotRegions::new(chunks),
            next_region: 0,
            hand: 0,
            copies_hand: 0,
            refill: 0,
            touches: tuning.promote_touches.max(1),
            touch_ns: tuning.touch_ns.max(1),
            free_target: (fast_slots / economy.fast_free_share).clamp(1, economy.fast_free_most),
            economy,
            foresight: None,
        }
    }

    fn tick(&self, now: Nanos) -> u16 {
        ((now.0 / self.touch_ns) as u16).max(1)
    }

    fn heat_at(&self, chunk: Chunk, tick: u16) -> u32 {
        if let Some(foresight) = &self.foresight {
            return foresight.ahead(chunk);
        }
        self.heats.faded(chunk, tick).total()
    }

    /// Whether nobody wrote a chunk of late: copies serve it as well as a home does, and in less space where it is read here
    /// and there.
    fn is_only_read(&self, chunk: Chunk, tick: u16) -> bool {
        self.foresight.is_none() && self.heats.faded(chunk, tick).writes == 0
    }

    /// Touches of a chunk in parts of one, or of its uses where those are known.
    fn fine(&self, chunk: Chunk, tick: u16) -> Fine {
        match &self.foresight {
            Some(foresight) => Fine { reads: foresight.ahead(chunk) * FINE, writes: 0 },
            None => self.heats.fine(chunk, tick),
        }
    }

    fn mark_region(&mut self, chunk: Chunk, heat: u32) {
        self.hot.mark(chunk.0 / REGION_CHUNKS, band_of(heat));
    }

    fn chunks_in(&self, region: u32) -> impl Iterator<Item = Chunk> + use<> {
        let first = region * REGION_CHUNKS;
        (first..(first + REGION_CHUNKS).min(self.heats.chunks())).map(Chunk)
    }

    /// Reads and writes of a chunk, as far as they have not faded.
    fn touches_of(&self, chunk: Chunk, tick: u16) -> (u32, u32) {
        let Heat { reads, writes, .. } = self.heats.faded(chunk, tick);
        (u32::from(reads), u32::from(writes))
    }

    /// Whether it pays that a chunk rises, over another that goes down for it if one does. Uses that are foreseen are
    /// worth a move.
    fn pays(&self, view: &View<'_>, chunk: Chunk, over: Option<Chunk>, tick: u16) -> bool {
        let of = |chunk| self.touches_of(chunk, tick);
        let worth = |chunk| self.worth(view, chunk, tick);
        self.foresight.is_some()
            || view.yields.pays(of(chunk), over.map(of))
                && over.is_none_or(|over| self.is_clearly_more(worth(chunk), worth(over)))
    }

    /// What clients' touches of a chunk take less time on the fast tier.
    fn worth(&self, view: &View<'_>, chunk: Chunk, tick: u16) -> u64 {
        let Fine { reads, writes } = self.fine(chunk, tick);
        view.yields.worth(reads, writes)
    }

    /// Whether what comes is worth so much more than what goes that the two do not change places again and again.
    fn is_clearly_more(&self, comes: u64, goes: u64) -> bool {
        comes > goes + goes / self.economy.edge_share
    }

    /// Up to so many chunks that may rise, with their heat: of each region the hottest. While nobody waits, what is in a
    /// lower band waits until nothing is left above it; while clients are busy, neighbours are worth more than order.
    /// What does not pay while clients are busy may do so when nobody waits, so it is not forgotten.
    fn rising(&mut self, view: &View<'_>, tick: u16, most: usize, idle: bool) -> Vec<(Chunk, u32)> {
        let (mut rising, mut kept) = (Vec::new(), 0);
        while rising.len() < most
            && kept < REGIONS_PER_CALL.min(self.hot.marks() as usize)
            && let Some(band) = if idle { self.hot.hottest() } else { Some(0) }
            && let Some(region) = self.hot.next(self.next_region, band)
        {
            let (mut later, mut found, mut below) = (false, Vec::new(), [false; BANDS]);
            for chunk in self.chunks_in(region) {
                if !self.may_rise(view, chunk, tick) {
                    continue;
                }
                let heat = self.heat_at(chunk, tick);
                let its_band = band_of(heat);
                if its_band < band {
                    below[its_band] = true;
                } else if idle && its_band > band {
                    // It has had its turn.
                } else if !self.pays(view, chunk, None, tick) {
                    later |= !idle;
                } else if !view.map.is_busy(chunk) {
                    found.push((chunk, heat));
                }
            }
            let room = most - rising.len();
            if found.len() > room {
                found.sort_by_key(|(_, heat)| Reverse(*heat));
                found.truncate(room);
                later = true;
            }
            rising.append(&mut found);
            self.next_region = if rising.len() == most && later { region } else { region + 1 };
            if later {
                kept += 1;
            } else {
                self.hot.unmark_from(region, band);
            }
            (0..BANDS).filter(|band| below[*band]).for_each(|band| self.hot.mark(region, band));
        }
        rising
    }

    /// The same of dense regions alone; the others keep their bit.
    fn rising_dense(&mut self, view: &View<'_>, tick: u16, most: usize) -> Vec<(Chunk, u32)> {
        for _ in 0..REGIONS_PER_CALL {
            let Some(region) = self.hot.next(self.next_region, 0) else { break };
            self.next_region = region + 1;
            let mut rising: Vec<(Chunk, u32)> = self
                .chunks_in(region)
                .filter(|chunk| self.may_rise(view, *chunk, tick) && !view.map.is_busy(*chunk))
                .map(|chunk| (chunk, self.heat_at(chunk, tick)))
                .collect();
            if rising.len() >= self.economy.dense_chunks as usize {
                rising.truncate(most);
                return rising;
            }
        }
        Vec::new()
    }

    /// Whether a chunk is on the slow tier, hot, and not pinned there.
    fn may_rise(&self, view: &View<'_>, chunk: Chunk, tick: u16) -> bool {
        view.map.is_on(chunk, SLOW)
            && self.heat_at(chunk, tick) >= self.touches
            && view.pins.allows(chunk, FAST)
    }

    /// Up to so many chunks of the coldest runs of fast slots among a sample, with their heat.
    fn coldest(&mut self, view: &View<'_>, tick: u16, most: usize) -> Vec<(Chunk, u32)> {
        let slots = &view.slots[FAST];
        let Economy { cold_run_slots: run_slots, cold_sample_runs, .. } = self.economy;
        let runs = slots.count().div_ceil(run_slots);
        let mut sample = Vec::new();
        for _ in 0..cold_sample_runs.min(runs) {
            self.hand = (self.hand + 1) % runs;
            let first = self.hand * run_slots;
            let owners =
                (first..(first + run_slots).min(slots.count())).filter_map(|slot| slots.owner(Slot(slot)));
            let movable = |chunk: &Chunk| {
                view.map.is_on(*chunk, FAST) && !view.map.is_busy(*chunk) && view.pins.allows(*chunk, SLOW)
            };
            let run: Vec<(Chunk, u32)> =
                owners.filter(movable).map(|chunk| (chunk, self.heat_at(chunk, tick))).collect();
            if !run.is_empty() {
                // In parts of a touch: after hours of rest, what was hot before is still the last to go.
                let heat =
                    run.iter().map(|(chunk, _)| u64::from(self.fine(*chunk, tick).total())).sum::<u64>();
                sample.push((heat * u64::from(run_slots) / run.len() as u64, run));
            }
        }
        sample.sort_by_key(|(heat, _)| *heat);
        let mut coldest: Vec<(Chunk, u32)> = sample.into_iter().flat_map(|(_, run)| run).take(most).collect();
        coldest.sort_unstable();
        coldest
    }

    /// Chunks on the slow tier, neighbours together, to make room there.
    fn refilling(&mut self, view: &View<'_>, most: usize) -> Vec<(Chunk, u32)> {
        let chunks = self.heats.chunks();
        let mut found = Vec::new();
        for _ in 0..CHUNKS_PER_REFILL.min(chunks) {
            if found.len() == most {
                break;
            }
            let chunk = Chunk(self.refill);
            self.refill = (self.refill + 1) % chunks;
            if view.map.is_on(chunk, SLOW) && !view.map.is_busy(chunk) && view.pins.allows(chunk, FAST) {
                found.push((chunk, 0));
            }
        }
        found
    }

    /// Fast slots that are to be without a home.
    fn target(&self, view: &View<'_>) -> u32 {
        let ByTier([fast, slow]) = view.slots;
        let kept = slow.count() / self.economy.slow_free_share;
        let room = (fast.free() + slow.free()).saturating_sub(2 * kept);
        view.copies_wanted.min(room).max(self.free_target)
    }

    /// Moves after which so many fast slots are without a home, or nearer to that.
    fn plan_towards(&mut self, target: u32, now: Nanos, view: &View<'_>, budget: usize, pace: Pace) -> Plan {
        let tick = self.tick(now);
        let (free, slow_free) = (view.slots[FAST].free() as usize, view.slots[SLOW].free() as usize);
        let (half, target) = (budget.div_ceil(2), target as usize);
        let room = slow_free.saturating_sub(1);
        let rises = half.min(free).min(view.may_rise);
        let short = target.saturating_sub(free);
        let idle = pace == Pace::Idle;
        let (mut up, mut leaving, mut blocked) = (Vec::new(), Vec::new(), Vec::new());
        let mut refills = false;
        if pace == Pace::Short {
            up = self.rising_dense(view, tick, rises);
        } else if short <= half {
            up = self.rising(view, tick, rises, idle);
            if up.is_empty() && idle && self.wants_refill(view) {
                up = self.refilling(view, rises);
                refills = true;
            }
        }
        if idle {
            up.sort_by_key(|(_, heat)| Reverse(*heat));
            leaving = self.outdone(view, &mut up, &mut blocked, refills, tick);
        }
        // What rises into slots that are free beyond the target pushes nothing out.
        let needed = (target + up.len()).saturating_sub(free).min(budget - up.len()).min(room);
        let mut down = Vec::new();
        // Copies push out only what nobody touches; while clients are busy and copies have proved worth it, only as fast as they
        // fill what is free.
        let for_copies = up.is_empty() && free >= self.free_target as usize;
        let proved = view.copies_proved;
        let wanted = if for_copies && proved { view.copies_pressed } else { self.hot.marks() > 0 };
        if needed > 0 && (idle || !up.is_empty() || pace == Pace::Busy && wanted) {
            down = self.coldest(view, tick, needed);
            if for_copies {
                let gives_way = |chunk: Chunk| pace == Pace::Busy && proved && self.is_only_read(chunk, tick);
                down.retain(|(chunk, heat)| *heat == 0 || gives_way(*chunk));
            }
        }
        if !up.is_empty() {
            self.pair(view, &mut up, &mut down, (free, target), tick, pace);
            leaving.truncate(up.len().saturating_sub(view.slots[FAST].unused() as usize));
        } else if down.is_empty() && !blocked.is_empty() {
            // What is colder goes down first: no slot is without a copy that is worth more than what rises.
            down = self.coldest(view, tick, blocked.len().min(room));
            self.pair(view, &mut blocked, &mut down, (target, target), tick, pace);
        }
        if !up.is_empty() || !down.is_empty() {
            blocked.into_iter().for_each(|(chunk, heat)| self.mark_region(chunk, heat));
        }
        let to = |tier| move |(chunk, _)| Move { chunk, to: Destination::Tier(tier) };
        let moves = up.into_iter().map(to(FAST)).chain(down.into_iter().map(to(SLOW))).collect();
        Plan { moves, leaving }
    }

    /// Leaves of what may rise, hottest first, what finds a slot in which nothing is, or copies that it outdoes; the others
    /// are blocked. What rises only to make room below outdoes what nobody has read. Gives the slots of those copies.
    fn outdone(
        &mut self,
        view: &View<'_>,
        up: &mut Vec<(Chunk, u32)>,
        blocked: &mut Vec<(Chunk, u32)>,
        refills: bool,
        tick: u16,
    ) -> Vec<Slot> {
        let mut unused = view.slots[FAST].unused() as usize;
        if up.len() <= unused {
            return Vec::new();
        }
        let (trays, hand) = view.copies.some_trays(self.copies_hand);
        self.copies_hand = hand;
        let mut trays: Vec<(u64, Slot)> =
            trays.into_iter().map(|slot| (self.worth_of_copies(view, slot, tick), slot)).collect();
        trays.sort_unstable();
        let mut leaving = Vec::new();
        for (chunk, heat) in std::mem::take(up) {
            if unused > 0 {
                unused -= 1;
            } else {
                let gives_way = |worth, slot| match refills {
                    true => view.copies.is_unread(slot),
                    false => self.is_worth_more(view, chunk, worth, tick),
                };
                match trays.get(leaving.len()) {
                    Some((worth, slot)) if gives_way(*worth, *slot) => leaving.push(*slot),
                    _ => {
                        blocked.push((chunk, heat));
                        continue;
                    }
                }
            }
            up.push((chunk, heat));
        }
        leaving
    }

    /// What clients' touches of late would have taken longer without the copies in a slot. A chunk's reads are shared by
    /// the parts of it that have copies.
    fn worth_of_copies(&self, view: &View<'_>, slot: Slot, tick: u16) -> u64 {
        let of = |(chunk, here): (Chunk, u32)| {
            let reads = self.fine(chunk, tick).reads;
            let parts =
                if here == view.copies.parts_per_chunk() { here } else { view.copies.parts_of(chunk) };
            view.yields.worth(reads, 0) * u64::from(here) / u64::from(parts.max(here))
        };
        view.copies.chunks_in(slot).map(of).sum()
    }

    /// Whether a chunk that rises saves clients clearly more than what is worth so much. What its own copies serve already is
    /// no gain.
    fn is_worth_more(&self, view: &View<'_>, chunk: Chunk, than: u64, tick: u16) -> bool {
        let Fine { reads, writes } = self.fine(chunk, tick);
        let parts = view.copies.parts_per_chunk();
        let missing = parts - view.copies.parts_of(chunk);
        let gain =
            view.yields.worth((u64::from(reads) * u64::from(missing) / u64::from(parts)) as u32, writes);
        self.is_clearly_more(gain, than)
    }

    /// Of what may rise and what may go down, leaves the hottest and the coldest: each goes down for one that is
    /// hotter. While clients are busy, for the least hot of those that may rise: what is not worth it as a whole is not
    /// begun.
    fn pair(
        &mut self,
        view: &View<'_>,
        up: &mut Vec<(Chunk, u32)>,
        down: &mut Vec<(Chunk, u32)>,
        (free, target): (usize, usize),
        tick: u16,
        pace: Pace,
    ) {
        let last = up[up.len() - 1].0.0 / REGION_CHUNKS;
        up.sort_by_key(|(_, heat)| Reverse(*heat));
        down.sort_by_key(|(_, heat)| *heat);
        // The first to go down make up for slots that are missing, the others are for what there is no slot for.
        let rises_over = |index: usize| match pace {
            Pace::Idle => up[(free + index).saturating_sub(target).min(up.len() - 1)],
            _ => up[up.len() - 1],
        };
        let hotter = |(index, (_, heat)): (usize, &(Chunk, u32))| {
            let over = rises_over(index).1;
            heat + self.margin(heat + over) <= over
        };
        let hotter = down.iter().enumerate().take_while(|it| hotter(*it)).count();
        let pays = |(index, (chunk, _)): (usize, &(Chunk, u32))| {
            self.pays(view, rises_over(index).0, Some(*chunk), tick)
        };
        let pairs = down.iter().enumerate().take(hotter).take_while(|it| pays(*it)).count();
        let costs_too_much = pace != Pace::Idle && pairs < hotter;
        down.truncate(pairs);
        let rise = (free + pairs).saturating_sub(target).max(usize::from(pairs > 0)).min(up.len());
        // Everything looked at is as hot: the others may try again when they are touched again.
        let left = up.split_off(rise);
        if costs_too_much {
            left.into_iter().for_each(|(chunk, heat)| self.mark_region(chunk, heat));
        } else if rise == 0 && pace != Pace::Short {
            self.hot.unmark_from(last, 0);
        }
        if rise == 0 {
            self.next_region = last + 1;
        }
        // Neighbours together.
        up.sort_unstable();
        down.sort_unstable();
    }

    /// How much colder the one of two chunks with so many touches together must be to give way to the other: by about what
    /// chance makes of two that are as hot, the square root of that.
    fn margin(&self, touches: u32) -> u32 {
        if self.foresight.is_some() { MARGIN } else { touches.isqrt().max(MARGIN) }
    }

    fn wants_refill(&self, view: &View<'_>) -> bool {
        let slow = &view.slots[SLOW];
        view.slots[FAST].free() > 2 * self.free_target
            && slow.free() < slow.count() / self.economy.slow_free_share
    }
}

impl Policy for HeatPolicy {
    fn touch(&mut self, touch: Touch, now: Nanos) {
        if let Some(foresight) = &mut self.foresight {
            let seen = foresight.step().map(|seen| (seen, foresight.ahead(seen)));
            if let Some((seen, ahead)) = seen.filter(|(_, ahead)| *ahead >= self.touches) {
                self.mark_region(seen, ahead);
            }
            return;
        }
        let tick = self.tick(now);
        self.heats.fade_another(tick);
        let before = self.heats.get(touch.chunk);
        if before.last == tick {
            return;
        }
        let mut heat = self.heats.faded(touch.chunk, tick);
        heat.last = tick;
        if !(touch.stream && before.last == 0) {
            let counter = if touch.write { &mut heat.writes } else { &mut heat.reads };
            *counter = counter.saturating_add(1);
        }
        self.heats.set(touch.chunk, heat);
        if !touch.on_fast && heat.total() >= self.touches {
            self.mark_region(touch.chunk, heat.total());
        }
    }

    fn wish(&mut self, chunk: Chunk, now: Nanos) {
        let tick = self.tick(now);
        let mut heat = self.heats.faded(chunk, tick);
        heat.last = tick;
        let missing = self.touches.saturating_sub(heat.total()).min(u32::from(u8::MAX));
        heat.reads = heat.reads.saturating_add(missing as u8);
        self.heats.set(chunk, heat);
        self.mark_region(chunk, heat.total());
    }

    fn heat(&self, chunk: Chunk, now: Nanos) -> u32 {
        self.heat_at(chunk, self.tick(now))
    }

    fn first_write(&self, _bytes: u32, fast_free: u32) -> FirstWrite {
        // The last free slot is for moves.
        if fast_free > 1 { FirstWrite::Fast } else { FirstWrite::Elsewhere }
    }

    fn settles_fast(&self, fast_free: u32) -> bool {
        fast_free > self.free_target
    }

    fn rises_at_destage(&self, chunk: Chunk, now: Nanos, view: &View<'_>, fast_free: u32) -> bool {
        fast_free > self.free_target && self.may_rise(view, chunk, self.tick(now))
    }

    fn foresee(&mut self, foresight: Foresight) {
        self.touches = FORESEEN_TOUCHES;
        for chunk in (0..self.heats.chunks()).map(Chunk) {
            let ahead = foresight.ahead(chunk);
            if ahead >= self.touches {
                self.mark_region(chunk, ahead);
            }
        }
        self.foresight = Some(foresight);
    }

    fn next_use(&self, chunk: Chunk, after: bool) -> NextUse {
        let Some(foresight) = &self.foresight else { return NextUse::Unknown };
        foresight.next_use(chunk, after).map_or(NextUse::Never, NextUse::At)
    }

    fn cool(&mut self, chunk: Chunk) {
        if let Some(foresight) = &mut self.foresight {
            foresight.forget(chunk);
        }
        let cold = Heat { reads: 0, writes: 0, ..self.heats.get(chunk) };
        self.heats.set(chunk, cold);
    }

    fn plan(&mut self, now: Nanos, view: &View<'_>, budget: usize, pace: Pace) -> Plan {
        let used: u32 = view.slots.0.iter().map(|slots| slots.count() - slots.free()).sum();
        let (parts, of) = self.heats.credibility(used);
        let believed = view.yields.believed((parts, of));
        let yields = match pace {
            Pace::Idle => believed.in_idle_time(self.economy.idle_cost_share),
            Pace::Busy => believed,
            // What rises then is no longer to be merged, of which clients wait for more than moves cost; but not where
            // most of what is hotter is so by chance.
            Pace::Short if parts < of / 2 => return Plan::default(),
            Pace::Short => Yield::UNKNOWN,
        };
        let view = &View { yields, ..*view };
        let target = self.target(view);
        let plan = self.plan_towards(target, now, view, budget, pace);
        // Where nothing cold is left to give way to copies, their wish does not keep down what is hot. While clients are busy,
        // copies that have proved worth their slots keep those they have: chunks rise in exchange for others.
        if plan.moves.is_empty() && target > self.free_target && pace != Pace::Short {
            let kept = if pace == Pace::Busy && view.copies_proved { view.slots[FAST].free() } else { 0 };
            return self.plan_towards(kept.clamp(self.free_target, target), now, view, budget, pace);
        }
        plan
    }

    fn outdoes(&self, chunk: Chunk, copies_in: Slot, now: Nanos, view: &View<'_>) -> bool {
        let tick = self.tick(now);
        self.is_clearly_more(self.worth(view, chunk, tick), self.worth_of_copies(view, copies_in, tick))
    }

    fn victims(&mut self, now: Nanos, view: &View<'_>, most: usize) -> Vec<Chunk> {
        let tick = self.tick(now);
        self.coldest(view, tick, most).into_iter().map(|(chunk, _)| chunk).collect()
    }

    fn has_work(&self, view: &View<'_>) -> bool {
        let rises = view.may_rise > 0 && (self.hot.marks() > 0 || self.wants_refill(view));
        rises || view.slots[FAST].free() < self.target(view)
    }

    fn ram_bytes(&self) -> u64 {
        ram_bytes(u64::from(self.heats.chunks()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::options::{CreateOptions, DeviceInfo};
    use crate::base::hash::mix;
    use crate::base::mask::BlockMask;
    use crate::format::geometry::Geometry;
    use crate::placement::pins::PinList;
    use crate::placement::policy::Benefit;
    use crate::volume::cells::{Cells, Wish};
    use crate::volume::map::Map;
    use crate::volume::slots::Slots;
    use std::ops::Range;

    const CHUNK_BLOCKS: u32 = 32;

    /// A volume of which every chunk is at home, the first ones on the fast tier.
    struct Volume {
        map: Map,
        slots: ByTier<Slots>,
        policy: HeatPolicy,
        on_fast: u32,
        copies: Cells,
        copies_wanted: u32,
        copies_proved: bool,
        copies_pressed: bool,
        may_rise: usize,
        yields: Yield,
        budget: usize,
    }

    impl Volume {
        fn new() -> Volume {
            Volume::with_blank(0)
        }

        /// So many chunks have no home.
        fn with_blank(blank: u32) -> Volume {
            let device = |mib: u64| DeviceInfo { name: String::new(), size_bytes: mib << 20 };
            let geo =
                Geometry::plan(&[device(64), device(512)], &CreateOptions::new([1; 16])).expect("a layout");
            let mut slots = ByTier([Slots::new(geo.slots(FAST), true), Slots::new(geo.slots(SLOW), false)]);
            let mut map = Map::new(&geo);
            let policy = HeatPolicy::new(geo.chunks, geo.slots(FAST), &Tuning::default());
            let on_fast = geo.slots(FAST) - policy.free_target;
            for chunk in (0..geo.chunks - policy.free_target - blank).map(Chunk) {
                let tier = if chunk.0 < on_fast { FAST } else { SLOW };
                let slot = slots[tier].take().expect("a slot");
                slots[tier].set_owner(slot, Some(chunk));
                map.set(chunk, Some(Home { tier, slot }), &BlockMask::range(0, 32));
            }
            Volume {
                map,
                slots,
                policy,
                on_fast,
                copies: Cells::new(geo.slots(FAST), geo.slots(FAST), CHUNK_BLOCKS, &Economy::default()),
                copies_wanted: 0,
                copies_proved: false,
                copies_pressed: true,
                may_rise: usize::MAX,
                yields: Yield::UNKNOWN,
                budget: 16,
            }
        }

        /// Chunks from the first one of the slow tier on are read, all within a second.
        fn read(&mut self, second: u64, count: u32, stream: bool) {
            for chunk in (self.on_fast..self.on_fast + count).map(Chunk) {
                let touch = Touch { chunk, write: false, stream, on_fast: false };
                self.policy.touch(touch, Nanos(second * Nanos::SECOND));
            }
        }

        fn plan(&mut self, second: u64) -> (Vec<u32>, usize) {
            self.plan_at(second, Pace::Idle)
        }

        fn plan_at(&mut self, second: u64, pace: Pace) -> (Vec<u32>, usize) {
            let moves = self.whole_plan(second, pace).moves;
            let up = moves.iter().filter(|m| m.to == Destination::Tier(FAST)).map(|m| m.chunk.0).collect();
            (up, moves.iter().filter(|m| m.to == Destination::Tier(SLOW)).count())
        }

        fn whole_plan(&mut self, second: u64, pace: Pace) -> Plan {
            let (pins, budget) = (PinList::default(), self.budget);
            self.ask(&pins, |policy, view| policy.plan(Nanos(second * Nanos::SECOND), view, budget, pace))
        }

        fn ask<R>(&mut self, pins: &PinList, ask: impl FnOnce(&mut HeatPolicy, &View<'_>) -> R) -> R {
            let view = View {
                map: &self.map,
                slots: &self.slots,
                pins,
                copies: &self.copies,
                copies_wanted: self.copies_wanted,
                copies_proved: self.copies_proved,
                copies_pressed: self.copies_pressed,
                may_rise: self.may_rise,
                yields: self.yields,
            };
            ask(&mut self.policy, &view)
        }

        /// All slots in which nothing is hold copies of these chunks, so many parts of each.
        fn copy(&mut self, chunks: impl IntoIterator<Item = u32>, parts: u32) {
            let mut chunks = chunks.into_iter();
            while self.slots[FAST].unused() > 0 {
                let slot = self.slots[FAST].take().expect("there is one");
                self.slots[FAST].lend(slot, None);
                self.copies.add_tray(slot);
                while self.copies.free() >= parts {
                    let Some(chunk) = chunks.next() else { break };
                    for (part, cell) in self.copies.take(parts as usize, |_| true).into_iter().enumerate() {
                        self.copies.fill(Chunk(chunk), part as u32, cell, Wish::First);
                        self.copies.filled(cell, true);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_read_through_rises_at_the_third_pass_after_the_first() {
        let mut volume = Volume::new();
        for pass in 1..=3 {
            volume.read(100 * pass, 40, true);
            assert_eq!(volume.plan(100 * pass + 50), (vec![], 0), "pass {pass}");
        }
        volume.read(400, 40, true);
        let first = volume.on_fast;
        let free = volume.slots[FAST].free();
        let (up, down) = volume.plan(450);
        // Neighbours, as many as there are free slots for, and as many colder ones go down.
        assert_eq!(up, (first..first + free.min(8)).collect::<Vec<_>>());
        assert_eq!(down, up.len());
    }

    #[test]
    fn what_may_not_rise_now_is_not_forgotten() {
        let mut volume = Volume::new();
        (1..=3).for_each(|pass| volume.read(100 * pass, 4, false));
        let has_work =
            |volume: &mut Volume| volume.ask(&PinList::default(), |policy, view| policy.has_work(view));
        volume.may_rise = 0;
        assert!(!has_work(&mut volume));
        assert_eq!(volume.plan(350).0, []);
        volume.may_rise = 1;
        assert!(has_work(&mut volume));
        assert_eq!(volume.plan(350).0, [volume.on_fast]);
    }

    #[test]
    fn what_is_as_hot_stays_where_it_is() {
        let mut volume = Volume::new();
        for second in [10, 20, 30] {
            volume.read(second, 4, false);
            for chunk in (0..volume.on_fast).map(Chunk) {
                let touch = Touch { chunk, write: true, stream: false, on_fast: true };
                volume.policy.touch(touch, Nanos(second * Nanos::SECOND));
            }
        }
        assert_eq!(volume.plan(31), (vec![], 0));
        volume.read(40, 4, false);
        assert_eq!(volume.plan(41), (vec![], 0), "four touches beside three may be chance");
        // It may try again when it is touched again, and is hotter then.
        volume.read(50, 4, false);
        assert_eq!(volume.plan(51).0.len(), 4.min(volume.slots[FAST].free() as usize));
    }

    /// All on the fast tier was touched three times, and so was the first chunk on the slow one: it rose over none of them,
    /// and with a small budget nothing behind it was looked at as long as it stayed as warm.
    #[test]
    fn what_is_hottest_rises_and_what_is_as_warm_holds_up_nothing() {
        for pace in [Pace::Idle, Pace::Busy] {
            let mut volume = Volume::new();
            volume.budget = 2;
            let (first, region) = (volume.on_fast, volume.on_fast.next_multiple_of(REGION_CHUNKS));
            let hottest = [first + 2, region + 1, region + 2];
            for second in 1..=20 {
                let all = (0..=region).filter(|_| second <= 3).chain(hottest);
                for chunk in all.map(Chunk) {
                    let touch = Touch { chunk, write: true, stream: false, on_fast: chunk.0 < first };
                    volume.policy.touch(touch, Nanos(second * Nanos::SECOND));
                }
            }
            let mut rose = Vec::new();
            for second in 21..40 {
                let (up, down) = volume.plan_at(second, pace);
                assert_eq!(down, up.len());
                for chunk in up.into_iter().map(Chunk) {
                    volume.map.set(chunk, volume.map.home(Chunk(0)), &BlockMask::range(0, 32));
                    rose.push(chunk.0);
                }
            }
            assert_eq!(rose, hottest, "{pace:?}");
        }
    }

    /// Random writes all over the volume touch many chunks three times. While clients wait for the zone, none of them rises;
    /// what is written again and again does.
    #[test]
    fn what_chance_made_hot_does_not_rise_while_the_zone_is_short() {
        let mut volume = Volume::new();
        let (first, used) =
            (volume.on_fast, volume.slots.0.iter().map(|s| s.count() - s.free()).sum::<u32>());
        let touch = |policy: &mut HeatPolicy, second, chunk| {
            let touch = Touch { chunk: Chunk(chunk), write: true, stream: false, on_fast: chunk < first };
            policy.touch(touch, Nanos(second * Nanos::SECOND));
        };
        for second in 1..=600 {
            for throw in 0..u64::from(used / 200) {
                touch(&mut volume.policy, second, mix(second << 32 | throw) as u32 % used);
            }
        }
        let rises = |volume: &mut Volume, second: u64| -> Vec<u32> {
            (0..50).flat_map(|turn| volume.plan_at(second + turn, Pace::Short).0).collect()
        };
        assert_eq!(rises(&mut volume, 601), []);
        for second in 700..=800 {
            (first..first + 64).for_each(|chunk| touch(&mut volume.policy, second, chunk));
        }
        assert!(rises(&mut volume, 801).contains(&first));
    }

    /// Reads are answered 10 ms sooner from the fast tier, and moving a chunk takes the slow device 30 ms.
    #[test]
    fn what_would_not_repay_its_move_stays() {
        let mut volume = Volume::new();
        let mut benefit = Benefit::new(1, &Economy::default());
        (0..100).for_each(|_| {
            benefit.read(FAST, 4096, Nanos::MS);
            benefit.read(SLOW, 4096, 11 * Nanos::MS);
        });
        benefit.moved(100, 100 * 30 * Nanos::MS);
        volume.yields = benefit.yields(None);
        for second in 1..=4 {
            volume.read(10 * second, 4, false);
            assert_eq!(volume.plan_at(10 * second + 1, Pace::Busy).0, [], "90 ms are to be saved");
        }
        let free = volume.slots[FAST].free() as usize;
        volume.read(50, 4, false);
        assert_eq!(volume.plan_at(51, Pace::Busy).0, [], "and 180 where another goes down for it");
        assert_eq!(volume.plan_at(52, Pace::Idle).0.len(), free.min(4), "nobody waits for the disk");
    }

    #[test]
    fn copies_push_out_what_nobody_touches_and_while_clients_are_busy_only_where_they_proved_worth_it() {
        let mut volume = Volume::with_blank(1000);
        volume.copies_wanted = volume.slots[FAST].count() / 8;
        assert_eq!(volume.plan_at(10, Pace::Idle), (vec![], 16));
        assert_eq!(volume.plan_at(10, Pace::Busy), (vec![], 0));
        volume.copies_proved = true;
        assert_eq!(volume.plan_at(10, Pace::Busy), (vec![], 16));
        volume.copies_pressed = false;
        assert_eq!(volume.plan_at(10, Pace::Busy), (vec![], 0), "they have what they need");
        volume.copies_pressed = true;
        for chunk in (0..volume.on_fast).map(Chunk) {
            let touch = Touch { chunk, write: false, stream: false, on_fast: true };
            volume.policy.touch(touch, Nanos(10 * Nanos::SECOND));
        }
        assert_eq!(volume.plan_at(11, Pace::Busy), (vec![], 16), "copies serve what is only read");
        assert_eq!(volume.plan_at(11, Pace::Idle), (vec![], 0), "but for nothing it is not moved");
        for chunk in (0..volume.on_fast).map(Chunk) {
            let touch = Touch { chunk, write: true, stream: false, on_fast: true };
            volume.policy.touch(touch, Nanos(20 * Nanos::SECOND));
        }
        assert_eq!(volume.plan_at(21, Pace::Idle), (vec![], 0));
    }

    /// Films had been read again and again while the SSD was full of files that had been read once: copies were worth
    /// many more slots than were free, and only what nobody had touched gave way to them. When that was used up, the
    /// volume was idle, what was hot did not rise for want of those slots, and the disk was put to rest.
    #[test]
    fn the_wish_of_copies_that_cannot_be_met_does_not_keep_down_what_is_hot() {
        let mut volume = Volume::with_blank(1000);
        (volume.copies_wanted, volume.copies_proved) = (volume.slots[FAST].count() / 2, true);
        for chunk in (0..volume.on_fast).map(Chunk) {
            let touch = Touch { chunk, write: true, stream: false, on_fast: true };
            volume.policy.touch(touch, Nanos(5 * Nanos::SECOND));
        }
        (1..=3).for_each(|pass| volume.read(10 * pass, 40, false));
        let (first, free) = (volume.on_fast, volume.slots[FAST].free());
        let (up, down) = volume.plan_at(31, Pace::Busy);
        assert!(
            !up.is_empty() && down == up.len(),
            "in exchange, copies keep what they have: {up:?}, {down}"
        );
        (1..=3).for_each(|pass| volume.read(30 + 10 * pass, 40, false));
        let (up, down) = volume.plan_at(61, Pace::Idle);
        assert_eq!(up, (first..first + free.min(8)).collect::<Vec<_>>());
        assert_eq!(down, up.len(), "what was touched once makes room");
    }

    /// In each of some seconds, chunks are read, or written.
    fn touch(volume: &mut Volume, chunks: Range<u32>, seconds: Range<u64>, write: bool) {
        for second in seconds {
            for chunk in chunks.clone().map(Chunk) {
                let touch = Touch { chunk, write, stream: false, on_fast: chunk.0 < volume.on_fast };
                volume.policy.touch(touch, Nanos(second * Nanos::SECOND));
            }
        }
    }

    /// What is far behind was read 60 times; all before it four times.
    #[test]
    fn in_idle_time_the_hottest_rises_first_wherever_it_is() {
        let mut volume = Volume::new();
        let (first, last) = (volume.on_fast, volume.policy.heats.chunks() - 200);
        touch(&mut volume, first..last, 1..5, false);
        touch(&mut volume, last - 3..last, 5..65, false);
        volume.budget = 6;
        assert_eq!(volume.plan(65).0, [last - 3, last - 2, last - 1]);
    }

    /// A volume whose fast homes are hotter than all else, with copies of other chunks in all slots that are left.
    fn full_of_copies(parts: u32, reads: u64) -> Volume {
        let mut volume = Volume::with_blank(1000);
        volume.policy.free_target = 1;
        let copied = volume.on_fast + 100;
        let copied = copied..copied + volume.slots[FAST].free() * (CHUNK_BLOCKS / parts);
        volume.copy(copied.clone(), parts);
        touch(&mut volume, copied, 1..1 + reads, false);
        let homes = 0..volume.on_fast;
        touch(&mut volume, homes, 100..250, true);
        volume
    }

    /// Old copies were read 30 times each. What was written 36 times does not outdo them, by less than a quarter; what
    /// was 42 times does, and no more of them end than it needs.
    #[test]
    fn what_rises_takes_the_place_of_no_copies_that_are_worth_as_much() {
        let mut volume = full_of_copies(CHUNK_BLOCKS, 30);
        let first = volume.on_fast;
        touch(&mut volume, first..first + 4, 250..286, true);
        assert_eq!(volume.whole_plan(286, Pace::Idle), Plan::default());
        touch(&mut volume, first..first + 4, 290..296, true);
        let plan = volume.whole_plan(296, Pace::Idle);
        assert_eq!((plan.moves.len(), plan.leaving.len()), (4, 4), "{plan:?}");
    }

    /// A slot with parts of 32 chunks, each read three times, is worth more than one chunk that is read 60 times.
    #[test]
    fn many_small_copies_in_a_slot_are_worth_what_all_of_them_are() {
        let mut volume = full_of_copies(1, 3);
        let first = volume.on_fast;
        touch(&mut volume, first..first + 4, 250..310, false);
        assert_eq!(volume.whole_plan(310, Pace::Idle), Plan::default());
        touch(&mut volume, first..first + 4, 310..390, false);
        assert_eq!(volume.whole_plan(390, Pace::Idle).leaving.len(), 4);
    }

    /// Copies are hot, a run of homes is not: those go down first, and in their place rises what is hotter.
    #[test]
    fn where_copies_are_hot_what_rises_takes_the_place_of_cold_homes() {
        let mut volume = full_of_copies(CHUNK_BLOCKS, 100);
        let first = volume.on_fast;
        (0..16).for_each(|chunk| volume.policy.cool(Chunk(chunk)));
        touch(&mut volume, first..first + 1, 250..370, true);
        let plan = volume.whole_plan(371, Pace::Idle);
        let cold = |m: &Move| m.chunk.0 < 16 && m.to == Destination::Tier(SLOW);
        assert!(plan.moves.iter().all(cold) && !plan.moves.is_empty() && plan.leaving.is_empty(), "{plan:?}");
        let slot = volume.map.home(Chunk(0)).expect("it has a home").slot;
        volume.slots[FAST].lend(slot, None);
        volume.slots[FAST].take_back(slot);
        volume.map.set(Chunk(0), None, &BlockMask::EMPTY);
        assert_eq!(volume.plan(372).0, [first]);
    }
}
