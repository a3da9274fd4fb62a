//! Landed blocks: those whose newest copy is in the log.
//!
//! Every block of the landing zone has an index, the *zone block* (segment place times blocks per
//! area plus block in the area). An owner, a checksum and the sectors that it holds stand beside each, and a hash table
//! leads from the volume's block to its zone block: at most 24 bytes per landed block.

use crate::places::{self, Places};
use crate::sectors::Sectors;
use crate::units::Block;

/// A block of the landing zone, by its index in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct ZoneBlock(pub u32);

/// The table of landed blocks. Those whose newest copy was lost are flagged.
pub struct Landed {
    places: Places,
    sum: Vec<u32>,
    /// The sectors that each *lacks*, so that what was never used takes no memory.
    absent: Vec<u8>,
    /// Zone blocks before this one have been used.
    used: u32,
    /// Blocks that were lost.
    bad: u32,
}

/// Bytes of RAM for a zone of this many blocks.
pub fn ram_bytes(zone_blocks: u64) -> u64 {
    places::ram_bytes(zone_blocks) + zone_blocks * 5
}

impl Landed {
    /// A table for a zone of this many blocks.
    pub fn new(zone_blocks: u32) -> Landed {
        let blocks = zone_blocks as usize;
        let (sum, absent) = (vec![0; blocks], vec![0; blocks]);
        Landed { places: Places::new(zone_blocks), sum, absent, used: 0, bad: 0 }
    }

    /// Bytes of RAM: what was never used takes none.
    pub fn ram_bytes(&self) -> u64 {
        self.places.ram_bytes(self.used) + u64::from(self.used) * 5
    }

    /// Landed blocks.
    pub fn len(&self) -> u32 {
        self.places.len()
    }

    /// Landed blocks that were not lost: sooner or later they are merged.
    pub fn to_merge(&self) -> u32 {
        self.len() - self.bad
    }

    /// Where the block's newest copy is landed, if it is.
    pub fn get(&self, block: Block) -> Option<ZoneBlock> {
        self.places.get(block.0).map(ZoneBlock)
    }

    /// The block whose newest copy this zone block is, if it is one.
    pub fn owner(&self, z: ZoneBlock) -> Option<Block> {
        self.places.key(z.0).map(Block)
    }

    /// Whether the block's newest copy was lost: it is an error until written again.
    pub fn is_bad(&self, z: ZoneBlock) -> bool {
        self.places.is_flagged(z.0)
    }

    /// The checksum noted for a zone block.
    pub fn sum(&self, z: ZoneBlock) -> u32 {
        self.sum[z.0 as usize]
    }

    /// The sectors of its block that a zone block holds: of the others it says nothing.
    pub fn sectors(&self, z: ZoneBlock) -> Sectors {
        Sectors::from_absent(self.absent[z.0 as usize]).expect("what landed has sectors")
    }

    /// Notes checksum and sectors of what is being written to a zone block that has no owner yet.
    pub fn note(&mut self, z: ZoneBlock, sum: u32, sectors: Sectors) {
        assert!(self.owner(z).is_none(), "a landed block does not change");
        self.sum[z.0 as usize] = sum;
        self.absent[z.0 as usize] = sectors.absent();
        self.used = self.used.max(z.0 + 1);
    }

    /// Makes `z`, of which that was noted, the block's newest copy; gives the copy it supersedes, and whether that was
    /// lost.
    pub fn insert(&mut self, block: Block, z: ZoneBlock, bad: bool) -> Option<(ZoneBlock, bool)> {
        let old = self.places.insert(block.0, z.0, bad);
        self.bad += u32::from(bad);
        self.bad -= u32::from(old.is_some_and(|(_, was_bad)| was_bad));
        old.map(|(z, was_bad)| (ZoneBlock(z), was_bad))
    }

    /// The block is not landed any more; gives where it was, and whether it was lost there.
    pub fn remove(&mut self, block: Block) -> Option<(ZoneBlock, bool)> {
        let (z, was_bad) = self.places.remove(block.0)?;
        self.bad -= u32::from(was_bad);
        Some((ZoneBlock(z), was_bad))
    }
}
