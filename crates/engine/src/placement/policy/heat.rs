//! Placement by heat: fast first; what is touched again and again rises, in runs; the coldest runs are pushed down.
//!
//! Reads and writes count alike. A sequential pass over what nobody touched before counts as having been seen, and no
//! more, so that films and backups do not rise when they are read once; later passes count as any touch does.

use super::heats::{Heat, Heats};
use super::{FirstWrite, Foresight, NextUse, Pace, Policy, Touch, View, Yield};
use crate::api::economy::Economy;
use crate::api::options::Tuning;
use crate::placement::policy::{Destination, Move};
use bimetal_units::*;
use std::cmp::Reverse;

/// Chunks of a region, of which one bit says whether some of them may rise: neighbours rise together, so that the slow
/// device reads runs (8 MiB at the default chunk size).
const REGION_CHUNKS: u32 = 64;
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
    /// A bit per region: some chunk of it on the slow tier has become hot.
    hot: Vec<u64>,
    /// Regions of which the bit is set.
    hot_regions: u32,
    /// The region that is looked at next for what rises.
    next_region: u32,
    /// The run of slots that was looked at last for what is cold.
    hand: u32,
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
    Heats::ram_bytes(chunks) + chunks.div_ceil(u64::from(REGION_CHUNKS)).div_ceil(64) * 8
}

impl HeatPolicy {
    /// For a volume of `chunks` with `fast_slots`.
    pub fn new(chunks: u32, fast_slots: u32, tuning: &Tuning) -> HeatPolicy {
        let economy = tuning.economy;
        HeatPolicy {
            heats: Heats::new(chunks, tuning.economy.heat_half_life_touches),
            hot: vec![0; chunks.div_ceil(REGION_CHUNKS).div_ceil(64) as usize],
            hot_regions: 0,
            next_region: 0,
            hand: 0,
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

    fn mark_region(&mut self, chunk: Chunk) {
        let region = chunk.0 / REGION_CHUNKS;
        let (word, bit) = (&mut self.hot[region as usize / 64], 1 << (region % 64));
        self.hot_regions += u32::from(*word & bit == 0);
        *word |= bit;
    }

    fn unmark_region(&mut self, region: u32) {
        let (word, bit) = (&mut self.hot[region as usize / 64], 1 << (region % 64));
        self.hot_regions -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    /// The next region with hot chunks, round and round.
    fn hot_region(&self) -> Option<u32> {
        let words = self.hot.len();
        let (mut word, mut mask) = (self.next_region as usize / 64 % words, !0u64 << (self.next_region % 64));
        for _ in 0..=words {
            let bits = self.hot[word] & mask;
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            (word, mask) = ((word + 1) % words, !0);
        }
        None
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
        self.foresight.is_some() || view.yields.pays(of(chunk), over.map(of))
    }

    /// Up to so many chunks that may rise, with their heat: of each region the hottest.
    /// What does not pay while clients are busy may do so when nobody waits, so it is not forgotten.
    fn rising(&mut self, view: &View<'_>, tick: u16, most: usize, idle: bool) -> Vec<(Chunk, u32)> {
        let (mut rising, mut kept) = (Vec::new(), 0);
        while rising.len() < most
            && kept < REGIONS_PER_CALL.min(self.hot_regions as usize)
            && let Some(region) = self.hot_region()
        {
            let (mut later, mut found) = (false, Vec::new());
            for chunk in self.chunks_in(region) {
                if !self.may_rise(view, chunk, tick) {
                    continue;
                }
                if !self.pays(view, chunk, None, tick) {
                    later |= !idle;
                } else if !view.map.is_busy(chunk) {
                    found.push((chunk, self.heat_at(chunk, tick)));
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
                self.unmark_region(region);
            }
        }
        rising
    }

    /// The same of dense regions alone; the others keep their bit.
    fn rising_dense(&mut self, view: &View<'_>, tick: u16, most: usize) -> Vec<(Chunk, u32)> {
        for _ in 0..REGIONS_PER_CALL {
            let Some(region) = self.hot_region() else { break };
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
                let heat = run.iter().map(|(_, heat)| heat).sum::<u32>() * run_slots / run.len() as u32;
                sample.push((heat, run));
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
    fn plan_towards(
        &mut self,
        target: u32,
        now: Nanos,
        view: &View<'_>,
        budget: usize,
        pace: Pace,
    ) -> Vec<Move> {
        let tick = self.tick(now);
        let (free, slow_free) = (view.slots[FAST].free() as usize, view.slots[SLOW].free() as usize);
        let (half, target) = (budget.div_ceil(2), target as usize);
        let room = slow_free.saturating_sub(1);
        let rises = half.min(free).min(view.may_rise);
        let short = target.saturating_sub(free);
        let idle = pace == Pace::Idle;
        let mut up = Vec::new();
        if pace == Pace::Short {
            up = self.rising_dense(view, tick, rises);
        } else if short <= half {
            up = self.rising(view, tick, rises, idle);
            if up.is_empty() && idle && self.wants_refill(view) {
                up = self.refilling(view, rises);
            }
        }
        // What rises into slots that are free beyond the target pushes nothing out.
        let needed = (target + up.len()).saturating_sub(free).min(budget - up.len()).min(room);
        let mut down = Vec::new();
        // Copies push out only what nobody touches; while clients are busy and copies have proved worth it, only as fast as they
        // fill what is free.
        let for_copies = up.is_empty() && free >= self.free_target as usize;
        let proved = view.copies_proved();
        let wanted = if for_copies && proved { view.copies_pressed } else { self.hot_regions > 0 };
        if needed > 0 && (idle || !up.is_empty() || pace == Pace::Busy && wanted) {
            down = self.coldest(view, tick, needed);
            if for_copies {
                let gives_way = |chunk: Chunk| pace == Pace::Busy && proved && self.is_only_read(chunk, tick);
                down.retain(|(chunk, heat)| *heat == 0 || gives_way(*chunk));
            }
        }
        if !up.is_empty() {
            self.pair(view, &mut up, &mut down, (free, target), tick, pace);
        }
        let to = |tier| move |(chunk, _)| Move { chunk, to: Destination::Tier(tier) };
        up.into_iter().map(to(FAST)).chain(down.into_iter().map(to(SLOW))).collect()
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
            left.into_iter().for_each(|(chunk, _)| self.mark_region(chunk));
        } else if rise == 0 && pace != Pace::Short {
            self.unmark_region(last);
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
            if let Some(seen) = foresight.step().filter(|seen| foresight.ahead(*seen) >= self.touches) {
                self.mark_region(seen);
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
            self.mark_region(touch.chunk);
        }
    }

    fn wish(&mut self, chunk: Chunk, now: Nanos) {
        let tick = self.tick(now);
        let mut heat = self.heats.faded(chunk, tick);
        heat.last = tick;
        let missing = self.touches.saturating_sub(heat.total()).min(u32::from(u8::MAX));
        heat.reads = heat.reads.saturating_add(missing as u8);
        self.heats.set(chunk, heat);
        self.mark_region(chunk);
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
        let hot = (0..self.heats.chunks()).map(Chunk).filter(|chunk| foresight.ahead(*chunk) >= self.touches);
        hot.collect::<Vec<_>>().into_iter().for_each(|chunk| self.mark_region(chunk));
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

    fn plan(&mut self, now: Nanos, view: &View<'_>, budget: usize, pace: Pace) -> Vec<Move> {
        let used: u32 = view.slots.0.iter().map(|slots| slots.count() - slots.free()).sum();
        let (parts, of) = self.heats.credibility(used);
        let believed = view.yields.believed((parts, of));
        let yields = match pace {
            Pace::Idle => believed.in_idle_time(self.economy.idle_cost_share),
            Pace::Busy => believed,
            // What rises then is no longer to be merged, of which clients wait for more than moves cost; but not where
            // most of what is hotter is so by chance.
            Pace::Short if parts < of / 2 => return Vec::new(),
            Pace::Short => Yield::UNKNOWN,
        };
        let view = &View { yields, ..*view };
        let target = self.target(view);
        let moves = self.plan_towards(target, now, view, budget, pace);
        // Where nothing cold is left to give way to copies, their wish does not keep down what is hot. While clients are busy,
        // copies that have proved worth their slots keep those they have: chunks rise in exchange for others.
        if moves.is_empty() && target > self.free_target && pace != Pace::Short {
            let kept = if pace == Pace::Busy && view.copies_proved() { view.slots[FAST].free() } else { 0 };
            return self.plan_towards(kept.clamp(self.free_target, target), now, view, budget, pace);
        }
        moves
    }

    fn victims(&mut self, now: Nanos, view: &View<'_>, most: usize) -> Vec<Chunk> {
        let tick = self.tick(now);
        self.coldest(view, tick, most).into_iter().map(|(chunk, _)| chunk).collect()
    }

    fn has_work(&self, view: &View<'_>) -> bool {
        let rises = view.may_rise > 0 && (self.hot_regions > 0 || self.wants_refill(view));
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
    use crate::volume::map::Map;
    use crate::volume::slots::Slots;

    const LEAST_SHARE: u32 = 8;

    /// A volume of which every chunk is at home, the first ones on the fast tier.
    struct Volume {
        map: Map,
        slots: ByTier<Slots>,
        policy: HeatPolicy,
        on_fast: u32,
        copies_wanted: u32,
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
                copies_wanted: 0,
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
            let (pins, copies_wanted) = (&PinList::default(), self.copies_wanted);
            let may_rise = self.may_rise;
            let (copies_pressed, yields) = (self.copies_pressed, self.yields);
            let view = View {
                map: &self.map,
                slots: &self.slots,
                pins,
                copies_wanted,
                copies_least_share: LEAST_SHARE,
                copies_pressed,
                may_rise,
                yields,
            };
            let moves = self.policy.plan(Nanos(second * Nanos::SECOND), &view, self.budget, pace);
            let up = moves.iter().filter(|m| m.to == Destination::Tier(FAST)).map(|m| m.chunk.0).collect();
            (up, moves.iter().filter(|m| m.to == Destination::Tier(SLOW)).count())
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
        let (pins, copies_wanted) = (&PinList::default(), 0);
        let has_work = |volume: &Volume| {
            let (map, slots, may_rise) = (&volume.map, &volume.slots, volume.may_rise);
            let (copies_pressed, yields) = (false, Yield::UNKNOWN);
            let view = View {
                map,
                slots,
                pins,
                copies_wanted,
                copies_least_share: LEAST_SHARE,
                copies_pressed,
                may_rise,
                yields,
            };
            volume.policy.has_work(&view)
        };
        volume.may_rise = 0;
        assert!(!has_work(&volume));
        assert_eq!(volume.plan(350).0, []);
        volume.may_rise = 1;
        assert!(has_work(&volume));
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
        let least = volume.slots[FAST].count() / LEAST_SHARE;
        volume.copies_wanted = least;
        assert_eq!(volume.plan_at(10, Pace::Idle), (vec![], 16));
        assert_eq!(volume.plan_at(10, Pace::Busy), (vec![], 0));
        volume.copies_wanted = least + 1;
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
        volume.copies_wanted = volume.slots[FAST].count() / 2;
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
}
