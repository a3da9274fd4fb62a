//! Shadows: what a chunk that was moved up has left behind on the slow device, kept while slots are plentiful there.
//!
//! As long as the home on the fast device still holds what it was given then, its chunk goes down again without being
//! copied: a record makes the old slot the home once more. The slot's blocks were flushed, and their checksums recorded,
//! when it was the home before; only the mover writes there, into slots it has taken, and nobody reads there.
//! Nothing on the devices tells of shadows: to recovery their slots are free. So the first write to a home ends its shadow
//! here, before it is handed out, and needs no record; and all of them end with the opening.
//! One changed block ends the whole shadow. To write it alone would save bytes, but cost the disk a seek for each chunk,
//! where the same chunks go down side by side.

use crate::base::bugs::{Bug, planted};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// The shadows of a volume.
#[derive(Serialize, Deserialize)]
pub struct Shadows {
    /// The slow slot with the shadow of what is at home in a fast slot, plus one; 0 is none.
    of: Vec<u32>,
    count: u32,
    /// The fast slot that is looked at next for a shadow that gives way.
    hand: usize,
    /// Chunks that went down without being copied.
    pub(crate) used: u64,
}

/// What the shadows of a volume with so many fast slots take.
pub(crate) fn ram_bytes(fast_slots: u64) -> u64 {
    fast_slots * size_of::<u32>() as u64
}

impl Shadows {
    pub(crate) fn new(fast_slots: u32) -> Shadows {
        Shadows { of: vec![0; fast_slots as usize], count: 0, hand: 0, used: 0 }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        ram_bytes(self.of.len() as u64)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// The shadow of what is at home here.
    pub fn get(&self, home: Home) -> Option<Slot> {
        let place = (home.tier == FAST).then_some(home.slot.0 as usize)?;
        self.of[place].checked_sub(1).map(Slot)
    }

    pub(crate) fn keep(&mut self, fast: Slot, slow: Slot) {
        let shadow = &mut self.of[fast.0 as usize];
        assert!(*shadow == 0 || planted(Bug::ShadowOutlivesHome), "a home has one shadow");
        self.count += u32::from(*shadow == 0);
        *shadow = slow.0 + 1;
    }

    pub(crate) fn take(&mut self, home: Home) -> Option<Slot> {
        let shadow = self.get(home)?;
        self.of[home.slot.0 as usize] = 0;
        self.count -= 1;
        Some(shadow)
    }

    /// The home whose shadow gives way next: which one makes no difference that is known.
    pub(crate) fn next(&mut self) -> Option<Home> {
        if self.count == 0 {
            return None;
        }
        let (before, after) = self.of.split_at(self.hand);
        let is_one = |shadow: &u32| *shadow != 0;
        let ahead = after.iter().position(is_one).map(|i| self.hand + i);
        let found = ahead.or_else(|| before.iter().position(is_one))?;
        self.hand = found;
        Some(Home { tier: FAST, slot: Slot(found as u32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gives_way_in_its_turn() {
        let mut shadows = Shadows::new(8);
        for fast in [1, 4, 6] {
            shadows.keep(Slot(fast), Slot(10 + fast));
        }
        let home = |slot| Home { tier: FAST, slot: Slot(slot) };
        assert_eq!(shadows.get(home(4)), Some(Slot(14)));
        assert_eq!(shadows.get(Home { tier: SLOW, slot: Slot(4) }), None);
        for fast in [1, 4] {
            assert_eq!(shadows.next(), Some(home(fast)));
            assert_eq!(shadows.take(home(fast)), Some(Slot(10 + fast)));
        }
        shadows.keep(Slot(0), Slot(20));
        assert_eq!(shadows.next(), Some(home(6)), "it goes on from where it was");
        assert_eq!(shadows.take(home(6)), Some(Slot(16)));
        assert_eq!(shadows.next(), Some(home(0)));
        assert_eq!(shadows.take(home(0)), Some(Slot(20)));
        assert_eq!((shadows.next(), shadows.len()), (None, 0));
    }
}
