//! What a run leaves behind: one JSON document with all that the reports are printed from.
//!
//! Times are nanoseconds, sizes bytes, unless a name says otherwise. Histograms are lists of pairs, so that any script
//! can read them and two runs can be added up.

use crate::stats::Steadiness;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What [`Run::format`] says.
pub const FORMAT: &str = "bimetal-lab-run";
/// What [`Run::version`] says; a higher one is refused.
pub const VERSION: u32 = 1;

/// A run: jobs against a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// What was run, in a line: the name of the job file, of the trace, of the test.
    pub title: String,
    /// When it began, milliseconds of Unix time.
    pub began_unix_ms: u64,
    /// All randomness came from it.
    pub seed: u64,
    /// Whether the clock was that of a simulation.
    pub virtual_time: bool,
    /// Whether it was ended before its time.
    pub interrupted: bool,
    /// What the program needed of the processors meanwhile, in real time; where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// The options that were given for all of its jobs, as they were written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub global_options: BTreeMap<String, String>,
    /// What the disks below its targets did; where the kernel tells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskUse>,
    /// What it ran on.
    pub environment: Environment,
    /// What was measured.
    pub jobs: Vec<JobRun>,
    /// What the run has to say that figures do not: an engine that was replaced by ours, options that had no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a process needed of a processor while it ran the jobs. The kernel works for them in threads that are nobody's, so
/// it is said of each of them what is true of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// In the program, percent of one processor.
    pub user_percent: f64,
    /// In the kernel.
    pub system_percent: f64,
    /// How often it was taken off a processor, or left it to wait.
    #[serde(default)]
    pub context_switches: u64,
    /// Pages that had to be read from a disk.
    #[serde(default)]
    pub major_faults: u64,
    /// Pages that did not.
    #[serde(default)]
    pub minor_faults: u64,
}

/// What a disk below the targets did meanwhile, for whomever, as the kernel counts it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// The kernel's name for it.
    pub name: String,
    /// Reads.
    pub read_ios: u64,
    /// Writes.
    pub write_ios: u64,
    /// Reads that were merged with another.
    pub read_merges: u64,
    /// Writes that were.
    pub write_merges: u64,
    /// Milliseconds that all reads took, together.
    pub read_ticks: u64,
    /// Milliseconds that all writes took, together.
    pub write_ticks: u64,
    /// Milliseconds that all I/Os were in its queue, together.
    pub in_queue: u64,
    /// For how much of the time it had something to do, percent.
    pub util: f64,
}

impl DiskUse {
    /// The seven counters, reads before writes, in the order in which fio prints them.
    pub fn counters(&self) -> [u64; 7] {
        [
            self.read_ios,
            self.write_ios,
            self.read_merges,
            self.write_merges,
            self.read_ticks,
            self.write_ticks,
            self.in_queue,
        ]
    }
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The version of this program.
    pub program: String,
    /// As `uname -sr` says.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// Processors that can be used.
    pub processors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The targets, by the names that jobs use.
    pub targets: BTreeMap<String, TargetFacts>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// `file`, `block device`, `nbd`, `volume`, `simulated` or `null`.
    pub kind: String,
    /// Bytes.
    pub size_bytes: u64,
    /// What else is known: model, scheduler, rotational, file system, ...
    pub details: BTreeMap<String, String>,
}

impl TargetFacts {
    /// The kind of a target without a device.
    pub const SIMULATED: &str = "simulated";
}

/// One job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRun {
    /// Its name.
    pub name: String,
    /// The target, as [`Environment::targets`] calls it.
    pub target: String,
    /// Jobs of one group are reported together; groups count from 0.
    pub group: u32,
    /// The options that were given, as they were written.
    pub options: BTreeMap<String, String>,
    /// I/Os that it had in flight at most.
    pub depth: u32,
    /// When it began to count, since the run began.
    pub began_ns: u64,
    /// For how long it counted.
    pub elapsed_ns: u64,
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// Discards.
    pub discard: Side,
    /// Flushes.
    pub flush: Side,
    /// I/Os that had a time and were begun later, and how much later.
    pub late: Late,
    /// How long how many I/Os were in flight: pairs of a depth (0, 1, 2, 4, 8, ... : that many and above) and
    /// nanoseconds.
    pub depths_ns: Vec<(u32, u64)>,
    /// How many completions were found at a time: pairs of a number (1, 2, 4, 8, ... : that many and above) and how often.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found_at_once: Vec<(u32, u64)>,
    /// What happened in each interval, one after the other; where nothing happened there is none.
    pub intervals: Vec<Interval>,
    /// The length of an interval.
    pub interval_ns: u64,
    /// The span that was asked for, from its first byte to behind its last, on the target.
    pub span: (u64, u64),
    /// Of a job that goes through files (or equal parts of its target) from the first to the last: what each took,
    /// from when the one before had ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files_ns: Vec<u64>,
    /// Bytes of each of these; 0 where there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub file_bytes: u64,
    /// Why I/Os failed, and how many: the error's text, and a count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, u64>,
    /// I/Os that a run which was ended did not wait for any longer.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unanswered: u64,
    /// The highest depth whose latencies kept to a limit, where that was looked for and found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_depth: Option<u32>,
    /// Whether it became steady, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steadiness>,
}

/// Reads, writes, discards or flushes of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Not done.
    pub failed: u64,
    /// Done with less than was asked for, or with other data than was expected.
    pub mismatched: u64,
    /// For how long at least one of these was in flight; 0 in records made before it was kept.
    #[serde(default)]
    pub busy_ns: u64,
    /// How long the parts of the job were that had these in them, where it was not all of it: a job that verifies writes
    /// in one part, and reads back in another. 0: as long as the job.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub runtime_ns: u64,
    /// From being begun until it was handed to the target.
    pub submit: Latency,
    /// Service time: from being handed over until it was done.
    pub service: Latency,
    /// Response: from when it was meant to begin until it was done. Where no time was meant, from when it was begun.
    pub response: Latency,
    /// Those that were done, by the tiers that had a part in them; where the target tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<Box<ByTier>>,
}

/// I/Os by the tiers that had a part in them. Each is in one of the four.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByTier {
    /// The fast tier alone.
    pub fast: TierSide,
    /// Slower ones alone.
    pub slow: TierSide,
    /// Both.
    pub both: TierSide,
    /// None: reads of what was never written.
    pub neither: TierSide,
}

impl ByTier {
    /// All four, with their names.
    pub fn each(&self) -> [(&'static str, &TierSide); 4] {
        [("fast", &self.fast), ("slow", &self.slow), ("both", &self.both), ("neither", &self.neither)]
    }
}

/// I/Os that the same tiers had a part in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierSide {
    /// Done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Service time, as [`Side::service`].
    pub service: Latency,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// How long something took, each time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The mean, exactly.
    pub mean_ns: f64,
    /// The standard deviation of the sample (divided by n - 1; 0 of a single one), exactly.
    pub stddev_ns: f64,
    /// Pairs of a time (the highest that is counted there: no more than 0.1 % above any of them) and how many, ascending.
    pub bins: Vec<(u64, u64)>,
}

/// I/Os begun after their time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// That had a time at all.
    pub timed: u64,
    /// That were begun later than that, by more than 0.1 ms.
    pub count: u64,
    /// All of their lateness.
    pub total_ns: u64,
    /// The worst.
    pub max_ns: u64,
}

/// What was done in an interval; an I/O belongs to the one in which it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its number: it begins at so many times [`JobRun::interval_ns`] after the job's begin.
    pub n: u64,
    /// Reads.
    #[serde(default, skip_serializing_if = "IntervalSide::is_empty")]
    pub read: IntervalSide,
    /// Writes.
    #[serde(default, skip_serializing_if = "IntervalSide::is_empty")]
    pub write: IntervalSide,
    /// Bytes that the fast tier served (read or took), and all bytes served; where the target tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<(u64, u64)>,
}

/// Reads or writes of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IntervalSide {
    /// Done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// The longest response.
    pub max_ns: u64,
    /// All responses together, for their mean; 0 in records made before it was kept.
    #[serde(default)]
    pub total_ns: u64,
    /// Coarse responses, for a heat map: pairs of k and how many took from 2^(k/2) to below 2^((k+1)/2) ns.
    pub heat: Vec<(u8, u64)>,
    /// Where, for a map of addresses: pairs of a part of [`JobRun::span`] (0 to 127, equal parts) and how many.
    pub places: Vec<(u8, u64)>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl IntervalSide {
    fn is_empty(&self) -> bool {
        self.ios == 0
    }
}
