//! A flash card under Orion's loads.

use super::{Claim, KIB, MIB, Rows, SECOND, alone, fill, random, sequential_write, ssd};
use crate::{Bench, Job, Until};
use bimetal_models::Model as _;
use bimetal_models::spec::SpecError;
use bimetal_models::ssd::Ssd;

/// The steps of a load ramp: commands in flight. The last is what 50,000 commands/s at 9.5 ms, the full load of E1,
/// are by Little's law.
const RAMP: [u32; 17] = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 96, 128, 192, 320, 475];

/// One step of a ramp.
struct Step {
    iops: f64,
    ms: f64,
}

/// Runs a job at each depth of the ramp.
fn ramp(bench: &mut Bench<Ssd>, job: Job, ns: u64) -> Vec<Step> {
    let step = |depth| {
        let seen = alone(bench, Job { depth, ..job }, Until::Elapsed(ns));
        Step { iops: seen.iops(), ms: seen.mean_ns() / 1e6 }
    };
    RAMP.into_iter().map(step).collect()
}

/// The IOPS at which the mean latency passes `ms`, on a straight line between two steps.
fn iops_at(steps: &[Step], ms: f64) -> f64 {
    let passed = steps.windows(2).find(|pair| pair[0].ms <= ms && pair[1].ms > ms);
    let Some([below, above]) = passed else { return 0.0 };
    below.iops + (above.iops - below.iops) * (ms - below.ms) / (above.ms - below.ms)
}

/// The limit: the least load that has all but 2 % of the most IOPS.
fn limit(steps: &[Step]) -> &Step {
    let most = steps.iter().map(|step| step.iops).fold(0.0, f64::max);
    steps.iter().find(|step| step.iops >= 0.98 * most).expect("a ramp has steps")
}

/// Orion's runs E1 to E6.
pub(super) fn flash_card() -> Result<Vec<Claim>, SpecError> {
    let mut rows = Rows::new("flash-card-2011");
    let mut bench = ssd(rows.name, 8)?;
    let size = bench.model.size_bytes();
    fill(&mut bench);
    card_reads(&mut rows, &mut bench, size);
    card_mixes(&mut rows, &mut bench, size);
    card_writes(&mut rows)?;
    Ok(rows.rows)
}

fn card_reads(rows: &mut Rows, bench: &mut Bench<Ssd>, size: u64) {
    rows.how("an eighth, filled in order; 8 KiB anywhere at 1 to 475 in flight, 2 s each");
    let steps = ramp(bench, random(8 * KIB, 100, 1, size), 2 * SECOND);
    let full = &steps[steps.len() - 1];
    rows.row("E1 8 KB random read at full load, IOPS", Some(50_000.0), full.iops);
    rows.row("E1 the same, MB/s", Some(400.0), full.iops * 8.192e-3);
    rows.row("E1 the same, latency, ms", Some(9.5), full.ms);
    rows.row("E1 8 KB random read where latency passes 1 ms, IOPS", Some(40_000.0), iops_at(&steps, 1.0));
    rows.how("the same with 4 KiB");
    let steps = ramp(bench, random(4 * KIB, 100, 1, size), 2 * SECOND);
    rows.row("E2 4 KB random read where latency passes 1 ms, IOPS", Some(70_000.0), iops_at(&steps, 1.0));
    rows.row("E2 the same, MB/s", Some(280.0), iops_at(&steps, 1.0) * 4.096e-3);
    rows.how("1 MiB in order, 1 to 16 in flight, 2 s each");
    let large = |depth| Job { depth, read_percent: 100, ..sequential_write(MIB, size / MIB * MIB) };
    let steps = [1, 2, 3, 4, 5, 6, 8, 12, 16].map(|depth| {
        let seen = alone(bench, large(depth), Until::Elapsed(2 * SECOND));
        Step { iops: seen.iops(), ms: seen.mean_ns() / 1e6 }
    });
    let limit = limit(&steps);
    rows.row("E3 1 MB sequential read, IOPS", Some(700.0), limit.iops);
    rows.row("E3 latency at the limit (reference: below 10), ms", None, limit.ms);
    rows.row("E3 latency at 16 in flight, ms", None, steps[steps.len() - 1].ms);
}

fn card_writes(rows: &mut Rows) -> Result<(), SpecError> {
    rows.how("an eighth, half filled in order; 8 KiB anywhere at 1 to 475 in flight, 60 s (an eighth) each, one after another");
    let mut bench = ssd(rows.name, 8)?;
    let size = bench.model.size_bytes();
    alone(&mut bench, sequential_write(128 * KIB, size / 2 / MIB * MIB), Until::Bytes(size / 2));
    let steps = ramp(&mut bench, random(8 * KIB, 0, 1, size), 60 * SECOND / 8);
    let best = limit(&steps);
    rows.row("E4 8 KB random write, peak, IOPS", Some(58_000.0), best.iops);
    rows.row("E4 the same, MB/s", Some(460.0), best.iops * 8.192e-3);
    rows.row("E4 latency at the peak, ms", Some(1.0), best.ms);
    let last = &steps[steps.len() - 1];
    rows.row("E4 at full load (reference: lower than the peak), IOPS", None, last.iops);
    Ok(())
}

fn card_mixes(rows: &mut Rows, bench: &mut Bench<Ssd>, size: u64) {
    rows.how("an eighth, filled in order; 8 KiB anywhere, 20 % writes, at 1 to 475 in flight, 2 s each");
    let mixed = random(8 * KIB, 80, 1, size);
    let steps = ramp(bench, mixed, 2 * SECOND);
    rows.row(
        "E5 8 KB random, 20 % writes, where latency passes 1 ms, IOPS",
        Some(45_000.0),
        iops_at(&steps, 1.0),
    );
    rows.row("E5 the same, MB/s", Some(360.0), iops_at(&steps, 1.0) * 8.192e-3);
    rows.how("the same beside a stream of 1 MiB reads in order, 4 in flight");
    let large = Job { read_percent: 100, depth: 4, ..sequential_write(MIB, size / MIB * MIB) };
    let mut together = Vec::new();
    let mut steps = Vec::new();
    for depth in RAMP {
        let seen = bench.run(&[Job { depth, ..mixed }, large], Until::Elapsed(2 * SECOND));
        let (iops, ms) = (seen[0].iops(), seen[0].mean_ns() / 1e6);
        let mb = seen[0].mb_per_s() + seen[1].mb_per_s();
        steps.push(Step { iops, ms });
        together.push(Step { iops: mb, ms });
    }
    rows.row(
        "E6 as E5 beside large sequential, where latency passes 1 ms, IOPS",
        Some(40_000.0),
        iops_at(&steps, 1.0),
    );
    rows.row("E6 both together there, MB/s", Some(580.0), iops_at(&together, 1.0));
    rows.row("E6 at the limit of the small ones, IOPS", None, limit(&steps).iops);
}
