//! What a successor says of itself until it has taken the other's place: how far it has been copied, and where it may differ.

use bimetal_engine::format::Id;
use bimetal_engine::format::codec::{Get, Put, seal, unseal};
use bimetal_units::{BLOCK_BYTES, Generation, Tier};

const MAGIC: &[u8; 8] = b"BMTLsucc";
/// Regions that one block has room for.
pub(crate) const MOST_REGIONS: u32 = 31 << 10;

/// It lies in one block, twice, where the superblocks will be; the one with the higher number counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The volume.
    pub volume: Id,
    /// The device whose place is to be taken.
    pub old: Id,
    /// The successor.
    pub new: Id,
    /// Whose place it is.
    pub tier: Tier,
    /// Bytes of the device that the volume uses.
    pub bytes: u64,
    /// The opening up to which all that was written went to both.
    pub generation: Generation,
    /// Headers so far.
    pub number: u64,
    /// Below this byte all was copied.
    pub copied_bytes: u64,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// A bit for each region that may differ after a crash, though it was copied.
    pub open: Vec<u8>,
}

impl Header {
    /// Writes it into a block.
    pub fn encode(&self, block: &mut [u8]) {
        let mut body = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut put = Put(&mut body);
        put.bytes(&self.volume).bytes(&self.old).bytes(&self.new).u8(self.tier.0);
        put.u64(self.bytes).u64(self.generation.0).u64(self.number).u64(self.copied_bytes);
        put.u64(self.region_bytes).bytes(&self.open);
        seal(block, MAGIC, &body);
    }

    /// Reads a block; none where it holds none that can be.
    pub fn decode(block: &[u8]) -> Option<Header> {
        let mut get = Get(unseal(block, MAGIC)?);
        let (volume, old, new, tier) = (get.id()?, get.id()?, get.id()?, Tier(get.u8()?));
        let (bytes, generation, number) = (get.u64()?, Generation(get.count()?), get.count()?);
        let (copied_bytes, region_bytes) = (get.u64()?, get.u64()?);
        let regions = bytes.div_ceil(Some(region_bytes).filter(|bytes| *bytes > 0)?);
        let whole =
            [bytes, copied_bytes, region_bytes].iter().all(|n| n.is_multiple_of(u64::from(BLOCK_BYTES)));
        if regions > u64::from(MOST_REGIONS) || copied_bytes > bytes || !whole || tier.0 > 1 {
            return None;
        }
        let open = get.bytes((regions as usize).div_ceil(8))?.to_vec();
        Some(Header { volume, old, new, tier, bytes, generation, number, copied_bytes, region_bytes, open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    fn header(rng: &mut Rng) -> Header {
        let (region_bytes, regions) = (rng.range(1, 9) * 4096, rng.range(1, 300));
        let bytes = regions * region_bytes;
        let mut open = vec![0; (regions as usize).div_ceil(8)];
        rng.fill(&mut open);
        let (generation, number) = (Generation(rng.below(1 << 52)), rng.below(1 << 52));
        let copied_bytes = rng.below(bytes / 4096 + 1) * 4096;
        let (volume, old, new, tier) = ([1; 16], [2; 16], [3; 16], Tier(rng.below(2) as u8));
        Header { volume, old, new, tier, bytes, generation, number, copied_bytes, region_bytes, open }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_taken_for_it() {
        let mut rng = Rng::new(1, 1);
        for _ in 0..2000 {
            let (header, mut block) = (header(&mut rng), vec![0; BLOCK_BYTES as usize]);
            header.encode(&mut block);
            assert_eq!(Header::decode(&block), Some(header.clone()));
            // Bytes that change behind a good seal, as whoever writes one can compute it.
            let mut body = unseal(&block, MAGIC).expect("it is sealed").to_vec();
            for _ in 0..rng.range(1, 4) {
                let place = rng.below(body.len() as u64) as usize;
                body[place] = rng.next_u64() as u8;
            }
            body.truncate(rng.range(0, body.len() as u64 * 2) as usize);
            seal(&mut block, MAGIC, &body);
            if let Some(read) = Header::decode(&block) {
                let regions = read.bytes.div_ceil(read.region_bytes);
                assert!(regions <= u64::from(MOST_REGIONS) && read.open.len() as u64 * 8 >= regions);
                assert!(read.copied_bytes <= read.bytes && read.region_bytes.is_multiple_of(4096));
            }
            block[rng.below(4096) as usize] ^= 1 << rng.below(8);
            drop(Header::decode(&block));
        }
    }
}
