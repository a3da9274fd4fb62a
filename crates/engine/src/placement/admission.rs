//! Who may use the log when the zone runs short: clients at the pace at which space is being freed, commits and
//! placements while they leave enough to the batch that frees it.

use crate::api::economy::Economy;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::path::draft::GROUP_HEADER_BLOCKS;
use crate::path::log::{Homes, Job};
use crate::placement::elastic::Cost;
use bimetal_units::{BLOCK_BYTES, Nanos};

/// Segments that client data leaves free for records of commits and moves, ...
const RESERVE_SEGMENTS: u32 = 4;
/// ... and one more for so many of the zone: merging a third of it takes records of 1 in 127 of its size.
const RESERVE_SHARE: u32 = 96;
/// Segments of these that records of commits and placements leave free for the batch that empties the zone.
const FREEING_RESERVE: u32 = 2;
/// Blocks of the last segment that they leave free, even where they hold what that batch is to move: its records.
const HELD_RESERVE_BLOCKS: u32 = 3 * GROUP_HEADER_BLOCKS;

/// What there is of the zone, blocks.
#[derive(Clone, Copy)]
struct Room {
    /// Those that may be appended, or will be when the segments that are being emptied are.
    free: u64,
    /// Those that have been appended since the volume was opened.
    appended: u64,
    /// All of them.
    size: u64,
}

/// What clients leave free of the zone.
#[derive(Default)]
pub(crate) struct Kept {
    /// So much whatever merging frees, ...
    blocks: u64,
    /// ... and so much of what is beyond that they use at its pace.
    paced: u64,
    /// What there was when that was looked at last.
    room: Option<Room>,
    /// What merging has freed of late.
    pub(crate) merging: Cost,
    /// Clients that are paced may use the log until so many blocks have been appended, ...
    until: u64,
    /// ... which was said then.
    since: Nanos,
}

impl Kept {
    /// So much is wanted, and there is so much room. Where that is less, half of what is being freed goes into it, and
    /// clients get the other half.
    fn follow(&mut self, wanted: u64, most_paced: u64, room: Room, economy: &Economy) {
        let freed = self.room.map_or(0, |before| {
            let (is, was) = (room.free + room.appended, before.free + before.appended);
            let grown = room.size.saturating_sub(before.size);
            self.merging.another(0, is.saturating_sub(was + grown), economy.cost_memory_ns);
            is.saturating_sub(was)
        });
        let goes_in = self.room.map_or(room.free, |_| freed.div_ceil(2));
        self.room = Some(room);
        self.paced = self.merging.blocks_in(economy.zone_paced_ns).min(most_paced);
        let wanted = wanted - self.paced;
        self.blocks = if room.free > wanted { wanted } else { (self.blocks + goes_in).min(wanted) };
    }

    /// Whether there is room beside `drafted` blocks, and more than clients are to leave now.
    fn has_room_beside(&self, drafted: u64, room: Room) -> bool {
        room.free > self.blocks + self.paced + drafted
            || room.free > self.blocks + drafted && room.appended + drafted < self.until
    }

    /// Blocks that clients may append in so long a time: what merging frees meanwhile, twice as much where they begin to use
    /// what is paced, half as much where they have used three quarters of it.
    fn share(&self, room: Room, ns: u64) -> u64 {
        let used = (self.blocks + self.paced).saturating_sub(room.free);
        let share = (4 * self.paced).saturating_sub(4 * used).max(self.paced);
        self.merging.blocks_in(ns) * share / (2 * self.paced).max(1)
    }

    /// When `waiting` clients get more, if that is all that they wait for.
    fn next_lot(&self, room: Room, waiting: usize, lot_ns: u64) -> Option<Nanos> {
        (room.free > self.blocks && self.share(room, lot_ns) > 0).then(|| self.due(room, waiting, lot_ns))
    }

    /// There is a block for each that waits, as a group of the log has one of its own, or `lot_ns` are over.
    fn due(&self, room: Room, waiting: usize, lot_ns: u64) -> Nanos {
        let (in_most, lot) = (self.share(room, lot_ns), waiting as u64 + 1);
        self.since.after(if in_most > lot { lot_ns * lot / in_most } else { lot_ns })
    }

    /// Gives clients what they have not had yet: what they leave is not saved up, and what was appended beyond their last lot
    /// is taken off this one.
    fn give(&mut self, room: Room, waiting: usize, now: Nanos, lot_ns: u64) {
        if now < self.due(room, waiting, lot_ns) {
            return;
        }
        let lot = self.share(room, now.since(self.since).min(lot_ns));
        self.until = self.until.clamp(room.appended.saturating_sub(lot / 2), room.appended) + lot;
        self.since = now;
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
        if self.mover.barren.is_some() {
            return true;
        }
        self.placement.kept.has_room_beside(u64::from(drafted), self.room())
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
        self.landing_is_starved().then(next).flatten()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free: u64, appended: u64) -> Room {
        Room { free, appended, size: 10_000 }
    }

    /// A zone that is short when the volume is opened: what is left of it is kept.
    #[test]
    fn a_margin_that_is_not_there_at_first_is_not_used_up() {
        let mut kept = Kept::default();
        kept.follow(400, 0, room(90, 0), &Economy::default());
        assert_eq!(kept.blocks, 90);
        kept.follow(400, 0, room(110, 0), &Economy::default());
        assert_eq!(kept.blocks, 100);
    }

    /// The margin is wanted again while clients have used it up: they get half of what is freed until it is there.
    #[test]
    fn a_margin_that_was_used_up_comes_back_by_halves() {
        let mut kept = Kept::default();
        kept.follow(400, 0, room(1000, 0), &Economy::default());
        assert_eq!(kept.blocks, 400, "there is room");
        kept.follow(50, 0, room(390, 610), &Economy::default());
        assert_eq!(kept.blocks, 50, "clients may use it");
        kept.follow(50, 0, room(60, 940), &Economy::default());
        kept.follow(400, 0, room(60, 940), &Economy::default());
        assert_eq!(kept.blocks, 50, "nothing was freed yet");
        let (mut free, mut appended) = (60, 940);
        for step in 0..33 {
            kept.follow(400, 0, room(free + 20, appended), &Economy::default());
            assert_eq!(kept.blocks, 50 + 10 * (step + 1));
            // Clients use what they may.
            let left = (free + 20).min(kept.blocks + 10);
            (free, appended) = (left, appended + free + 20 - left);
            kept.follow(400, 0, room(free, appended), &Economy::default());
        }
        kept.follow(400, 0, room(free + 20, appended), &Economy::default());
        assert_eq!(kept.blocks, 400);
    }

    /// 16 clients write without end; a batch ends every 0.7 s and frees 175 blocks. Gives what they append in each second.
    fn appended_by_second(most_paced: u64, seconds: u64) -> Vec<u64> {
        let (mut kept, mut by_second) = (Kept::default(), vec![0; seconds as usize]);
        let (mut free, mut appended, economy) = (4000, 0, Economy::default());
        for ms in 0..seconds * 1000 {
            if ms % 700 == 699 {
                free += 175;
                kept.merging.another(700 * Nanos::MS, 0, economy.cost_memory_ns);
            }
            kept.follow(4000, most_paced, room(free, appended), &Economy::default());
            kept.give(room(free, appended), 16, Nanos(ms * Nanos::MS), economy.zone_lot_ns);
            // A group takes a millisecond, and has a block of its own.
            let group = (0..16)
                .take_while(|drafted| kept.has_room_beside(*drafted, room(free, appended)))
                .count() as u64;
            let blocks = if group == 0 { 0 } else { group + 1 };
            (free, appended) = (free - blocks, appended + blocks);
            by_second[(ms / 1000) as usize] += blocks;
        }
        by_second
    }

    /// They go on at the mean pace instead of whenever a batch has ended, and from the first batch on.
    #[test]
    fn clients_go_on_evenly_while_room_is_freed_in_batches() {
        let (by_batch, paced) = (appended_by_second(0, 60), appended_by_second(2000, 60));
        assert_eq!(by_batch[20..].iter().min(), Some(&175), "one batch in a second, or two: {by_batch:?}");
        assert!(paced[20..].iter().all(|blocks| (225..=275).contains(blocks)), "{paced:?}");
        let sums = [&by_batch, &paced].map(|blocks| blocks.iter().sum::<u64>());
        assert!(sums[1] >= sums[0] && sums[1] <= sums[0] + 2000, "what is paced is lent once: {sums:?}");
    }
}
