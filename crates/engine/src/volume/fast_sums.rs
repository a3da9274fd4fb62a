//! Checksums of blocks on the fast tier: those that the log had of what was merged there, until the block is written again.
//!
//! They are in memory, and listed in the root behind those of the slow tier; they are never folded, so there is a bound, and
//! what is beyond it has no checksum, as what was written without the log has none.
//!
//! What a record in the log says has a checksum has one until a later record ends it, and that one is durable: whoever opens the
//! volume after a crash goes by the log. So none is dropped here to save room, and one that was ended keeps writes from being
//! in place until its end is durable.

use crate::base::mask::BlockMask;
use crate::volume::ends::Ends;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::mem;

/// By block of a chunk, ascending.
type SlotSums = SmallVec<[(u16, u32); 2]>;

/// The checksums of blocks of fast slots.
#[derive(Default, Serialize, Deserialize)]
pub struct FastSums {
    slots: BTreeMap<u32, SlotSums>,
    /// Those that a record ended which may not be durable yet.
    ended: Ends<(Slot, BlockMask)>,
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

    /// How many there are, beyond those that an opening with more room left behind: the list leaves these out where there is
    /// none, and nothing waits for them.
    pub fn expected(&self) -> usize {
        self.count.min(self.limit)
    }

    /// How many more are welcome.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.count)
    }

    /// The checksum of a block, if it has one.
    pub fn get(&self, slot: Slot, block: u32) -> Option<u32> {
        let sums = self.slots.get(&slot.0)?;
        sums.binary_search_by_key(&(block as u16), |&(block, _)| block).ok().map(|at| sums[at].1)
    }

    /// Whether any of these blocks has one, or would have one after a crash now.
    pub fn any(&self, slot: Slot, blocks: &BlockMask) -> bool {
        let sums = self.slots.get(&slot.0);
        sums.is_some_and(|sums| sums.iter().any(|&(block, _)| blocks.has(block.into())))
            || self.ended.iter().any(|(of, ended)| *of == slot && !blocks.and(*ended).is_empty())
    }

    /// What was ended of late was ended by records in groups up to this one.
    pub fn ended_by(&mut self, group: Seq) {
        self.ended.ended_by(group);
    }

    /// The groups that ends wait for.
    pub fn waits(&mut self) -> impl Iterator<Item = &mut Seq> {
        self.ended.waits()
    }

    /// Groups up to this one are durable.
    pub fn durable(&mut self, group: Seq) {
        self.ended.durable(group);
    }

    /// Notes checksums of these blocks, in their order.
    pub fn note(&mut self, slot: Slot, blocks: &BlockMask, new: impl Iterator<Item = u32>) {
        if self.is_settled {
            return;
        }
        self.remove(slot, blocks);
        let new: Vec<_> = blocks.iter().map(|block| block as u16).zip(new).collect();
        if new.is_empty() {
            return;
        }
        self.count += new.len();
        let sums = self.slots.entry(slot.0).or_default();
        sums.extend(new);
        sums.sort_unstable();
    }

    /// These blocks are, or will be, something else, by a record in a group that [`FastSums::ended_by`] will tell.
    pub fn end(&mut self, slot: Slot, blocks: &BlockMask) {
        if !self.is_settled && self.remove(slot, blocks) {
            self.ended.push((slot, *blocks));
        }
    }

    /// The same for blocks of which a record says that they have one, and which were something else before it was noted.
    pub fn end_unnoted(&mut self, slot: Slot, blocks: &BlockMask) {
        self.ended.push((slot, *blocks));
    }

    /// True: some of them had one.
    fn remove(&mut self, slot: Slot, blocks: &BlockMask) -> bool {
        let Some(sums) = self.slots.get_mut(&slot.0) else { return false };
        let before = sums.len();
        sums.retain(|&mut (block, _)| !blocks.has(block.into()));
        self.count -= before - sums.len();
        let had = sums.len() < before;
        if sums.is_empty() {
            self.slots.remove(&slot.0);
        }
        had
    }

    /// The slot is somebody else's, durably.
    pub fn forget_slot(&mut self, slot: Slot) {
        if !self.is_settled {
            self.count -= self.slots.remove(&slot.0).map_or(0, |sums| sums.len());
        }
    }

    /// Keeps those of the blocks that are held where they lie: after a replay from the middle of what pages show. All of it is
    /// durable.
    pub fn retain(&mut self, holds: impl Fn(Slot) -> BlockMask) {
        self.ended = Ends::default();
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
    fn what_is_noted_is_there_until_it_is_ended_and_what_is_ended_until_that_is_durable() {
        let mut sums = FastSums::new(5);
        sums.note(Slot(3), &BlockMask::range(2, 3), [20, 30, 40].into_iter());
        assert_eq!([2, 3, 4, 5].map(|block| sums.get(Slot(3), block)), [Some(20), Some(30), Some(40), None]);
        let any = |sums: &FastSums, slot, first, count| sums.any(Slot(slot), &BlockMask::range(first, count));
        assert!(any(&sums, 3, 4, 9) && !any(&sums, 3, 5, 9) && !any(&sums, 2, 0, 9));
        // Anew; and more than are welcome are not dropped.
        sums.note(Slot(3), &BlockMask::range(3, 1), [31].into_iter());
        sums.note(Slot(1), &BlockMask::range(0, 4), [5, 6, 7, 8].into_iter());
        let listed: Vec<_> = sums.list(Slot(0)).map(|(slot, block, sum)| (slot.0, block, sum)).collect();
        assert_eq!(listed, [(1, 0, 5), (1, 1, 6), (1, 2, 7), (1, 3, 8), (3, 2, 20), (3, 3, 31), (3, 4, 40)]);
        assert_eq!(sums.room(), 0);
        sums.end(Slot(3), &BlockMask::range(0, 3));
        assert_eq!((sums.get(Slot(3), 2), any(&sums, 3, 2, 1)), (None, true), "a crash may bring it back");
        sums.durable(Seq(9));
        assert!(any(&sums, 3, 2, 1), "nobody has said which group it is");
        sums.ended_by(Seq(8));
        sums.durable(Seq(7));
        assert!(any(&sums, 3, 2, 1));
        sums.durable(Seq(8));
        assert!(!any(&sums, 3, 2, 1));
        sums.forget_slot(Slot(1));
        assert_eq!((sums.len(), sums.room()), (2, 3));
        sums.retain(|slot| if slot == Slot(3) { BlockMask::range(4, 1) } else { BlockMask::EMPTY });
        assert_eq!((sums.len(), sums.get(Slot(3), 4)), (1, Some(40)));
    }
}
