//! Whether the log of a volume that is being opened has room to go on.
//!
//! Free segments whose areas were borrowed are named by nothing: an opening finds them as slots, and borrows as many again. One
//! that may not, for it has less memory, finds fewer free segments than the volume had when records were admitted; none, it may
//! be, and the last one full. Then the record that would make some has no room, and nothing that waits for room is answered.

use super::*;
use crate::life::recovery::zone_lacks_memory;
use crate::path::admission::{HELD_RESERVE_BLOCKS, RECORD_BLOCKS};
use crate::path::draft::room_blocks;

/// What of the log is left to a volume that is being opened.
pub(super) struct LogRoom {
    /// Blocks of the segment that the log ends in, where it can go on in no other; none where it can.
    last: Option<u32>,
    /// Nothing is in some area of slots.
    has_idle_area: bool,
}

impl LogRoom {
    pub(super) fn of(recovered: &Recovered, fast: &Slots) -> LogRoom {
        let (state, log) = (&recovered.state, &recovered.log);
        let is_last = state.zone.free_segments() == 0;
        let last = is_last.then(|| room_blocks(state, log.place, log.cursor));
        let mut areas = (0..state.geo.zone_first.0).map(|area| state.geo.slots_in(Area(area)));
        LogRoom { last, has_idle_area: is_last && areas.any(|slots| fast.is_empty(slots)) }
    }

    /// Refuses a volume whose log has no room for the record that would make some, where memory is all that it lacks.
    pub(super) fn check(&self, recovered: &Recovered) -> Result<(), OpenError> {
        let is_stuck = self.last.is_some_and(|room| room < RECORD_BLOCKS)
            && !recovered.state.zone.front_is_empty()
            && recovered.state.landed.len() > 0;
        if is_stuck && self.has_idle_area && zone_lacks_memory(&recovered.state) {
            let what = "the landing zone is full, and as large as its tables may be, without room in the log to empty it: \
                        give this volume more memory";
            return Err(OpenError::Memory { what: what.into() });
        }
        Ok(())
    }

    /// Whether what is left is for the records of what frees the zone: an opening takes no block of it, or a few that end in a
    /// crash would take all.
    pub(super) fn is_kept(&self, recovered: &Recovered) -> bool {
        let may_borrow = self.has_idle_area && recovered.state.zone.may_borrow() > 0;
        self.last.is_some_and(|room| room <= HELD_RESERVE_BLOCKS) && !may_borrow
    }
}
