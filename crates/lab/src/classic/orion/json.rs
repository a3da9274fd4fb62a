//! A test as one JSON document, for scripts.

use super::measure::Class;
use super::run::{Again, Outcome};
use super::spec::{Point, Ramp, Spec};
use super::verdicts::{Pass, Trade, passes, tradeoff};
use super::{Coverage, Head};
use crate::record::{Latency, Side};
use crate::stats::{Verdict, merged, quantile};
use serde::Serialize;

#[derive(Serialize)]
struct Document<'d> {
    testname: &'d str,
    program: &'d str,
    command_line: &'d str,
    seed: u64,
    virtual_time: bool,
    interrupted: bool,
    seconds_by_point: u32,
    /// Points of the matrix that were to be run.
    matrix_points: usize,
    small_bytes: u64,
    large_bytes: u64,
    write_percent: u32,
    luns: Vec<Lun<'d>>,
    points: Vec<PointFigures>,
    knees: Vec<KneeFigures<'d>>,
    tradeoff: Vec<Trade>,
    coverage: Covers,
    notes: &'d [String],
    files: &'d [String],
}

#[derive(Serialize)]
struct Lun<'d> {
    name: &'d str,
    size_bytes: u64,
}

#[derive(Serialize)]
struct PointFigures {
    small: u32,
    large: u32,
    /// A step in the search for a knee.
    searched: bool,
    small_ios: Option<ClassFigures>,
    large_ios: Option<ClassFigures>,
}

#[derive(Serialize)]
struct ClassFigures {
    iops: f64,
    bytes_per_s: f64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    reads: u64,
    writes: u64,
    failed: u64,
}

#[derive(Serialize)]
struct KneeFigures<'d> {
    /// `small` or `large`: what was varied.
    of: &'static str,
    /// How many of the others there were.
    beside: u32,
    #[serde(flatten)]
    verdict: &'d Verdict,
    /// Of the knee's load, bytes by second.
    bytes_per_s: Option<f64>,
    passes: Vec<Pass>,
    /// The knee's load, run once more at the end of the search.
    again: Option<AgainFigures>,
}

#[derive(Serialize)]
struct AgainFigures {
    first_iops: f64,
    again_iops: f64,
    /// Whether the target has changed.
    differs: bool,
}

#[derive(Serialize)]
struct Covers {
    small: Option<Coverage>,
    large: Option<Coverage>,
}

/// The document; `files` are the names of those that were written.
pub fn json(
    head: &Head,
    spec: &Spec,
    points: &[Point],
    outcome: &Outcome,
    files: &[String],
) -> impl Serialize {
    let luns = head.luns.iter().map(|(name, size_bytes)| Lun { name, size_bytes: *size_bytes });
    let point = |measured: &super::Measured| PointFigures {
        small: measured.point.small,
        large: measured.point.large,
        searched: measured.searched,
        small_ios: measured.small.as_ref().map(class),
        large_ios: measured.large.as_ref().map(class),
    };
    let document = Document {
        testname: &spec.testname,
        program: &head.program,
        command_line: &head.command_line,
        seed: spec.seed,
        virtual_time: outcome.run.virtual_time,
        interrupted: outcome.run.interrupted,
        seconds_by_point: spec.seconds,
        matrix_points: points.len(),
        small_bytes: spec.small_bytes,
        large_bytes: spec.large_bytes,
        write_percent: spec.write_percent,
        luns: luns.collect(),
        points: outcome.points.iter().map(point).collect(),
        knees: outcome.knees.iter().map(|(ramp, verdict)| knee(spec, outcome, *ramp, verdict)).collect(),
        tradeoff: tradeoff(outcome),
        coverage: Covers { small: outcome.small_cover, large: outcome.large_cover },
        notes: &outcome.run.notes,
        files,
    };
    serde_json::to_value(document).unwrap_or_default()
}

fn class(class: &Class) -> ClassFigures {
    let both: Latency = merged(&class.read.response, &class.write.response);
    let us = |q: f64| quantile(&both, q).unwrap_or(0) as f64 / 1e3;
    let sides: [&Side; 2] = [&class.read, &class.write];
    ClassFigures {
        iops: class.iops,
        bytes_per_s: class.bytes_per_s,
        mean_us: class.latency_ns / 1e3,
        p50_us: us(0.5),
        p99_us: us(0.99),
        max_us: both.max_ns as f64 / 1e3,
        reads: class.read.ios,
        writes: class.write.ios,
        failed: sides.iter().map(|side| side.failed).sum(),
    }
}

fn knee<'d>(spec: &Spec, outcome: &Outcome, ramp: Ramp, verdict: &'d Verdict) -> KneeFigures<'d> {
    let (of, beside, block_bytes) = match ramp {
        Ramp::Small { large } => ("small", large, spec.small_bytes),
        Ramp::Large { small } => ("large", small, spec.large_bytes),
    };
    let bytes_per_s = match verdict {
        Verdict::Knee(knee) => Some(knee.rate * block_bytes as f64),
        _ => None,
    };
    let again = outcome.again.iter().find(|again| again.ramp == ramp).map(|again| {
        let &Again { first_iops, again_iops, differs, .. } = again;
        AgainFigures { first_iops, again_iops, differs }
    });
    KneeFigures { of, beside, verdict, bytes_per_s, passes: passes(outcome, ramp), again }
}
