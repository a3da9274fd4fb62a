//! How many requests the engine and its driver in virtual time do in a second of processor time: on devices whose own
//! models cost next to nothing, at the size of a hybrid drive of 2012.
//!
//!     cargo run --release -p bimetal-sim --example throughput

use bimetal_engine::options::{CreateOptions, Tuning};
use bimetal_load::{Bench, Job, Pattern, Until};
use bimetal_models::Model as _;
use bimetal_models::constant::{Constant, ConstantParams};
use bimetal_sim::timed::{TimedDevice, TimedVolume};
use std::time::Instant;

fn device(size_bytes: u64, latency_ns: u64, ns_per_kib: u64, units: u32) -> TimedDevice {
    TimedDevice::new(Box::new(Constant::new(ConstantParams { size_bytes, latency_ns, ns_per_kib, units })))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices = vec![device(121_000_000_000, 50_000, 2000, 16), device(1_000_000_000_000, 20_000, 6000, 1)];
    let volume = TimedVolume::create(devices, CreateOptions::new([7; 16]), Tuning::default())?;
    let size = volume.size_bytes();
    let mut bench = Bench::new(volume, 1);
    let gib = 1u64 << 30;
    let filled = size / 10 * 9 / gib * gib;
    let fill = Job {
        pattern: Pattern::Sequential,
        read_percent: 0,
        block_bytes: 1 << 20,
        depth: 4,
        from_byte: 0,
        span_bytes: filled,
    };
    let random = Job { pattern: Pattern::Random, block_bytes: 4096, depth: 32, ..fill };
    let ops = |ops: u64| Until::Bytes(ops * 4096);
    let runs = [
        ("fill, 1 MiB", fill, Until::Bytes(filled)),
        ("4 KiB reads, fast tier", Job { read_percent: 100, span_bytes: 64 * gib, ..random }, ops(4_000_000)),
        ("4 KiB writes, fast tier", Job { span_bytes: 64 * gib, ..random }, ops(4_000_000)),
        (
            "4 KiB reads, slow tier",
            Job { read_percent: 100, from_byte: filled / 2, span_bytes: filled / 2, ..random },
            ops(1_000_000),
        ),
        ("4 KiB writes, everywhere", random, ops(1_000_000)),
    ];
    for (name, job, until) in runs {
        let wall = Instant::now();
        let seen = bench.run(&[job], until).swap_remove(0);
        let ops = seen.reads.len() + seen.writes.len();
        let per_second = ops as f64 / wall.elapsed().as_secs_f64();
        let status = bench.model.status();
        println!(
            "{name:<26} {per_second:>9.0} requests/s of wall time, {:.0} s of virtual time; moved up {} down {}, {} MiB of tables",
            seen.elapsed_ns as f64 / 1e9,
            status.promoted_chunks,
            status.demoted_chunks,
            status.ram_bytes >> 20,
        );
    }
    Ok(())
}
