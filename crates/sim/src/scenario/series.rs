//! How a phase went.

use super::report::{MAX_POINTS, Point};
use super::target::{Counts, Target};
use bimetal_load::Sample;

/// Samples of a phase kept before every other one is dropped.
const MAX_SAMPLES: usize = 2 * MAX_POINTS as usize;

/// Samples at even distances, and what the target had counted by then.
pub(super) struct Samples {
    kept: Vec<(Sample, u64, u64)>,
    start: Counts,
    /// One in this many is kept.
    stride: u64,
    taken: u64,
}

impl Samples {
    pub(super) fn new(start: Counts) -> Samples {
        Samples { kept: Vec::new(), start, stride: 1, taken: 0 }
    }

    pub(super) fn take(&mut self, sample: Sample, target: &Target) {
        self.taken += 1;
        if !self.taken.is_multiple_of(self.stride) {
            return;
        }
        let counts = target.counts();
        self.kept.push((sample, counts.fast_bytes, counts.all_bytes));
        if self.kept.len() == MAX_SAMPLES {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.stride *= 2;
        }
    }

    pub(super) fn points(&self) -> Vec<Point> {
        let mut before = (Sample::default(), self.start.fast_bytes, self.start.all_bytes);
        let per_point = self.kept.len().div_ceil(MAX_POINTS as usize).max(1);
        let mut points = Vec::new();
        for &now in self.kept.iter().skip(per_point - 1).step_by(per_point) {
            let seconds = (now.0.at_ns - before.0.at_ns) as f64 / 1e9;
            let all = now.2 - before.2;
            points.push(Point {
                at_s: now.0.at_ns as f64 / 1e9,
                mb_per_s: (now.0.bytes - before.0.bytes) as f64 / 1e6 / seconds,
                iops: (now.0.commands - before.0.commands) as f64 / seconds,
                fast_share: (all > 0).then(|| (now.1 - before.1) as f64 / all as f64),
            });
            before = now;
        }
        points
    }
}
