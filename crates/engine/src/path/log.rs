//! The log at work: jobs wait, groups form, segments follow each other.
//!
//! While groups are in flight new jobs gather; that is the group commit. Groups are applied in
//! order, whatever order the device completes them in.

use crate::api::action::{BufList, Class, DeviceError, RequestError};
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::place::Place;
use crate::engine::Engine;
use crate::format::log::{self as wire, GroupHeader, Index, SegmentHeader};
use crate::io::flush::Durable;
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use crate::path::claim::Claims;
use crate::path::draft::{Draft, GROUP_HEADER_BLOCKS};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Who appends home records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Homes {
    /// The commit.
    Commit,
    /// A batch of moves.
    Batch(u32),
}

/// Something to append.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Blocks of a landing piece.
    Land {
        /// The piece.
        piece: u32,
        /// First block in the piece.
        from: u32,
        /// Blocks.
        count: u32,
    },
    /// A discarding piece.
    Discard {
        /// The piece.
        piece: u32,
    },
    /// Home records `from..to` of a list that the owner keeps.
    Homes {
        /// Whose.
        of: Homes,
        /// First.
        from: u32,
        /// One past the last.
        to: u32,
    },
    /// A landed block that cannot be read any more: said again at the head of the log, so that the tail can go on.
    Bad {
        /// The block.
        block: Block,
        /// Where its unreadable copy is.
        was: LogPos,
    },
    /// What is left of a block whose other sectors are lost: said again at the head of the log, with its data.
    Remnant {
        /// The batch that has read it.
        batch: u32,
        /// Of which item.
        item: u32,
        /// Which of the item's.
        nth: u32,
        /// The block.
        block: Block,
        /// Where its newest copy is.
        was: LogPos,
    },
    /// What items `from..to` of a batch are about to overwrite, of which only parts landed.
    Merging {
        /// The batch.
        batch: u32,
        /// First.
        from: u32,
        /// One past the last.
        to: u32,
    },
    /// A block that was found good elsewhere, when its newest copy was bad.
    Mend,
    /// Says that what is durable is, where nothing else is to be said.
    Claim,
    /// Stands behind jobs that are appended again after a failure: slots that they free wait for it.
    Fence,
}

/// A job, or part of one, in a group.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub(crate) job: Job,
    /// First payload block behind the group's header.
    pub(crate) payload: u32,
    /// It is the second part in that block.
    pub(crate) second: bool,
}

#[derive(Serialize, Deserialize)]
struct Group {
    seq: Seq,
    place: Place,
    offset: u32,
    blocks: u32,
    header: Buf,
    header_blocks: u32,
    /// It wrote the segment's header too.
    begins: bool,
    parts: SmallVec<[Part; 4]>,
    /// Payload buffers of the engine's own.
    own: SmallVec<[Buf; 1]>,
    done: Option<Result<(), DeviceError>>,
    /// Length of the segment's index before this group.
    index_mark: usize,
    /// The groups that it says are durable.
    claims: Seq,
}

/// Where the log ends.
#[derive(Clone, Copy, Debug)]
pub struct LogEnd {
    /// Its last segment.
    pub place: Place,
    /// The next free block there; the segment's length when it is full.
    pub cursor: u32,
    /// The last good group.
    pub last: Seq,
    /// Groups up to here are known to have been durable by what the device says.
    pub claimed: Seq,
}

/// The log's head.
#[derive(Serialize, Deserialize)]
pub struct Log {
    /// Jobs of commits and moves: they use the reserve, because freeing needs a record.
    pub internal: VecDeque<Job>,
    /// Jobs of clients: admitted while there is space beside the reserve.
    pub client: VecDeque<Job>,
    groups: VecDeque<Group>,
    pub(crate) place: Place,
    pub(crate) cursor: u32,
    next: Seq,
    /// Every group up to here is complete and applied.
    pub applied: Seq,
    /// Where the last applied group ends: whatever has landed lies before it.
    pub applied_end: LogPos,
    /// Every group up to here is durable.
    durable: Durable,
    to_seal: VecDeque<Place>,
    pub(crate) claims: Claims,
    /// Blocks of clients that have landed since the volume was opened.
    pub landed_blocks: u64,
    /// Records of lost blocks that wait or are in flight.
    pub losses: u32,
    /// Indexes being written.
    pub sealing: u32,
    failures: u32,
    failing_since: Option<Nanos>,
    /// What the device said when an append last failed.
    error: Option<DeviceError>,
    retry_at: Option<Nanos>,
    attempt: u32,
    retry_after: bool,
    /// The fence waits: what was in groups that failed is not all in others yet.
    pub(crate) is_fenced: bool,
    /// Indexes that are being written, with their memory.
    index_bufs: Vec<(Place, Buf)>,
}

/// Appends that fail in a row and are tried again at once.
const MAX_FAILURES: u32 = 3;
/// After that, an append is tried this often, ns.
const RETRY_NS: u64 = 100 * Nanos::MS;
/// A device whose log cannot be written for this long is not having a bad moment: the volume goes
/// read-only, so that whoever waits for a flush gets an answer.
const PATIENCE_NS: u64 = 30 * Nanos::SECOND;
/// Indexes that wait to be written; older ones are dropped, and opening walks those segments' groups.
const MAX_TO_SEAL: usize = 4;

impl Log {
    /// A log whose last good group is `last`, ending at block `cursor` of the chain's last segment.
    pub fn new(end: &LogEnd, at: LogPos, now: Nanos) -> Log {
        let LogEnd { place, cursor, last, claimed } = *end;
        Log {
            internal: VecDeque::new(),
            client: VecDeque::new(),
            groups: VecDeque::new(),
            place,
            cursor,
            next: Seq(last.0 + 1),
            applied: last,
            applied_end: at,
            durable: Durable::found(last),
            claims: Claims::opened(last, claimed, now),
            to_seal: VecDeque::new(),
            landed_blocks: 0,
            losses: 0,
            sealing: 0,
            failures: 0,
            failing_since: None,
            error: None,
            retry_at: None,
            attempt: 0,
            retry_after: false,
            is_fenced: false,
            index_bufs: Vec::new(),
        }
    }

    /// Every group up to here is durable.
    pub fn durable(&self) -> Seq {
        self.durable.upto()
    }

    /// The proof of that.
    pub fn proof(&self) -> Durable {
        self.durable
    }

    /// A flush has made more of it durable.
    pub fn is_durable(&mut self, durable: Durable) {
        self.durable = durable;
    }

    /// The last group that was begun.
    pub fn appended(&self) -> Seq {
        Seq(self.next.0 - 1)
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.internal.is_empty() && self.client.is_empty() && self.groups.is_empty()
    }

    /// What is in groups that are not applied yet.
    pub(crate) fn parts_in_flight(&self) -> impl Iterator<Item = &Part> {
        self.groups.iter().flat_map(|group| &group.parts)
    }

    /// When a failing append is to be tried again.
    pub fn deadline(&self) -> Option<Nanos> {
        self.retry_at
    }

    /// The segment being written; none while the newest one has not been written to.
    pub fn current(&self) -> Option<Place> {
        (self.cursor > 0).then_some(self.place)
    }
}

impl<A: Arena> Engine<A> {
    /// Says at the head of the log that the newest copy of a landed block is lost.
    pub(crate) fn record_loss(&mut self, block: Block, z: crate::volume::landed::ZoneBlock) {
        self.log.losses += 1;
        let was = self.state.zone.pos_of(z);
        self.log.internal.push_back(Job::Bad { block, was });
    }

    /// Forms groups while jobs wait and the device has room for more.
    pub(crate) fn pump_log(&mut self) {
        self.settle_failure();
        self.pump_claim();
        if self.life.is_read_only() && !(self.log.internal.is_empty() && self.log.client.is_empty()) {
            // What came since the volume failed, such as a loss that a move has found, or a shutdown would wait for it.
            self.fail_log_jobs();
        }
        if self.log.retry_at.is_some_and(|at| at > self.io.now) {
            return;
        }
        self.log.retry_at = None;
        while self.log.groups.len() < self.groups_in_flight()
            && !self.log.retry_after
            && self.has_admissible_job()
            && self.form_group()
        {}
        self.pump_seals();
    }

    /// Groups in flight at most. Where clients wait for room, one large one makes more of it than several small ones:
    /// each has a block of its own.
    fn groups_in_flight(&self) -> usize {
        if self.zone_runs_short() { 1 } else { self.tuning.groups_in_flight }
    }

    fn has_admissible_job(&self) -> bool {
        !self.life.is_read_only()
            && (self.log.internal.iter().any(|job| self.may_append(job))
                || !self.log.client.is_empty() && self.clients_may_land(0))
    }

    fn form_group(&mut self) -> bool {
        let mut draft = Draft::default();
        let Some(header) = self.io.arena.alloc(Pool::Log, (GROUP_HEADER_BLOCKS + 1) * BLOCK_BYTES) else {
            return false;
        };
        // Whatever the records say must hold from here on, so the group takes its number first.
        self.log.next.0 += 1;
        self.fill_draft(&mut draft);
        if draft.parts.is_empty() && draft.full && self.advance_segment() {
            self.fill_draft(&mut draft);
        }
        if draft.parts.is_empty() {
            self.log.next.0 -= 1;
            self.io.arena.free(header);
            return false;
        }
        self.submit_group(draft, header);
        true
    }

    fn fill_draft(&mut self, draft: &mut Draft) {
        let mut waiting = Vec::new();
        // What stands before a fence was in a group that failed, and was admitted then. Should it wait for room again, the fence
        // would, the checkpoint behind that, and so the room.
        let fence = self.log.internal.iter().position(|job| matches!(job, Job::Fence));
        let mut admitted = fence.unwrap_or(0);
        while let Some(job) = self.log.internal.pop_front() {
            let may = admitted > 0 || self.may_append(&job);
            admitted = admitted.saturating_sub(1);
            // A fence stands for everything before it.
            if !may || matches!(job, Job::Fence) && !waiting.is_empty() {
                waiting.push(job);
            } else if let Some(rest) = self.draft_job(draft, job) {
                self.log.internal.push_front(rest);
                break;
            }
        }
        waiting.into_iter().rev().for_each(|job| self.log.internal.push_front(job));
        while self.clients_may_land(draft.payload_blocks) {
            let Some(job) = self.log.client.pop_front() else { break };
            if let Some(rest) = self.draft_job(draft, job) {
                self.log.client.push_front(rest);
                break;
            }
        }
    }

    /// Begins the successor of the current segment. False when no segment can be named as the next one.
    fn advance_segment(&mut self) -> bool {
        if !self.log.groups.iter().all(|g| g.place == self.log.place) {
            // One segment at a time is being left.
            return false;
        }
        if self.log.cursor == 0 {
            // Nothing was written to it yet: leaving it would break the chain on the device.
            return false;
        }
        let gives_back = self.zone_gives_back();
        let Some(next) = self.state.zone.take_free(gives_back) else { return false };
        let old = self.log.place;
        let successor = self.state.zone.get(old).successor;
        let ordinal = self.state.zone.get(old).ordinal + 1;
        let first = self.log.appended();
        let segment = self.state.zone.get_mut(successor);
        assert!(segment.live == 0 && segment.pins == 0, "a segment that begins is empty");
        (segment.ordinal, segment.first, segment.last) = (ordinal, first, Seq(first.0 - 1));
        (segment.successor, segment.index) = (next, Some(Index::default()));
        self.state.zone.begin(successor);
        self.log.to_seal.push_back(old);
        if self.log.to_seal.len() > MAX_TO_SEAL
            && let Some(dropped) = self.log.to_seal.pop_front()
        {
            self.state.zone.get_mut(dropped).index = None;
        }
        (self.log.place, self.log.cursor) = (successor, 0);
        true
    }

    fn submit_group(&mut self, draft: Draft, header: Buf) {
        let seq = self.log.appended();
        let place = self.log.place;
        let segment = self.state.zone.get(place);
        let begins = self.log.cursor == 0;
        let offset = self.log.cursor.max(1);
        let header_blocks = wire::group_header_blocks(draft.records.len());
        let group = GroupHeader {
            ordinal: segment.ordinal,
            epoch: self.life.superblock.generation,
            attempt: self.log.attempt,
            seq,
            durable: self.claim(),
            checkpoint: self.checkpoint.number,
            offset,
            payload_blocks: draft.payload_blocks,
            successor: Some(self.state.zone.area(segment.successor)),
        };
        let durable = group.durable;
        let segment_header = SegmentHeader {
            area: self.state.zone.area(place),
            ordinal: segment.ordinal,
            epoch: group.epoch,
            first: segment.first,
            durable: self.log.durable(),
            successor: self.state.zone.area(segment.successor),
            checkpoint: self.checkpoint.number,
        };
        let index_mark = segment.index.as_ref().map_or(0, |i| i.entries.len());
        if let Some(index) = &mut self.state.zone.get_mut(place).index {
            index.add(seq, group.epoch, offset, header_blocks, &draft.records);
        }
        let volume = &self.life.superblock.volume;
        let bytes = self.io.arena.bytes_mut(header);
        let (first, rest) = bytes.split_at_mut(BLOCK_BYTES as usize);
        segment_header.encode(first, volume);
        group.encode(&mut rest[..(header_blocks * BLOCK_BYTES) as usize], volume, &draft.records);
        for (i, held) in draft.held.iter().enumerate() {
            let z = self.state.zone.zone_block(place, offset + header_blocks + i as u32);
            self.state.landed.note(z, held.sum, held.sectors);
            if let Some(sectors) = held.second {
                self.state.landed.note_second(z, sectors);
            }
        }
        let front = if begins { 0 } else { 1 };
        let mut bufs = BufList::new();
        bufs.push(header.slice(front * BLOCK_BYTES, (1 + header_blocks - front) * BLOCK_BYTES));
        bufs.extend_from_slice(&draft.payload);
        let at = self.state.zone.offset(place, offset - (1 - front));
        let blocks = header_blocks + draft.payload_blocks;
        assert!(offset + blocks < self.state.geo.area_blocks(), "a group stays within its segment");
        self.told.stats.log_bytes += u64::from(blocks + 1 - front) * u64::from(BLOCK_BYTES);
        self.told.stats.log_payload += u64::from(draft.payload_blocks) * u64::from(BLOCK_BYTES);
        self.log.cursor = offset + blocks;
        let (parts, own) = (draft.parts, draft.own);
        self.log.groups.push_back(Group {
            seq,
            place,
            offset,
            blocks,
            header,
            header_blocks,
            begins,
            parts,
            own,
            done: None,
            index_mark,
            claims: durable,
        });
        let command = Command { device: FAST, offset: at, owner: Owner::Group(seq), class: Class::Log };
        self.io.write_all(command, bufs, false);
    }

    pub(crate) fn group_done(&mut self, seq: Seq, result: Result<(), DeviceError>) {
        let group =
            self.log.groups.iter_mut().find(|g| g.seq == seq).expect("a completed group is in flight");
        group.done = Some(result);
        self.log.error = result.err().or(self.log.error);
        self.io.flushers[FAST].dirty = true;
        while self.log.groups.front().is_some_and(|g| g.done == Some(Ok(()))) {
            let group = self.log.groups.pop_front().expect("the front was just seen");
            self.apply_group(group);
        }
        self.log.retry_after = self.log.groups.front().is_some_and(|g| matches!(g.done, Some(Err(_))));
    }

    /// A group is complete, and all before it: what it says holds.
    fn apply_group(&mut self, group: Group) {
        if std::mem::take(&mut self.log.failures) >= MAX_FAILURES {
            self.told.event(
                Level::Info,
                format!("{}: the log can be written again", self.told.names[FAST]),
                None,
            );
        }
        (self.log.failing_since, self.log.error) = (None, None);
        self.log.applied = group.seq;
        self.log.claims.written(group.claims);
        if group.parts.iter().any(|part| !matches!(part.job, Job::Claim)) {
            self.log.claims.has_content(group.seq);
        }
        self.log.applied_end = self.state.zone.pos(group.place, group.offset + group.blocks);
        self.state.zone.get_mut(group.place).last = group.seq;
        self.free_group_buffers(&group);
        let payload = group.offset + group.header_blocks;
        for part in group.parts {
            match part.job {
                Job::Land { piece, from, count } => {
                    let p = &self.front.pieces[piece];
                    let block = self.state.map.join(p.chunk, p.first + from);
                    for i in 0..count {
                        let z = self.state.zone.zone_block(group.place, payload + part.payload + i);
                        let z = if part.second { z.second() } else { z };
                        self.state.land(Block(block.0 + u64::from(i)), z, false);
                    }
                    self.landed_part(piece, count);
                }
                Job::Discard { piece } => self.finish_piece(piece, Ok(())),
                Job::Homes { of, from, to } => self.homes_applied(of, to - from),
                Job::Claim => self.claim_applied(),
                Job::Fence => {}
                Job::Bad { block, was } => {
                    let z = self.state.zone.zone_block(group.place, payload + part.payload);
                    self.state.lose(block, was, z);
                    self.log.losses -= 1;
                }
                Job::Remnant { block, was, .. } => {
                    let z = self.state.zone.zone_block(group.place, payload + part.payload);
                    self.state.land_remnant(block, was, z);
                }
                Job::Merging { batch, from, to } => self.merging_recorded(batch, to - from, true),
                Job::Mend => {
                    self.mend_applied(self.state.zone.zone_block(group.place, payload + part.payload));
                }
            }
        }
        self.state.sums.ended_by(group.seq);
    }

    /// After a failed append: the segment ends at its last good group, and the jobs of the failed
    /// groups are appended again in its successor, whose header says where the segment ended.
    fn settle_failure(&mut self) {
        if !self.log.retry_after || self.log.groups.iter().any(|g| g.done.is_none()) {
            return;
        }
        self.log.retry_after = false;
        self.log.failures += 1;
        self.log.attempt += 1;
        let first = self.log.groups.front().expect("a failed group is in flight");
        let (place, seq, mark) = (first.place, first.seq, first.index_mark);
        let (began, failed_at) = (first.begins, first.offset);
        // What was admitted once does not wait for admission again: freeing space may wait for it.
        // One fence stands for all: whatever was fenced before is still in front of it.
        if !self.log.is_fenced {
            self.log.internal.push_front(Job::Fence);
        }
        self.raise_fence(seq);
        while let Some(group) = self.log.groups.pop_back() {
            self.free_group_buffers(&group);
            let again = group.parts.into_iter().rev().map(|p| p.job).filter(|j| !matches!(j, Job::Fence));
            again.for_each(|job| self.log.internal.push_front(job));
        }
        self.log.next = seq;
        let since = *self.log.failing_since.get_or_insert(self.io.now);
        if self.log.failures >= MAX_FAILURES && !self.life.is_read_only() {
            let (name, error) = (self.told.names[FAST].clone(), self.log.error);
            if self.io.now.since(since) >= PATIENCE_NS || self.life.shutdown.began() {
                let what = "the log cannot be written: the volume is read-only until it is opened again";
                return self.fail_volume(format!("{name}: {what}"), error);
            }
            if self.log.failures == MAX_FAILURES {
                self.told.event(
                    Level::Warning,
                    format!("{name}: the log cannot be written; what goes through it waits"),
                    error,
                );
            }
            // Nobody gets an error yet: a group that failed may be on the device all the same, and would
            // be replayed over what a client wrote after the error.
            self.log.retry_at = Some(self.io.now.after(RETRY_NS));
        }
        if self.life.is_read_only() {
            return self.fail_log_jobs();
        }
        while self.state.zone.chain().back() != Some(&place) {
            self.unbegin_segment();
        }
        if let Some(index) = &mut self.state.zone.get_mut(place).index {
            index.entries.truncate(mark);
            index.last = Seq(seq.0 - 1);
        }
        (self.log.place, self.log.cursor) = (place, 0);
        if !began {
            // A full segment has no room, which makes the next group begin the successor. Where there
            // is none to be had, it is tried again where it failed.
            let last = self.state.zone.free_segments() == 0;
            self.log.cursor = if last { failed_at } else { self.state.geo.area_blocks() };
        }
    }

    /// Takes back the beginning of a segment of which nothing was applied.
    fn unbegin_segment(&mut self) {
        self.state.zone.unbegin();
        self.log.to_seal.pop_back();
    }

    /// Jobs that will never be appended fail: the volume is read-only.
    pub(crate) fn fail_log_jobs(&mut self) {
        let (internal, error) =
            (std::mem::take(&mut self.log.internal), self.life.failed_with(RequestError::ReadOnly));
        self.fail_jobs(internal, error);
        self.fail_client_jobs(error);
    }

    /// Clients' jobs fail: there is no space for them, and none will come.
    pub(crate) fn fail_client_jobs(&mut self, error: RequestError) {
        let client = std::mem::take(&mut self.log.client);
        self.fail_jobs(client, error);
    }

    fn fail_jobs(&mut self, jobs: VecDeque<Job>, error: RequestError) {
        for job in jobs {
            match job {
                Job::Land { piece, count, .. } => self.fail_landing(piece, count, error),
                Job::Discard { piece } => self.finish_piece(piece, Err(error)),
                Job::Homes { of, from, to } => self.homes_failed(of, to - from),
                Job::Merging { batch, from, to } => self.merging_recorded(batch, to - from, false),
                Job::Claim => self.claim_failed(),
                Job::Bad { .. } => self.log.losses -= 1,
                Job::Mend => self.end_mend(false),
                Job::Remnant { .. } | Job::Fence => {}
            }
        }
    }

    /// Parts of the piece may still be in a group in flight: it ends with the last of them.
    fn fail_landing(&mut self, piece: u32, count: u32, error: RequestError) {
        let p = &mut self.front.pieces[piece];
        p.left -= count;
        if p.left == 0 {
            self.finish_piece(piece, Err(error));
        } else {
            p.failed = Some(error);
        }
    }

    /// Writes the indexes of sealed segments whose groups are all durable.
    fn pump_seals(&mut self) {
        while let Some(place) = self.log.to_seal.front().copied() {
            let segment = self.state.zone.get(place);
            let ordinal = segment.ordinal;
            let Some(index) = segment.index.as_ref().filter(|i| !i.entries.is_empty()) else {
                self.log.to_seal.pop_front();
                continue;
            };
            if index.last > self.log.durable() || self.life.is_read_only() {
                return;
            }
            let blocks = Index::blocks(index.entries.len());
            let Some(buf) = self.io.arena.alloc(Pool::Log, blocks * BLOCK_BYTES) else { return };
            self.log.to_seal.pop_front();
            index.encode(self.io.arena.bytes_mut(buf), &self.life.superblock.volume, ordinal);
            let offset = self.state.zone.offset(place, self.state.geo.area_blocks() - blocks);
            // The segment must not be reused under the write.
            let segment = self.state.zone.get_mut(place);
            (segment.index, segment.pins) = (None, segment.pins + 1);
            self.log.index_bufs.push((place, buf));
            self.log.sealing += 1;
            self.write_metadata(Owner::Index(place), offset, buf);
        }
    }

    /// An index was written, or not: then opening walks the segment's groups.
    pub(crate) fn index_done(&mut self, place: Place) {
        self.io.flushers[FAST].dirty = true;
        self.log.sealing -= 1;
        let at = self
            .log
            .index_bufs
            .iter()
            .position(|(p, _)| *p == place)
            .expect("an index being written has its buffer");
        let (_, buf) = self.log.index_bufs.swap_remove(at);
        self.io.arena.free(buf);
        self.state.zone.get_mut(place).pins -= 1;
        self.state.zone.recycle();
    }

    fn free_group_buffers(&mut self, group: &Group) {
        self.io.arena.free(group.header);
        for buf in &group.own {
            self.io.arena.free(*buf);
            self.wanted.wake |= !self.front.blocked.is_empty();
        }
    }

    pub(crate) fn group_coverage(&self, seq: Seq) -> Option<Stage> {
        let group = self.log.groups.iter().find(|g| g.seq == seq)?;
        Some(match group.parts.first()?.job {
            Job::Land { .. } => Stage::WriteLand,
            Job::Discard { .. } => Stage::Discard,
            Job::Homes { of: Homes::Commit, .. } => Stage::CommitAppend,
            Job::Homes { of: Homes::Batch(_), .. } => Stage::MoveAppend,
            Job::Merging { .. } => Stage::MoveIntend,
            Job::Claim => Stage::LogClaim,
            Job::Mend => Stage::MendLand,
            Job::Bad { .. } | Job::Remnant { .. } | Job::Fence => Stage::MoveAppend,
        })
    }
}
