//! The commit: what a FLUSH asks for.
//!
//! Flush the devices that hold written but unshown data (if there is any), record it, flush the
//! fast device. Without such data one flush of the fast device is all there is.

use crate::api::action::RequestError;
use crate::api::coverage::Stage;
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::engine::Engine;
use crate::format::log::{HomeRecord, Record};
use crate::io::flush::{Awaited, DataFlushed, Waiter};
use crate::path::log::{Homes, Job};
use crate::path::marks::MarkNeed;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
enum CommitStage {
    #[default]
    Idle,
    FlushData,
    Append,
    FlushLog,
    AwaitMarks,
}

/// The commit that is running, and who waits.
#[derive(Default, Serialize, Deserialize)]
pub struct Commit {
    stage: CommitStage,
    /// Requests that this commit answers.
    waiters: Vec<u32>,
    /// Requests for the next one.
    next: Vec<u32>,
    /// Chunks whose blocks this commit shows.
    chunks: Vec<Chunk>,
    awaited: Awaited,
    /// What the slow device has to say before whoever waits is answered.
    marks: MarkNeed,
    /// What it shows has been flushed.
    data: Option<DataFlushed>,
    records_left: u32,
    failed: bool,
    /// First group with records of this commit that the map does not know yet.
    first: Option<Seq>,
    last: Seq,
    /// Discards of unshown blocks are in groups up to here.
    pub(crate) discards_upto: Seq,
    /// Client writes since the last flush, and their running mean between flushes (times eight).
    writes: u32,
    mean_writes_x8: u32,
}

impl Commit {
    /// Whether a commit is running or wanted by a client.
    pub fn is_busy(&self) -> bool {
        self.stage != CommitStage::Idle || !self.next.is_empty()
    }

    /// The first group whose records the map does not hold yet.
    pub fn unapplied(&self) -> Option<Seq> {
        self.first
    }

    /// Its stage, for coverage.
    pub fn coverage(&self) -> Option<Stage> {
        match self.stage {
            CommitStage::Idle => None,
            CommitStage::FlushData => Some(Stage::CommitFlushData),
            CommitStage::Append => Some(Stage::CommitAppend),
            CommitStage::FlushLog => Some(Stage::CommitFlushLog),
            CommitStage::AwaitMarks => Some(Stage::CommitAwaitMarks),
        }
    }

    /// A client write was admitted.
    pub fn count_write(&mut self) {
        self.writes = self.writes.saturating_add(1);
    }

    /// Whether clients flush after every few writes.
    /// Fewer than so many are few: the second device flush that showing costs is then dearer than writing the block twice.
    pub fn flushes_are_frequent(&self, few: u32) -> bool {
        self.mean_writes_x8 > 0 && self.mean_writes_x8 < 8 * few && self.writes < 4 * few
    }

    fn count_flush(&mut self) {
        let writes = self.writes.clamp(1, 1 << 20);
        self.mean_writes_x8 = if self.mean_writes_x8 == 0 {
            writes * 8
        } else {
            self.mean_writes_x8 - self.mean_writes_x8 / 8 + writes
        };
        self.writes = 0;
    }
}

impl<A: Arena> Engine<A> {
    /// The request is answered when everything answered before it is durable.
    pub(crate) fn join_commit(&mut self, request: u32) {
        self.commit.next.push(request);
        self.commit.count_flush();
    }

    pub(crate) fn pump_commit(&mut self) {
        self.state.sums.regions.wait_for_opening(self.io.now, false);
        if self.commit.stage == CommitStage::Append && self.commit.records_left == 0 {
            self.flush_commit_log();
        }
        if self.commit.stage == CommitStage::AwaitMarks {
            self.end_commit_once_marked();
        }
        if self.commit.stage != CommitStage::Idle {
            return;
        }
        if self.life.is_read_only() {
            let error = self.life.failed_with(RequestError::ReadOnly);
            for request in std::mem::take(&mut self.commit.next) {
                self.answer(request, Err(error));
            }
            self.wanted.commit = false;
            return;
        }
        if self.commit.next.is_empty() && !std::mem::take(&mut self.wanted.commit) {
            return;
        }
        self.wanted.commit = false;
        self.start_commit();
    }

    fn start_commit(&mut self) {
        let mut early = Vec::new();
        self.commit.waiters = std::mem::take(&mut self.commit.next);
        if planted(Bug::FlushAnsweredEarly) {
            early = std::mem::take(&mut self.commit.waiters);
        }
        self.commit.failed = false;
        self.commit.marks = self.mark_need();
        self.commit.chunks = std::mem::take(&mut self.space.pending.dirty);
        self.space.pending.since = None;
        let mut tiers = [false; 2];
        for chunk in &self.commit.chunks {
            let entry = self.space.pending.get_mut(*chunk).expect("a dirty chunk is pending");
            entry.flushing = entry.flushing.or(std::mem::take(&mut entry.written));
            tiers[usize::from(entry.home.tier.0)] = true;
        }
        if planted(Bug::RecordBeforeData) {
            tiers = [false; 2];
        }
        self.commit.stage = CommitStage::FlushData;
        (self.commit.awaited, self.commit.data) = (Awaited::default(), None);
        self.commit.awaited.one_more();
        for tier in [SLOW, FAST] {
            if tiers[usize::from(tier.0)] {
                self.commit.awaited.one_more();
                self.request_flush(tier, Waiter::Commit);
            }
        }
        self.commit_flushed(true);
        for request in early {
            self.answer(request, Ok(()));
        }
    }

    pub(crate) fn commit_flushed(&mut self, ok: bool) {
        let Some(flushed) = self.commit.awaited.ended(ok) else { return };
        self.commit.failed |= flushed.is_err();
        match self.commit.stage {
            CommitStage::FlushData if self.commit.failed || self.life.is_read_only() => {
                self.end_commit(false)
            }
            CommitStage::FlushData if self.commit.chunks.is_empty() => self.flush_commit_log(),
            CommitStage::FlushData => {
                (self.commit.stage, self.commit.data) = (CommitStage::Append, flushed.ok());
                let to = self.commit.chunks.len() as u32;
                self.commit.records_left = to;
                self.log.internal.push_back(Job::Homes { of: Homes::Commit, from: 0, to });
            }
            CommitStage::FlushLog => {
                self.commit.stage = CommitStage::AwaitMarks;
                self.end_commit_once_marked();
            }
            CommitStage::Idle | CommitStage::Append | CommitStage::AwaitMarks => {
                unreachable!("no flush is awaited here")
            }
        }
    }

    /// The record that shows a chunk's flushed blocks; none when nothing of them is left.
    pub(crate) fn commit_record(&mut self, i: u32) -> Option<Record> {
        let record = self.commit_home(i)?;
        let proof = self.commit.data.expect("what a commit shows has been flushed");
        Some(self.shown_by(record, proof))
    }

    fn commit_home(&self, i: u32) -> Option<HomeRecord> {
        let chunk = self.commit.chunks[i as usize];
        let entry = self.space.pending.get(chunk)?;
        if entry.flushing.is_empty() {
            return None;
        }
        let home = entry.home;
        let same = self.state.map.home(chunk) == Some(home);
        let held = if same { self.state.map.valid(chunk) } else { BlockMask::EMPTY };
        let mut valid = held.or(entry.flushing);
        if planted(Bug::UnwrittenShown) {
            valid = BlockMask::range(0, self.state.geo.blocks_per_chunk());
        }
        let slow = home.tier == SLOW;
        let summed = if slow { entry.flushing } else { BlockMask::EMPTY };
        let sums = summed.iter().map(|b| entry.sums[b as usize]).collect();
        Some(HomeRecord { chunk, home: Some(home), ends: entry.ends, valid, summed, sums })
    }

    pub(crate) fn commit_recorded(&mut self, seq: Seq) {
        // After a failed append a record may come in an earlier group than before.
        self.commit.first = Some(self.commit.first.map_or(seq, |first| first.min(seq)));
        self.commit.last = seq;
    }

    pub(crate) fn commit_records_applied(&mut self, records: u32, ok: bool) {
        self.commit.records_left -= records;
        self.commit.failed |= !ok;
        if self.commit.records_left > 0 {
            return;
        }
        if self.commit.failed {
            self.end_commit(false);
        } else {
            self.flush_commit_log();
        }
    }

    /// The last flush, once every discard of blocks that this commit would have shown is complete:
    /// if neither were durable, a crash would bring back what was there before both.
    fn flush_commit_log(&mut self) {
        self.commit.stage = CommitStage::Append;
        if self.life.is_read_only() {
            return self.end_commit(false);
        }
        if self.log.applied < self.commit.discards_upto {
            return;
        }
        self.commit.stage = CommitStage::FlushLog;
        self.commit.awaited.one_more();
        self.request_flush(FAST, Waiter::Commit);
    }

    /// Whether all that this commit still waits for is a discard.
    pub(crate) fn commit_awaits_discard(&self) -> bool {
        let appended = self.commit.stage == CommitStage::Append && self.commit.records_left == 0;
        appended && self.log.applied < self.commit.discards_upto
    }

    /// Ends it if what it covers cannot be called good any more by the slow device alone, or nobody waits for that.
    fn end_commit_once_marked(&mut self) {
        if self.commit.failed || self.commit.waiters.is_empty() || self.has_marked(self.commit.marks) {
            self.end_commit(!self.commit.failed);
        } else if self.life.is_read_only() {
            self.end_commit(false);
        }
    }

    fn end_commit(&mut self, ok: bool) {
        let records: Vec<HomeRecord> = if ok {
            (0..self.commit.chunks.len() as u32).filter_map(|i| self.commit_home(i)).collect()
        } else {
            Vec::new()
        };
        for record in records {
            let (chunk, last) = (record.chunk, self.commit.last);
            if let Some(old) = self.show(&record, last, self.log.proof()) {
                self.free_slot(old, last, false);
            }
            let entry = self.space.pending.get_mut(chunk).expect("a shown chunk is pending");
            (entry.flushing, entry.ends) = (BlockMask::EMPTY, LogPos(0));
        }
        let chunks = std::mem::take(&mut self.commit.chunks);
        // The batch that frees the zone has its turn again: it may find what it could not take before.
        self.mover.planner.zone_is_held = false;
        if ok {
            chunks.iter().for_each(|chunk| self.forget_if_empty(*chunk));
        }
        (self.commit.first, self.commit.stage) = (None, CommitStage::Idle);
        let result = if ok { Ok(()) } else { Err(self.life.failed_with(RequestError::Io)) };
        for request in std::mem::take(&mut self.commit.waiters) {
            self.answer(request, result);
        }
        self.release_slots();
        self.wanted.wake = true;
    }

    /// When a commit comes by itself: unshown data, slots on their way to being free, and who would write in place do not wait for
    /// ever.
    pub(crate) fn commit_deadline(&self) -> Option<Nanos> {
        if self.commit.is_busy() || self.life.is_read_only() {
            return None;
        }
        self.commit_since().map(|since| since.after(self.tuning.commit_interval_ns))
    }

    fn commit_since(&self) -> Option<Nanos> {
        let leaving = (self.space.gate.leaving() > 0).then_some(self.space.gate.leaving_since).flatten();
        let opening = self.state.sums.regions.opening_since();
        [self.space.pending.since, leaving, opening].into_iter().flatten().min()
    }

    pub(crate) fn commit_timer(&mut self) {
        if self.commit_deadline().is_some_and(|deadline| deadline <= self.io.now) {
            self.space.gate.leaving_since = Some(self.io.now);
            self.state.sums.regions.wait_for_opening(self.io.now, true);
            self.wanted.commit = true;
        }
    }
}
