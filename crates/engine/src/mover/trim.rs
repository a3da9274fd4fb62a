//! Free segments of the landing zone are discarded before the log comes back to them.
//!
//! What the log has left is nothing to the volume, but the flash below keeps it, and moves it about whenever it makes
//! room for something else. A drive that is full of homes and copies has no other space for that than what its maker
//! put aside.
//!
//! A segment is discarded only when it could also be written over: it has left the chain, which a durable checkpoint needs no
//! more, and no read is in flight in it. Until the device has answered, nothing lands there.

use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::io::tokens::Owner;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Discards a free segment, if the log has others at hand. One at a time: many drives answer nothing else meanwhile.
    pub(crate) fn pump_trims(&mut self) {
        let needed = self.reserve_segments() + self.tuning.economy.trim_at_hand;
        let zone = &self.state.zone;
        if zone.is_trimming() || zone.free_segments() <= needed || self.moves_are_over() {
            return;
        }
        let Some(place) = self.state.zone.begin_trim() else { return };
        let range = (self.state.zone.offset(place, 0), u64::from(self.state.geo.area_bytes));
        self.io.discard(FAST, range, true, Owner::Segment);
        if planted(Bug::LandedUnderTrim) {
            self.state.zone.end_trim();
        }
    }

    /// The device has forgotten what was in the segment (or refused to, which is harmless).
    pub(crate) fn on_segment_trimmed(&mut self) {
        self.state.zone.end_trim();
    }
}
