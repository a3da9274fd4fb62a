//! What is recorded of one call of an engine.

use bimetal_driver::RealArena;
use bimetal_engine::action::{Action, Class, DeviceError, RequestError, RequestId, RequestKind, Token};
use bimetal_engine::arena::{Arena as _, Buf};
use bimetal_engine::options::Event;
use bimetal_units::{ServedBy, Tier};
use serde::{Deserialize, Serialize};

/// One call, or what belongs to one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Item {
    /// It was asked what to do, and wanted nothing.
    Nothing,
    /// It was asked what to do, and wanted this.
    Did(Did),
    /// From now on it is so many nanoseconds later.
    Later(i64),
    /// The checksums of payload that it asked for in the call before.
    Sums(Vec<[u8; 4]>),
    /// What the next completion has read, of metadata.
    Read { start: u64, bytes: Vec<u8> },
    /// A device answered. Tokens are numbered as they are handed out: this one so many before the newest.
    Completion { place: u32, before: u32, result: Result<(), DeviceError> },
    /// A deadline came.
    Timer,
    /// A client asked.
    Request { id: u64, kind: RequestKind, offset: u64, len: u64, buf: Option<(u64, u32)> },
    /// What else is asked for, now and then.
    Rare(Rare),
    /// What it told when it was asked for that.
    Events(Vec<Event>),
    /// The call before did not come back, or, if so, the one that asked it what to do.
    Panicked { asked: bool },
}

/// Calls that are rare. Those that may fail say whether they did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rare {
    PreferFast { offset: u64, len: u64 },
    Shutdown,
    Pin { offset: u64, len: u64, tier: Option<Tier> },
    PinAnswer,
    BeginScrub,
    StopScrub,
    PauseMoves { paused: bool },
    Why { offset: u64 },
    RefuseChanges(String),
    OutliveKills,
    DeviceReplaced { tier: Tier, id: [u8; 16], name: String },
    ReadElsewhere { tier: Tier, is: bool },
}

/// What an engine wanted done. Its token and its buffers, and the metadata in these, are in `check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Did {
    Read { device: Tier, class: Class, offset: u64, len: u32, check: [u8; 4] },
    Write { device: Tier, class: Class, fua: bool, offset: u64, len: u64, check: [u8; 4] },
    Flush { device: Tier, check: [u8; 4] },
    Discard { device: Tier, offset: u64, len: u64, refilled: bool, check: [u8; 4] },
    Reply { id: u64, result: Result<(), RequestError>, served: ServedBy },
}

/// Numbers, folded.
struct Check(u64);

impl Check {
    fn new(token: Token) -> Check {
        Check(token.0)
    }

    fn and(self, number: u64) -> Check {
        Check((self.0.rotate_left(25) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn buf(self, buf: Buf, arena: &RealArena, written: bool) -> Check {
        let check = self.and(buf.start).and(u64::from(buf.len));
        match written && arena.is_metadata(buf) {
            true => check.and(u64::from(crc32c::crc32c(arena.bytes(buf)))),
            false => check,
        }
    }

    fn bytes(self) -> [u8; 4] {
        ((self.and(0).0 >> 32) as u32).to_le_bytes()
    }
}

impl Did {
    pub(crate) fn new(action: &Action, arena: &RealArena) -> Did {
        match *action {
            Action::Read { device, offset, buf, token, class } => {
                let check = Check::new(token).buf(buf, arena, false).bytes();
                Did::Read { device, class, offset, len: buf.len, check }
            }
            Action::Write { device, offset, ref bufs, fua, token, class } => {
                let len = bufs.iter().map(|buf| u64::from(buf.len)).sum();
                let check = bufs.iter().fold(Check::new(token), |check, &buf| check.buf(buf, arena, true));
                Did::Write { device, class, fua, offset, len, check: check.bytes() }
            }
            Action::Flush { device, token } => Did::Flush { device, check: Check::new(token).bytes() },
            Action::Discard { device, offset, len, refilled, token } => {
                Did::Discard { device, offset, len, refilled, check: Check::new(token).bytes() }
            }
            Action::Reply { id: RequestId(id), result, served } => Did::Reply { id, result, served },
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let name = |device: Tier| if device.0 == 0 { "fast" } else { "slow" };
        match *self {
            Did::Read { device, offset, len, .. } => {
                format!("a read of {len} bytes at byte {offset} of the {} device", name(device))
            }
            Did::Write { device, offset, len, fua, .. } => {
                let how = if fua { ", at once durable" } else { "" };
                format!("a write of {len} bytes at byte {offset} of the {} device{how}", name(device))
            }
            Did::Flush { device, .. } => format!("a flush of the {} device", name(device)),
            Did::Discard { device, offset, len, .. } => {
                format!("a discard of {len} bytes at byte {offset} of the {} device", name(device))
            }
            Did::Reply { id, result: Ok(()), .. } => format!("an answer to request {id}"),
            Did::Reply { id, result: Err(error), .. } => format!("an answer to request {id}: {error}"),
        }
    }
}

/// The generation of a token: they are numbered as they are handed out. Its place is in the other half.
pub(crate) fn number(token: Token) -> u32 {
    (token.0 >> 32) as u32
}

/// The token of an action for a device.
pub(crate) fn token(action: &Action) -> Option<Token> {
    match *action {
        Action::Read { token, .. }
        | Action::Write { token, .. }
        | Action::Flush { token, .. }
        | Action::Discard { token, .. } => Some(token),
        Action::Reply { .. } => None,
    }
}
