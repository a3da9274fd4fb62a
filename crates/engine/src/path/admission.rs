//! Who may use the log, and when: what is left of the landing zone is shared between clients, commits, and what frees it.

use crate::api::economy::Economy;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::path::draft::GROUP_HEADER_BLOCKS;
use crate::path::log::{Homes, Job};
use crate::placement::admission::Room;
use bimetal_units::{BLOCK_BYTES, Nanos};

/// Segments that client data leaves free for records of commits and moves, ...
const RESERVE_SEGMENTS: u32 = 4;
/// ... and one more for so many of the zone: merging a third of it takes records of 1 in 127 of its size.
const RESERVE_SHARE: u32 = 96;
/// Segments of these that records of commits and placements leave free for the batch that empties the zone.
const FREEING_RESERVE: u32 = 2;
/// Blocks of the last segment that they leave free, even where they hold what that batch is to move: its records.
pub(crate) const HELD_RESERVE_BLOCKS: u32 = 3 * GROUP_HEADER_BLOCKS;

/// Blocks that a group of records takes at most, with what the segment's index grows by for it.
pub(crate) const RECORD_BLOCKS: u32 = 2 * GROUP_HEADER_BLOCKS;

/// Blocks of a segment that hold no payload, at least: its header, that of a group, and the index.
const SEGMENT_OVERHEAD_BLOCKS: u32 = 3;

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
        if self.others_come_first() {
            return false;
        }
        // Nothing is being freed: there is nothing to keep pace with.
        if self.mover.barren.is_some() {
            return true;
        }
        self.placement.kept.has_room_beside(u64::from(drafted), self.room())
    }

    /// Whether clients get nothing of what is left, however much is being freed.
    pub(crate) fn others_come_first(&self) -> bool {
        self.zone_is_full() || self.zone_owes_slots()
    }

    fn room(&self) -> Room {
        let (zone, area_blocks) = (&self.state.zone, self.state.geo.area_blocks());
        Room {
            free: zone.room_blocks() + u64::from(area_blocks.saturating_sub(self.log.cursor)),
            appended: self.told.stats.log_bytes / u64::from(BLOCK_BYTES),
            size: u64::from(zone.len()) * u64::from(area_blocks),
        }
    }

    /// How much clients leave free now. What they may use beyond the margin at one time they may not at another, and are
    /// not to stand still until it is free again.
    pub(crate) fn mind_margin(&mut self) {
        let economy = self.tuning.economy;
        let most = if self.soon_empty_ns().is_some() { economy.zone_least_kept } else { u32::MAX };
        let kept = self.kept_segments().min(most);
        let area_blocks = u64::from(self.state.geo.area_blocks());
        let wanted = u64::from(self.reserve_segments() + kept) * area_blocks;
        let room = self.room();
        let most_paced = (kept / economy.zone_paced_share).min(economy.zone_margin_segments);
        self.placement.kept.follow(wanted, u64::from(most_paced) * area_blocks, room, &economy);
        self.placement.kept.give(room, self.log.client.len(), self.io.now, economy.zone_lot_ns);
    }

    /// When clients that wait for room get more of it, as far as it is known.
    pub(crate) fn admission_deadline(&self) -> Option<Nanos> {
        let next = || {
            self.placement.kept.next_lot(self.room(), self.log.client.len(), self.tuning.economy.zone_lot_ns)
        };
        let paced = self.landing_is_starved() && !self.others_come_first();
        paced.then(next).flatten()
    }

    /// How long emptying a part of the zone takes, as far as experience goes, ns; none where that is not soon.
    fn soon_empty_ns(&self) -> Option<u64> {
        let Economy { zone_part_share, zone_soon_ns, .. } = self.tuning.economy;
        let most = self.zone_part(zone_part_share) * self.state.geo.area_blocks();
        let part = (self.state.landed.len() / zone_part_share).min(most);
        self.mover.planner.borrowing.merging_takes_ns(part).filter(|ns| *ns <= zone_soon_ns)
    }

    /// One part in so many of the zone, as far as that may be emptied in one plan, segments.
    fn zone_part(&self, share: u32) -> u32 {
        self.state.zone.part(share, self.tuning.economy.zone_most_part_bytes)
    }

    /// Segments that are emptied in one plan, and become free at about the same time: a part, where that is soon; as much more
    /// as is soon empty, where clients wait already; and a larger one where they are paced.
    pub(crate) fn tail_segments(&self) -> u32 {
        if self.only_the_oldest_is_emptied() {
            return 1;
        }
        let economy = &self.tuning.economy;
        let part = self.zone_part(economy.zone_part_share);
        let segments = match self.soon_empty_ns() {
            None => self.zone_part(economy.zone_large_part_share),
            Some(ns) if self.landing_is_starved() => {
                let times = (economy.zone_soon_ns / ns.max(1)).clamp(1, economy.zone_most_parts);
                part * times as u32
            }
            Some(_) => part,
        };
        segments.max(1)
    }

    /// Segments beside the reserve that are left free, so that what lands can keep pace with what is freed.
    fn kept_segments(&self) -> u32 {
        let zone = &self.state.zone;
        let spare = zone.len().saturating_sub(2 + self.reserve_segments());
        let economy = &self.tuning.economy;
        let part = self.zone_part(economy.zone_large_part_share);
        (part + economy.zone_margin_segments).min(spare / 2)
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
        let held =
            self.mover.planner.zone_is_held && (free > 0 || self.log_room_blocks() > HELD_RESERVE_BLOCKS);
        let turn = free == FREEING_RESERVE || held || self.state.landed.len() == 0;
        free > FREEING_RESERVE || self.moves_are_over() || turn && !self.mover.is_busy(true)
    }

    /// Whether what is written now and shown by a record later will find room for that record: whoever makes such
    /// promises while the log has room for little else but freeing it, may leave none for that.
    pub(crate) fn log_has_room_to_show(&self) -> bool {
        !self.only_the_oldest_is_emptied() || self.state.landed.len() == 0
    }

    /// Whether so little is left that only what empties the oldest segment may be recorded: records of other chunks would use
    /// it up while a device fails what that segment holds, and then there is no room for the one that frees some.
    pub(crate) fn only_the_oldest_is_emptied(&self) -> bool {
        self.state.zone.free_segments() < FREEING_RESERVE
    }

    /// Whether what is pushed down may be recorded: that brings a segment only once all of a run is done, and must not use up
    /// what merging needs for its record.
    pub(crate) fn pushing_may_append(&self) -> bool {
        self.state.zone.free_segments() > FREEING_RESERVE + 1
    }

    /// Of how many blocks what is left may be said again now. Parts of two may share a block of the log, and said again each takes
    /// one of its own: so that may take more room than it makes. Were it begun without, the log would run out of segments, and
    /// what makes some free would find no room for its record. The last free one is for what makes the oldest free.
    pub(crate) fn room_for_remnants(&self) -> u32 {
        let zone = &self.state.zone;
        let segment = self.state.geo.area_blocks() - SEGMENT_OVERHEAD_BLOCKS;
        let all = (self.log_room_blocks() + zone.free_segments() * segment).saturating_sub(RECORD_BLOCKS);
        let oldest = zone.chain().front().map_or(0, |place| zone.get(*place).lost);
        if oldest <= all { all } else { all.saturating_sub(segment) }
    }

    pub(crate) fn may_append(&self, job: &Job) -> bool {
        match job {
            Job::Homes { of: Homes::Commit, .. } => self.commits_may_append(),
            Job::Homes { of: Homes::Batch(batch), .. }
            | Job::Merging { batch, .. }
            | Job::Remnant { batch, .. } => self.mover.frees_zone(*batch) || self.commits_may_append(),
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
