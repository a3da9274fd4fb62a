//! Newtypes for every index and unit, the random number generator, and the hash of all that happened in a run.
//!
//! ```
//! use bimetal_units::rng::Rng;
//! use bimetal_units::{ByTier, Chunk, FAST, Nanos, SLOW};
//!
//! // Times are added and taken apart by name. What lies ahead is no time ago.
//! let (began, ended) = (Nanos(5 * Nanos::MS), Nanos(5 * Nanos::MS).after(Nanos::SECOND));
//! assert_eq!((ended.since(began), began.since(ended)), (Nanos::SECOND, 0));
//!
//! // A chunk is no slot, and says what it is.
//! assert_eq!(format!("{:?} is chunk {}", Chunk(7), Chunk(7)), "c7 is chunk 7");
//!
//! let mut bytes = ByTier([0, 0]);
//! bytes[FAST] += 4096;
//! assert_eq!((bytes[FAST], bytes[SLOW]), (4096, 0));
//!
//! // The same seed and stream draw the same for ever; another stream of the seed has nothing to do with it.
//! let draw = |stream| { let mut rng = Rng::new(1, stream); [rng.below(1000), rng.below(1000), rng.below(1000)] };
//! assert_eq!(draw(0), draw(0));
//! assert_ne!(draw(0), draw(1));
//! ```
#![forbid(unsafe_code)]

mod bugs;
pub mod event_hash;
pub mod rng;
pub mod size;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Index, IndexMut};

/// Bytes in a block: the unit of validity and of checksums.
pub const BLOCK_BYTES: u32 = 4096;
/// Bytes in a sector: the unit in which a device may tear a write.
pub const SECTOR_BYTES: u32 = 512;
/// Smallest chunk: below this the map would outgrow its memory budget.
pub const MIN_CHUNK_BYTES: u32 = 64 << 10;
/// Largest chunk: its block mask is the widest that the engine holds.
pub const MAX_CHUNK_BYTES: u32 = 4 << 20;
/// Blocks in the largest chunk.
pub const MAX_BLOCKS_PER_CHUNK: u32 = MAX_CHUNK_BYTES / BLOCK_BYTES;

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

index!(
    /// A device of the volume, which is also its tier: 0 is the fastest.
    Tier(u8), "t");
index!(
    /// A chunk of the volume's address space.
    Chunk(u32), "c");
index!(
    /// A block (4 KiB) of the volume's address space.
    Block(u64), "b");
index!(
    /// A chunk-sized place on one tier.
    Slot(u32), "s");
index!(
    /// An area of the fast tier: holds slots or one log segment.
    Area(u32), "a");
index!(
    /// Nanoseconds on the driver's monotonic clock.
    Nanos(u64), "");
index!(
    /// A log group's number: consecutive over the life of the volume.
    Seq(u64), "q");
index!(
    /// A place in the log: segment ordinal times blocks per area plus block in the area.
    /// Grows with every append, over restarts too.
    LogPos(u64), "p");
index!(
    /// The number of an opening of the volume; raised on every device each time.
    Generation(u64), "g");

/// The tier that holds the log and the map.
pub const FAST: Tier = Tier(0);
/// The large tier.
pub const SLOW: Tier = Tier(1);

/// One of something for each tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ByTier<T>(pub [T; 2]);

impl<T> Index<Tier> for ByTier<T> {
    type Output = T;

    #[inline]
    fn index(&self, tier: Tier) -> &T {
        &self.0[usize::from(tier.0)]
    }
}

impl<T> IndexMut<Tier> for ByTier<T> {
    #[inline]
    fn index_mut(&mut self, tier: Tier) -> &mut T {
        &mut self.0[usize::from(tier.0)]
    }
}

impl Nanos {
    /// One millisecond.
    pub const MS: u64 = 1_000_000;
    /// One second.
    pub const SECOND: u64 = 1_000_000_000;

    /// This instant plus `ns` nanoseconds.
    #[must_use]
    pub fn after(self, ns: u64) -> Nanos {
        Nanos(self.0.saturating_add(ns))
    }

    /// Nanoseconds since `earlier`, zero if it lies ahead.
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The tiers that had a part in answering a request: those that its data was read from or written to, and those that
/// the rest of a partial block was read from. None where nothing had to be asked, as of blocks that were never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServedBy {
    /// The fast tier, its log included.
    pub fast: bool,
    /// A slower one.
    pub slow: bool,
}

impl ServedBy {
    /// This tier had a part, too.
    #[inline]
    pub fn add(&mut self, tier: Tier) {
        self.fast |= tier == FAST;
        self.slow |= tier != FAST;
    }
}

/// A home: a slot on a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Home {
    /// The tier that holds the slot.
    pub tier: Tier,
    /// The slot on that tier.
    pub slot: Slot,
}
