//! Checkpoint headers: two blocks written in turn; the valid one with the higher number counts.

use super::Id;
use super::codec::{Get, Put, seal, unseal};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"BMTLckpt";

/// A checkpoint: which root, and where the log begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointHeader {
    /// Consecutive; its lowest bit says which header block and which root.
    pub number: u64,
    /// The opening that wrote it.
    pub generation: Generation,
    /// The map holds every record up to here.
    pub applied: Seq,
    /// Known durable when it was written.
    pub durable: Seq,
    /// The oldest segment that recovery needs.
    pub tail_area: Area,
    /// That segment's ordinal.
    pub tail_ordinal: u64,
    /// Its first group.
    pub tail_first: Seq,
    /// Entries of the checksum list in the root.
    pub list_entries: u32,
    /// Blocks of the root that were written.
    pub root_blocks: u32,
    /// The checksum of them all, as [`super::page::root_sum`] makes it.
    pub root_sum: u32,
    /// Bytes of the fast device that the volume uses: they end with its second superblock. 0 in a header from before this was said.
    pub fast_bytes: u64,
}

impl CheckpointHeader {
    /// Writes it into a block.
    pub fn encode(&self, block: &mut [u8], volume: &Id) {
        let mut body = Vec::with_capacity(128);
        let mut put = Put(&mut body);
        put.bytes(volume).u64(self.number).u64(self.generation.0).u64(self.applied.0).u64(self.durable.0);
        put.u32(self.tail_area.0).u32(self.root_sum).u64(self.tail_ordinal).u64(self.tail_first.0);
        put.u32(self.list_entries).u32(self.root_blocks).u64(self.fast_bytes);
        seal(block, MAGIC, &body);
    }

    /// Reads a block that lay in header place `place` (0 or 1).
    pub fn decode(block: &[u8], volume: &Id, place: u64) -> Option<CheckpointHeader> {
        let (of, header) = CheckpointHeader::decode_any(block, place)?;
        (of == *volume).then_some(header)
    }

    /// The same of whatever volume, which is said as well.
    pub fn decode_any(block: &[u8], place: u64) -> Option<(Id, CheckpointHeader)> {
        let mut get = Get(unseal(block, MAGIC)?);
        let volume = get.id()?;
        let mut header = CheckpointHeader {
            number: get.count()?,
            generation: Generation(get.count()?),
            applied: Seq(get.count()?),
            durable: Seq(get.count()?),
            tail_area: Area(get.u32()?),
            root_sum: get.u32()?,
            tail_ordinal: 0,
            tail_first: Seq(0),
            list_entries: 0,
            root_blocks: 0,
            fast_bytes: 0,
        };
        (header.tail_ordinal, header.tail_first) = (get.count()?, Seq(get.count()?));
        (header.list_entries, header.root_blocks) = (get.u32()?, get.u32()?);
        header.fast_bytes = get.u64().unwrap_or(0);
        (header.number % 2 == place).then_some((volume, header))
    }
}
