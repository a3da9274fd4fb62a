//! What came of a scenario.

use serde::Serialize;

/// The figures of a phase that something can be expected of.
pub(super) const METRICS: [&str; 12] = [
    "seconds",
    "mb_per_s",
    "iops",
    "mean_us",
    "p50_us",
    "p99_us",
    "max_us",
    "fast_share",
    "promoted_bytes",
    "demoted_bytes",
    "destaged_bytes",
    "failures",
];

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub scenario: String,
    /// Where random choices began.
    pub seed: u64,
    /// The hash of all that happened: the same for the same scenario, seed and program.
    pub event_hash: String,
    /// Bytes of the target.
    pub size_bytes: u64,
    /// In order.
    pub phases: Vec<Phase>,
    /// What each device did, in tier order.
    pub devices: Vec<Device>,
    /// What was expected.
    pub expectations: Vec<Expectation>,
}

/// What came of a phase. Latencies are those of reads and writes together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How long it was, in virtual time.
    pub seconds: f64,
    /// Millions of bytes in a second.
    pub mb_per_s: f64,
    /// Commands in a second.
    pub iops: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Half of the latencies are no longer.
    pub p50_us: f64,
    /// 99 of a hundred are no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Share of the bytes asked for that the fast tier served; none where there is one device, or nothing was asked for.
    pub fast_share: Option<f64>,
    /// Commands that failed.
    pub failures: u64,
    /// Bytes of chunks that were moved up.
    pub promoted_bytes: u64,
    /// Bytes of chunks that were moved down.
    pub demoted_bytes: u64,
    /// Bytes of landed blocks that were brought home.
    pub destaged_bytes: u64,
    /// Seconds in which each device worked, in tier order.
    pub busy_seconds: Vec<f64>,
    /// How it went: at most [`MAX_POINTS`] points.
    pub series: Vec<Point>,
}

/// Points of a phase's series at most.
pub const MAX_POINTS: u64 = 100;

/// A stretch of a phase.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Its end, seconds since the phase began.
    pub at_s: f64,
    /// Millions of bytes in a second, in it.
    pub mb_per_s: f64,
    /// Commands in a second, in it.
    pub iops: f64,
    /// Share of the bytes that the fast tier served, in it.
    pub fast_share: Option<f64>,
}

/// What a device did over the whole scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its tier and its model.
    pub name: String,
    /// Seconds in which it worked.
    pub busy_seconds: f64,
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// What was expected, and whether it came so.
#[derive(Clone, Debug, Serialize)]
pub struct Expectation {
    /// In words.
    pub what: String,
    /// What came.
    pub value: Option<f64>,
    /// Whether that is within what was expected.
    pub held: bool,
}

impl Report {
    /// Whether everything came as expected.
    pub fn all_held(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.held)
    }
}

impl Phase {
    /// A figure by its name.
    pub(super) fn metric(&self, name: &str) -> Option<f64> {
        Some(match name {
            "seconds" => self.seconds,
            "mb_per_s" => self.mb_per_s,
            "iops" => self.iops,
            "mean_us" => self.mean_us,
            "p50_us" => self.p50_us,
            "p99_us" => self.p99_us,
            "max_us" => self.max_us,
            "fast_share" => self.fast_share?,
            "promoted_bytes" => self.promoted_bytes as f64,
            "demoted_bytes" => self.demoted_bytes as f64,
            "destaged_bytes" => self.destaged_bytes as f64,
            "failures" => self.failures as f64,
            _ => return None,
        })
    }
}
