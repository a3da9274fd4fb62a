//! Who may use the log when the zone runs short: clients at the pace at which space is being freed, commits and
//! placements while they leave enough to the batch that frees it.

use crate::arena::Arena;
use crate::engine::Engine;
use crate::log::{Homes, Job};
use crate::units::Nanos;
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

/// What is emptied within this time, ns, need not be kept pace with: clients may use what is left of the zone at once, but ...
/// (A database's bursts of writes, with a fast tier of 5, 10 and 25 % of what it touches: 0.67, 0.96 and 0.95 of the mean
/// response with the margin kept. With twice this, random writes without end stood still for 2.8 s once.)
const SOON_NS: u64 = Nanos::SECOND;
/// ... so many segments.
const KEPT_LEAST: u32 = 2;

/// What clients leave free of the zone.
#[derive(Default)]
pub(crate) struct Kept {
    blocks: u64,
    /// The room that there was when that was looked at last, blocks; none before that.
    room: Option<u64>,
}

impl Kept {
    /// So much is wanted, and there is so much room. Where that is less, half of what is being freed goes into it, and
    /// clients get the other half.
    fn follow(&mut self, wanted: u64, room: u64) {
        let goes_in = self.room.map_or(room, |before| room.saturating_sub(before).div_ceil(2));
        self.room = Some(room);
        self.blocks = if room > wanted { wanted } else { (self.blocks + goes_in).min(wanted) };
    }
}

impl<A: Arena> Engine<A> {
    pub(crate) fn reserve_segments(&self) -> u32 {
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
    /// while the other is emptied; unless that takes no longer than anybody would wait.
    pub(crate) fn clients_may_land(&self, drafted: u32) -> bool {
        if self.zone_is_full() || self.zone_owes_slots() {
            return false;
        }
        // Nothing is being freed: there is nothing to keep pace with.
        if self.mover.barren_since.is_some() {
            return true;
        }
        let unwritten = u64::from(self.state.geo.area_blocks().saturating_sub(self.log.cursor + drafted));
        self.state.zone.room_blocks() + unwritten > self.kept.blocks
    }

    /// How much clients leave free now. What they may use beyond the margin at one time they may not at another, and are
    /// not to stand still until it is free again.
    pub(crate) fn mind_margin(&mut self) {
        let most = self.state.zone.tail_segments() * self.state.geo.area_blocks();
        let part = (self.state.landed.len() / TAIL_SHARE).min(most);
        let soon = self.mover.planner.borrowing.merging_takes_ns(part).is_some_and(|ns| ns <= SOON_NS);
        let kept = if soon { self.kept_segments().min(KEPT_LEAST) } else { self.kept_segments() };
        let wanted = u64::from(self.reserve_segments() + kept) * u64::from(self.state.geo.area_blocks());
        self.kept.follow(wanted, self.state.zone.room_blocks());
    }

    /// Segments beside the reserve that are left free, so that what lands can keep pace with what is freed.
    fn kept_segments(&self) -> u32 {
        let zone = &self.state.zone;
        let spare = zone.len().saturating_sub(2 + self.reserve_segments());
        (zone.tail_segments() + MARGIN_SEGMENTS).min(spare / 2)
    }

    /// Whether clients will soon land no more than what is freed.
    pub(crate) fn zone_runs_short(&self) -> bool {
        self.zone_room_is_within(self.kept_segments() * 3 / 2)
    }

    /// Whether they are about to.
    pub(crate) fn zone_is_short(&self) -> bool {
        self.zone_room_is_within(self.kept_segments())
    }

    fn zone_room_is_within(&self, kept: u32) -> bool {
        let segments = self.reserve_segments() + kept + 1;
        self.state.zone.room_blocks() <= u64::from(segments) * u64::from(self.state.geo.area_blocks())
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
            Job::Homes { of: Homes::Batch(batch), .. } | Job::Merging { batch, .. } => {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone that is short when the volume is opened: what is left of it is kept.
    #[test]
    fn a_margin_that_is_not_there_at_first_is_not_used_up() {
        let mut kept = Kept::default();
        kept.follow(400, 90);
        assert_eq!(kept.blocks, 90);
        kept.follow(400, 110);
        assert_eq!(kept.blocks, 100);
    }

    /// The margin is wanted again while clients have used it up: they get half of what is freed until it is there.
    #[test]
    fn a_margin_that_was_used_up_comes_back_by_halves() {
        let mut kept = Kept::default();
        kept.follow(400, 1000);
        assert_eq!(kept.blocks, 400, "there is room");
        kept.follow(50, 390);
        assert_eq!(kept.blocks, 50, "clients may use it");
        kept.follow(50, 60);
        kept.follow(400, 60);
        assert_eq!(kept.blocks, 50, "nothing was freed yet");
        let mut room = 60;
        for step in 0..33 {
            kept.follow(400, room + 20);
            assert_eq!(kept.blocks, 50 + 10 * (step + 1));
            // Clients use what they may.
            room = (room + 20).min(kept.blocks + 10);
            kept.follow(400, room);
        }
        kept.follow(400, room + 20);
        assert_eq!(kept.blocks, 400);
    }
}
