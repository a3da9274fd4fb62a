//! Checksums of the fast tier outlive the server: those of what rested before a crash, and all of them where the volume is closed.
//! What is written in place after that is never held against them.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::{RequestError, RequestKind};
use bimetal_engine::bugs::{Bug, plant};
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::page::{self, PageKind};
use bimetal_engine::scrub::ScrubState;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos, SLOW};

const DEATHS: [Death; 3] =
    [Death::Kill, Death::PowerCut(CutStyle::LoseAll), Death::PowerCut(CutStyle::KeepAll)];
const REST: u64 = Nanos::SECOND;

/// A volume of which the first chunk is at home on the fast tier, and was written there in place.
fn begin() -> Story {
    let mut s = Story::begin_with_zone(64, 64, 32);
    s.tuning.small_write_bytes = 0;
    s.tuning.fast_checksum_rest_ns = REST;
    reopen(&mut s, None);
    for byte in [0x10, 0x20] {
        s.write(0, CHUNK, byte);
        s.flush();
    }
    assert_eq!(s.home_of(0).0, FAST);
    s
}

fn reopen(s: &mut Story, death: Option<Death>) {
    match death {
        Some(death) => s.die(death),
        None => s.stop(),
    }
    s.open().expect("the volume opens");
}

/// Whether a write of this block lands.
fn lands(s: &mut Story, block: u64, byte: u8) -> bool {
    let before = s.engine().status().log_payload_bytes;
    s.write(block * BLOCK, BLOCK, byte);
    s.flush();
    s.engine().status().log_payload_bytes > before
}

fn block(s: &mut Story, block: u64) -> Result<u8, RequestError> {
    s.read(block * BLOCK, BLOCK).map(|bytes| bytes[0])
}

/// The pages of checksums of the fast tier that are on the device, in whichever version.
fn pages(s: &Story) -> Vec<u64> {
    let (disk, geo) = (&s.world.disks[0], s.geometry());
    let volume = crate::story::VOLUME;
    let mut bytes = vec![0; BLOCK as usize];
    let mut is_one = |number: u32, at: u64| {
        disk.read(at, &mut bytes).is_ok()
            && page::decode(&bytes, PageKind::FastSums, &volume, u64::from(number)).is_some()
    };
    let first = geo.map_pages + geo.sum_pages;
    let places = (first..geo.table_pages()).flat_map(|number| [(number, 0), (number, 1)]);
    let places = places.map(|(number, place)| (number, geo.page_at(number, place)));
    places.filter(|(number, at)| is_one(*number, *at)).map(|(_, at)| at).collect()
}

/// It used to be good again, bit and all, once the server had been started anew.
#[test]
fn what_rots_while_a_volume_is_closed_is_an_error() {
    let mut s = begin();
    let at = s.home_of(0).1 + 2 * BLOCK;
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
    s.flip(0, at);
    let found = s.findings().expect("it can be checked");
    let found: Vec<_> = found.iter().map(|f| (f.device, f.offset)).collect();
    assert_eq!(found, [(FAST, at)]);
    s.open().expect("the volume opens");
    assert_eq!((block(&mut s, 1), block(&mut s, 2)), (Ok(0x20), Err(RequestError::Io)));
    // What is known outlives what opens the region, and the next close.
    assert!(lands(&mut s, 5, 0x21), "a crash would bring its checksum back");
    s.wait(15 * REST);
    assert_eq!(block(&mut s, 2), Err(RequestError::Io));
    reopen(&mut s, None);
    assert_eq!((block(&mut s, 2), block(&mut s, 5)), (Err(RequestError::Io), Ok(0x21)));
    s.write(2 * BLOCK, BLOCK, 0x22);
    assert_eq!(block(&mut s, 2), Ok(0x22));
}

#[test]
fn what_was_at_rest_has_its_checksums_after_a_crash() {
    for death in DEATHS {
        let mut s = begin();
        s.wait(15 * REST);
        let at = s.home_of(0).1 + 2 * BLOCK;
        s.die(death);
        s.flip(0, at);
        s.open().expect("the volume opens");
        assert_eq!((block(&mut s, 1), block(&mut s, 2)), (Ok(0x20), Err(RequestError::Io)), "{death:?}");
    }
}

/// A region that is written to has none: whoever opens the volume after a crash does not know which of its blocks were.
#[test]
fn one_write_that_lands_opens_a_region_for_those_in_place() {
    for death in DEATHS {
        let mut s = begin();
        s.wait(15 * REST);
        assert!(lands(&mut s, 3, 0x31), "{death:?}");
        for byte in [0x32, 0x33] {
            assert!(!lands(&mut s, 4, byte), "{death:?}: durably open");
            reopen(&mut s, Some(death));
            let read = [3, 4, 5].map(|at| block(&mut s, at));
            assert_eq!(read, [Ok(0x31), Ok(byte), Ok(0x20)], "{death:?}");
        }
        s.wait(15 * REST);
        // Nothing is known of block 5 but what a scrub read, or somebody wrote.
        assert!(lands(&mut s, 4, 0x34), "{death:?}: at rest, and closed");
        reopen(&mut s, Some(death));
        assert_eq!(block(&mut s, 4), Ok(0x34), "{death:?}");
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()), "{death:?}");
    }
}

/// No data goes with a page of them: what it stands for is read as it is, and said once.
#[test]
fn a_page_that_cannot_be_read_loses_nothing() {
    let mut s = begin();
    s.stop();
    let pages = pages(&s);
    assert!(!pages.is_empty(), "closing writes them");
    pages.iter().for_each(|at| s.world.disks[0].add_bad_sector(at / 512));
    s.open().expect("the volume opens");
    assert!(s.read(0, CHUNK).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0x20)));
    let events: Vec<String> = s.engine().take_events().into_iter().map(|e| e.message).collect();
    assert!(
        events.iter().any(|event| event.contains("is given up: the blocks it stands for are not verified")),
        "{events:#?}"
    );
    for byte in 0x40..0x44 {
        s.write(3 * BLOCK, BLOCK, byte);
        s.flush();
        reopen(&mut s, Some(Death::PowerCut(CutStyle::LoseAll)));
        assert_eq!(block(&mut s, 3), Ok(byte));
        s.wait(15 * REST);
    }
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()), "they were written anew");
}

/// A volume that was made before there were such pages stays as it was.
#[test]
fn an_older_volume_has_none() {
    let mut s = Story::begin_without_fast_pages(64, 64);
    s.tuning.fast_checksum_rest_ns = REST;
    s.stop();
    s.make_old();
    s.open().expect("the volume opens");
    for byte in [0x10, 0x20] {
        s.write(0, CHUNK, byte);
        s.flush();
    }
    s.wait(15 * REST);
    s.write(BLOCK, BLOCK, 0x51);
    reopen(&mut s, None);
    assert!(!lands(&mut s, 1, 0x52), "nothing is closed");
    assert_eq!((block(&mut s, 0), block(&mut s, 1)), (Ok(0x20), Ok(0x52)));
}

/// What a crash has cost is known again once a scrub has read it, and outlives the next.
#[test]
fn a_scrub_learns_what_nobody_knows() {
    let mut s = begin();
    s.die(Death::Kill);
    s.open().expect("the volume opens");
    let at = s.home_of(0).1;
    s.flip(0, at + BLOCK);
    assert!(s.read(BLOCK, BLOCK).is_ok(), "it is not noticed");
    s.flip(0, at + BLOCK);
    let now = s.world.now();
    s.engine().begin_scrub(now).expect("it begins");
    while s.engine().scrub().state != ScrubState::Whole {
        s.wait(REST);
    }
    s.flip(0, at + 2 * BLOCK);
    assert_eq!((block(&mut s, 1), block(&mut s, 2)), (Ok(0x20), Err(RequestError::Io)));
    s.wait(15 * REST);
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    assert_eq!((block(&mut s, 1), block(&mut s, 2)), (Ok(0x20), Err(RequestError::Io)));
}

/// Part of a chunk that is going down is discarded, before it is durable that it has; then a block beside its old home is written in
/// place. Gives what that block and its neighbour are after a crash.
fn discarded_beside_a_move_down(death: Death) -> [Result<u8, RequestError>; 2] {
    let mut s = begin();
    for byte in [0x10, 0x20] {
        s.write(CHUNK, CHUNK, byte);
        s.flush();
    }
    assert_eq!(s.home_of(CHUNK).0, FAST);
    s.wait(15 * REST);
    let now = s.world.now();
    s.engine().begin_pin(now, CHUNK, CHUNK, Some(SLOW)).expect("it may be pinned");
    s.until_stage(Stage::MoveFlushLog);
    let discard = s.ask(RequestKind::Discard { fua: false }, CHUNK, BLOCK, 0);
    s.answer(discard).expect("a discard succeeds");
    s.flush();
    assert!(!lands(&mut s, 4, 0x31), "{death:?}: the region is durably open");
    reopen(&mut s, Some(death));
    let blocks = [4, 5].map(|at| block(&mut s, at));
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()), "{death:?}");
    blocks
}

/// What is discarded of a chunk that is going down opens the region of the home that it is leaving, which the record that it has left
/// stands before in the log. Whoever replayed both in their order found the chunk at home on the slow tier, and called good blocks of
/// that region rotten.
#[test]
fn a_discard_beside_a_move_down_opens_the_region_that_is_left() {
    for death in [Death::Kill, Death::PowerCut(CutStyle::KeepAll), Death::PowerCut(CutStyle::Mixed)] {
        assert_eq!(discarded_beside_a_move_down(death), [Ok(0x31), Ok(0x20)], "{death:?}");
    }
}

#[test]
fn a_region_that_stays_closed_when_it_is_left_is_seen() {
    plant(Some(Bug::LeftRegionStaysClosed));
    let seen = std::panic::catch_unwind(|| discarded_beside_a_move_down(Death::Kill));
    plant(None);
    assert!(seen.is_err() || seen.is_ok_and(|blocks| blocks == [Err(RequestError::Io), Ok(0x20)]));
}
