//! Landed blocks: those whose newest copy is in the log.
//!
//! Every block of the landing zone has an index, the *zone block* (segment place times blocks per
//! area plus block in the area). An owner and a checksum stand beside each, and a hash table leads
//! from the volume's block to its zone block: at most 24 bytes per landed block.

use crate::hash::mix;
use crate::units::Block;

/// A block of the landing zone, by its index in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct ZoneBlock(pub u32);

const NONE: u64 = u64::MAX;
const BAD: u64 = 1 << 63;

/// The table of landed blocks.
pub struct Landed {
    table: Vec<u32>,
    owner: Vec<u64>,
    sum: Vec<u32>,
    len: u32,
    /// Those of them that were lost.
    bad: u32,
}

impl Landed {
    /// A table for a zone of this many blocks.
    pub fn new(zone_blocks: u32) -> Landed {
        // Three quarters full at the most, so that probing stays short.
        let size = (zone_blocks as usize * 4 / 3 + 1).next_power_of_two();
        let zone = zone_blocks as usize;
        Landed { table: vec![0; size], owner: vec![NONE; zone], sum: vec![0; zone], len: 0, bad: 0 }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.table.len() * 4 + self.owner.len() * 12) as u64
    }

    /// Landed blocks.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Landed blocks that were not lost: sooner or later they are merged.
    pub fn to_merge(&self) -> u32 {
        self.len - self.bad
    }

    fn bucket(&self, block: Block) -> usize {
        mix(block.0) as usize & (self.table.len() - 1)
    }

    fn find(&self, block: Block) -> Result<usize, usize> {
        let mut i = self.bucket(block);
        loop {
            match self.table[i] {
                0 => return Err(i),
                z if self.owner[z as usize - 1] & !BAD == block.0 => return Ok(i),
                _ => i = (i + 1) & (self.table.len() - 1),
            }
        }
    }

    /// Where the block's newest copy is landed, if it is.
    pub fn get(&self, block: Block) -> Option<ZoneBlock> {
        self.find(block).ok().map(|i| ZoneBlock(self.table[i] - 1))
    }

    /// The block whose newest copy this zone block is, if it is one.
    pub fn owner(&self, z: ZoneBlock) -> Option<Block> {
        let owner = self.owner[z.0 as usize];
        (owner != NONE).then_some(Block(owner & !BAD))
    }

    /// Whether the block's newest copy was lost: it is an error until written again.
    pub fn is_bad(&self, z: ZoneBlock) -> bool {
        let owner = self.owner[z.0 as usize];
        owner != NONE && owner & BAD != 0
    }

    /// The checksum noted for a zone block.
    pub fn sum(&self, z: ZoneBlock) -> u32 {
        self.sum[z.0 as usize]
    }

    /// Notes the checksum of what is being written to a zone block that has no owner yet.
    pub fn note_sum(&mut self, z: ZoneBlock, sum: u32) {
        assert!(self.owner[z.0 as usize] == NONE, "the checksum of a landed block does not change");
        self.sum[z.0 as usize] = sum;
    }

    /// Makes `z`, whose checksum was noted, the block's newest copy; gives the copy it supersedes, and whether that was
    /// lost.
    pub fn insert(&mut self, block: Block, z: ZoneBlock, bad: bool) -> Option<(ZoneBlock, bool)> {
        assert!(self.owner[z.0 as usize] == NONE, "a zone block has one owner");
        let old = match self.find(block) {
            Ok(i) => {
                let old = ZoneBlock(self.table[i] - 1);
                let was_bad = self.is_bad(old);
                self.owner[old.0 as usize] = NONE;
                self.table[i] = z.0 + 1;
                Some((old, was_bad))
            }
            Err(i) => {
                self.table[i] = z.0 + 1;
                self.len += 1;
                None
            }
        };
        self.owner[z.0 as usize] = block.0 | if bad { BAD } else { 0 };
        self.bad += u32::from(bad);
        self.bad -= u32::from(old.is_some_and(|(_, was_bad)| was_bad));
        old
    }

    /// The block is not landed any more; gives where it was, and whether it was lost there.
    pub fn remove(&mut self, block: Block) -> Option<(ZoneBlock, bool)> {
        let mut hole = self.find(block).ok()?;
        let z = self.table[hole] - 1;
        let was_bad = self.is_bad(ZoneBlock(z));
        let mask = self.table.len() - 1;
        // Close the gap: move back each later entry whose own bucket does not lie behind the hole.
        let mut i = hole;
        loop {
            i = (i + 1) & mask;
            let entry = self.table[i];
            if entry == 0 {
                break;
            }
            let home = self.bucket(Block(self.owner[entry as usize - 1] & !BAD));
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.table[hole] = entry;
                hole = i;
            }
        }
        self.table[hole] = 0;
        self.owner[z as usize] = NONE;
        self.len -= 1;
        self.bad -= u32::from(was_bad);
        Some((ZoneBlock(z), was_bad))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_an_ordered_map() {
        let (mut landed, mut model) = (Landed::new(64), BTreeMap::new());
        let mut free: Vec<u32> = (0..64).collect();
        let mut n = 1u64;
        for step in 0..20_000 {
            n = mix(n + step);
            let block = Block(n % 100);
            if n >> 32 & 1 == 0 && !free.is_empty() {
                let z = free.remove((n >> 40) as usize % free.len());
                let old = landed.insert(block, ZoneBlock(z), false);
                assert_eq!(old.map(|(z, _)| z.0), model.insert(block, z));
                free.extend(old.map(|(z, _)| z.0));
            } else {
                let old = landed.remove(block);
                assert_eq!(old.map(|(z, _)| z.0), model.remove(&block));
                free.extend(old.map(|(z, _)| z.0));
            }
            assert_eq!(landed.len() as usize, model.len());
            for b in (0..100).map(Block) {
                assert_eq!(landed.get(b).map(|z| z.0), model.get(&b).copied());
            }
        }
    }
}
