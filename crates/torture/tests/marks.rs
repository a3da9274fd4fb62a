//! Stories of a volume whose slow device describes itself, and whose fast device is lost with the machine's power: what was not
//! written lately is good, what is only on the fast device is lost, and what was overwritten is never called good.

use crate::damage::image::{get, put, reseal};
use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::action::{RequestError, RequestKind};
use bimetal_engine::bugs::{Bug, plant};
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::left_out;
use bimetal_engine::loss::{LossClass, Suspects};
use bimetal_engine::options::{Marking, OpenError};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_torture::world::storm::{Stall, Storm, Weather};
use bimetal_units::rng::Rng;
use bimetal_units::{FAST, Nanos, SLOW};

const IO: Result<Vec<u8>, RequestError> = Err(RequestError::Io);
const LOST: Death = Death::PowerCut(CutStyle::LoseAll);
/// Chunks of a region.
const REGION: u64 = (8 << 20) / CHUNK;

/// A volume of several regions with two chunks of 0x11 at home on the slow tier, in different ones; all is closed.
fn begin(marking: Marking) -> (Story, u64, u64) {
    let mut s = Story::begin_marked(marking, 32, 500);
    let one = s.slow_chunk();
    let other = one + 2 * REGION * CHUNK;
    s.write(other, CHUNK, 0x11);
    s.write(one, CHUNK, 0x11);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(one) && s.is_slow(other), "both are merged");
    s.wait(120 * Nanos::SECOND);
    (s, one, other)
}

/// Bytes of each class that are said to be no good.
fn bytes(s: &mut Story) -> (u64, u64) {
    let losses = s.engine().all_losses();
    (losses.bytes(LossClass::Lost), losses.bytes(LossClass::Suspect))
}

#[test]
fn what_was_not_written_lately_is_good() {
    let (mut s, one, other) = begin(Marking::On);
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(bytes(&mut s).1, 0, "nothing was written for two minutes");
    for at in [one, other] {
        assert_eq!(s.read(at, CHUNK), Ok(vec![0x11; CHUNK as usize]));
    }
    let loss = s.engine().loss().cloned().expect("a device is missing");
    let status = s.engine().status();
    assert_eq!((status.state, status.loss.as_ref()), ("degraded", Some(&loss)));
    assert!(loss.as_of_unix_s.is_some() && loss.good_bytes > 0);
    let asked = s.ask(RequestKind::Write { fua: false }, one, BLOCK, 0);
    assert_eq!(s.answer(asked), Err(RequestError::ReadOnly));
    s.die(Death::Kill);
    // The fast device comes back.
    s.open().expect("both are there");
    assert_eq!(s.read(one, CHUNK), Ok(vec![0x11; CHUNK as usize]));
}

/// A block could not be read when the slow device was replaced, and was done without. Then the fast device is lost, which has all
/// checksums: what stands in its place is not called good.
fn read_of_what_was_left_out() -> Result<Vec<u8>, RequestError> {
    let (mut s, one, other) = begin(Marking::On);
    let (tier, at) = s.home_of(one);
    assert_eq!(tier, SLOW);
    s.die(LOST);
    s.world.disks[1].put_back(at / BLOCK + 3, left_out::block());
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(one, 3 * BLOCK), Ok(vec![0x11; 3 * BLOCK as usize]));
    assert_eq!(s.read(other, CHUNK), Ok(vec![0x11; CHUNK as usize]));
    s.read(one + 3 * BLOCK, BLOCK)
}

#[test]
fn what_was_left_out_is_never_good() {
    assert_eq!(read_of_what_was_left_out(), Err(RequestError::Io));
    plant(Some(Bug::LeftOutIsGood));
    let read = read_of_what_was_left_out();
    plant(None);
    assert_eq!(read, Ok(left_out::block().to_vec()));
}

/// Each of these makes a block stale, is flushed, and is lost with the fast device.
#[test]
fn what_was_overwritten_is_never_good() {
    for (kind, flush) in [
        (RequestKind::Write { fua: false }, true),
        (RequestKind::Write { fua: true }, false),
        (RequestKind::Discard { fua: false }, true),
        (RequestKind::WriteZeroes { fua: true }, false),
    ] {
        let (mut s, one, other) = begin(Marking::On);
        let asked = s.ask(kind, one, BLOCK, 0x22);
        s.answer(asked).expect("it is done");
        if flush {
            s.flush();
        }
        s.die(LOST);
        s.open_without_fast(Suspects::Refused).expect("it opens");
        assert_eq!(s.read(one, BLOCK), IO, "{kind:?}");
        assert_eq!(s.read(other, CHUNK), Ok(vec![0x11; CHUNK as usize]), "another region");
        let (_, suspect) = bytes(&mut s);
        assert!(suspect > 0 && suspect <= REGION * CHUNK, "{suspect} bytes of one region");
        s.die(Death::Kill);
        s.open_without_fast(Suspects::Read).expect("it opens");
        assert_eq!(s.read(one, BLOCK), Ok(vec![0x11; BLOCK as usize]), "as it was");
    }
}

/// A blank block is a value: it is not good any more once it was written.
#[test]
fn what_was_blank_is_not_good_once_it_was_written() {
    let (mut s, one, _) = begin(Marking::On);
    let blank = one + REGION * CHUNK;
    s.write(blank, BLOCK, 0x33);
    s.flush();
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(blank, BLOCK), IO);
}

/// A disk that is to rest says before that all may be stale, and is not woken.
#[test]
fn a_disk_that_rests_is_left_asleep() {
    let (mut s, one, _) = begin(Marking::On);
    s.stop();
    s.tuning.rest_after_ns = 20 * Nanos::SECOND;
    s.tuning.rest_at_most_ns = 24 * 3600 * Nanos::SECOND;
    s.tuning.marks_quiet_ns = Nanos::SECOND;
    s.open().expect("it opens");
    s.wait(3600 * Nanos::SECOND);
    s.write(one, BLOCK, 0x22);
    s.flush();
    let woken = s.engine().status().tiers[1].wakeups;
    assert_eq!((woken.clients, woken.background), (0, 0));
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    let size = s.engine().size_bytes();
    let (lost, suspect) = bytes(&mut s);
    assert_eq!(lost + suspect, size, "all may be stale");
}

/// What is written while it says so waits until it has.
#[test]
fn what_is_written_as_a_disk_goes_to_rest_is_not_good() {
    let (mut s, one, _) = begin(Marking::On);
    s.stop();
    s.tuning.rest_after_ns = 20 * Nanos::SECOND;
    s.tuning.rest_at_most_ns = 24 * 3600 * Nanos::SECOND;
    s.tuning.marks_quiet_ns = Nanos::SECOND;
    s.open().expect("it opens");
    s.wait(5 * Nanos::SECOND);
    s.until_stage(Stage::MarkHeader);
    let asked = s.ask(RequestKind::Write { fua: true }, one, BLOCK, 0x22);
    s.answer(asked).expect("it is written");
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(one, BLOCK), IO);
}

/// Strict marks wake it, and hold the flush until it has said what becomes stale.
#[test]
fn strict_marks_wake_a_disk() {
    let (mut s, one, other) = begin(Marking::Strict);
    s.stop();
    s.tuning.rest_after_ns = 20 * Nanos::SECOND;
    s.tuning.rest_at_most_ns = 24 * 3600 * Nanos::SECOND;
    s.tuning.marks_quiet_ns = Nanos::SECOND;
    s.open().expect("it opens");
    s.wait(3600 * Nanos::SECOND);
    s.write(one, BLOCK, 0x22);
    s.flush();
    assert_eq!(s.engine().status().tiers[1].wakeups.background, 1);
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(one, BLOCK), IO);
    assert_eq!(s.read(other, CHUNK), Ok(vec![0x11; CHUNK as usize]));
}

/// Strict marks wake it once more, to call good what nobody writes any more. They never did where what was written was home, and
/// the disk at rest, before a minute was over: all of it stayed suspect.
#[test]
fn strict_marks_call_good_what_is_left_alone_though_the_disk_rests() {
    let (mut s, one, _) = begin(Marking::Strict);
    s.stop();
    s.tuning.rest_after_ns = 20 * Nanos::SECOND;
    s.tuning.rest_at_most_ns = 24 * 3600 * Nanos::SECOND;
    s.open().expect("it opens");
    s.write(one, BLOCK, 0x22);
    s.flush();
    s.wait(3600 * Nanos::SECOND);
    let woken = s.engine().status().tiers[1].wakeups;
    assert!(woken.background <= 2, "{woken:?} in an hour");
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    let (lost, suspect) = bytes(&mut s);
    assert!(suspect == 0 && lost <= 2 * CHUNK, "{lost} lost, {suspect} suspect");
}

/// An opening, even one that nobody uses, opens all regions before it serves: what it found is the promise from then on.
#[test]
fn an_opening_believes_no_mark() {
    for bug in [None, Some(Bug::OpenedWithClosedRegions)] {
        let mut stale = 0;
        for steps in 0..30 {
            let (mut s, one, _) = begin(Marking::On);
            // It is in the log before the disk, which stalls and loses its own power, has kept the header that says so.
            let stall = Some(Stall { after: 0, ns: 60 * Nanos::SECOND, whole: true });
            let weather = [Weather::default(), Weather { ramp: None, stall }];
            s.world.begin(Storm { weather, ..Storm::default() });
            s.ask(RequestKind::Write { fua: false }, one, BLOCK, 0x22);
            (0..steps).for_each(|_| _ = s.step());
            s.die(Death::Kill);
            s.world.disks[usize::from(SLOW.0)].power_cut(CutStyle::LoseAll, &mut Rng::new(steps, 0));
            plant(bug);
            s.open().expect("it opens");
            plant(None);
            s.die(LOST);
            s.open_without_fast(Suspects::Refused).expect("it opens");
            let alone = s.read(one, BLOCK);
            s.die(Death::Kill);
            s.open().expect("both are there");
            let both = s.read(one, BLOCK).expect("it is there");
            stale += u32::from(alone.is_ok_and(|bytes| bytes != both));
        }
        assert_eq!(stale > 0, bug.is_some(), "{bug:?}: what was stale was called good {stale} times");
    }
}

/// Of what was not flushed a power cut may keep what is newer: a header must not name pages that are not there, or nothing
/// is known any more.
#[test]
fn a_header_names_no_page_that_is_not_there() {
    for bug in [None, Some(Bug::MarkHeaderBeforePages)] {
        let (mut s, one, other) = begin(Marking::On);
        s.stop();
        s.tuning.rest_after_ns = 24 * 3600 * Nanos::SECOND;
        s.tuning.marks_quiet_ns = Nanos::SECOND;
        s.open().expect("it opens");
        s.wait(5 * Nanos::SECOND);
        let mut unknown = 0;
        for round in 0..20u64 {
            // What was blank is to be named.
            s.write(one + (REGION + round) * CHUNK, CHUNK, 0x33);
            s.flush();
            plant(bug);
            s.until_stage(Stage::MarkPages);
            s.until_stage(Stage::MarkFlushHeader);
            s.die(Death::PowerCut(CutStyle::Newest));
            plant(None);
            s.open_without_fast(Suspects::Refused).expect("it opens");
            match s.engine().loss().expect("a device is missing").as_of_unix_s {
                Some(_) => assert_eq!(s.read(other, CHUNK), Ok(vec![0x11; CHUNK as usize])),
                None => unknown += 1,
            }
            s.die(Death::Kill);
            s.open().expect("both are there");
            s.wait(5 * Nanos::SECOND);
        }
        assert_eq!(unknown > 0, bug.is_some(), "{bug:?}: nothing is known after {unknown} of 20 cuts");
    }
}

/// A closing volume begins no round but for flushes that wait for it, and stops.
#[test]
fn a_volume_closes_amid_marks() {
    for stage in [Stage::MarkPages, Stage::MarkHeader, Stage::MarkFlushHeader] {
        let mut s = Story::begin_marked(Marking::On, 32, 500);
        let at = s.slow_chunk();
        s.until_stage(stage);
        s.write(at, BLOCK, 0x22);
        s.stop();
        s.open().expect("it opens");
        assert!(all(&s.read(at, BLOCK).expect("it is there"), 0x22));
    }
}

/// Who does not know a flag must not overlook it; a volume without marks is as it ever was.
#[test]
fn what_marks_mean_is_not_overlooked() {
    let (mut s, ..) = begin(Marking::Strict);
    s.stop();
    let mut block = get(&s.world.disks[1], 0, 1);
    assert_eq!((block[16], block[20]), (6, 3));
    block[20] = 7;
    reseal(&mut block);
    put(&mut s.world.disks[1], 0, &block);
    let error = s.open_without_fast(Suspects::Refused).expect_err("a flag that nobody knows");
    assert!(matches!(error, OpenError::NewerFormat { found: 6, .. }), "{error}");
    let mut plain = Story::begin_without_fast_pages(32, 32);
    plain.stop();
    let block = get(&plain.world.disks[1], 0, 1);
    assert_eq!((block[16], &block[20..24]), (4, &[0; 4][..]));
}

/// What is wrong with marks keeps no volume closed: nothing is known of it then, and all is written anew.
#[test]
fn damaged_marks_are_written_anew() {
    let (mut s, one, _) = begin(Marking::On);
    s.stop();
    let headers = 32768 / BLOCK..32768 / BLOCK + 4;
    for at in headers {
        put(&mut s.world.disks[usize::from(SLOW.0)], at, &[0xaa; BLOCK as usize]);
    }
    s.open_without_fast(Suspects::Read).expect("it opens");
    let size = s.engine().size_bytes();
    assert_eq!(bytes(&mut s), (size, 0), "nothing is known");
    s.die(Death::Kill);
    s.open().expect("both are there");
    s.wait(120 * Nanos::SECOND);
    s.die(LOST);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(one, CHUNK), Ok(vec![0x11; CHUNK as usize]));
}

/// Promotes the chunk at this byte, which stays named by the marks where it was.
fn rise(s: &mut Story, at: u64) {
    let now = s.world.now();
    s.engine().begin_pin(now, at, CHUNK, Some(FAST)).expect("it may be pinned");
    while s.is_slow(at) {
        s.step();
    }
    s.wait(Nanos::SECOND);
}

/// What rose is as good where it was, until it is overwritten in place with FUA, which no flush follows.
#[test]
fn what_is_overwritten_where_it_rose_to_is_not_good() {
    for bug in [None, Some(Bug::FuaBeforeMark)] {
        let (mut s, one, _) = begin(Marking::On);
        rise(&mut s, one);
        plant(bug);
        let asked = s.ask(RequestKind::Write { fua: true }, one, BLOCK, 0x22);
        s.answer(asked).expect("it is written");
        s.die(LOST);
        plant(None);
        s.open_without_fast(Suspects::Refused).expect("it opens");
        let found = s.read(one, BLOCK);
        match bug {
            None => assert_eq!(found, IO),
            Some(_) => assert_eq!(found, Ok(vec![0x11; BLOCK as usize]), "stale, and called good"),
        }
    }
}

#[test]
fn a_header_that_is_not_flushed_is_seen() {
    let (mut s, one, _) = begin(Marking::On);
    plant(Some(Bug::MarkNotFlushed));
    s.write(one, BLOCK, 0x22);
    s.flush();
    s.die(LOST);
    plant(None);
    s.open_without_fast(Suspects::Refused).expect("it opens");
    assert_eq!(s.read(one, BLOCK), Ok(vec![0x11; BLOCK as usize]), "stale, and called good");
}

/// The slots that marks hold are given back at the end, too: what is still to be written then has no others.
#[test]
fn a_volume_that_closes_gets_back_the_slots_that_marks_hold() {
    const CHUNKS: u64 = 60;
    let (mut s, _, _) = begin(Marking::On);
    let size = s.engine().size_bytes();
    for at in (0..size).step_by(CHUNK as usize) {
        s.write(at, CHUNK, 0x44);
    }
    s.flush();
    s.wait(300 * Nanos::SECOND);
    let mut are_slow = |at: &u64| (0..CHUNKS).all(|chunk| s.is_slow(at + chunk * CHUNK));
    let first =
        (0..size - CHUNKS * CHUNK).step_by(CHUNK as usize).find(&mut are_slow).expect("so many in a row");
    // Each of them leaves its slot, which the marks name, and wants another; and the volume closes amid that.
    let mut asked = vec![s.ask(RequestKind::Discard { fua: false }, first, CHUNKS * CHUNK, 0)];
    for chunk in 0..CHUNKS {
        asked.push(s.ask(RequestKind::Write { fua: false }, first + chunk * CHUNK, CHUNK, 0x55));
    }
    s.stop();
    s.open().expect("it opens");
    for chunk in 0..CHUNKS {
        assert_eq!(s.read(first + chunk * CHUNK, CHUNK), Ok(vec![0x55; CHUNK as usize]));
    }
}
