//! What came of a point.

use super::spec::Point;
use crate::record::{JobRun, Side};
use crate::stats::{LoadStep, merged_side};

/// Parts of a point's time, for the error of its figures: enough for Student's t to be near the normal's, and so few
/// that each is much longer than an I/O.
pub(super) const PARTS: u64 = 20;

/// A point that was run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Its loads.
    pub point: Point,
    /// Whether it is none of the matrix, but a step in the search for a knee.
    pub searched: bool,
    /// Small I/Os, where there were any.
    pub small: Option<Class>,
    /// Large I/Os, where there were any.
    pub large: Option<Class>,
}

/// Small or large I/Os of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// By second.
    pub iops: f64,
    /// Bytes by second.
    pub bytes_per_s: f64,
    /// Reads.
    pub read: Side,
    /// Writes.
    pub write: Side,
    /// The mean response of both, nanoseconds.
    pub latency_ns: f64,
    /// I/Os by second of each part of the time.
    part_iops: Vec<f64>,
}

impl Class {
    /// What its jobs have done together; none where there are none.
    pub(super) fn of(jobs: &[JobRun]) -> Option<Class> {
        let first = jobs.first()?;
        let sum = |of: fn(&JobRun) -> &Side| {
            jobs.iter().fold(Side::default(), |sum, job| merged_side(&sum, of(job)))
        };
        let by_second = |figure: fn(&Side) -> u64| -> f64 {
            let rate = |job: &JobRun| {
                (figure(&job.read) + figure(&job.write)) as f64 * 1e9 / job.elapsed_ns.max(1) as f64
            };
            jobs.iter().map(rate).sum()
        };
        let (read, write) = (sum(|job| &job.read), sum(|job| &job.write));
        let total_ns = |side: &Side| side.response.mean_ns * side.response.count as f64;
        let count = (read.response.count + write.response.count).max(1) as f64;
        let mut part_iops = vec![0.0; PARTS as usize];
        let part_s = first.interval_ns as f64 / 1e9;
        for interval in jobs.iter().flat_map(|job| &job.intervals) {
            // What was in flight when time was up ends behind the last part.
            if let Some(part) = part_iops.get_mut(interval.n as usize) {
                *part += (interval.read.ios + interval.write.ios) as f64 / part_s;
            }
        }
        Some(Class {
            iops: by_second(|side| side.ios),
            bytes_per_s: by_second(|side| side.bytes),
            latency_ns: (total_ns(&read) + total_ns(&write)) / count,
            read,
            write,
            part_iops,
        })
    }

    /// Its place on a ramp, at a load.
    pub(super) fn step(&self, load: u32) -> LoadStep {
        LoadStep { load, rates: self.part_iops.clone(), latency_ns: self.latency_ns }
    }
}
