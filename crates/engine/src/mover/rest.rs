//! When the slow device is left alone, and what rouses it.

use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::*;

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
        if wanted || self.pins_are_astray() {
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
