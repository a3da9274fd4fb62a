//! The parameter files that come with the crate, and files that are wrong.

use bimetal_load::{Bench, Job, Pattern, Seen, Until};
use bimetal_models::device::{Command, Failure, Kind, Model};
use bimetal_models::spec::{Spec, named, names};
use bimetal_units::Nanos;

const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;

fn job(pattern: Pattern, read_percent: u64, block_bytes: u64, depth: u32, span_bytes: u64) -> Job {
    Job { pattern, read_percent, block_bytes, depth, from_byte: 0, span_bytes }
}

fn run(bench: &mut Bench<Box<dyn Model>>, job: Job, until: Until) -> Seen {
    bench.run(&[job], until).swap_remove(0)
}

fn near(what: &str, value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{what}: {value}, not from {low} to {high}");
}

#[test]
fn every_drive_builds_and_answers() {
    for name in names() {
        let spec = named(name).unwrap();
        let mut model = spec.build(1).unwrap();
        assert_eq!(model.size_bytes(), spec.size_bytes());
        let offset = spec.size_bytes() - 4096;
        model.submit(Nanos(5), 1, Command { kind: Kind::Read, offset, len: 4096 });
        let mut done = Vec::new();
        let mut last = None;
        while let Some(at) = model.deadline() {
            model.advance(at, &mut done);
            last = Some(at);
        }
        assert_eq!((done.len(), done[0].tag, Some(done[0].at)), (1, 1, last), "{name}");
        assert_eq!(Spec::parse(&spec.to_toml().unwrap()), Ok(spec.clone()), "{name}");
        let small = spec.resized(GIB);
        assert_eq!(small.build(1).unwrap().size_bytes(), GIB, "{name}");
    }
    let unknown = named("floppy").unwrap_err().to_string();
    assert!(
        unknown.starts_with("no modelled device is called 'floppy'; there are disk-1tb-2012,"),
        "{unknown}"
    );
}

#[test]
fn wrong_files_are_refused_in_a_sentence() {
    let text = include_str!("../../models/drives/nvme-present.toml");
    let refused = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Spec::parse(&text.replace(from, to)).expect_err(to).to_string()
    };
    for (from, to, message) in [
        ("channels = 8", "channels = 0", "flash.channels is 0, not from 1 to 256"),
        ("queue_depth = 1024", "queue_depth = 70000", "host.queue_depth is 70000, not from 1 to 65536"),
        ("page_bytes = 65_536", "page_bytes = 65_000", "flash.page_bytes is 65000, not a power of two"),
        ("flash_bytes = 1_099", "flash_bytes = 900", "flash_bytes is 900511627776, not from"),
        (
            "flash_bytes = 1_099_511_627_776",
            "flash_bytes = 1_002_000_000_000",
            "superblocks beyond size_bytes are 0, fewer than 12",
        ),
        (
            "mapping_unit_bytes = 4096",
            "mapping_unit_bytes = 131072",
            "ftl.mapping_unit_bytes is 131072, not from",
        ),
        (
            "pages_per_block = 512",
            "pages_per_block = 65536",
            "superblocks (flash_bytes / a block of every die) is",
        ),
        ("bits_per_cell = 3", "bits_per_cell = 1", "slc.bits_per_cell is 1, not from 2 to 6"),
        ("flush_ns =", "flush_us =", "not a parameter file: line 18: unknown field `flush_us`"),
        ("kind = \"ssd\"", "", "not a parameter file: missing field `kind`"),
        ("kind = \"ssd\"", "kind = \"tape\"", "not a parameter file: line 3: unknown variant `tape`"),
        ("read_command_ns = 950", "", "not a parameter file: line 8: missing field `read_command_ns`"),
    ] {
        let said = refused(from, to);
        assert!(said.starts_with(message) && !said.contains('\n'), "{to}: {said}");
    }
    let store = include_str!("../../models/drives/object-store.toml");
    let said = Spec::parse(&store.replace("requests_per_s = 3_500", "requests_per_s = 0")).unwrap_err();
    assert_eq!(said.to_string(), "requests_per_s is 0, not from 1 to 1000000000");
}

#[test]
fn the_present_nvme_is_fast_until_its_slc_cache_is_full() {
    // 40 GiB, of which 4 GiB at most are in the cache.
    let mut bench = Bench::new(named("nvme-present").unwrap().resized(40 * GIB).build(1).unwrap(), 1);
    let stream = job(Pattern::Sequential, 0, 128 << 10, 32, 20 * GIB);
    let cached = run(&mut bench, stream, Until::Bytes(2 * GIB));
    near("written into the cache, MB/s", cached.mb_per_s(), 5000.0, 6500.0);
    run(&mut bench, stream, Until::Bytes(4 * GIB));
    let direct = run(&mut bench, stream, Until::Bytes(8 * GIB));
    near("written past the cache, MB/s", direct.mb_per_s(), 1500.0, 2200.0);
    bench.rest(60 * SECOND);
    let again = run(&mut bench, stream, Until::Bytes(2 * GIB));
    near("written after a rest, MB/s", again.mb_per_s(), 5000.0, 6500.0);
    let reads = job(Pattern::Random, 100, 4096, 256, 8 * GIB);
    near("random reads, IOPS", run(&mut bench, reads, Until::Elapsed(SECOND)).iops(), 0.8e6, 1.1e6);
    let one = run(&mut bench, Job { depth: 1, ..reads }, Until::Elapsed(SECOND));
    near("one random read, us", one.reads.mean() / 1e3, 40.0, 90.0);
    let stream = Job { read_percent: 100, ..stream };
    near("read, MB/s", run(&mut bench, stream, Until::Elapsed(SECOND)).mb_per_s(), 6500.0, 7100.0);
}

#[test]
fn the_object_store_has_a_tail_fails_and_throttles() {
    let store = || Bench::new(named("object-store").unwrap().build(4).unwrap(), 1);
    let reads = job(Pattern::Random, 100, 128 << 10, 32, 64 * GIB);
    let seen = run(&mut store(), reads, Until::Elapsed(300 * SECOND));
    near("median, ms", seen.reads.value_at_quantile(0.5) as f64 / 1e6, 18.0, 21.0);
    near("p99.9, ms", seen.reads.value_at_quantile(0.999) as f64 / 1e6, 150.0, 2000.0);
    near("failed, of a million", 1e6 * seen.failures as f64 / seen.reads.len() as f64, 5.0, 50.0);
    let again = run(&mut store(), reads, Until::Elapsed(300 * SECOND));
    assert_eq!((seen.reads.mean(), seen.failures), (again.reads.mean(), again.failures));

    let stream = job(Pattern::Sequential, 100, 64 << 20, 1, 64 * GIB);
    near("one stream, MB/s", run(&mut store(), stream, Until::Elapsed(60 * SECOND)).mb_per_s(), 75.0, 90.0);
    let streams = Job { depth: 64, ..stream };
    near(
        "all streams, MB/s",
        run(&mut store(), streams, Until::Elapsed(60 * SECOND)).mb_per_s(),
        1000.0,
        1200.0,
    );
    let many = run(&mut store(), Job { depth: 256, block_bytes: 4096, ..reads }, Until::Elapsed(10 * SECOND));
    assert!(many.failures > 0, "nothing was refused");
    near("granted, a second", many.per_second(many.reads.len()), 3300.0, 3700.0);
}

/// Beside what was measured: docs/EXPERIMENTS.md.
#[test]
fn the_cluster_is_as_it_was_measured() {
    let seen = |pattern, read_percent, block_bytes, depth| {
        let mut bench = Bench::new(named("rbd-lan").unwrap().build(3).unwrap(), 1);
        run(&mut bench, job(pattern, read_percent, block_bytes, depth, GIB), Until::Elapsed(60 * SECOND))
    };
    let (random, stream) = (Pattern::Random, Pattern::Sequential);
    // Fewer than were measured in seconds without one that took long: two in a thousand do here.
    near("reads, depth 1, a second", seen(random, 100, 4096, 1).iops(), 2_700.0, 3_500.0);
    near("reads, depth 8, a second", seen(random, 100, 4096, 8).iops(), 4_000.0, 5_400.0);
    near("reads, depth 32, a second", seen(random, 100, 4096, 32).iops(), 4_400.0, 5_400.0);
    near("writes, depth 1, a second", seen(random, 0, 4096, 1).iops(), 120.0, 160.0);
    near("writes, depth 32, a second", seen(random, 0, 4096, 32).iops(), 3_000.0, 5_000.0);
    near("1 MiB read, depth 1, MB/s", seen(stream, 100, 1 << 20, 1).mb_per_s(), 220.0, 320.0);
    near("1 MiB read, depth 4, MB/s", seen(stream, 100, 1 << 20, 4).mb_per_s(), 230.0, 290.0);
    near("1 MiB written, depth 1, MB/s", seen(stream, 0, 1 << 20, 1).mb_per_s(), 55.0, 75.0);
    near("1 MiB written, depth 4, MB/s", seen(stream, 0, 1 << 20, 4).mb_per_s(), 200.0, 270.0);
    // It has no head: what is far away takes no longer.
    let (near_by, far) = (seen(stream, 100, 65536, 1), seen(random, 100, 65536, 1));
    near("at random, of in order", far.iops() / near_by.iops(), 0.97, 1.03);
}

#[test]
fn a_refused_request_says_so() {
    let text = include_str!("../../models/drives/object-store.toml")
        .replace("burst_requests = 700", "burst_requests = 1");
    let mut model = Spec::parse(&text).unwrap().build(1).unwrap();
    for tag in 0..2 {
        model.submit(Nanos(0), tag, Command { kind: Kind::Read, offset: 0, len: 4096 });
    }
    let mut done = Vec::new();
    while let Some(next) = model.deadline() {
        model.advance(next, &mut done);
    }
    assert_eq!(done[0].failure, Some(Failure::Throttled));
    assert_eq!((done[0].tag, done[1].tag, done[1].failure), (1, 0, None));
    assert_eq!(model.usage().reads, 1);
}
