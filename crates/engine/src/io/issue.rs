//! What goes to the driver and what comes back: commands handed out, who waits for each, and the memory they use.

use crate::api::action::{Action, BufList, Class};
use crate::base::arena::{Arena, Buf};
use crate::io::flush::{Flusher, Waiter};
use crate::io::tokens::{Owner, Tokens};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// The engine's side of its driver.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "A: Default"))]
pub(crate) struct Io<A> {
    /// Time, as the driver told it last.
    pub(crate) now: Nanos,
    /// Memory, which is the driver's.
    #[serde(skip)]
    pub(crate) arena: A,
    /// What is handed out next, in order.
    out: VecDeque<Action>,
    pub(crate) tokens: Tokens,
    pub(crate) flushers: ByTier<Flusher>,
    /// Who asked for a flush that was not needed, or is not to be had, and whether it holds.
    pub(crate) flushed_already: VecDeque<(Waiter, bool)>,
    /// How often each device has read something that was what it should be.
    pub(crate) good_reads: ByTier<u64>,
    /// Somebody else reads what the device cannot, and it has read nothing itself since.
    pub(crate) read_elsewhere: ByTier<bool>,
    written_bytes: ByTier<u64>,
}

/// One command, but for what it carries.
pub(crate) struct Command {
    pub(crate) device: Tier,
    pub(crate) offset: u64,
    pub(crate) owner: Owner,
    pub(crate) class: Class,
}

impl Io<()> {
    /// The same with memory.
    pub(crate) fn revive<A: Arena>(self, arena: A) -> Io<A> {
        Io {
            now: self.now,
            arena,
            out: self.out,
            tokens: self.tokens,
            flushers: self.flushers,
            flushed_already: self.flushed_already,
            good_reads: self.good_reads,
            read_elsewhere: self.read_elsewhere,
            written_bytes: self.written_bytes,
        }
    }
}

impl<A: Arena> Io<A> {
    /// Nothing in flight. A device that nobody uses for `rest_after_ns` rests.
    pub(crate) fn new(arena: A, now: Nanos, rest_after_ns: u64) -> Io<A> {
        Io {
            now,
            arena,
            out: VecDeque::new(),
            tokens: Tokens::new(now, rest_after_ns),
            flushers: Default::default(),
            flushed_already: VecDeque::new(),
            good_reads: Default::default(),
            read_elsewhere: Default::default(),
            written_bytes: Default::default(),
        }
    }

    /// Time never runs backwards for the engine.
    pub(crate) fn tick(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Whether all has been handed out.
    pub(crate) fn is_drained(&self) -> bool {
        self.out.is_empty()
    }

    /// What is handed out next.
    pub(crate) fn hand_out(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// Bytes that were written to a device, metadata included.
    pub(crate) fn written_bytes(&self, device: Tier) -> u64 {
        self.written_bytes[device]
    }

    /// Hands out an answer to a client.
    pub(crate) fn answer(&mut self, reply: Action) {
        self.out.push_back(reply);
    }

    /// Reads into a buffer.
    pub(crate) fn read(&mut self, command: Command, buf: Buf) {
        let Command { device, offset, owner, class } = command;
        let token = self.tokens.issue(device, owner, self.now);
        self.out.push_back(Action::Read { device, offset, buf, token, class });
    }

    /// Writes one buffer.
    pub(crate) fn write(&mut self, command: Command, buf: Buf) {
        self.write_all(command, SmallVec::from_elem(buf, 1), false);
    }

    /// Writes buffers one behind the other; with `fua` the device answers when they are durable.
    pub(crate) fn write_all(&mut self, command: Command, bufs: BufList, fua: bool) {
        let Command { device, offset, owner, class } = command;
        let token = self.tokens.issue(device, owner, self.now);
        self.written_bytes[device] += bufs.iter().map(|buf| u64::from(buf.len)).sum::<u64>();
        self.out.push_back(Action::Write { device, offset, bufs, fua, token, class });
    }

    /// Gives a range back to the device; `refilled` says that it will be written again soon.
    pub(crate) fn discard(&mut self, device: Tier, range: (u64, u64), refilled: bool, owner: Owner) {
        let token = self.tokens.issue(device, owner, self.now);
        let (offset, len) = range;
        self.out.push_back(Action::Discard { device, offset, len, refilled, token });
    }

    /// Flushes a device.
    pub(crate) fn flush(&mut self, device: Tier, owner: Owner) {
        let token = self.tokens.issue(device, owner, self.now);
        self.out.push_back(Action::Flush { device, token });
    }
}
