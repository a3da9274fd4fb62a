//! How many commands the models take in a second of processor time, load generator included:
//! `cargo run --release -p bimetal-models --example speed`.

use bimetal_load::{Bench, Job, Pattern, Until};
use bimetal_models::device::Model as _;
use bimetal_models::spec::{self, Spec};
use bimetal_models::ssd::Ssd;

const GIB: u64 = 1 << 30;

/// Runs a job over a span of so many bytes until so much is transferred, and prints the pace.
fn pace<M: bimetal_models::Model>(what: &str, bench: &mut Bench<M>, job: Job, bytes: u64) {
    let began = processor_ns();
    bench.run(&[job], Until::Bytes(bytes));
    let seconds = (processor_ns() - began) as f64 / 1e9;
    println!("{what:<48} {:>6.2} M commands/s", (bytes / job.block_bytes) as f64 / seconds / 1e6);
}

/// What this thread has had of a processor so far (Linux): a busy machine slows down the clock on the wall.
fn processor_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("nanoseconds come first")
}

fn main() {
    let random = |read_percent, span_bytes| Job {
        pattern: Pattern::Random,
        read_percent,
        block_bytes: 4096,
        depth: 32,
        from_byte: 0,
        span_bytes,
    };
    for name in spec::names() {
        let spec = spec::named(name).expect("a drive of our own");
        let Spec::Ssd(params) = spec else { continue };
        let mut bench = Bench::new(Ssd::new(params).expect("a drive of our own"), 1);
        println!("{name}");
        let stream = Job { pattern: Pattern::Sequential, block_bytes: 128 << 10, ..random(0, 16 * GIB) };
        pace("  sequential write, 128 KiB, fresh", &mut bench, stream, 16 * GIB);
        let blocks = Job { pattern: Pattern::Sequential, from_byte: 16 * GIB, ..random(0, 4 * GIB) };
        pace("  sequential write, 4 KiB, fresh", &mut bench, blocks, 4 * GIB);
        pace("  random read, 4 KiB, over 1 GiB", &mut bench, random(100, GIB), 8 * GIB);
        pace("  random read, 4 KiB, over 16 GiB", &mut bench, random(100, 16 * GIB), 16 * GIB);
        pace("  random write, 4 KiB, over 1 GiB", &mut bench, random(0, GIB), 8 * GIB);
        pace("  random write, 4 KiB, over 16 GiB", &mut bench, random(0, 16 * GIB), 16 * GIB);
        println!("  {} commands", bench.model.usage().reads + bench.model.usage().writes);
    }
}
