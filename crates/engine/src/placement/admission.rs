//! Who may use the log when the zone runs short: clients at the pace at which space is being freed, commits and
//! placements while they leave enough to the batch that frees it.

use crate::api::economy::Economy;
use crate::placement::elastic::Cost;
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};

/// What there is of the zone, blocks.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Room {
    /// Those that may be appended, or will be when the segments that are being emptied are.
    pub(crate) free: u64,
    /// Those that have been appended since the volume was opened.
    pub(crate) appended: u64,
    /// All of them.
    pub(crate) size: u64,
}

/// What clients leave free of the zone.
#[derive(Default, Serialize, Deserialize)]
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
    pub(crate) fn follow(&mut self, wanted: u64, most_paced: u64, room: Room, economy: &Economy) {
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
    pub(crate) fn has_room_beside(&self, drafted: u64, room: Room) -> bool {
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
    pub(crate) fn next_lot(&self, room: Room, waiting: usize, lot_ns: u64) -> Option<Nanos> {
        (room.free > self.blocks && self.share(room, lot_ns) > 0).then(|| self.due(room, waiting, lot_ns))
    }

    /// There is a block for each that waits, as a group of the log has one of its own, or `lot_ns` are over.
    fn due(&self, room: Room, waiting: usize, lot_ns: u64) -> Nanos {
        let (in_most, lot) = (self.share(room, lot_ns), waiting as u64 + 1);
        self.since.after(if in_most > lot { lot_ns * lot / in_most } else { lot_ns })
    }

    /// Gives clients what they have not had yet: what they leave is not saved up, and what was appended beyond their last lot
    /// is taken off this one.
    pub(crate) fn give(&mut self, room: Room, waiting: usize, now: Nanos, lot_ns: u64) {
        if now < self.due(room, waiting, lot_ns) {
            return;
        }
        let lot = self.share(room, now.since(self.since).min(lot_ns));
        self.until = self.until.clamp(room.appended.saturating_sub(lot / 2), room.appended) + lot;
        self.since = now;
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
