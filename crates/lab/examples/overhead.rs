//! What the lab itself costs: I/Os a second on a target that does nothing.

use bimetal_lab::job::{Job, Ops};
use bimetal_lab::load::{self, Going};
use bimetal_lab::target::Null;

fn main() {
    for (name, depth, read_percent) in [("reads", 1, 100), ("reads", 32, 100), ("writes", 32, 0)] {
        let mut job = Job::new(name, 0..1 << 40);
        (job.depth, job.ops) = (depth, Ops::ReadWrite { read_percent });
        (job.runtime_ns, job.time_based) = (Some(2_000_000_000), true);
        let ran = load::run(
            &mut Null::default(),
            &[job],
            &["null".to_owned()],
            0,
            1_000_000_000,
            &mut |_: &Going| true,
        );
        for ran in ran.expect("there is room") {
            let ios = ran.read.ios + ran.write.ios;
            println!(
                "{name} at depth {depth}: {:.2} million a second",
                ios as f64 * 1e3 / ran.elapsed_ns as f64
            );
        }
    }
}
