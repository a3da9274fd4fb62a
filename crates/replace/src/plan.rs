//! Whose place is to be taken, how, and how far that has come.

use bimetal_engine::format::Id;
use bimetal_units::{Generation, Tier};

/// Whose place is to be taken, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The volume.
    pub volume: Id,
    /// Whose device it is.
    pub tier: Tier,
    /// The device whose place is to be taken.
    pub old: Id,
    /// The successor.
    pub new: Id,
    /// Bytes of the device that the volume uses.
    pub bytes: u64,
    /// Where each device has its own superblocks.
    pub own: [u64; 2],
    /// The opening that the old device is of.
    pub generation: Generation,
    /// How much is copied at a time, and how fast.
    pub pace: Pace,
}

/// How a successor is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Copied at a time. With a mebibyte a disk is busy with transfers, not with seeks, and who waits behind one waits for few
    /// milliseconds.
    pub piece_bytes: u64,
    /// A region that may differ after a crash is a multiple of this.
    pub region_bytes: u64,
    /// While clients are busy, it rests for so many times as long as a piece took: with two, a third of the devices' time is for
    /// copying.
    pub rest_times: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { piece_bytes: 1 << 20, region_bytes: 1 << 20, rest_times: 2 }
    }
}

/// What the old device was asked for before somebody was to take its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// What it holds.
    Reads,
    /// To hold something else.
    Changes,
    /// To keep it.
    Flushes,
}

/// How far a replacement has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Something is still to be copied.
    Copying,
    /// All is copied, and what is written goes to both: the successor may take over.
    Whole,
    /// It does.
    TakingOver,
    /// The volume is on it from now on; the machine is asked for nothing until the driver knows, too.
    TakenOver,
    /// It is done without, for this reason. Nothing more is written until that is settled.
    Failed(String),
    /// The same while nobody knows whether the other device names the successor, as it failed at that moment: nothing more is
    /// written until the volume is opened again, with whichever it names.
    Torn(String),
}

/// A replacement at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How far it has come.
    pub standing: Standing,
    /// Whose place is to be taken.
    pub tier: Tier,
    /// Bytes that are copied.
    pub copied_bytes: u64,
    /// Bytes that are to be.
    pub of_bytes: u64,
    /// Bytes that the old device cannot read, for now.
    pub unreadable_bytes: u64,
    /// Whether those are left out once that is certain.
    pub leaves_unreadable: bool,
    /// Bytes that were left out because of that, since this was begun or gone on with.
    pub left_bytes: u64,
}
