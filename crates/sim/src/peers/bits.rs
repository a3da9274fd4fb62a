//! A set of numbers with a quick way to the next one.

/// Numbers that fit in a word.
const WORD: u64 = 64;

/// A bit for each number, and one for each word of those. Memory: 65 bits for each 64 numbers.
pub(super) struct Bits {
    words: Vec<u64>,
    some: Vec<u64>,
    count: u64,
}

impl Bits {
    /// None of the numbers below this.
    pub(super) fn new(numbers: u64) -> Bits {
        let words = numbers.div_ceil(WORD);
        Bits { words: vec![0; words as usize], some: vec![0; words.div_ceil(WORD) as usize], count: 0 }
    }

    /// How many are in.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.words[(number / WORD) as usize] >> (number % WORD) & 1 == 1
    }

    /// Puts a number in; whether it was not.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        let new = !self.has(number);
        self.words[(number / WORD) as usize] |= 1 << (number % WORD);
        self.some[(number / WORD / WORD) as usize] |= 1 << (number / WORD % WORD);
        self.count += u64::from(new);
        new
    }

    /// Takes a number out; whether it was in.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let old = self.has(number);
        let word = &mut self.words[(number / WORD) as usize];
        *word &= !(1 << (number % WORD));
        if *word == 0 {
            self.some[(number / WORD / WORD) as usize] &= !(1 << (number / WORD % WORD));
        }
        self.count -= u64::from(old);
        old
    }

    /// The first number from this one on.
    pub(super) fn next(&self, from: u64) -> Option<u64> {
        if let Some(word) = self.words.get((from / WORD) as usize) {
            let rest = word >> (from % WORD);
            if rest != 0 {
                return Some(from + u64::from(rest.trailing_zeros()));
            }
        }
        let first = from / WORD + 1;
        let mut group = first / WORD;
        let mut mask = u64::MAX << (first % WORD);
        while let Some(some) = self.some.get(group as usize) {
            let rest = some & mask;
            if rest != 0 {
                let word = group * WORD + u64::from(rest.trailing_zeros());
                return Some(word * WORD + u64::from(self.words[word as usize].trailing_zeros()));
            }
            (group, mask) = (group + 1, u64::MAX);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order() {
        let mut bits = Bits::new(100_000);
        let numbers = [0, 1, 63, 64, 4095, 4096, 70_000, 99_999];
        numbers.iter().for_each(|&number| assert!(bits.insert(number)));
        assert!(!bits.insert(64) && bits.count() == 8);
        let mut at = 0;
        let mut seen = Vec::new();
        while let Some(number) = bits.next(at) {
            seen.push(number);
            at = number + 1;
        }
        assert_eq!(seen, numbers);
        assert!(bits.remove(99_999) && !bits.remove(99_999));
        assert_eq!(bits.next(70_001), None);
        assert_eq!(bits.next(1_000_000), None);
    }
}
