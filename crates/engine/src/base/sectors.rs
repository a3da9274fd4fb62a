//! Which sectors of a block.

use bimetal_units::{BLOCK_BYTES, SECTOR_BYTES};
use serde::{Deserialize, Serialize};

/// A set of the eight sectors of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sectors(u8);

/// What is as it was of a block of a slow home that is being overwritten, as only some of its sectors landed: the others,
/// which are written over with what they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remains {
    /// The sectors that landed: of these the home may hold what was before, or what landed.
    pub landed: Sectors,
    /// Made of the checksums of the others, in their order: each is mixed into what was made of those before.
    pub sum: u32,
}

impl Remains {
    /// Of a block whose sectors have these checksums.
    pub fn of(landed: Sectors, sector_sum: impl Fn(u32) -> u32) -> Remains {
        let others = Sectors(landed.absent()).offsets();
        let sum = others.fold(0u32, |sum, offset| sum.rotate_left(5) ^ sector_sum(offset));
        Remains { landed, sum }
    }
}

impl Default for Sectors {
    fn default() -> Sectors {
        Sectors::ALL
    }
}

impl Sectors {
    /// All of a block.
    pub const ALL: Sectors = Sectors(u8::MAX);

    /// As a record has it: a bit for each sector that is *not* in the set. None where none is in it.
    pub fn from_absent(absent: u8) -> Option<Sectors> {
        (absent != u8::MAX).then_some(Sectors(!absent))
    }

    /// The sectors that are not in the set, a bit for each.
    pub fn absent(self) -> u8 {
        !self.0
    }

    /// Those with any byte of `[from, to)` of the block in them. Panics where there is no such byte.
    pub fn touching(from: u32, to: u32) -> Sectors {
        assert!(from < to && to <= BLOCK_BYTES, "bytes of a block");
        let (first, end) = (from / SECTOR_BYTES, to.div_ceil(SECTOR_BYTES));
        Sectors((u16::from(u8::MAX) >> (8 - (end - first)) << first) as u8)
    }

    /// The sectors of a block that are not in the set, if there are any.
    pub fn others(self) -> Option<Sectors> {
        Sectors::from_absent(self.0)
    }

    /// Whether it is the whole block.
    pub fn is_all(self) -> bool {
        self == Sectors::ALL
    }

    /// Sectors in either set.
    #[must_use]
    pub fn or(self, other: Sectors) -> Sectors {
        Sectors(self.0 | other.0)
    }

    /// Sectors in both sets, if there is any.
    pub fn and(self, other: Sectors) -> Option<Sectors> {
        Sectors::from_absent(!(self.0 & other.0))
    }

    /// Whether every sector of `other` is in this set.
    pub fn has(self, other: Sectors) -> bool {
        other.0 & !self.0 == 0
    }

    /// Byte offset in the block of each sector in the set.
    pub fn offsets(self) -> impl Iterator<Item = u32> {
        (0..8).filter(move |i| self.0 >> i & 1 != 0).map(|i| i * SECTOR_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_sectors() {
        assert!(Sectors::touching(0, 4096).is_all());
        assert_eq!(Sectors::touching(511, 513).offsets().collect::<Vec<_>>(), [0, 512]);
        assert_eq!(Sectors::touching(3584, 4096).offsets().collect::<Vec<_>>(), [3584]);
        let (head, tail) = (Sectors::touching(0, 1024), Sectors::touching(1024, 4096));
        assert!(head.or(tail).is_all() && head.and(tail).is_none());
        assert!(Sectors::ALL.has(head) && !head.has(Sectors::ALL) && !head.has(tail));
        assert_eq!(Sectors::from_absent(head.absent()), Some(head));
        assert_eq!(Sectors::from_absent(0xff), None);
        assert_eq!([head.others(), tail.others(), Sectors::ALL.others()], [Some(tail), Some(head), None]);
    }
}
