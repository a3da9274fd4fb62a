//! What is said of a target, in numbers.

use super::run::{DEEP, FILL, FLUSHED, PARTS, SMALL_READ};
use crate::record::JobRun;
use crate::stats::quantile;
use serde::Serialize;

/// In what a figure is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Millions of bytes in a second.
    #[serde(rename = "MB/s")]
    MbPerS,
    /// I/Os in a second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Microseconds: less is better.
    #[serde(rename = "us")]
    Microseconds,
}

impl Unit {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Unit::MbPerS => "MB/s",
            Unit::Iops => "IOPS",
            Unit::Microseconds => "us",
        }
    }

    /// Whether more is better.
    pub(super) fn more_is_better(self) -> bool {
        self != Unit::Microseconds
    }

    /// How many times as good the first of two values is as the second.
    pub(super) fn times(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }
}

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Of what.
    pub name: String,
    /// Above 0.
    pub value: f64,
    /// In what.
    pub unit: Unit,
}

/// A drive that was measured with Xbench, and the eight speeds in the order of [`ORDER`].
type Measured = (&'static str, [f64; 8]);

/// What a reader of 2012 published of a volume that he had fused of a 240 GB SATA II SSD and a 750 GB disk, and of a laptop
/// with an SSD alone: MB/s.
pub const MEASURED_ONCE: [Measured; 2] = [
    ("a fused volume of 2012", [253.0, 157.0, 26.0, 101.0, 59.0, 170.0, 11.0, 81.0]),
    ("an SSD of 2012", [442.0, 271.0, 31.0, 333.0, 80.0, 229.0, 15.0, 181.0]),
];

/// The eight speeds as Xbench prints them.
pub(super) const ORDER: [&str; 8] = [
    "sequential write, 4K",
    FILL,
    "sequential read, 4K",
    "sequential read, 256K",
    "random write, 4K",
    "random write, 256K",
    SMALL_READ,
    "random read, 256K",
];

/// The figures of what was measured, in the order in which they are printed.
pub(super) fn figures(ran: &[JobRun]) -> Vec<Figure> {
    let of = |name: &str| ran.iter().find(|ran| ran.name == name && ran.errors.is_empty());
    let mut out: Vec<(String, Option<f64>, Unit)> = Vec::new();
    for name in ORDER {
        out.push((name.to_owned(), of(name).and_then(mb_per_s), Unit::MbPerS));
    }
    for (percentile, q) in [("50", 0.5), ("99", 0.99), ("99.9", 0.999)] {
        let ns = of(SMALL_READ).and_then(|ran| quantile(&ran.read.response, q));
        let name = format!("{SMALL_READ}, {percentile} % of latencies are below");
        out.push((name, ns.map(|ns| ns as f64 / 1e3), Unit::Microseconds));
    }
    let cycle = of(FLUSHED).filter(|ran| ran.write.ios > 0);
    let cycle = cycle.map(|ran| ran.elapsed_ns as f64 / ran.write.ios as f64 / 1e3);
    out.push((format!("{FLUSHED}, mean time of both"), cycle, Unit::Microseconds));
    let flush = of(FLUSHED).and_then(|ran| quantile(&ran.flush.response, 0.99));
    out.push((
        format!("{FLUSHED}, 99 % of flushes are below"),
        flush.map(|ns| ns as f64 / 1e3),
        Unit::Microseconds,
    ));
    let deep = of(DEEP).map(|ran| ran.read.ios as f64 * 1e9 / ran.elapsed_ns.max(1) as f64);
    out.push((DEEP.to_owned(), deep, Unit::Iops));
    let known = |(name, value, unit): (String, Option<f64>, Unit)| {
        value.filter(|value| *value > 0.0).map(|value| Figure { name, value, unit })
    };
    out.into_iter().filter_map(known).collect()
}

fn mb_per_s(ran: &JobRun) -> Option<f64> {
    let writes = ran.name == FILL || PARTS.iter().any(|part| part.name == ran.name && part.writes());
    let bytes = if writes { ran.write.bytes } else { ran.read.bytes };
    (bytes > 0).then(|| bytes as f64 * 1e3 / ran.elapsed_ns.max(1) as f64)
}
