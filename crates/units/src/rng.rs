//! A small random number generator of our own, so that seeds outlive upgrades.

/// The odd constant of Weyl sequences.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of splitmix64: a good 64-bit mixer.
pub fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// xoshiro256**, seeded by splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// The generator of one stream of one seed; streams are independent, so that drawing more
    /// in one does not shift the others.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let base = mix(seed ^ mix(stream));
        let mut s = [0; 4];
        for (i, word) in s.iter_mut().enumerate() {
            *word = mix(base.wrapping_add(GOLDEN.wrapping_mul(i as u64 + 1)));
        }
        Rng { s }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let result = self.s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = self.s[1] << 17;
        self.s[2] ^= self.s[0];
        self.s[3] ^= self.s[1];
        self.s[1] ^= self.s[2];
        self.s[0] ^= self.s[3];
        self.s[2] ^= t;
        self.s[3] = self.s[3].rotate_left(45);
        result
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for eight in bytes.chunks_mut(8) {
            eight.copy_from_slice(&self.next_u64().to_le_bytes()[..eight.len()]);
        }
    }

    /// A number below `n` (zero when `n` is zero).
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in `n` on average; never when `n` is zero.
    pub fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.below(u64::from(n)) == 0
    }

    /// One of the values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// An index, each as likely as its weight; the last when all weights are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().map(|&w| u64::from(w)).sum();
        let mut left = self.below(total);
        for (i, &w) in weights.iter().enumerate() {
            if left < u64::from(w) {
                return i;
            }
            left -= u64::from(w);
        }
        weights.len() - 1
    }

    /// Puts the values in random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(1, 2));
        assert_ne!(draw(1, 1), draw(2, 1));
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(7, 0);
        for _ in 0..1000 {
            assert!((3..=5).contains(&rng.range(3, 5)));
            assert!(rng.weighted(&[0, 2, 0]) == 1);
        }
        assert_eq!(rng.below(0), 0);
    }
}
