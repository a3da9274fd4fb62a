//! Pins: kept over every crash once they are answered, obeyed by whatever moves chunks, and explained.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::extents::Placement;
use bimetal_engine::format::geometry::pins_at;
use bimetal_engine::pins::PinError;
use bimetal_engine::why::{Outcome, Reason, Why};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::{Chunk, FAST, Nanos, SLOW, Tier};

type Listed = Vec<(u64, u64, Tier)>;

/// What is pinned: first chunk, chunks, tier.
fn listed(s: &mut Story) -> Listed {
    let ranges = s.engine().pin_report().ranges;
    ranges.iter().map(|range| (range.offset / CHUNK, range.len / CHUNK, range.tier)).collect()
}

fn begin(s: &mut Story, chunk: u64, chunks: u64, tier: Option<Tier>) -> Result<(), PinError> {
    let now = s.world.now();
    s.engine().begin_pin(now, chunk * CHUNK, chunks * CHUNK, tier)
}

/// Goes on until the change is answered.
fn change(s: &mut Story, chunk: u64, chunks: u64, tier: Option<Tier>) -> Result<(), PinError> {
    begin(s, chunk, chunks, tier)?;
    loop {
        if let Some(answer) = s.engine().take_pin_answer() {
            return answer;
        }
        s.step();
    }
}

fn deaths() -> impl Iterator<Item = Death> {
    CutStyle::ALL.into_iter().map(Death::PowerCut).chain([Death::Kill])
}

/// A volume with one pin is closed. It is opened, a second range is pinned, and the machine dies: before the first step,
/// before the second one, and so on, in every way it can. What is pinned then is what was, or what was asked for; the
/// latter once it was answered; and another death changes nothing of it.
#[test]
fn a_pin_is_there_or_not_whenever_the_machine_dies_and_there_once_it_is_answered() {
    let mut s = Story::begin(40, 64);
    change(&mut s, 2, 3, Some(FAST)).expect("it is pinned");
    s.stop();
    let (whole, old): (_, Listed) = (s.world.disks.clone(), vec![(2, 3, FAST)]);
    let new = vec![(2, 2, FAST), (4, 5, SLOW)];
    let (mut seen_old, mut seen_new) = (0, 0);
    // Each way twice: what of the last writes is there after a power cut is drawn.
    for death in deaths().chain(deaths()) {
        for fuse in 0.. {
            s.world.disks = whole.clone();
            s.open().expect("it opens");
            begin(&mut s, 4, 5, Some(SLOW)).expect("it may be pinned");
            s.world.fuse = Some(fuse);
            let (mut answered, mut died) = (false, false);
            while !answered && !died {
                died = s.step_or_crash();
                answered = s.engine().take_pin_answer().is_some_and(|answer| answer.is_ok());
            }
            s.world.fuse = None;
            s.die(death);
            assert_eq!(s.check().expect("it can be checked"), [""; 0], "{death:?} at step {fuse}");
            s.open().expect("it opens after the crash");
            let found = listed(&mut s);
            assert!(found == new || found == old && !answered, "{death:?} at step {fuse}: {found:?}");
            (seen_old, seen_new) = (seen_old + u32::from(found == old), seen_new + u32::from(found == new));
            s.die(Death::PowerCut(CutStyle::LoseAll));
            s.open().expect("it opens again");
            assert_eq!(listed(&mut s), found, "{death:?} at step {fuse}");
            // And a change cut short does not take back what was found.
            begin(&mut s, 0, 1, Some(FAST)).expect("it may be pinned");
            s.step();
            s.die(Death::PowerCut(CutStyle::Sectors));
            s.open().expect("it opens once more");
            let last = listed(&mut s);
            let with_it = [&[(0, 1, FAST)], &found[..]].concat();
            assert!(last == found || last == with_it, "{death:?} at step {fuse}: {found:?}, then {last:?}");
            s.die(Death::Kill);
            if answered {
                break;
            }
        }
    }
    assert!(seen_old > 20 && seen_new > 20, "{seen_old} times before, {seen_new} times after");
}

#[test]
fn a_change_that_a_device_fails_is_an_error_and_the_next_one_succeeds() {
    let mut s = Story::begin(40, 64);
    change(&mut s, 2, 3, Some(FAST)).expect("it is pinned");
    s.world.rates.writes = 1;
    assert_eq!(change(&mut s, 2, 3, None), Err(PinError::Io));
    s.world.rates.writes = 0;
    assert_eq!(listed(&mut s), [(2, 3, FAST)]);
    change(&mut s, 3, 1, Some(SLOW)).expect("the device works again");
    let expected = [(2, 1, FAST), (3, 1, SLOW), (4, 1, FAST)];
    assert_eq!(listed(&mut s), expected);
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("it opens");
    assert_eq!(listed(&mut s), expected);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut s = Story::begin(40, 64);
    let chunks = s.engine().size_bytes() / CHUNK;
    assert!(matches!(begin(&mut s, chunks, 1, Some(FAST)), Err(PinError::Range { .. })));
    assert!(matches!(begin(&mut s, 0, 0, Some(FAST)), Err(PinError::Range { .. })));
    assert!(matches!(begin(&mut s, 0, chunks, Some(FAST)), Err(PinError::NoRoom { tier: FAST, .. })));
    assert!(matches!(begin(&mut s, 0, chunks, Some(SLOW)), Err(PinError::NoRoom { tier: SLOW, .. })));
    let report = s.engine().pin_report();
    let room = report.room_bytes[0] / CHUNK;
    assert!(room > 0 && report.room_bytes[0] < s.engine().status().tiers[0].size_bytes);
    change(&mut s, 0, room, Some(FAST)).expect("what there is room for");
    assert!(matches!(begin(&mut s, room, 1, Some(FAST)), Err(PinError::NoRoom { .. })));
    begin(&mut s, 0, 1, None).expect("it may be unpinned");
    assert_eq!(begin(&mut s, 1, 1, None), Err(PinError::Busy));
    s.stop();
    s.open().expect("it opens");
    assert_eq!(listed(&mut s), [(1, room - 1, FAST)], "closing waits for the change");
    begin(&mut s, 0, 1, None).expect("a change that changes nothing");
    assert_eq!(begin(&mut s, 1, 1, None), Err(PinError::Busy), "its answer is there, and not taken yet");
    assert_eq!(s.engine().take_pin_answer(), Some(Ok(())));
    change(&mut s, 1, 1, None).expect("it was");
    let now = s.world.now();
    s.engine().begin_shutdown(now);
    assert_eq!(begin(&mut s, 0, 1, None), Err(PinError::ShuttingDown));
}

#[test]
fn one_bad_sector_takes_no_pin_and_two_keep_no_volume_closed() {
    let mut s = Story::begin(40, 64);
    change(&mut s, 2, 3, Some(FAST)).expect("it is pinned");
    s.die(Death::Kill);
    let whole = s.world.disks.clone();
    for place in 0..2 {
        s.world.disks = whole.clone();
        s.world.disks[0].add_bad_sector(pins_at(place) / 512);
        s.open().expect("it opens");
        assert_eq!(listed(&mut s), [(2, 3, FAST)]);
        assert!(!s.engine().take_events().is_empty(), "it is said");
        // Written anew, the sector is good again.
        change(&mut s, 2, 3, Some(FAST)).expect("it is pinned again");
        s.stop();
        assert_eq!(s.check().expect("it can be checked"), [""; 0]);
    }
    s.world.disks = whole;
    (0..2).for_each(|place| s.world.disks[0].add_bad_sector(pins_at(place) / 512));
    assert_eq!(s.check().expect("it can be checked").len(), 2);
    s.open().expect("data does not wait for pins");
    assert!(!s.engine().pin_report().known);
    assert_eq!(begin(&mut s, 0, 1, Some(FAST)), Err(PinError::Unknown));
    let chunks = s.engine().size_bytes() / CHUNK;
    change(&mut s, 0, chunks, None).expect("a new list is begun");
    assert!(s.engine().pin_report().known);
    change(&mut s, 7, 1, Some(FAST)).expect("it is pinned");
    s.stop();
    s.open().expect("it opens");
    assert_eq!(listed(&mut s), [(7, 1, FAST)]);
}

/// A volume from before there were pins: whatever stands in their places is not ours.
#[test]
fn a_volume_that_never_had_pins_opens_without() {
    let mut s = Story::begin(40, 64);
    s.stop();
    for place in 0..2 {
        s.world.disks[0].put_back(pins_at(place) / BLOCK, &[0xa5; BLOCK as usize]);
    }
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
    s.open().expect("it opens");
    assert_eq!(listed(&mut s), []);
    assert!(s.engine().pin_report().known);
    change(&mut s, 1, 1, Some(SLOW)).expect("it is pinned");
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("it opens");
    assert_eq!(listed(&mut s), [(1, 1, SLOW)]);
}

fn why(s: &mut Story, offset: u64) -> Option<Why> {
    let now = s.world.now();
    s.engine().why(now, offset)
}

/// Where a chunk is at home.
fn tier(s: &mut Story, chunk: u64) -> Option<Tier> {
    why(s, chunk * CHUNK).expect("it is in the volume").home.map(|home| home.tier)
}

/// A volume on which touches count, full but for this many chunks; the others are all at home somewhere. Gives their
/// number.
fn filled(s: &mut Story, but: u64) -> u64 {
    s.tuning.promote_touches = 3;
    s.stop();
    s.open().expect("the volume opens");
    let chunks = s.engine().size_bytes() / CHUNK - but;
    for chunk in 0..chunks {
        s.write(chunk * CHUNK, CHUNK, chunk as u8 | 1);
    }
    s.flush();
    s.wait(20 * Nanos::SECOND);
    chunks
}

fn on(s: &mut Story, chunks: u64, wanted: Tier) -> Vec<u64> {
    (0..chunks).filter(|&chunk| tier(s, chunk) == Some(wanted)).collect()
}

#[test]
fn pinned_chunks_come_to_their_tier_whole_and_stay_over_a_restart() {
    let mut s = Story::begin(40, 100);
    let chunks = filled(&mut s, 4);
    let (fast, slow) = (on(&mut s, chunks, FAST), on(&mut s, chunks, SLOW));
    let (down, up) = (fast[3], &slow[5..8]);
    // Part of one is landed when it is pinned, and more is written while it moves.
    s.write(up[0] * CHUNK + BLOCK, BLOCK, 0x77);
    for &chunk in up {
        change(&mut s, chunk, 1, Some(FAST)).expect("it is pinned");
    }
    change(&mut s, down, 1, Some(SLOW)).expect("it is pinned");
    s.write(up[1] * CHUNK, BLOCK, 0x99);
    s.wait(20 * Nanos::SECOND);
    let settled =
        |s: &mut Story| up.iter().all(|&chunk| tier(s, chunk) == Some(FAST)) && tier(s, down) == Some(SLOW);
    assert!(settled(&mut s), "{:?}", s.engine().pin_report());
    let report = s.engine().pin_report();
    assert!(report.ranges.iter().all(|range| range.astray_bytes == Some(0)), "{report:?}");
    for (chunk, block, byte) in [(up[0], 1, 0x77), (up[1], 0, 0x99), (up[2], 0, up[2] as u8 | 1)] {
        let read = s.read(chunk * CHUNK + block * BLOCK, BLOCK).expect("it can be read");
        assert!(read.iter().all(|&b| b == byte), "chunk {chunk}: {:#x}", read[0]);
    }
    s.flush();
    s.die(Death::PowerCut(CutStyle::Mixed));
    s.open().expect("it opens");
    s.wait(20 * Nanos::SECOND);
    assert!(settled(&mut s), "and after a crash");
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}

/// As much is pinned to the fast tier as may be, and all of it is cold; what is on the slow tier is read again and
/// again. Nothing pinned gives way; the rest of the fast tier goes to what is hot, or to copies of it, but for what is pinned to the
/// slow tier.
#[test]
fn what_is_pinned_and_cold_stays_while_hotter_chunks_want_its_place() {
    let mut s = Story::begin(60, 100);
    let chunks = filled(&mut s, 4);
    let room = s.engine().pin_report().room_bytes[0] / CHUNK;
    let pinned = chunks - room;
    change(&mut s, pinned, room, Some(FAST)).expect("it is pinned");
    s.wait(60 * Nanos::SECOND);
    assert!((pinned..chunks).all(|chunk| tier(&mut s, chunk) == Some(FAST)), "{:?}", s.engine().pin_report());
    let slow = on(&mut s, chunks, SLOW);
    change(&mut s, slow[0], 1, Some(SLOW)).expect("it is pinned");
    for _ in 0..8 {
        for &chunk in &slow {
            s.read(chunk * CHUNK, BLOCK).expect("it can be read");
        }
        s.wait(2 * Nanos::SECOND);
        assert!((pinned..chunks).all(|chunk| tier(&mut s, chunk) == Some(FAST)));
    }
    s.wait(20 * Nanos::SECOND);
    assert_eq!(tier(&mut s, slow[0]), Some(SLOW), "pinned, and hot");
    let risen = slow.iter().any(|&chunk| tier(&mut s, chunk) == Some(FAST));
    assert!(risen || s.engine().status().copied_bytes > 0, "others rise, or copies of them are kept");
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}

/// A burst of random writes for which the landing zone borrows from the fast tier: it takes no place of what is pinned.
#[test]
fn the_landing_zone_borrows_nothing_that_is_pinned() {
    let mut s = Story::begin_with_zone(200, 4000, 16);
    let chunks = filled(&mut s, 1000);
    let fast = on(&mut s, chunks, FAST);
    let (first, count) = (fast[0], 60);
    change(&mut s, first, count, Some(FAST)).expect("it is pinned");
    // Until what it has borrowed so far is given back.
    s.wait(120 * Nanos::SECOND);
    let zone = s.engine().status().landing_size_bytes;
    let slow = on(&mut s, chunks, SLOW);
    let (mut borrowed, mut waiting) = (0, Vec::new());
    for n in 0..6000u64 {
        let chunk = slow[(n * 7919 % slow.len() as u64) as usize];
        let at = chunk * CHUNK + n % 16 * BLOCK;
        waiting.push(s.ask(RequestKind::Write { fua: false }, at, BLOCK, n as u8));
        if waiting.len() == 64 {
            for asked in waiting.drain(..) {
                s.answer(asked).expect("a write succeeds");
            }
            borrowed = borrowed.max(s.engine().status().landing_size_bytes - zone);
            assert!(
                (first..first + count).all(|chunk| tier(&mut s, chunk) == Some(FAST)),
                "after {n} writes"
            );
        }
    }
    assert!(borrowed > 0, "the zone has grown: {:?}", s.engine().status());
    s.die(Death::Kill);
    s.open().expect("it opens");
    s.wait(60 * Nanos::SECOND);
    assert!((first..first + count).all(|chunk| tier(&mut s, chunk) == Some(FAST)));
}

#[test]
fn first_writes_to_what_is_pinned_end_on_its_tier() {
    let mut s = Story::begin(40, 100);
    change(&mut s, 0, 4, Some(SLOW)).expect("it is pinned");
    change(&mut s, 4, 4, Some(FAST)).expect("it is pinned");
    for chunk in 0..8 {
        s.write(chunk * CHUNK, if chunk % 2 == 0 { CHUNK } else { BLOCK }, 5);
    }
    s.flush();
    s.wait(20 * Nanos::SECOND);
    assert!((0..4).all(|chunk| tier(&mut s, chunk) == Some(SLOW)));
    assert!((4..8).all(|chunk| tier(&mut s, chunk) == Some(FAST)));
    let discard = s.ask(RequestKind::Discard { fua: true }, 0, CHUNK, 0);
    s.answer(discard).expect("a discard succeeds");
    assert_eq!(tier(&mut s, 0), None);
    assert_eq!(listed(&mut s), [(0, 4, SLOW), (4, 4, FAST)], "pins are of ranges, not of what is in them");
}

#[test]
fn why_says_what_is_known_and_nothing_else() {
    let mut s = Story::begin(40, 100);
    assert_eq!(why(&mut s, u64::MAX), None);
    let blank = why(&mut s, 0).expect("it is in the volume");
    assert_eq!((blank.home, blank.landed_blocks, blank.last), (None, 0, None));
    let chunks = filled(&mut s, 4);
    s.stop();
    s.open().expect("it opens");
    let slow = on(&mut s, chunks, SLOW);
    let chunk = slow[5];
    let before = why(&mut s, chunk * CHUNK + 77).expect("it is in the volume");
    assert_eq!((before.chunk, before.offset), (Chunk(chunk as u32), chunk * CHUNK));
    assert_eq!(
        (before.since, before.last, before.heat),
        (None, None, 0),
        "it came there before it was opened"
    );
    assert_eq!(before.rises_at, 3);
    assert!(before.coldest.is_some_and(|coldest| coldest.heat == 0 && coldest.of_all));
    for _ in 0..2 {
        s.read(chunk * CHUNK, BLOCK).expect("it can be read");
        s.wait(2 * Nanos::SECOND);
    }
    assert_eq!(why(&mut s, chunk * CHUNK).expect("it is in the volume").heat, 2);
    s.read(chunk * CHUNK, BLOCK).expect("it can be read");
    let touched = s.world.now();
    // Its zone is short of room at all times: heat moves something only in the quiet, when somebody calls.
    s.wait(20 * Nanos::SECOND);
    s.wait(20 * Nanos::SECOND);
    let risen = why(&mut s, chunk * CHUNK).expect("it is in the volume");
    let last = risen.last.expect("it was moved");
    assert_eq!((last.to, last.reason, last.outcome, last.heat), (FAST, Reason::Hot, Outcome::Moved, 3));
    assert!(risen.since.is_some_and(|since| since >= touched), "{risen:?}");
    change(&mut s, chunk, 1, Some(SLOW)).expect("it is pinned");
    s.wait(20 * Nanos::SECOND);
    let pinned = why(&mut s, chunk * CHUNK).expect("it is in the volume");
    assert_eq!(pinned.pinned, Some(SLOW));
    assert_eq!(pinned.last.map(|last| (last.to, last.reason)), Some((SLOW, Reason::Pinned)));
    s.write(chunk * CHUNK, 2 * BLOCK, 1);
    assert_eq!(why(&mut s, chunk * CHUNK).expect("it is in the volume").landed_blocks, 2);
    let at = |s: &mut Story, place: Placement| s.engine().extents(chunk * CHUNK, BLOCK, 1)[0].place == place;
    assert!(at(&mut s, Placement::Landed));
}
