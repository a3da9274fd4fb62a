//! The normal distribution and Student's.

use std::f64::consts::{PI, SQRT_2};

/// The share of a standard normal that lies below `x`: Marsaglia's series (Evaluating the Normal Distribution, Journal
/// of Statistical Software 11/4, 2004), good to the rounding of doubles within eight deviations, and 0 or 1 beyond.
pub(super) fn below(x: f64) -> f64 {
    if x.abs() > 8.0 {
        return if x < 0.0 { 0.0 } else { 1.0 };
    }
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    loop {
        odd += 2.0;
        term *= x * x / odd;
        let next = sum + term;
        if next == sum || !next.is_finite() {
            break;
        }
        sum = next;
    }
    0.5 + sum * (-x * x / 2.0).exp() / (PI.sqrt() * SQRT_2)
}

/// Where the share `p`, at least a half, of Student's t with so many degrees of freedom lies below. The distribution
/// function is the finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4.
pub(super) fn student_at(p: f64, freedom: u64) -> f64 {
    root(0.0, 1e6, |t| 0.5 + within(t, freedom) / 2.0 < p)
}

/// Where the mean of what such values are samples of lies 95 of 100 times, by Student's t. None of fewer than two, or where
/// one is no number.
pub(crate) fn mean_interval(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let half = student_at(0.975, freedom as u64) * (squares / freedom as f64 / count).sqrt();
    (mean.is_finite() && half.is_finite()).then_some((mean - half, mean + half))
}

/// The share within `t` on either side.
fn within(t: f64, freedom: u64) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let cos2 = angle.cos().powi(2);
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = if odd { (angle.cos(), 0.0) } else { (1.0, 0.0) };
    let mut k = if odd { 3 } else { 2 };
    while k <= freedom {
        sum += term;
        term *= cos2 * (k - 1) as f64 / k as f64;
        k += 2;
    }
    if odd { 2.0 / PI * (angle + angle.sin() * sum) } else { angle.sin() * sum }
}

/// Where `low_enough` turns false, by halving.
fn root(mut low: f64, mut high: f64, low_enough: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if low_enough(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// python3: statistics.NormalDist().cdf.
    #[test]
    fn normal() {
        for (x, p) in [(0.0, 0.5), (1.0, 0.841_344_746_068_543), (-1.96, 0.024_997_895_148_220_373)] {
            assert!((below(x) - p).abs() < 1e-14, "{x}");
        }
        assert_eq!((below(-9.0), below(9.0)), (0.0, 1.0));
    }

    /// Ten values of mean 5.5 and deviation 3.0277: 2.262 times 0.9574 to either side.
    #[test]
    fn the_mean_of_ten() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let (low, high) = mean_interval(&values).expect("there are enough");
        assert!((low - (5.5 - 2.1659)).abs() < 1e-3 && (high - (5.5 + 2.1659)).abs() < 1e-3, "{low} {high}");
        assert_eq!((mean_interval(&[1.0]), mean_interval(&[1.0, f64::NAN])), (None, None));
        assert_eq!(mean_interval(&[2.0, 2.0]), Some((2.0, 2.0)));
    }

    /// The printed tables of Student's t for 97.5 % and 99.5 %.
    #[test]
    fn student() {
        let table = [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (30, 2.042)];
        for (freedom, t) in table {
            assert!((student_at(0.975, freedom) - t).abs() < 6e-4, "{freedom}");
        }
        assert!((student_at(0.995, 5) - 4.032).abs() < 6e-4);
        assert!((student_at(0.975, 100_000) - 1.960).abs() < 6e-4);
    }
}
