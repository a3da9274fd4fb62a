//! What many bouts come to.

use super::{Bout, Metric};
use crate::peers::Policy;
use serde::{Deserialize, Serialize};

/// Behind by more than this is behind.
const BEHIND: f64 = 0.95;

/// How ours compares with one other, or the best of them, over all seeds: theirs over ours.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Score {
    /// The geometric mean.
    pub geometric: f64,
    /// The worst of all.
    pub worst: f64,
    /// The seed of it.
    pub worst_seed: u64,
    /// One of twenty is worse.
    pub five_percent: f64,
    /// Half are worse.
    pub half: f64,
    /// The share of seeds in which ours is more than 5 % behind.
    pub behind_share: f64,
    /// Seeds in which there was enough to see.
    pub count: usize,
}

impl Score {
    /// Of times and their seeds; none of none.
    fn of(mut times: Vec<(f64, u64)>) -> Option<Score> {
        times.sort_by(|one, other| one.0.total_cmp(&other.0));
        let &(worst, worst_seed) = times.first()?;
        let count = times.len();
        let logs: f64 = times.iter().map(|(times, _)| times.ln()).sum();
        let behind = times.iter().filter(|(times, _)| *times < BEHIND).count();
        Some(Score {
            geometric: (logs / count as f64).exp(),
            worst,
            worst_seed,
            five_percent: times[count / 20].0,
            half: times[count / 2].0,
            behind_share: behind as f64 / count as f64,
            count,
        })
    }
}

/// The scores by a metric: of each other policy by its name, and of the best of them seed by seed.
pub fn scores(bouts: &[Bout], metric: Metric) -> Vec<(&'static str, Score)> {
    let of = |times: &dyn Fn(&Bout) -> Option<f64>| {
        Score::of(bouts.iter().filter_map(|bout| Some((times(bout)?, bout.seed))).collect())
    };
    let others = bouts.first().map_or(Vec::new(), |bout| bout.theirs.iter().map(|one| one.0).collect());
    let single = others
        .into_iter()
        .map(|policy: Policy| (policy.name(), of(&|bout: &Bout| bout.times(policy, metric))));
    let best = ("best", of(&|bout: &Bout| Some(bout.best(metric)?.1)));
    single.chain([best]).filter_map(|(name, score)| Some((name, score?))).collect()
}

/// A bout in which ours is far behind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Worst {
    /// Its seed.
    pub seed: u64,
    /// Who is ahead.
    pub policy: String,
    /// By which figure.
    pub metric: Metric,
    /// Theirs over ours.
    pub times: f64,
    /// What was asked for.
    pub what: String,
}

/// The bouts in which ours is farthest behind, the worst first: so many by the mean, and so many by p99.
pub fn worst(bouts: &[Bout], most: usize) -> Vec<Worst> {
    let by = |metric: Metric| {
        let behind = |bout: &Bout| {
            let (policy, times) = bout.best(metric)?;
            let (seed, what) = (bout.seed, bout.workload.what());
            (times < BEHIND).then(|| Worst { seed, policy: policy.name().into(), metric, times, what })
        };
        let mut all: Vec<Worst> = bouts.iter().filter_map(behind).collect();
        all.sort_by(|one, other| one.times.total_cmp(&other.times));
        all.truncate(most);
        all
    };
    [by(Metric::Mean), by(Metric::P99)].concat()
}

/// What a mean does not show.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Harms {
    /// Seeds in which something of ours was older than a second, and nothing of the static policy.
    pub seeds: usize,
    /// The longest time on end of that, seconds.
    pub longest_seconds: f64,
    /// In this seed.
    pub worst_seed: Option<u64>,
    /// In open loops, the share of the rate that the static policy sustains: the geometric mean, and the least.
    pub sustained: Option<f64>,
    /// See [`Harms::sustained`].
    pub least_sustained: Option<f64>,
    /// Requests that failed, of all policies.
    pub failures: u64,
}

impl Harms {
    /// Over all bouts.
    pub fn of(bouts: &[Bout]) -> Harms {
        let mut harms = Harms::default();
        let mut rates = Vec::new();
        for bout in bouts {
            harms.failures += bout.ours.failures;
            harms.failures += bout.theirs.iter().map(|(_, figures)| figures.failures).sum::<u64>();
            let Some((_, fixed)) = bout.theirs.iter().find(|(policy, _)| *policy == Policy::Static) else {
                continue;
            };
            if bout.workload.is_open() {
                rates.push((bout.ours.rate / fixed.rate.max(f64::MIN_POSITIVE), bout.seed));
            }
            let seconds = bout.ours.harm_ns as f64 / 1e9;
            if fixed.harm_ns > 0 || seconds == 0.0 {
                continue;
            }
            harms.seeds += 1;
            if seconds > harms.longest_seconds {
                (harms.longest_seconds, harms.worst_seed) = (seconds, Some(bout.seed));
            }
        }
        if let Some(score) = Score::of(rates) {
            (harms.sustained, harms.least_sustained) = (Some(score.geometric), Some(score.worst));
        }
        harms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_of_ratios() {
        let score = Score::of((0..100).map(|n| (if n < 10 { 0.5 } else { 2.0 }, n)).collect()).expect("some");
        assert!((score.geometric - (0.9f64 * 2.0f64.ln() + 0.1 * 0.5f64.ln()).exp()).abs() < 1e-9);
        assert_eq!((score.worst, score.worst_seed, score.five_percent, score.half), (0.5, 0, 0.5, 2.0));
        assert!((score.behind_share - 0.1).abs() < 1e-9);
        assert_eq!(Score::of(Vec::new()), None);
    }
}
