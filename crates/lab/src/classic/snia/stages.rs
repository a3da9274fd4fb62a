//! Tests that are curves over time.

use super::loads::RANDOM_WRITE;
use super::run::{SniaPlan, Stage, StagePoint};
use crate::classic::cell::Cell;
use crate::classic::disktester::{Tester, TesterError};
use crate::job::Job;
use crate::load::LoadTarget;
use crate::record::JobRun;
use crate::stats::merged_side;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
/// Write saturation ends after so long, or when so many capacities are written.
const SATURATION: Duration = HOUR.saturating_mul(6);
const SATURATION_CAPACITIES: f64 = 4.0;
/// Host idle recovery: writes of 5 s, so many of them with a rest of each length, and without any rest between these.
const IDLE_WRITES: Duration = Duration::from_secs(5);
const IDLE_RESTS_S: [u64; 5] = [5, 10, 15, 25, 50];
const IDLE_CYCLES: f64 = 360.0;
/// Without a rest between two of those: half an hour.
const IDLE_BASELINE: Duration = Duration::from_secs(1800);
/// Cross stimulus recovery.
const CROSS_ORDERED: Duration = HOUR.saturating_mul(8);
const CROSS_RANDOM: Duration = HOUR.saturating_mul(6);
pub(super) const CROSS_DEPTH: u32 = 8;

/// What is written and when, so far.
struct Clock {
    written_bytes: u64,
    span_bytes: u64,
}

impl Clock {
    fn point(&mut self, ran: &JobRun) -> StagePoint {
        self.written_bytes += ran.write.bytes;
        let both = merged_side(&ran.read, &ran.write);
        let seconds = ran.elapsed_ns.max(1) as f64 / 1e9;
        StagePoint {
            at_seconds: (ran.began_ns + ran.elapsed_ns) as f64 / 1e9,
            written_capacities: self.written_bytes as f64 / self.span_bytes as f64,
            iops: both.ios as f64 / seconds,
            mb_per_s: both.bytes as f64 / seconds / 1e6,
            mean_us: both.response.mean_ns / 1e3,
            max_us: both.response.max_ns as f64 / 1e3,
        }
    }
}

/// Rounds of one kind of load for so long, or until enough is written.
fn stage<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
    clock: &mut Clock,
    name: &str,
    cell: &Cell,
    time: Duration,
    capacities: f64,
) -> Result<Stage, TesterError> {
    let mut stage = Stage { name: name.to_owned(), points: Vec::new() };
    let rounds = plan.time_ns(time).div_ceil(plan.round_ns()).max(1);
    for round in 0..rounds {
        let (name, seed) = (format!("{name}, {}", round + 1), plan.seed.wrapping_add(round));
        let point = clock.point(tester.job(&cell.job(&name, plan.span_bytes, seed, plan.round_ns()))?);
        if tester.is_over() {
            break;
        }
        stage.points.push(point);
        if point.written_capacities >= capacities {
            break;
        }
    }
    Ok(stage)
}

pub(super) fn write_saturation<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
) -> Result<Vec<Stage>, TesterError> {
    let mut clock = Clock { written_bytes: 0, span_bytes: plan.span_bytes };
    let name = "random writes of 4 KiB";
    let stage = stage(tester, plan, &mut clock, name, &RANDOM_WRITE, SATURATION, SATURATION_CAPACITIES)?;
    Ok(vec![stage])
}

pub(super) fn host_idle<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
) -> Result<Vec<Stage>, TesterError> {
    let mut clock = Clock { written_bytes: 0, span_bytes: plan.span_bytes };
    let mut stages = Vec::new();
    let cycles = ((IDLE_CYCLES * plan.scale) as u64).max(4);
    for rest_s in IDLE_RESTS_S {
        let baseline = stage(
            tester,
            plan,
            &mut clock,
            &format!("without a rest, before {rest_s} s"),
            &RANDOM_WRITE,
            IDLE_BASELINE,
            f64::MAX,
        )?;
        stages.push(baseline);
        let mut rested = Stage { name: format!("rests of {rest_s} s"), points: Vec::new() };
        for cycle in 0..cycles {
            if tester.is_over() {
                return Ok(stages);
            }
            // A device recovers in real seconds: neither writes nor rests are scaled, but how many there are.
            let (name, seed) = (format!("{}, {}", rested.name, cycle + 1), plan.seed.wrapping_add(cycle));
            let writes = RANDOM_WRITE.job(&name, plan.span_bytes, seed, IDLE_WRITES.as_nanos() as u64);
            let point = clock.point(tester.job(&Job { start_delay_ns: rest_s * 1_000_000_000, ..writes })?);
            if !tester.is_over() {
                rested.points.push(point);
            }
        }
        stages.push(rested);
    }
    Ok(stages)
}

pub(super) fn cross_stimulus<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
) -> Result<Vec<Stage>, TesterError> {
    let mut clock = Clock { written_bytes: 0, span_bytes: plan.span_bytes };
    let ordered = Cell { bytes: 1 << 20, random: false, depth: CROSS_DEPTH, ..RANDOM_WRITE };
    let random = Cell { bytes: 8 << 10, ..RANDOM_WRITE };
    let parts = [
        ("in order, 1 MiB", ordered, CROSS_ORDERED),
        ("at random, 8 KiB", random, CROSS_RANDOM),
        ("in order, 1 MiB, again", ordered, CROSS_ORDERED),
    ];
    let mut stages = Vec::new();
    for (name, cell, time) in parts {
        if tester.is_over() {
            break;
        }
        stages.push(stage(tester, plan, &mut clock, name, &cell, time, f64::MAX)?);
    }
    Ok(stages)
}
