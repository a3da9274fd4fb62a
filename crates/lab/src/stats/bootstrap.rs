//! Whether B is faster than A: the ratio of two sets of repeated measurements, and how sure it is.
//!
//! A machine drifts: it warms up, its disk fills, a neighbour comes and goes. Two sets of runs, one after the other,
//! compare two hours more than two programs. Runs in alternation (A B A B ...) are pairs that had the same hour, and
//! pairs are what is drawn here, so that what moved both of a pair moves nothing in the ratio's interval.
//!
//! The interval is that between percentiles of the resamples' ratios. Every bootstrap of few values is too narrow, since
//! it takes the sample's spread for the population's, so the percentiles are moved outwards by sqrt(n / (n - 1)) and by
//! Student's t in the normal's place, as Hesterberg does it (What Teachers Should Know About the Bootstrap, 2015).
//! Efron's BCa (Better Bootstrap Confidence Intervals, 1987) corrects bias and skewness as well, but
//! estimates both from the sample, and of six to forty pairs these estimates are mostly noise: with the same widening,
//! intervals of 95 % held the truth in 91 to 93 % of 2000 simulated comparisons, of which some had log-normal and some
//! exponential disturbances, and those taken here in 93 to 94 %.
//!
//! No resample leaves the range of the pairs, and all n of them lie on one side of the truth once in 2^(n - 1) times.
//! So n pairs cannot promise more than 1 - 2^(1 - n), and are refused where more is asked for: 95 % needs six.
//!
//! Throughput is higher, latency is lower when better; the ratio knows nothing of that.

use super::normal::{below, student_at};
use bimetal_units::rng::Rng;
use serde::{Deserialize, Serialize};

/// More pairs are refused: so many are no repeated runs, but a mistake.
pub const MAX_PAIRS: usize = 10_000;
/// Resamples, whatever is asked for.
const RESAMPLES: std::ops::RangeInclusive<u32> = 200..=100_000;
/// A stream of its own, so that a seed that made the runs can judge them, too.
const STREAM: u64 = 0x0052_4154_494f;

/// Of which a ratio is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The arithmetic mean.
    Mean,
    /// The median; of an even number, the mean of the two in the middle.
    Median,
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Of means or of medians.
    pub statistic: Statistic,
    /// How often the interval should hold the truth; from 0.5 to 0.999.
    pub level: f64,
    /// Resamples drawn.
    pub resamples: u32,
    /// All randomness comes from it.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Bootstrap {
        Bootstrap { statistic: Statistic::Mean, level: 0.95, resamples: 10_000, seed: 1 }
    }
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// They are no pairs.
    #[error("{a} measurements of A and {b} of B are not pairs; A and B are to be run in alternation")]
    Unpaired {
        /// How many of A.
        a: usize,
        /// How many of B.
        b: usize,
    },
    /// So few cannot promise the level.
    #[error("{pairs} pairs are too few, {needed} are needed for an interval of this level")]
    Few {
        /// How many there are.
        pairs: usize,
        /// How many it takes.
        needed: usize,
    },
    /// More than [`MAX_PAIRS`].
    #[error("{0} pairs are too many, {MAX_PAIRS} at most are compared")]
    Many(usize),
    /// A ratio needs numbers above zero.
    #[error("a measurement is not a number above zero")]
    NotPositive,
}

/// B by A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Of what.
    pub statistic: Statistic,
    /// A's.
    pub a: f64,
    /// B's.
    pub b: f64,
    /// B's by A's.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How often such an interval holds the truth.
    pub level: f64,
    /// Pairs of measurements.
    pub pairs: usize,
    /// Resamples drawn.
    pub resamples: u32,
    /// What they were drawn with.
    pub seed: u64,
}

impl Ratio {
    /// Whether the interval leaves out equality.
    pub fn differs(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    /// The verdict: `B is 1.12 times A (95 %: 1.08 to 1.17)`, or `no difference seen (95 %: 0.98 to 1.03)`.
    pub fn words(&self, a: &str, b: &str) -> String {
        // With more digits where two would print an end of the interval as equality that it is not.
        let nearest = (self.low - 1.0).abs().min((self.high - 1.0).abs());
        let digits = (2..6).find(|&digits| nearest >= 0.5 / 10f64.powi(digits as i32)).unwrap_or(6);
        let level = (self.level * 1000.0).round() / 10.0;
        let between = format!("{level} %: {:.digits$} to {:.digits$}", self.low, self.high);
        if self.differs() {
            format!("{b} is {:.digits$} times {a} ({between})", self.ratio)
        } else {
            format!("no difference seen ({between})")
        }
    }
}

impl Bootstrap {
    /// Compares measurements taken in alternation: the n-th of `a` and the n-th of `b` are a pair.
    ///
    /// # Errors
    /// There are not as many of each, too few or too many, or one is not above zero.
    pub fn ratio(&self, a: &[f64], b: &[f64]) -> Result<Ratio, BootstrapError> {
        let level = if self.level.is_finite() { self.level.clamp(0.5, 0.999) } else { 0.95 };
        check(a, b, level)?;
        let pairs = a.len();
        let resamples = self.resamples.clamp(*RESAMPLES.start(), *RESAMPLES.end());
        let ratio = self.of(b) / self.of(a);
        let mut drawn = self.draw(a, b, resamples);
        drawn.sort_by(f64::total_cmp);
        let widened =
            student_at((1.0 + level) / 2.0, pairs as u64 - 1) * (pairs as f64 / (pairs as f64 - 1.0)).sqrt();
        Ok(Ratio {
            statistic: self.statistic,
            a: self.of(a),
            b: self.of(b),
            ratio,
            low: quantile_of(&drawn, below(-widened)),
            high: quantile_of(&drawn, below(widened)),
            level,
            pairs,
            resamples,
            seed: self.seed,
        })
    }

    fn of(&self, values: &[f64]) -> f64 {
        match self.statistic {
            Statistic::Mean => mean(values),
            Statistic::Median => median(&mut values.to_vec()),
        }
    }

    /// The ratios of so many resamples of the pairs.
    fn draw(&self, a: &[f64], b: &[f64], resamples: u32) -> Vec<f64> {
        let mut rng = Rng::new(self.seed, STREAM);
        let (mut from_a, mut from_b) = (a.to_vec(), b.to_vec());
        (0..resamples)
            .map(|_| {
                for (to_a, to_b) in from_a.iter_mut().zip(from_b.iter_mut()) {
                    let at = rng.below(a.len() as u64) as usize;
                    (*to_a, *to_b) = (a[at], b[at]);
                }
                match self.statistic {
                    Statistic::Mean => mean(&from_b) / mean(&from_a),
                    Statistic::Median => median(&mut from_b) / median(&mut from_a),
                }
            })
            .collect()
    }
}

/// Pairs that an interval of this level, below 1, takes at least.
pub fn pairs_needed(level: f64) -> usize {
    (2..).find(|&pairs| 1.0 - 0.5f64.powi(pairs - 1) >= level).unwrap_or(2) as usize
}

fn check(a: &[f64], b: &[f64], level: f64) -> Result<(), BootstrapError> {
    let pairs = a.len();
    if pairs != b.len() {
        return Err(BootstrapError::Unpaired { a: pairs, b: b.len() });
    }
    let needed = pairs_needed(level);
    if pairs < needed {
        return Err(BootstrapError::Few { pairs, needed });
    }
    if pairs > MAX_PAIRS {
        return Err(BootstrapError::Many(pairs));
    }
    // Sums and ratios of what is beyond could be no numbers.
    let usable = |&value: &f64| (1e-100..1e100).contains(&value);
    if a.iter().chain(b).all(usable) { Ok(()) } else { Err(BootstrapError::NotPositive) }
}

/// The arithmetic mean of values.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Puts the values in another order.
fn median(values: &mut [f64]) -> f64 {
    let half = values.len() / 2;
    let (below, &mut middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    if below.len() == half && values.len() % 2 == 1 {
        return middle;
    }
    let highest_below = values[..half].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (highest_below + middle) / 2.0
}

/// Between the two nearest in order.
fn quantile_of(sorted: &[f64], share: f64) -> f64 {
    let at = share.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

#[cfg(test)]
#[path = "bootstrap_tests.rs"]
mod tests;
