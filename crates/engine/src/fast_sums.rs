//! Checksums of blocks on the fast tier: those that the log had of what was merged there, until the block is written again.
//!
//! They are in memory, and listed in the root behind those of the slow tier; they are never folded, so there is a bound, and
//! what is beyond it has no checksum, as what was written without the log has none.

use crate::mask::BlockMask;
use crate::units::*;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::mem;

/// By block of a chunk, ascending.
type SlotSums = SmallVec<[(u16, u32); 2]>;

/// The checksums of blocks of fast slots.
#[derive(Default)]
pub struct FastSums {
    slots: BTreeMap<u32, SlotSums>,
    count: usize,
    limit: usize,
    /// What the checkpoint in force holds is being replayed, and so does its list: nothing changes.
    pub(crate) is_settled: bool,
}

impl FastSums {
    /// None, and room for so many.
    pub fn new(limit: usize) -> FastSums {
        FastSums { limit, ..FastSums::default() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many more there is room for.
    pub fn room(&self) -> usize {
        self.limit - self.count
    }

    /// The checksum of a block, if it has one.
    pub fn get(&self, slot: Slot, block: u32) -> Option<u32> {
        let sums = self.slots.get(&slot.0)?;
        sums.binary_search_by_key(&(block as u16), |&(block, _)| block).ok().map(|at| sums[at].1)
    }

    /// Whether any of these blocks has one.
    pub fn any(&self, slot: Slot, first: u32, count: u32) -> bool {
        let sums = self.slots.get(&slot.0);
        sums.is_some_and(|sums| sums.iter().any(|&(block, _)| (first..first + count).contains(&block.into())))
    }

    /// Notes checksums of these blocks, in their order, as far as there is room.
    pub fn note(&mut self, slot: Slot, blocks: &BlockMask, new: impl Iterator<Item = u32>) {
        if self.is_settled {
            return;
        }
        self.forget(slot, blocks);
        let new: Vec<_> = blocks.iter().map(|block| block as u16).zip(new).take(self.room()).collect();
        if new.is_empty() {
            return;
        }
        self.count += new.len();
        let sums = self.slots.entry(slot.0).or_default();
        sums.extend(new);
        sums.sort_unstable();
    }

    /// These blocks are, or will be, something else.
    pub fn forget(&mut self, slot: Slot, blocks: &BlockMask) {
        if self.is_settled {
            return;
        }
        let Some(sums) = self.slots.get_mut(&slot.0) else { return };
        let before = sums.len();
        sums.retain(|&mut (block, _)| !blocks.has(block.into()));
        self.count -= before - sums.len();
        if sums.is_empty() {
            self.slots.remove(&slot.0);
        }
    }

    /// The slot is somebody else's, or will be.
    pub fn forget_slot(&mut self, slot: Slot) {
        if !self.is_settled {
            self.count -= self.slots.remove(&slot.0).map_or(0, |sums| sums.len());
        }
    }

    /// Keeps those of the blocks that are held where they lie: after a replay from the middle of what pages show.
    pub fn retain(&mut self, holds: impl Fn(Slot) -> BlockMask) {
        for (slot, mut sums) in mem::take(&mut self.slots) {
            let held = holds(Slot(slot));
            self.count -= sums.len();
            sums.retain(|&mut (block, _)| held.has(block.into()));
            if !sums.is_empty() {
                self.count += sums.len();
                self.slots.insert(slot, sums);
            }
        }
    }

    /// All of them from a slot on: slot, block, checksum.
    pub fn list(&self, from: Slot) -> impl Iterator<Item = (Slot, u32, u32)> + '_ {
        let all = self.slots.range(from.0..);
        all.flat_map(|(&slot, sums)| sums.iter().map(move |&(block, sum)| (Slot(slot), block.into(), sum)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_there_until_it_is_forgotten_and_no_more_than_there_is_room_for() {
        let mut sums = FastSums::new(5);
        sums.note(Slot(3), &BlockMask::range(2, 3), [20, 30, 40].into_iter());
        assert_eq!([2, 3, 4, 5].map(|block| sums.get(Slot(3), block)), [Some(20), Some(30), Some(40), None]);
        assert!(sums.any(Slot(3), 4, 9) && !sums.any(Slot(3), 5, 9) && !sums.any(Slot(2), 0, 9));
        // Anew, one of them is gone, and there is room for two more.
        sums.note(Slot(3), &BlockMask::range(3, 1), [31].into_iter());
        sums.note(Slot(1), &BlockMask::range(0, 4), [5, 6, 7, 8].into_iter());
        let listed: Vec<_> = sums.list(Slot(0)).map(|(slot, block, sum)| (slot.0, block, sum)).collect();
        assert_eq!(listed, [(1, 0, 5), (1, 1, 6), (3, 2, 20), (3, 3, 31), (3, 4, 40)]);
        sums.forget(Slot(3), &BlockMask::range(0, 3));
        sums.forget_slot(Slot(1));
        assert_eq!((sums.len(), sums.room()), (2, 3));
        sums.retain(|slot| if slot == Slot(3) { BlockMask::range(4, 1) } else { BlockMask::EMPTY });
        assert_eq!((sums.len(), sums.get(Slot(3), 4)), (1, Some(40)));
    }
}
