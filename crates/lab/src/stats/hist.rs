//! Sums and quantiles of recorded latencies.

use crate::record::{ByTier, Latency, Side, TierSide};

/// All that was counted in either.
///
/// Counts, bins and extremes are exact. The mean and the deviation are those of the united sample up to the rounding of
/// doubles: the squares are united as Chan, Golub and LeVeque do it (Updating Formulae and a Pairwise Algorithm for
/// Computing Sample Variances, 1979), which does not lose the small difference of two large sums. The deviation is
/// that of a sample (divided by n - 1), as fio prints it.
pub fn merged(a: &Latency, b: &Latency) -> Latency {
    if a.count == 0 || b.count == 0 {
        return if a.count == 0 { b.clone() } else { a.clone() };
    }
    let (in_a, in_b) = (a.count as f64, b.count as f64);
    let count = a.count.saturating_add(b.count);
    let shift = b.mean_ns - a.mean_ns;
    let squares = a.stddev_ns.powi(2) * (in_a - 1.0)
        + b.stddev_ns.powi(2) * (in_b - 1.0)
        + shift.powi(2) * in_a * in_b / (in_a + in_b);
    Latency {
        count,
        min_ns: a.min_ns.min(b.min_ns),
        max_ns: a.max_ns.max(b.max_ns),
        mean_ns: a.mean_ns + shift * in_b / (in_a + in_b),
        stddev_ns: (squares / (in_a + in_b - 1.0)).sqrt(),
        bins: united(&a.bins, &b.bins),
    }
}

/// Both lists of pairs, ascending; what has the same key is added up.
fn united(a: &[(u64, u64)], b: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().copied().peekable(), b.iter().copied().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.0 <= y.0 => a.next(),
            (Some(_), None) => a.next(),
            (_, Some(_)) => b.next(),
            (None, None) => return out,
        };
        let Some((value, count)) = next else { return out };
        match out.last_mut() {
            Some(last) if last.0 == value => last.1 = last.1.saturating_add(count),
            _ => out.push((value, count)),
        }
    }
}

/// Reads and reads, or writes and writes, of two jobs or runs.
pub fn merged_side(a: &Side, b: &Side) -> Side {
    Side {
        ios: a.ios.saturating_add(b.ios),
        bytes: a.bytes.saturating_add(b.bytes),
        failed: a.failed.saturating_add(b.failed),
        mismatched: a.mismatched.saturating_add(b.mismatched),
        // Where both ran side by side, what they shared is in it twice.
        busy_ns: a.busy_ns.saturating_add(b.busy_ns),
        // As long as a job is longer than any of its parts.
        runtime_ns: if a.runtime_ns == 0 || b.runtime_ns == 0 { 0 } else { a.runtime_ns.max(b.runtime_ns) },
        submit: merged(&a.submit, &b.submit),
        service: merged(&a.service, &b.service),
        response: merged(&a.response, &b.response),
        // Where only one tells, what it tells is of a part of them: it says so by its counts.
        tiers: match (&a.tiers, &b.tiers) {
            (Some(a), Some(b)) => Some(Box::new(merged_tiers(a, b))),
            (a, b) => a.clone().or_else(|| b.clone()),
        },
    }
}

fn merged_tiers(a: &ByTier, b: &ByTier) -> ByTier {
    let tier = |a: &TierSide, b: &TierSide| TierSide {
        ios: a.ios.saturating_add(b.ios),
        bytes: a.bytes.saturating_add(b.bytes),
        service: merged(&a.service, &b.service),
    };
    ByTier {
        fast: tier(&a.fast, &b.fast),
        slow: tier(&a.slow, &b.slow),
        both: tier(&a.both, &b.both),
        neither: tier(&a.neither, &b.neither),
    }
}

/// The time that at least the share `q` of all did not exceed, and the least such time: the nearest rank, the
/// ⌈q·n⌉-th of n in order, which is what fio counts too. It is a time of the histogram's grid, so up to 0.1 % above the
/// true one, and never above the longest or below the shortest. None where nothing was counted, where the bins were not
/// kept, or where `q` is not from 0 to 1.
pub fn quantile(latency: &Latency, q: f64) -> Option<u64> {
    quantiles(latency, &[q]).first().copied().flatten()
}

/// [`quantile`] of each, in one pass over the bins where they ascend.
pub fn quantiles(latency: &Latency, qs: &[f64]) -> Vec<Option<u64>> {
    let binned = latency.bins.iter().fold(0u64, |sum, bin| sum.saturating_add(bin.1));
    let mut bins = latency.bins.iter();
    let (mut value, mut seen, mut last_q) = (0, 0u64, 0.0);
    qs.iter()
        .map(|&q| {
            if binned == 0 || !(0.0..=1.0).contains(&q) {
                return None;
            }
            if q < last_q {
                (bins, value, seen) = (latency.bins.iter(), 0, 0);
            }
            last_q = q;
            let rank = rank(q, binned);
            while seen < rank {
                let bin = bins.next()?;
                value = bin.0;
                seen = seen.saturating_add(bin.1);
            }
            // Extremes that contradict each other are no reason to panic, as `clamp` would.
            Some(value.min(latency.max_ns).max(latency.min_ns))
        })
        .collect()
}

/// The first is 1. A product that is an integer but for rounding (0.07 times 100) is that integer.
fn rank(q: f64, count: u64) -> u64 {
    let exact = q * count as f64 * (1.0 - 4.0 * f64::EPSILON);
    (exact.ceil() as u64).clamp(1, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each value in a bin of its own.
    fn latency(values: &[u64]) -> Latency {
        let (count, sum) = (values.len() as f64, values.iter().sum::<u64>() as f64);
        let mean = sum / count;
        let squares: f64 = values.iter().map(|&v| (v as f64 - mean).powi(2)).sum();
        let mut bins: Vec<(u64, u64)> = Vec::new();
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        for value in sorted {
            match bins.last_mut() {
                Some(last) if last.0 == value => last.1 += 1,
                _ => bins.push((value, 1)),
            }
        }
        Latency {
            count: values.len() as u64,
            min_ns: bins[0].0,
            max_ns: bins[bins.len() - 1].0,
            mean_ns: mean,
            stddev_ns: if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            bins,
        }
    }

    /// python3: statistics.mean and .stdev of [3, 1, 4, 1, 5] + [9, 2, 6, 5, 3, 5, 8] are 4.333333333333333 and
    /// 2.534608929251695.
    #[test]
    fn the_sum_is_the_united_sample() {
        let (a, b) = ([3, 1, 4, 1, 5], [9, 2, 6, 5, 3, 5, 8]);
        let sum = merged(&latency(&a), &latency(&b));
        assert_eq!((sum.count, sum.min_ns, sum.max_ns), (12, 1, 9));
        assert!((sum.mean_ns - 4.333_333_333_333_333).abs() < 1e-12);
        assert!((sum.stddev_ns - 2.534_608_929_251_695).abs() < 1e-12);
        assert_eq!(sum.bins, [(1, 2), (2, 1), (3, 2), (4, 1), (5, 3), (6, 1), (8, 1), (9, 1)]);
        assert_eq!(merged(&latency(&b), &latency(&a)).bins, sum.bins);
    }

    #[test]
    fn one_is_a_sample_too() {
        let sum = merged(&latency(&[7]), &latency(&[9]));
        assert!((sum.stddev_ns - 2f64.sqrt()).abs() < 1e-12, "{sum:?}");
        assert_eq!(merged(&Latency::default(), &latency(&[9])), latency(&[9]));
        assert_eq!(merged(&latency(&[9]), &Latency::default()), latency(&[9]));
    }

    #[test]
    fn far_from_zero_the_deviation_stays() {
        let far = 1 << 52;
        let sum = merged(&latency(&[far, far + 2]), &latency(&[far + 4, far + 6]));
        assert!((sum.stddev_ns - 2.581_988_897_471_611).abs() < 1e-9, "{sum:?}");
    }

    #[test]
    fn a_quantile_is_the_nearest_rank() {
        let of_100: Vec<u64> = (1..=100).collect();
        let of_100 = latency(&of_100);
        for (q, expected) in [(0.0, 1), (0.07, 7), (0.29, 29), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)]
        {
            assert_eq!(quantile(&of_100, q), Some(expected), "{q}");
        }
        assert_eq!(quantiles(&of_100, &[0.9, 0.1, 0.5]), [Some(90), Some(10), Some(50)]);
        // The classic example of five: the 30th percentile is the second, the 40th still, the 50th the third.
        let of_5 = latency(&[15, 20, 35, 40, 50]);
        assert_eq!(quantiles(&of_5, &[0.05, 0.3, 0.4, 0.5, 1.0]), [15, 20, 20, 35, 50].map(Some));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        assert_eq!(quantile(&Latency::default(), 0.5), None);
        assert_eq!(quantile(&latency(&[1, 2]), f64::NAN), None);
        assert_eq!(quantile(&latency(&[1, 2]), 1.5), None);
        let no_bins = Latency { bins: Vec::new(), ..latency(&[1, 2]) };
        assert_eq!(quantile(&no_bins, 0.5), None);
        let contrary = Latency { min_ns: 9, max_ns: 1, ..latency(&[1, 2]) };
        assert_eq!(quantile(&contrary, 0.5), Some(9));
    }

    /// The bins' times are the upper ends of what is counted there; the longest is known better.
    #[test]
    fn never_longer_than_the_longest() {
        let coarse =
            Latency { count: 2, min_ns: 990, max_ns: 1000, bins: vec![(1001, 2)], ..Latency::default() };
        assert_eq!(quantile(&coarse, 1.0), Some(1000));
    }

    #[test]
    fn quantiles_of_a_sum_are_those_of_the_united_sample() {
        let (a, b) = (latency(&[1, 1, 1, 1, 1, 1, 1, 1, 1]), latency(&[100]));
        assert_eq!(quantiles(&merged(&a, &b), &[0.9, 0.91]), [Some(1), Some(100)]);
    }
}
