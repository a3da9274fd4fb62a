//! What is recorded, in memory: twice a state and the calls since, of which the older gives way.

use crate::frame::{ENGINE, FRAME_BYTES, FRAME_HEAD, HEAD, Kind, head, seal};
use crate::item::{Did, Item, number, token};
use bimetal_driver::{ArenaState, RealArena};
use bimetal_engine::action::{Action, DeviceError, Token};
use bimetal_engine::arena::{Arena as _, Buf};
use bimetal_engine::{Engine, Machine as _};
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// A state may take one part in so many of the memory: with the calls behind it, it is kept until there is another one.
pub const STATE_PART: u64 = 4;
/// A new state is taken when what came since the last one takes this part of the memory.
const FULL_PART: u64 = 2;
/// From this many eighths of the memory on, one is taken as soon as clients are silent.
const QUIET_EIGHTHS: u64 = 3;
/// Clients that have asked for nothing for so long are silent.
const SILENCE_NS: u64 = 100 * Nanos::MS;

/// What an engine begins from when it does again what was recorded.
#[derive(Serialize)]
struct StateRef<'a> {
    now: Nanos,
    arena: ArenaState,
    engine: &'a Engine<RealArena>,
}

/// The same, read.
#[derive(Deserialize)]
pub(crate) struct State {
    pub(crate) now: Nanos,
    pub(crate) arena: ArenaState,
    pub(crate) engine: Engine<()>,
}

/// A state, and what came since.
#[derive(Default)]
struct Reel {
    frames: Vec<Arc<Vec<u8>>>,
    bytes: u64,
}

/// A recording at one moment, to be written at leisure.
pub struct Shot {
    head: [u8; HEAD],
    frames: Vec<Arc<Vec<u8>>>,
}

impl Shot {
    /// Bytes of the recording.
    pub fn bytes(&self) -> u64 {
        HEAD as u64 + self.frames.iter().map(|frame| frame.len() as u64).sum::<u64>()
    }

    /// Writes the recording.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.head)?;
        self.frames.iter().try_for_each(|frame| out.write_all(frame))
    }
}

/// Pieces of a state, as they come, up to a limit.
struct Pieces<'a> {
    tape: &'a mut Tape,
    left: u64,
}

impl Write for Pieces<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        self.left = self.left.checked_sub(length).ok_or(io::ErrorKind::StorageFull)?;
        self.tape.open.extend_from_slice(bytes);
        if self.tape.open.len() >= FRAME_BYTES {
            self.tape.close(Kind::State);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is kept of an engine's calls.
pub(crate) struct Tape {
    budget: u64,
    head: [u8; HEAD],
    older: Reel,
    reel: Reel,
    /// The frame that is being filled.
    open: Vec<u8>,
    frames: u64,
    /// The time of the last call.
    now: Nanos,
    asked_at: Nanos,
    /// The newest token, by its number.
    newest: u32,
    /// Reads of metadata that are in flight.
    reads: HashMap<Token, Buf>,
    sums: Vec<u32>,
}

impl Tape {
    pub(crate) fn new(budget: u64, volume: [u8; 16], now: Nanos) -> Tape {
        Tape {
            budget,
            head: head(volume, ENGINE),
            older: Reel::default(),
            reel: Reel::default(),
            open: fresh(),
            frames: 0,
            now,
            asked_at: now,
            newest: 0,
            reads: HashMap::new(),
            sums: Vec::new(),
        }
    }

    /// Begins with how the engine is; the reel before is kept, the one before that is not. False: it takes too much.
    pub(crate) fn begin(&mut self, engine: &mut Engine<RealArena>) -> bool {
        self.close(Kind::Calls);
        self.older = std::mem::take(&mut self.reel);
        self.newest = 0;
        let (now, left) = (self.now, self.budget / STATE_PART);
        let arena = engine.with_arena(|arena| arena.state());
        let state = StateRef { now, arena, engine };
        let written = postcard::to_io(&state, Pieces { tape: self, left }).is_ok();
        self.close(Kind::StateEnd);
        written
    }

    /// Closes the frame that is being filled, if there is something in it.
    fn close(&mut self, kind: Kind) {
        if self.open.len() == FRAME_HEAD && kind != Kind::StateEnd {
            return;
        }
        let mut frame = std::mem::replace(&mut self.open, fresh());
        self.frames += 1;
        seal(&mut frame, kind, self.frames);
        self.reel.bytes += frame.len() as u64;
        self.reel.frames.push(Arc::new(frame));
    }

    /// Whether a new state is to be taken now, between two calls.
    pub(crate) fn is_due(&self) -> bool {
        let silent = self.now.since(self.asked_at) >= SILENCE_NS;
        let most = if silent { self.budget / 8 * QUIET_EIGHTHS } else { self.budget / FULL_PART };
        self.reel.bytes >= most
    }

    /// What is recorded so far.
    pub(crate) fn shot(&mut self) -> Shot {
        self.close(Kind::Calls);
        let frames = self.older.frames.iter().chain(&self.reel.frames).cloned().collect();
        Shot { head: self.head, frames }
    }

    /// Notes an item.
    #[inline]
    pub(crate) fn push(&mut self, item: &Item) {
        // What belongs to the item before is in the same frame.
        let belongs = matches!(item, Item::Sums(_) | Item::Panicked { .. });
        if self.open.len() >= FRAME_BYTES && !belongs {
            self.close(Kind::Calls);
        }
        let open = std::mem::take(&mut self.open);
        // Into memory, it does not fail; nothing is left of the frame if it does.
        self.open = postcard::to_extend(item, open).unwrap_or_else(|_| fresh());
    }

    /// A call comes, at this time.
    #[inline]
    pub(crate) fn at(&mut self, now: Nanos) {
        if now != self.now {
            self.push(&Item::Later(now.0.wrapping_sub(self.now.0) as i64));
            self.now = now;
        }
    }

    /// The time of the last call.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// A client's request comes.
    pub(crate) fn asked(&mut self) {
        self.asked_at = self.now;
    }

    /// A call has come back: notes the checksums that it asked for.
    #[inline]
    pub(crate) fn sums(&mut self, arena: &mut RealArena) {
        arena.take_sums(&mut self.sums);
        if !self.sums.is_empty() {
            let sums = self.sums.drain(..).map(u32::to_le_bytes).collect();
            self.push(&Item::Sums(sums));
        }
    }

    /// The engine wants something done.
    #[inline]
    pub(crate) fn did(&mut self, action: &Action, arena: &RealArena) {
        self.push(&Item::Did(Did::new(action, arena)));
        if let Some(token) = token(action) {
            self.newest = number(token);
        }
        if let Action::Read { buf, token, .. } = *action
            && arena.is_metadata(buf)
        {
            self.reads.insert(token, buf);
        }
    }

    /// A device answers.
    #[inline]
    pub(crate) fn completed(&mut self, token: Token, result: Result<(), DeviceError>, arena: &RealArena) {
        if !self.reads.is_empty()
            && let Some(buf) = self.reads.remove(&token)
        {
            self.push(&Item::Read { start: buf.start, bytes: arena.bytes(buf).to_vec() });
        }
        let before = self.newest.wrapping_sub(number(token));
        self.push(&Item::Completion { place: token.0 as u32, before, result });
    }
}

/// An empty frame.
fn fresh() -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_BYTES + FRAME_BYTES / 8);
    frame.resize(FRAME_HEAD, 0);
    frame
}
