//! Purge, preconditioning, and rounds until they are steady.

use super::histogram::{Histogram, histograms};
use super::loads::{DEPTH, Test, name, rounds};
use super::stages;
use crate::classic::cell::Cell;
use crate::classic::disktester::{Layout, Tester, TesterError};
use crate::job::Job;
use crate::load::LoadTarget;
use crate::record::JobRun;
use crate::stats::{Gate, Rule, SniaRule, Steadiness, Step, merged_side, quantile};
use serde::Serialize;
use std::time::Duration;

/// Rounds after which a device is not steady.
pub const MAX_ROUNDS: u32 = 25;
/// The largest sector that devices have.
const SECTOR_BYTES: u64 = 4096;
/// What a device is preconditioned with: in order, in these pieces, so many times its capacity.
pub(super) const PRECONDITION_BYTES: u64 = 128 << 10;
pub(super) const PRECONDITION_TIMES: u64 = 2;

/// What is left open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SniaPlan {
    /// Which test.
    pub test: Test,
    /// From the start of the target, bytes: its capacity, or a part of it.
    pub span_bytes: u64,
    /// Of what the specification says, all times are this share: above 0, up to 1.
    pub scale: f64,
    /// Where places are drawn from.
    pub seed: u64,
}

impl SniaPlan {
    /// So much of the specification's time.
    pub(super) fn time_ns(&self, of: Duration) -> u64 {
        ((of.as_secs_f64() * self.scale * 1e9) as u64).max(1_000_000)
    }

    /// A round of one kind of load: a minute.
    pub(super) fn round_ns(&self) -> u64 {
        self.time_ns(Duration::from_secs(60))
    }
}

/// One kind of load, round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// In words.
    pub name: String,
    /// Reads of a hundred.
    pub read_percent: u32,
    /// Of an I/O.
    pub bytes: u64,
    /// I/Os in a second, by round.
    pub iops: Vec<f64>,
    /// Mean response, by round, microseconds.
    pub mean_us: Vec<f64>,
    /// The longest response, by round, microseconds.
    pub max_us: Vec<f64>,
    /// The response that 99.9 of a hundred kept to, by round, microseconds.
    pub p999_us: Vec<f64>,
    /// What the target said to I/Os of less than 4 KiB, where it does none: the rounds go on without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

impl Load {
    fn new(cell: &Cell) -> Load {
        Load {
            name: name(cell),
            read_percent: cell.read_percent,
            bytes: cell.bytes,
            iops: Vec::new(),
            mean_us: Vec::new(),
            max_us: Vec::new(),
            p999_us: Vec::new(),
            left_out: None,
        }
    }

    fn add(&mut self, ran: &JobRun) {
        let both = merged_side(&ran.read, &ran.write);
        self.iops.push(both.ios as f64 * 1e9 / ran.elapsed_ns.max(1) as f64);
        self.mean_us.push(both.response.mean_ns / 1e3);
        self.max_us.push(both.response.max_ns as f64 / 1e3);
        self.p999_us.push(quantile(&both.response, 0.999).unwrap_or(0) as f64 / 1e3);
    }

    /// What is tracked of it, by round.
    fn tracked(&self, latency: bool) -> &[f64] {
        if latency { &self.mean_us } else { &self.iops }
    }

    /// The mean over the last rounds, which are the window of steady state where there is one.
    pub(super) fn measured(values: &[f64]) -> Option<f64> {
        let window = &values[values.len().saturating_sub(SniaRule::default().rounds)..];
        (!window.is_empty()).then(|| window.iter().sum::<f64>() / window.len() as f64)
    }
}

/// Loads in rounds, and whether they became steady.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Steady {
    /// All of them.
    pub loads: Vec<Load>,
    /// The one that is tracked, by its place.
    pub tracked: usize,
    /// Whether what is tracked is a latency: else I/Os in a second.
    pub tracks_latency: bool,
    /// What the rule says.
    pub steadiness: Steadiness,
    /// Written in all rounds, in capacities.
    pub written_capacities: f64,
}

impl Steady {
    /// What is tracked, in words.
    pub(super) fn tracks(&self) -> &'static str {
        if self.tracks_latency { "mean response, us" } else { "IOPS" }
    }

    /// The load that is tracked.
    pub(super) fn tracked(&self) -> &Load {
        &self.loads[self.tracked]
    }

    /// That of a load, by round, which is tracked of one.
    pub(super) fn values<'l>(&self, load: &'l Load) -> &'l [f64] {
        load.tracked(self.tracks_latency)
    }
}

/// A stage of a test over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stage {
    /// What is done.
    pub name: String,
    /// Parts of it.
    pub points: Vec<StagePoint>,
}

/// A part of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StagePoint {
    /// Its end, since the test began.
    pub at_seconds: f64,
    /// Written in this test by then, bytes of the capacity.
    pub written_capacities: f64,
    /// I/Os in a second.
    pub iops: f64,
    /// Bytes in a second, MB/s.
    pub mb_per_s: f64,
    /// Mean response, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Which.
    pub test: Test,
    /// Of the specification's times.
    pub scale: f64,
    /// A round of one kind of load, seconds.
    pub round_seconds: f64,
    /// Where places were drawn from.
    pub seed: u64,
    /// What was measured on, bytes.
    pub span_bytes: u64,
    /// Whether the target took the purge.
    pub purged: bool,
    /// Rounds.
    pub steady: Vec<Steady>,
    /// Responses one by one, of a device that became steady.
    pub histograms: Vec<Histogram>,
    /// Curves.
    pub stages: Vec<Stage>,
}

/// All of a target, or of the first `wanted` bytes of it; none if it is too small.
pub fn layout(target_bytes: u64, wanted: Option<u64>) -> Option<Layout> {
    let bytes = target_bytes.min(wanted.unwrap_or(u64::MAX));
    let file_bytes = bytes / (1 << 20) * (1 << 20);
    (file_bytes > 0).then_some(Layout {
        count: 1,
        file_bytes,
        transfer_bytes: PRECONDITION_BYTES,
        depth: 1,
        seed: 1,
        stamped: false,
    })
}

/// Runs a test. One that was ended before its time has what was measured by then.
///
/// # Errors
/// When the target cannot be loaded.
pub fn snia<T: LoadTarget>(tester: &mut Tester<'_, T>, plan: &SniaPlan) -> Result<Found, TesterError> {
    let mut found = Found {
        test: plan.test,
        scale: plan.scale,
        round_seconds: plan.round_ns() as f64 / 1e9,
        seed: plan.seed,
        span_bytes: plan.span_bytes,
        purged: purge(tester, plan)?,
        steady: Vec::new(),
        histograms: Vec::new(),
        stages: Vec::new(),
    };
    for (nth, (cells, tracked)) in rounds(plan.test).into_iter().enumerate() {
        if nth > 0 && !tester.is_over() {
            purge(tester, plan)?;
        }
        precondition(tester, plan)?;
        if tester.is_over() {
            return Ok(found);
        }
        found.steady.push(until_steady(tester, plan, &cells, &tracked)?);
    }
    if !tester.is_over() {
        match plan.test {
            Test::WriteSaturation => found.stages = stages::write_saturation(tester, plan)?,
            Test::HostIdle => found.stages = stages::host_idle(tester, plan)?,
            Test::CrossStimulus => found.stages = stages::cross_stimulus(tester, plan)?,
            Test::Latency if found.steady.iter().all(|steady| steady.steadiness.reached.is_some()) => {
                found.histograms = histograms(tester, plan)?;
            }
            Test::Iops | Test::Throughput | Test::Latency => {}
        }
    }
    Ok(found)
}

/// Gives all back: to a device that is as new. Whether the target takes that.
fn purge<T: LoadTarget>(tester: &mut Tester<'_, T>, plan: &SniaPlan) -> Result<bool, TesterError> {
    Ok(tester.attempt(&Job::give_back("purge", plan.span_bytes))?.is_none())
}

fn precondition<T: LoadTarget>(tester: &mut Tester<'_, T>, plan: &SniaPlan) -> Result<(), TesterError> {
    if tester.is_over() {
        return Ok(());
    }
    let once = Job::writes_in_order("preconditioning", 0..plan.span_bytes, PRECONDITION_BYTES);
    tester.job(&Job { depth: DEPTH, loops: PRECONDITION_TIMES, ..once })?;
    Ok(())
}

fn until_steady<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
    cells: &[Cell],
    tracked: &Cell,
) -> Result<Steady, TesterError> {
    let mut loads: Vec<Load> = cells.iter().map(Load::new).collect();
    let tracked = cells.iter().position(|cell| cell == tracked).expect("what is tracked is run");
    let tracks_latency = plan.test == Test::Latency;
    let mut gate = Gate::new(Rule::Snia(SniaRule::default()));
    let mut written_bytes = 0;
    'rounds: for round in 0..MAX_ROUNDS {
        // Each round asks elsewhere.
        let seed = plan.seed.wrapping_add(u64::from(round));
        for (cell, load) in cells.iter().zip(&mut loads) {
            if load.left_out.is_some() {
                continue;
            }
            let name = format!("round {}: {}", round + 1, name(cell));
            let job = cell.job(&name, plan.span_bytes, seed, plan.round_ns());
            // Less than a sector cannot be done where sectors are of 4 KiB: all else of the test can.
            if round == 0 && cell.bytes < SECTOR_BYTES {
                load.left_out = tester.attempt(&job)?;
                if load.left_out.is_some() {
                    continue;
                }
            } else {
                tester.job(&job)?;
            }
            let Some(ran) = tester.ran().last().filter(|_| !tester.is_over()) else { break 'rounds };
            load.add(ran);
            written_bytes += ran.write.bytes;
        }
        if let Step::Steady(_) = gate.push(loads[tracked].tracked(tracks_latency)[round as usize]) {
            break;
        }
    }
    let written_capacities = written_bytes as f64 / plan.span_bytes as f64;
    let steadiness = gate.steadiness().clone();
    Ok(Steady { loads, tracked, tracks_latency, steadiness, written_capacities })
}
