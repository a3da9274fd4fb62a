//! The gate: every "free", every "show" and every "reply" goes through this module.
//!
//! What may happen only after something is durable takes a proof that the flush has ended (`io/flush.rs`).

use crate::api::action::{Action, RequestError, RequestId};
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::format::log::{HomeRecord, Record};
use crate::io::flush::{DataFlushed, Durable};
use crate::io::tokens::Owner;
use crate::path::log::Homes;
use crate::volume::leaving::Leaving;
use bimetal_units::*;

/// No group yet: the slot waits for a fence in the log.
const FENCED: Seq = Seq(u64::MAX - 1);

/// Slots looked at in one call at most, so that calls stay short.
const RELEASES_PER_CALL: usize = 256;
/// Slots being given back to a device at a time: background work, which clients should not notice.
const MAX_TRIMS: u32 = 32;

impl<A: Arena> Engine<A> {
    /// A flush of the fast device has ended.
    pub(crate) fn log_is_durable(&mut self, durable: Durable) {
        if durable.upto() > self.log.durable() {
            self.log.is_durable(durable);
            self.log.claims.flushed(self.io.now);
            self.wanted.wake |= self.state.sums.durable(durable.upto());
        }
    }

    /// A record that makes blocks readable: only for data that has been flushed.
    pub(crate) fn shown_by(&self, record: HomeRecord, _proof: DataFlushed) -> Record {
        Record::Home(Box::new(record))
    }

    /// Frees a slot once group `after` is durable and no read of it is in flight.
    pub(crate) fn free_slot(&mut self, home: Home, after: Seq, trim: bool) {
        if self.space.gate.leaving() == 0 {
            self.space.gate.leaving_since = Some(self.io.now);
        }
        self.space.gate.push(Leaving { home, after, trim });
        self.wanted.wake = true;
    }

    /// All that was ever said to the log is in groups up to this one. Where some of it is to be appended again, the last
    /// group is one from before, and durable: then only the fence knows.
    pub(crate) fn all_said(&self) -> Seq {
        if self.log.is_fenced { FENCED } else { self.log.appended() }
    }

    /// Groups from `seq` on will be appended again under other numbers: what waits for them waits for the fence.
    pub(crate) fn raise_fence(&mut self, seq: Seq) {
        self.log.is_fenced = true;
        self.fences().filter(|after| **after >= seq).for_each(|after| *after = FENCED);
    }

    /// Everything before the fence is in groups up to `seq`.
    pub(crate) fn lift_fence(&mut self, seq: Seq) {
        let seq = if planted(Bug::FenceLiftedEarly) { Seq(0) } else { seq };
        self.log.is_fenced = false;
        self.fences().filter(|after| **after == FENCED).for_each(|after| *after = seq);
    }

    /// All that waits for groups by number.
    fn fences(&mut self) -> impl Iterator<Item = &mut Seq> {
        let leaving = self.space.gate.groups();
        let others = [&mut self.commit.discards_upto, &mut self.checkpoint.log_upto];
        leaving.chain(others).chain(self.state.sums.waits())
    }

    /// Frees what may be freed by now. A volume that failed gives nothing away: records that are durable
    /// may say more than it applied, and recovery will believe them.
    pub(crate) fn release_slots(&mut self) {
        if self.life.is_read_only() {
            return;
        }
        let early = planted(Bug::FreedBeforeDurable);
        let proof = if early { Durable::found(Seq(u64::MAX)) } else { self.log.proof() };
        let looked_at = self.space.gate.leaving().min(RELEASES_PER_CALL);
        let mut left = 0;
        for _ in 0..looked_at {
            let Some(leaving) = self.space.gate.pop() else { return };
            let Leaving { home, after, trim } = leaving;
            let slots = &mut self.space.slots[home.tier];
            // Where slots are wanted at once, their space below need not be given back first.
            let trim =
                trim && slots.free() > 0 && !slots.is_named(home.slot) && !self.life.is_missing(home.tier);
            let full = trim && self.space.gate.trims >= MAX_TRIMS;
            if !proof.covers(after) || slots.has_readers(home.slot) || full {
                self.space.gate.push(leaving);
                left += 1;
            } else if trim {
                self.trim_slot(home);
            } else {
                slots.release(home.slot, proof);
                self.wanted.wake = true;
            }
        }
        self.wanted.release = looked_at > left && self.space.gate.leaving() > 0;
    }

    fn trim_slot(&mut self, home: Home) {
        self.space.gate.trims += 1;
        let range = (self.state.geo.slot_at(home), u64::from(self.state.geo.chunk_bytes));
        self.io.discard(home.tier, range, false, Owner::Trim(home));
    }

    /// The device has given the slot's space back (or refused to, which is harmless).
    pub(crate) fn on_trimmed(&mut self, home: Home) {
        self.space.gate.trims -= 1;
        self.free_slot(home, Seq(0), false);
        self.wanted.release = true;
    }

    /// Applies a record to the map: readers see it from here on. Gives the home that it replaces, and nobody needs any
    /// more.
    pub(crate) fn show(&mut self, record: &HomeRecord, after: Seq, proof: Durable) -> Option<Home> {
        assert!(proof.covers(after), "a record is shown when it is durable");
        let chunk = record.chunk;
        let old = self.state.map.home(chunk);
        if !planted(Bug::CopyOutlivesHome) || record.home.is_none_or(|home| home.tier == FAST) {
            self.drop_copies(chunk);
        }
        self.leave_shadow(old.filter(|old| record.home != Some(*old)));
        old.filter(|old| record.home != Some(*old)).into_iter().for_each(|old| self.mark_left(chunk, old));
        self.end_trial(old.filter(|old| record.home != Some(*old)));
        self.state.set_home(record);
        if let Some(home) = record.home {
            self.space.slots[home.tier].set_owner(home.slot, Some(chunk));
            self.placement.pins.placed(chunk, home.tier);
        }
        self.drop_empty_home(chunk);
        old.filter(|old| record.home != Some(*old))
    }

    /// Takes the home from a chunk that holds nothing any more, unless something is under way with it.
    pub(crate) fn drop_empty_home(&mut self, chunk: Chunk) {
        if self.state.map.is_busy(chunk) {
            return;
        }
        if let Some(home) = self.state.drop_empty_home(chunk) {
            self.drop_copies(chunk);
            self.leave_shadow(Some(home));
            self.mark_left(chunk, home);
            self.end_trial(Some(home));
            // Whatever emptied it may be in a group that is not even complete.
            let after = self.all_said();
            self.free_slot(home, after, true);
        }
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, served: ServedBy) {
        self.life.stall.answered();
        self.io.answer(Action::Reply { id, result, served });
    }

    /// A home record for the log, made when it is appended: it must say what holds then.
    pub(crate) fn home_record(&mut self, of: Homes, i: u32) -> Option<Record> {
        match of {
            Homes::Commit => self.commit_record(i),
            Homes::Batch(batch) => self.batch_record(batch, i),
        }
    }

    /// A home record went into group `seq`.
    pub(crate) fn home_recorded(&mut self, of: Homes, seq: Seq) {
        match of {
            Homes::Commit => self.commit_recorded(seq),
            Homes::Batch(batch) => self.batch_recorded(batch, seq),
        }
    }

    /// Groups with this many of the owner's records are complete.
    pub(crate) fn homes_applied(&mut self, of: Homes, records: u32) {
        match of {
            Homes::Commit => self.commit_records_applied(records, true),
            Homes::Batch(batch) => self.batch_records_applied(batch, records, true),
        }
    }

    /// This many of the owner's records will never be appended.
    pub(crate) fn homes_failed(&mut self, of: Homes, records: u32) {
        match of {
            Homes::Commit => self.commit_records_applied(records, false),
            Homes::Batch(batch) => self.batch_records_applied(batch, records, false),
        }
    }
}
