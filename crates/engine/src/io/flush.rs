//! Device flushes: at most one in flight per device; waiters share.

use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Who waits for a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Waiter {
    /// The commit.
    Commit,
    /// A batch of moves.
    Batch(u32),
    /// The checkpoint.
    Checkpoint,
    /// The list of pins.
    Pins,
    /// The marks.
    Marks,
    /// The shutdown.
    Shutdown,
}

/// Flushes of one device.
#[derive(Default, Serialize, Deserialize)]
pub struct Flusher {
    /// Some write completed since the last flush was submitted.
    pub dirty: bool,
    waiting: SmallVec<[Waiter; 4]>,
    in_flight: Option<InFlight>,
    /// A flush failed, or the device was away: what the device dropped no later flush can bring back, so none is believed.
    failed: bool,
    /// Flushes submitted.
    pub count: u64,
}

#[derive(Serialize, Deserialize)]
struct InFlight {
    waiters: SmallVec<[Waiter; 4]>,
    covered: Seq,
}

/// Proof that the log is durable up to a group: made by the flush that ended, and by the opening that read the groups.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Durable {
    upto: Seq,
}

impl Durable {
    /// What an opening found is as durable as it will be.
    pub(crate) fn found(upto: Seq) -> Durable {
        Durable { upto }
    }

    /// The last group.
    pub fn upto(self) -> Seq {
        self.upto
    }

    /// Whether the group is covered.
    pub fn covers(self, seq: Seq) -> bool {
        seq <= self.upto
    }
}

/// Proof that what somebody had written is durable: made when the last flush that he waited for has ended.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct DataFlushed(());

/// Flushes that somebody waits for.
#[derive(Default, Serialize, Deserialize)]
pub struct Awaited {
    left: u32,
    failed: bool,
}

impl Awaited {
    /// Waits for one more.
    pub(crate) fn one_more(&mut self) {
        self.left += 1;
    }

    /// One has ended. None while others are awaited; then whether all went well.
    pub(crate) fn ended(&mut self, ok: bool) -> Option<Result<DataFlushed, NotFlushed>> {
        self.failed |= !ok;
        self.left -= 1;
        (self.left == 0).then(|| match std::mem::take(&mut self.failed) {
            true => Err(NotFlushed),
            false => Ok(DataFlushed(())),
        })
    }
}

/// A flush that was awaited failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotFlushed;

impl Flusher {
    /// No flush is believed from here on.
    pub(crate) fn distrust(&mut self) {
        self.failed = true;
    }

    /// Someone wants all that has completed to be durable. Some: he need not wait, and this is how it is.
    pub(crate) fn want(&mut self, waiter: Waiter) -> Option<bool> {
        if self.failed {
            return Some(false);
        }
        if self.dirty || !self.waiting.is_empty() {
            self.waiting.push(waiter);
        } else if let Some(flight) = &mut self.in_flight {
            // It was submitted after the last write completed, so it covers that too.
            flight.waiters.push(waiter);
        } else {
            return Some(true);
        }
        None
    }

    /// Begins a flush if one is wanted and none is in flight: it covers groups up to this one. Says whether a commit waits.
    pub(crate) fn begin(&mut self, covered: Seq) -> Option<bool> {
        if self.in_flight.is_some() || self.waiting.is_empty() {
            return None;
        }
        self.dirty = false;
        self.count += 1;
        let waiters = std::mem::take(&mut self.waiting);
        let for_commit = waiters.contains(&Waiter::Commit);
        self.in_flight = Some(InFlight { waiters, covered });
        Some(for_commit)
    }

    /// The flush has ended: who waited, and what of the log is durable now, if it is believed. One that failed leaves nobody
    /// to wait for the next.
    pub(crate) fn end(&mut self, ok: bool) -> (SmallVec<[Waiter; 4]>, Option<Durable>) {
        let mut flight = self.in_flight.take().expect("a flush that ended was in flight");
        if ok && !self.failed {
            return (flight.waiters, Some(Durable { upto: flight.covered }));
        }
        self.failed = true;
        flight.waiters.append(&mut self.waiting);
        (flight.waiters, None)
    }

    /// The first to wait for the flush in flight, for coverage.
    pub(crate) fn first_waiter(&self) -> Option<Waiter> {
        self.in_flight.as_ref().and_then(|flight| flight.waiters.first().copied())
    }
}
