//! Clean copies: what was read from the slow device is fast the next time, and nobody ever notices otherwise.

use crate::story::{BLOCK, CHUNK, Story, all};
use bimetal_engine::action::RequestKind;
use bimetal_sim::scenario::{Report, Scenario, run};
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use std::path::Path;

/// A volume with a slow chunk, of which the first half is written.
fn begin() -> (Story, u64) {
    let mut s = Story::begin(32, 64);
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK / 2, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0, "it was merged into its slow home");
    s.die(Death::Kill);
    s.open().expect("it opens, without copies");
    (s, chunk)
}

/// Bytes that clients read from copies.
fn from_copies(s: &mut Story) -> u64 {
    s.engine().status().copy_read_bytes
}

#[test]
fn the_second_read_of_a_slow_chunk_is_fast() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    assert!(all(&s.read(chunk, BLOCK).expect("it is read"), 0x11));
    s.wait(Nanos::SECOND);
    assert_eq!((from_copies(&mut s), s.engine().status().copied_bytes), (0, CHUNK));
    // Another block of the chunk: the first read took all of it along.
    assert!(all(&s.read(chunk + 3 * BLOCK, BLOCK).expect("it is read"), 0x11));
    assert_eq!(from_copies(&mut s), BLOCK);
}

/// The copy is still being written when the next block of the chunk is read: all of it is in memory, and the slow device,
/// which would take a second, is not asked again.
#[test]
fn what_is_read_while_a_copy_is_written_comes_from_memory() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    let first = s.ask(RequestKind::Read, chunk, BLOCK, 0);
    s.until_stage(bimetal_engine::coverage::Stage::CopyWrite);
    assert!(all(&s.answer(first).expect("it is read"), 0x11));
    for service in &mut s.world.services {
        (service.min_ns, service.max_ns) = (Nanos::SECOND, Nanos::SECOND);
    }
    let before = s.world.now();
    assert!(all(&s.read(chunk + 3 * BLOCK, BLOCK).expect("it is read"), 0x11));
    assert!(s.world.now().since(before) < Nanos::SECOND);
}

#[test]
fn a_write_shows_over_a_copy_and_ends_it_when_it_comes_home() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    s.read(chunk, BLOCK).expect("it is read");
    s.wait(Nanos::SECOND / 10);
    s.write(chunk + BLOCK, BLOCK, 0x22);
    for when in ["landed", "merged"] {
        let bytes = s.read(chunk, 3 * BLOCK).expect("it is read");
        let byte = |block: u64| bytes[(block * BLOCK) as usize];
        assert_eq!((byte(0), byte(1), byte(2)), (0x11, 0x22, 0x11), "{when}");
        s.flush();
        s.wait(10 * Nanos::SECOND);
        assert_eq!(s.engine().status().landed_bytes, 0, "all was merged");
    }
}

/// Slots with copies are free for whoever needs one: as many chunks are written first, and stay fast, as without copies.
#[test]
fn copies_give_way_to_first_writes() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    let free = s.engine().status().tiers[0].used_bytes;
    s.read(chunk, BLOCK).expect("it is read");
    s.wait(Nanos::SECOND);
    assert_eq!(s.engine().status().tiers[0].used_bytes, free, "a copy takes nothing away");
    for i in 0..3 {
        s.write(i * CHUNK, CHUNK, 0x30);
    }
    s.flush();
    for i in 0..3 {
        assert!(!s.is_slow(i * CHUNK), "first writes are fast");
    }
    assert!(all(&s.read(chunk, BLOCK).expect("it is still there"), 0x11));
}

/// The fast device has a copy, and what it holds rots: the checksums of the slow home say so, and what is read is right.
#[test]
fn a_copy_that_is_wrong_is_not_believed() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    s.read(chunk, BLOCK).expect("it is read");
    s.wait(Nanos::SECOND);
    assert_eq!(s.engine().status().copied_bytes, CHUNK, "the chunk was copied");
    let mut page = [0; BLOCK as usize];
    // The copy, and what the log had of these blocks until they were merged: nobody reads that any more.
    let pages = 0..s.world.disks[0].size_bytes() / BLOCK;
    let holds = |s: &Story, at: u64| {
        let mut page = [0; BLOCK as usize];
        s.world.disks[0].peek(at, &mut page);
        all(&page, 0x11)
    };
    let copy: Vec<u64> = pages.filter(|at| holds(&s, *at)).collect();
    assert!(copy.len() as u64 >= CHUNK / BLOCK / 2, "it is found on the device: {}", copy.len());
    for at in copy {
        s.world.disks[0].rot(at, &mut Rng::new(1, at));
        s.world.disks[0].peek(at, &mut page);
    }
    for block in 0..CHUNK / BLOCK / 2 {
        assert!(all(&s.read(chunk + block * BLOCK, BLOCK).expect("the slow home has it"), 0x11));
    }
}

/// No record tells of copies: after a crash the volume is as it would be without.
#[test]
fn copies_end_with_a_crash() {
    let (mut s, chunk) = begin();
    s.free_fast_slots();
    s.read(chunk, BLOCK).expect("it is read");
    s.wait(Nanos::SECOND);
    s.die(Death::PowerCut(CutStyle::Whole));
    assert_eq!(s.check().expect("it can be checked"), Vec::<String>::new());
    s.open().expect("it opens");
    assert_eq!(s.engine().status().copied_bytes, 0);
    assert!(all(&s.read(chunk, BLOCK).expect("it is read"), 0x11));
}

/// A fast tier of 512 MB and a slow one, of which a span is written; then reads here and there all over it, some places far
/// more often than others, in two phases of so many seconds.
fn read_here_and_there(slow: &str, span: &str, settle: &str, reads: &str, seconds: [u32; 2]) -> Report {
    let [first, second] = seconds;
    let reads =
        format!(r#"[{{ pattern = "zipf", theta = 1.2, read_percent = 100, span = "{span}", {reads} }}]"#);
    let text = format!(
        r#"
name = "reads here and there"
[volume]
fast = {{ model = "ssd-128gb-2012", size = "512M" }}
slow = {{ model = "disk-1tb-2012", size = "{slow}" }}
[[phase]]
name = "place"
load = [{{ pattern = "sequential", block = "1M", depth = 2, span = "{span}" }}]
for = "{span}"
{settle}
[[phase]]
name = "reads"
load = {reads}
seconds = {first}
[[phase]]
name = "reads after that"
load = {reads}
seconds = {second}
"#
    );
    let scenario = Scenario::parse(&text).expect("a scenario");
    run(&scenario, Path::new(""), &mut |_, _| {}).expect("it runs")
}

/// Reads of 4 KiB here and there over 7 GB, some places far more often than others, with an SSD of 512 MB. When whole chunks
/// were kept, of which one block is read, 76 % came from the SSD, at 409 reads a second, and it had 2.0 GB written to it.
#[test]
fn a_hot_set_that_is_spread_thin_fits_the_fast_tier() {
    let settle = "[[phase]]\nname = \"settle\"\npause_seconds = 60";
    let report = read_here_and_there("8G", "7G", settle, r#"block = "4K", depth = 4"#, [600, 120]);
    let share = report.phases[3].fast_share.expect("it was read");
    assert!(share > 0.87, "{share} from the SSD");
    let written: u64 = report.phases[2..].iter().map(|phase| phase.fast_written.expect("known").bytes).sum();
    assert!(written < 1 << 30, "{written} bytes written to the SSD");
}

/// Eight readers of 64 KiB here and there over 3 GB, the fast tier full of what was written first, and not a second of quiet.
/// When a tenth of the time went into moves one chunk at a time, each of them behind the eight, 135 MB had gone down after six
/// minutes to make room: 918 reads a second, 88 % from the SSD.
#[test]
fn a_hot_set_becomes_fast_while_many_read_it() {
    let report = read_here_and_there("5G", "3G", "", r#"block = "64K", depth = 8"#, [300, 60]);
    let reads = &report.phases[2];
    assert!(reads.iops > 1300.0, "{} reads a second", reads.iops);
    assert!(reads.fast_share.expect("it was read") > 0.91);
    let while_moving = report.phases[1].p99_us;
    assert!(while_moving < 130_000.0, "99 % within {while_moving} us: nobody pays for it with much waiting");
}

/// A volume whose fast slots all have homes in them, and a landing zone of 32 segments; and its chunks on the slow device.
fn full() -> (Story, Vec<u64>) {
    let mut s = Story::begin_with_zone(80, 64, 64);
    let chunks: Vec<u64> = (0..24).map(|i| i * CHUNK).collect();
    for (i, at) in chunks.iter().enumerate() {
        s.write(*at, CHUNK, i as u8 + 1);
        s.flush();
    }
    s.wait(60 * Nanos::SECOND);
    s.die(Death::Kill);
    s.open().expect("it opens, without copies");
    s.wait(60 * Nanos::SECOND);
    let slow: Vec<u64> = chunks.into_iter().filter(|at| s.is_slow(*at)).collect();
    (s, slow)
}

fn read_all(s: &mut Story, chunks: &[u64]) {
    // Not in their order: that would be a stream.
    for at in chunks.iter().step_by(2).chain(chunks.iter().skip(1).step_by(2)) {
        let byte = (at / CHUNK) as u8 + 1;
        assert!(all(&s.read(at + 5 * BLOCK, BLOCK).expect("it is read"), byte));
        s.wait(100 * Nanos::MS);
    }
}

/// Nothing lands, so free segments of the log's hold copies; when something does, they make way, and when the process dies
/// in the midst of that, opening finds what was written and nothing else.
#[test]
fn what_nothing_lands_in_holds_copies() {
    /// Enough to go through the landing zone.
    const WRITES: usize = 600;
    for steps in 0..20 {
        let (mut s, slow) = full();
        read_all(&mut s, &slow);
        read_all(&mut s, &slow);
        assert!(from_copies(&mut s) >= slow.len() as u64 * BLOCK, "the second time they come from copies");
        let mut asked = Vec::new();
        for i in 0..WRITES {
            // A read between the writes begins copies while segments are being recalled.
            let at = slow[i % slow.len()] + (i % 15) as u64 * BLOCK;
            asked.push(s.ask(RequestKind::Write { fua: true }, at, BLOCK, 0x70));
            let other = slow[(i + 1) % slow.len()];
            asked.push(s.ask(RequestKind::Read, other + CHUNK - BLOCK, BLOCK, 0));
            for _ in 0..steps {
                s.step();
            }
            for asked in asked.drain(..) {
                s.answer(asked).expect("it is answered");
            }
        }
        s.die(Death::PowerCut(CutStyle::LoseAll));
        s.open().expect("it opens");
        for (i, at) in slow.iter().enumerate() {
            let last = s.read(*at + CHUNK - BLOCK, BLOCK).expect("it is read");
            assert!(all(&last, (at / CHUNK) as u8 + 1), "chunk {i} at {at}");
        }
        for i in 0..WRITES {
            let at = slow[i % slow.len()] + (i % 15) as u64 * BLOCK;
            assert!(all(&s.read(at, BLOCK).expect("it is read"), 0x70), "what was written at {at}");
        }
    }
}
