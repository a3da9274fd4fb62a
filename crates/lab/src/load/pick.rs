//! Which block is asked for next, where the order is random.

use crate::job::Distribution;
use bimetal_load::Ranks;
use bimetal_units::rng::{Rng, mix};

/// Numbers below a bound, each once, in an order that looks random and needs no memory: a Feistel network on the next
/// even power of two, walked until the number is below the bound (cycle walking).
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    len: u64,
    half_bits: u32,
    key: u64,
}

impl Shuffle {
    pub(crate) fn new(len: u64, key: u64) -> Shuffle {
        let bits = (64 - len.max(1).leading_zeros()).max(2);
        Shuffle { len, half_bits: bits.div_ceil(2), key }
    }

    /// Where the n-th lies.
    #[inline]
    pub(crate) fn at(&self, n: u64) -> u64 {
        let mut x = n;
        loop {
            x = self.round_trip(x);
            if x < self.len {
                return x;
            }
        }
    }

    #[inline]
    fn round_trip(&self, x: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for round in 0..4u64 {
            let f = mix(right ^ self.key ^ (round << 56)) & mask;
            (left, right) = (right, left ^ f);
        }
        (left << self.half_bits) | right
    }
}

/// 2^64 by the square of the golden ratio: multiples of it lie evenly.
const GOLDEN: u64 = 0x61c8_8646_80b5_83eb;

/// Draws blocks of a span.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    blocks: u64,
    law: Law,
    key: u64,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Zipf(Ranks),
    /// The exponent.
    Pareto(f64),
    /// Blocks by which a draw is moved, up or down by half of it.
    Normal(u64),
    /// Shares added up, and the blocks of each zone.
    Zoned(Vec<(f64, u64, u64)>),
}

impl Pick {
    pub(crate) fn new(distribution: &Distribution, blocks: u64, key: u64) -> Pick {
        let law = match distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipf { theta } => Ranks::new(blocks, *theta).map_or(Law::Uniform, Law::Zipf),
            Distribution::Pareto { h } => Law::Pareto(h.ln() / (1.0 - h).ln()),
            Distribution::Normal { deviation_percent } => {
                Law::Normal(((deviation_percent / 100.0 * blocks as f64).ceil() as u64).min(blocks / 2))
            }
            Distribution::Zoned(zones) => Law::Zoned(cut(zones, blocks)),
        };
        // A bell lies at the same blocks for all, as with fio.
        let key = if matches!(law, Law::Normal(_)) { 0 } else { key };
        Pick { blocks, law, key }
    }

    /// One of the blocks.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.law {
            Law::Uniform => rng.below(self.blocks),
            Law::Zipf(ranks) => self.scatter((ranks.draw(rng) - 1).min(self.blocks - 1)),
            Law::Pareto(power) => self.scatter(((self.blocks - 1) as f64 * unit(rng).powf(*power)) as u64),
            Law::Normal(spread) => self.scatter(self.normal(*spread, rng)),
            Law::Zoned(zones) => {
                let at = unit(rng);
                let zone = zones.partition_point(|zone| zone.0 < at).min(zones.len() - 1);
                let (_, from, to) = zones[zone];
                from + rng.below(to - from)
            }
        }
    }
}

impl Pick {
    /// Where a rank lies: anywhere, hashed, so that some share a block and others have none, as with fio.
    #[inline]
    fn scatter(&self, rank: u64) -> u64 {
        rank.wrapping_mul(GOLDEN).wrapping_add(self.key) % self.blocks
    }

    /// The mean of twelve blocks, moved by up to half of the spread: fio's way to a bell. What would leave the span is
    /// moved by half as much, and so on.
    fn normal(&self, spread: u64, rng: &mut Rng) -> u64 {
        let mean = (0..12).map(|_| rng.below(self.blocks + 1)).sum::<u64>().div_ceil(12);
        let mut by = (unit(rng) * spread as f64) as i64 - (spread / 2) as i64;
        loop {
            match mean.checked_add_signed(by).filter(|block| *block < self.blocks) {
                Some(block) => return block,
                None if by == 0 => return self.blocks - 1,
                None => by /= 2,
            }
        }
    }
}

/// From 0 to below 1.
#[inline]
pub(super) fn unit(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Normally distributed around 0, deviation 1 (Box and Muller).
pub(crate) fn gauss(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(rng)).cos()
}

/// The zones in blocks: each has one at least, as long as there are any.
fn cut(zones: &[(f64, f64)], blocks: u64) -> Vec<(f64, u64, u64)> {
    let (mut access, mut size, mut from) = (0.0, 0.0, 0);
    let mut cut = Vec::new();
    for (part, share) in zones {
        (access, size) = (access + part, size + share);
        let to = ((size * blocks as f64).round() as u64).clamp((from + 1).min(blocks), blocks);
        if *part > 0.0 && to > from {
            cut.push((access, from, to));
        }
        from = to;
    }
    if cut.is_empty() {
        cut.push((1.0, 0, blocks));
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_meets_each_once() {
        for len in [1, 2, 3, 5, 1000, 4096, 4097] {
            let shuffle = Shuffle::new(len, 7);
            let mut seen: Vec<u64> = (0..len).map(|n| shuffle.at(n)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..len), "{len}");
        }
        let shuffle = Shuffle::new(1 << 20, 7);
        let near = (1..1000).filter(|&n| shuffle.at(n).abs_diff(shuffle.at(n - 1)) < 1024).count();
        assert!(near < 10, "{near} of 1000 are neighbours");
    }

    fn share(pick: &Pick, of: impl Fn(u64) -> bool) -> f64 {
        let mut rng = Rng::new(1, 1);
        (0..100_000).filter(|_| of(pick.draw(&mut rng))).count() as f64 / 1e5
    }

    #[test]
    fn laws_are_kept() {
        let zipf = Pick::new(&Distribution::Zipf { theta: 1.0 }, 1000, 3);
        let first = zipf.scatter(0);
        // One part in the sum of 1/n up to 1000, which is 7.485.
        let most = share(&zipf, |block| block == first);
        assert!((0.130..0.145).contains(&most), "{most}");
        // Of ten million blocks: one in 16.695.
        let wide = Pick::new(&Distribution::Zipf { theta: 1.0 }, 10_000_000, 3);
        let first = wide.scatter(0);
        let most = share(&wide, |block| block == first);
        assert!((0.056..0.064).contains(&most), "{most}");
        let pareto = Pick::new(&Distribution::Pareto { h: 0.2 }, 10_000, 3);
        let hot: std::collections::HashSet<u64> = (0..2000).map(|rank| pareto.scatter(rank)).collect();
        let most = share(&pareto, |block| hot.contains(&block));
        // Four of five, and of the others those that share a block with these.
        assert!((0.79..0.89).contains(&most), "{most}");
        // Of ten thousand, the mean of twelve deviates by 833, and what it is moved by, by 289.
        let normal = Pick::new(&Distribution::Normal { deviation_percent: 10.0 }, 10_000, 3);
        let mut rng = Rng::new(1, 1);
        let within = |ranks: std::ops::Range<u64>, rng: &mut Rng| {
            (0..100_000).filter(|_| ranks.contains(&normal.normal(1000, rng))).count() as f64 / 1e5
        };
        let (one, two) = (within(4118..5882, &mut rng), within(3236..6764, &mut rng));
        assert!((0.67..0.70).contains(&one) && (0.945..0.965).contains(&two), "{one} {two}");
        let low = share(&normal, |block| block < 1000);
        assert!((0.07..0.13).contains(&low), "it is spread over the span: {low}");
        let zoned = Distribution::Zoned(vec![(0.5, 0.05), (0.3, 0.15), (0.2, 0.8)]);
        let zoned = Pick::new(&zoned, 10_000, 3);
        let parts =
            [0..500, 500..2000, 2000..10_000].map(|part| share(&zoned, |block| part.contains(&block)));
        for (part, expected) in parts.iter().zip([0.5, 0.3, 0.2]) {
            assert!((part - expected).abs() < 0.01, "{parts:?}");
        }
    }
}
