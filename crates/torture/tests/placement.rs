//! Where the engine says that data is, and what it does when it is asked to make it fast.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_engine::extents::{MAX_EXTENT_STEPS, Placed, Placement};
use bimetal_engine::tally::{MAX_TALLY_STEPS, Tally};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::{Death, Service};
use bimetal_units::rng::Rng;
use bimetal_units::{FAST, Nanos, SLOW};

fn told(s: &mut Story, offset: u64, len: u64) -> Vec<(u64, Placement)> {
    s.engine().extents(offset, len, 100).iter().map(|extent| (extent.len, extent.place)).collect()
}

/// A volume on which touches count, filled beyond its fast tier; gives a chunk that is on the slow one.
fn filled(s: &mut Story) -> u64 {
    s.tuning.promote_touches = 3;
    s.stop();
    s.open().expect("the volume opens");
    let size = s.engine().size_bytes();
    for at in (0..size - 8 * CHUNK).step_by(CHUNK as usize) {
        s.write(at, CHUNK, (at / CHUNK) as u8 | 1);
    }
    s.flush();
    s.wait(20 * Nanos::SECOND);
    (0..size)
        .step_by(CHUNK as usize)
        .find(|&at| told(s, at, CHUNK) == [(CHUNK, Placement::Home(SLOW))])
        .expect("a chunk on the slow tier")
}

#[test]
fn extents_name_holes_homes_and_what_landed() {
    let mut s = Story::begin(24, 64);
    let size = s.engine().size_bytes();
    assert_eq!(told(&mut s, 0, size), [(size, Placement::Hole)]);
    assert_eq!(told(&mut s, 5, 7), [(7, Placement::Hole)]);
    assert_eq!(told(&mut s, size, 1), []);
    assert_eq!(told(&mut s, size - 1, u64::MAX), [(1, Placement::Hole)]);
    assert_eq!(told(&mut s, 0, 0), []);

    s.write(CHUNK, BLOCK, 1);
    let expected = [(CHUNK, Placement::Hole), (BLOCK, Placement::Home(FAST)), (10, Placement::Hole)];
    assert_eq!(told(&mut s, 0, CHUNK + BLOCK + 10), expected, "before it is flushed");
    s.flush();
    assert_eq!(told(&mut s, 0, CHUNK + BLOCK + 10), expected, "and after");
    assert_eq!(told(&mut s, CHUNK + 100, 200), [(200, Placement::Home(FAST))]);
    let two = s.engine().extents(0, CHUNK + BLOCK + 10, 2);
    let expected =
        [Placed { len: CHUNK, place: Placement::Hole }, Placed { len: BLOCK, place: Placement::Home(FAST) }];
    assert_eq!(two[..], expected);
    assert!(s.engine().extents(0, CHUNK, 0).is_empty());

    let discard = s.ask(RequestKind::Discard { fua: true }, CHUNK, BLOCK, 0);
    s.answer(discard).expect("a discard succeeds");
    assert_eq!(told(&mut s, 0, size), [(size, Placement::Hole)]);

    let slow = filled(&mut s);
    s.write(slow + BLOCK, BLOCK, 0x77);
    let expected = [
        (BLOCK, Placement::Home(SLOW)),
        (BLOCK, Placement::Landed),
        (CHUNK - 2 * BLOCK, Placement::Home(SLOW)),
    ];
    assert_eq!(told(&mut s, slow, CHUNK), expected);
}

#[test]
fn a_query_looks_at_a_bounded_number_of_places() {
    let mut s = Story::begin(200, 20_000);
    let size = s.engine().size_bytes();
    assert!(size / CHUNK > u64::from(MAX_EXTENT_STEPS));
    let reached: u64 = told(&mut s, 0, size).iter().map(|extent| extent.0).sum();
    assert_eq!(reached, u64::from(MAX_EXTENT_STEPS) * CHUNK);
}

/// What extents and heats say of a range, counted.
fn counted(s: &mut Story, from: u64, to: u64) -> Tally {
    let (mut tally, mut at, now) = (Tally::default(), from, s.world.now());
    while at < to {
        let heat = s.engine().heats(now, at, 1)[0];
        if heat > tally.hottest {
            (tally.hottest, tally.hottest_offset) = (heat, at);
        }
        let is_hot = heat >= s.engine().rises_at();
        for extent in s.engine().extents(at, CHUNK.min(to - at), usize::MAX) {
            tally.add(extent.place, extent.len);
            if is_hot && extent.place == Placement::Home(SLOW) {
                tally.hot_slow_bytes += extent.len;
            }
        }
        at += CHUNK;
    }
    tally
}

/// Range by range, whatever was done to the volume: `SEED=` draws it again.
#[test]
fn a_tally_counts_what_extents_say() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(11);
    println!("SEED={seed}");
    let (mut s, mut rng) = (Story::begin(24, 64), Rng::new(seed, 0));
    filled(&mut s);
    let size = s.engine().size_bytes();
    let mut seen = Tally::default();
    for turn in 0..250u8 {
        let (at, blocks) = (rng.below(size / BLOCK) * BLOCK, 1 + rng.below(40));
        let len = (blocks * BLOCK).min(size - at);
        match rng.below(8) {
            0..5 => s.write(at, len, turn),
            5 => drop(s.ask(RequestKind::Discard { fua: false }, at, len, 0)),
            6 => s.flush(),
            _ => s.wait(rng.below(3) * Nanos::SECOND),
        }
        let from = rng.below(size / CHUNK) * CHUNK;
        let to = (from + rng.below(20 * CHUNK)).min(size);
        let (now, mut steps) = (s.world.now(), MAX_TALLY_STEPS);
        let (told, end) = s.engine().tally(now, from, to, &mut steps);
        assert_eq!((told, end), (counted(&mut s, from, to), to), "{from} to {to}");
        seen.hole_bytes += told.hole_bytes;
        seen.landed_bytes += told.landed_bytes;
        seen.home_bytes[FAST] += told.home_bytes[FAST];
        seen.home_bytes[SLOW] += told.home_bytes[SLOW];
        seen.hot_slow_bytes += told.hot_slow_bytes;
    }
    let all = [seen.hole_bytes, seen.landed_bytes, seen.home_bytes[FAST], seen.home_bytes[SLOW]];
    assert!(all.iter().all(|bytes| *bytes > 0) && seen.hot_slow_bytes > 0, "{seen:?}");
}

#[test]
fn a_tally_takes_a_bounded_number_of_steps_and_goes_on() {
    let mut s = Story::begin(24, 64);
    let (slow, now) = (filled(&mut s), s.world.now());
    s.write(slow, BLOCK, 1);
    let size = s.engine().size_bytes();
    let (mut at, mut parts, mut bytes) = (0, 0, 0);
    while at < size {
        // A step is a chunk, but for the one of which a block is landed.
        let mut steps = 10;
        let (told, end) = s.engine().tally(now, at, size, &mut steps);
        assert!(end > at && end - at <= 10 * CHUNK && (steps == 0 || end == size));
        bytes += told.hole_bytes + told.landed_bytes + told.home_bytes[FAST] + told.home_bytes[SLOW];
        (at, parts) = (end, parts + 1);
    }
    assert_eq!((bytes, at), (size, size));
    assert!(parts > size / CHUNK / 10, "{parts}");
    assert_eq!(s.engine().tally(now, size, u64::MAX, &mut 9), (Tally::default(), size));
}

#[test]
fn what_a_client_wants_fast_is_promoted_and_stays_whole() {
    let mut s = Story::begin(24, 64);
    let slow = filled(&mut s);
    let before = s.read(slow, CHUNK).expect("it can be read");
    // Part of it is landed when the wish comes, and more is written while it moves.
    s.write(slow + BLOCK, BLOCK, 0x77);
    let now = s.world.now();
    s.engine().prefer_fast(now, slow + 1, 1);
    s.until_stage(Stage::MoveWrite);
    s.write(slow + 3 * BLOCK, BLOCK, 0x99);
    s.wait(30 * Nanos::SECOND);
    let fast = |extents: Vec<(u64, Placement)>| {
        extents.iter().all(|extent| matches!(extent.1, Placement::Home(FAST) | Placement::Landed))
    };
    assert!(fast(told(&mut s, slow, CHUNK)), "{:?}", told(&mut s, slow, CHUNK));
    assert!(s.engine().status().promoted_chunks > 0);
    let mut expected = before;
    expected[BLOCK as usize..2 * BLOCK as usize].fill(0x77);
    expected[3 * BLOCK as usize..4 * BLOCK as usize].fill(0x99);
    assert!(s.read(slow, CHUNK).expect("it can be read") == expected);
    s.flush();
    s.die(Death::PowerCut(CutStyle::KeepAll));
    s.open().expect("the volume opens");
    assert!(s.read(slow, CHUNK).expect("it can be read") == expected);
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}

#[test]
fn wishes_that_lead_nowhere_do_no_harm() {
    let mut s = Story::begin(24, 64);
    let (size, now) = (s.engine().size_bytes(), s.world.now());
    for (offset, len) in [(0, 0), (0, size), (size - 1, u64::MAX), (size, 1), (u64::MAX, u64::MAX), (5, 6)] {
        s.engine().prefer_fast(now, offset, len);
    }
    s.write(0, CHUNK, 1);
    s.engine().prefer_fast(now, 0, size);
    s.wait(5 * Nanos::SECOND);
    assert_eq!(s.engine().status().promoted_chunks, 0);
    s.stop();
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
}

/// What is asked for again and again rises, and it is seen that this was worth it.
#[test]
fn what_rose_is_audited() {
    let mut s = Story::begin(64, 256);
    // Were both as fast, as the devices of stories are, nothing would be gained.
    (s.world.services[1].min_ns, s.world.services[1].max_ns) = (5 * Nanos::MS, 15 * Nanos::MS);
    filled(&mut s);
    let all = (0..s.engine().size_bytes()).step_by(CHUNK as usize);
    let hot: Vec<u64> = all.filter(|at| s.is_slow(*at)).take(24).collect();
    assert!(hot.len() >= 16, "{} chunks on the slow tier", hot.len());
    let round = |s: &mut Story, chunks: &[u64]| {
        // Not in their order: that would be a stream.
        for at in chunks.iter().step_by(2).chain(chunks.iter().skip(1).step_by(2)) {
            s.write(at + 3 * BLOCK, BLOCK, 0x55);
            s.read(at + 5 * BLOCK, BLOCK).expect("it is read");
        }
        s.wait(3 * Nanos::SECOND);
    };
    (0..6).for_each(|_| round(&mut s, &hot));
    assert!(hot.iter().any(|at| !s.is_slow(*at)), "some rose");
    (0..40).for_each(|_| round(&mut s, &hot));
    let audit = s.engine().status().audit;
    assert!(audit.judged > 0 && audit.repaid * 5 >= audit.judged * 4, "{audit:?}");
    assert!(audit.yields.move_ns.is_some() && audit.yields.write_ns.is_some(), "{audit:?}");
}

/// Nothing is free on the fast tier, and one client asks for one block after another without a pause: what he asks for again
/// and again rises, and something that nobody asks for goes down for it.
#[test]
fn what_a_client_asks_for_one_by_one_without_a_pause_rises() {
    let mut s = Story::begin(24, 64);
    let slow = filled(&mut s);
    let before = s.engine().status();
    for round in 0..200u64 {
        let number = (slow / CHUNK) as u8 | 1;
        assert_eq!(s.read(slow + round % 4 * BLOCK, BLOCK), Ok(vec![number; BLOCK as usize]));
        s.wait(100 * Nanos::MS);
    }
    let after = s.engine().status();
    assert_eq!(told(&mut s, slow, CHUNK), [(CHUNK, Placement::Home(FAST))]);
    assert!(after.demoted_chunks > before.demoted_chunks, "{after:?}");
}

/// Overwrites whole chunks here and there on the slow tier; says how many of them did not land.
fn wholes_beside_the_log(s: &mut Story, chunks: &[u64]) -> u64 {
    let before = s.engine().status().tiers[1].written_bytes;
    let disk = Service { min_ns: 200 * Nanos::MS, max_ns: 300 * Nanos::MS, ..Service::default() };
    let usual = std::mem::replace(&mut s.world.services[1], disk);
    chunks.iter().for_each(|at| s.write(*at, CHUNK, 0x66));
    s.world.services[1] = usual;
    (s.engine().status().tiers[1].written_bytes - before) / CHUNK
}

/// A whole chunk that is written next to whatever else was is a seek for who reads it with its neighbours. So it lands, and is
/// merged where it was, where the disk is read in sequence and there is room; where it is not it need not.
#[test]
fn whole_chunks_keep_their_places_where_neighbours_are_read() {
    let mut s = Story::begin_with_zone(96, 256, 48);
    filled(&mut s);
    let all = (0..s.engine().size_bytes()).step_by(CHUNK as usize);
    let slow: Vec<u64> =
        all.filter(|at| told(&mut s, *at, CHUNK) == [(CHUNK, Placement::Home(SLOW))]).collect();
    let apart: Vec<u64> = slow.iter().copied().step_by(2).take(30).collect();
    assert_eq!(apart.len(), 30, "chunks on the slow tier");
    assert!(wholes_beside_the_log(&mut s, &apart) > 0, "nobody reads");
    s.flush();
    s.wait(20 * Nanos::SECOND);
    slow.iter().rev().take(100).for_each(|at| assert!(s.read(*at, BLOCK).is_ok()));
    assert!(wholes_beside_the_log(&mut s, &apart) > 0, "what is read lies here and there");
    s.flush();
    s.wait(20 * Nanos::SECOND);
    (0..150 * CHUNK / BLOCK).for_each(|n| assert!(s.read(slow[0] + n * BLOCK, BLOCK).is_ok()));
    assert_eq!(wholes_beside_the_log(&mut s, &apart), 0, "neighbours are read");
}
