//! Chunks that a stream writes in two parts: the second is made the write of the whole, from the memory of the first.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_engine::coverage::Stage;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::{Death, Service};
use bimetal_units::Nanos;

/// Where the requests of the stream meet in the chunk: not where blocks do.
const BORDER: u64 = 5 * BLOCK + 1536;

/// A volume on which a stream has written the beginning of a chunk at home on the slow tier; gives that chunk.
fn begun() -> (Story, u64) {
    Story::begin_streaming(BORDER, 0x33)
}

fn assert_reads(s: &mut Story, offset: u64, len: u64, byte: u8, told: &str) {
    let read = s.read(offset, len);
    let wrong = read.as_ref().map(|bytes| bytes.iter().position(|at| *at != byte));
    assert_eq!(wrong, Ok(None), "{told}: not all is {byte:#x}");
}

/// While the whole chunk was on its way to its new slot, some of what had been written before was discarded. The write of the
/// whole ended after that, and brought it back.
#[test]
fn what_is_discarded_while_the_whole_is_written_stays_discarded() {
    let (mut s, chunk) = begun();
    let slow =
        Service { min_ns: 20 * Nanos::MS, max_ns: 20 * Nanos::MS, per_kib_ns: 0, ..Service::default() };
    s.world.services = vec![Service::default(), slow];
    let rest = s.ask(RequestKind::Write { fua: false }, chunk + BORDER, CHUNK - BORDER, 0x33);
    s.until_stage(Stage::WriteStream);
    let discard = s.ask(RequestKind::Discard { fua: false }, chunk + BLOCK, 2 * BLOCK, 0);
    assert_eq!(s.answer(rest).map(drop), Ok(()));
    assert_eq!(s.answer(discard).map(drop), Ok(()));
    for told in ["at once", "after a crash"] {
        assert_reads(&mut s, chunk, BLOCK, 0x33, told);
        assert_reads(&mut s, chunk + BLOCK, 2 * BLOCK, 0, told);
        assert_reads(&mut s, chunk + 3 * BLOCK, CHUNK - 3 * BLOCK, 0x33, told);
        s.flush();
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("the volume opens");
    }
}

/// Somebody else wrote to the beginning before the stream came to the rest: what is in memory is not what is there.
#[test]
fn what_was_written_since_is_not_written_over_from_memory() {
    for kind in [RequestKind::Write { fua: false }, RequestKind::Discard { fua: false }] {
        let (mut s, chunk) = begun();
        let other = s.ask(kind, chunk + BLOCK, BLOCK, 0x44);
        assert_eq!(s.answer(other).map(drop), Ok(()));
        s.write(chunk + BORDER, CHUNK - BORDER, 0x33);
        let is = if kind == (RequestKind::Discard { fua: false }) { 0 } else { 0x44 };
        for told in ["at once", "after a crash"] {
            assert_reads(&mut s, chunk + BLOCK, BLOCK, is, told);
            assert_reads(&mut s, chunk + 2 * BLOCK, CHUNK - 2 * BLOCK, 0x33, told);
            s.flush();
            s.die(Death::PowerCut(CutStyle::LoseAll));
            s.open().expect("the volume opens");
        }
    }
}

/// A later stream began the same chunk anew, and waited for the sectors that the rest of the first one shared a block with. The
/// rest waited for what had been begun: for the later stream. Neither was answered.
#[test]
fn the_rest_of_a_chunk_waits_for_no_later_beginning() {
    let (mut s, chunk) = begun();
    let stalled = Service { min_ns: Nanos::MS, max_ns: Nanos::MS, per_kib_ns: 0, ..Service::default() };
    s.world.services = vec![stalled, Service::default()];
    let write =
        |s: &mut Story, from: u64, to: u64| s.ask(RequestKind::Write { fua: false }, from, to - from, 0x33);
    let parts = [(chunk - 2 * BLOCK, chunk), (chunk, chunk + BORDER)];
    let rest = [(chunk + BORDER, chunk + CHUNK)];
    let asked: Vec<_> =
        parts.iter().chain(&rest).chain(&parts).map(|(from, to)| write(&mut s, *from, *to)).collect();
    for one in asked {
        assert_eq!(s.answer(one).map(drop), Ok(()));
    }
    assert_reads(&mut s, chunk, CHUNK, 0x33, "at once");
}
