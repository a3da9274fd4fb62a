//! What goes in and out of the engine: requests, actions, completions.

use crate::api::unused::Unused;
use crate::base::arena::Buf;
use bimetal_units::{ServedBy, Tier};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

/// Names a client request; chosen by the driver, unique among those in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// What a client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RequestKind {
    /// Fill the payload from the volume.
    Read,
    /// Write the payload; with `fua` it is durable when answered.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Everything answered before is durable when this is answered.
    Flush,
    /// The range reads zeros afterwards, as far as it covers whole blocks; its space is given back.
    Discard {
        /// Force unit access.
        fua: bool,
    },
    /// The range reads zeros afterwards, to the byte.
    WriteZeroes {
        /// Force unit access.
        fua: bool,
    },
}

/// A client request. Any byte range inside the volume is valid.
///
/// `buf` is present for reads and writes and covers *whole blocks*: it is
/// `[align_down(offset), align_up(offset + len))` and the payload starts at `offset % 4096` in it.
/// Bytes of the cover outside the payload belong to the engine until the reply.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The name to answer to.
    pub id: RequestId,
    /// What to do.
    pub kind: RequestKind,
    /// First byte in the volume.
    pub offset: u64,
    /// Length in bytes; a read or write is at most [`MAX_PAYLOAD_BYTES`].
    pub len: u64,
    /// The block cover of the range.
    pub buf: Option<Buf>,
}

/// Largest read or write, bytes: the NBD default limit of 32 MiB.
pub const MAX_PAYLOAD_BYTES: u64 = 32 << 20;
/// Requests that the engine holds at once; beyond it [`crate::Engine::has_room`] is false.
/// 1,024 is eight clients at the queue depth of 128 where device queues stop gaining.
pub const MAX_REQUESTS: usize = 1024;

/// Matches a completion to what the engine asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Token(pub u64);

/// Whose I/O this is; drivers may order by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Class {
    /// A client waits for it.
    Foreground,
    /// Moves, checkpoints.
    Background,
    /// The log.
    Log,
}

/// Buffers of one write, in order.
pub type BufList = SmallVec<[Buf; 2]>;
/// Buffers in one write at most: well under the kernel's limit of 1,024 iovecs.
pub const MAX_BUFS: usize = 256;

/// What the driver is to do. Device offsets and lengths are multiples of the block size.
/// A completion means *all* of it happened (short I/O is the driver's to finish) or an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Action {
    /// Read `buf.len` bytes at `offset`.
    Read {
        /// Where from.
        device: Tier,
        /// Byte offset on the device.
        offset: u64,
        /// Where to.
        buf: Buf,
        /// Comes back with the completion.
        token: Token,
        /// Whose I/O it is.
        class: Class,
    },
    /// Write the buffers, one after the other, at `offset`.
    Write {
        /// Where to.
        device: Tier,
        /// Byte offset on the device.
        offset: u64,
        /// Where from.
        bufs: BufList,
        /// Durable when completed.
        fua: bool,
        /// Comes back with the completion.
        token: Token,
        /// Whose I/O it is.
        class: Class,
    },
    /// Make every write that completed before this was handed over durable.
    Flush {
        /// Which device.
        device: Tier,
        /// Comes back with the completion.
        token: Token,
    },
    /// Give space back; a hint, whose failure is harmless.
    Discard {
        /// Which device.
        device: Tier,
        /// Byte offset on the device.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// Whether it will be filled again, whatever else does: flash is to forget what is there, but a file keeps its space,
        /// which would not be there any more when others have taken it.
        refilled: bool,
        /// Comes back with the completion.
        token: Token,
    },
    /// Answer a client request; its buffer is the driver's again.
    Reply {
        /// The request.
        id: RequestId,
        /// How it went.
        result: Result<(), RequestError>,
        /// Who had a part in it.
        served: ServedBy,
    },
}

/// Why a request failed. Details (device, address) are in the engine's event list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum RequestError {
    /// A device failed or data did not match its checksum.
    #[error("input/output error")]
    Io,
    /// A device, or what is below it, has no space left.
    #[error("no space left on device")]
    NoSpace,
    /// The volume went read-only after a failed flush or log write.
    #[error("the volume is read-only until it is opened again")]
    ReadOnly,
    /// The range is outside the volume or the payload is too large.
    #[error("invalid range")]
    Invalid,
    /// The engine is shutting down.
    #[error("the volume is shutting down")]
    ShuttingDown,
}

/// A device refused or failed an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("device error {errno}")]
pub struct DeviceError {
    /// The operating system's error number, or 5 (EIO) from models.
    pub errno: i32,
}

/// Linux's ENOSPC and EDQUOT: the file system below a sparse device file is full, or a thin device's pool.
const NO_SPACE: [i32; 2] = [28, 122];

/// Linux's ETIMEDOUT: an export whose connection is away, after the patience of the volume.
const TIMED_OUT: i32 = 110;

/// Linux's ENXIO, ENODEV, ENOLINK, ESHUTDOWN and ENOMEDIUM: the device is not there, or was not.
const AWAY: [i32; 5] = [6, 19, 67, 108, 123];

impl DeviceError {
    /// Whether the device was away: should it come back, its volatile cache may be lost.
    pub fn is_away(self) -> bool {
        AWAY.contains(&self.errno)
    }

    /// Whether it did not answer in time: it may yet, and by itself.
    pub fn is_late(self) -> bool {
        self.errno == TIMED_OUT
    }
}

impl From<DeviceError> for RequestError {
    fn from(error: DeviceError) -> RequestError {
        if NO_SPACE.contains(&error.errno) { RequestError::NoSpace } else { RequestError::Io }
    }
}

/// A state machine that wants I/O: the engine itself, or one of the tasks around it
/// (create, open, check). Drivers serve any of them with the same loop.
pub trait Machine {
    /// The arena type.
    type Arena: crate::base::arena::Arena;
    /// The next thing to do, `None` when there is nothing until a completion, a request or the deadline.
    fn next_action(&mut self, now: bimetal_units::Nanos) -> Option<Action>;
    /// A device answered.
    fn on_completion(&mut self, now: bimetal_units::Nanos, token: Token, result: Result<(), DeviceError>);
    /// When to call [`Machine::on_timer`] at the latest.
    fn deadline(&self) -> Option<bimetal_units::Nanos>;
    /// The deadline came.
    fn on_timer(&mut self, now: bimetal_units::Nanos);
    /// Whether payload can be had: not of a task that has ended, whose result has it.
    fn has_arena(&self) -> bool {
        true
    }
    /// What of a device nobody needs at this moment; by default all is needed.
    fn unused(&self, device: Tier) -> Unused {
        let _ = device;
        Unused::default()
    }
    /// The first part of a range of a device, in bytes, that somebody needs at this moment, of so many bytes at most. Of what is
    /// before it nothing is looked at any more, as [`Machine::unused`] says. By default all is needed.
    fn next_needed(&self, device: Tier, range: Range<u64>, most_bytes: u64) -> Option<Range<u64>> {
        let _ = device;
        Some(range.start..range.end.min(range.start.saturating_add(most_bytes)))
            .filter(|part| !part.is_empty())
    }
    /// From now on, or no longer, what a device cannot read is read elsewhere, and it has read nothing itself since: that something is
    /// read says nothing of the device.
    fn is_read_elsewhere(&mut self, device: Tier, is: bool) {
        let _ = (device, is);
    }
    /// Access to payload for the driver, between calls.
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut Self::Arena) -> R) -> R;
}
