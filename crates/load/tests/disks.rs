//! Disks under load: how two readings of a data sheet differ, and what a change of size leaves alone.

use bimetal_load::{Bench, Job, Pattern, Until};
use bimetal_models::spec::{Spec, named};

/// A closed loop of 4 KiB writes anywhere, or of reads of 1 MiB one behind the other.
fn job(pattern: Pattern, depth: u32, from_byte: u64, span_bytes: u64) -> Job {
    let (read_percent, block_bytes) = if pattern == Pattern::Random { (0, 4096) } else { (100, 1 << 20) };
    Job { pattern, read_percent, block_bytes, depth, from_byte, span_bytes }
}

#[test]
fn the_two_readings_differ_twofold_between_near_neighbours() {
    let rate = |name: &str| {
        let mut bench = Bench::new(named(name).expect("a drive").build(1).expect("a disk"), 1);
        let job = job(Pattern::Random, 32, 0, 256 << 20);
        bench.run(&[job], Until::Bytes(500 * 4096));
        bench.run(&[job], Until::Bytes(4000 * 4096)).swap_remove(0).iops()
    };
    let ratio = rate("disk-1tb-2012-rotational") / rate("disk-1tb-2012");
    assert!((1.6..2.6).contains(&ratio), "{ratio}");
}

#[test]
fn a_resized_disk_is_as_quick_at_its_edges_and_over_all_of_it() {
    let figures = |spec: &Spec| {
        let mut bench = Bench::new(spec.build(1).expect("a disk"), 1);
        let (size, span) = (spec.size_bytes(), 1 << 28);
        let mut run = |job, bytes| bench.run(&[job], Until::Bytes(bytes)).swap_remove(0);
        let outer = run(job(Pattern::Sequential, 1, 0, span), span).mb_per_s();
        let inner = run(job(Pattern::Sequential, 1, size - span, span), span).mb_per_s();
        let anywhere = job(Pattern::Random, 16, 0, size);
        run(anywhere, 500 * 4096);
        [outer, inner, run(anywhere, 5000 * 4096).iops()]
    };
    for name in ["disk-1tb-2012", "disk-20tb"] {
        let whole = named(name).expect("a drive");
        let expected = figures(&whole);
        for size in [64 << 30, 300 << 30, whole.size_bytes() * 2] {
            let other = whole.resized(size);
            assert_eq!(other.size_bytes(), size, "{name}");
            for (figure, expected) in figures(&other).into_iter().zip(expected) {
                let error = figure / expected - 1.0;
                assert!(error.abs() < 0.03, "{name} at {size}: {figure}, not {expected}");
            }
        }
    }
}
