//! Appends that fail are made again, behind them the fence. What they said holds in memory all the while, and on the devices
//! it does not: whoever begins to wait for the log then waits for the fence.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::run_seed;
use bimetal_torture::world::storm::{Storm, Vanish};
use bimetal_torture::world::{Death, Service};
use bimetal_units::Nanos;

/// The error of a device that fails for a while, and forgets nothing.
const EIO: i32 = 5;
/// The least that an append which fails again and again rests for.
const REST_NS: u64 = 100 * Nanos::MS;

fn taking(ns: u64) -> Service {
    Service { min_ns: ns, max_ns: ns, per_kib_ns: 0, ..Service::default() }
}

/// What the first block of a chunk may hold: the last of what was flushed, or nothing, for it was discarded since.
fn assert_is(s: &mut Story, chunk: u64, flushed: u8, told: &str) {
    let read = s.read(chunk, BLOCK);
    let all = |byte: u8| read == Ok(vec![byte; BLOCK as usize]);
    let first = read.as_ref().map(|bytes| bytes[0]);
    assert!(all(flushed) || all(0), "{told}: {first:?} instead of {flushed:#x} or zeros");
}

/// A chunk was being merged when all of it was discarded, and the discard could not be appended. The merge failed as well. What
/// it let go held nothing any more, so its slot was given back to the device, once the last group of the log was durable: and
/// that was the one before the discard, which was to be appended again. What had been flushed was gone at the next opening.
#[test]
fn a_slot_is_not_given_back_while_what_emptied_it_is_to_be_appended_again() {
    for reads in 0..6 {
        let mut s = Story::begin(40, 40);
        let chunk = s.slow_chunk();
        (0..reads).for_each(|_| drop(s.read(0, BLOCK)));
        s.write(chunk + BLOCK, BLOCK, 0x22);
        s.flush();
        s.world.services[0] = taking(5 * Nanos::MS);
        s.wait(12 * Nanos::MS);
        s.until_stage(Stage::MoveRead);
        s.world.services[0] = taking(10_000);
        let away =
            Vanish { device: 0, after: 0, stage: None, ns: 5 * Nanos::SECOND, cache: None, errno: EIO };
        s.world.begin(Storm { vanish: Some(away), ..Storm::default() });
        s.ask(RequestKind::Discard { fua: false }, chunk, CHUNK, 0);
        s.wait(REST_NS / 2);
        s.world.calm();
        s.die(Death::Kill);
        s.open().expect("the volume opens");
        assert_is(&mut s, chunk, 0x11, &format!("after {reads} reads"));
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()));
    }
}

/// A checkpoint had written its pages when a block was discarded that was the last in its segment of the log. The discard could not
/// be appended. The checkpoint chose the tail behind that segment, and waited for the last group of the log before it said so:
/// which was the one before the discard. After a power cut neither the landed block was there nor the discard, and what had
/// been there before both was read.
#[test]
fn the_tail_is_not_left_behind_while_what_emptied_it_is_to_be_appended_again() {
    for more in 0..16 {
        let mut s = Story::begin_with_zone(64, 64, 32);
        let chunk = s.slow_chunk();
        s.stop();
        s.open().expect("the volume opens");
        // What follows it in its segment is superseded by what lands in later ones.
        s.write(chunk, BLOCK, 0x22);
        s.flush();
        for fill in 0..40 + more {
            s.write(chunk + BLOCK, BLOCK, fill);
            s.flush();
        }
        s.world.services = vec![taking(5 * Nanos::MS), taking(Nanos::SECOND)];
        s.until_stage(Stage::CheckpointRoot);
        s.world.services[0] = taking(10_000);
        s.world.rates.writes = 1;
        let discard = s.ask(RequestKind::Discard { fua: false }, chunk, BLOCK, 0);
        s.wait(Nanos::MS);
        s.world.rates.writes = 0;
        s.wait(REST_NS / 2);
        assert!(s.take_answer(&discard).is_none(), "it waits for the log");
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("the volume opens");
        assert_is(&mut s, chunk, 0x22, &format!("{more} more"));
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()));
    }
}

/// The same as the first of these, in the middle of more.
#[test]
fn a_slot_whose_discard_failed_with_its_merge_keeps_what_was_flushed() {
    assert_eq!(run_seed(110_003_459, &ArenaMemory::default()).violation, None);
}
