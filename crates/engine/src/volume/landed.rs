//! Landed blocks: those whose newest copy is in the log.
//!
//! Every block of the landing zone has an index, the *zone block* (segment place times blocks per
//! area plus block in the area). An owner, a checksum and the sectors that it holds stand beside each, and a hash table
//! leads from the volume's block to its zone block: at most 24 bytes per block of the zone. Parts of two blocks may share one,
//! where there is memory for what that takes: 9 bytes more for the second owner and its sectors, and up to 5 in the hash table.

use crate::api::options::Tuning;
use crate::base::sectors::Sectors;
use crate::format::geometry::Geometry;
use crate::volume::places::{self, Places};
use bimetal_units::Block;
use serde::{Deserialize, Serialize};

/// What landed of one block of the volume in a block of the landing zone, by that one's index in RAM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ZoneBlock(u32);

/// Set where it is the second of two parts that share a block.
const SECOND: u32 = 1 << 31;

impl ZoneBlock {
    /// The only, or the first, in the block of this index. Panics where a zone has no such block.
    pub fn new(index: u32) -> ZoneBlock {
        assert!(index < SECOND, "a zone has fewer blocks");
        ZoneBlock(index)
    }

    /// The second in the same block.
    pub fn second(self) -> ZoneBlock {
        ZoneBlock(self.0 | SECOND)
    }

    /// The index of its block.
    pub fn index(self) -> u32 {
        self.0 & !SECOND
    }

    /// The first in the block that lies so many blocks further on.
    pub fn after(self, blocks: u32) -> ZoneBlock {
        ZoneBlock::new(self.index() + blocks)
    }

    fn is_second(self) -> bool {
        self.0 & SECOND != 0
    }
}

/// The table of landed blocks. Those are flagged of which something is lost: of a part the sectors that it does not hold,
/// and all of what is no part.
#[derive(Serialize, Deserialize)]
pub struct Landed {
    places: Places,
    sum: Vec<u32>,
    /// The sectors that each *lacks*, so that what was never used takes no memory; as with places, those that came second
    /// in a block stand behind all others.
    absent: Vec<u8>,
    shares: bool,
    /// Zone blocks before this one have been used, ...
    used: u32,
    /// ... and twice before this one.
    used_twice: u32,
    /// Blocks of which something is lost.
    bad: u32,
}

/// Areas that the landing zone may have with as much RAM as its tables may take; its own are those at least.
pub(crate) fn most_zone_areas(geo: &Geometry, tuning: &Tuning) -> u32 {
    let area_bytes = ram_bytes(u64::from(geo.area_blocks()) << 10) >> 10;
    let areas = u32::try_from(tuning.landing_ram_bytes / area_bytes).unwrap_or(u32::MAX);
    areas.clamp(geo.zone_areas(), geo.most_zone_areas())
}

/// Whether parts of two blocks may share one of the log: where the zone has as many areas as it may ever have, and there is
/// memory left for that.
pub(crate) fn parts_may_share(geo: &Geometry, tuning: &Tuning) -> bool {
    let blocks = u64::from(geo.most_zone_areas()) * u64::from(geo.area_blocks());
    ram_bytes(blocks) + sharing_ram_bytes(blocks) <= tuning.landing_ram_bytes
}

/// Bytes of RAM for a zone of this many blocks, each with one owner.
pub fn ram_bytes(zone_blocks: u64) -> u64 {
    places::ram_bytes(zone_blocks, zone_blocks) + zone_blocks * 5
}

/// Bytes of RAM beside these where parts may share blocks.
pub fn sharing_ram_bytes(zone_blocks: u64) -> u64 {
    // They do only while fewer have landed than the zone has blocks: then half as many of these are in use at least, and
    // each of the others can still get one.
    let landed = zone_blocks + zone_blocks / 2;
    places::ram_bytes(2 * zone_blocks, landed) + zone_blocks * 6 - ram_bytes(zone_blocks)
}

/// First and second parts of so many blocks.
fn both(zone_blocks: u32) -> u32 {
    zone_blocks.checked_mul(2).expect("a zone has fewer blocks")
}

impl Landed {
    /// A table for a zone of this many blocks, in which parts may share blocks or not.
    pub fn new(zone_blocks: u32, shares: bool) -> Landed {
        let parts = if shares { both(zone_blocks) } else { zone_blocks };
        let (sum, absent) = (vec![0; zone_blocks as usize], vec![0; parts as usize]);
        Landed {
            places: Places::new(parts, zone_blocks),
            sum,
            absent,
            shares,
            used: 0,
            used_twice: 0,
            bad: 0,
        }
    }

    /// Where there is no memory to share blocks, the log of an opening that had it may still have to be read.
    fn make_room_for_second(&mut self) {
        let parts = both(self.sum.len() as u32);
        if self.places.places() < parts {
            places::extend(&mut self.absent, parts, self.used);
            self.places.extend(parts, self.used);
        }
    }

    /// Bytes of RAM: what was never used takes none.
    pub fn ram_bytes(&self) -> u64 {
        self.places.ram_bytes(self.used + self.used_twice)
            + u64::from(self.used) * 5
            + u64::from(self.used_twice)
    }

    /// Landed blocks.
    pub fn len(&self) -> u32 {
        self.places.len()
    }

    /// Landed blocks of which nothing is lost: sooner or later they are merged.
    pub fn to_merge(&self) -> u32 {
        self.len() - self.bad
    }

    /// Whether there is memory for a second part in a block; see [`sharing_ram_bytes`].
    pub fn may_share(&self) -> bool {
        self.shares && (self.len() as usize) < self.sum.len()
    }

    /// Whether another part lies in the same block, or did.
    pub fn is_shared(&self, z: ZoneBlock) -> bool {
        z.index() < self.used_twice && self.absent[self.place(z.second()) as usize] != 0
    }

    fn place(&self, z: ZoneBlock) -> u32 {
        z.index() + if z.is_second() { self.sum.len() as u32 } else { 0 }
    }

    fn at(&self, place: u32) -> ZoneBlock {
        match place.checked_sub(self.sum.len() as u32) {
            Some(index) => ZoneBlock::new(index).second(),
            None => ZoneBlock::new(place),
        }
    }

    /// Where the block's newest copy is landed, if it is.
    pub fn get(&self, block: Block) -> Option<ZoneBlock> {
        self.places.get(block.0).map(|place| self.at(place))
    }

    /// The block whose newest copy this zone block is, if it is one.
    pub fn owner(&self, z: ZoneBlock) -> Option<Block> {
        let place = self.place(z);
        if place < self.places.places() { self.places.key(place).map(Block) } else { None }
    }

    /// Whether something of the block is lost: it is an error until written again.
    pub fn is_bad(&self, z: ZoneBlock) -> bool {
        self.places.is_flagged(self.place(z))
    }

    /// Of a block that is lost, the sectors that are not, if there are any.
    pub fn remnant(&self, z: ZoneBlock) -> Option<Sectors> {
        Some(self.sectors(z)).filter(|sectors| self.is_bad(z) && !sectors.is_all())
    }

    /// The sectors that a part does not hold are lost; whether that is new.
    pub fn lose_rest(&mut self, z: ZoneBlock) -> bool {
        assert!(!self.sectors(z).is_all(), "of a whole block there is no rest");
        let is_new = self.places.flag(self.place(z));
        self.bad += u32::from(is_new);
        is_new
    }

    /// The checksum noted for a zone block.
    pub fn sum(&self, z: ZoneBlock) -> u32 {
        self.sum[z.index() as usize]
    }

    /// The sectors of its block that a zone block holds: of the others it says nothing.
    pub fn sectors(&self, z: ZoneBlock) -> Sectors {
        Sectors::from_absent(self.absent[self.place(z) as usize]).expect("what landed has sectors")
    }

    /// Notes checksum and sectors of what is being written to a zone block that has no owner yet.
    pub fn note(&mut self, z: ZoneBlock, sum: u32, sectors: Sectors) {
        assert!(!z.is_second(), "what comes first is noted first");
        assert!(self.owner(z.second()).is_none(), "a landed block does not change");
        self.sum[z.index() as usize] = sum;
        self.used = self.used.max(z.index() + 1);
        self.note_sectors(z, sectors);
        if z.index() < self.used_twice {
            let second = self.place(z.second());
            self.absent[second as usize] = 0;
        }
    }

    /// Notes the sectors of the second part of what is being written, which is not in the way of the first.
    pub fn note_second(&mut self, z: ZoneBlock, sectors: Sectors) {
        assert!(self.sectors(z).and(sectors).is_none(), "each part has its own sectors");
        self.make_room_for_second();
        self.used_twice = self.used_twice.max(z.index() + 1);
        self.note_sectors(z.second(), sectors);
    }

    fn note_sectors(&mut self, z: ZoneBlock, sectors: Sectors) {
        assert!(self.owner(z).is_none(), "a landed block does not change");
        let place = self.place(z);
        self.absent[place as usize] = sectors.absent();
    }

    /// Makes `z`, of which that was noted, the block's newest copy; gives the copy it supersedes, and whether that was
    /// lost.
    pub fn insert(&mut self, block: Block, z: ZoneBlock, bad: bool) -> Option<(ZoneBlock, bool)> {
        let old = self.places.insert(block.0, self.place(z), bad);
        self.bad += u32::from(bad);
        self.bad -= u32::from(old.is_some_and(|(_, was_bad)| was_bad));
        old.map(|(place, was_bad)| (self.at(place), was_bad))
    }

    /// The block is not landed any more; gives where it was, and whether it was lost there.
    pub fn remove(&mut self, block: Block) -> Option<(ZoneBlock, bool)> {
        let (place, was_bad) = self.places.remove(block.0)?;
        self.bad -= u32::from(was_bad);
        Some((self.at(place), was_bad))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Sectors, Sectors) {
        (Sectors::touching(512, 4096), Sectors::touching(0, 512))
    }

    fn land(landed: &mut Landed, index: u32, block: u64) {
        let z = ZoneBlock::new(index);
        landed.note(z, 7, ends().0);
        landed.insert(Block(block), z, false);
    }

    /// Where parts have shared each block of the zone, and fill half of it, and whole blocks the rest.
    #[test]
    fn what_shared_blocks_take_is_known_before() {
        for blocks in [18_432, 150_000, 200_000] {
            let mut landed = Landed::new(blocks, true);
            let mut free: Vec<u32> = (0..blocks).rev().collect();
            let mut block = 0;
            let mut lap = |landed: &mut Landed, merged: bool| {
                while let Some(index) = free.pop() {
                    land(landed, index, block);
                    if landed.may_share() {
                        let z = ZoneBlock::new(index);
                        landed.note_second(z, ends().1);
                        landed.insert(Block(block + 1), z.second(), false);
                    }
                    for block in (block..block + 2).filter(|_| merged) {
                        landed.remove(Block(block));
                    }
                    block += 2;
                }
                free = (0..blocks).rev().collect();
            };
            lap(&mut landed, true);
            assert_eq!(landed.len(), 0);
            lap(&mut landed, false);
            assert!(landed.len() > blocks * 7 / 5, "{} in {blocks}", landed.len());
            let most = ram_bytes(u64::from(blocks)) + sharing_ram_bytes(u64::from(blocks));
            assert!(landed.ram_bytes() <= most, "{} of {most} for {blocks}", landed.ram_bytes());
        }
    }

    /// A volume that was served with more memory.
    #[test]
    fn what_was_shared_is_found_where_nothing_more_is() {
        let mut landed = Landed::new(8, false);
        let z = ZoneBlock::new(3);
        land(&mut landed, 3, 30);
        assert!(!landed.may_share() && !landed.is_shared(z) && landed.owner(z.second()).is_none());
        landed.note_second(z, ends().1);
        assert_eq!(landed.insert(Block(40), z.second(), false), None);
        assert_eq!([landed.get(Block(30)), landed.get(Block(40))], [Some(z), Some(z.second())]);
        assert_eq!([landed.sectors(z), landed.sectors(z.second())], [ends().0, ends().1]);
        assert!(landed.is_shared(z) && landed.is_shared(z.second()));
        for (block, at) in [(30, z), (40, z.second())] {
            assert_eq!(landed.remove(Block(block)), Some((at, false)));
        }
        land(&mut landed, 3, 50);
        assert!(!landed.is_shared(z), "what is noted anew has its block to itself");
    }
}
