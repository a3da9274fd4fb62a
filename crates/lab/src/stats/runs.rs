//! Figures of whole runs, for the rules and comparisons beside this.

use super::bootstrap::{Bootstrap, BootstrapError, Ratio, mean};
use super::hist::{merged_side, quantile};
use super::steady::Quantity;
use crate::record::{Interval, IntervalSide, JobRun, Run, Side};
use serde::{Deserialize, Serialize};

/// Rounds of one job beyond this are not formed.
const MAX_ROUNDS: u64 = 1 << 20;

/// A figure of a job by which runs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Reads, writes and discards per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
    /// Mean response of reads and writes.
    MeanResponse,
    /// The response that 99 % of reads and writes did not exceed.
    P99Response,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 4] = [Metric::Iops, Metric::Bandwidth, Metric::MeanResponse, Metric::P99Response];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Iops => "IOPS",
            Metric::Bandwidth => "bandwidth",
            Metric::MeanResponse => "mean response",
            Metric::P99Response => "p99 response",
        }
    }

    /// A value as it is shown: MB/s, I/Os in a second, microseconds.
    pub(crate) fn shown(self, value: f64) -> f64 {
        match self {
            Metric::Iops => value,
            Metric::Bandwidth => value / 1e6,
            Metric::MeanResponse | Metric::P99Response => value / 1e3,
        }
    }

    /// Its value; none where nothing was measured.
    pub fn of(self, job: &JobRun) -> Option<f64> {
        let both: Side = merged_side(&job.read, &job.write);
        let seconds = job.elapsed_ns as f64 / 1e9;
        let value = match self {
            Metric::Iops => (both.ios as f64 + job.discard.ios as f64) / seconds,
            Metric::Bandwidth => (both.bytes as f64 + job.discard.bytes as f64) / seconds,
            Metric::MeanResponse => both.response.mean_ns,
            Metric::P99Response => quantile(&both.response, 0.99)? as f64,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }
}

/// What a comparison of one job by one figure came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The job's name.
    pub job: String,
    /// By what.
    pub metric: Metric,
    /// The means of A and of B, where both were measured.
    pub means: Option<[f64; 2]>,
    /// The ratio, or why there is none.
    pub ratio: Result<Ratio, BootstrapError>,
}

/// Compares runs of A and B that were made in alternation: the n-th of each are a pair. Each job of the first run of A
/// by each metric; a job that a run lacks, or that measured nothing there, has no ratio. Twenty such intervals of
/// 95 % leave out the truth once: a single difference among many figures is no finding yet.
pub fn findings(a: &[Run], b: &[Run], bootstrap: &Bootstrap) -> Vec<Finding> {
    let jobs = a.first().map_or(&[][..], |run| &run.jobs);
    let values = |runs: &[Run], name: &str, metric: Metric| -> Vec<f64> {
        let of_run = |run: &Run| metric.of(run.jobs.iter().find(|job| job.name == name)?);
        runs.iter().map(|run| of_run(run).unwrap_or(f64::NAN)).collect()
    };
    let mut out = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        if jobs[..at].iter().any(|earlier| earlier.name == job.name) {
            continue;
        }
        for metric in Metric::ALL {
            let (of_a, of_b) = (values(a, &job.name, metric), values(b, &job.name, metric));
            let ratio = bootstrap.ratio(&of_a, &of_b);
            let means =
                Some([mean(&of_a), mean(&of_b)]).filter(|means| means.iter().all(|mean| mean.is_finite()));
            out.push(Finding { job: job.name.clone(), metric, means, ratio });
        }
    }
    out
}

/// A job's values by rounds of so many intervals, for a [`super::Gate`] after the fact. The last round is left out
/// where it was not measured to its end. Latency is the mean response, 0 where nothing was done; it needs
/// [`IntervalSide::total_ns`].
pub fn rounds(job: &JobRun, quantity: Quantity, intervals_per_round: u64) -> Vec<f64> {
    let per_round = intervals_per_round.max(1);
    let round_ns = u128::from(job.interval_ns) * u128::from(per_round);
    if round_ns == 0 {
        return Vec::new();
    }
    let count = (u128::from(job.elapsed_ns) / round_ns).min(u128::from(MAX_ROUNDS)) as usize;
    let mut sums = vec![IntervalSide::default(); count];
    for Interval { n, read, write, .. } in &job.intervals {
        let Some(sum) = usize::try_from(n / per_round).ok().and_then(|round| sums.get_mut(round)) else {
            continue;
        };
        for side in [read, write] {
            sum.ios = sum.ios.saturating_add(side.ios);
            sum.bytes = sum.bytes.saturating_add(side.bytes);
            sum.total_ns = sum.total_ns.saturating_add(side.total_ns);
        }
    }
    let seconds = round_ns as f64 / 1e9;
    sums.iter()
        .map(|sum| match quantity {
            Quantity::Iops => sum.ios as f64 / seconds,
            Quantity::Bw => sum.bytes as f64 / seconds,
            Quantity::Lat => sum.total_ns as f64 / sum.ios.max(1) as f64,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FORMAT, VERSION};

    fn job(ios: u64) -> JobRun {
        JobRun {
            name: "one".into(),
            elapsed_ns: 2_000_000_000,
            read: Side { ios, bytes: ios * 4096, ..Side::default() },
            ..JobRun::default()
        }
    }

    fn run(ios: u64) -> Run {
        Run {
            format: FORMAT.into(),
            version: VERSION,
            title: "a test".into(),
            began_unix_ms: 0,
            seed: 0,
            virtual_time: true,
            interrupted: false,
            cpu: None,
            global_options: Default::default(),
            disks: Vec::new(),
            environment: Default::default(),
            jobs: vec![job(ios)],
            notes: Vec::new(),
        }
    }

    #[test]
    fn runs_in_alternation() {
        let a: Vec<Run> = [1000, 1100, 1000, 900, 990, 1010].map(run).into();
        let b: Vec<Run> = [1200, 1330, 1210, 1070, 1190, 1200].map(run).into();
        let found = findings(&a, &b, &Bootstrap::default());
        assert_eq!(found.len(), Metric::ALL.len());
        let iops = found[0].ratio.expect("a ratio");
        assert_eq!((found[0].metric, iops.a, iops.b), (Metric::Iops, 500.0, 600.0));
        assert!(iops.words("A", "B").starts_with("B is 1.20 times A (95 %: 1."), "{}", iops.words("A", "B"));
        assert_eq!(found[3].ratio, Err(BootstrapError::NotPositive));
    }

    #[test]
    fn rounds_are_sums_of_intervals() {
        let side = |ios| IntervalSide { ios, bytes: ios * 10, total_ns: ios * 7, ..IntervalSide::default() };
        let intervals = [(0, 4), (1, 6), (4, 2), (5, 9)]
            .map(|(n, ios)| Interval { n, read: side(ios), ..Interval::default() })
            .into();
        let job =
            JobRun { interval_ns: 500_000_000, elapsed_ns: 2_700_000_000, intervals, ..JobRun::default() };
        // Five whole intervals are two whole rounds of two.
        assert_eq!(rounds(&job, Quantity::Iops, 2), [10.0, 0.0]);
        assert_eq!(rounds(&job, Quantity::Bw, 1), [80.0, 120.0, 0.0, 0.0, 40.0]);
        assert_eq!(rounds(&job, Quantity::Lat, 1), [7.0, 7.0, 0.0, 0.0, 7.0]);
        assert!(rounds(&job, Quantity::Lat, u64::MAX).is_empty());
        assert!(rounds(&JobRun::default(), Quantity::Lat, 0).is_empty());
    }
}
