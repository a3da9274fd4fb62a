//! Bugs that lost data once, each told as the story in which it did.

mod story;

use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_engine::units::Nanos;
use bimetal_sim::disk::CutStyle;
use bimetal_sim::world::Death;
use story::{BLOCK, CHUNK, Story};

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
    let chunks = s.engine().size_bytes() / CHUNK;
    let chunk = (0..chunks)
        .map(|c| c * CHUNK)
        .find(|&at| {
            s.write(at, BLOCK, 0x11);
            s.flush();
            s.wait(Nanos::SECOND);
            s.is_slow(at)
        })
        .expect("a chunk that begins on the slow tier");
    let last = chunk + CHUNK - BLOCK;
    s.write(last, BLOCK, 0x22);
    s.flush();
    s.until_stage(Stage::MoveWrite);
    let discard = s.ask(RequestKind::Discard { fua: false }, chunk, BLOCK, 0);
    s.answer(discard).expect("a discard succeeds");
    // The record is appended; its flush takes long enough for the log to fail for good.
    s.until_stage(Stage::MoveAppend);
    s.world.services[0].flush_factor = 10_000;
    s.until_stage(Stage::MoveFlushLog);
    s.world.rates.writes = 1;
    let lost = s.ask(RequestKind::Write { fua: false }, last - BLOCK, BLOCK, 0x33);
    s.answer(lost).expect_err("the log cannot be written");
    s.world.rates.writes = 0;
    s.wait(600 * Nanos::SECOND);
    s.die(Death::PowerCut(CutStyle::KeepAll));
    s.open().expect("the volume opens");
    let block = s.read(last, BLOCK).expect("the merged block can be read");
    assert!(block.iter().all(|&b| b == 0x22), "the merged block holds {:#x}", block[0]);
}
