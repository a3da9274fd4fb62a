//! A group being put together: how much of each waiting job goes into it.

use crate::action::{BufList, MAX_BUFS};
use crate::arena::{Arena, Buf, Pool};
use crate::engine::Engine;
use crate::format::log::{self as wire, Index, Record};
use crate::log::{Homes, Job, Part};
use crate::sectors::Sectors;
use crate::units::*;
use smallvec::SmallVec;

/// Payload blocks in a group at most.
const GROUP_PAYLOAD_BLOCKS: u32 = 128;
/// Header blocks in a group at most: records of a batch of moves.
pub const GROUP_HEADER_BLOCKS: u32 = 4;

/// A group being put together.
#[derive(Default)]
pub struct Draft {
    pub(crate) records: Vec<u8>,
    pub(crate) payload: BufList,
    pub(crate) payload_blocks: u32,
    pub(crate) parts: SmallVec<[Part; 4]>,
    /// Checksum and sectors of each block of the payload.
    pub(crate) sums: SmallVec<[(u32, Sectors); 32]>,
    pub(crate) own: SmallVec<[Buf; 1]>,
    /// A job was refused for want of space in the segment.
    pub(crate) full: bool,
}

impl<A: Arena> Engine<A> {
    /// Free blocks for a group with these records and payload, the segment's index allowed for.
    fn fits(&self, record_bytes: usize, payload_blocks: u32) -> bool {
        let index = self.state.zone.get(self.log.place).index.as_ref().map_or(0, |i| i.entries.len());
        let header = wire::group_header_blocks(record_bytes);
        let index = Index::blocks(index + wire::INDEX_ENTRY_BYTES + record_bytes);
        let cursor = self.log.cursor.max(1);
        header <= GROUP_HEADER_BLOCKS
            && cursor + header + payload_blocks + index <= self.state.geo.area_blocks()
    }

    /// Adds as much of a job as fits; gives back what did not.
    pub(crate) fn draft_job(&mut self, draft: &mut Draft, job: Job) -> Option<Job> {
        match job {
            Job::Land { piece, from, count } => self.draft_land(draft, piece, from, count),
            Job::Discard { piece } => self.draft_discard(draft, piece),
            Job::Homes { of, from, to } => self.draft_homes(draft, of, from, to),
            Job::Bad { block, was } => self.draft_bad(draft, block, was),
            Job::Merging { batch, from, to } => self.draft_merging(draft, batch, from, to),
            Job::Fence => {
                self.lift_fence(self.log.appended());
                None
            }
        }
    }

    fn draft_land(&mut self, draft: &mut Draft, piece: u32, mut from: u32, mut count: u32) -> Option<Job> {
        while count > 0 {
            let taken = self.draft_run(draft, piece, from, count);
            if taken == 0 {
                draft.full = true;
                return Some(Job::Land { piece, from, count });
            }
            (from, count) = (from + taken, count - taken);
        }
        None
    }

    /// Adds blocks of a landing piece that are whole, or one that is not; gives how many.
    fn draft_run(&mut self, draft: &mut Draft, piece: u32, from: u32, count: u32) -> u32 {
        let p = &self.pieces[piece];
        let sectors = p.landing_sectors(from);
        let whole = (from..from + count).take_while(|i| p.landing_sectors(*i).is_all()).count() as u32;
        let count = if sectors.is_all() { whole } else { 1 };
        // A part of a block whose home may be torn says again how that is told, for the log may go on without what said so.
        let (chunk, at) = (p.chunk, p.first + from);
        let block = self.state.map.join(chunk, at);
        let remains = if sectors.is_all() { None } else { self.state.remains(block) };
        let said_again = remains.map_or(0, |_| wire::merging_record_bytes(1));
        let mut take = count.min(GROUP_PAYLOAD_BLOCKS - draft.payload_blocks.min(GROUP_PAYLOAD_BLOCKS));
        while take > 0
            && !self.fits(
                draft.records.len() + wire::data_record_bytes(take) + said_again,
                draft.payload_blocks + take,
            )
        {
            take -= 1;
        }
        if take == 0 || draft.payload.len() + 3 > MAX_BUFS {
            return 0;
        }
        let buf = p.buf.expect("a landing piece has its buffer");
        let buf = buf.slice(from * BLOCK_BYTES, take * BLOCK_BYTES);
        let sums: SmallVec<[u32; 32]> =
            (0..take).map(|i| self.arena.crc32c(buf.slice(i * BLOCK_BYTES, BLOCK_BYTES))).collect();
        wire::put_data(&mut draft.records, block, &sums, sectors);
        if let Some(remains) = remains {
            let record = Record::Merging { chunk, rests: vec![(at, remains)] };
            record.encode(&mut draft.records, self.state.geo.mask_words());
        }
        draft.sums.extend(sums.into_iter().map(|sum| (sum, sectors)));
        let job = Job::Land { piece, from, count: take };
        draft.parts.push(Part { job, payload: draft.payload_blocks });
        draft.payload.push(buf);
        draft.payload_blocks += take;
        take
    }

    fn draft_discard(&mut self, draft: &mut Draft, piece: u32) -> Option<Job> {
        let job = Job::Discard { piece };
        if !self.fits(draft.records.len() + wire::DISCARD_RECORD_BYTES, draft.payload_blocks) {
            draft.full = true;
            return Some(job);
        }
        let p = &self.pieces[piece];
        let (chunk, first, count) = (p.chunk, p.first, p.count);
        let block = self.state.map.join(chunk, first);
        Record::Discard { block, count }.encode(&mut draft.records, self.state.geo.mask_words());
        draft.parts.push(Part { job, payload: draft.payload_blocks });
        self.apply_discard(chunk, first, count);
        None
    }

    fn draft_homes(&mut self, draft: &mut Draft, of: Homes, from: u32, to: u32) -> Option<Job> {
        let words = self.state.geo.mask_words();
        let mut at = from;
        if !self.fits(draft.records.len(), draft.payload_blocks) {
            // Even a group in which every record turns out to be needless takes a block.
            draft.full = true;
            return Some(Job::Homes { of, from, to });
        }
        while at < to {
            if let Some(record) = self.home_record(of, at) {
                let sums = if let Record::Home(r) = &record { r.sums.len() as u32 } else { 0 };
                let bytes = wire::home_record_bytes(words, sums);
                if !self.fits(draft.records.len() + bytes, draft.payload_blocks) {
                    draft.full = true;
                    break;
                }
                record.encode(&mut draft.records, words);
                self.home_recorded(of, self.log.appended());
            }
            at += 1;
        }
        if at > from {
            let job = Job::Homes { of, from, to: at };
            draft.parts.push(Part { job, payload: draft.payload_blocks });
        }
        (at < to).then_some(Job::Homes { of, from: at, to })
    }

    fn draft_bad(&mut self, draft: &mut Draft, block: Block, was: LogPos) -> Option<Job> {
        let job = Job::Bad { block, was };
        if self.state.landed_at(block) != Some(was) {
            self.log.losses -= 1;
            return None;
        }
        let bytes = draft.records.len() + wire::BAD_RECORD_BYTES;
        if !self.fits(bytes, draft.payload_blocks + 1) {
            draft.full = true;
            return Some(job);
        }
        // Its one block of payload is only a place in the zone: nobody reads it.
        let Some(buf) = self.arena.alloc(Pool::Log, BLOCK_BYTES) else { return Some(job) };
        self.arena.zero(buf);
        Record::Bad { block, was }.encode(&mut draft.records, self.state.geo.mask_words());
        draft.sums.push((self.arena.crc32c(buf), Sectors::ALL));
        draft.own.push(buf);
        draft.parts.push(Part { job, payload: draft.payload_blocks });
        draft.payload.push(buf);
        draft.payload_blocks += 1;
        None
    }

    /// Says what a batch is about to overwrite; chunks of which nothing needs saying take no record.
    fn draft_merging(&mut self, draft: &mut Draft, batch: u32, from: u32, to: u32) -> Option<Job> {
        let words = self.state.geo.mask_words();
        let mut at = from;
        while at < to {
            let (chunk, rests) = self.merging(batch, at);
            let bytes = draft.records.len() + wire::merging_record_bytes(rests.len() as u32);
            if !self.fits(bytes, draft.payload_blocks) {
                draft.full = true;
                break;
            }
            if !rests.is_empty() {
                // Known from here on: a part that is drafted behind this says it again.
                self.state.begin_merging(chunk, &rests);
                Record::Merging { chunk, rests }.encode(&mut draft.records, words);
            }
            at += 1;
        }
        if at > from {
            let job = Job::Merging { batch, from, to: at };
            draft.parts.push(Part { job, payload: draft.payload_blocks });
        }
        (at < to).then_some(Job::Merging { batch, from: at, to })
    }
}
