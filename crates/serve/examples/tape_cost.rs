//! What noting requests for plans takes of a processor, while the tape has room, is halved, or forgets the oldest.

use bimetal_engine::action::RequestKind;
use bimetal_serve::plan_tape::PlanTape;
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use std::hint::black_box;

const REQUESTS: u64 = 20_000_000;

/// What this process had of a processor so far, nanoseconds: others may share it, so the clock on the wall says little.
fn used_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the kernel tells");
    // Behind the name come the state, and ten fields later user and system time.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    ticks as f64 * 1e9 / rustix::param::clock_ticks_per_second() as f64
}

fn main() {
    for (what, regions, memory_bytes) in [
        ("a tape with room", 1 << 20, 1 << 30),
        ("8 MiB, of 1 TiB at random", 1 << 20, 8 << 20),
        ("8 MiB, of 2 GiB at random", 2048, 8 << 20),
    ] {
        let mut tape = PlanTape::new(memory_bytes, 1 << 40).expect("a tape");
        let mut rng = Rng::new(1, 0);
        let asked: Vec<u64> = (0..1 << 16).map(|_| rng.below(regions << 8) << 12).collect();
        let before = used_ns();
        for number in 0..REQUESTS {
            let kind = if number % 3 == 0 { RequestKind::Write { fua: false } } else { RequestKind::Read };
            let offset = asked[(number % (1 << 16)) as usize];
            tape.note(Nanos(number * 10_000), kind, black_box(offset), 4096);
        }
        let each = (used_ns() - before) / REQUESTS as f64;
        println!("{what}: {each:.1} ns a request");
    }
}
