//! What came of a scenario.

use serde::Serialize;

/// A figure of a phase that something can be expected of; none where there was nothing to measure.
type Metric = fn(&Phase) -> Option<f64>;

/// All of them, by their names.
pub(super) const METRICS: [(&str, Metric); 35] = [
    ("seconds", |phase| Some(phase.seconds)),
    ("mb_per_s", |phase| Some(phase.mb_per_s)),
    ("worst_second_mb_per_s", |phase| phase.worst_second_mb_per_s),
    ("iops", |phase| Some(phase.iops)),
    ("mean_us", |phase| Some(phase.mean_us)),
    ("p50_us", |phase| Some(phase.p50_us)),
    ("p99_us", |phase| Some(phase.p99_us)),
    ("max_us", |phase| Some(phase.max_us)),
    ("mean_read_us", |phase| Some(phase.reads?.mean_us)),
    ("p50_read_us", |phase| Some(phase.reads?.p50_us)),
    ("p99_read_us", |phase| Some(phase.reads?.p99_us)),
    ("max_read_us", |phase| Some(phase.reads?.max_us)),
    ("mean_write_us", |phase| Some(phase.writes?.mean_us)),
    ("p50_write_us", |phase| Some(phase.writes?.p50_us)),
    ("p99_write_us", |phase| Some(phase.writes?.p99_us)),
    ("max_write_us", |phase| Some(phase.writes?.max_us)),
    ("late_commands", |phase| Some(phase.late?.count as f64)),
    ("mean_late_us", |phase| Some(phase.late?.mean_us)),
    ("max_late_us", |phase| Some(phase.late?.max_us)),
    ("fast_share", |phase| phase.fast_share),
    ("promoted_bytes", |phase| Some(phase.promoted_bytes as f64)),
    ("demoted_bytes", |phase| Some(phase.demoted_bytes as f64)),
    ("shadow_demoted_bytes", |phase| Some(phase.shadow_demoted_bytes as f64)),
    ("destaged_bytes", |phase| Some(phase.destaged_bytes as f64)),
    ("fast_written_bytes", |phase| Some(phase.fast_written?.bytes as f64)),
    ("fast_written_per_byte", |phase| phase.fast_written?.per_byte),
    ("fast_log_per_byte", |phase| phase.fast_written?.log_per_byte()),
    ("fast_log_bytes", |phase| Some(phase.fast_written?.by?.log_bytes as f64)),
    ("fast_moves_bytes", |phase| Some(phase.fast_written?.by?.moves_bytes as f64)),
    ("fast_copies_bytes", |phase| Some(phase.fast_written?.by?.copies_bytes as f64)),
    ("slow_wakeups", |phase| phase.wakeups.get(1).map(|slow| (slow.clients + slow.background) as f64)),
    ("exposed_seconds", |phase| phase.exposed_seconds),
    ("failures", |phase| Some(phase.failures as f64)),
    ("records", |phase| Some(phase.replay?.records as f64)),
    ("left_out", |phase| Some(phase.replay?.left_out as f64)),
];

/// A figure of one of several loads.
type LoadMetric = fn(&Load) -> Option<f64>;

/// All of them, by their names.
pub(super) const LOAD_METRICS: [(&str, LoadMetric); 7] = [
    ("mb_per_s", |load| Some(load.mb_per_s)),
    ("iops", |load| Some(load.iops)),
    ("mean_us", |load| Some(load.responses?.mean_us)),
    ("p50_us", |load| Some(load.responses?.p50_us)),
    ("p99_us", |load| Some(load.responses?.p99_us)),
    ("max_us", |load| Some(load.responses?.max_us)),
    ("failures", |load| Some(load.failures as f64)),
];

/// A figure of a load by its name.
pub(super) fn load_metric(name: &str) -> Option<LoadMetric> {
    LOAD_METRICS.iter().find(|(known, _)| *known == name).map(|&(_, metric)| metric)
}

/// A figure by its name.
pub(super) fn metric(name: &str) -> Option<Metric> {
    METRICS.iter().find(|(known, _)| *known == name).map(|&(_, metric)| metric)
}

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
    /// Bytes that the trace touches, in whole grains; none without a trace.
    pub trace_bytes: Option<u64>,
    /// What placement weighed otherwise than by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tuning: Vec<SetTo>,
    /// In order.
    pub phases: Vec<Phase>,
    /// What each device did, in tier order.
    pub devices: Vec<Device>,
    /// What was expected.
    pub expectations: Vec<Expectation>,
}

/// A setting of placement, and what it was set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetTo {
    /// Its name.
    pub name: &'static str,
    /// Its value, as a number: of bytes, of nanoseconds, or of what it is one part in.
    pub value: u64,
    /// Its value where nobody sets it.
    pub default: u64,
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
    /// The same in the worst whole second, of those in which something was always in flight.
    pub worst_second_mb_per_s: Option<f64>,
    /// Reads and writes in a second.
    pub iops: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Half of the latencies are no longer.
    pub p50_us: f64,
    /// 99 of a hundred are no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Latencies of reads; none if there were none.
    pub reads: Option<Responses>,
    /// The same of writes.
    pub writes: Option<Responses>,
    /// Flushes that were done.
    pub flushes: u64,
    /// Discards that were done.
    pub discards: u64,
    /// How late commands were submitted; only where commands have times of their own.
    pub late: Option<Late>,
    /// What became of the records of a trace; only of a replay.
    pub replay: Option<Replayed>,
    /// Share of the bytes asked for that the fast tier served; none where there is one device, or nothing was asked for.
    pub fast_share: Option<f64>,
    /// Commands that failed.
    pub failures: u64,
    /// Bytes of chunks that were moved up.
    pub promoted_bytes: u64,
    /// Bytes of chunks that were moved down.
    pub demoted_bytes: u64,
    /// Those of them that had a shadow there, so that nothing was copied; of a volume of ours alone.
    pub shadow_demoted_bytes: u64,
    /// Bytes of landed blocks that were brought home.
    pub destaged_bytes: u64,
    /// What was written to the fast device; none where there is one device.
    pub fast_written: Option<FastWritten>,
    /// How often each device was used after it had rested, in tier order; of a volume of ours alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakeups: Vec<Wakes>,
    /// How old the image of a protected volume is at the end, where something has been written since; none without an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_seconds: Option<f64>,
    /// Seconds in which each device worked, in tier order.
    pub busy_seconds: Vec<f64>,
    /// What each load saw, where several were side by side.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    /// How it went: at most `MAX_POINTS` points.
    pub series: Vec<Point>,
}

/// What was written to the fast device of a volume.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FastWritten {
    /// Bytes in all: what clients wrote there, and metadata, too.
    pub bytes: u64,
    /// For each byte that clients read or wrote; none where they asked for nothing.
    pub per_byte: Option<f64>,
    /// Parts of it, as far as our engine wrote them.
    pub by: Option<WrittenBy>,
}

impl FastWritten {
    /// Bytes of the log for each byte that clients asked for; none where they asked for none, or nothing is known of the log.
    fn log_per_byte(&self) -> Option<f64> {
        let (per_byte, by) = (self.per_byte?, self.by?);
        Some(if self.bytes == 0 { 0.0 } else { per_byte * by.log_bytes as f64 / self.bytes as f64 })
    }
}

/// Bytes that our engine wrote to the fast device, by what made it do so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WrittenBy {
    /// The log: what landed, and records.
    pub log_bytes: u64,
    /// Chunks that were moved up.
    pub moves_bytes: u64,
    /// Copies of what was read from the slow tier.
    pub copies_bytes: u64,
}

/// How often a device was woken.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Wakes {
    /// By clients' requests.
    pub clients: u64,
    /// By what the volume does by itself.
    pub background: u64,
}

/// What one of several loads saw.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Millions of bytes in a second.
    pub mb_per_s: f64,
    /// Reads and writes in a second.
    pub iops: f64,
    /// Latencies of reads and writes; none if there were none.
    pub responses: Option<Responses>,
    /// Commands that failed.
    pub failures: u64,
}

/// Latencies; where commands have times of their own, since those.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Responses {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half are no longer.
    pub p50_us: f64,
    /// 99 of a hundred are no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Commands that were submitted later than they were meant to be, as too many were in flight.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Late {
    /// How many.
    pub count: u64,
    /// How late these were on average.
    pub mean_us: f64,
    /// The latest.
    pub max_us: f64,
}

/// What became of the records of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Records that were read, without malformed ones.
    pub records: u64,
    /// Lines that are no records.
    pub malformed: u64,
    /// Records that became several commands: longer than the largest, or cut where the map begins again.
    pub split: u64,
    /// Records whose range was brought back into the target by a map that wraps.
    pub wrapped: u64,
    /// Discards of which only a part was touched by anything, so that only that is mapped.
    pub clipped: u64,
    /// Records that were not done: beyond the target, or discards of what nothing touches.
    pub left_out: u64,
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
