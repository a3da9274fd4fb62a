//! Placement by heat: fast first; what is touched again and again rises, in runs; the coldest runs are pushed down.
//!
//! Reads and writes count alike. A sequential pass over what nobody touched before counts as having been seen, and no
//! more, so that films and backups do not rise when they are read once; later passes count as any touch does.

use super::heats::{FINE, Fine, Heat, Heats};
use super::regions::{BANDS, HotRegions, REGION_CHUNKS, band_of};
use super::{FirstWrite, Foresight, NextUse, Pace, Plan, Policy, Touch, View, Yield};
use crate::api::economy::Economy;
use crate::api::options::Tuning;
use crate::format::hints::ChunkHeat;
use crate::placement::policy::{Destination, Move};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
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
#[derive(Serialize, Deserialize)]
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
    /// Runs of fast slots that were looked at in vain for what nobody touches, since somebody touched anything.
    looked_in_vain: u32,
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
            looked_in_vain: 0,
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

    /// The heat of each of these chunks, in order: for many at once, of which most were never touched.
    pub(crate) fn heats(&self, chunks: std::ops::Range<u32>, now: Nanos) -> impl Iterator<Item = u32> {
        let tick = self.tick(now);
        chunks.map(move |chunk| self.heat_at(Chunk(chunk), tick))
    }

    /// What was learnt of up to so many chunks, from the first on of which anything was, of those from this one on.
    pub(crate) fn hints(&self, from: Chunk, now: Nanos, most: usize) -> Option<(Chunk, Vec<ChunkHeat>)> {
        self.heats.hints(from, self.tick(now), most)
    }

    /// What was learnt of a chunk before the volume was opened. The time in between does not count.
    pub(crate) fn recall(&mut self, chunk: Chunk, hint: ChunkHeat, now: Nanos) {
        let tick = self.tick(now);
        self.heats.recall(chunk, hint, tick);
        let heat = self.heat_at(chunk, tick);
        if heat >= self.touches {
            self.mark_region(chunk, heat);
        }
    }

    #[inline]
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
                } else if view.is_movable(chunk) {
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
                .filter(|chunk| self.may_rise(view, *chunk, tick) && view.is_movable(*chunk))
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
                view.map.is_on(*chunk, FAST) && view.is_movable(*chunk) && view.pins.allows(*chunk, SLOW)
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
            if view.map.is_on(chunk, SLOW) && view.is_movable(chunk) && view.pins.allows(chunk, FAST) {
                found.push((chunk, 0));
            }
        }
        found
    }

    /// Fast slots that are to be without a home.
    fn target(&self, view: &View<'_>) -> u32 {
        view.copies_wanted.min(self.room(view)).max(self.free_target)
    }

    /// Fast slots that may be without a home, so that the slow tier keeps its share free.
    fn room(&self, view: &View<'_>) -> u32 {
        let ByTier([fast, slow]) = view.slots;
        let kept = slow.count() / self.economy.slow_free_share;
        (fast.free() + slow.free()).saturating_sub(2 * kept)
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

    /// Fast slots that are to be without a home when the volume is quiet.
    fn quiet_target(&self, view: &View<'_>) -> u32 {
        (view.slots[FAST].count() / self.economy.copies_quiet_share).min(self.room(view))
    }

    /// What nobody touches goes down, in a quiet time, while too few slots are without a home: it leaves a copy behind, so no
    /// read becomes slower, and whatever is read or written next finds a slot that nothing is lost with.
    fn push_untouched(&mut self, now: Nanos, view: &View<'_>, budget: usize) -> Plan {
        let tick = self.tick(now);
        let missing = self.quiet_target(view).saturating_sub(view.slots[FAST].free()) as usize;
        let room = (view.slots[SLOW].free() as usize).saturating_sub(1);
        let mut down = self.coldest(view, tick, missing.min(budget).min(room));
        down.retain(|(_, heat)| *heat == 0);
        self.looked_in_vain = match down.is_empty() {
            true => self.looked_in_vain.saturating_add(self.economy.cold_sample_runs),
            false => 0,
        };
        let moves = down.into_iter().map(|(chunk, _)| Move { chunk, to: Destination::Tier(SLOW) }).collect();
        Plan { moves, leaving: Vec::new() }
    }

    /// Whether some of what is at home on the fast tier may be untouched: all of it was not looked at in vain since somebody
    /// touched anything.
    fn may_push_untouched(&self, view: &View<'_>) -> bool {
        let runs = view.slots[FAST].count().div_ceil(self.economy.cold_run_slots);
        self.looked_in_vain < runs && view.slots[FAST].free() < self.quiet_target(view)
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
        self.looked_in_vain = 0;
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
        let mut plan = self.plan_towards(target, now, view, budget, pace);
        // Where nothing cold is left to give way to copies, their wish does not keep down what is hot. While clients are busy,
        // copies that have proved worth their slots keep those they have: chunks rise in exchange for others.
        if plan.moves.is_empty() && target > self.free_target && pace != Pace::Short {
            let kept = if pace == Pace::Busy && view.copies_proved { view.slots[FAST].free() } else { 0 };
            plan = self.plan_towards(kept.clamp(self.free_target, target), now, view, budget, pace);
        }
        if plan.moves.is_empty() && pace == Pace::Idle && self.may_push_untouched(view) {
            return self.push_untouched(now, view, budget);
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
        rises || view.slots[FAST].free() < self.target(view) || self.may_push_untouched(view)
    }

    fn ram_bytes(&self) -> u64 {
        ram_bytes(u64::from(self.heats.chunks()))
    }
}

#[cfg(test)]
mod tests;
