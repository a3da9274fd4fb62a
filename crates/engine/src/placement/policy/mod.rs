//! Placement: which chunks belong on which tier. Pure: it is told what is touched and asked for moves.

pub mod benefit;
mod foresight;
mod heat;
mod heats;
mod regions;

pub use crate::api::audit::{Audit, Yield};
pub use benefit::Benefit;
pub use foresight::Foresight;
pub use heat::HeatPolicy;
pub(crate) use heat::ram_bytes;

use crate::placement::avoided::Avoided;
use crate::placement::pins::PinList;
use crate::volume::cells::Cells;
use crate::volume::map::Map;
use crate::volume::slots::Slots;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Where the first write to a chunk without a home goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstWrite {
    /// Into a fresh fast slot.
    Fast,
    /// Elsewhere: it lands or streams.
    Elsewhere,
}

/// One touch of a chunk by a client.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// The chunk.
    pub chunk: Chunk,
    /// A write, not a read.
    pub write: bool,
    /// Part of a long sequential stream: a film or a backup, not a sign of heat.
    pub stream: bool,
    /// Whether its home is on the fast tier.
    pub on_fast: bool,
}

/// Where a chunk's blocks are to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Destination {
    /// Landed blocks into the home that the chunk has.
    Merge,
    /// Everything to a fresh slot on a tier.
    Tier(Tier),
}

/// A chunk to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The chunk.
    pub chunk: Chunk,
    /// Where to.
    pub to: Destination,
}

/// Moves that are worth making now.
#[derive(PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// The moves.
    pub moves: Vec<Move>,
    /// Fast slots with copies that end for them.
    pub leaving: Vec<Slot>,
}

/// When a chunk will be touched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NextUse {
    /// Nothing is known of what comes.
    Unknown,
    /// By this touch of all: comparable between chunks.
    At(u32),
    /// It will not be.
    Never,
}

/// What a policy may look at when it plans.
pub struct View<'a> {
    /// Homes.
    pub map: &'a Map,
    /// Slots by tier.
    pub slots: &'a ByTier<Slots>,
    /// What is pinned.
    pub pins: &'a PinList,
    /// What could not be moved of late.
    pub avoided: &'a Avoided,
    /// Copies.
    pub copies: &'a Cells,
    /// Fast slots that copies have use for.
    pub copies_wanted: u32,
    /// Whether copies were read again so often that they are worth more than the least share of the fast tier.
    pub copies_proved: bool,
    /// Whether copies give way to others, or are asked for in vain, of late.
    pub copies_pressed: bool,
    /// Chunks that may be moved up now, as far as wear goes.
    pub may_rise: usize,
    /// What moves save and cost.
    pub yields: Yield,
}

impl View<'_> {
    /// Whether a chunk can be moved: nothing is being done with it, and it is not known that it would fail.
    pub fn is_movable(&self, chunk: Chunk) -> bool {
        !self.map.is_busy(chunk) && !self.avoided.has(chunk)
    }
}

/// How much of the slow device is to be had for placing chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// All of it: nobody asks for anything.
    Idle,
    /// A little.
    Busy,
    /// What is worth more than emptying the landing zone, for which clients wait.
    Short,
}

/// A placement policy.
pub trait Policy {
    /// A client touched a chunk.
    fn touch(&mut self, touch: Touch, now: Nanos);
    /// A client asked for a chunk on the slow tier to be made fast. Counts as much heat as makes a chunk rise.
    fn wish(&mut self, chunk: Chunk, now: Nanos);
    /// How hot a chunk is: comparable between chunks.
    fn heat(&self, chunk: Chunk, now: Nanos) -> u32;
    /// Where the first write of `bytes` to a chunk without a home goes.
    fn first_write(&self, bytes: u32, fast_free: u32) -> FirstWrite;
    /// Whether landed blocks of a chunk without a home are to be given a fast one.
    fn settles_fast(&self, fast_free: u32) -> bool;
    /// Whether a chunk with landed blocks is to go up from the slow tier, rather than have them merged into its home
    /// there, while so many fast slots are free.
    fn rises_at_destage(&self, chunk: Chunk, now: Nanos, view: &View<'_>, fast_free: u32) -> bool;
    /// A chunk that was to rise cannot be read as a whole, or found no slot: it counts as cold.
    fn cool(&mut self, chunk: Chunk);
    /// Up to `budget` moves that are worth making now.
    fn plan(&mut self, now: Nanos, view: &View<'_>, budget: usize, pace: Pace) -> Plan;
    /// Whether a chunk with landed blocks, whose own copies end with its next home, is worth more on the fast tier than
    /// the copies in this slot, which would end for it.
    fn outdoes(&self, chunk: Chunk, copies_in: Slot, now: Nanos, view: &View<'_>) -> bool;
    /// Up to so many chunks of the fast tier that are to make room for what is pinned there, coldest first.
    fn victims(&mut self, now: Nanos, view: &View<'_>, most: usize) -> Vec<Chunk>;
    /// Clients will do this from now on, and nothing of what they did before counts.
    fn foresee(&mut self, foresight: Foresight);
    /// When the chunk will be touched next, or the time after that, as far as it is known.
    fn next_use(&self, chunk: Chunk, after: bool) -> NextUse;
    /// Whether [`Policy::plan`] may have something to do.
    fn has_work(&self, view: &View<'_>) -> bool;
    /// Bytes of RAM.
    fn ram_bytes(&self) -> u64;
}
