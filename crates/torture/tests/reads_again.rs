//! A read that a device fails is made again, and what a home on the fast tier does not give is read from its shadow: the client
//! gets what was written, or an error, and never anything older.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::action::RequestError;
use bimetal_torture::world::{Death, FaultRates};
use bimetal_units::{FAST, Nanos, SLOW};

/// A chunk of the slow tier of which all is 0x11, and which has risen: its shadow is there.
fn risen() -> (Story, u64) {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    s.pin_to(chunk, FAST);
    assert!(s.shadow_of(chunk).is_some());
    (s, chunk)
}

/// Reads that were made again, and those of them that shadows served.
fn again(s: &mut Story) -> (u64, u64) {
    let status = s.engine().status();
    (status.reads_again, status.reads_from_shadows)
}

#[test]
fn a_read_that_a_device_fails_once_is_made_again() {
    for tier in [FAST, SLOW] {
        let (mut s, chunk) = risen();
        s.pin_to(chunk, tier);
        if tier == SLOW {
            // Nothing stands in for it: copies end with a crash.
            s.die(Death::Kill);
            s.open().expect("it opens");
        }
        let (_, at) = s.home_of(chunk);
        let before = again(&mut s).0;
        s.world.disks[usize::from(tier.0)].add_bad_sector(at / 512);
        let read = s.ask(bimetal_engine::action::RequestKind::Read, chunk, BLOCK, 0);
        while again(&mut s).0 == before {
            s.step();
        }
        s.world.disks[usize::from(tier.0)].mend(at / BLOCK);
        assert!(all(&s.answer(read).expect("it is read"), 0x11));
        assert_eq!(again(&mut s), (before + 1, 0));
    }
}

#[test]
fn a_device_that_goes_on_failing_is_an_error_after_the_second_time() {
    let (mut s, chunk) = risen();
    s.pin_to(chunk, SLOW);
    s.die(Death::Kill);
    s.open().expect("it opens, without copies");
    s.world.rates.reads = 1;
    assert_eq!(s.read(chunk, BLOCK), Err(RequestError::Io));
    assert_eq!(again(&mut s), (1, 0));
    s.world.rates = FaultRates::default();
    assert!(all(&s.read(chunk, BLOCK).expect("it is read"), 0x11));
}

/// A sector that cannot be read, and a bit that has changed, which nothing but the shadow's checksums tells.
#[test]
fn what_has_a_shadow_is_read_from_there() {
    for rots in [false, true] {
        let (mut s, chunk) = risen();
        let (_, at) = s.home_of(chunk);
        match rots {
            true => s.flip(0, at + 3 * BLOCK),
            false => s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512),
        }
        for _ in 0..2 {
            assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11), "rots: {rots}");
        }
        assert!(again(&mut s).1 > 0, "rots: {rots}");
        assert!(all(&s.read(chunk, BLOCK).expect("it is read"), 0x11), "beside it");
    }
}

/// The shadow is wrong as well: an error, and neither of the two is believed.
#[test]
fn a_shadow_is_held_against_its_checksums() {
    let (mut s, chunk) = risen();
    let (at, beside) = (s.home_of(chunk).1, s.shadow_of(chunk).expect("a shadow"));
    s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
    s.flip(1, beside + 3 * BLOCK);
    assert_eq!(s.read(chunk + 3 * BLOCK, BLOCK), Err(RequestError::Io));
    assert!(all(&s.read(chunk + 4 * BLOCK, BLOCK).expect("the next one is read"), 0x11));
}

/// The chunk was written since it rose: its shadow has ended, and what is older is not read in the stead of what is lost.
#[test]
fn nothing_older_is_read_in_the_stead_of_what_is_lost() {
    for landed in [false, true] {
        let (mut s, chunk) = risen();
        s.write(chunk + 3 * BLOCK, BLOCK, 0x22);
        if landed {
            // It goes down, and what is written then lands.
            s.pin_to(chunk, SLOW);
            s.write(chunk + 3 * BLOCK, BLOCK, 0x33);
        }
        s.flush();
        assert_eq!(s.shadow_of(chunk), None);
        let place = (0..s.world.disks[0].size_bytes() / BLOCK).filter(|page| {
            let mut bytes = [0; BLOCK as usize];
            s.world.disks[0].peek(*page, &mut bytes) && all(&bytes, if landed { 0x33 } else { 0x22 })
        });
        let pages: Vec<u64> = place.collect();
        pages.iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8));
        assert_eq!(s.read(chunk + 3 * BLOCK, BLOCK), Err(RequestError::Io));
        assert!(all(&s.read(chunk, BLOCK).expect("beside it"), 0x11));
    }
}

/// The shadow's slot is wanted by somebody else while a read is under way in it: he gets it when the read has ended.
#[test]
fn a_shadow_that_is_being_read_ends_and_its_slot_is_not_given_away() {
    let (mut s, chunk) = risen();
    let (_, at) = s.home_of(chunk);
    s.world.disks[0].add_bad_sector((at + 3 * BLOCK) / 512);
    for service in &mut s.world.services {
        (service.min_ns, service.max_ns) = (Nanos::MS, Nanos::MS);
    }
    s.world.services[1].min_ns = Nanos::SECOND;
    s.world.services[1].max_ns = Nanos::SECOND;
    let read = s.ask(bimetal_engine::action::RequestKind::Read, chunk + 3 * BLOCK, BLOCK, 0);
    let reads = again(&mut s).0;
    while again(&mut s).0 < reads + 2 {
        s.step();
    }
    // Another block of the chunk is written in place meanwhile, which ends the shadow.
    s.write(chunk + 7 * BLOCK, BLOCK, 0x22);
    assert_eq!(s.shadow_of(chunk), None);
    for other in (0..20).map(|n| n * CHUNK).filter(|other| *other != chunk) {
        s.write(other, CHUNK, 0x44);
    }
    assert!(all(&s.answer(read).expect("it is read"), 0x11));
}
