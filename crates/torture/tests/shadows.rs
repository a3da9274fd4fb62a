//! Shadows: what rose and was not written goes down again without being copied, and nobody ever notices otherwise.

use crate::story::{BLOCK, CHUNK, Story};
use bimetal_engine::action::RequestKind;
use bimetal_sim::scenario::Scenario;
use bimetal_torture::disk::CutStyle;
use bimetal_torture::world::Death;
use bimetal_units::{FAST, Nanos, SLOW, Tier};
use std::path::Path;

/// A chunk of the slow tier, by its place in the volume, of which all is 0x11; nothing else moves.
fn begin(fast_chunks: u64, slow_chunks: u64) -> (Story, u64) {
    let mut s = Story::begin(fast_chunks, slow_chunks);
    let chunk = s.slow_chunk();
    s.write(chunk, CHUNK, 0x11);
    s.flush();
    s.wait(5 * Nanos::SECOND);
    assert_eq!(s.engine().status().landed_bytes, 0, "it was merged into its slow home");
    (s, chunk)
}

fn tier(s: &mut Story, at: u64) -> Option<Tier> {
    let now = s.world.now();
    s.engine().why(now, at).expect("a chunk").home.map(|home| home.tier)
}

fn has_shadow(s: &mut Story, at: u64) -> bool {
    let now = s.world.now();
    s.engine().why(now, at).expect("a chunk").shadow_offset.is_some()
}

/// Pins the chunk to a tier, and goes on until it is there. True: the machine died before.
fn moved_or_dead(s: &mut Story, at: u64, to: Tier) -> bool {
    let now = s.world.now();
    s.engine().begin_pin(now, at, CHUNK, Some(to)).expect("it may be pinned");
    let mut answered = false;
    while !answered || tier(s, at) != Some(to) {
        if s.step_or_crash() {
            return true;
        }
        answered |= s.engine().take_pin_answer().is_some_and(|answer| answer.is_ok());
    }
    false
}

fn to(s: &mut Story, at: u64, tier: Tier) {
    assert!(!moved_or_dead(s, at, tier));
    s.wait(Nanos::SECOND);
}

/// Bytes written to the slow device, flushes of it, and chunks that went down without being copied.
fn slow_work(s: &mut Story) -> (u64, u64, u64) {
    let status = s.engine().status();
    (status.tiers[1].device_written_bytes, status.tiers[1].flushes, status.shadow_demoted_chunks)
}

fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}

fn deaths() -> impl Iterator<Item = Death> {
    CutStyle::ALL.into_iter().map(Death::PowerCut).chain([Death::Kill])
}

#[test]
fn what_rose_and_was_not_written_goes_down_without_a_write_to_the_slow_device() {
    let (mut s, chunk) = begin(32, 64);
    to(&mut s, chunk, FAST);
    let status = s.engine().status();
    assert!(has_shadow(&mut s, chunk));
    assert_eq!(status.shadowed_bytes, CHUNK);
    let before = slow_work(&mut s);
    // Reads change nothing of it, and are fast.
    assert!(!s.is_slow(chunk));
    to(&mut s, chunk, SLOW);
    assert_eq!(slow_work(&mut s), (before.0, before.1, before.2 + 1));
    assert_eq!(s.engine().status().shadowed_bytes, 0);
    // It is there, with its checksums, now and after a crash.
    for _ in 0..2 {
        assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
        s.die(Death::PowerCut(CutStyle::LoseAll));
        assert_eq!(s.check().expect("it can be checked"), [""; 0]);
        s.open().expect("it opens");
    }
    assert_eq!(tier(&mut s, chunk), Some(SLOW));
}

#[test]
fn what_was_written_meanwhile_is_copied() {
    let (mut s, chunk) = begin(32, 64);
    for round in 0..3u8 {
        to(&mut s, chunk, FAST);
        let before = slow_work(&mut s);
        s.write(chunk + BLOCK, BLOCK, 0x20 + round);
        assert!(!has_shadow(&mut s, chunk), "it ends before the write is answered");
        assert_eq!(s.engine().status().shadowed_bytes, 0);
        to(&mut s, chunk, SLOW);
        let after = slow_work(&mut s);
        assert_eq!((after.0 - before.0, after.2), (CHUNK, before.2));
        let read = s.read(chunk, CHUNK).expect("it is read");
        assert!(all(&read[BLOCK as usize..2 * BLOCK as usize], 0x20 + round));
        assert!(all(&read[2 * BLOCK as usize..], 0x11));
    }
}

/// What is discarded of the chunk goes down as zeros; with the rest of it, the shadow goes.
#[test]
fn a_discard_is_not_undone_by_a_shadow() {
    let (mut s, chunk) = begin(32, 64);
    to(&mut s, chunk, FAST);
    let before = slow_work(&mut s);
    let discard = |s: &mut Story, from: u64, blocks: u64| {
        let at = chunk + from * BLOCK;
        let asked = s.ask(RequestKind::Discard { fua: false }, at, blocks * BLOCK, 0);
        s.answer(asked).expect("a discard succeeds");
    };
    discard(&mut s, 3, 2);
    to(&mut s, chunk, SLOW);
    assert_eq!(slow_work(&mut s).0, before.0);
    for crash in [false, true] {
        if crash {
            s.die(Death::PowerCut(CutStyle::LoseAll));
            s.open().expect("it opens");
        }
        let read = s.read(chunk, CHUNK).expect("it is read");
        for (block, bytes) in read.chunks_exact(BLOCK as usize).enumerate() {
            assert!(all(bytes, if (3..5).contains(&block) { 0 } else { 0x11 }), "block {block}");
        }
    }
    to(&mut s, chunk, FAST);
    assert!(has_shadow(&mut s, chunk));
    let used = s.engine().status().tiers[1].used_bytes;
    discard(&mut s, 0, CHUNK / BLOCK);
    s.flush();
    let status = s.engine().status();
    assert_eq!((status.shadowed_bytes, status.tiers[1].used_bytes), (0, used), "its slot counted as free");
    assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0));
}

/// Writes the whole volume but for the first chunks, which are written when some of the last have risen: their shadows
/// have all that is free on the slow tier then.
#[test]
fn shadows_give_way_at_once_and_nobody_waits_or_fails() {
    let mut s = Story::begin(40, 100);
    let chunks = s.engine().size_bytes() / CHUNK;
    let late = 14;
    let byte = |chunk: u64| chunk as u8 | 1;
    for chunk in late..chunks {
        s.write(chunk * CHUNK, CHUNK, byte(chunk));
    }
    s.flush();
    s.wait(20 * Nanos::SECOND);
    let free = |s: &mut Story| {
        let tier = &s.engine().status().tiers[1];
        tier.size_bytes - tier.used_bytes
    };
    let before = free(&mut s);
    let risen: Vec<u64> = (late..chunks).filter(|c| tier(&mut s, c * CHUNK) == Some(SLOW)).take(8).collect();
    for chunk in &risen {
        to(&mut s, chunk * CHUNK, FAST);
    }
    let shadowed = s.engine().status().shadowed_bytes;
    assert!(shadowed >= 4 * CHUNK, "{shadowed} bytes of shadows");
    assert_eq!(free(&mut s), before, "as many rose as went down, and shadows count as free");
    let began = s.world.now();
    for chunk in 0..late {
        s.write(chunk * CHUNK, CHUNK, byte(chunk));
    }
    s.flush();
    assert!(s.world.now().since(began) < 5 * Nanos::SECOND, "nobody waits");
    s.wait(60 * Nanos::SECOND);
    let status = s.engine().status();
    assert_eq!(status.landed_bytes, 0, "everything has a home");
    assert_eq!(status.shadowed_bytes, 0);
    assert!(free(&mut s) < shadowed, "homes have taken their places");
    for crash in [false, true] {
        if crash {
            s.die(Death::PowerCut(CutStyle::LoseAll));
            assert_eq!(s.check().expect("it can be checked"), [""; 0]);
            s.open().expect("it opens");
        }
        for chunk in 0..chunks {
            let read = s.read(chunk * CHUNK, CHUNK).expect("it is read");
            assert!(all(&read, byte(chunk)), "chunk {chunk}");
        }
    }
}

/// Whether the machine dies before the request is answered.
fn asked_or_dead(s: &mut Story, kind: RequestKind, at: u64, len: u64, fill: u8) -> bool {
    let asked = s.ask(kind, at, len, fill);
    while s.take_answer(&asked).is_none() {
        if s.step_or_crash() {
            return true;
        }
        s.collect_answers();
    }
    false
}

/// What the second block of a chunk held when the machine died, or it all ended.
struct Life {
    flushed: u8,
    written: u8,
    died: bool,
}

impl Life {
    /// The chunk rises, is written or not, goes down, rises, and goes down once more.
    fn of(s: &mut Story, chunk: u64, writes: bool) -> Life {
        let mut life = Life { flushed: 0x11, written: 0x11, died: false };
        for fill in [0x22, 0x33] {
            life.died = life.died || moved_or_dead(s, chunk, FAST);
            if writes && !life.died {
                life.written = fill;
                life.died = asked_or_dead(s, RequestKind::Write { fua: false }, chunk + BLOCK, BLOCK, fill)
                    || asked_or_dead(s, RequestKind::Flush, 0, 0, 0);
                life.flushed = if life.died { life.flushed } else { fill };
            }
            life.died = life.died || moved_or_dead(s, chunk, SLOW);
        }
        life
    }

    fn allows(&self, block: usize, bytes: &[u8]) -> bool {
        let either = |sector: &[u8]| all(sector, self.flushed) || all(sector, self.written);
        if block == 1 { bytes.chunks(512).all(either) } else { all(bytes, 0x11) }
    }
}

/// The machine dies before the first step of such a life, before the third, and so on, in every way it can: each time the
/// chunk has what was flushed, or what was written since.
#[test]
fn the_newest_is_found_whenever_the_machine_dies() {
    let (mut s, chunk) = begin(32, 48);
    s.stop();
    let whole = s.world.disks.clone();
    let (mut cycles, mut shadowed) = (0, 0);
    for (death, writes) in deaths().flat_map(|death| [(death, false), (death, true)]) {
        for fuse in (0..).step_by(2) {
            s.world.disks = whole.clone();
            s.open().expect("it opens");
            s.world.fuse = Some(fuse);
            let life = Life::of(&mut s, chunk, writes);
            if !life.died {
                shadowed += s.engine().status().shadow_demoted_chunks;
            }
            s.world.fuse = None;
            s.die(death);
            cycles += 1;
            let told = format!("{death:?} at step {fuse}, written: {writes}");
            assert_eq!(s.check().expect("it can be checked"), [""; 0], "{told}");
            s.open().expect("it opens after the crash");
            let read = s.read(chunk, CHUNK).expect("it is read");
            for (block, bytes) in read.chunks_exact(BLOCK as usize).enumerate() {
                assert!(life.allows(block, bytes), "{told}: block {block}, {:#x}", bytes[0]);
            }
            s.die(Death::Kill);
            if !life.died {
                break;
            }
        }
    }
    assert!(cycles > 300 && shadowed >= 6, "{cycles} deaths, {shadowed} times without a copy");
}

/// Nothing on the devices tells of shadows: after a crash, and after an orderly end, what rose before is copied.
#[test]
fn shadows_end_with_the_opening() {
    for orderly in [false, true] {
        let (mut s, chunk) = begin(32, 64);
        to(&mut s, chunk, FAST);
        assert!(has_shadow(&mut s, chunk));
        if orderly {
            s.stop()
        } else {
            s.die(Death::PowerCut(CutStyle::Whole))
        }
        assert_eq!(s.check().expect("it can be checked"), [""; 0]);
        s.open().expect("it opens");
        assert!(!has_shadow(&mut s, chunk));
        let before = slow_work(&mut s);
        to(&mut s, chunk, SLOW);
        assert_eq!(slow_work(&mut s).0 - before.0, CHUNK);
        assert!(all(&s.read(chunk, CHUNK).expect("it is read"), 0x11));
    }
}

/// Two working sets that take turns by the day, each nearly as large as the fast tier, read a lot and written in one part.
fn days() -> String {
    let volume = r#"
name = "days in turn"
[volume]
fast = { model = "ssd-128gb-2012", size = "1G" }
slow = { model = "disk-1tb-2012", size = "8G" }
[[phase]]
name = "fill"
load = [{ pattern = "sequential", block = "1M", depth = 2 }]
for = "70%"
"#;
    let day = |(from, number): (&str, u32)| {
        format!(
            r#"
[[phase]]
name = "day {number}"
load = [
    {{ pattern = "random", read_percent = 100, block = "16K", rate_iops = 60, from = "{from}", span = "7%" }},
    {{ pattern = "random", block = "16K", rate_iops = 3, from = "{from}", span = "1%" }},
]
seconds = 7200
[[phase]]
name = "night {number}"
pause_seconds = 50000
"#
        )
    };
    volume.to_owned() + &[("30%", 1), ("50%", 2), ("30%", 3), ("50%", 4)].map(day).concat()
}

#[test]
fn working_sets_that_take_turns_go_down_without_being_copied() {
    let scenario = Scenario::parse(&days()).expect("a scenario");
    let report = bimetal_sim::scenario::run(&scenario, Path::new("."), &mut |_, _| {}).expect("it runs");
    let later: Vec<_> = report.phases.iter().filter(|phase| phase.name.starts_with("day")).skip(1).collect();
    let [down, uncopied] = [
        later.iter().map(|phase| phase.demoted_bytes).sum::<u64>(),
        later.iter().map(|phase| phase.shadow_demoted_bytes).sum(),
    ];
    assert!(uncopied > down / 2, "{uncopied} of {down} bytes that went down");
}
