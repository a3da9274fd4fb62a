//! The list of pins: which ranges of chunks belong on which tier, whatever their heat.

use super::codec::{Get, Put};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Ranges in the list at most: they fit one block with room to spare.
pub const MAX_PIN_RANGES: usize = 256;

/// Neighbouring chunks that are pinned to the same tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PinRange {
    /// The first of them.
    pub first: Chunk,
    /// How many, at least one.
    pub count: u32,
    /// Where they belong.
    pub tier: Tier,
}

impl PinRange {
    /// The first chunk behind it, counted wide: it may be the last one there can be.
    pub fn end(&self) -> u64 {
        u64::from(self.first.0) + u64::from(self.count)
    }
}

/// Appends a list: the number of ranges (4), zeros (4), then of each its first chunk (4), count (4), tier (1), zeros (3).
pub fn put_pins(out: &mut Vec<u8>, ranges: &[PinRange]) {
    assert!(ranges.len() <= MAX_PIN_RANGES, "the list of pins fits its block");
    let mut put = Put(out);
    put.u32(ranges.len() as u32).u32(0);
    for range in ranges {
        put.u32(range.first.0).u32(range.count).u8(range.tier.0).bytes(&[0; 3]);
    }
}

/// Reads a list of a volume of so many chunks; `None` unless its ranges are in the volume, in order, apart from each
/// other, and name tiers that there are.
pub fn get_pins(payload: &[u8], chunks: u32) -> Option<Vec<PinRange>> {
    let mut get = Get(payload);
    let count = get.u32()? as usize;
    get.u32()?;
    if count > MAX_PIN_RANGES {
        return None;
    }
    let (mut ranges, mut behind) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let range = PinRange { first: Chunk(get.u32()?), count: get.u32()?, tier: Tier(get.u8()?) };
        get.bytes(3)?;
        let sound = range.count > 0
            && u64::from(range.first.0) >= behind
            && range.end() <= u64::from(chunks)
            && range.tier <= SLOW;
        if !sound {
            return None;
        }
        behind = range.end();
        ranges.push(range);
    }
    Some(ranges)
}
