//! Device flushes: at most one in flight per device; waiters share.

use crate::api::action::DeviceError;
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::io::tokens::Owner;
use bimetal_units::*;
use smallvec::SmallVec;

/// Who waits for a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiter {
    /// The commit.
    Commit,
    /// A batch of moves.
    Batch(u32),
    /// The checkpoint.
    Checkpoint,
    /// The list of pins.
    Pins,
    /// The shutdown.
    Shutdown,
}

/// Flushes of one device.
#[derive(Default)]
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

struct InFlight {
    waiters: SmallVec<[Waiter; 4]>,
    covered: Seq,
}

impl<A: Arena> Engine<A> {
    /// Calls the waiter back when every write that has completed on the device by now is durable.
    pub(crate) fn request_flush(&mut self, tier: Tier, waiter: Waiter) {
        let flusher = &mut self.io.flushers[tier];
        if flusher.failed {
            self.io.flushed_already.push_back((waiter, false));
        } else if flusher.dirty || !flusher.waiting.is_empty() {
            flusher.waiting.push(waiter);
        } else if let Some(flight) = &mut flusher.in_flight {
            // It was submitted after the last write completed, so it covers that too.
            flight.waiters.push(waiter);
        } else {
            self.io.flushed_already.push_back((waiter, true));
        }
    }

    /// Submits flushes that are wanted; calls those back that needed none.
    pub(crate) fn pump_flushes(&mut self) {
        while let Some((waiter, ok)) = self.io.flushed_already.pop_front() {
            self.on_flushed(waiter, ok);
        }
        for tier in [SLOW, FAST] {
            let covered = self.log.applied;
            let flusher = &mut self.io.flushers[tier];
            if flusher.in_flight.is_some() || flusher.waiting.is_empty() {
                continue;
            }
            flusher.dirty = false;
            flusher.count += 1;
            let waiters = std::mem::take(&mut flusher.waiting);
            let owner = Owner::Flush { tier, for_commit: waiters.contains(&Waiter::Commit) };
            flusher.in_flight = Some(InFlight { waiters, covered });
            self.io.flush(tier, owner);
        }
    }

    /// The device was away while a command of its was in flight. Should it come back, it may have forgotten whatever it
    /// had acknowledged, and report success for a flush all the same: so none is believed from here on.
    pub(crate) fn device_was_away(&mut self, tier: Tier) {
        if planted(Bug::ResetDeviceBelieved) {
            return;
        }
        self.io.flushers[tier].failed = true;
        self.space.unshown_lost |= tier == FAST;
    }

    /// Who was in the middle of something when the device went away has been told; now all others are.
    pub(crate) fn tell_of_absence(&mut self, tier: Tier, error: DeviceError) {
        if !self.life.is_read_only() && !planted(Bug::ResetDeviceBelieved) {
            let name = &self.told.names[tier];
            let what = format!("{name} was away: the volume is read-only until it is opened again");
            self.fail_volume(what, Some(error));
        }
    }

    /// A flush has ended.
    pub(crate) fn flush_done(&mut self, tier: Tier, result: Result<(), DeviceError>) {
        let ok = result.is_ok() && !self.io.flushers[tier].failed;
        let flusher = &mut self.io.flushers[tier];
        let mut flight = flusher.in_flight.take().expect("a flush that ended was in flight");
        if !ok {
            flusher.failed = true;
            flight.waiters.append(&mut flusher.waiting);
        }
        if ok && tier == FAST {
            self.log_is_durable(flight.covered);
            self.release_slots();
        }
        if let Err(error) = result {
            self.space.unshown_lost |= tier == FAST;
            let name = &self.told.names[tier];
            let what = format!("a flush of {name} failed: the volume is read-only until it is opened again");
            self.fail_volume(what, Some(error));
        }
        for waiter in flight.waiters {
            self.on_flushed(waiter, ok);
        }
    }

    /// The first to wait for a flush, for coverage.
    pub(crate) fn flush_waiter(&self, tier: Tier) -> Option<Waiter> {
        self.io.flushers[tier].in_flight.as_ref().and_then(|f| f.waiters.first().copied())
    }
}
