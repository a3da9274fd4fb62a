//! Where the newest copies of a range are, for those who ask: nothing is read, changed or waited for.

use bimetal_units::*;
use smallvec::SmallVec;

/// Steps of one query at most: a step looks one block up, or passes a chunk that needs no look at its blocks.
/// That is 64 MiB of the most tangled data, or 2 GiB of chunks of 128 KiB that are blank or whole at home, and
/// under a millisecond in either case.
pub const MAX_EXTENT_STEPS: u32 = 16_384;

/// Where the newest copy of an extent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Nowhere: it reads zeros.
    Hole,
    /// In a slot of this tier, recorded or not yet.
    Home(Tier),
    /// In the log on the fast tier.
    Landed,
    /// Lost, or some of its sectors are, or at home on a device that is missing: reading these is an error.
    Lost,
}

/// Neighbouring bytes whose newest copies are in one kind of place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Bytes; never 0.
    pub len: u64,
    /// Where they are.
    pub place: Placement,
}

/// Consecutive extents.
pub type Extents = SmallVec<[Placed; 4]>;
