//! Tests of the comparison.

use super::*;

fn bootstrap(seed: u64) -> Bootstrap {
    Bootstrap { resamples: 2000, seed, ..Bootstrap::default() }
}

/// A standard normal, by Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let (radius, angle) = (1.0 - uniform(), uniform());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// How a run is disturbed by itself.
type Noise = fn(&mut Rng) -> f64;

fn log_normal(rng: &mut Rng) -> f64 {
    (0.05 * normal(rng)).exp()
}

/// Now and then it stalls.
fn exponential(rng: &mut Rng) -> f64 {
    1.0 - 0.4 * (1.0 - (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64).ln()
}

/// Pairs whose true ratio (of means and of medians) is `truth`, moved together by a drift that is larger than what
/// they differ by.
fn pairs(rng: &mut Rng, count: usize, truth: f64, noise: Noise) -> (Vec<f64>, Vec<f64>) {
    (0..count)
        .map(|_| {
            let drift = 1000.0 * (0.3 * normal(rng)).exp();
            (drift * noise(rng), truth * drift * noise(rng))
        })
        .unzip()
}

const TRIALS: u64 = 2000;

/// How often, of so many trials, the interval holds the truth.
fn coverage(statistic: Statistic, count: usize, noise: Noise) -> f64 {
    let mut rng = Rng::new(20, count as u64);
    let held = (0..TRIALS)
        .filter(|&trial| {
            let (a, b) = pairs(&mut rng, count, 1.1, noise);
            let bootstrap = Bootstrap { statistic, resamples: 1000, seed: trial, level: 0.95 };
            let ratio = bootstrap.ratio(&a, &b).expect("pairs");
            ratio.low <= 1.1 && 1.1 <= ratio.high
        })
        .count();
    held as f64 / TRIALS as f64
}

/// 95 % are promised; of 2000 trials the share itself spreads by 0.5 %.
#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    for (count, noise) in [(6, log_normal as Noise), (8, log_normal), (8, exponential), (20, exponential)] {
        let held = coverage(Statistic::Mean, count, noise);
        assert!((0.925..=0.97).contains(&held), "{count} pairs: {held}");
    }
    // Medians of few are coarse, and their intervals wide rather than narrow.
    let held = coverage(Statistic::Median, 9, log_normal);
    assert!((0.93..=0.999).contains(&held), "medians: {held}");
}

/// Of equal things a difference is seen once in twenty times; of things 10 % apart, with runs that spread by 5 %, nearly
/// always with ten pairs.
#[test]
fn no_difference_is_rarely_seen_where_there_is_none() {
    let mut rng = Rng::new(3, 0);
    let mut seen = [0, 0];
    for trial in 0..300 {
        for (seen, truth) in seen.iter_mut().zip([1.0, 1.1]) {
            let (a, b) = pairs(&mut rng, 10, truth, log_normal);
            *seen += u32::from(bootstrap(trial).ratio(&a, &b).expect("pairs").differs());
        }
    }
    assert!(seen[0] <= 24 && seen[1] >= 270, "{seen:?}");
}

/// python3: statistics.fmean of a and of b are 102.33333333333333 and 114.83333333333333, their ratio
/// 1.1221498371335505; medians 101.5 and 114.
#[test]
fn a_worked_example() {
    let (a, b) = ([100.0, 104.0, 98.0, 103.0, 109.0, 100.0], [113.0, 115.0, 110.0, 116.0, 122.0, 113.0]);
    let ratio = bootstrap(1).ratio(&a, &b).expect("pairs");
    assert!((ratio.ratio - 689.0 / 614.0).abs() < 1e-12);
    assert_eq!((ratio.a, ratio.b, ratio.pairs), (614.0 / 6.0, 689.0 / 6.0, 6));
    // The pairs' own ratios lie from 1.106 to 1.130, and so does any resample's.
    assert!(ratio.low > 1.105 && ratio.low < 1.118 && ratio.high > 1.122 && ratio.high < 1.131, "{ratio:?}");
    assert_eq!(bootstrap(1).ratio(&a, &b), Ok(ratio));
    let medians = Bootstrap { statistic: Statistic::Median, ..bootstrap(1) }.ratio(&a, &b).expect("pairs");
    assert_eq!((medians.a, medians.b), (101.5, 114.0));
    let turned = bootstrap(1).ratio(&b, &a).expect("pairs");
    assert!((turned.low - 1.0 / ratio.high).abs() < 2e-3 && (turned.high - 1.0 / ratio.low).abs() < 2e-3);
}

#[test]
fn verdicts_in_words() {
    let ratio =
        Ratio { low: 1.0812, high: 1.167, ..bootstrap(1).ratio(&[1.0; 6], &[1.12; 6]).expect("pairs") };
    assert_eq!(ratio.words("A", "B"), "B is 1.12 times A (95 %: 1.08 to 1.17)");
    let same = Ratio { low: 0.98, high: 1.03, ratio: 1.004, ..ratio };
    assert_eq!(same.words("A", "B"), "no difference seen (95 %: 0.98 to 1.03)");
    let close = Ratio { low: 1.0012, high: 1.0048, ratio: 1.003, ..ratio };
    assert_eq!(close.words("old", "new"), "new is 1.003 times old (95 %: 1.001 to 1.005)");
    // Deterministic things repeat exactly.
    let exact = bootstrap(1).ratio(&[2.0; 6], &[2.0; 6]).expect("pairs");
    assert_eq!((exact.low, exact.high, exact.differs()), (1.0, 1.0, false));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let refused = |a: &[f64], b: &[f64]| bootstrap(1).ratio(a, b).expect_err("refused");
    assert_eq!(refused(&[1.0; 3], &[1.0; 4]), BootstrapError::Unpaired { a: 3, b: 4 });
    assert_eq!(refused(&[1.0; 2], &[1.0; 2]), BootstrapError::Few { pairs: 2, needed: 6 });
    assert_eq!(refused(&vec![1.0; 20_000], &vec![1.0; 20_000]), BootstrapError::Many(20_000));
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE] {
        assert_eq!(refused(&[1.0, 1.0, 1.0, 1.0, 1.0, bad], &[1.0; 6]), BootstrapError::NotPositive);
    }
    // Options out of range are brought within it.
    let odd = Bootstrap { level: f64::NAN, resamples: u32::MAX, ..bootstrap(1) };
    assert_eq!(odd.ratio(&[1.0; 6], &[2.0; 6]).expect("pairs").level, 0.95);
}
