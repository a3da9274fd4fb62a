//! A group being put together: how much of each waiting job goes into it.

use crate::api::action::{BufList, MAX_BUFS};
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::place::Place;
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::format::log::{self as wire, Index, Record};
use crate::path::log::{Homes, Job, Part};
use crate::volume::state::State;
use bimetal_units::*;
use smallvec::SmallVec;

/// Payload blocks in a group at most.
const GROUP_PAYLOAD_BLOCKS: u32 = 128;
/// Header blocks in a group at most: records of a batch of moves.
pub const GROUP_HEADER_BLOCKS: u32 = 4;

/// What a block of payload holds.
pub struct Held {
    pub(crate) sum: u32,
    pub(crate) sectors: Sectors,
    /// The sectors of a second part, if there is one.
    pub(crate) second: Option<Sectors>,
}

/// A block of payload with one part in it, which another may share.
struct Roomy {
    /// Its number in the payload.
    block: u32,
    /// Its number among the payload's buffers.
    buf: usize,
    /// Where the record of its part begins.
    record: usize,
}

/// A group being put together.
#[derive(Default)]
pub struct Draft {
    pub(crate) records: Vec<u8>,
    pub(crate) payload: BufList,
    pub(crate) payload_blocks: u32,
    pub(crate) parts: SmallVec<[Part; 4]>,
    /// Of each block of the payload.
    pub(crate) held: SmallVec<[Held; 32]>,
    /// The last block with one part, if no other has come to share it.
    roomy: Option<Roomy>,
    pub(crate) own: SmallVec<[Buf; 1]>,
    /// A job was refused for want of space in the segment.
    pub(crate) full: bool,
}

impl Draft {
    /// A job whose payload comes next.
    pub(crate) fn part(&self, job: Job) -> Part {
        Part { job, payload: self.payload_blocks, second: false }
    }
}

/// Blocks that are free in a segment that has been written up to this one, its index allowed for.
pub(crate) fn room_blocks(state: &State, place: Place, cursor: u32) -> u32 {
    let index = state.zone.get(place).index.as_ref().map_or(0, |i| i.entries.len());
    state.geo.area_blocks().saturating_sub(cursor.max(1).saturating_add(Index::blocks(index)))
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

    /// Whether a draft has room for so many bytes of records more.
    pub(crate) fn has_room_for(&self, draft: &Draft, record_bytes: usize) -> bool {
        self.fits(draft.records.len() + record_bytes, draft.payload_blocks)
    }

    /// Blocks that are free in the segment that is being written, its index allowed for.
    pub(crate) fn log_room_blocks(&self) -> u32 {
        room_blocks(&self.state, self.log.place, self.log.cursor)
    }

    /// Adds as much of a job as fits; gives back what did not.
    pub(crate) fn draft_job(&mut self, draft: &mut Draft, job: Job) -> Option<Job> {
        match job {
            Job::Land { piece, from, count } => self.draft_land(draft, piece, from, count),
            Job::Discard { piece } => self.draft_discard(draft, piece),
            Job::Homes { of, from, to } => self.draft_homes(draft, of, from, to),
            Job::Bad { block, was } => self.draft_bad(draft, block, was),
            Job::Remnant { .. } => self.draft_remnant(draft, job),
            Job::Merging { batch, from, to } => self.draft_merging(draft, batch, from, to),
            Job::Claim => self.draft_claim(draft),
            Job::Mend => self.draft_mend(draft),
            Job::Fence => {
                // Where all before it has turned out to be needless, this group may never be.
                let needless = u64::from(draft.parts.is_empty());
                self.lift_fence(Seq(self.log.appended().0 - needless));
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
        let p = &self.front.pieces[piece];
        let sectors = p.landing_sectors(from);
        if !sectors.is_all() {
            return u32::from(self.draft_part(draft, piece, from, sectors));
        }
        let count = (from..from + count).take_while(|i| p.landing_sectors(*i).is_all()).count() as u32;
        let block = self.state.map.join(p.chunk, p.first + from);
        let mut take = count.min(GROUP_PAYLOAD_BLOCKS - draft.payload_blocks.min(GROUP_PAYLOAD_BLOCKS));
        while take > 0 && !self.takes(draft, wire::data_record_bytes(take), take) {
            take -= 1;
        }
        if take > 0 {
            let askew = planted(Bug::LongPieceAskew) && from >= GROUP_PAYLOAD_BLOCKS;
            let buf = p.landing_buf(from - u32::from(askew), take);
            draft.parts.push(draft.part(Job::Land { piece, from, count: take }));
            self.put_blocks(draft, block, buf, (Sectors::ALL, false));
        }
        take
    }

    /// Whether a draft has room for another record, and so many blocks of payload.
    pub(crate) fn takes(&self, draft: &Draft, record_bytes: usize, blocks: u32) -> bool {
        let payload_blocks = draft.payload_blocks + blocks;
        payload_blocks <= GROUP_PAYLOAD_BLOCKS
            && draft.payload.len() + 3 <= MAX_BUFS
            && self.fits(draft.records.len() + record_bytes, payload_blocks)
    }

    pub(crate) fn put_blocks(
        &mut self,
        draft: &mut Draft,
        block: Block,
        buf: Buf,
        (sectors, lost): (Sectors, bool),
    ) {
        let blocks = buf.len / BLOCK_BYTES;
        let sums: SmallVec<[u32; 32]> =
            (0..blocks).map(|i| self.io.arena.crc32c(buf.slice(i * BLOCK_BYTES, BLOCK_BYTES))).collect();
        wire::put_data(&mut draft.records, block, &sums, sectors, lost);
        draft.held.extend(sums.into_iter().map(|sum| Held { sum, sectors, second: None }));
        draft.payload.push(buf);
        draft.payload_blocks += blocks;
    }

    /// Adds a block of a landing piece of which only some sectors land, beside another one of which others do, if there is
    /// one. False where it does not fit.
    fn draft_part(&mut self, draft: &mut Draft, piece: u32, from: u32, sectors: Sectors) -> bool {
        let p = &self.front.pieces[piece];
        let (chunk, at, buf) = (p.chunk, p.first + from, p.landing_buf(from, 1));
        let block = self.state.map.join(chunk, at);
        // Of a block whose home may be torn, it says again how that is told, for the log may go on without what said so.
        let remains = self.state.remains(block);
        let said_again = remains.map_or(0, |_| wire::merging_record_bytes(1));
        let job = Job::Land { piece, from, count: 1 };
        // Of a block that is lost, it says that the rest still is, for the log may go on without what said so.
        let lost = self.state.landed.get(block).is_some_and(|old| self.state.landed.is_bad(old));
        let lost = lost && !planted(Bug::PartRevivesLost);
        if lost {
            let fits = self.takes(draft, wire::data_record_bytes(1), 1);
            if fits {
                draft.parts.push(draft.part(job));
                self.put_blocks(draft, block, buf, (sectors, true));
            }
            return fits;
        }
        if let Some(payload) = self.share_block(draft, buf, sectors, said_again) {
            let back = (draft.payload_blocks - payload) as u16;
            Record::Shared { block, sectors, back }.encode(&mut draft.records, self.state.geo.mask_words());
            draft.parts.push(Part { job, payload, second: true });
        } else if self.takes(draft, wire::data_record_bytes(1) + said_again, 1) {
            draft.parts.push(draft.part(job));
            draft.roomy = Some(Roomy {
                block: draft.payload_blocks,
                buf: draft.payload.len(),
                record: draft.records.len(),
            });
            self.put_blocks(draft, block, buf, (sectors, false));
        } else {
            return false;
        }
        if let Some(remains) = remains {
            let record = Record::Merging { chunk, rests: vec![(at, remains)] };
            record.encode(&mut draft.records, self.state.geo.mask_words());
        }
        true
    }

    /// Puts a part into the block of payload of another one; gives that block's number. None where there is none with room
    /// for it.
    fn share_block(
        &mut self,
        draft: &mut Draft,
        part: Buf,
        sectors: Sectors,
        said_again: usize,
    ) -> Option<u32> {
        let roomy = draft.roomy.as_ref()?;
        let apart = draft.held[roomy.block as usize].sectors.and(sectors).is_none();
        let record_bytes = draft.records.len() + wire::SHARED_RECORD_BYTES + said_again;
        if !apart || !self.state.landed.may_share() || !self.fits(record_bytes, draft.payload_blocks) {
            return None;
        }
        let both = self.io.arena.alloc(Pool::Background, BLOCK_BYTES)?;
        let roomy = draft.roomy.take()?;
        self.io.arena.copy(both, draft.payload[roomy.buf]);
        for offset in sectors.offsets().filter(|_| !planted(Bug::SecondPartNotLaid)) {
            self.io.arena.copy(both.slice(offset, SECTOR_BYTES), part.slice(offset, SECTOR_BYTES));
        }
        let sum = self.io.arena.crc32c(both);
        wire::correct_sum(&mut draft.records, roomy.record, sum);
        let held = &mut draft.held[roomy.block as usize];
        (held.sum, held.second) = (sum, Some(sectors));
        draft.payload[roomy.buf] = both;
        draft.own.push(both);
        Some(roomy.block)
    }

    fn draft_discard(&mut self, draft: &mut Draft, piece: u32) -> Option<Job> {
        let job = Job::Discard { piece };
        if !self.fits(draft.records.len() + wire::DISCARD_RECORD_BYTES, draft.payload_blocks) {
            draft.full = true;
            return Some(job);
        }
        let p = &self.front.pieces[piece];
        let (chunk, first, count) = (p.chunk, p.first, p.count);
        let block = self.state.map.join(chunk, first);
        Record::Discard { block, count }.encode(&mut draft.records, self.state.geo.mask_words());
        draft.parts.push(draft.part(job));
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
            draft.parts.push(draft.part(job));
        }
        (at < to).then_some(Job::Homes { of, from: at, to })
    }

    fn draft_bad(&mut self, draft: &mut Draft, block: Block, was: LogPos) -> Option<Job> {
        let job = Job::Bad { block, was };
        if self.state.landed_at(block) != Some(was) {
            self.log.losses -= 1;
            return None;
        }
        if !self.takes(draft, wire::BAD_RECORD_BYTES, 1) {
            draft.full = true;
            return Some(job);
        }
        // Its one block of payload is only a place in the zone: nobody reads it.
        let Some(buf) = self.io.arena.alloc(Pool::Log, BLOCK_BYTES) else { return Some(job) };
        self.io.arena.zero(buf);
        Record::Bad { block, was }.encode(&mut draft.records, self.state.geo.mask_words());
        let sum = self.io.arena.crc32c(buf);
        draft.held.push(Held { sum, sectors: Sectors::ALL, second: None });
        draft.own.push(buf);
        draft.parts.push(draft.part(job));
        draft.payload.push(buf);
        draft.payload_blocks += 1;
        None
    }

    /// Says again what is left of a block whose other sectors are lost, unless more of it is in the log by now.
    fn draft_remnant(&mut self, draft: &mut Draft, job: Job) -> Option<Job> {
        let Job::Remnant { batch, item, nth, block, was } = job else { unreachable!("it is one") };
        if self.state.landed_at(block) != Some(was) || self.lands_in_flight(draft, block) {
            return None;
        }
        if !self.takes(draft, wire::data_record_bytes(1), 1) {
            draft.full = true;
            return Some(job);
        }
        let Some(buf) = self.io.arena.alloc(Pool::Log, BLOCK_BYTES) else { return Some(job) };
        let (from, sectors) = self.remnant(batch, item, nth);
        self.io.arena.copy(buf, from);
        draft.own.push(buf);
        draft.parts.push(draft.part(job));
        self.put_blocks(draft, block, buf, (sectors, true));
        None
    }

    /// Whether a client's write of the block is in a group that is not applied yet, or in the draft.
    pub(crate) fn lands_in_flight(&self, draft: &Draft, block: Block) -> bool {
        let (chunk, at) = self.state.map.split(block);
        self.log.parts_in_flight().chain(&draft.parts).any(|part| match part.job {
            Job::Land { piece, from, count } => {
                let p = &self.front.pieces[piece];
                p.chunk == chunk && (p.first + from..p.first + from + count).contains(&at)
            }
            _ => false,
        })
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
            draft.parts.push(draft.part(job));
        }
        (at < to).then_some(Job::Merging { batch, from: at, to })
    }
}
