//! A quiet disk is left quiet: when the slow device is used for what nobody waits for, and when that waits.
//!
//! Work that is due only because there is time for it (merging what has landed, placing chunks by heat) is done while
//! the slow device is in use anyway: from a client's request that needs it on, until `Tuning::rest_after_ns` has
//! passed without another one and everything is done. After that it is left alone. The mover's own use of it does not
//! count, or each line of a log would be followed by a merge, and the merge by the next line.

use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::*;

/// Whether work that nobody waits for may use the slow device.
#[derive(Default)]
pub struct Rest {
    /// When it was last in use for something that does not wait.
    roused: Nanos,
    /// What was to be done then is not done yet.
    draining: bool,
    /// Since when something landed has waited for it.
    waits_since: Option<Nanos>,
}

impl Rest {
    /// Of a volume that has just been opened: for that, the slow device was read, and what is landed is brought home.
    pub(crate) fn opened(now: Nanos) -> Rest {
        Rest { roused: now, draining: true, waits_since: None }
    }

    /// It is to be used now, whatever comes of it.
    fn rouse(&mut self, now: Nanos) {
        (self.roused, self.draining, self.waits_since) = (now, true, None);
    }
}

impl<A: Arena> Engine<A> {
    /// Whether the slow device is left alone by work that is due only because there is time for it.
    pub(crate) fn slow_is_left_alone(&self) -> bool {
        let rest = &self.mover.planner.rest;
        !rest.draining && self.io.now.since(rest.roused) >= self.tuning.rest_after_ns
    }

    /// What is asked for now is worth waking the slow device.
    pub(crate) fn rouse_slow(&mut self) {
        self.mover.planner.rest.rouse(self.io.now);
    }

    /// Sees whether the slow device is in use, or has to be.
    pub(crate) fn mind_rest(&mut self) {
        let used = self.io.tokens.used_by_clients(SLOW);
        let wanted = self.zone_is_worth_emptying() || self.zone_gives_back() || self.log_is_starved();
        if wanted || self.placement.pins.are_astray() {
            self.rouse_slow();
        } else if used > self.mover.planner.rest.roused {
            self.mover.planner.rest.rouse(used);
        }
        let landed = self.state.landed.to_merge() > 0;
        if self.slow_is_left_alone() {
            let rest = &mut self.mover.planner.rest;
            rest.waits_since = landed.then(|| rest.waits_since.unwrap_or(self.io.now));
            if self.merge_is_due_at().is_some_and(|due| due <= self.io.now) {
                self.rouse_slow();
            }
        } else {
            let work = landed || !self.mover.is_idle() || self.has_chunks_to_place();
            self.mover.planner.rest.draining = work;
        }
    }

    /// When what has landed wakes the slow device, if it is left alone until then.
    pub(crate) fn merge_is_due_at(&self) -> Option<Nanos> {
        let since = self.mover.planner.rest.waits_since?;
        Some(since.after(self.tuning.rest_at_most_ns))
    }
}
