//! What was seen of a run, and how two runs compare.

use super::mix::Asked;
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What both sides of a ratio are given: so that the volatile cache of a disk, of which a write may be lost, does not win
/// over a write that may not.
const SLACK_NS: f64 = 300_000.0;
/// A request that is older does harm.
const HARM_NS: u64 = Nanos::SECOND;
/// A mean over fewer requests says nothing.
const LEAST_REQUESTS: usize = 100;

/// A figure by which policies are compared: less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The mean response of all requests; of flushes, too, for whoever puts off a write until then is not ahead by it.
    Mean,
    /// Of a hundred responses, the second longest.
    P99,
    /// The same of a thousand.
    P999,
    /// The mean response of reads.
    Reads,
    /// The mean response of writes.
    Writes,
    /// The mean response of the second half of the requests.
    SecondHalf,
    /// The mean response of the requests of the worst second.
    WorstSecond,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 7] = [
        Metric::Mean,
        Metric::P99,
        Metric::P999,
        Metric::Reads,
        Metric::Writes,
        Metric::SecondHalf,
        Metric::WorstSecond,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Mean => "mean",
            Metric::P99 => "p99",
            Metric::P999 => "p99.9",
            Metric::Reads => "reads",
            Metric::Writes => "writes",
            Metric::SecondHalf => "second half",
            Metric::WorstSecond => "worst second",
        }
    }
}

/// What was seen of a run. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// By [`Metric`]; none where there was too little of it.
    by_metric: [Option<f64>; Metric::ALL.len()],
    /// Requests a second, from the first to the end of the last.
    pub rate: f64,
    /// The longest time on end in which a request was older than a second.
    pub harm_ns: u64,
    /// How long the slow device was busy in the ten minutes behind.
    pub debt_ns: u64,
    /// Requests that failed.
    pub failures: u64,
}

impl Figures {
    /// Of requests, which took so long together.
    pub(super) fn new(asked: &[Asked], took: Nanos, debt_ns: u64) -> Figures {
        let times = |of: &dyn Fn(&Asked) -> bool| -> Vec<u64> {
            asked.iter().filter(|one| of(one)).filter_map(|one| one.took).map(|took| took.0).collect()
        };
        let mut all = times(&|_| true);
        let second_half = mean(&all[all.len() / 2..]);
        let mean_of_all = mean(&all);
        all.sort_unstable();
        Figures {
            by_metric: [
                mean_of_all,
                quantile(&all, 990),
                quantile(&all, 999),
                mean(&times(&|one| one.is_read == Some(true))),
                mean(&times(&|one| one.is_read == Some(false))),
                second_half,
                worst_second(asked),
            ],
            rate: asked.len() as f64 * 1e9 / took.0.max(1) as f64,
            harm_ns: harm(asked),
            debt_ns,
            failures: asked.iter().filter(|one| one.took.is_none()).count() as u64,
        }
    }

    /// The figure, nanoseconds; none where there was too little to see.
    pub fn of(&self, metric: Metric) -> Option<f64> {
        self.by_metric[metric as usize]
    }
}

/// How many times as long theirs takes: above 1 ours is ahead.
pub fn times(theirs: f64, ours: f64) -> f64 {
    (theirs + SLACK_NS) / (ours + SLACK_NS)
}

fn mean(times: &[u64]) -> Option<f64> {
    let sum: u128 = times.iter().map(|&took| u128::from(took)).sum();
    (times.len() >= LEAST_REQUESTS).then(|| sum as f64 / times.len() as f64)
}

fn quantile(sorted: &[u64], permille: usize) -> Option<f64> {
    (sorted.len() >= LEAST_REQUESTS)
        .then(|| sorted[(sorted.len() * permille / 1000).min(sorted.len() - 1)] as f64)
}

fn worst_second(asked: &[Asked]) -> Option<f64> {
    let mut seconds: BTreeMap<u64, (u128, u64)> = BTreeMap::new();
    for (one, took) in asked.iter().filter_map(|one| Some((one, one.took?))) {
        let (sum, count) = seconds.entry(one.at.0 / Nanos::SECOND).or_default();
        (*sum, *count) = (*sum + u128::from(took.0), *count + 1);
    }
    // What is alone in its second is one request's story.
    let many = seconds.values().filter(|(_, count)| *count >= 8);
    many.map(|&(sum, count)| sum as f64 / count as f64).max_by(f64::total_cmp)
}

/// The longest time on end in which something was older than a second. What never ended is no harm, but a failure.
fn harm(asked: &[Asked]) -> u64 {
    let old = |one: &Asked| {
        let took = one.took.filter(|took| took.0 > HARM_NS)?;
        Some((one.at.0 + HARM_NS, one.at.0 + took.0))
    };
    let mut spans: Vec<(u64, u64)> = asked.iter().filter_map(old).collect();
    spans.sort_unstable();
    let (mut longest, mut begun, mut end) = (0, 0, 0);
    for (from, to) in spans {
        if from > end {
            begun = from;
        }
        end = end.max(to);
        longest = longest.max(end - begun);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(at_ms: u64, took_ms: u64) -> Asked {
        Asked { at: Nanos(at_ms * 1_000_000), took: Some(Nanos(took_ms * 1_000_000)), is_read: Some(true) }
    }

    #[test]
    fn figures_are_of_what_was_asked() {
        let all: Vec<Asked> = (0..200).map(|n| asked(n * 10, if n < 198 { 1 } else { 101 })).collect();
        let figures = Figures::new(&all, Nanos(Nanos::SECOND), 7);
        assert_eq!(figures.of(Metric::Mean), Some(2e6));
        assert_eq!(figures.of(Metric::P99), Some(101e6));
        assert_eq!(figures.of(Metric::SecondHalf), Some(3e6));
        assert_eq!((figures.of(Metric::Writes), figures.harm_ns, figures.debt_ns), (None, 0, 7));
        assert!((figures.rate - 200.0).abs() < 1e-9);
    }

    /// Two requests that are old at the same time are one harm; a later one is another.
    #[test]
    fn a_harm_lasts_while_something_is_old() {
        let all = [asked(0, 3000), asked(1500, 2000), asked(20_000, 1500), asked(50, 900)];
        assert_eq!(Figures::new(&all, Nanos(1), 0).harm_ns, 2_500_000_000);
    }

    #[test]
    fn slack_is_on_both_sides() {
        assert!((times(75e3, 97e3) - 375.0 / 397.0).abs() < 1e-9);
    }
}
