//! A set of blocks within one chunk.

use crate::base::bugs::{Bug, planted};
use bimetal_units::MAX_BLOCKS_PER_CHUNK;
use serde::{Deserialize, Serialize};

const WORDS: usize = MAX_BLOCKS_PER_CHUNK as usize / 64;

/// Which blocks of a chunk: up to 1,024 of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BlockMask([u64; WORDS]);

impl BlockMask {
    /// No block.
    pub const EMPTY: BlockMask = BlockMask([0; WORDS]);

    /// Blocks `[first, first + count)`.
    pub fn range(first: u32, count: u32) -> BlockMask {
        let mut mask = BlockMask::EMPTY;
        let short = planted(Bug::LastBlockForgotten) && first + count == MAX_BLOCKS_PER_CHUNK;
        for b in first..first + count - u32::from(short) {
            mask.set(b);
        }
        mask
    }

    /// From 32-bit words, as maps and records store them.
    pub fn from_words(words: impl Iterator<Item = u32>) -> BlockMask {
        let mut mask = BlockMask::EMPTY;
        for (i, word) in words.enumerate() {
            mask.0[i / 2] |= u64::from(word) << (32 * (i % 2));
        }
        mask
    }

    /// The 32-bit word `i`.
    pub fn word(&self, i: usize) -> u32 {
        (self.0[i / 2] >> (32 * (i % 2))) as u32
    }

    /// Whether the block is in the set.
    pub fn has(&self, block: u32) -> bool {
        self.0[block as usize / 64] >> (block % 64) & 1 != 0
    }

    /// Adds a block.
    pub fn set(&mut self, block: u32) {
        self.0[block as usize / 64] |= 1 << (block % 64);
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|w| *w == 0)
    }

    /// Blocks in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// The first and the last block, unless it is empty.
    pub fn bounds(&self) -> Option<(u32, u32)> {
        let (first, last) = (self.0.iter().position(|w| *w != 0)?, self.0.iter().rposition(|w| *w != 0)?);
        let within = (self.0[first].trailing_zeros(), 63 - self.0[last].leading_zeros());
        Some((first as u32 * 64 + within.0, last as u32 * 64 + within.1))
    }

    /// Blocks in either set.
    #[must_use]
    pub fn or(mut self, other: BlockMask) -> BlockMask {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
        self
    }

    /// Blocks in both sets.
    #[must_use]
    pub fn and(mut self, other: BlockMask) -> BlockMask {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        self
    }

    /// Blocks in this set but not in the other.
    #[must_use]
    pub fn minus(mut self, other: BlockMask) -> BlockMask {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= !b);
        self
    }

    /// The blocks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros();
                    left &= left - 1;
                    i as u32 * 64 + bit
                })
            })
        })
    }

    /// Runs of neighbouring blocks: (first, count), ascending.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut blocks = self.iter().peekable();
        std::iter::from_fn(move || {
            let first = blocks.next()?;
            let mut end = first + 1;
            while blocks.next_if_eq(&end).is_some() {
                end += 1;
            }
            Some((first, end - first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_neighbours_across_words() {
        let mask = BlockMask::range(60, 10).or(BlockMask::range(0, 2));
        assert_eq!(mask.runs().collect::<Vec<_>>(), [(0, 2), (60, 10)]);
        assert_eq!(mask.count(), 12);
        assert_eq!(mask.bounds(), Some((0, 69)));
        assert_eq!(BlockMask::range(127, 1).bounds(), Some((127, 127)));
        assert_eq!(BlockMask::EMPTY.bounds(), None);
        assert_eq!(BlockMask::from_words((0..32).map(|i| mask.word(i))), mask);
    }
}
