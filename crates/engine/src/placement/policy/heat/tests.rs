//! What rises, what goes down, and what gives way.

use super::*;
use crate::api::options::{CreateOptions, DeviceInfo};
use crate::base::hash::mix;
use crate::base::mask::BlockMask;
use crate::format::geometry::Geometry;
use crate::placement::avoided::Avoided;
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
    avoided: Avoided,
}

impl Volume {
    fn new() -> Volume {
        Volume::with_blank(0)
    }

    /// So many chunks have no home.
    fn with_blank(blank: u32) -> Volume {
        let device = |mib: u64| DeviceInfo { name: String::new(), size_bytes: mib << 20 };
        let geo = Geometry::plan(&[device(64), device(512)], &CreateOptions::new([1; 16])).expect("a layout");
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
            avoided: Avoided::default(),
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
            avoided: &self.avoided,
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
    let (first, used) = (volume.on_fast, volume.slots.0.iter().map(|s| s.count() - s.free()).sum::<u32>());
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
    assert!(!up.is_empty() && down == up.len(), "in exchange, copies keep what they have: {up:?}, {down}");
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

/// In a quiet time, half of the slots lose what nobody touches. What somebody has touched stays; and once all was looked at for
/// nothing, it is not looked at again before somebody touches anything.
#[test]
fn what_nobody_touches_makes_room_in_quiet_times_up_to_half() {
    let mut volume = Volume::with_blank(2000);
    assert_eq!(volume.plan_at(10, Pace::Busy), (vec![], 0), "clients are busy");
    assert_eq!(volume.plan_at(10, Pace::Idle), (vec![], 16));
    let has_work =
        |volume: &mut Volume| volume.ask(&PinList::default(), |policy, view| policy.has_work(view));
    for chunk in (0..volume.on_fast).map(Chunk) {
        let touch = Touch { chunk, write: true, stream: false, on_fast: true };
        volume.policy.touch(touch, Nanos(20 * Nanos::SECOND));
    }
    let mut looks = 0;
    while has_work(&mut volume) {
        assert_eq!(volume.plan_at(21 + looks, Pace::Idle), (vec![], 0));
        looks += 1;
        assert!(looks < 100, "it ends");
    }
    assert!(looks > 0);
    volume.read(200, 1, false);
    assert!(has_work(&mut volume));
    for slot in (0..volume.slots[FAST].count()).map(Slot) {
        if volume.slots[FAST].free() < volume.slots[FAST].count() / 2 && volume.slots[FAST].is_used(slot) {
            volume.slots[FAST].release(slot, crate::io::flush::Durable::found(Seq(0)));
        }
    }
    assert!(!has_work(&mut volume), "half of the slots are without a home");
}

#[test]
fn what_could_not_be_moved_is_left_alone_for_a_while() {
    let moves = |failed: &[Chunk], until: u64| {
        let mut volume = Volume::new();
        failed.iter().for_each(|chunk| volume.avoided.avoid(*chunk, Nanos(0)));
        volume.avoided.expire(Nanos(until * Nanos::SECOND));
        (1..=3).for_each(|pass| volume.read(100 * pass, 8, false));
        let plan = volume.whole_plan(350, Pace::Idle);
        plan.moves.iter().map(|planned| planned.chunk).collect::<Vec<Chunk>>()
    };
    let all = moves(&[], 350);
    assert!(all.len() >= 4, "{all:?}");
    let others = moves(&all, 350);
    assert!(!others.is_empty() && others.iter().all(|chunk| !all.contains(chunk)), "{all:?}, {others:?}");
    assert_eq!(moves(&all, 600), all);
}
