//! Devices that vanish and come back, and writes that go astray: each told as the story in which it lost data, or
//! could have.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Storm, Vanish};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// ENXIO.
const GONE: i32 = 6;
/// EIO.
const EIO: i32 = 5;

/// The device is away for a millisecond from its next command on.
fn vanish(s: &mut Story, device: usize, errno: i32, cache: Option<CutStyle>) {
    let vanish = Vanish { device, after: 0, stage: None, ns: Nanos::MS, cache, errno };
    s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
}

/// The page of the landing zone that holds a block of this byte.
fn landed_page(s: &Story, byte: u8) -> u64 {
    let mut page = [0; BLOCK as usize];
    let found = s.layout().zone().find(|at| s.world.disks[0].peek(*at, &mut page) && all(&page, byte));
    found.expect("it has landed")
}

/// What landed of a block has rotted, and a move is reading it for the last time before it is given up. At that moment a flush
/// fails, and the volume is read-only. That the block is lost was to be recorded all the same, in a log that takes nothing more;
/// and whoever stopped the volume waited for that for ever.
#[test]
fn a_loss_found_by_a_volume_that_failed_does_not_keep_it_from_stopping() {
    let in_move = |s: &mut Story| {
        let mut found = false;
        s.engine().stages_in_flight(&mut |stage| found |= stage == Stage::MoveRead);
        found
    };
    let lost = |s: &mut Story| s.engine().take_events().iter().any(|e| e.message.contains("a block is lost"));
    // Which look is the last one is for the engine to say: the flush fails in each of them.
    for look in 1.. {
        let mut s = Story::begin(24, 64);
        let chunk = s.slow_chunk();
        s.write(chunk + BLOCK, BLOCK, 0x77);
        s.flush();
        let page = landed_page(&s, 0x77);
        s.world.disks[0].rot(page, &mut Rng::new(1, 1));
        let mut looks = 0;
        while looks < look {
            // A look may begin and end in one step.
            if lost(&mut s) {
                assert!(look > 3, "it is given up after {looks} looks");
                return;
            }
            if in_move(&mut s) {
                looks += 1;
                while looks < look && in_move(&mut s) {
                    s.step();
                }
            } else {
                assert!(s.step(), "something is still to come");
            }
        }
        s.world.services[0].flush_factor = 0;
        s.world.rates.flushes = 1;
        let flush = s.ask(RequestKind::Flush, 0, 0, 0);
        s.answer(flush).expect_err("the device fails");
        assert_eq!(s.engine().status().state, "read-only");
        s.world.rates.flushes = 0;
        s.stop();
    }
}

/// Lands a block of this byte, and has it given up.
fn lose_landed(s: &mut Story, at: u64, byte: u8) {
    let before = s.engine().status().landed_bytes;
    s.write(at, BLOCK, byte);
    s.flush();
    let page = landed_page(s, byte);
    s.world.disks[0].add_bad_sector(page * 8);
    for _ in 0..200 {
        s.wait(100 * Nanos::MS);
        s.read(0, BLOCK).expect("the fast device reads other things");
    }
    s.read(at, BLOCK).map(drop).expect_err("its only copy is bad");
    assert_eq!(s.engine().status().landed_bytes, before + BLOCK, "the lost block is landed for good");
}

/// Discards, durably.
fn discard(s: &mut Story, offset: u64, len: u64) {
    let asked = s.ask(RequestKind::Discard { fua: true }, offset, len, 0);
    s.answer(asked).expect("a discard succeeds");
}

fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}

/// A block has landed and is not flushed yet. The fast device is reset: its cache is lost, commands fail with ENXIO
/// for a millisecond, and then it works again. What met the gap was tried again and succeeded, and so did the next
/// flush, which promised a block that no device held any more. A device that was not there may have lost whatever
/// it had acknowledged, so no later flush of it is believed.
#[test]
fn a_flush_after_a_device_was_away_does_not_promise_what_it_had_before() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.write(chunk + BLOCK, BLOCK, 0x22);
    vanish(&mut s, 0, GONE, Some(CutStyle::LoseAll));
    let next = s.ask(RequestKind::Write { fua: false }, chunk + 2 * BLOCK, BLOCK, 0x33);
    _ = s.answer(next);
    s.wait(10 * Nanos::MS);
    let flush = s.ask(RequestKind::Flush, 0, 0, 0);
    s.answer(flush).expect_err("nobody knows what the device has kept");
    assert_eq!(s.engine().status().state, "read-only");
    let events = s.engine().take_events();
    assert!(events.iter().any(|e| e.message.starts_with("fast") && e.message.contains("away")), "{events:?}");
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    assert!(all(&s.read(chunk, BLOCK).expect("what was flushed can be read"), 0x11));
}

/// The same, where the only command that met the gap is a discard of a slot, whose failure is no harm by itself.
#[test]
fn a_failed_discard_tells_that_the_device_was_away() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.write(chunk + CHUNK, BLOCK, 0x22);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(chunk + CHUNK), "two chunks are slow");
    let discard = s.ask(RequestKind::Discard { fua: false }, chunk, CHUNK, 0);
    s.answer(discard).expect("a discard succeeds");
    // The commit that makes it durable gives the slot back to the slow device.
    vanish(&mut s, 1, GONE, Some(CutStyle::LoseAll));
    s.wait(5 * Nanos::SECOND);
    assert_eq!(s.engine().status().state, "read-only");
}

/// Bytes of the first writes that a reset device forgot are not shown either: the slot still holds what another chunk
/// left there.
#[test]
fn first_writes_that_a_reset_device_forgot_are_errors() {
    let mut s = Story::begin(24, 64);
    s.write(0, BLOCK, 0x22);
    vanish(&mut s, 0, GONE, Some(CutStyle::LoseAll));
    s.read(0, BLOCK).expect_err("the device is away");
    s.wait(10 * Nanos::MS);
    s.read(0, BLOCK).expect_err("it is back, and what it was told is gone");
}

/// A device that is away for seconds with errors that a bad moment has as well, and keeps its cache, is waited for.
#[test]
fn a_device_that_was_away_and_kept_all_is_waited_for() {
    for device in 0..2 {
        let mut s = Story::begin(24, 64);
        let chunk = s.slow_chunk();
        let away = Vanish { device, after: 0, stage: None, ns: 5 * Nanos::SECOND, cache: None, errno: EIO };
        s.world.begin(Storm { vanish: Some(away), ..Storm::default() });
        let write = s.ask(RequestKind::Write { fua: false }, chunk + BLOCK, BLOCK, 0x22);
        s.answer(write).expect("a write waits for the device");
        s.wait(20 * Nanos::SECOND);
        s.flush();
        let status = s.engine().status();
        assert_eq!((status.state, status.landed_bytes), ("open", 0), "all was merged");
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("the volume opens");
        assert!(all(&s.read(chunk + BLOCK, BLOCK).expect("it can be read"), 0x22));
    }
}

/// A landed block cannot be read any more and was given up: it is an error until it is written again, and stays in the
/// log. It was then the only thing alive in the oldest segment, of which the volume, being idle, emptied nothing else
/// first: so whatever landed later stayed landed, for as long as the zone was not half full.
#[test]
fn a_lost_block_in_the_oldest_segment_does_not_keep_the_others_landed() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    lose_landed(&mut s, chunk + BLOCK, 0x22);
    // A move of its own chunk would say the loss again, at the head of the log.
    let other = chunk + CHUNK;
    for round in 0..4 {
        for block in 0..CHUNK / BLOCK {
            s.write(other + block * BLOCK, BLOCK, 0x40 + round);
        }
        s.flush();
        s.wait(5 * Nanos::SECOND);
        assert_eq!(s.engine().status().landed_bytes, BLOCK, "round {round}: all others are merged");
    }
}

/// Of a chunk one landed block is lost, and another one cannot be read either, but it is not yet time to give it up. The
/// zone is full, so the chunk is tried again every few milliseconds. Each of these moves said the old loss again, at the
/// head of the log, before it knew that it would not come to its end: until the log had no room for anything, not even
/// for saying that the other block was lost as well, and everybody waited for ever.
#[test]
fn moves_that_fail_do_not_fill_the_log_with_old_losses() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    lose_landed(&mut s, chunk + BLOCK, 0x22);
    s.write(chunk + 2 * BLOCK, BLOCK, 0x33);
    s.flush();
    let page = landed_page(&s, 0x33);
    s.world.disks[0].rot(page, &mut Rng::new(1, 1));
    let blocks = (0..40).flat_map(|c| (0..10).map(move |b| chunk + (c + 1) * CHUNK + b * BLOCK));
    let flood: Vec<_> = blocks.map(|at| s.ask(RequestKind::Write { fua: false }, at, BLOCK, 0x44)).collect();
    for write in flood {
        let answer = s.answer(write);
        assert!(
            answer.is_ok(),
            "a write waits for the zone, and then succeeds: {:?}",
            s.engine().take_events()
        );
    }
    s.flush();
    s.wait(120 * Nanos::SECOND);
    s.read(chunk + 2 * BLOCK, BLOCK).expect_err("that was lost as well");
    assert_eq!(s.engine().status().landed_bytes, 2 * BLOCK, "all others are merged");
}

/// The same, where what fails is the write to the home: the slow device is away for a minute, and the chunk is tried
/// again every quarter of a second. The loss was said before the home was written.
#[test]
fn moves_whose_write_fails_do_not_fill_the_log_with_old_losses() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    lose_landed(&mut s, chunk + BLOCK, 0x22);
    let away = Vanish { device: 1, after: 0, stage: None, ns: 60 * Nanos::SECOND, cache: None, errno: EIO };
    s.world.begin(Storm { vanish: Some(away), ..Storm::default() });
    s.write(chunk + 2 * BLOCK, BLOCK, 0x33);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    let before = s.engine().status().log_written_bytes;
    s.wait(50 * Nanos::SECOND);
    assert_eq!(s.engine().status().log_written_bytes, before, "nothing is said again in vain");
    s.wait(20 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, BLOCK, "all others are merged");
    s.read(chunk + BLOCK, BLOCK).expect_err("it is still lost");
    assert!(all(&s.read(chunk + 2 * BLOCK, BLOCK).expect("it is merged"), 0x33));
}

/// A block is lost; a block of another chunk is written again and again, over some segments, and merged at last, but what it
/// leaves lies behind the lost one; then a second block is lost. A client discards the first. Now nothing is left but empty
/// segments, a lost block behind them, and records: nothing that could be merged, and so nobody asked for the checkpoint with
/// which the segments become free. Where the zone was too short for clients by then, their writes waited for ever.
#[test]
fn empty_segments_before_a_lost_block_become_free() {
    for discards in 0..CHUNK / BLOCK {
        let mut s = Story::begin_with_zone(60, 64, 22);
        let chunk = s.slow_chunk();
        let other = chunk + CHUNK;
        s.write(other, CHUNK, 0x11);
        s.flush();
        s.wait(Nanos::SECOND);
        lose_landed(&mut s, chunk + BLOCK, 0x22);
        (0..34).for_each(|_| s.write(other, BLOCK, 0x33));
        s.flush();
        s.wait(Nanos::SECOND);
        lose_landed(&mut s, other + CHUNK, 0x44);
        // Each takes a record in the log.
        for block in 0..discards {
            discard(&mut s, other + block * BLOCK, BLOCK);
        }
        discard(&mut s, chunk + BLOCK, BLOCK);
        (0..100).for_each(|_| s.write(other, BLOCK, 0x55));
    }
}
