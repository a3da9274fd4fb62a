//! What a test says beyond its matrix: knees, limits of latency, what small I/Os lose to large ones, what was touched.

use super::cover::Coverage;
use super::run::{Again, Outcome};
use super::spec::{Ramp, Spec};
use crate::report::units::{bytes, name, percent, three, time};
use crate::stats::{Knee, LoadStep, Verdict, passes as passes_limit};
use serde::Serialize;
use std::collections::BTreeSet;

/// Steps of a decade, of limits of latency.
const ROUND: [f64; 3] = [1.0, 2.0, 5.0];
/// The same for the trade-off: beside large I/Os latency begins higher, and few limits lie on the lines of all.
const ROUND_FINELY: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];

/// Where the mean latency of a ramp passes a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pass {
    /// The limit, microseconds.
    pub latency_us: f64,
    /// In flight there.
    pub load: f64,
    /// I/Os by second there.
    pub iops: f64,
}

/// Where no round latency tells anything, so many others at most.
const MAX_MIDDLES: usize = 5;

/// What is left of small I/Os beside large ones, at a limit of the small ones' mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trade {
    /// The limit, microseconds.
    pub latency_us: f64,
    /// Large I/Os, or streams.
    pub large: u32,
    /// Small I/Os by second.
    pub small_iops: f64,
    /// Bytes of large ones by second.
    pub large_bytes_per_s: f64,
}

/// Where a ramp passes round latencies: 1, 2 and 5 of each power of ten.
pub fn passes(outcome: &Outcome, ramp: Ramp) -> Vec<Pass> {
    let steps = outcome.steps(ramp);
    limits_ns(&steps, &ROUND)
        .into_iter()
        .filter_map(|limit| {
            let (load, iops) = passes_limit(&steps, limit)?;
            Some(Pass { latency_us: limit / 1e3, load, iops })
        })
        .collect()
}

/// What small I/Os lose to large ones: at latencies that several lines of the matrix pass (round ones, if there are any),
/// for each number of large ones; where the matrix has several small loads beside these.
pub fn tradeoff(outcome: &Outcome) -> Vec<Trade> {
    let rows: BTreeSet<u32> = outcome.points.iter().map(|measured| measured.point.large).collect();
    let line =
        |large| Line { large, small: outcome.steps(Ramp::Small { large }), beside: beside(outcome, large) };
    let lines: Vec<Line> = rows.into_iter().map(line).filter(|line| line.small.len() > 1).collect();
    if lines.iter().all(|line| line.large == 0) {
        return Vec::new();
    }
    let at = |limit: f64| -> Vec<Trade> { lines.iter().filter_map(|line| line.at(limit)).collect() };
    // A limit that only the row without large I/Os passes tells nothing of these.
    let compares = |trades: &Vec<Trade>| {
        trades.iter().any(|trade| trade.large > 0) && trades.len() > usize::from(lines.len() > 1)
    };
    let all: Vec<LoadStep> = lines.iter().flat_map(|line| line.small.clone()).collect();
    let round: Vec<Vec<Trade>> =
        limits_ns(&all, &ROUND_FINELY).into_iter().map(at).filter(compares).collect();
    match round.is_empty() {
        true => middles_ns(&lines).into_iter().map(at).filter(compares).flatten().collect(),
        false => round.into_iter().flatten().collect(),
    }
}

/// Small loads beside a number of large I/Os.
struct Line {
    large: u32,
    small: Vec<LoadStep>,
    beside: Vec<LoadStep>,
}

impl Line {
    /// What is left where the small ones' latency passes a limit.
    fn at(&self, limit_ns: f64) -> Option<Trade> {
        let (load, small_iops) = passes_limit(&self.small, limit_ns)?;
        let large_bytes_per_s = if self.large == 0 { 0.0 } else { rate_at(&self.beside, load) };
        Some(Trade { latency_us: limit_ns / 1e3, large: self.large, small_iops, large_bytes_per_s })
    }
}

/// The middle of the latencies of each line with large I/Os, of a few such lines.
fn middles_ns(lines: &[Line]) -> Vec<f64> {
    let mixed: Vec<&Line> = lines.iter().filter(|line| line.large > 0).collect();
    let middle = |line: &&Line| {
        let latencies = || line.small.iter().map(|step| step.latency_ns);
        (latencies().fold(f64::MAX, f64::min) + latencies().fold(0.0, f64::max)) / 2.0
    };
    let every = mixed.len().div_ceil(MAX_MIDDLES).max(1);
    let mut middles: Vec<f64> = mixed.iter().step_by(every).map(middle).collect();
    middles.sort_by(f64::total_cmp);
    middles
}

/// Bytes of large I/Os beside small loads, as steps of these.
fn beside(outcome: &Outcome, large: u32) -> Vec<LoadStep> {
    let ramp = Ramp::Small { large };
    let step = |measured: &super::Measured| {
        let class = measured.large.as_ref()?;
        let load = ramp.load(measured.point)?;
        Some(LoadStep { load, rates: vec![class.bytes_per_s], latency_ns: class.latency_ns })
    };
    let mut steps: Vec<LoadStep> = outcome.points.iter().filter_map(step).collect();
    steps.sort_by_key(|step| step.load);
    steps
}

fn rate_at(steps: &[LoadStep], load: f64) -> f64 {
    let pair =
        steps.windows(2).find(|pair| f64::from(pair[0].load) <= load && load <= f64::from(pair[1].load));
    let Some([low, high]) = pair else { return 0.0 };
    let share = (load - f64::from(low.load)) / f64::from(high.load - low.load);
    low.rate() + (high.rate() - low.rate()) * share
}

/// Round latencies between the shortest and the longest of some steps, nanoseconds.
fn limits_ns(steps: &[LoadStep], round: &[f64]) -> Vec<f64> {
    let latencies = || steps.iter().map(|step| step.latency_ns).filter(|ns| *ns > 0.0);
    let (low, high) = (latencies().fold(f64::MAX, f64::min), latencies().fold(0.0, f64::max));
    // From a microsecond to a quarter of an hour.
    let all = (3..12).flat_map(|power| round.iter().map(move |step| step * 10f64.powi(power)));
    all.filter(|limit| *limit > low && *limit < high).collect()
}

/// All of it, in lines.
pub fn verdicts(spec: &Spec, outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if outcome.run.interrupted {
        lines.push(format!("Interrupted: {} points were run, the last not to its end", outcome.points.len()));
    }
    for job in &outcome.run.jobs {
        lines.extend(
            job.errors
                .iter()
                .map(|(why, count)| format!("Not done, {}: {count} times: {}", job.name, name(why))),
        );
    }
    lines.extend(outcome.knees.iter().map(|(ramp, verdict)| knee_line(spec, *ramp, verdict)));
    lines.extend(outcome.again.iter().filter(|again| again.differs).map(|again| again_line(spec, again)));
    for (ramp, _) in &outcome.knees {
        lines.extend(passes(outcome, *ramp).iter().map(|pass| pass_line(spec, *ramp, pass)));
    }
    lines.extend(tradeoff(outcome).chunk_by(|a, b| a.latency_us == b.latency_us).map(trade_line));
    let covers = [
        ("Small", &outcome.small_cover, spec.small_bytes),
        ("Large", &outcome.large_cover, spec.large_bytes),
    ];
    for (what, cover, block_bytes) in covers {
        lines.extend(cover.iter().flat_map(|cover| cover_lines(spec, what, cover, block_bytes)));
    }
    lines
}

/// Orion's megabyte is that of its sizes.
pub(super) const MB: f64 = 1_048_576.0;

/// A throughput of a ramp, as Orion's users count it.
fn throughput(spec: &Spec, ramp: Ramp, iops: f64) -> String {
    match ramp {
        Ramp::Small { .. } => format!("{iops:.0}"),
        Ramp::Large { .. } => format!("{:.2}", iops * spec.large_bytes as f64 / MB),
    }
}

/// `Small`, `IOPS`, and where else the ramp is.
fn words(ramp: Ramp) -> (&'static str, &'static str, String) {
    match ramp {
        Ramp::Small { large } => ("Small", "IOPS", format!("Large={large}")),
        Ramp::Large { small } => ("Large", "MBPS", format!("Small={small}")),
    }
}

fn knee_line(spec: &Spec, ramp: Ramp, verdict: &Verdict) -> String {
    let (what, unit, other) = words(ramp);
    let of = |iops: f64| throughput(spec, ramp, iops);
    match verdict {
        Verdict::Knee(Knee { load: 1, load_high: 1, rate, latency_ns, .. }) => format!(
            "{what} Knee: {unit}={} with a latency of {} @ {what}=1 and {other}: latency grows from the first on",
            of(*rate),
            time(*latency_ns)
        ),
        Verdict::Knee(Knee { load, load_low, load_high, rate, rate_low, rate_high, latency_ns, level }) => {
            format!(
                "{what} Knee: {unit}={} ({} %: {} to {}) with a latency of {} @ {what}={load} ({load_low} to {load_high}) \
             and {other}",
                of(*rate),
                level * 100.0,
                of(*rate_low),
                of(*rate_high),
                time(*latency_ns)
            )
        }
        Verdict::BelowLeast { load } => {
            format!(
                "{what} Knee: below {what}={load}, the least load of the matrix, and {other}{}",
                further(spec)
            )
        }
        Verdict::NoneUpTo { load, rate } => {
            format!(
                "{what} Knee: none up to {unit}={} @ {what}={load} and {other}{}",
                of(*rate),
                further(spec)
            )
        }
        Verdict::TooFew { steps } => {
            format!(
                "{what} Knee: not to be told of {steps} loads @ {other}; three are the least{}",
                further(spec)
            )
        }
    }
}

/// One limit, all numbers of large I/Os.
fn trade_line(trades: &[Trade]) -> String {
    let latency_us = trades.first().map_or(0.0, |trade| trade.latency_us);
    let row = |trade: &Trade| {
        let Trade { large, small_iops, large_bytes_per_s, .. } = trade;
        format!("{small_iops:.0} IOPS and {:.2} MBPS @ Large={large}", large_bytes_per_s / MB)
    };
    let rows: Vec<String> = trades.iter().map(row).collect();
    format!("Small latency of {} leaves {}", time(latency_us * 1e3), rows.join(", "))
}

fn again_line(spec: &Spec, again: &Again) -> String {
    let (what, unit, other) = words(again.ramp);
    format!(
        "{what} Knee: doubtful, for the target has changed: {unit}={} became {} @ {what}={} and {other}; where writes have \
         aged a drive, run it once more as it is now",
        throughput(spec, again.ramp, again.first_iops),
        throughput(spec, again.ramp, again.again_iops),
        again.load
    )
}

fn further(spec: &Spec) -> &'static str {
    if spec.knee { "" } else { "; --knee runs more loads" }
}

fn pass_line(spec: &Spec, ramp: Ramp, pass: &Pass) -> String {
    let (what, unit, other) = words(ramp);
    format!(
        "{what} latency passes {} at {unit}={} @ {what}={} and {other}",
        time(pass.latency_us * 1e3),
        throughput(spec, ramp, pass.iops),
        three(pass.load)
    )
}

fn cover_lines(spec: &Spec, what: &str, cover: &Coverage, block_bytes: u64) -> Vec<String> {
    let mut lines = vec![format!(
        "{what} I/Os touched {} distinct blocks of {}: {}, {} of {}; each of them {} times on average",
        cover.distinct_blocks,
        bytes(block_bytes),
        bytes(cover.distinct_bytes),
        percent(cover.distinct_bytes, cover.span_bytes),
        bytes(cover.span_bytes),
        three(cover.ios as f64 / cover.distinct_blocks.max(1) as f64)
    )];
    if cover.cached {
        let ratio = cover.first_by_again.unwrap_or(1.0);
        lines.push(format!(
            "A cache is in these figures: what was read before came back {} times sooner than what was not",
            three(ratio)
        ));
    }
    if spec.cache_bytes.is_some_and(|cache| cache >= cover.distinct_bytes) {
        lines.push(format!(
            "All that {} I/Os touched fits into the cache of -cache_size",
            what.to_lowercase()
        ));
    }
    lines
}
