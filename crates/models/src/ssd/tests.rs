//! The translation layer keeps its books, whatever is asked of the drive.

use super::{BufferKind, Ssd, SsdParams};
use crate::device::{Command, Done, Kind, Model as _};
use crate::spec::{Spec, named};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

const MIB: u64 = 1 << 20;

/// A drive that comes with the crate, at so many bytes.
fn params(name: &str, size_bytes: u64) -> SsdParams {
    let Spec::Ssd(params) = named(name).expect("it comes with the crate").resized(size_bytes) else {
        panic!("{name} is no SSD")
    };
    params
}

fn write(offset: u64, len: u64) -> Command {
    Command { kind: Kind::Write { fua: false }, offset, len }
}

/// Asks for one thing and waits; what it took.
fn ask(ssd: &mut Ssd, now: &mut u64, command: Command) -> u64 {
    let mut done = Vec::new();
    ssd.advance(Nanos(*now), &mut done);
    ssd.submit(Nanos(*now), 7, command);
    let began = *now;
    while done.is_empty() {
        *now = ssd.deadline().expect("a command is in flight").0;
        ssd.advance(Nanos(*now), &mut done);
    }
    assert_eq!(done, [Done::ok(Nanos(*now), 7)]);
    *now - began
}

/// Runs random commands, some at the same time, some after a rest; the ends in their order. What is written and
/// discarded is noted in `mapped`, by unit.
fn mixed(ssd: &mut Ssd, seed: u64, commands: u64, mapped: &mut [bool]) -> Vec<(Done, u64)> {
    let unit = ssd.unit_bytes;
    let mut rng = Rng::new(seed, 0);
    let (mut now, mut done, mut submitted, mut ended) = (0, Vec::new(), Vec::new(), Vec::new());
    for tag in 0..commands {
        now += match rng.below(100) {
            0 => rng.below(20_000_000_000),
            1..30 => rng.below(2_000_000),
            _ => 0,
        };
        ssd.advance(Nanos(now), &mut done);
        let first = rng.below(mapped.len() as u64);
        let most = if rng.one_in(50) { 300 } else { 4 };
        let units = rng.range(1, most).min(mapped.len() as u64 - first);
        let range = first as usize..(first + units) as usize;
        let kind = match rng.below(20) {
            0 => Kind::Discard,
            1 => Kind::Flush,
            2 => Kind::Write { fua: true },
            3..8 => Kind::Read,
            _ => Kind::Write { fua: false },
        };
        match kind {
            Kind::Write { .. } => mapped[range].fill(true),
            Kind::Discard => mapped[range].fill(false),
            _ => {}
        }
        let (offset, len) = if kind == Kind::Flush { (0, 0) } else { (first * unit, units * unit) };
        ssd.submit(Nanos(now), tag, Command { kind, offset, len });
        submitted.push(now);
    }
    while let Some(next) = ssd.deadline() {
        ssd.advance(next, &mut done);
    }
    ended.extend(done.iter().map(|&done| (done, submitted[done.tag as usize])));
    ended
}

/// Drives of every kind of buffer, mapping and cache, at a size that collects garbage soon.
fn small_drives() -> Vec<SsdParams> {
    let mut all: Vec<SsdParams> =
        ["ssd-128gb-2012", "ssd-480gb-2012-pcie", "flash-card-2011", "laptop-2022", "nvme-present"]
            .into_iter()
            .map(|name| params(name, 256 * MIB))
            .collect();
    let mut protected = all[0].clone();
    protected.buffer.kind = BufferKind::Protected;
    protected.host.queue_depth = 1;
    all.push(protected);
    all
}

#[test]
fn every_unit_has_one_place_and_none_is_lost() {
    for params in small_drives() {
        let mut ssd = Ssd::new(params.clone()).expect("a drive");
        let mut mapped = vec![false; (params.size_bytes / ssd.unit_bytes) as usize];
        let what = &params.description;
        for seed in 0..3 {
            let mut fresh = Ssd::new(params.clone()).expect("a drive");
            std::mem::swap(&mut ssd, &mut fresh);
            mapped.fill(false);
            mixed(&mut ssd, seed, 60_000, &mut mapped);
            ssd.ftl.check();
            for (unit, &mapped) in mapped.iter().enumerate() {
                assert_eq!(ssd.ftl.lookup(unit as u32).is_some(), mapped, "{what}, seed {seed}: unit {unit}");
            }
        }
        assert!(ssd.moved_units > 0, "{what}: no garbage was collected");
    }
}

#[test]
fn each_command_ends_once_and_never_before_it_began() {
    for params in small_drives() {
        let mut ssd = Ssd::new(params.clone()).expect("a drive");
        let mut mapped = vec![false; (params.size_bytes / ssd.unit_bytes) as usize];
        let ended = mixed(&mut ssd, 9, 30_000, &mut mapped);
        let what = &params.description;
        assert!(ended.windows(2).all(|pair| pair[0].0.at <= pair[1].0.at), "{what}: out of order");
        assert!(ended.iter().all(|(done, began)| done.at.0 >= *began), "{what}: before its beginning");
        let mut tags: Vec<u64> = ended.iter().map(|(done, _)| done.tag).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..30_000), "{what}: not each once");
        let longest = ended.iter().map(|(done, began)| done.at.0 - began).max();
        // Everything may be asked at once: a queue of 256 MB is worked off at 10 MB/s at the least.
        assert!(longest < Some(60_000_000_000), "{what}: {longest:?} ns");
        let usage = ssd.usage();
        let last = ended.last().map(|(done, _)| done.at.0).expect("something ended");
        assert!(
            usage.busy_ns > 0 && usage.busy_ns <= last,
            "{what}: busy for {} of {last} ns",
            usage.busy_ns
        );
    }
}

#[test]
fn the_same_commands_end_at_the_same_times() {
    for params in small_drives() {
        let run = |seed| {
            let mut ssd = Ssd::new(params.clone()).expect("a drive");
            let mut mapped = vec![false; (params.size_bytes / ssd.unit_bytes) as usize];
            mixed(&mut ssd, seed, 20_000, &mut mapped)
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}

#[test]
fn a_flush_waits_for_the_flash_and_a_buffer_does_not() {
    let mut ssd = Ssd::new(params("ssd-128gb-2012", 256 * MIB)).expect("a drive");
    let program_ns = ssd.params.flash.program_ns;
    let mut now = 0;
    let flush = Command { kind: Kind::Flush, offset: 0, len: 0 };
    let buffered = ask(&mut ssd, &mut now, write(0, 4096));
    let flushed = ask(&mut ssd, &mut now, flush);
    let again = ask(&mut ssd, &mut now, flush);
    let forced = ask(&mut ssd, &mut now, Command { kind: Kind::Write { fua: true }, ..write(4096, 4096) });
    assert!(buffered < program_ns / 2, "{buffered}");
    assert!(flushed + buffered > program_ns, "{flushed}");
    assert!(again < flushed, "nothing was left to flush: {again}");
    assert!(forced > program_ns, "{forced}");

    let mut safe = params("ssd-128gb-2012", 256 * MIB);
    safe.buffer.kind = BufferKind::Protected;
    let mut ssd = Ssd::new(safe).expect("a drive");
    ask(&mut ssd, &mut now, write(0, 4096));
    assert!(ask(&mut ssd, &mut now, flush) < program_ns / 2);
}

#[test]
fn what_is_in_the_buffer_or_was_never_written_is_read_without_the_flash() {
    let mut ssd = Ssd::new(params("ssd-128gb-2012", 256 * MIB)).expect("a drive");
    let read = Command { kind: Kind::Read, offset: 0, len: 4096 };
    let mut now = 0;
    let unwritten = ask(&mut ssd, &mut now, read);
    ask(&mut ssd, &mut now, write(0, 4096));
    let buffered = ask(&mut ssd, &mut now, read);
    ask(&mut ssd, &mut now, Command { kind: Kind::Flush, offset: 0, len: 0 });
    let flash = ask(&mut ssd, &mut now, read);
    assert_eq!(unwritten, buffered);
    assert!(flash >= unwritten + ssd.params.flash.read_ns, "{flash} after {unwritten}");
}

#[test]
fn a_long_rest_is_caught_up_with_at_once_and_frees_flash() {
    let mut ssd = Ssd::new(params("ssd-128gb-2012", 1024 * MIB)).expect("a drive");
    let (mut rng, mut now) = (Rng::new(1, 1), 0);
    for block in 0..1024 {
        ask(&mut ssd, &mut now, write(block * MIB, MIB));
    }
    for _ in 0..100_000 {
        let offset = rng.below(1024 * MIB / 4096) * 4096;
        ask(&mut ssd, &mut now, write(offset, 4096));
    }
    let before = ssd.free_share();
    now += 3600 * Nanos::SECOND;
    let mut done = Vec::new();
    ssd.advance(Nanos(now), &mut done);
    ssd.ftl.check();
    assert!(ssd.free_share() > before, "{} after {before}", ssd.free_share());
    let busy = ssd.usage().busy_ns;
    now += 3600 * Nanos::SECOND;
    ssd.advance(Nanos(now), &mut done);
    assert_eq!(ssd.usage().busy_ns, busy, "what is done is done");
}

#[test]
fn any_parameters_within_their_bounds_make_a_drive_that_works() {
    let mut rng = Rng::new(11, 0);
    let mut built = 0;
    for round in 0..400 {
        let mut p = params("nvme-present", 256 * MIB).resized(rng.range(8, 64) * MIB);
        p.flash_bytes = p.size_bytes + p.size_bytes * rng.below(100) / 100;
        p.host.queue_depth = rng.range(1, 40) as u32;
        p.host.full_duplex = rng.one_in(2);
        p.buffer.kind = rng.pick(&[BufferKind::Volatile, BufferKind::Protected, BufferKind::WriteThrough]);
        p.flash.channels = rng.range(1, 5) as u32;
        p.flash.dies_per_channel = rng.range(1, 3) as u32;
        p.flash.page_bytes = 512 << rng.below(8);
        p.flash.pages_per_block = rng.range(1, 64) as u32;
        p.flash.overlapped_reads = rng.one_in(2);
        p.buffer.size_bytes = u64::from(p.flash.page_bytes) * rng.range(2, 100);
        p.ftl.mapping_unit_bytes = (512 << rng.below(8)).min(p.flash.page_bytes);
        p.ftl.collect_below_superblocks = rng.range(2, 6) as u32;
        p.ftl.background_free_percent = rng.below(90) as u32;
        p.slc = p.slc.filter(|_| rng.one_in(2));
        let Ok(mut ssd) = Ssd::new(p.clone()) else { continue };
        let mut mapped = vec![false; (p.size_bytes / ssd.unit_bytes) as usize];
        let ended = mixed(&mut ssd, round, 3000, &mut mapped);
        assert_eq!(ended.len(), 3000, "{p:?}");
        ssd.ftl.check();
        built += 1;
    }
    assert!(built > 100, "only {built} of 400 made a drive");
}
