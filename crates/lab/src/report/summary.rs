//! A job's figures, as both faces print them.

use super::Named;
use crate::record::{JobRun, Latency, Side, TierSide};
use crate::stats::quantiles;

/// The columns of a latency, after its mean.
pub(super) const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// Mean, median, 99 %, 99.9 % and the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub mean: f64,
    pub quantiles: [Option<u64>; 3],
    pub max: u64,
}

impl Times {
    fn of(latency: &Latency) -> Option<Times> {
        let at = quantiles(latency, &QUANTILES);
        (latency.count > 0).then(|| Times {
            mean: latency.mean_ns,
            quantiles: [0, 1, 2].map(|i| at[i]),
            max: latency.max_ns,
        })
    }

    /// In the order of the columns.
    pub(super) fn columns(&self) -> [Option<f64>; 5] {
        let [half, p99, p999] = self.quantiles.map(|ns| ns.map(|ns| ns as f64));
        [Some(self.mean), half, p99, p999, Some(self.max as f64)]
    }
}

/// One kind of I/O of one job of one run.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    /// Which run.
    pub run: usize,
    pub job: &'a JobRun,
    /// `read`, `write`, `discard` or `flush`.
    pub kind: &'static str,
    pub side: &'a Side,
    pub iops: f64,
    pub bytes_per_s: f64,
    pub service: Option<Times>,
    pub response: Option<Times>,
    /// Which of the run's jobs of this name it is.
    pub nth: usize,
}

impl Row<'_> {
    /// What can be formed a ratio of: rates, and the columns of the response.
    pub(super) fn figures(&self) -> [Option<f64>; 7] {
        let [mean, half, p99, p999, max] = self.response.map_or([None; 5], |times| times.columns());
        [Some(self.iops), Some(self.bytes_per_s), mean, half, p99, p999, max]
    }

    /// Whether both are of the same kind of I/O of jobs of one name.
    pub(super) fn matches(&self, other: &Row<'_>) -> bool {
        self.kind == other.kind && self.nth == other.nth && self.job.name == other.job.name
    }
}

/// I/Os of a row that the same tiers had a part in.
pub(super) struct TierRow<'a> {
    pub row: &'a Row<'a>,
    /// `fast`, `slow`, `both` or `neither`.
    pub by: &'static str,
    pub side: &'a TierSide,
    pub iops: f64,
    pub service: Times,
}

/// Those of the rows whose targets tell, of which there are any.
pub(super) fn tier_rows<'a>(rows: &'a [Row<'a>]) -> impl Iterator<Item = TierRow<'a>> {
    let tiers =
        |row: &'a Row<'a>| row.side.tiers.iter().flat_map(|tiers| tiers.each()).map(move |tier| (row, tier));
    rows.iter().flat_map(tiers).filter_map(|(row, (by, side))| {
        let service = Times::of(&side.service)?;
        let iops = row.iops * side.ios as f64 / row.side.ios.max(1) as f64;
        Some(TierRow { row, by, side, iops, service })
    })
}

/// What a job did: each kind of which anything was done or failed.
pub(super) fn kinds(job: &JobRun) -> impl Iterator<Item = (&'static str, &Side)> {
    [("read", &job.read), ("write", &job.write), ("discard", &job.discard), ("flush", &job.flush)]
        .into_iter()
        .filter(|(_, side)| side.ios > 0 || side.failed > 0)
}

/// The rows of all runs, a run after the other; of each run so many jobs at most that the rows do not pass the limit.
pub(super) fn rows(runs: &[Named], limit: usize) -> Vec<Row<'_>> {
    let jobs = (limit / 4 / runs.len().max(1)).max(1);
    let mut out = Vec::new();
    for (run, named) in runs.iter().enumerate() {
        let mut names = std::collections::BTreeMap::new();
        for job in named.run.jobs.iter().take(jobs) {
            let nth: &mut usize = names.entry(job.name.as_str()).or_default();
            out.extend(kinds(job).map(|(kind, side)| row(run, job, kind, side, *nth)));
            *nth += 1;
        }
    }
    side_by_side(out)
}

/// Rows of one name together, in the order of the first run; what it does not have comes last.
fn side_by_side(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let place = |row: &Row<'_>| rows.iter().position(|first| first.matches(row)).unwrap_or(rows.len());
    let placed: Vec<(usize, usize)> = rows.iter().map(|row| (place(row), row.run)).collect();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&at| placed[at]);
    order.into_iter().map(|at| rows[at].clone()).collect()
}

fn row<'a>(run: usize, job: &'a JobRun, kind: &'static str, side: &'a Side, nth: usize) -> Row<'a> {
    let per_second =
        |value: u64| if job.elapsed_ns == 0 { 0.0 } else { value as f64 * 1e9 / job.elapsed_ns as f64 };
    Row {
        run,
        job,
        kind,
        side,
        iops: per_second(side.ios),
        bytes_per_s: per_second(side.bytes),
        service: Times::of(&side.service),
        response: Times::of(&side.response),
        nth,
    }
}

/// A row of a later run by the first run's of the same name and kind.
#[derive(Clone, Debug)]
pub(super) struct Ratios<'a> {
    pub row: Row<'a>,
    /// Of [`Row::figures`].
    pub ratios: [Option<f64>; 7],
}

/// The rows of later runs that the first has, too, in the first's order.
pub(super) fn ratios<'a>(rows: &[Row<'a>]) -> Vec<Ratios<'a>> {
    let mut out = Vec::new();
    for first in rows.iter().filter(|row| row.run == 0) {
        for row in rows.iter().filter(|row| row.run > 0 && row.matches(first)) {
            let (now, then) = (row.figures(), first.figures());
            let ratio = |i: usize| {
                let ratio = now[i]? / then[i]?;
                ratio.is_finite().then_some(ratio)
            };
            out.push(Ratios { row: row.clone(), ratios: [0, 1, 2, 3, 4, 5, 6].map(ratio) });
        }
    }
    out
}
