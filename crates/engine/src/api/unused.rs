//! What of a device nobody needs: whoever keeps what it held may leave that out.

use std::ops::Range;

/// Slots of a device of which nothing is looked at any more, whatever they hold and whenever power fails: new data may be written
/// there at any time.
#[derive(Clone, Debug, Default)]
pub struct Unused {
    first_block: u64,
    slot_blocks: u64,
    /// A bit for each slot.
    used: Vec<u64>,
    slots: u64,
}

impl Unused {
    /// So many slots from a block on, of so many blocks each; those with a bit are in use.
    pub fn new(first_block: u64, slot_blocks: u64, slots: u64, used: Vec<u64>) -> Unused {
        assert!(slots <= used.len() as u64 * 64, "a bit for each slot");
        Unused { first_block, slot_blocks, used, slots }
    }

    /// The parts of a range of blocks that somebody needs.
    pub fn needed(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut needed: Vec<Range<u64>> = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let (end, is_needed) = self.slot_of(from);
            let part = from..end.min(range.end);
            from = part.end;
            match needed.last_mut() {
                _ if !is_needed => {}
                Some(last) if last.end == part.start => last.end = part.end,
                _ => needed.push(part),
            }
        }
        needed
    }

    /// Where the slot of a block ends, or what is not of slots, and whether somebody needs it.
    fn slot_of(&self, block: u64) -> (u64, bool) {
        let Some(behind) = block.checked_sub(self.first_block).filter(|_| self.slots > 0) else {
            return (if self.slots > 0 { self.first_block } else { u64::MAX }, true);
        };
        let slot = behind / self.slot_blocks;
        if slot >= self.slots {
            return (u64::MAX, true);
        }
        let is_used = self.used[slot as usize / 64] >> (slot % 64) & 1 != 0;
        (self.first_block + (slot + 1) * self.slot_blocks, is_used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_a_free_slot_is_needed() {
        let unused = Unused::new(10, 4, 3, vec![0b010]);
        let whole = 0..40;
        assert_eq!(unused.needed(&whole), [0..10, 14..18, 22..40]);
        assert_eq!(unused.needed(&(10..14)), []);
        assert_eq!(unused.needed(&(12..24)), [14..18, 22..24]);
        assert_eq!(Unused::default().needed(&whole), [whole]);
    }
}
