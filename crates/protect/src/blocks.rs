//! Sets of blocks of a device, a bit for each.

use std::ops::Range;

const BITS: u64 = 64;

/// A set of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    words: Vec<u64>,
    len: u64,
    count: u64,
}

impl Blocks {
    /// None of so many.
    pub(crate) fn none(len: u64) -> Blocks {
        Blocks { words: vec![0; len.div_ceil(BITS) as usize], len, count: 0 }
    }

    /// How many are in it.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Each word that a range is a part of, with the bits of the part.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (usize, u64)> + use<> {
        let Range { start, end } = *range;
        assert!(end <= self.len, "blocks are of the device");
        let words = if range.is_empty() { 0..0 } else { start / BITS..end.div_ceil(BITS) };
        words.map(move |word| {
            let first = start.max(word * BITS) - word * BITS;
            let bits = end.min((word + 1) * BITS) - word * BITS - first;
            (word as usize, (u64::MAX >> (BITS - bits)) << first)
        })
    }

    /// Puts a range in.
    pub(crate) fn insert(&mut self, range: &Range<u64>) {
        for (word, bits) in self.parts(range) {
            self.count += u64::from((bits & !self.words[word]).count_ones());
            self.words[word] |= bits;
        }
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        for (word, bits) in self.parts(range) {
            self.count -= u64::from((bits & self.words[word]).count_ones());
            self.words[word] &= !bits;
        }
    }

    /// Whether a part of a range is in it.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.parts(range).any(|(word, bits)| self.words[word] & bits != 0)
    }

    /// Everything, and nothing is left.
    pub(crate) fn take(&mut self) -> Blocks {
        std::mem::replace(self, Blocks::none(self.len))
    }

    /// Puts all in that another set has.
    pub(crate) fn append(&mut self, other: &Blocks) {
        self.count = 0;
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
            self.count += u64::from(word.count_ones());
        }
    }

    /// The first run at `from` or behind it, of so many blocks at most.
    pub(crate) fn next(&self, from: u64, most: u64) -> Option<Range<u64>> {
        let start = self.find(from, false)?;
        let end = self.find(start, true).unwrap_or(self.len);
        Some(start..end.min(start + most))
    }

    /// The first at `from` or behind it that is in it, or is not.
    fn find(&self, from: u64, absent: bool) -> Option<u64> {
        let mut from = from;
        while from < self.len {
            let word = self.words[(from / BITS) as usize];
            let bits = (if absent { !word } else { word }) >> (from % BITS);
            if bits != 0 {
                let at = from + u64::from(bits.trailing_zeros());
                return Some(at).filter(|at| *at < self.len);
            }
            from = (from / BITS + 1) * BITS;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_as_a_set_of_numbers_is() {
        let mut rng = Rng::new(1, 1);
        for _ in 0..200 {
            let len = rng.range(1, 300);
            let (mut blocks, mut set) = (Blocks::none(len), BTreeSet::new());
            for _ in 0..rng.below(30) {
                let start = rng.below(len + 1);
                let range = start..start + rng.below(len - start + 1);
                assert_eq!(blocks.overlaps(&range), set.range(range.clone()).next().is_some());
                if rng.one_in(2) {
                    blocks.insert(&range);
                    set.extend(range);
                } else {
                    blocks.remove(&range);
                    set.retain(|block| !range.contains(block));
                }
                assert_eq!(blocks.count(), set.len() as u64);
                let (from, most) = (rng.below(len + 2), rng.range(1, 9));
                let first = set.range(from..).next().copied();
                let run = first.map(|first| {
                    let end = (first..first + most).take_while(|block| set.contains(block)).count() as u64;
                    first..first + end
                });
                assert_eq!(blocks.next(from, most), run);
            }
        }
    }
}
