//! What clients and the log are told when a device fails: that space is missing, where it is, and the number that
//! the device gave.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::action::{DeviceError, RequestError, RequestKind};
use bimetal_engine::bugs::{Bug, plant};
use bimetal_engine::coverage::Stage;
use bimetal_engine::options::{Event, Level};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::storm::{Storm, Vanish};
use bimetal_torture::world::{Death, FaultRates};
use bimetal_units::Nanos;

const WRITE: RequestKind = RequestKind::Write { fua: false };
/// Linux's ENOSPC and EIO, and what clients are told of them.
const KINDS: [(i32, RequestError); 2] = [(28, RequestError::NoSpace), (5, RequestError::Io)];

/// A volume whose devices fail with this number, once they do.
fn failing_with(errno: i32) -> Story {
    let mut s = Story::begin(24, 64);
    s.world.errno = errno;
    s
}

/// The event that tells of the failure names the number.
fn is_said(s: &mut Story, what: &str, errno: i32) {
    let events = s.engine().take_events();
    let said = |e: &&Event| e.message.contains(what);
    let event = events.iter().find(said).unwrap_or_else(|| panic!("{what:?} is not among {events:?}"));
    assert_eq!(event.error, Some(DeviceError { errno }), "{event:?}");
}

#[test]
fn a_write_to_a_slot_that_fails() {
    for (errno, told) in KINDS {
        let mut s = failing_with(errno);
        s.write(0, CHUNK, 1);
        s.flush();
        s.world.rates.writes = 1;
        let write = s.ask(WRITE, 0, BLOCK, 2);
        assert_eq!(s.answer(write), Err(told));
        is_said(&mut s, "fast: a write at byte", errno);
        s.world.rates = FaultRates::default();
        s.write(0, BLOCK, 3);
    }
}

/// A whole chunk of a stream goes to a fresh slot of the slow device, which fails that. Nothing names the slot, and there is room in
/// the zone: the client has no reason to be told.
#[test]
fn a_fresh_slot_that_fails() {
    for (errno, told) in KINDS {
        let (mut s, chunk) = Story::begin_streaming(BLOCK, 2);
        let stage = Some(Stage::WriteStream);
        let vanish = Vanish { device: 1, after: 0, stage, ns: Nanos::SECOND, cache: None, errno };
        s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
        let write = s.ask(WRITE, chunk + BLOCK, CHUNK - BLOCK, 2);
        let answer = s.answer(write).map(drop);
        is_said(&mut s, "slow: a write at byte", errno);
        s.world.calm();
        match told {
            // There is no room below: that is not to be hidden until the zone is full.
            RequestError::NoSpace => assert_eq!(answer, Err(told)),
            _ => {
                assert_eq!(answer, Ok(()), "it lands");
                s.flush();
                s.die(Death::PowerCut(CutStyle::LoseAll));
                s.open().expect("the volume opens");
                assert!(all(&s.read(chunk, CHUNK).expect("it is there"), 2));
            }
        }
    }
}

/// A slow device that does not answer in time is not waited for by each chunk of a stream in turn: they land until it does.
#[test]
fn a_device_that_does_not_answer_in_time() {
    let (mut s, chunk) = Story::begin_streaming(BLOCK, 2);
    let stage = Some(Stage::WriteStream);
    let vanish = Vanish { device: 1, after: 0, stage, ns: Nanos::MS, cache: None, errno: 110 };
    s.world.begin(Storm { vanish: Some(vanish), ..Storm::default() });
    let write = s.ask(WRITE, chunk + BLOCK, CHUNK - BLOCK, 2);
    assert_eq!(s.answer(write).map(drop), Ok(()));
    is_said(&mut s, "slow: a write at byte", 110);
    s.world.calm();
    let written = |s: &mut Story| s.engine().status().tiers[1].device_written_bytes;
    let before = written(&mut s);
    s.write(chunk + CHUNK, CHUNK, 3);
    assert_eq!(written(&mut s), before, "it lands");
    // It is heard of again when that goes down.
    s.wait(60 * Nanos::SECOND);
    assert!(written(&mut s) > before);
    assert!(all(&s.read(chunk, CHUNK).expect("it is there"), 2));
    assert!(all(&s.read(chunk + CHUNK, CHUNK).expect("it is there"), 3));
}

#[test]
fn a_read_that_fails() {
    let mut s = failing_with(5);
    s.write(0, CHUNK, 1);
    s.flush();
    s.world.rates.reads = 1;
    assert_eq!(s.read(0, BLOCK), Err(RequestError::Io));
    is_said(&mut s, "volume byte 0: cannot be read", 5);
}

#[test]
fn a_flush_that_fails() {
    for (errno, told) in KINDS {
        let mut s = failing_with(errno);
        s.write(0, CHUNK, 1);
        s.world.rates.flushes = 1;
        let flush = s.ask(RequestKind::Flush, 0, 0, 0);
        assert_eq!(s.answer(flush), Err(told));
        is_said(&mut s, "a flush of fast failed", errno);
        // Who comes later met no device.
        let write = s.ask(WRITE, 0, BLOCK, 2);
        assert_eq!(s.answer(write), Err(RequestError::ReadOnly));
    }
}

/// What waited for the log to be written learns why it never will be, if it is for want of space.
#[test]
fn a_log_that_cannot_be_written() {
    for (errno, told) in
        [(28, RequestError::NoSpace), (122, RequestError::NoSpace), (5, RequestError::ReadOnly)]
    {
        let mut s = failing_with(errno);
        let behind = s.engine().size_bytes() - CHUNK;
        s.write(0, CHUNK, 1);
        s.flush();
        // All of the fast slots are taken, so that a small write lands.
        (1..40).for_each(|chunk| s.write(chunk * CHUNK, CHUNK, 1));
        s.flush();
        s.wait(Nanos::SECOND);
        s.engine().take_events();
        s.world.rates.writes = 1;
        let write = s.ask(WRITE, behind, BLOCK, 2);
        s.wait(Nanos::SECOND);
        is_said(&mut s, "fast: the log cannot be written; what goes through it waits", errno);
        assert_eq!(s.answer(write), Err(told));
        // Whether the log's patience ends first or that of checkpoints, which cannot be written either.
        is_said(&mut s, ": the volume is read-only until it is opened again", errno);
    }
}

/// A landed block cannot be read and is given up in the end, which is worse than a device that fails and recovers.
#[test]
fn levels_tell_what_fails_from_what_is_lost() {
    let mut s = Story::begin(24, 64);
    (0..40).for_each(|chunk| s.write(chunk * CHUNK, CHUNK, 1));
    s.flush();
    s.wait(Nanos::SECOND);
    let slow =
        (0..40).map(|chunk| chunk * CHUNK).find(|at| s.is_slow(*at)).expect("a chunk on the slow tier");
    s.write(slow, BLOCK, 2);
    s.flush();
    s.engine().take_events();
    s.world.rates.reads = 1;
    s.wait(5 * Nanos::SECOND);
    let events = s.engine().take_events();
    assert!(!events.is_empty() && events.iter().all(|e| e.level == Level::Warning), "{events:?}");
    let at = |e: &Event| {
        e.message.strip_prefix("fast: a background read at byte ")?.split(' ').next()?.parse().ok()
    };
    let place: u64 = events.iter().find_map(at).expect("the merge fails");
    s.world.disks[0].add_bad_sector(place / 512);
    // Nothing is given up before the device reads something else.
    s.world.rates.reads = 0;
    s.wait(120 * Nanos::SECOND);
    let errors: Vec<_> = s.engine().take_events().into_iter().filter(|e| e.level == Level::Error).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    let what = format!("volume byte {slow}: a block is lost; its only copy was on fast at byte {place}");
    assert_eq!(errors[0].message, what);
    s.world.rates.writes = 1;
    let write = s.ask(WRITE, slow, BLOCK, 3);
    s.wait(5 * Nanos::SECOND);
    s.world.rates.writes = 0;
    s.answer(write).expect("the device is well again");
    let levels: Vec<_> = s.engine().take_events().iter().map(|e| e.level).collect();
    assert_eq!(levels, [Level::Warning, Level::Info], "it fails, it recovers");
}

/// A fault of the program: emptying the zone is never taken up again once a device has failed it. Writes wait for room in it
/// that nobody makes. They used to wait for ever; now they get an error, and what was flushed is there afterwards.
#[test]
fn who_waits_for_what_will_never_move_gets_an_error() {
    let mut s = Story::begin_with_zone(64, 64, 16);
    let at = s.slow_chunk();
    plant(Some(Bug::DestageNeverResumes));
    s.world.forgives_stalls = true;
    s.world.rates.reads = 1;
    s.write(at, BLOCK, 1);
    s.flush();
    s.wait(Nanos::SECOND);
    s.world.rates.reads = 0;
    let told = (0..10_000).find_map(|i| {
        let write = s.ask(WRITE, at + BLOCK * (i % 16), BLOCK, 2);
        s.answer(write).err()
    });
    assert_eq!(told, Some(RequestError::ReadOnly));
    let events: Vec<_> = s.engine().take_events().into_iter().map(|event| event.message).collect();
    let said = |what: &str| events.iter().filter(|event| event.starts_with(what)).count();
    assert_eq!(said("nothing has moved for 5 s although clients wait"), 7, "{events:?}");
    assert_eq!(said("nothing moves any more: the volume is read-only until it is opened again"), 1);
    plant(None);
    s.stop();
    s.open().expect("the volume opens");
    assert_eq!(s.read(at, BLOCK), Ok(vec![2; BLOCK as usize]));
    s.write(at, BLOCK, 3);
}

/// The zone is full, the fast device reads nothing, so nothing leaves it. Many writes of one block wait for each other: the first
/// failed after 20 s, and each next one after 20 s more. They fail together now; and when the device reads again, writes land.
#[test]
fn writes_that_wait_for_each_other_do_not_wait_for_a_full_zone_in_turn() {
    let mut s = Story::begin_with_zone(56, 64, 32);
    s.tuning.landing_ram_bytes = 0;
    s.stop();
    s.open().expect("it opens");
    let slow = s.slow_chunk();
    s.world.rates.reads = 1;
    let mut tried = 0;
    loop {
        let at = slow + tried % 512 * BLOCK;
        let write = s.ask(WRITE, at, BLOCK, 1);
        tried += 1;
        if s.answer(write).is_err() {
            break;
        }
        assert!(tried < 10_000, "the zone is never full");
    }
    let began = s.world.now();
    let waiting: Vec<_> = (0..16).map(|fill| s.ask(WRITE, slow, BLOCK, fill)).collect();
    for write in waiting {
        assert_eq!(s.answer(write), Err(RequestError::Io));
    }
    let took = s.world.now().since(began);
    assert!(took < 40 * Nanos::SECOND, "{took} ns for 16 writes");
    s.world.rates = FaultRates::default();
    s.wait(2 * Nanos::SECOND);
    s.write(slow, BLOCK, 9);
    s.flush();
    assert_eq!(s.read(slow, BLOCK), Ok(vec![9; BLOCK as usize]));
}

/// The volume fails at each of the moments of a busy time, in which the zone is full and some wait for room in it, some for
/// memory, some for each other, and some for a flush: everybody is answered, and the volume ends.
#[test]
fn whenever_a_volume_fails_everybody_is_answered() {
    for steps in (0..1200).step_by(23) {
        let mut s = Story::begin_with_zone(56, 64, 32);
        s.tuning.landing_ram_bytes = 0;
        s.stop();
        (s.memory_sizes.client, s.memory_sizes.background) = (32 << 20, 4 * CHUNK as u32);
        s.open().expect("it opens");
        let slow = s.slow_chunk();
        let mut asked = Vec::new();
        for i in 0..400 {
            let block = slow + i * 37 % 512 * BLOCK;
            asked.push(match i % 8 {
                0 => s.ask(RequestKind::Flush, 0, 0, 0),
                1 => s.ask(RequestKind::Discard { fua: false }, block, 3 * BLOCK, 0),
                2 => s.ask(RequestKind::WriteZeroes { fua: true }, block + 100, 5000, 0),
                3 => s.ask(RequestKind::Write { fua: true }, i % 40 * CHUNK, CHUNK, 3),
                4 => s.ask(WRITE, block + 512, 1000, 4),
                5 => s.ask(RequestKind::Read, block, CHUNK, 0),
                _ => s.ask(WRITE, block, 4 * BLOCK, 5),
            });
        }
        (0..steps).for_each(|_| _ = s.step());
        s.engine().refuse_changes("the story says so".into());
        for request in asked {
            let _ = s.answer(request);
        }
        s.stop();
    }
}
