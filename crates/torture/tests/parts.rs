//! Stories of writes of part of a block that lies on the slow tier: only what was written lands, and the rest stays where it
//! is until the two are merged.

use crate::damage::image::{get, put, reseal};
use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestError;
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::FORMAT_WITHOUT_MARKS;
use bimetal_torture::disk::{CutStyle, Disk};
use bimetal_torture::world::Death;
use bimetal_units::Nanos;

const SECTOR: u64 = 512;
/// Where a superblock says of which version it is.
const FORMAT_AT: usize = 16;

/// A volume with a chunk on the slow tier whose first block is full of 0x11, and where that chunk is.
fn begin() -> (Story, u64) {
    let mut s = Story::begin(32, 32);
    let at = s.slow_chunk();
    (s, at)
}

/// A block full of 0x11 with sectors of it overwritten.
fn block(written: &[(u64, u64, u8)]) -> Vec<u8> {
    let mut bytes = vec![0x11; BLOCK as usize];
    for (from, to, fill) in written {
        bytes[(from * SECTOR) as usize..(to * SECTOR) as usize].fill(*fill);
    }
    bytes
}

fn write(s: &mut Story, at: u64, written: &[(u64, u64, u8)]) {
    for (from, to, fill) in written {
        s.write(at + from * SECTOR, (to - from) * SECTOR, *fill);
    }
}

/// The disk used to be read before such a write was answered, for there was no way to land less than a block.
#[test]
fn a_sector_is_written_without_waiting_for_the_disk() {
    let (mut s, at) = begin();
    s.world.rates.reads = 1;
    write(&mut s, at, &[(1, 2, 0x22)]);
    s.world.rates.reads = 0;
    assert_eq!(s.read(at, BLOCK), Ok(block(&[(1, 2, 0x22)])));
}

#[test]
fn what_landed_of_a_block_is_read_without_the_disk() {
    let (mut s, at) = begin();
    write(&mut s, at, &[(2, 6, 0x22)]);
    let before = s.engine().status().tiers[1].read_bytes;
    assert_eq!(s.read(at + 3 * SECTOR, 2 * SECTOR), Ok(vec![0x22; 1024]));
    assert_eq!(s.engine().status().tiers[1].read_bytes, before);
}

/// Parts that land one after the other add up, are there after a crash, and end in the block's home. A write that begins
/// in the middle of a sector needs that sector's other bytes, from wherever they are.
#[test]
fn parts_add_up_and_are_merged() {
    let (mut s, at) = begin();
    let parts = [(1, 2, 0x22), (4, 6, 0x33), (5, 7, 0x44)];
    write(&mut s, at, &parts);
    let mut whole = block(&parts);
    s.write(at + 300, 500, 0x55);
    whole[300..800].fill(0x55);
    s.write(at + BLOCK - SECTOR, SECTOR + BLOCK + SECTOR, 0x66);
    whole[(BLOCK - SECTOR) as usize..].fill(0x66);
    s.flush();
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole));
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole));
    assert_eq!(s.read(at + BLOCK, BLOCK), Ok(vec![0x66; BLOCK as usize]));
    s.wait(5 * Nanos::SECOND);
    assert!(s.is_slow(at), "it is merged");
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole));
    let mut next = vec![0; BLOCK as usize];
    next[..SECTOR as usize].fill(0x66);
    assert_eq!(s.read(at + 2 * BLOCK, BLOCK), Ok(next), "nothing was there before");
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
}

/// A merge overwrites the whole block where it lies, of which the log holds a part. A crash in the middle of it leaves
/// some sectors new and some old, which matches neither the checksum from before nor the one that was to be recorded: the
/// sectors that nobody wrote would have been refused for ever, though they are as they were. So what they are is in the
/// log before the merge begins.
#[test]
fn a_crash_in_the_middle_of_a_merge_takes_nothing() {
    let (mut s, at) = begin();
    let parts = [(0, 3, 0x22), (6, 7, 0x33)];
    write(&mut s, at, &parts);
    s.flush();
    s.die(Death::Kill);
    let disks = s.world.disks.clone();
    let mut torn = 0;
    for (steps, style) in (0..8).flat_map(|steps| CutStyle::ALL.map(|style| (steps, style))) {
        torn += u32::from(survives(&disks, at, &parts, steps, style));
    }
    assert!(torn > 2, "{torn} of them left the block torn");
}

/// Crashes so many steps after the merge began to write; gives whether the block was left torn.
fn survives(disks: &[Disk], at: u64, parts: &[(u64, u64, u8)], steps: u32, style: CutStyle) -> bool {
    let mut s = Story::with(disks.to_vec());
    s.open().expect("the volume opens");
    s.until_stage(Stage::MoveWrite);
    for _ in 0..steps {
        s.step();
    }
    s.die(Death::PowerCut(style));
    let (old, new) = (block(&[]), block(parts));
    let torn = find(&s.world.disks[1], |found| {
        let of_either = |(i, byte): (usize, &u8)| *byte == old[i] || *byte == new[i];
        found != old && found != new && found[..16] != [0; 16] && found.iter().enumerate().all(of_either)
    });
    for _ in 0..2 {
        s.open().expect("the volume opens");
        assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&new), "{style:?} after {steps} steps");
        // More of a block whose home may be torn.
        write(&mut s, at, &[(7, 8, 0x44)]);
        let more = block(&[parts, &[(7, 8, 0x44)]].concat());
        assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&more), "{style:?} after {steps} steps");
        s.die(Death::PowerCut(CutStyle::LoseAll));
    }
    s.open().expect("the volume opens");
    s.wait(5 * Nanos::SECOND);
    assert!(s.is_slow(at), "it is merged");
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&new), "{style:?} after {steps} steps");
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()), "{style:?} after {steps} steps");
    torn.is_some()
}

/// A crash in the middle of a merge left the home of a part torn. Then the same sectors, and more of the block, are written
/// again and again, as a database does with the head of its log: each time the part lands anew at the head of the log. What
/// said how to tell the rest of the block from garbage stayed behind; once the log's tail had gone past it, the volume went
/// on well enough, but the next opening knew nothing of it, refused the block, and in the end gave it up with all that was
/// flushed. So a part says it again.
#[test]
fn what_tells_a_torn_home_goes_with_the_part() {
    let mut s = Story::begin_with_zone(64, 64, 32);
    let at = s.slow_chunk();
    write(&mut s, at, &[(0, 1, 0x22)]);
    s.flush();
    s.until_stage(Stage::MoveFlushData);
    s.die(Death::PowerCut(CutStyle::KeepAll));
    let merged = block(&[(0, 1, 0x22)]);
    assert!(
        find(&s.world.disks[1], |found| found == merged).is_some(),
        "the home is written, and no record says so"
    );

    // Nothing is merged but what has to be.
    s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
    s.open().expect("the volume opens");
    for round in 0..45 {
        write(&mut s, at, &[(1, 2, round)]);
    }
    // Its checkpoint lets the log's tail go to where the newest part is.
    s.stop();
    assert!(find(&s.world.disks[1], |found| found == merged).is_some(), "it was not merged");
    s.open().expect("the volume opens");
    let whole = block(&[(0, 1, 0x22), (1, 2, 44)]);
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole));
    s.die(Death::Kill);
    s.tuning.idle_after_ns = 10 * Nanos::MS;
    s.open().expect("the volume opens");
    s.wait(10 * Nanos::SECOND);
    assert!(s.is_slow(at), "it is merged");
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&whole));
}

/// A volume of an earlier version is of this one before anything lands: a program that knows no parts would take one for a
/// whole block.
#[test]
fn a_volume_of_the_version_before_is_raised_when_it_is_opened() {
    let mut s = Story::begin_without_fast_pages(32, 32);
    let at = s.slow_chunk();
    s.stop();
    let ends = |disk: &Disk| [0, disk.size_bytes() / BLOCK - 1];
    for disk in &mut s.world.disks {
        for at in ends(disk) {
            let mut bytes = get(disk, at, 1);
            assert_eq!(bytes[FORMAT_AT], FORMAT_WITHOUT_MARKS as u8);
            bytes[FORMAT_AT] = 1;
            reseal(&mut bytes);
            put(disk, at, &bytes);
        }
    }
    s.open().expect("the volume opens");
    assert_eq!(s.read(at, BLOCK), Ok(block(&[])));
    s.die(Death::PowerCut(CutStyle::LoseAll));
    for disk in &s.world.disks {
        for at in ends(disk) {
            assert_eq!(get(disk, at, 1)[FORMAT_AT], FORMAT_WITHOUT_MARKS as u8);
        }
    }
}

fn find(disk: &Disk, wanted: impl Fn(&[u8]) -> bool) -> Option<u64> {
    let mut bytes = vec![0; BLOCK as usize];
    (0..disk.size_bytes() / BLOCK).find(|page| disk.peek(*page, &mut bytes) && wanted(&bytes))
}

/// A write that begins and ends in the middle of a block leaves room in two blocks of the log for what it needs one of.
#[test]
fn two_parts_share_a_block_of_the_log() {
    let (mut s, at) = begin_with_neighbours();
    let before = s.engine().status().log_payload_bytes;
    s.write(at + BLOCK / 2, 2 * BLOCK, 0x22);
    assert_eq!(s.engine().status().log_payload_bytes - before, 2 * BLOCK);
    // More of the one lands elsewhere, and leaves the other where it is.
    write(&mut s, at, &[(1, 3, 0x33)]);
    let whole =
        [block(&[(4, 8, 0x22), (1, 3, 0x33)]), block(&[(0, 8, 0x22)]), block(&[(0, 4, 0x22)])].concat();
    s.flush();
    for opened in 0..2 {
        assert_eq!(s.read(at, 3 * BLOCK).as_ref(), Ok(&whole), "{opened}");
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("the volume opens");
    }
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
    s.open().expect("the volume opens");
    s.wait(5 * Nanos::SECOND);
    assert!(s.is_slow(at), "it is merged");
    assert_eq!(s.read(at, 3 * BLOCK).as_ref(), Ok(&whole));
    s.stop();
    assert_eq!(s.check(), Ok(Vec::new()));
}

/// A volume with a chunk on the slow tier whose first three blocks are full of 0x11, and where that chunk is.
fn begin_with_neighbours() -> (Story, u64) {
    let (mut s, at) = begin();
    s.write(at + BLOCK, 2 * BLOCK, 0x11);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(at + 2 * BLOCK), "it is merged");
    (s, at)
}

/// Of two parts in one block of the log, the disk cannot read what is beneath the one. The other one, which was good each
/// time, used to be taken for it: nothing was ever given up, and both held the zone for ever.
#[test]
fn a_good_part_does_not_speak_for_the_other_in_its_block() {
    let (mut s, at) = begin_with_neighbours();
    let lies = find(&s.world.disks[1], |found| found.iter().all(|byte| *byte == 0x11)).expect("it is there");
    s.world.disks[1].add_bad_sector(lies * 8 + 1);
    s.write(at + BLOCK / 2, BLOCK, 0x22);
    s.flush();
    for _ in 0..60 {
        s.wait(Nanos::SECOND);
        assert_eq!(s.read(at + 2 * BLOCK, BLOCK), Ok(block(&[])), "the disk reads other blocks");
    }
    assert_eq!(s.read(at, BLOCK), Err(RequestError::Io));
    assert!(s.is_slow(at + BLOCK), "it is merged");
    assert_eq!(s.read(at + BLOCK, BLOCK), Ok(block(&[(0, 4, 0x22)])));
}

/// The disk cannot read a block any more of which a sector was written. What was written is there; the rest is an error, and
/// is given up in the end, or it would hold the zone for ever.
#[test]
fn a_part_of_what_cannot_be_read_does_not_hold_the_zone() {
    let (mut s, at) = begin();
    s.write(at + CHUNK / 2, BLOCK, 0x77);
    s.flush();
    s.wait(Nanos::SECOND);
    let lies = find(&s.world.disks[1], |found| found.iter().all(|byte| *byte == 0x11)).expect("it is there");
    s.world.disks[1].add_bad_sector(lies * 8 + 5);
    write(&mut s, at, &[(0, 1, 0x22)]);
    s.flush();
    assert_eq!(s.read(at, SECTOR), Ok(vec![0x22; SECTOR as usize]));
    assert_eq!(s.read(at, BLOCK), Err(RequestError::Io));
    let mut events = Vec::new();
    for _ in 0..60 {
        s.wait(Nanos::SECOND);
        assert!(s.is_slow(at + CHUNK / 2), "the disk reads other blocks");
        events.extend(s.engine().take_events().into_iter().map(|event| event.message));
    }
    let lost = |event: &&String| event.contains("sectors of a block are lost; they were on slow at byte");
    assert_eq!(events.iter().filter(lost).count(), 1, "{events:#?}");
    assert_eq!(s.read(at, SECTOR), Ok(vec![0x22; SECTOR as usize]));
    assert_eq!(s.read(at, BLOCK), Err(RequestError::Io));
    s.write(at, BLOCK, 0x88);
    assert_eq!(s.read(at, BLOCK), Ok(vec![0x88; BLOCK as usize]));
}

/// A crash came in the middle of a merge: what is beneath the part may be torn, and is told from garbage by its other sectors,
/// which are zeros. Then a bit flips in the part itself, whose other sectors are zeros as well, and mean nothing. They used
/// to excuse it: its rotten bytes were read, and written on under a checksum that was good again.
#[test]
fn a_rotten_part_is_not_excused_by_what_is_beneath_it() {
    let (mut s, at) = begin();
    let at = at + BLOCK;
    s.write(at, BLOCK, 0);
    s.flush();
    s.wait(Nanos::SECOND);
    assert!(s.is_slow(at), "it is merged");
    write(&mut s, at, &[(0, 3, 0x22)]);
    s.flush();
    s.until_stage(Stage::MoveFlushData);
    s.die(Death::PowerCut(CutStyle::KeepAll));
    s.tuning.idle_after_ns = 3600 * Nanos::SECOND;
    s.open().expect("the volume opens");
    let mut good = vec![0; BLOCK as usize];
    good[..3 * SECTOR as usize].fill(0x22);
    assert_eq!(s.read(at, BLOCK).as_ref(), Ok(&good));
    s.write(at + CHUNK / 2, BLOCK, 0x77);
    s.flush();
    s.wait(2 * Nanos::SECOND);
    s.die(Death::Kill);

    let mut bytes = vec![0; BLOCK as usize];
    let mut is_it = |at: &u64| s.world.disks[0].peek(*at, &mut bytes) && bytes == good;
    let lies = s.layout().zone().find(&mut is_it).expect("it has landed");
    let mut rotten = good.clone();
    rotten[2 * SECTOR as usize + 7] ^= 4;
    s.world.disks[0].put_back(lies, &rotten);
    s.open().expect("one block of a client keeps no volume closed");
    assert_eq!(s.read(at, BLOCK), Err(RequestError::Io), "the whole block");
    assert_eq!(s.read(at + 2 * SECTOR, SECTOR), Err(RequestError::Io), "what has landed of it");
    assert_eq!(s.read(at + 3 * SECTOR, SECTOR), Ok(vec![0; SECTOR as usize]), "what has not");
    assert_eq!(
        s.write_bytes(at + 2 * SECTOR + 100, &[0x33; 10]),
        Err(RequestError::Io),
        "a part of a sector"
    );
    s.write(at, BLOCK, 0x88);
    assert_eq!(s.read(at, BLOCK), Ok(vec![0x88; BLOCK as usize]), "written anew it is there");
}
