//! A set of small numbers, one bit each.

use serde::{Deserialize, Serialize};

/// Which of so many.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bits {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

/// What so many take, bytes of RAM.
pub fn ram_bytes(len: u64) -> u64 {
    len.div_ceil(64) * 8
}

impl Bits {
    /// None of `len`.
    pub fn none(len: u32) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    /// All of `len`.
    pub fn all(len: u32) -> Bits {
        let mut bits = Bits::none(len);
        bits.set_all();
        bits
    }

    /// How many there could be.
    pub fn size(&self) -> u32 {
        self.len
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether this is one; none is beyond the last.
    pub fn has(&self, at: u32) -> bool {
        self.words.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    /// Adds one; whether it is new.
    pub fn set(&mut self, at: u32) -> bool {
        assert!(at < self.len, "what is set is one of so many");
        let new = !self.has(at);
        self.words[at as usize / 64] |= 1 << (at % 64);
        self.count += u32::from(new);
        new
    }

    /// Adds all.
    pub fn set_all(&mut self) {
        let len = self.len;
        for (i, word) in self.words.iter_mut().enumerate() {
            let left = len - i as u32 * 64;
            *word = if left >= 64 { !0 } else { (1 << left) - 1 };
        }
        self.count = len;
    }

    /// Takes one away; whether it was there.
    pub fn clear(&mut self, at: u32) -> bool {
        let was = self.has(at);
        if was {
            self.words[at as usize / 64] &= !(1 << (at % 64));
            self.count -= 1;
        }
        was
    }

    /// The first at or behind this one.
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = *self.words.get(word)? & !0 << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.next(0);
        std::iter::from_fn(move || {
            let at = next?;
            next = self.next(at + 1);
            Some(at)
        })
    }

    /// As bytes: number `n` is bit `n % 8` of byte `n / 8`.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.len.div_ceil(8) as usize);
        bytes
    }

    /// The reverse of [`Bits::to_bytes`], of as many bytes as `len` takes.
    pub fn from_bytes(bytes: &[u8], len: u32) -> Bits {
        let mut bits = Bits::none(len);
        let is_set = |at: &u32| bytes.get(*at as usize / 8).is_some_and(|byte| byte >> (at % 8) & 1 != 0);
        (0..len).filter(is_set).for_each(|at| _ = bits.set(at));
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found_and_counted() {
        let mut bits = Bits::none(130);
        assert!([0, 63, 64, 129].into_iter().all(|at| bits.set(at)) && !bits.set(64));
        assert_eq!((bits.count(), bits.iter().collect::<Vec<_>>()), (4, vec![0, 63, 64, 129]));
        assert!(bits.clear(63) && !bits.clear(63) && !bits.has(1000));
        assert_eq!(
            (bits.next(1), bits.next(65), bits.next(130), bits.next(500)),
            (Some(64), Some(129), None, None)
        );
        assert_eq!(Bits::from_bytes(&bits.to_bytes(), 130), bits);
        assert_eq!((Bits::all(130).count(), Bits::all(130).iter().count()), (130, 130));
        assert_eq!(Bits::from_bytes(&[0xff; 17], 130), Bits::all(130));
    }
}
