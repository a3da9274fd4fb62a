//! Bugs that lost data once, each told as the story in which it did.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;

/// A chunk lives on the slow tier. Its first block is written there, its last block has landed, and
/// the landed block is being merged: written to the slow slot, flushed, recorded, and the record is
/// about to be durable. Meanwhile the first block was discarded, so that for the map in memory, which
/// does not apply the record before it is durable, the slot is empty. Then the log fails for good and
/// the volume turns read-only. The merge ends unsuccessfully, and the empty slot was given back to
/// the device with a discard; but the record did become durable, so the next opening found the
/// merged block gone. A volume that failed must give nothing away.
#[test]
fn a_slot_that_a_durable_record_names_is_not_discarded_when_the_volume_fails() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    let last = chunk + CHUNK - BLOCK;
    s.write(last, BLOCK, 0x22);
    s.flush();
    s.until_stage(Stage::MoveWrite);
    // The slow device's flush takes long enough for the discard.
    s.world.services[1].flush_factor = 1000;
    let discard = s.ask(RequestKind::Discard { fua: false }, chunk, BLOCK, 0);
    s.answer(discard).expect("a discard succeeds");
    // The record is appended; its flush takes long enough for the log to fail for good.
    s.until_stage(Stage::MoveAppend);
    s.world.services[0].flush_factor = 10_000_000;
    s.until_stage(Stage::MoveFlushLog);
    s.world.rates.writes = 1;
    let lost = s.ask(RequestKind::Write { fua: false }, last - BLOCK, BLOCK, 0x33);
    s.answer(lost).expect_err("the log cannot be written");
    s.world.rates.writes = 0;
    s.wait(3600 * Nanos::SECOND);
    s.die(Death::PowerCut(CutStyle::KeepAll));
    s.open().expect("the volume opens");
    let block = s.read(last, BLOCK).expect("the merged block can be read");
    assert!(block.iter().all(|&b| b == 0x22), "the merged block holds {:#x}", block[0]);
}

/// A block has landed, flushed. Then the fast device fails every read for five seconds, while the idle
/// volume tries again and again to merge the block into its home. After three failures in a row it was
/// given up, a record said that it was lost, and from then on it read as an error although the device
/// had long recovered. What fails with everything else is no evidence against a block.
#[test]
fn a_landed_block_survives_a_bad_moment_of_its_device() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    let last = chunk + CHUNK - BLOCK;
    s.write(last, BLOCK, 0x22);
    s.flush();
    s.world.rates.reads = 1;
    s.wait(5 * Nanos::SECOND);
    s.read(last, BLOCK).expect_err("the device fails");
    s.world.rates.reads = 0;
    s.wait(5 * Nanos::SECOND);
    let block = s.read(last, BLOCK).expect("the device works again");
    assert!(block.iter().all(|&b| b == 0x22), "the block holds {:#x}", block[0]);
    assert_eq!(s.engine().status().landed_bytes, 0, "it was merged after all");
}

/// The fast device fails every write for some seconds. After three failed appends the volume used to
/// turn read-only until it was opened again. What goes through the log waits instead, nobody gets an
/// error, and nothing is lost.
#[test]
fn the_log_outlives_a_bad_moment_of_its_device() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.world.rates.writes = 1;
    let write = s.ask(RequestKind::Write { fua: true }, chunk + BLOCK, BLOCK, 0x33);
    s.wait(10 * Nanos::SECOND);
    assert_eq!(s.engine().status().state, "open");
    s.world.rates.writes = 0;
    s.answer(write).expect("the write succeeds in the end");
    s.die(Death::PowerCut(CutStyle::LoseAll));
    s.open().expect("the volume opens");
    let block = s.read(chunk + BLOCK, BLOCK).expect("the block can be read");
    assert!(block.iter().all(|&b| b == 0x33), "the block holds {:#x}", block[0]);
}

/// A device whose log cannot be written at all must not keep clients waiting for ever: the volume turns
/// read-only, and they get an error.
#[test]
fn a_log_that_never_works_again_ends_in_errors() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.world.rates.writes = 1;
    let write = s.ask(RequestKind::Write { fua: true }, chunk + BLOCK, BLOCK, 0x33);
    s.answer(write).expect_err("the log cannot be written");
    assert_eq!(s.engine().status().state, "read-only");
}

/// One discard of a whole new volume, as `mkfs` sends it, and nothing else. It covers more chunks than
/// are looked at in one call; chunks that hold nothing make no work for the devices, so no completion
/// called the engine again, and the request waited for ever.
#[test]
fn a_discard_of_many_blank_chunks_is_answered() {
    let mut s = Story::begin(48, 6000);
    let all = s.engine().size_bytes();
    assert!(all / CHUNK > 5000, "more chunks than one call looks at");
    let discard = s.ask(RequestKind::Discard { fua: false }, 0, all, 0);
    s.answer(discard).expect("a discard succeeds");
}

/// Many chunks are discarded, and then nothing happens. Slots used to be given back to the devices
/// a few at a time, whenever something else happened to call the engine.
#[test]
fn what_was_discarded_is_given_back_without_more_traffic() {
    let mut s = Story::begin(32, 1000);
    let zone = s.engine().status().landing_size_bytes;
    let all = s.engine().size_bytes() / CHUNK * CHUNK;
    for chunk in (0..all).step_by(CHUNK as usize) {
        s.write(chunk, CHUNK, 0x44);
    }
    s.flush();
    s.wait(20 * Nanos::SECOND);
    let used = |s: &mut Story| s.engine().status().tiers.iter().map(|t| t.used_bytes).sum::<u64>();
    assert!(used(&mut s) > 600 * CHUNK, "{} bytes are in use", used(&mut s));
    let discard = s.ask(RequestKind::Discard { fua: false }, 0, all, 0);
    s.answer(discard).expect("a discard succeeds");
    s.flush();
    s.wait(2 * Nanos::SECOND);
    // The log may go on in an area that it has borrowed.
    let borrowed = s.engine().status().landing_size_bytes - zone;
    assert_eq!(used(&mut s), borrowed);
}

/// Blocks of the fast device that hold pages of checksums.
fn checksum_pages(s: &Story) -> Vec<u64> {
    let disk = &s.world.disks[0];
    let mut bytes = vec![0; BLOCK as usize];
    let is_one = |block: &u64| {
        disk.read(block * BLOCK, &mut bytes).expect("the device is whole");
        // Magic, and behind the seal and the volume's identity the kind of page: 2.
        bytes.starts_with(b"BMTLpage") && bytes[32] == 2
    };
    (0..disk.size_bytes() / BLOCK).filter(is_one).collect()
}

/// A page of checksums goes bad. Every checkpoint that has to fold checksums into it failed, and after a few
/// the volume turned read-only: one bad sector stopped everything. The page is given up instead, once it is
/// clear that the device reads other things, and written anew.
#[test]
fn a_bad_page_of_checksums_does_not_stop_the_volume() {
    let mut s = Story::begin(24, 64);
    let chunk = s.slow_chunk();
    s.stop();
    let pages = checksum_pages(&s);
    assert!(!pages.is_empty(), "closing folds the checksums");
    pages.iter().for_each(|page| s.world.disks[0].add_bad_sector(page * 8));
    s.tuning.recent_checksums = 0;
    s.open().expect("the volume opens");
    s.read(chunk, BLOCK).expect_err("its checksum cannot be read");
    for round in 0..40 {
        s.write(chunk + BLOCK, CHUNK - BLOCK, 0x50 + round);
        s.flush();
        s.read(0, BLOCK).expect("the fast device can be read");
        s.wait(Nanos::SECOND);
    }
    assert_eq!(s.engine().status().state, "open");
    s.stop();
    s.open().expect("the volume opens again");
    let rest = s.read(chunk + BLOCK, CHUNK - BLOCK).expect("what was written since can be read");
    assert!(rest.iter().all(|&b| b == 0x50 + 39));
    s.read(chunk, BLOCK).expect_err("a block that nobody can vouch for is an error");
}

/// A flood of writes of zeros to parts of blocks on the slow tier. Each holds a buffer of the background's
/// for its block while it waits for the landing zone, and the zone is full. Together they held all of
/// them, so that no chunk could be moved out of the zone, and everybody waited for ever. The batch that
/// empties the zone has a buffer of its own.
#[test]
fn those_who_wait_for_the_zone_cannot_keep_it_from_being_emptied() {
    let mut s = Story::begin(24, 200);
    s.die(Death::Kill);
    s.memory_sizes.background = 4 * CHUNK as u32;
    s.open().expect("the volume opens");
    let chunk = s.slow_chunk();
    let blocks = (1..40).flat_map(|c| (0..16).map(move |b| chunk + c * CHUNK + b * BLOCK));
    let flood: Vec<_> =
        blocks.map(|at| s.ask(RequestKind::WriteZeroes { fua: false }, at + 512, 512, 0)).collect();
    for zero in flood {
        s.answer(zero).expect("a write of zeros succeeds");
    }
}
