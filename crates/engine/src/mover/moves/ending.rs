//! How a batch ends: its records, what they show, and the chunks let go.

use super::*;
use crate::format::log::{HomeRecord, Record};
use crate::mover::plan::Ended;
use crate::path::piece::PieceKind;
use crate::placement::policy::Policy as _;

impl<A: Arena> Engine<A> {
    /// What was copied to fast slots is known from here on.
    pub(super) fn note_copied_sums(&mut self, batch: u32) {
        for item in &self.mover.batches[batch].items {
            if let Some(home) = item.home.filter(|home| home.tier == FAST) {
                let sums = item.sums.iter().map(|sum| sum.expect("what was copied has its checksum"));
                self.state.sums.note_fast(home.slot, &item.copy, sums);
            }
        }
    }

    /// The record for a moved chunk, as of now: discards since the copy are taken out.
    pub(crate) fn batch_record(&mut self, batch: u32, i: u32) -> Option<Record> {
        let mut record = self.batch_home(batch, i)?;
        self.leave_out_landed_sums(&mut record);
        let proof = self.mover.batches[batch].data.expect("what a batch shows has been flushed");
        Some(self.shown_by(record, proof))
    }

    /// What landed since the copy, or is about to, may stand before this record in the log, and a replay may begin between the
    /// two: it would take the checksum for that of whatever is written here next. So the record says none of such blocks.
    fn leave_out_landed_sums(&self, record: &mut HomeRecord) {
        if record.summed.is_empty() || record.home.is_none_or(|home| home.tier != FAST) {
            return;
        }
        let is_landing = self
            .front
            .pieces
            .iter()
            .any(|(_, piece)| piece.chunk == record.chunk && !matches!(piece.kind, PieceKind::Read));
        let landed = self.state.landed_in(record.chunk);
        let is_newer = |block: u32| {
            landed.iter().any(|&(other, z)| other == block && self.state.zone.pos_of(z) >= record.ends)
        };
        let (summed, sums) = record.sums_where(|block| !is_landing && !is_newer(block));
        (record.summed, record.sums) = (summed, sums);
    }

    /// What landed or was discarded while the record was on its way has no checksum here, and a crash may bring back the one in
    /// the record: it counts as ended until that is durable.
    fn end_sums_of_what_changed(&mut self, item: &Item) {
        let Some(home) = item.home.filter(|home| home.tier == FAST) else { return };
        let fast = &mut self.state.sums.fast;
        let mut changed = BlockMask::EMPTY;
        item.logged.iter().filter(|b| fast.get(home.slot, *b).is_none()).for_each(|b| changed.set(b));
        if !changed.is_empty() {
            fast.end_unnoted(home.slot, &changed);
            let said = self.all_said();
            self.state.sums.ended_by(said);
        }
    }

    fn batch_home(&self, batch: u32, i: u32) -> Option<HomeRecord> {
        let item = &self.mover.batches[batch].items[i as usize];
        let merge = item.home == item.from;
        let held = if merge { self.state.map.valid(item.chunk) } else { BlockMask::EMPTY };
        let valid = held.or(item.have);
        if valid.is_empty() {
            return None;
        }
        let slow = item.home.is_some_and(|h| h.tier == SLOW);
        // Of what was not copied they are known from when this slot was the home before. On the fast tier those stay that the
        // log had.
        let summed = item.have.and(if slow { item.copy } else { item.logged });
        let known = item.copy.iter().zip(&item.sums).filter(|(b, _)| summed.has(*b));
        let sums = known.map(|(_, s)| s.expect("what was copied has its checksum")).collect();
        Some(HomeRecord { chunk: item.chunk, home: item.home, ends: item.ends, valid, summed, sums })
    }

    pub(crate) fn batch_recorded(&mut self, batch: u32, seq: Seq) {
        let b = &mut self.mover.batches[batch];
        // After a failed append a record may come in an earlier group than before.
        b.first = Some(b.first.map_or(seq, |first| first.min(seq)));
        b.last = seq;
    }

    pub(crate) fn batch_records_applied(&mut self, batch: u32, records: u32, ok: bool) {
        let b = &mut self.mover.batches[batch];
        b.records_left -= records;
        b.flush_failed |= !ok;
        if b.records_left > 0 {
            return;
        }
        if b.flush_failed {
            return self.end_batch(batch, false);
        }
        b.stage = BatchStage::FlushLog;
        b.awaited.one_more();
        self.request_flush(FAST, Waiter::Batch(batch));
    }

    /// Blocks were discarded: the record that ends a move must not name them.
    pub(crate) fn discard_moving(&mut self, chunk: Chunk, blocks: BlockMask) {
        if !self.state.map.is_moving(chunk) || planted(Bug::MoveForgetsDiscard) {
            return;
        }
        for i in 0..MAX_BATCHES as u32 {
            if self.mover.batches.get(i).is_some() {
                let items = &mut self.mover.batches[i].items;
                items.iter_mut().filter(|i| i.chunk == chunk).for_each(|i| i.have = i.have.minus(blocks));
            }
        }
    }

    /// Chunks whose I/O failed leave the batch; nothing names their new slot.
    pub(super) fn drop_failed(&mut self, batch: u32) {
        let items = std::mem::take(&mut self.mover.batches[batch].items);
        let (failed, good): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|i| i.failed);
        self.mover.batches[batch].items = good;
        let frees_zone = self.mover.frees_zone(batch);
        let b = &self.mover.batches[batch];
        let is_bad = b.io_failed.is_some() || b.damaged;
        for item in failed {
            if is_bad && !frees_zone && !planted(Bug::FailedMoveAgain) {
                self.placement.avoided.avoid(item.chunk, self.io.now);
            }
            if frees_zone && item.to == Destination::Tier(FAST) {
                // Next time what landed is merged, which needs nothing else of the chunk: it must not hold the zone.
                self.placement.policy.cool(item.chunk);
            }
            self.let_go(item, false);
        }
    }

    /// The chunk leaves the batch, moved or not.
    fn let_go(&mut self, item: Item, moved: bool) {
        item.landed.iter().for_each(|(_, z)| self.unpin_landed(*z));
        if item.spare {
            self.mover.spare = item.buf;
        } else if let Some(buf) = item.buf {
            self.io.arena.free(buf);
        }
        self.state.map.set_moving(item.chunk, false);
        self.decided(item.chunk, item.from, item.home, moved);
        if let Some(home) = item.home.filter(|h| !moved && item.from != Some(*h)) {
            let after = self.all_said();
            self.free_slot(home, after, false);
        }
        self.drop_empty_home(item.chunk);
        self.wanted.wake = true;
    }

    pub(super) fn end_batch(&mut self, batch: u32, ok: bool) {
        let records: Vec<Option<HomeRecord>> =
            (0..self.mover.batches[batch].items.len() as u32).map(|i| self.batch_home(batch, i)).collect();
        let b = self.mover.batches.remove(batch);
        let (mut moved_any, mut copied_any, mut placed, mut room_halves) = (false, false, 0, 0);
        let (merged, pushed) = (self.told.stats.destaged, self.told.stats.demoted);
        for (item, record) in b.items.into_iter().zip(records) {
            let moved = match record.filter(|_| ok) {
                Some(record) => {
                    let old = self.show(&record, b.last, self.log.proof());
                    self.end_sums_of_what_changed(&item);
                    self.leave_home(&item, old, b.last);
                    self.begin_trial(&item);
                    placed += u64::from(!b.frees_zone && !item.copy.is_empty());
                    room_halves += u64::from(item.room_halves);
                    copied_any |= item.copies_or_ends();
                    self.count_move(&item);
                    true
                }
                None => false,
            };
            moved_any |= moved;
            self.let_go(item, moved);
        }
        if moved_any && (copied_any || !self.log_is_starved()) {
            self.mover.barren = None;
        } else if moved_any || b.lacks_room && b.io_failed.is_none() {
            // What is left of lost blocks was said again, or there was no room for it, and clients wait all the same: that may
            // go on for ever.
            self.count_as_barren(None);
        } else if b.io_failed.is_some() || b.frees_zone && self.is_full_alone() {
            self.count_as_barren(b.io_failed);
        }
        let took = self.io.now.since(b.started);
        let failed = b.io_failed.is_some();
        if b.frees_zone {
            let (merged, pushed) = (self.told.stats.destaged - merged, self.told.stats.demoted - pushed);
            let (idle, blocks) = (self.is_idle(), u64::from(self.state.geo.blocks_per_chunk()));
            let took = self.mover.planner.freeing_took_ns(b.started, self.io.now);
            let economy = &self.tuning.economy;
            let freed = (merged, room_halves / 2, pushed * blocks);
            self.mover.planner.borrowing.learn(took, freed, idle, economy);
            self.placement.kept.merging.another(took, 0, economy.cost_memory_ns);
        }
        let worked = self.io.tokens.background_ns(SLOW) - b.worked_ns;
        if placed > 0 {
            self.placement.benefit.moved(placed, worked);
        }
        let ended = Ended { took_ns: took, worked_ns: worked, moved: moved_any, failed, damaged: b.damaged };
        self.batch_ended(b.frees_zone, ended);
        self.release_slots();
    }

    /// Whether what landed has no place to go to, as the slow device is missing.
    fn is_full_alone(&self) -> bool {
        self.lacks_slow() && self.space.pending.len() == 0
    }

    pub(crate) fn count_as_barren(&mut self, error: Option<DeviceError>) {
        let now = self.io.now;
        let first =
            Barren { since: now, last: now, landed_blocks: self.log.landed_blocks, error, told: false };
        let barren = self.mover.barren.get_or_insert(first);
        (barren.last, barren.error) = (now, error);
    }

    /// Whether a chunk that was hot enough to rise repays that is seen from here on.
    fn begin_trial(&mut self, item: &Item) {
        let rose = item.from.is_some_and(|home| home.tier == SLOW);
        if let Some(home) = item.home.filter(|home| rose && home.tier == FAST)
            && self.state.map.home(item.chunk) == Some(home)
            && self.placement.pins.list().tier_of(item.chunk).is_none()
            && self.placement.policy.heat(item.chunk, self.io.now) >= self.tuning.promote_touches
        {
            self.placement.benefit.rose(home.slot);
        }
    }

    /// What becomes of the home that a move has emptied.
    fn leave_home(&mut self, item: &Item, old: Option<Home>, after: Seq) {
        let Some(old) = old else { return };
        let stays = item.whole && item.home.is_some() && self.state.map.home(item.chunk) == item.home;
        if stays
            && old.tier == FAST
            && !self.space.slots[FAST].is_closing(old.slot)
            && item.home.is_some_and(|home| home.tier == SLOW)
            && !self.mover.copies.are_asked_for(self.io.now)
            && !(self.is_idle() && self.space.slots[FAST].unused() <= self.spare_slots())
        {
            self.keep_copy(item.chunk, old.slot);
        } else if !(stays && item.home.is_some_and(|home| self.keep_shadow(item.chunk, home, old))) {
            self.free_slot(old, after, false);
        }
    }

    fn count_move(&mut self, item: &Item) {
        let tier = |h: Option<Home>| h.map(|h| h.tier);
        match (tier(item.from), tier(item.home)) {
            (Some(SLOW), Some(FAST)) => {
                self.told.stats.promoted += 1;
                self.told.stats.last_promotion = Some(self.io.now);
            }
            (Some(FAST), Some(SLOW)) => {
                self.told.stats.demoted += 1;
                self.space.shadows.used += u64::from(item.copy.is_empty());
            }
            _ => self.told.stats.destaged += u64::from(item.merged),
        }
    }
}
