//! Flushes are asked for and shared, and what they make durable is told to who waits.

use crate::api::action::DeviceError;
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::io::flush::Waiter;
use crate::io::tokens::Owner;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Calls the waiter back when every write that has completed on the device by now is durable.
    pub(crate) fn request_flush(&mut self, tier: Tier, waiter: Waiter) {
        if let Some(ok) = self.io.flushers[tier].want(waiter) {
            self.io.flushed_already.push_back((waiter, ok));
        }
    }

    /// Submits flushes that are wanted; calls those back that needed none.
    pub(crate) fn pump_flushes(&mut self) {
        while let Some((waiter, ok)) = self.io.flushed_already.pop_front() {
            self.on_flushed(waiter, ok);
        }
        for tier in [SLOW, FAST] {
            if let Some(for_commit) = self.io.flushers[tier].begin(self.log.applied) {
                self.io.flush(tier, Owner::Flush { tier, for_commit });
            }
        }
    }

    /// The device was away while a command of its was in flight. Should it come back, it may have forgotten whatever it
    /// had acknowledged, and report success for a flush all the same: so none is believed from here on.
    pub(crate) fn device_was_away(&mut self, tier: Tier) {
        if planted(Bug::ResetDeviceBelieved) {
            return;
        }
        self.io.flushers[tier].distrust();
        self.writes_may_be_lost(tier);
    }

    /// What the device was told and has not made durable it may have forgotten.
    fn writes_may_be_lost(&mut self, tier: Tier) {
        if tier == FAST {
            self.space.unshown_lost = true;
            self.state.sums.forget_all_fast();
        }
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
        let (waiters, durable) = self.io.flushers[tier].end(result.is_ok());
        let ok = durable.is_some();
        if let Some(durable) = durable.filter(|_| tier == FAST) {
            self.log_is_durable(durable);
            self.release_slots();
        }
        if let Err(error) = result {
            self.writes_may_be_lost(tier);
            let name = &self.told.names[tier];
            let what = format!("a flush of {name} failed: the volume is read-only until it is opened again");
            self.fail_volume(what, Some(error));
        }
        for waiter in waiters {
            self.on_flushed(waiter, ok);
        }
    }

    /// Calls a waiter whose flush has ended.
    fn on_flushed(&mut self, waiter: Waiter, ok: bool) {
        match waiter {
            Waiter::Commit => self.commit_flushed(ok),
            Waiter::Batch(batch) => self.batch_flushed(batch, ok),
            Waiter::Checkpoint => self.checkpoint_flushed(ok),
            Waiter::Pins => self.pins_flushed(ok),
            Waiter::Marks => self.marks_flushed(ok),
            Waiter::Shutdown => self.shutdown_flushed(ok),
        }
    }
}
