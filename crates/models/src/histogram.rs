//! Counts of latencies in buckets that are at most 1/64 of their value wide.

/// Sub-buckets of an octave, as a power of two.
const SUB_BITS: u32 = 6;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

/// Latencies in nanoseconds. It takes 30 KB, whatever it has counted.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one.
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean, exactly; 0 of none.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The largest.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// What `share` (0 to 1) of them do not exceed, up to the width of a bucket; 0 of none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(index).min(self.max);
            }
        }
        self.max
    }
}

/// The bucket of a value: its octave, and the bits that follow its leading one.
fn bucket(ns: u64) -> usize {
    // The lowest 2^SUB_BITS values have an octave of their own, in buckets of one value.
    let octave = (u64::BITS - ns.leading_zeros()).saturating_sub(SUB_BITS);
    let sub = (ns >> octave.saturating_sub(1)) & ((1 << SUB_BITS) - 1);
    ((octave as usize) << SUB_BITS) + sub as usize
}

/// The largest value of a bucket.
fn highest(index: usize) -> u64 {
    let (octave, sub) = ((index >> SUB_BITS) as u32, (index & ((1 << SUB_BITS) - 1)) as u64);
    if octave == 0 {
        return sub;
    }
    let low = ((1 << SUB_BITS) | sub) << (octave - 1);
    low + ((1 << (octave - 1)) - 1)
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, bucket, highest};

    #[test]
    fn buckets_follow_each_other_and_are_narrow() {
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for index in 0..BUCKETS - 1 {
            let last = highest(index);
            assert_eq!(bucket(last), index);
            assert_eq!(bucket(last + 1), index + 1);
        }
        for value in [1_u64, 63, 64, 1000, 123_456_789] {
            assert!(highest(bucket(value)) - value <= value / 64);
        }
    }

    #[test]
    fn quantiles_and_means() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile_ns(0.5), histogram.mean_ns()), (0, 0.0));
        (1..=100).for_each(|ns| histogram.add(ns * 1000));
        assert_eq!(histogram.mean_ns(), 50_500.0);
        assert!(histogram.quantile_ns(0.5).abs_diff(50_000) < 800);
        assert_eq!(
            (histogram.quantile_ns(1.0), histogram.max_ns(), histogram.count()),
            (100_000, 100_000, 100)
        );
    }
}
