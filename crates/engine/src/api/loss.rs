//! What of a volume cannot be read, and why: a device is missing, or blocks were lost.

use bimetal_units::Tier;
use serde::{Deserialize, Serialize};

/// Steps of one [`crate::Engine::losses`] at most: a step looks a block up, or passes a chunk that needs no look at its
/// blocks.
pub const MAX_LOSS_STEPS: u32 = 16_384;

/// Ranges in one answer of it at most, but for those of the last chunk it looked at.
pub const MAX_LOSS_RANGES: usize = 512;

/// How much is left of a volume that was opened while a device was missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The device that is missing.
    pub missing: Tier,
    /// As of when it is known what is left, in seconds since 1970; none where that is the newest: the fast device knows all
    /// that was ever flushed.
    pub as_of_unix_s: Option<u64>,
    /// Bytes of the volume that can be read, what reads zeros included.
    pub good_bytes: u64,
    /// Bytes that cannot.
    pub lost_bytes: u64,
    /// Bytes that are there, and may be older than what was flushed last.
    pub suspect_bytes: u64,
    /// It is written to all the same: what is lost is as it was when the device comes back, but for what was written there.
    pub writable: bool,
}

/// Whether what may be stale is read all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Suspects {
    /// It is an error.
    #[default]
    Refused,
    /// It is read as it was when it was last known to be good, or newer.
    Read,
}

/// Why a range is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossClass {
    /// Reading it is an error.
    Lost,
    /// It is there, and may be older than what was flushed last.
    Suspect,
}

/// A range of the volume that is no good, to the sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossRange {
    /// First byte.
    pub offset: u64,
    /// Bytes; never 0.
    pub len: u64,
    /// Why.
    pub class: LossClass,
}

/// A part of all losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Ascending, apart from each other unless their classes differ.
    pub ranges: Vec<LossRange>,
    /// Where to go on; none at the volume's end.
    pub next: Option<u64>,
}

impl Losses {
    /// Adds a range that begins at or behind the end of the last one.
    pub fn push(&mut self, range: LossRange) {
        match self.ranges.last_mut() {
            Some(last) if last.class == range.class && last.offset + last.len == range.offset => {
                last.len += range.len;
            }
            _ => self.ranges.push(range),
        }
    }

    /// Adds the part that follows.
    pub fn append(&mut self, following: Losses) {
        following.ranges.into_iter().for_each(|range| self.push(range));
        self.next = following.next;
    }

    /// Bytes of a class.
    pub fn bytes(&self, class: LossClass) -> u64 {
        self.ranges.iter().filter(|range| range.class == class).map(|range| range.len).sum()
    }
}
