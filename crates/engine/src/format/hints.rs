//! Hints: what placement had learnt when the volume was closed, so that the next opening need not learn it again.
//!
//! Nothing rests on them: whoever ignores them, or finds them torn, places chunks by what it learns anew. Each block of them is
//! sealed by itself, and names the stop that wrote it.

use super::Id;
use super::codec::{Get, Put, seal, unseal};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"BMTLhint";
/// Chunks in a block with heat, at most.
pub const HEATS_PER_BLOCK: usize = 1000;
/// Copies in a block of them, at most.
pub const COPIES_PER_BLOCK: usize = 333;
/// The age of what was never touched.
const NEVER: u16 = u16::MAX;

/// Where the hints are, as the superblock of a volume that was closed says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HintsAt {
    /// The fast slot in which they begin; each block says where they go on behind its own slot.
    pub slot: Slot,
    /// Blocks of them.
    pub blocks: u32,
}

/// The stop that wrote them: what any other says does not hold any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HintsOf {
    /// The volume.
    pub volume: Id,
    /// The opening that ended with it.
    pub generation: Generation,
    /// Its last checkpoint.
    pub checkpoint: u64,
    /// Blocks of a part, of which each cell holds one.
    pub part_blocks: u32,
    /// What ages are counted in, ns.
    pub touch_ns: u64,
}

/// How often a chunk was touched of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChunkHeat {
    /// Reads that count.
    pub reads: u8,
    /// Writes that count.
    pub writes: u8,
    /// Touch intervals since the last touch; none where it was never touched.
    pub age: Option<u16>,
}

/// A copy of a part of a chunk on the fast tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyHint {
    /// The cell that it is in, counted through all fast slots.
    pub cell: u32,
    /// The chunk.
    pub chunk: Chunk,
    /// Which part of it.
    pub part: u16,
    /// What is known of how it was read; see `volume/cells.rs`.
    pub flags: u8,
    /// Whether it is in the main queue, not the small one.
    pub main: bool,
}

/// What a block holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hints {
    /// The heat of neighbouring chunks, from this one on.
    Heats(Chunk, Vec<ChunkHeat>),
    /// Copies, in the order in which they are to give way.
    Copies(Vec<CopyHint>),
}

impl Hints {
    /// Writes them into a block, the one of this number, behind whose slot they go on in another, or end.
    pub fn encode(&self, block: &mut [u8], of: &HintsOf, number: u32, next: Option<Slot>) {
        let mut body = Vec::with_capacity(BLOCK_BYTES as usize);
        let mut put = Put(&mut body);
        put.bytes(&of.volume).u64(of.generation.0).u64(of.checkpoint);
        put.u64(of.touch_ns).u32(of.part_blocks);
        put.u32(number).u32(next.map_or(0, |slot| slot.0 + 1));
        match self {
            Hints::Heats(first, heats) => {
                put.u16(0).u16(heats.len() as u16).u32(first.0);
                for heat in heats {
                    let age = heat.age.map_or(NEVER, |age| age.min(NEVER - 1));
                    put.u8(heat.reads).u8(heat.writes).u16(age);
                }
            }
            Hints::Copies(copies) => {
                put.u16(1).u16(copies.len() as u16);
                for copy in copies {
                    put.u32(copy.cell).u32(copy.chunk.0).u16(copy.part);
                    put.u8(copy.flags).u8(u8::from(copy.main));
                }
            }
        }
        seal(block, MAGIC, &body);
    }

    /// Reads the block of this number, and the slot in which they go on; none unless this stop wrote it.
    pub fn decode(block: &[u8], of: &HintsOf, number: u32) -> Option<(Hints, Option<Slot>)> {
        let mut get = Get(unseal(block, MAGIC)?);
        let found = HintsOf {
            volume: get.id()?,
            generation: Generation(get.u64()?),
            checkpoint: get.u64()?,
            touch_ns: get.u64()?,
            part_blocks: get.u32()?,
        };
        if found != *of || get.u32()? != number {
            return None;
        }
        let next = get.u32()?.checked_sub(1).map(Slot);
        let (kind, count) = (get.u16()?, usize::from(get.u16()?));
        let hints = match kind {
            0 if count <= HEATS_PER_BLOCK => {
                let first = Chunk(get.u32()?);
                Hints::Heats(first, (0..count).map(|_| Self::heat(&mut get)).collect::<Option<_>>()?)
            }
            1 if count <= COPIES_PER_BLOCK => {
                Hints::Copies((0..count).map(|_| Self::copy(&mut get)).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        Some((hints, next))
    }

    fn heat(get: &mut Get<'_>) -> Option<ChunkHeat> {
        let (reads, writes, age) = (get.u8()?, get.u8()?, get.u16()?);
        Some(ChunkHeat { reads, writes, age: (age != NEVER).then_some(age) })
    }

    fn copy(get: &mut Get<'_>) -> Option<CopyHint> {
        let (cell, chunk, part) = (get.u32()?, Chunk(get.u32()?), get.u16()?);
        Some(CopyHint { cell, chunk, part, flags: get.u8()?, main: get.u8()? != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_block_of_each_kind_is_read_again_by_who_asks_for_it() {
        let of = HintsOf {
            volume: [7; 16],
            generation: Generation(3),
            checkpoint: 9,
            part_blocks: 1,
            touch_ns: Nanos::SECOND,
        };
        let heat = |n: usize| ChunkHeat {
            reads: n as u8,
            writes: (n / 2) as u8,
            age: (!n.is_multiple_of(5)).then_some(n as u16),
        };
        let copy = |n: usize| CopyHint {
            cell: n as u32,
            chunk: Chunk(2 * n as u32),
            part: n as u16 % 32,
            flags: n as u8,
            main: n.is_multiple_of(2),
        };
        let heats = Hints::Heats(Chunk(5), (0..HEATS_PER_BLOCK).map(heat).collect());
        let copies = Hints::Copies((0..COPIES_PER_BLOCK).map(copy).collect());
        for (hints, next) in [(heats, Some(Slot(0))), (copies, None)] {
            let mut block = vec![0xa5; BLOCK_BYTES as usize];
            hints.encode(&mut block, &of, 4, next);
            assert_eq!(Hints::decode(&block, &of, 4), Some((hints, next)));
            assert_eq!(Hints::decode(&block, &of, 5), None, "another block");
            for other in [
                HintsOf { volume: [8; 16], ..of },
                HintsOf { generation: Generation(4), ..of },
                HintsOf { checkpoint: 10, ..of },
                HintsOf { part_blocks: 2, ..of },
                HintsOf { touch_ns: 1, ..of },
            ] {
                assert_eq!(Hints::decode(&block, &other, 4), None, "{other:?}");
            }
        }
    }
}
