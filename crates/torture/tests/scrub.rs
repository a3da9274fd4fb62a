//! Scrub: whatever is wrong of what has a checksum is found, repaired where something else holds the same, and listed where
//! nothing does; what clients wrote meanwhile stays.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::bugs::{Bug, plant};
use bimetal_engine::scrub::{ScrubPause, ScrubState, ScrubStatus};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos, SLOW};
use std::ops::Range;

/// A chunk of the slow tier of which all is 0x11.
fn begin() -> (Story, u64) {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0);
    (s, chunk)
}

fn start(s: &mut Story) {
    let now = s.world.now();
    s.engine().begin_scrub(now).expect("it begins");
}

/// Scrubs the volume, and gives what came of it.
fn scrub(s: &mut Story) -> ScrubStatus {
    start(s);
    until_whole(s)
}

fn until_whole(s: &mut Story) -> ScrubStatus {
    let end = s.world.now().after(600 * Nanos::SECOND);
    while s.engine().scrub().state != ScrubState::Whole {
        assert!(s.world.now() < end, "{:?}", s.engine().scrub());
        s.wait(Nanos::SECOND / 4);
    }
    let status = s.engine().scrub();
    assert_eq!(status.done_chunks, status.chunks);
    assert!(status.whole_unix_s >= status.begun_unix_s);
    status
}

/// So many blocks were wrong and repaired, and these are lost.
fn is(status: &ScrubStatus, wrong: u64, repaired: u64, lost: &[Range<u64>]) {
    assert_eq!((status.wrong_blocks, status.repaired_blocks, &status.lost[..]), (wrong, repaired, lost));
}

fn blocks(chunk: u64, range: Range<u64>) -> Range<u64> {
    chunk + range.start * BLOCK..chunk + range.end * BLOCK
}

#[test]
fn a_whole_volume_is_found_whole() {
    let (mut s, chunk) = begin();
    assert_eq!(s.engine().scrub().state, ScrubState::Never);
    s.write(chunk + BLOCK, BLOCK, 0x22);
    is(&scrub(&mut s), 0, 0, &[]);
}

/// Rot and bad sectors in slow homes, of which nothing else is there.
#[test]
fn what_stands_once_is_listed_and_nothing_else() {
    let (mut s, chunk) = begin();
    let (_, at) = s.home_of(chunk);
    s.flip(1, at + 2 * BLOCK);
    s.world.disks[1].add_bad_sector((at + 3 * BLOCK) / 512 + 5);
    s.flip(1, at + 9 * BLOCK);
    is(&scrub(&mut s), 3, 0, &[blocks(chunk, 2..4), blocks(chunk, 9..10)]);
    // Once they are written they are well.
    s.write(chunk + 2 * BLOCK, 2 * BLOCK, 0x22);
    s.write(chunk + 9 * BLOCK, BLOCK, 0x22);
    is(&scrub(&mut s), 0, 0, &[]);
}

#[test]
fn what_landed_and_went_bad_is_listed_and_never_repaired_with_what_is_beneath_it() {
    for rots in [false, true] {
        let (mut s, chunk) = begin();
        // The slow device is not used, so that it stays landed.
        s.tuning.rest_at_most_ns = 3600 * Nanos::SECOND;
        s.stop();
        s.open().expect("it opens");
        s.wait(60 * Nanos::SECOND);
        s.write(chunk + 4 * BLOCK, BLOCK, 0x44);
        s.flush();
        let found = (0..s.world.disks[0].size_bytes() / BLOCK).find(|page| {
            let mut bytes = [0; BLOCK as usize];
            s.world.disks[0].peek(*page, &mut bytes) && all(&bytes, 0x44)
        });
        let page = found.expect("it landed");
        match rots {
            true => s.flip(0, page * BLOCK),
            false => s.world.disks[0].add_bad_sector(page * 8),
        }
        // Somebody wakes the slow device.
        s.read(chunk + 9 * BLOCK, BLOCK).expect("it is read");
        is(&scrub(&mut s), 1, 0, &[blocks(chunk, 4..5)]);
        assert!(s.read(chunk + 4 * BLOCK, BLOCK).is_err(), "rots: {rots}");
    }
}

/// A chunk has risen, and of its home blocks are bad.
#[test]
fn homes_are_repaired_from_shadows() {
    for crash in [false, true] {
        let (mut s, chunk) = begin();
        s.pin_to(chunk, FAST);
        let (_, at) = s.home_of(chunk);
        s.flip(0, at + 2 * BLOCK);
        s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
        is(&scrub(&mut s), 2, 2, &[]);
        assert_eq!(s.engine().status().repaired_blocks, 2);
        if crash {
            s.flush();
            s.die(Death::PowerCut(CutStyle::LoseAll));
            s.open().expect("it opens");
        }
        assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
        if !crash {
            // What landed is merged over what was bad, which is good then; the shadow has ended with that.
            s.wait(5 * Nanos::SECOND);
            assert_eq!(s.engine().status().landed_bytes, 0);
            is(&scrub(&mut s), 0, 0, &[]);
            assert_eq!(s.shadow_of(chunk), None);
        }
    }
}

/// Each holds what the other has lost: the home is repaired as a whole before the shadow ends.
#[test]
fn different_blocks_are_bad_in_home_and_shadow() {
    let (mut s, chunk) = begin();
    s.pin_to(chunk, FAST);
    let (at, beside) = (s.home_of(chunk).1, s.shadow_of(chunk).expect("a shadow"));
    for block in [1, 2, 3, 9] {
        s.world.disks[0].add_bad_sector((at + block * BLOCK) / 512);
    }
    s.flip(1, beside + 5 * BLOCK);
    is(&scrub(&mut s), 5, 5, &[]);
    assert_eq!(s.shadow_of(chunk), None);
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

#[test]
fn a_shadow_that_is_bad_ends() {
    let (mut s, chunk) = begin();
    s.pin_to(chunk, FAST);
    let beside = s.shadow_of(chunk).expect("a shadow");
    s.flip(1, beside + 2 * BLOCK);
    is(&scrub(&mut s), 1, 1, &[]);
    assert_eq!(s.shadow_of(chunk), None);
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

/// One block is bad in both: it is lost, and the shadow stays, for it says so.
#[test]
fn what_is_bad_in_both_is_lost() {
    let (mut s, chunk) = begin();
    s.pin_to(chunk, FAST);
    let (at, beside) = (s.home_of(chunk).1, s.shadow_of(chunk).expect("a shadow"));
    s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
    s.flip(1, beside + 3 * BLOCK);
    let status = scrub(&mut s);
    assert_eq!(status.lost, [blocks(chunk, 3..4)]);
    assert!(s.read(chunk + 3 * BLOCK, BLOCK).is_err());
}

/// Some fast slots are free, and a slow chunk that is read has a copy there.
fn copied() -> (Story, u64) {
    let (mut s, chunk) = begin();
    copy(&mut s, chunk);
    (s, chunk)
}

fn copy(s: &mut Story, chunk: u64) {
    s.free_fast_slots();
    s.read(chunk, CHUNK).expect("it is read");
    s.wait(Nanos::SECOND);
    assert_eq!(s.engine().status().copied_bytes, CHUNK);
}

/// The disk is awake for the scrub; left to the next time that it is, what was repaired would stay bad there for an hour or more.
#[test]
fn what_is_repaired_goes_home_before_the_disk_is_left_alone_again() {
    let (mut s, first) = begin();
    let last = first + 8 * CHUNK;
    s.write(first, last + CHUNK - first, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    s.tuning.rest_at_most_ns = 3600 * Nanos::SECOND;
    s.tuning.rest_after_ns = 4 * Nanos::MS;
    s.stop();
    s.open().expect("it opens");
    copy(&mut s, last);
    let (_, at) = s.home_of(last);
    s.flip(1, at + 2 * BLOCK);
    start(&mut s);
    let mut read = 0;
    while s.engine().scrub().state != ScrubState::Whole {
        // A client wakes the disk with what it has not read before, and the scrub keeps it awake.
        if s.engine().scrub().state == ScrubState::Paused(ScrubPause::SlowAtRest) {
            read += 1;
            assert!(read < 8 * CHUNK / BLOCK, "{:?}", s.engine().scrub());
            s.read(first + read * BLOCK, BLOCK).expect("it is read");
        }
        s.wait(Nanos::MS / 4);
    }
    is(&s.engine().scrub(), 1, 1, &[]);
    s.wait(20 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0);
}

#[test]
fn a_slow_home_is_repaired_from_a_clean_copy() {
    let (mut s, chunk) = copied();
    let (_, at) = s.home_of(chunk);
    s.flip(1, at + 2 * BLOCK);
    s.world.disks[1].add_bad_sector((at + 3 * BLOCK) / 512);
    is(&scrub(&mut s), 2, 2, &[]);
    s.flush();
    s.wait(20 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0, "they were merged into the home, over what was bad");
    s.die(Death::PowerCut(CutStyle::LoseAll));
    assert_eq!(s.check().expect("it can be checked"), [""; 0]);
    s.open().expect("it opens, without copies");
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

/// A chunk on its way down to its shadow is held in neither place for a moment: a scrub that comes by then waits for it.
#[test]
fn what_is_on_the_move_is_looked_at_when_it_has_arrived() {
    for steps in 0..60 {
        let (mut s, chunk) = begin();
        s.pin_to(chunk, FAST);
        let beside = s.shadow_of(chunk).expect("a shadow");
        s.flip(1, beside + 2 * BLOCK);
        start(&mut s);
        while u64::from(s.engine().scrub().done_chunks) + 1 < chunk / CHUNK {
            s.step();
        }
        let now = s.world.now();
        s.engine().begin_pin(now, chunk, CHUNK, Some(SLOW)).expect("it may be pinned");
        for _ in 0..steps {
            s.step();
        }
        assert_eq!(until_whole(&mut s).wrong_blocks, 1, "after {steps} steps");
    }
}

/// What a read found is looked after, though nobody asked for a scrub.
#[test]
fn what_a_read_found_is_repaired() {
    let (mut s, chunk) = begin();
    s.pin_to(chunk, FAST);
    let (_, at) = s.home_of(chunk);
    s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
    s.flush();
    s.wait(20 * Nanos::SECOND);
    let status = s.engine().status();
    assert_eq!((status.repaired_blocks, status.landed_bytes), (1, 0));
    assert_eq!(s.engine().scrub().state, ScrubState::Never);
    assert!(!s.world.disks[0].has_bad((at + 3 * BLOCK) / BLOCK), "it was written over");
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
}

/// While the block is being written again, a client writes it: his stays. Step by step, so that each moment has its turn.
#[test]
fn what_clients_write_meanwhile_is_newer() {
    let mut repaired = 0;
    for steps in 0..60 {
        let (mut s, chunk) = begin();
        s.pin_to(chunk, FAST);
        let (_, at) = s.home_of(chunk);
        s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
        start(&mut s);
        (0..steps).for_each(|_| _ = s.step());
        s.write(chunk + 3 * BLOCK, BLOCK, 0x55);
        let discard = bimetal_engine::action::RequestKind::Discard { fua: false };
        let discard = s.ask(discard, chunk + 4 * BLOCK, BLOCK, 0);
        s.answer(discard).expect("a discard succeeds");
        s.flush();
        let status = until_whole(&mut s);
        repaired += status.repaired_blocks;
        assert_eq!(status.lost, []);
        for crash in [false, true] {
            if crash {
                s.flush();
                s.die(Death::PowerCut(CutStyle::LoseAll));
                s.open().expect("it opens");
            }
            let read = s.read(chunk, CHUNK).expect("it is read");
            for (n, bytes) in read.chunks_exact(BLOCK as usize).enumerate() {
                let byte = match n {
                    3 => 0x55,
                    4 => 0,
                    _ => 0x11,
                };
                assert!(all(bytes, byte), "{steps} steps, block {n}: {:#x}", bytes[0]);
            }
        }
    }
    assert!(repaired > 0, "in some it was repaired before");
}

/// It goes on where it was, and is none where what says so is torn.
#[test]
fn it_goes_on_after_a_restart() {
    for orderly in [true, false] {
        let (mut s, chunk) = begin();
        let (_, at) = s.home_of(chunk);
        s.flip(1, at);
        for service in &mut s.world.services {
            (service.min_ns, service.max_ns) = (Nanos::SECOND, Nanos::SECOND);
        }
        start(&mut s);
        while s.engine().scrub().done_chunks * 2 < s.engine().scrub().chunks {
            s.wait(Nanos::SECOND);
        }
        let before = s.engine().scrub();
        match orderly {
            true => s.stop(),
            false => s.die(Death::Kill),
        }
        s.open().expect("it opens");
        let after = s.engine().scrub();
        assert_eq!(after.begun_unix_s, before.begun_unix_s);
        match orderly {
            true => assert!(after.done_chunks >= before.done_chunks, "{after:?}"),
            false => assert!(after.done_chunks <= before.done_chunks, "{after:?}"),
        }
        assert_ne!(after.state, ScrubState::Stopped);
        let status = until_whole(&mut s);
        assert_eq!(status.lost, [blocks(chunk, 0..1)]);
        s.stop();
        s.open().expect("it opens");
        assert_eq!(s.engine().scrub(), status);
        s.stop();
        s.flip(0, 28672);
        s.open().expect("it opens all the same");
        assert_eq!(s.engine().scrub().state, ScrubState::Never);
    }
}

#[test]
fn it_is_stopped_and_begins_anew() {
    let (mut s, _) = begin();
    let now = s.world.now();
    assert!(s.engine().stop_scrub(now).is_err());
    start(&mut s);
    s.step();
    let now = s.world.now();
    s.engine().stop_scrub(now).expect("it is under way");
    s.wait(Nanos::SECOND);
    assert_eq!(s.engine().scrub().state, ScrubState::Stopped);
    is(&scrub(&mut s), 0, 0, &[]);
}

/// What one scrub had looked at of a chunk when it was stopped says nothing to the next: it may have gone bad meanwhile.
#[test]
fn a_scrub_trusts_nothing_that_another_has_seen() {
    for half_seconds in 1..12 {
        // The first chunk, which is where both begin.
        let mut s = Story::begin(32, 64);
        s.write(0, CHUNK, 0x11);
        s.flush();
        s.pin_to(0, SLOW);
        s.die(Death::Kill);
        s.open().expect("it opens, without copies");
        let (_, at) = s.home_of(0);
        s.world.disks[1].add_bad_sector((at + 9 * BLOCK) / 512);
        for service in &mut s.world.services {
            (service.min_ns, service.max_ns) = (Nanos::SECOND, Nanos::SECOND);
        }
        s.read(0, BLOCK).expect("it is read, and the disk is awake");
        start(&mut s);
        s.wait(half_seconds * Nanos::SECOND / 2);
        let now = s.world.now();
        _ = s.engine().stop_scrub(now);
        s.flip(1, at + 2 * BLOCK);
        let status = scrub(&mut s);
        let lost = [blocks(0, 2..3), blocks(0, 9..10)];
        assert_eq!(status.lost, lost, "stopped after {half_seconds} half seconds");
    }
}

/// A slow device at rest is not woken, and one that nobody uses comes to rest.
#[test]
fn a_quiet_disk_is_left_quiet() {
    let mut s = Story::begin(32, 64);
    s.tuning.scrub_awake_ns = 30 * Nanos::SECOND;
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK, 0x11);
    s.stop();
    s.open().expect("it opens");
    s.wait(100 * Nanos::SECOND);
    let woken = s.engine().status().tiers[1].wakeups;
    start(&mut s);
    s.wait(100 * Nanos::SECOND);
    assert_eq!(s.engine().scrub().state, ScrubState::Paused(ScrubPause::SlowAtRest));
    assert_eq!(s.engine().status().tiers[1].wakeups.background, woken.background);
    s.read(chunk, BLOCK).expect("it is read");
    until_whole(&mut s);
    assert_eq!(s.engine().status().tiers[1].wakeups.background, woken.background);
}

/// Each read takes so long that one chunk would keep the disk awake for longer than it may.
#[test]
fn a_scrub_keeps_no_disk_awake() {
    let (mut s, chunk) = begin();
    s.tuning.scrub_awake_ns = 30 * Nanos::SECOND;
    s.stop();
    s.open().expect("it opens");
    s.world.services[1].min_ns = 12 * Nanos::SECOND;
    s.world.services[1].max_ns = 12 * Nanos::SECOND;
    let discard = s.ask(bimetal_engine::action::RequestKind::Read, chunk, BLOCK, 0);
    s.answer(discard).expect("it is read");
    start(&mut s);
    s.wait(300 * Nanos::SECOND);
    let status = s.engine().scrub();
    assert!(
        matches!(status.state, ScrubState::Paused(ScrubPause::SlowAtRest) | ScrubState::Whole),
        "{status:?}"
    );
}

/// Every read of a device fails: that says nothing of any block.
#[test]
fn a_device_that_fails_as_a_whole_is_no_evidence() {
    for tier in [FAST, SLOW] {
        let (mut s, chunk) = begin();
        s.write(chunk + BLOCK, BLOCK, 0x22);
        s.world.rates.reads = 1;
        start(&mut s);
        s.wait(120 * Nanos::SECOND);
        let status = s.engine().scrub();
        assert_eq!(status.state, ScrubState::Paused(ScrubPause::DeviceFails), "{tier:?}");
        is(&status, 0, 0, &[]);
        s.world.rates.reads = 0;
        is(&until_whole(&mut s), 0, 0, &[]);
    }
}

/// The machine dies at each step of a repair: what was flushed is there, or an error where nothing was repaired yet.
#[test]
fn a_crash_at_any_step_of_a_repair_leaves_what_was_there() {
    let (mut s, chunk) = begin();
    s.stop();
    let whole = s.world.disks.clone();
    let deaths = CutStyle::ALL.into_iter().map(Death::PowerCut).chain([Death::Kill]);
    let (mut cycles, mut repaired, mut lost) = (0, 0, 0);
    for death in deaths {
        for fuse in (0..).step_by(3) {
            s.world.disks = whole.clone();
            s.open().expect("it opens");
            s.pin_to(chunk, FAST);
            s.flush();
            let (_, at) = s.home_of(chunk);
            s.world.disks[0].add_bad_sector((at + 2 * BLOCK) / 512);
            start(&mut s);
            s.world.fuse = Some(fuse);
            let mut died = false;
            while !died
                && (s.engine().scrub().state != ScrubState::Whole || s.engine().status().landed_bytes > 0)
            {
                died = s.step_or_crash();
            }
            repaired += s.engine().status().repaired_blocks;
            s.world.fuse = None;
            s.die(death);
            cycles += 1;
            s.open().expect("it opens after the crash");
            for block in 0..CHUNK / BLOCK {
                match s.read(chunk + block * BLOCK, BLOCK) {
                    Ok(bytes) => assert!(all(&bytes, 0x11), "{death:?} at step {fuse}: block {block}"),
                    Err(_) if died && block == 2 => lost += 1,
                    Err(error) => panic!("{death:?} at step {fuse}: block {block}: {error}"),
                }
            }
            s.die(Death::Kill);
            if !died {
                break;
            }
        }
    }
    assert!(
        cycles > 50 && repaired > 10 && lost > 10,
        "{cycles} deaths, {repaired} repairs, {lost} not repaired"
    );
}

/// Whether a story that must hold does not, with this fault in the program.
fn bites(bug: Bug, story: fn()) {
    plant(Some(bug));
    let caught = std::panic::catch_unwind(story);
    plant(None);
    assert!(caught.is_err(), "{bug:?} is not found");
}

#[test]
fn a_repair_with_older_bytes_is_found() {
    bites(Bug::MendUnverified, what_landed_and_went_bad_is_listed_and_never_repaired_with_what_is_beneath_it);
}

#[test]
fn a_repair_beside_a_write_is_found() {
    bites(Bug::MendBesideWrite, what_clients_write_meanwhile_is_newer);
}

#[test]
fn a_scrub_that_passes_by_what_moves_is_found() {
    bites(Bug::ScrubPassesMoving, what_is_on_the_move_is_looked_at_when_it_has_arrived);
}

#[test]
fn a_scrub_that_trusts_an_earlier_one_is_found() {
    bites(Bug::ScrubTrustsEarlier, a_scrub_trusts_nothing_that_another_has_seen);
}

/// A chunk of the slow tier, in a volume that remembers next to nothing: a page of checksums, and in memory those of one fast slot.
fn begin_forgetful(rest_ns: u64) -> (Story, u64) {
    let mut s = Story::begin(128, 64);
    let chunk = 10 * CHUNK;
    s.write(chunk, CHUNK, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    s.pin_to(chunk, SLOW);
    s.stop();
    let tuning = &mut s.tuning;
    (tuning.checksum_cache_pages, tuning.recent_checksums) = (1, 0);
    (tuning.fast_checksum_bytes, tuning.fast_checksum_rest_ns) = (4 * (CHUNK / BLOCK) + 8, rest_ns);
    tuning.small_write_bytes = 0;
    s.open().expect("the volume opens");
    (s, chunk)
}

/// What the page of the fast tier does not say, that of the shadow does: each took the room of the other, for ever.
#[test]
fn two_pages_of_which_one_is_in_memory_are_enough() {
    let (mut s, chunk) = begin_forgetful(Nanos::SECOND);
    // Of the two, this one is known.
    (0..20).for_each(|nth| s.write(CHUNK, CHUNK, nth));
    s.pin_to(chunk, FAST);
    s.wait(15 * Nanos::SECOND);
    assert!(s.shadow_of(chunk).is_some());
    is(&scrub(&mut s), 0, 0, &[]);
}

/// What a shadow holds was called lost where the page of its checksums had given way to that of its home's.
#[test]
fn what_stands_in_is_asked_though_its_page_is_not_in_memory() {
    let (mut s, chunk) = begin_forgetful(Nanos::SECOND / 50);
    s.pin_to(chunk, FAST);
    s.wait(Nanos::SECOND / 2);
    // Another takes its place in memory, in another page.
    (0..20).for_each(|nth| s.write(100 * CHUNK, CHUNK, nth));
    s.wait(Nanos::SECOND / 2);
    let at = s.home_of(chunk).1;
    s.flip(0, at + 2 * BLOCK);
    assert!(s.shadow_of(chunk).is_some());
    is(&scrub(&mut s), 1, 1, &[]);
    assert!(s.read(chunk, CHUNK).is_ok_and(|bytes| all(&bytes, 0x11)));
}
