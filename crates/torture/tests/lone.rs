//! Stories of a volume whose slow device is missing: what the fast one has is read, the rest is an error at once, and nothing
//! is written.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::{RequestError, RequestKind};
use bimetal_engine::bugs::{Bug, plant};
use bimetal_engine::extents::Placement;
use bimetal_engine::loss::{Loss, LossClass, Suspects};
use bimetal_engine::options::OpenError;
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::world::Death;
use bimetal_units::{Nanos, SLOW};

const SECTOR: u64 = 512;
const IO: Result<Vec<u8>, RequestError> = Err(RequestError::Io);

/// A volume with everything: a chunk of 0x11 at home on the slow tier, of whose blocks the second landed, of the third
/// sectors 2 to 4, and of the fourth, which is blank there, sector 1; a chunk of 0x77 on the fast tier; the rest is blank. And
/// where the two chunks are.
fn begin() -> (Story, u64, u64) {
    let mut s = Story::begin(32, 32);
    let slow = s.slow_chunk();
    s.write(slow, 3 * BLOCK, 0x11);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(slow + 2 * BLOCK), "it is merged");
    s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
    // Ends copies of what was read.
    s.stop();
    s.open().expect("the volume opens");
    s.write(slow + BLOCK, BLOCK, 0x22);
    s.write(slow + 2 * BLOCK + 2 * SECTOR, 3 * SECTOR, 0x33);
    s.write(slow + 3 * BLOCK + SECTOR, SECTOR, 0x44);
    let place = |s: &mut Story, at: u64| s.engine().extents(at, BLOCK, 1)[0].place;
    let size = s.engine().size_bytes();
    let fast = (0..size)
        .step_by(CHUNK as usize)
        .find(|at| place(&mut s, *at) == Placement::Home(bimetal_units::FAST));
    let fast = fast.expect("a chunk on the fast tier");
    s.write(fast, CHUNK, 0x77);
    s.flush();
    (s, slow, fast)
}

/// What is lost with the slow device.
fn lost(slow: u64) -> Vec<(u64, u64)> {
    vec![(slow, BLOCK), (slow + 2 * BLOCK, 2 * SECTOR), (slow + 2 * BLOCK + 5 * SECTOR, 3 * SECTOR)]
}

fn losses(s: &mut Story) -> Vec<(u64, u64)> {
    let losses = s.engine().all_losses();
    assert!(losses.ranges.iter().all(|range| range.class == LossClass::Lost));
    losses.ranges.iter().map(|range| (range.offset, range.len)).collect()
}

/// All of it, as it is without the slow device.
fn is_as_it_should_be(s: &mut Story, slow: u64, fast: u64) {
    let lost = lost(slow);
    assert_eq!(losses(s), lost);
    let lost_bytes = lost.iter().map(|(_, len)| len).sum();
    let good_bytes = s.engine().size_bytes() - lost_bytes;
    let loss =
        Loss { missing: SLOW, as_of_unix_s: None, good_bytes, lost_bytes, suspect_bytes: 0, writable: false };
    assert_eq!(s.engine().loss(), Some(&loss));
    assert_eq!((s.engine().status().state, s.engine().status().loss), ("degraded", Some(loss)));
    assert_eq!(s.read(slow, BLOCK), IO);
    assert_eq!(s.read(slow + BLOCK, BLOCK), Ok(vec![0x22; BLOCK as usize]), "it landed");
    assert_eq!(s.read(slow + BLOCK - SECTOR, BLOCK), IO, "some of it is lost");
    for sector in 0..8 {
        let at = slow + 2 * BLOCK + sector * SECTOR;
        let expected = if (2..5).contains(&sector) { Ok(vec![0x33; SECTOR as usize]) } else { IO };
        assert_eq!(s.read(at, SECTOR), expected, "sector {sector}");
    }
    let mut whole = vec![0; BLOCK as usize];
    whole[SECTOR as usize..2 * SECTOR as usize].fill(0x44);
    assert_eq!(s.read(slow + 3 * BLOCK, BLOCK), Ok(whole), "nothing is beneath it");
    assert_eq!(s.read(fast, CHUNK), Ok(vec![0x77; CHUNK as usize]));
    assert_eq!(s.engine().extents(slow, BLOCK, 1)[0].place, Placement::Lost);
}

fn bytes(disk: &Disk) -> Vec<u8> {
    let mut bytes = vec![0; disk.size_bytes() as usize];
    bytes
        .chunks_exact_mut(BLOCK as usize)
        .enumerate()
        .for_each(|(page, out)| _ = disk.peek(page as u64, out));
    bytes
}

#[test]
fn what_the_fast_device_has_is_read_without_the_slow_one_and_nothing_is_written() {
    for death in [None, Some(Death::Kill), Some(Death::PowerCut(CutStyle::LoseAll))] {
        let (mut s, slow, fast) = begin();
        match death {
            Some(death) => s.die(death),
            None => s.stop(),
        }
        let before = bytes(&s.world.disks[0]);
        for _ in 0..2 {
            s.open_without_slow().expect("it opens");
            is_as_it_should_be(&mut s, slow, fast);
            for kind in [RequestKind::Write { fua: false }, RequestKind::Discard { fua: true }] {
                let asked = s.ask(kind, fast, BLOCK, 0x99);
                assert_eq!(s.answer(asked), Err(RequestError::ReadOnly), "{kind:?}");
            }
            // Nothing was acknowledged that it could cover.
            s.flush();
            let now = s.world.now();
            s.engine().prefer_fast(now, slow, CHUNK);
            assert!(s.engine().begin_pin(now, slow, CHUNK, Some(SLOW)).is_err());
            s.wait(7200 * Nanos::SECOND);
            is_as_it_should_be(&mut s, slow, fast);
            s.stop();
            assert!(bytes(&s.world.disks[0]) == before, "nothing is written");
        }
        s.open().expect("it opens with both");
        assert_eq!(losses(&mut s), []);
        assert_eq!(s.engine().loss(), None);
        let mut whole = vec![0x11; 3 * BLOCK as usize];
        whole[BLOCK as usize..2 * BLOCK as usize].fill(0x22);
        whole[(2 * BLOCK + 2 * SECTOR) as usize..(2 * BLOCK + 5 * SECTOR) as usize].fill(0x33);
        assert_eq!(s.read(slow, 3 * BLOCK), Ok(whole));
        s.stop();
        assert_eq!(s.check(), Ok(Vec::new()));
    }
}

/// Whatever the raise of the generation has left, the fast device is the newest.
#[test]
fn every_state_of_the_generation_is_good_for_reading() {
    let (mut s, slow, fast) = begin();
    s.die(Death::Kill);
    let disks = s.world.disks.clone();
    let mut states = std::collections::BTreeSet::new();
    for steps in (0..).step_by(3) {
        s.world.disks.clone_from(&disks);
        if !s.open_until(steps, Death::PowerCut(CutStyle::KeepAll)) {
            break;
        }
        let mut block = [0; BLOCK as usize];
        s.world.disks[0].peek(0, &mut block);
        states.insert(block[50]);
        s.open_without_slow().expect("it opens");
        is_as_it_should_be(&mut s, slow, fast);
        s.die(Death::Kill);
    }
    assert_eq!(states.into_iter().collect::<Vec<_>>(), [1, 2], "it was being raised, and was open");
}

/// The fast device is longer than the volume, as one is that took the place of a smaller one, or that has the maps of an image behind
/// it; and its first sector went bad. Where its second superblock is, the slow device was asked, which is not there.
#[test]
fn a_longer_fast_device_whose_first_sector_is_bad_is_read_without_the_slow_one() {
    let (mut s, slow, fast) = begin();
    s.stop();
    let short = bytes(&s.world.disks[0]);
    let mut long = Disk::new((short.len() + 16 * BLOCK as usize) as u64, 9);
    let pages = (0..).zip(short.chunks_exact(BLOCK as usize));
    pages.for_each(|(page, bytes)| long.put_back(page, bytes));
    long.add_bad_sector(3);
    s.world.disks[0] = long;
    s.open_without_slow().expect("it opens");
    is_as_it_should_be(&mut s, slow, fast);
}

/// An SSD at the end of its life takes neither writes nor flushes.
#[test]
fn a_fast_device_that_refuses_flushes_is_read_all_the_same() {
    let (mut s, slow, fast) = begin();
    s.die(Death::Kill);
    (s.world.rates.flushes, s.world.rates.writes) = (1, 1);
    s.open_without_slow().expect("it opens");
    is_as_it_should_be(&mut s, slow, fast);
}

#[test]
fn of_a_slow_device_without_marks_nothing_is_read() {
    let (mut s, ..) = begin();
    s.stop();
    let error = s.open_without_fast(Suspects::Refused).expect_err("the map is on the fast device");
    let says = |what: &str| what.contains("fast is missing") && what.contains("without marks");
    assert!(matches!(&error, OpenError::BadOption { what } if says(what)), "{error}");
}

/// A look at a long volume comes in parts, which join.
#[test]
fn losses_come_in_parts() {
    let (mut s, slow, _) = begin();
    s.die(Death::Kill);
    s.open_without_slow().expect("it opens");
    assert_eq!(s.engine().losses(0).next, None);
    let behind = s.engine().losses(slow + CHUNK);
    assert_eq!((behind.ranges.len(), behind.next), (0, None));
    let size = s.engine().size_bytes();
    assert_eq!(s.engine().losses(size).ranges, []);
}

#[test]
fn planted_bugs_are_seen() {
    let (mut s, slow, _) = begin();
    s.die(Death::Kill);
    plant(Some(Bug::MissingReadsZeros));
    s.open_without_slow().expect("it opens");
    assert_eq!(s.read(slow, BLOCK), Ok(vec![0; BLOCK as usize]), "a wrong answer");
    s.die(Death::Kill);
    plant(None);
}
