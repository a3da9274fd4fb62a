//! How much of a range is in each kind of place, for those who draw a map: nothing is read, changed or waited for.

use crate::api::extents::Placement;
use bimetal_units::*;

/// Steps of one answer at most: a chunk that needs no look at its blocks takes one. That is 16 GiB of chunks of 128 KiB, or
/// 128 MiB of the most tangled data, and about a millisecond in either case.
pub const MAX_TALLY_STEPS: u32 = 1 << 17;
/// Steps that a block takes which is looked up.
pub(crate) const BLOCK_STEPS: u32 = 4;

/// What is in a range.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Bytes that read zeros, and take no space.
    pub hole_bytes: u64,
    /// Bytes at home, by tier.
    pub home_bytes: ByTier<u64>,
    /// Bytes whose newest copy is in the log.
    pub landed_bytes: u64,
    /// Bytes whose reading is an error.
    pub lost_bytes: u64,
    /// The heat of its hottest chunk.
    pub hottest: u32,
    /// The first byte of the first chunk that is so hot; 0 where nothing was touched.
    pub hottest_offset: u64,
    /// Of the bytes at home on the slow tier, those in chunks that are hot enough to rise.
    pub hot_slow_bytes: u64,
}

impl Tally {
    /// Counts bytes that are in one kind of place.
    pub fn add(&mut self, place: Placement, bytes: u64) {
        *match place {
            Placement::Hole => &mut self.hole_bytes,
            Placement::Home(tier) => &mut self.home_bytes[tier],
            Placement::Landed => &mut self.landed_bytes,
            Placement::Lost => &mut self.lost_bytes,
        } += bytes;
    }
}
