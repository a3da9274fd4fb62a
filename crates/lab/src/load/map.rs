//! Which parts of a span were met already, where I/Os differ in size.

/// Parts of a span, each free or taken; the first free one from anywhere on is found in a few steps, as each word
/// has a bit above it that says whether it is full.
#[derive(Clone, Debug)]
pub(super) struct Map {
    parts: u64,
    /// A set bit is a taken part; a level up, a full word of the level below.
    levels: Vec<Vec<u64>>,
}

const BITS: u64 = 64;

/// Parts at most: half a GiB of memory.
pub(crate) const MOST_PARTS: u64 = 1 << 32;

impl Map {
    /// All of them free.
    pub(super) fn new(parts: u64) -> Map {
        let mut map = Map { parts, levels: Vec::new() };
        map.clear();
        map
    }

    /// Frees all.
    pub(super) fn clear(&mut self) {
        self.levels.clear();
        let mut bits = self.parts.max(1);
        loop {
            let words = bits.div_ceil(BITS);
            let mut level = vec![0; words as usize];
            // What lies behind the end is taken.
            if !bits.is_multiple_of(BITS) {
                level[words as usize - 1] = u64::MAX << (bits % BITS);
            }
            self.levels.push(level);
            if words == 1 {
                break;
            }
            bits = words;
        }
    }

    /// The first free part from one on.
    pub(super) fn free_from(&self, from: u64) -> Option<u64> {
        let (mut at, mut level) = (from, 0);
        // Up, until a word has a free bit at or behind the place; then down, to the first free bit of each.
        loop {
            let word = *self.levels[level].get((at / BITS) as usize)?;
            let free = !word & (u64::MAX << (at % BITS));
            if free != 0 {
                at = at / BITS * BITS + u64::from(free.trailing_zeros());
                break;
            }
            at = at / BITS + 1;
            level += 1;
            if level == self.levels.len() {
                return None;
            }
        }
        for level in (0..level).rev() {
            let word = self.levels[level][at as usize];
            at = at * BITS + u64::from((!word).trailing_zeros());
        }
        (at < self.parts).then_some(at)
    }

    /// Takes free parts from one on, up to so many, and up to the first that is taken; how many these were.
    pub(super) fn take(&mut self, from: u64, most: u64) -> u64 {
        let end = from.saturating_add(most).min(self.parts);
        let mut at = from;
        while at < end {
            let (word, bit) = ((at / BITS) as usize, at % BITS);
            let run = u64::from((self.levels[0][word] >> bit).trailing_zeros()).min(BITS - bit).min(end - at);
            if run == 0 {
                break;
            }
            self.levels[0][word] |= (u64::MAX >> (BITS - run)) << bit;
            self.fill_above(word);
            at += run;
            // A word that ends in a taken part ends the stretch.
            if bit + run < BITS && at < end {
                break;
            }
        }
        at - from
    }

    /// Tells the levels above that a word is full, if it is.
    fn fill_above(&mut self, word: usize) {
        let mut word = word;
        for level in 1..self.levels.len() {
            if self.levels[level - 1][word] != u64::MAX {
                break;
            }
            self.levels[level][word / BITS as usize] |= 1 << (word as u64 % BITS);
            word /= BITS as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    /// Against a list of flags, with lengths around those of words and of levels.
    #[test]
    fn free_parts_are_found_and_taken_as_in_a_list() {
        for parts in [1, 2, 63, 64, 65, 4095, 4096, 4097, 70_000] {
            let (mut map, mut list) = (Map::new(parts), vec![false; parts as usize]);
            let mut rng = Rng::new(parts, 5);
            let mut taken = 0;
            while taken < parts {
                let from = rng.below(parts);
                let free = (from..parts).find(|&part| !list[part as usize]);
                assert_eq!(map.free_from(from), free, "{parts} parts, from {from}");
                let Some(free) = free.or_else(|| map.free_from(0)) else { panic!("some are free") };
                let most = 1 + rng.below(200);
                let end = (free + most).min(parts);
                let until = (free..end).find(|&part| list[part as usize]).unwrap_or(end);
                assert_eq!(map.take(free, most), until - free, "{parts} parts, {most} at {free}");
                list[free as usize..until as usize].fill(true);
                taken += until - free;
            }
            assert_eq!((map.free_from(0), map.take(0, 1)), (None, 0));
            map.clear();
            assert_eq!(map.free_from(parts - 1), Some(parts - 1));
        }
    }
}
