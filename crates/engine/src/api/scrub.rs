//! What a scrub says of itself.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Why a scrub that is under way does nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ScrubPause {
    /// The slow device is at rest, or is left alone so that it may come to rest.
    SlowAtRest,
    /// Clients wait for the landing zone.
    ZoneShort,
    /// A device fails whatever it is asked for.
    DeviceFails,
    /// The volume is read-only: it goes on when that is opened again.
    ReadOnly,
}

/// Where a scrub stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScrubState {
    /// None was ever begun.
    #[default]
    Never,
    /// It is under way.
    Running,
    /// It is under way, and waits.
    Paused(ScrubPause),
    /// It was stopped before it had seen everything.
    Stopped,
    /// It has seen everything.
    Whole,
}

/// What is known of the last scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Where it stands.
    pub state: ScrubState,
    /// Chunks that it has looked at.
    pub done_chunks: u32,
    /// Chunks of the volume.
    pub chunks: u32,
    /// When it was begun, seconds since 1970.
    pub begun_unix_s: Option<u64>,
    /// When one had seen everything last, seconds since 1970.
    pub whole_unix_s: Option<u64>,
    /// Blocks that were not as they should be.
    pub wrong_blocks: u64,
    /// Those of them that are as they should be again.
    pub repaired_blocks: u64,
    /// Ranges of the volume that are lost, bytes: in order.
    pub lost: Vec<Range<u64>>,
    /// More bytes that are lost, for which the list had no room.
    pub unlisted_bytes: u64,
    /// Bytes of the volume that it has looked at in a second of late; none until that is known.
    pub bytes_per_s: Option<u64>,
}

/// Why a scrub cannot be begun or stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScrubError {
    /// The volume failed.
    #[error("the volume is read-only until it is opened again, so no scrub begins, goes on or is stopped")]
    ReadOnly,
    /// It was opened without one of its devices.
    #[error("a device is missing, so no scrub begins, goes on or is stopped until both devices are there")]
    Degraded,
    /// The volume is being closed.
    #[error("the volume is being closed")]
    ShuttingDown,
    /// There is nothing to stop.
    #[error("no scrub is under way")]
    NotRunning,
}
