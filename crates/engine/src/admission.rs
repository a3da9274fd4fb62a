//! Who may use the log when the zone runs short: clients at the pace at which space is being freed, commits and
//! placements while they leave enough to the batch that frees it.

use crate::arena::Arena;
use crate::engine::Engine;
use crate::log::{Homes, Job};
use crate::zone::TAIL_SHARE;

/// Segments that client data leaves free for records of commits and moves, ...
const RESERVE_SEGMENTS: u32 = 4;
/// ... and one more for so many of the zone: merging a quarter of it takes records of 1 in 170 of its size.
const RESERVE_SHARE: u32 = 128;
/// Segments of these that records of commits and placements leave free for the batch that empties the zone.
const FREEING_RESERVE: u32 = 2;
/// Segments beside the reserve and beside a part of the zone that is being emptied: what lands in a few seconds, until a
/// checkpoint has freed what is empty.
const MARGIN_SEGMENTS: u32 = 8;

impl<A: Arena> Engine<A> {
    fn reserve_segments(&self) -> u32 {
        RESERVE_SEGMENTS + self.state.zone.len() / RESERVE_SHARE
    }

    /// Whether only the reserve is left of the zone.
    pub(crate) fn zone_is_full(&self) -> bool {
        self.state.zone.free_segments() <= self.reserve_segments()
    }

    /// Whether clients' data may use the log now: `drafted` blocks are in the group that is being formed.
    ///
    /// When the zone runs short they get what is being freed, block by block, so that it slows down rather than stop
    /// whenever a part of it has to become free as a whole. For that, room for as large a part is left free, to be used
    /// while the other is emptied.
    pub(crate) fn clients_may_land(&self, drafted: u32) -> bool {
        if self.zone_is_full() || self.zone_owes_slots() {
            return false;
        }
        // Nothing is being freed: there is nothing to keep pace with.
        if self.mover.barren_since.is_some() {
            return true;
        }
        let area = u64::from(self.state.geo.area_blocks());
        let kept = u64::from(self.reserve_segments() + self.kept_segments()) * area;
        let unwritten = u64::from(self.state.geo.area_blocks().saturating_sub(self.log.cursor + drafted));
        self.state.zone.room_blocks() + unwritten > kept
    }

    /// Segments beside the reserve that are left free, so that what lands can keep pace with what is freed.
    fn kept_segments(&self) -> u32 {
        let zone = &self.state.zone;
        let spare = zone.len().saturating_sub(2 + self.reserve_segments());
        (zone.len() / TAIL_SHARE + MARGIN_SEGMENTS).min(spare / 2)
    }

    /// Whether clients will soon land no more than what is freed.
    pub(crate) fn zone_runs_short(&self) -> bool {
        let soon = self.reserve_segments() + self.kept_segments() * 3 / 2;
        self.state.zone.room_blocks() <= u64::from(soon + 1) * u64::from(self.state.geo.area_blocks())
    }

    /// Whether records of commits and placements may use the log now. Flush after flush would use up what
    /// the batch that empties the zone needs for its record; so near the end they take turns with it. A
    /// batch that found every chunk held by them must let them pass.
    fn commits_may_append(&self) -> bool {
        let free = self.state.zone.free_segments();
        let turn = free == FREEING_RESERVE || self.mover.planner.zone_is_held || self.state.landed.len() == 0;
        free > FREEING_RESERVE || self.moves_are_over() || turn && !self.mover.is_busy(true)
    }

    /// Whether what is pushed down may be recorded: that brings a segment only once all of a run is done, and must not use up
    /// what merging needs for its record.
    pub(crate) fn pushing_may_append(&self) -> bool {
        self.state.zone.free_segments() > FREEING_RESERVE + 1
    }

    pub(crate) fn may_append(&self, job: &Job) -> bool {
        match job {
            Job::Homes { of: Homes::Commit, .. } => self.commits_may_append(),
            Job::Homes { of: Homes::Batch(batch), .. } => {
                self.mover.frees_zone(*batch) || self.commits_may_append()
            }
            _ => true,
        }
    }

    /// Whether somebody waits for space in the zone.
    pub(crate) fn log_is_starved(&self) -> bool {
        self.landing_is_starved() || self.log.internal.iter().any(|job| !self.may_append(job))
    }

    /// Whether clients wait for space in the zone.
    pub(crate) fn landing_is_starved(&self) -> bool {
        !self.log.client.is_empty() && !self.clients_may_land(0)
    }
}
