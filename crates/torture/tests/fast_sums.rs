//! Checksums that the log had are kept when it is merged into a home on the fast tier: what rots there is an error, and gets
//! no new checksum by going down; and the first write to it goes through the log once more.

use crate::damage::image::{get, put};
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::{RequestError, RequestKind};
use bimetal_engine::coverage::Stage;
use bimetal_engine::extents::Placement;
use bimetal_torture::arena::ArenaMemory;
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::run_seed;
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos, SLOW, Tier};

const BLOCKS: u64 = 6;

fn fill(block: u64) -> u8 {
    0x50 + block as u8
}

/// A volume of which the first blocks came through the log to the fast tier.
fn begin() -> Story {
    let mut s = Story::begin_with_zone(64, 64, 32);
    s.tuning.small_write_bytes = 32 << 10;
    reopen(&mut s, None);
    for block in 0..BLOCKS {
        s.write(block * BLOCK, BLOCK, fill(block));
        s.flush();
    }
    s.wait(5 * Nanos::SECOND);
    assert_eq!(places(&mut s), [Placement::Home(FAST)]);
    s
}

fn places(s: &mut Story) -> Vec<Placement> {
    s.engine().extents(0, BLOCKS * BLOCK, 64).iter().map(|extent| extent.place).collect()
}

fn reopen(s: &mut Story, death: Option<Death>) {
    match death {
        Some(death) => s.die(death),
        None => s.stop(),
    }
    s.open().expect("the volume opens");
}

/// Flips a bit of the block that is full of this byte where it is at home, and gives where that is.
fn rot(disk: &mut Disk, slots: std::ops::Range<u64>, byte: u8) -> u64 {
    let mut bytes = vec![0; BLOCK as usize];
    let is_it = |page: &u64| disk.peek(*page, &mut bytes) && bytes.iter().all(|b| *b == byte);
    let page = slots.clone().find(is_it).expect("it is there");
    let mut bytes = get(disk, page, 1);
    bytes[100] ^= 1;
    put(disk, page, &bytes);
    page * BLOCK
}

/// The pages of the fast device in which slots are.
fn slots(s: &Story) -> std::ops::Range<u64> {
    0..s.layout().zone().start
}

/// The pages of the slot in which the first chunk is at home.
fn home(s: &mut Story) -> std::ops::Range<u64> {
    let now = s.world.now();
    let at = s.engine().why(now, 0).and_then(|why| why.home_offset).expect("it is at home somewhere") / BLOCK;
    at..at + CHUNK / BLOCK
}

fn pin(s: &mut Story, tier: Tier) {
    let now = s.world.now();
    s.engine().begin_pin(now, 0, CHUNK, Some(tier)).expect("it may be pinned");
    loop {
        if let Some(answer) = s.engine().take_pin_answer() {
            return answer.expect("it is pinned");
        }
        s.step();
    }
}

/// The rotten block used to be read as if it were good, and to get a valid checksum when its chunk went down.
#[test]
fn what_rots_on_the_fast_tier_is_an_error_and_gets_no_checksum() {
    for death in [None, Some(Death::Kill), Some(Death::PowerCut(CutStyle::LoseAll))] {
        let mut s = begin();
        reopen(&mut s, death);
        s.stop();
        let slots = slots(&s);
        let at = rot(&mut s.world.disks[0], slots, fill(2));
        let found = s.findings().expect("it can be checked");
        let found: Vec<_> = found.iter().map(|f| (f.device, f.offset, f.what.as_str())).collect();
        assert_eq!(found, [(FAST, at, "the block does not match its checksum")], "{death:?}");
        for opened in 0..2 {
            s.open().expect("the volume opens");
            assert_eq!(s.read(2 * BLOCK, BLOCK), Err(RequestError::Io), "{death:?}");
            let events: Vec<String> = s.engine().take_events().into_iter().map(|e| e.message).collect();
            let named = format!("fast: the block at byte {at} does not match its checksum");
            assert!(events.contains(&named), "{events:#?}");
            if opened == 0 {
                pin(&mut s, SLOW);
            }
            s.wait(30 * Nanos::SECOND);
            for block in 0..BLOCKS {
                let good = Ok(vec![fill(block); BLOCK as usize]);
                let expected = if block == 2 { Err(RequestError::Io) } else { good };
                assert_eq!(s.read(block * BLOCK, BLOCK), expected, "{death:?}, block {block}");
            }
            s.stop();
        }
        // Written again it is healed, and the chunk goes where it belongs.
        s.open().expect("the volume opens");
        s.write(2 * BLOCK, BLOCK, 0x77);
        s.flush();
        s.wait(30 * Nanos::SECOND);
        assert_eq!(places(&mut s), [Placement::Home(SLOW)], "{death:?}");
        assert_eq!(s.read(2 * BLOCK, BLOCK), Ok(vec![0x77; BLOCK as usize]));
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()), "{death:?}");
    }
}

/// The first write to such a block lands, and is merged without its checksum; from then on it is written in place.
#[test]
fn each_block_goes_through_the_log_once_more() {
    let mut s = begin();
    let landed = |s: &mut Story, byte| {
        let before = s.engine().status().log_payload_bytes;
        s.write(BLOCK, BLOCK, byte);
        s.flush();
        s.engine().status().log_payload_bytes > before
    };
    assert!(landed(&mut s, 1), "it has a checksum");
    s.wait(5 * Nanos::SECOND);
    assert_eq!(places(&mut s), [Placement::Home(FAST)], "it is merged");
    for byte in 2..5 {
        assert!(!landed(&mut s, byte), "it is written in place");
        // An orderly stop would close what it lies in.
        reopen(&mut s, Some(if byte == 3 { Death::PowerCut(CutStyle::LoseAll) } else { Death::Kill }));
        assert_eq!(s.read(BLOCK, BLOCK), Ok(vec![byte; BLOCK as usize]));
    }
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
}

/// What is written in place has no checksum in the list. A bit of it that flipped used to be read as if it were good, and to get
/// a valid checksum when its chunk went down. Whoever wrote it knows better, until the volume is closed.
#[test]
fn what_was_written_in_place_and_rots_is_an_error_while_the_volume_is_open() {
    let mut s = begin();
    for byte in [0x31, 0x32] {
        s.write(BLOCK, BLOCK, byte);
        s.flush();
        s.wait(5 * Nanos::SECOND);
    }
    let slots = slots(&s);
    let at = rot(&mut s.world.disks[0], slots, 0x32);
    assert_eq!(s.read(BLOCK, BLOCK), Err(RequestError::Io));
    let events: Vec<String> = s.engine().take_events().into_iter().map(|e| e.message).collect();
    let named = format!("fast: the block at byte {at} does not match its checksum");
    assert!(events.contains(&named), "{events:#?}");
    // Part of it cannot be written without what is beneath.
    assert_eq!(s.write_bytes(BLOCK + 100, &[0x33; 200]).map(drop), Err(RequestError::Io));
    pin(&mut s, SLOW);
    s.wait(30 * Nanos::SECOND);
    assert_eq!(s.read(BLOCK, BLOCK), Err(RequestError::Io), "it went down with a checksum of its own");
    s.write(BLOCK, BLOCK, 0x34);
    s.flush();
    s.wait(30 * Nanos::SECOND);
    assert_eq!(places(&mut s), [Placement::Home(SLOW)]);
    assert_eq!(s.read(BLOCK, BLOCK), Ok(vec![0x34; BLOCK as usize]));
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
}

/// The same of what was written to a fresh slot, and of what was moved up and lost its shadow. What has no room for its
/// checksums is read as it is.
#[test]
fn what_was_written_to_a_fast_slot_in_any_way_is_held_against_that() {
    for (room, expected) in [(1 << 20, Err(RequestError::Io)), (0, Ok(()))] {
        let mut s = Story::begin_with_zone(64, 64, 32);
        s.tuning.small_write_bytes = 0;
        s.tuning.fast_checksum_bytes = room;
        reopen(&mut s, None);
        s.write(0, 4 * BLOCK, 0x41);
        s.flush();
        assert_eq!(places(&mut s)[0], Placement::Home(FAST));
        let at = home(&mut s);
        rot(&mut s.world.disks[0], at, 0x41);
        assert_eq!(s.read(0, 4 * BLOCK).map(drop), expected, "fresh");
        s.write(0, 4 * BLOCK, 0x42);
        s.flush();
        for tier in [SLOW, FAST] {
            pin(&mut s, tier);
            s.wait(30 * Nanos::SECOND);
        }
        assert_eq!(places(&mut s)[0], Placement::Home(FAST));
        // The first write to it ends its shadow, which would be read instead.
        s.write(3 * BLOCK, BLOCK, 0x43);
        s.flush();
        let at = home(&mut s);
        rot(&mut s.world.disks[0], at, 0x42);
        assert_eq!(s.read(0, 3 * BLOCK).map(drop), expected, "moved");
    }
}

/// One life has room for fewer checksums than the one before and the one after: what the log says has one has one all the same, so
/// none that is overwritten comes back.
#[test]
fn less_room_for_checksums_drops_none() {
    for death in [Death::Kill, Death::PowerCut(CutStyle::LoseAll), Death::PowerCut(CutStyle::KeepAll)] {
        let mut s = begin();
        let (much, little) = (s.tuning.recent_checksums, 1);
        for (room, byte) in [(little, 0x21), (much, 0x22), (little, 0x23), (much, 0x24)] {
            s.tuning.recent_checksums = room;
            reopen(&mut s, Some(death));
            for block in 0..BLOCKS {
                s.write(block * BLOCK, BLOCK, byte);
            }
            s.flush();
        }
        reopen(&mut s, Some(death));
        assert_eq!(s.read(0, BLOCKS * BLOCK), Ok(vec![0x24; (BLOCKS * BLOCK) as usize]), "{death:?}");
    }
}

/// Blocks with checksums are written again and again, part and whole, discarded and written anew, and the machine dies at every
/// step in every way: never is one held against a checksum that is not its own.
#[test]
fn a_crash_leaves_no_checksum_of_what_was_overwritten() {
    let mut s = begin();
    s.stop();
    let disks = s.world.disks.clone();
    let mut stages = Vec::new();
    for style in CutStyle::ALL {
        for fuse in (0..160).step_by(3) {
            let mut s = Story::with(disks.clone());
            // What is written first lands, or goes where it belongs at once.
            s.tuning.small_write_bytes = if fuse % 2 == 0 { 32 << 10 } else { 0 };
            s.open().expect("the volume opens");
            s.world.fuse = Some(fuse);
            let written = overwrite(&mut s);
            s.engine().stages_in_flight(&mut |stage| stages.push(stage));
            s.die(Death::PowerCut(style));
            s.world.fuse = None;
            for opened in 0..2 {
                s.open().expect("the volume opens");
                for block in 0..BLOCKS {
                    let read = s.read(block * BLOCK, BLOCK);
                    assert!(read.is_ok(), "{style:?} at step {fuse}, opened {opened}: block {block}");
                }
                let first = s.read(0, BLOCK).expect("it was just read");
                let of_writes = first.iter().all(|byte| (written..=written + 1).contains(&u32::from(*byte)));
                assert!(of_writes || written == 0, "{style:?} at step {fuse}: {} of {written}", first[0]);
                s.wait(5 * Nanos::SECOND);
                s.die(Death::Kill);
                assert_eq!(s.check(), Ok(Vec::new()), "{style:?} at step {fuse}, opened {opened}");
            }
        }
    }
    assert!(stages.contains(&Stage::WriteInPlace) && stages.contains(&Stage::MoveAppend), "{stages:?}");
}

/// A chunk went up to the fast tier while a block of it was written, which landed before the record of the move. That record
/// named the checksum of what the move had copied. Later the block was merged into the slot, and the machine died where the
/// log was read from between the two: what the move had said counted for what was merged, and a good block was an error.
#[test]
fn a_move_says_no_checksum_of_a_block_of_which_something_newer_has_landed() {
    for seed in [5_024_882, 5_009_885] {
        assert_eq!(run_seed(seed, &ArenaMemory::default()).violation, None, "seed {seed}");
    }
}

/// Writes the first blocks in turns until the machine dies; gives the last of them that a flush covers in block 0.
fn overwrite(s: &mut Story) -> u32 {
    let mut flushed = 0;
    for round in 1..20u32 {
        for (block, len) in [(0, BLOCK), (1, 512), (2, 2 * BLOCK)] {
            let kind = RequestKind::Write { fua: false };
            let asked = s.ask(kind, block * BLOCK, len, round as u8);
            if !done(s, &asked) {
                return flushed;
            }
        }
        // Nothing flushes between a discard and what is written there next.
        for (kind, byte) in
            [(RequestKind::Discard { fua: false }, 0), (RequestKind::Write { fua: false }, 0x99)]
        {
            let asked = s.ask(kind, 4 * BLOCK, BLOCK, byte);
            if !done(s, &asked) {
                return flushed;
            }
        }
        let asked = s.ask(RequestKind::Flush, 0, 0, 0);
        if !done(s, &asked) {
            return flushed;
        }
        flushed = round;
        let end = s.world.now().after(40 * Nanos::MS);
        while s.world.now() < end {
            if s.step_or_crash() {
                return flushed;
            }
        }
    }
    flushed
}

fn done(s: &mut Story, asked: &crate::story::Asked) -> bool {
    loop {
        s.collect_answers();
        if let Some(answer) = s.take_answer(asked) {
            answer.expect("no device fails");
            return true;
        }
        if s.step_or_crash() {
            return false;
        }
    }
}

/// Blocks were merged into a fast home, and the record that gave them checksums waited for its flush when one of them was
/// written again, or discarded and written. In memory it had no checksum yet, so nothing had ended one: it was overwritten
/// where it lay before what superseded it was durable. A power cut kept the one and lost the other, and what had been
/// flushed did not match its checksum.
#[test]
fn what_changes_while_its_checksum_is_being_recorded_is_not_overwritten_too_early() {
    for (i, style) in CutStyle::ALL.into_iter().cycle().take(10 * CutStyle::ALL.len()).enumerate() {
        for discards in [false, true] {
            let mut s = Story::begin_with_zone(64, 64, 32);
            s.tuning.small_write_bytes = 32 << 10;
            s.tuning.commit_interval_ns = 3600 * Nanos::SECOND;
            reopen(&mut s, None);
            for block in 0..BLOCKS {
                s.write(block * BLOCK, BLOCK, fill(block));
                s.flush();
            }
            s.until_stage(Stage::MoveAppend);
            s.world.services[0].flush_factor = 100;
            s.until_stage(Stage::MoveFlushLog);
            if discards {
                let discard = s.ask(RequestKind::Discard { fua: false }, 2 * BLOCK, BLOCK, 0);
                s.answer(discard).expect("it is discarded");
            } else {
                s.write(2 * BLOCK, BLOCK, 0x77);
            }
            s.until_no_stage(Stage::MoveFlushLog);
            if discards {
                s.write(2 * BLOCK, BLOCK, 0x77);
            } else {
                s.until_stage(Stage::MoveWrite);
            }
            (0..i % 3).for_each(|_| {
                s.step();
            });
            s.die(Death::PowerCut(style));
            s.open().expect("the volume opens");
            let read = s.read(2 * BLOCK, BLOCK).expect("what was flushed can be read");
            let is_one =
                |sector: &[u8]| [fill(2), 0x77, 0].iter().any(|b| sector.iter().all(|byte| byte == b));
            assert!(read.chunks(512).all(is_one), "{style:?}, discarded {discards}");
        }
    }
}

/// The same in the middle of more.
#[test]
fn a_checksum_that_waits_to_be_shown_is_ended_by_what_lands_meanwhile() {
    assert_eq!(run_seed(120_000_325, &ArenaMemory::default()).violation, None);
}
