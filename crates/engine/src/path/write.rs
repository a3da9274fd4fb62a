//! Writes: complete partial blocks, choose the path, go it.
//!
//! The paths are in place, fresh (first write into a fast slot), land, and stream; see
//! `docs/LIFE-OF-A-WRITE.md`. Where the newest copy is must never be decided by timing: while a
//! landed copy lives or the chunk is moving, writes land.

use crate::api::action::{Class, RequestError};
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::base::mask::BlockMask;
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use crate::path::log::Job;
use crate::path::piece::{Extent, Source};
use crate::path::read::Located;
use crate::placement::policy::{FirstWrite, Policy as _};
use crate::volume::landed::ZoneBlock;
use bimetal_units::*;
use smallvec::SmallVec;

/// Writes in flight to homes, by chunk: a move waits for them.
pub type HomeWriters = IndexMap<Chunk, u32>;

/// Where the rest of a block comes from, of which part is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// From where it is, once somebody wants it: only a part lands.
    Beneath,
    /// What landed of it before; of the others as above.
    Landed(ZoneBlock),
    /// From where each sector is.
    Everything,
}

impl<A: Arena> Engine<A> {
    /// Zeroing part of a block: a write of zeros.
    pub(crate) fn zero_piece(&mut self, piece: u32) {
        if self.front.pieces[piece].buf.is_none() {
            let Some(buf) = self.block_buffer(piece) else { return };
            self.io.arena.zero(buf);
            self.front.pieces[piece].buf = Some(buf);
        }
        self.fill_piece(piece);
    }

    /// Fetches the rest of partial blocks that do not land as they are, then chooses the path.
    pub(crate) fn fill_piece(&mut self, piece: u32) {
        if self.join_begun(piece) {
            return;
        }
        self.drop_scratch(piece);
        let p = &self.front.pieces[piece];
        let last = p.count - 1;
        let mut fills: SmallVec<[(usize, u32, Rest); 2]> = SmallVec::new();
        // A single block is the first, not the last.
        for (end, i) in [(0, 0), (1, last)].into_iter().take(p.count.min(2) as usize) {
            if self.front.pieces[piece].bytes_in(i) == (0, BLOCK_BYTES) {
                continue;
            }
            let (rest, sectors) = self.rest_of(piece, i);
            self.front.pieces[piece].sectors[end] = sectors;
            if rest != Rest::Beneath {
                fills.push((end, i, rest));
            }
        }
        if fills.is_empty() {
            return self.filled(piece);
        }
        // Of each there may be something landed to be laid over what is beneath it.
        let blocks = fills.len() as u32;
        let Some(scratch) = self.take_scratch(piece, 2 * blocks) else { return };
        let mut found = Located::default();
        for (n, (end, i, rest)) in fills.into_iter().enumerate() {
            let buf = scratch.slice(n as u32 * BLOCK_BYTES, BLOCK_BYTES);
            self.front.pieces[piece].fill.push((end, buf));
            let p = &self.front.pieces[piece];
            let block = p.first + i;
            match rest {
                Rest::Landed(z) => {
                    let source = Source::Landed(z);
                    found.extents.push(Extent { source, first: block, count: 1, buf });
                }
                _ => self.locate(p.chunk, block..block + 1, buf, |_| (0, BLOCK_BYTES), &mut found),
            }
        }
        self.set_stage(piece, Stage::WriteFill);
        self.fetch(piece, found, Some(scratch.slice(blocks * BLOCK_BYTES, blocks * BLOCK_BYTES)));
    }

    /// Where the rest of a partial block comes from, and the sectors that land with it.
    fn rest_of(&self, piece: u32, i: u32) -> (Rest, Sectors) {
        let p = &self.front.pieces[piece];
        let (from, to) = p.bytes_in(i);
        let written = Sectors::touching(from, to);
        let source = self.source(p.chunk, p.first + i);
        if !from.is_multiple_of(SECTOR_BYTES) || !to.is_multiple_of(SECTOR_BYTES) {
            return match source {
                // What is written touches nothing that is lost.
                Source::Part(z) | Source::Remnant(z)
                    if self.state.landed.sectors(z).has(written)
                        && self.lost_sectors(p.chunk, p.first + i).is_some() =>
                {
                    (Rest::Landed(z), self.state.landed.sectors(z))
                }
                _ => (Rest::Everything, Sectors::ALL),
            };
        }
        match source {
            Source::Part(z) | Source::Remnant(z) => {
                let before = self.state.landed.sectors(z);
                let over = written.has(before) || planted(Bug::PartForgotten);
                if over { (Rest::Beneath, written) } else { (Rest::Landed(z), before.or(written)) }
            }
            // The disk would have to be read before the write is answered.
            Source::Slot(home) if home.tier == SLOW && !self.state.map.is_pending(p.chunk) => {
                (Rest::Beneath, written)
            }
            // It is beneath, on a device that is missing: what is written touches nothing of it.
            Source::Bad
                if self.lacks_slow()
                    && self.state.map.is_on(p.chunk, SLOW)
                    && !self.state.map.is_pending(p.chunk) =>
            {
                (Rest::Beneath, written)
            }
            Source::Bad if self.any_landed(p.chunk, p.first + i, 1) => (Rest::Beneath, written),
            _ => (Rest::Everything, Sectors::ALL),
        }
    }

    /// The old contents are here: complete the cover with them.
    pub(crate) fn filled(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        let buf = p.buf.expect("a write has its buffer");
        let (head, tail) = (p.head, p.tail);
        let parts = [(0, buf.slice(0, head)), (buf.len - tail, buf.slice(buf.len - tail, tail))];
        for (end, (at, part)) in parts.into_iter().enumerate().filter(|(_, (_, part))| part.len > 0) {
            let p = &self.front.pieces[piece];
            let end = if p.count == 1 { 0 } else { end };
            match p.fill.iter().find(|(of, _)| *of == end) {
                Some((_, old)) => self.io.arena.copy(part, old.slice(at % BLOCK_BYTES, part.len)),
                // Nobody will read it; but it goes to a device.
                None => self.io.arena.zero(part),
            }
        }
        self.drop_scratch(piece);
        // The cover is complete: whoever routes it again need not fill again.
        let p = &mut self.front.pieces[piece];
        (p.head, p.tail) = (0, 0);
        self.route_write(piece);
    }

    fn any_landed(&self, chunk: Chunk, first: u32, count: u32) -> bool {
        self.state.map.may_be_landed(chunk)
            && (first..first + count).any(|b| self.state.landed.get(self.state.map.join(chunk, b)).is_some())
    }

    /// Chooses the path of a write whose cover is complete.
    fn route_write(&mut self, piece: u32) {
        if self.refuse_if_read_only(piece) {
            return;
        }
        let p = &self.front.pieces[piece];
        if !p.sectors.iter().all(|sectors| sectors.is_all()) {
            return self.land_piece(piece);
        }
        let (chunk, first, count) = (p.chunk, p.first, p.count);
        let moving = self.state.map.is_moving(chunk) && !planted(Bug::InPlaceWhileMoving);
        let landed = self.any_landed(chunk, first, count) && !planted(Bug::InPlaceWhileLanded);
        let pending = self.space.pending.get(chunk).map(|p| p.home);
        let home = pending.or(self.state.map.home(chunk));
        match home {
            _ if moving => self.land_piece(piece),
            None if self.zone_owes_slots() => self.land_piece(piece),
            Some(home) if home.tier == FAST && !landed => {
                let blocks = BlockMask::range(first, count);
                let is_summed = self.state.sums.fast.any(home.slot, &blocks);
                let is_closed = self.is_closed(chunk, home, &blocks);
                if is_closed && !is_summed && self.others_come_first() {
                    self.open_by_checkpoint(piece, home.slot, &blocks);
                } else if is_closed || is_summed && !planted(Bug::FastSumOutlivesWrite) {
                    // Its record ends the checksum before what lies there changes.
                    self.land_piece(piece);
                } else if pending.is_none() && self.state.map.all_valid(chunk, first, count) {
                    self.write_in_place(piece, home);
                } else if pending.is_none() && self.small_first_write(piece) {
                    self.land_piece(piece);
                } else {
                    self.write_fresh(piece, home);
                }
            }
            None if !landed && !self.small_first_write(piece) => self.first_write(piece),
            Some(_) if pending.is_some() => self.land_piece(piece),
            Some(home) if home.tier == FAST => self.land_piece(piece),
            _ => self.stream_or_land(piece),
        }
    }

    /// Whether these blocks lie in a region that is closed, or not durably open. A slot that no record names yet may be written
    /// there all the same.
    fn is_closed(&self, chunk: Chunk, home: Home, blocks: &BlockMask) -> bool {
        self.state.map.home(chunk) == Some(home)
            && self.state.sums.regions.hold(home.slot, blocks)
            && !planted(Bug::InPlaceInClosedRegion)
    }

    /// The landing zone has no room for what opens a region: a checkpoint does, or the flush of what did.
    fn open_by_checkpoint(&mut self, piece: u32, slot: Slot, blocks: &BlockMask) {
        let regions = &mut self.state.sums.regions;
        self.wanted.checkpoint |= regions.open_by_checkpoint(slot, blocks);
        self.wanted.commit |= regions.opening_since().is_some() && !self.commit.is_busy();
        self.block_piece(piece);
    }

    /// Where flushes are frequent a small first write lands: showing it in its slot would cost each
    /// flush a second device flush.
    fn small_first_write(&self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        p.count * BLOCK_BYTES <= self.tuning.small_write_bytes
            && (p.fua
                || self.front.outlives_kills
                || self.commit.flushes_are_frequent(self.tuning.economy.frequent_writes))
    }

    fn first_write(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        let (chunk, bytes) = (p.chunk, p.count * BLOCK_BYTES);
        let may_be_fast = self.placement.pins.list().allows(chunk, FAST);
        if may_be_fast
            && self.placement.policy.first_write(bytes, self.space.slots[FAST].free()) == FirstWrite::Fast
        {
            if !self.may_pend_another() {
                return self.wait_to_pend(piece);
            }
            if let Some(slot) = self.take_fast_slot() {
                self.space.slots[FAST].set_owner(slot, Some(chunk));
                return self.write_fresh(piece, Home { tier: FAST, slot });
            }
        }
        self.stream_or_land(piece);
    }

    /// Whether another chunk may have blocks that no record shows.
    fn may_pend_another(&self) -> bool {
        self.space.pending.len() < self.tuning.pending_chunks && self.log_has_room_to_show()
    }

    /// Waits until what has blocks that no record shows is recorded. Where nothing has, the log has no room for such records:
    /// the write waits for room there, like all others, so that it is known that somebody does.
    fn wait_to_pend(&mut self, piece: u32) {
        if self.space.pending.len() == 0 {
            return self.land_piece(piece);
        }
        self.wanted.commit = true;
        self.block_piece(piece);
    }

    fn write_action(&mut self, piece: u32, home: Home, fua: bool) {
        let p = &mut self.front.pieces[piece];
        let (buf, first) = (p.buf.expect("a write has its buffer"), p.first);
        (p.left, p.home) = (1, Some(home));
        *self.front.home_writers.entry(p.chunk).or_insert(0) += 1;
        if !planted(Bug::ShadowOutlivesWrite) {
            self.end_shadow(home);
        }
        if home.tier == FAST && !planted(Bug::LiveSumOutlivesWrite) {
            let blocks = BlockMask::range(first, self.front.pieces[piece].count);
            self.state.sums.forget_fast(home.slot, &blocks);
        }
        let offset = self.state.geo.block_at(home, first);
        self.count_write(piece, home.tier, buf);
        let (owner, class) = (Owner::Piece(piece), Class::Foreground);
        let command = Command { device: home.tier, offset, owner, class };
        self.io.write_all(command, SmallVec::from_elem(buf, 1), fua);
    }

    fn count_write(&mut self, piece: u32, tier: Tier, buf: Buf) {
        self.front.requests[self.front.pieces[piece].request].served.add(tier);
        // What was begun was counted when it landed.
        self.told.stats.written_bytes[tier] += u64::from(buf.len - self.front.pieces[piece].joined_bytes);
    }

    /// A write to a home has ended; gives the piece's chunk and home.
    fn home_write_done(&mut self, piece: u32) -> (Chunk, Home) {
        let p = &self.front.pieces[piece];
        let (chunk, home) = (p.chunk, p.home.expect("a write to a home knows which"));
        let writers = self.front.home_writers.get_mut(&chunk).expect("a writer was counted");
        *writers -= 1;
        if *writers == 0 {
            self.front.home_writers.remove(&chunk);
        }
        self.io.flushers[home.tier].dirty = true;
        if home.tier == FAST {
            self.note_live_sums(piece, home.slot);
        }
        (chunk, home)
    }

    /// What a piece has written to a fast slot is known from here on.
    fn note_live_sums(&mut self, piece: u32, slot: Slot) {
        let p = &self.front.pieces[piece];
        if p.failed.is_some() || planted(Bug::LiveSumOutlivesWrite) {
            return;
        }
        let (blocks, buf) = (BlockMask::range(p.first, p.count), p.buf.expect("a write has its buffer"));
        let arena = &self.io.arena;
        let sums = (0..p.count).map(|i| arena.crc32c(buf.slice(i * BLOCK_BYTES, BLOCK_BYTES)));
        self.state.sums.note_fast(slot, &blocks, sums);
    }

    /// Blocks that the home holds durably: overwritten where they are.
    fn write_in_place(&mut self, piece: u32, home: Home) {
        self.set_stage(piece, Stage::WriteInPlace);
        let fua = self.front.pieces[piece].fua && !planted(Bug::FuaIgnored);
        self.write_action(piece, home, fua);
    }

    pub(crate) fn in_place_done(&mut self, piece: u32) {
        self.home_write_done(piece);
        // What it has overwritten may be called good by the slow device alone: then the device's own FUA is not enough.
        let marked = self.has_marked(self.mark_need()) || planted(Bug::FuaBeforeMark);
        self.front.pieces[piece].needs_commit |= !marked;
        self.written(piece);
    }

    /// Blocks that no record shows yet: written into the slot, shown by the next commit.
    fn write_fresh(&mut self, piece: u32, home: Home) {
        let chunk = self.front.pieces[piece].chunk;
        if self.space.pending.get(chunk).is_none() && !self.may_pend_another() {
            return self.wait_to_pend(piece);
        }
        self.set_stage(piece, Stage::WriteFresh);
        self.pend(chunk, home);
        self.write_action(piece, home, false);
    }

    pub(crate) fn fresh_done(&mut self, piece: u32) {
        let (chunk, _) = self.home_write_done(piece);
        let p = &mut self.front.pieces[piece];
        (p.needs_commit, p.unshown) = (true, true);
        let failed = p.failed;
        let written = if failed.is_some() { BlockMask::EMPTY } else { BlockMask::range(p.first, p.count) };
        self.pend_done(chunk, written);
        match failed {
            None | Some(RequestError::NoSpace) => self.written(piece),
            Some(_) => self.land_instead(piece),
        }
    }

    /// A fresh slot could not be written: nothing names it, and the piece has all of its blocks, so they land. Not where there is
    /// no space below: that is not to be hidden until the zone is full.
    fn land_instead(&mut self, piece: u32) {
        self.tell_failed_write(piece);
        let p = &mut self.front.pieces[piece];
        (p.failed, p.error, p.home, p.unshown) = (None, None, None, false);
        let chunk = p.chunk;
        if !self.refuse_if_read_only(piece) {
            self.land_piece(piece);
        }
        if self.state.map.is_moving(chunk) {
            self.home_writers_changed();
        }
    }

    fn tell_failed_write(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        let Some(home) = p.home else { return };
        let at = self.state.geo.block_at(home, p.first);
        let what = format!("{}: a write at byte {at} failed", self.told.names[home.tier]);
        self.told.event(Level::Warning, what, p.error);
    }

    /// Whether there is too little room for a whole chunk that belongs to no stream. Where it is written at once it
    /// is next to whatever else was, but away from its neighbours: who reads them in sequence finds a seek on either side.
    fn lacks_room_for_wholes(&self) -> bool {
        let economy = &self.tuning.economy;
        let share = match self.placement.neighbours.are_read() {
            true => economy.wholes_unused_share_read,
            false => economy.wholes_unused_share,
        };
        self.state.zone.unused_segments() * share < self.state.zone.len()
    }

    /// Writes a whole chunk that is at home on the slow tier into a fresh fast slot, where one is to be had for nothing: it is
    /// not written to the log first, nor merged later. False where it is not.
    fn whole_goes_fast(&mut self, piece: u32) -> bool {
        let chunk = self.front.pieces[piece].chunk;
        if !self.may_go_whole(chunk)
            || !self.placement.pins.list().allows(chunk, FAST)
            || !self.placement.policy.settles_fast(self.space.slots[FAST].free())
            || !self.may_pend_another()
            || self.zone_owes_slots()
        {
            return false;
        }
        // What is written once, in order, pushes nothing out that is read.
        let passes = self.front.requests[self.front.pieces[piece].request].is_stream()
            && self.placement.policy.heat(chunk, self.io.now) == 0;
        let slot = if passes { self.take_unmissed_slot() } else { self.take_fast_slot() };
        let Some(slot) = slot else { return false };
        self.space.slots[FAST].set_owner(slot, Some(chunk));
        self.set_stage(piece, Stage::WriteFresh);
        let home = Home { tier: FAST, slot };
        self.pend_whole(chunk, home, Vec::new());
        self.write_action(piece, home, false);
        true
    }

    /// Notes that a write of all of the chunk to a fresh home begins. Whatever landed in it so far is superseded: the piece holds
    /// the lock on all of it. A slow home has checksums.
    fn pend_whole(&mut self, chunk: Chunk, home: Home, sums: Vec<u32>) {
        self.pend(chunk, home);
        let ends = if planted(Bug::LandedOutlivesWhole) { LogPos(0) } else { self.log.applied_end };
        let entry = self.space.pending.get_mut(chunk).expect("the entry was just made");
        (entry.sums, entry.ends) = (sums, ends);
    }

    /// Whole chunks of long streams, and any where there is too little room for them, go to fresh slow slots.
    fn stream_or_land(&mut self, piece: u32) {
        let p = &mut self.front.pieces[piece];
        let whole = p.count == self.state.geo.blocks_per_chunk();
        let long = self.front.requests[p.request].is_stream();
        if whole && !long && !p.neighbours_counted {
            p.neighbours_counted = true;
            self.placement.neighbours.written_alone(self.tuning.economy.neighbours_memory);
        }
        let short = self.lacks_room_for_wholes();
        if whole && self.whole_goes_fast(piece) {
            return;
        }
        // A loss that is being recorded lands behind the stream, and would be taken for newer. A device that is away is not waited
        // for by each chunk in turn.
        if !whole || !(long || short) || self.log.losses > 0 || self.io.tokens.is_late(SLOW) {
            return self.land_piece(piece);
        }
        let after = self.space.pending.slow_bytes + u64::from(self.state.geo.chunk_bytes);
        if after > self.tuning.slow_unflushed_bytes || !self.may_pend_another() {
            return self.wait_to_pend(piece);
        }
        // In time: what comes next is written while this is flushed. Or all would wait for all of it, and the disk run dry.
        let ahead = after * self.tuning.economy.commits_ahead > self.tuning.slow_unflushed_bytes;
        self.wanted.commit |= ahead && !self.commit.is_busy();
        if !self.sums_have_room() {
            return self.land_piece(piece);
        }
        let chunk = self.front.pieces[piece].chunk;
        match self.take_slow_slot(chunk, long && self.state.map.home(chunk).is_none()) {
            Some(slot) => self.write_stream(piece, Home { tier: SLOW, slot }),
            None if short && self.slow_slots_come() => self.wait_to_pend(piece),
            None => self.land_piece(piece),
        }
    }

    /// Whether the list of recent checksums has room for those of one more chunk. It is emptied in time, as for batches.
    fn sums_have_room(&mut self) -> bool {
        let has_room =
            self.sums_spoken_for() + self.state.geo.blocks_per_chunk() as usize <= self.state.sums.limit;
        let many = self.state.sums.recent() > self.state.sums.limit / 2;
        self.want_fold(!has_room || many && self.checkpoint.is_idle());
        has_room
    }

    /// Whether a commit makes so many slots of the slow tier free that it is worth to wait for it.
    fn slow_slots_come(&self) -> bool {
        let written = self.space.pending.slow_bytes / u64::from(self.state.geo.chunk_bytes);
        let come = written + u64::from(self.space.gate.leaving_slow());
        come >= u64::from(self.tuning.economy.slots_awaited) && !self.lacks_slow()
    }

    /// Whether a whole chunk that is not at home on the fast tier may go to a fresh slot, as far as the chunk is concerned.
    pub(crate) fn may_go_whole(&self, chunk: Chunk) -> bool {
        let on_slow = self.state.map.home(chunk).is_none_or(|home| home.tier == SLOW);
        // A loss that is being recorded lands behind the write, and would be taken for newer.
        on_slow
            && self.space.pending.get(chunk).is_none()
            && !self.state.map.is_moving(chunk)
            && self.log.losses == 0
            && !self.life.is_read_only()
    }

    fn write_stream(&mut self, piece: u32, home: Home) {
        self.set_stage(piece, Stage::WriteStream);
        let p = &self.front.pieces[piece];
        let (chunk, buf, count) = (p.chunk, p.buf.expect("a write has its buffer"), p.count);
        let arena = &self.io.arena;
        let sums = (0..count).map(|i| arena.crc32c(buf.slice(i * BLOCK_BYTES, BLOCK_BYTES))).collect();
        self.pend_whole(chunk, home, sums);
        self.write_action(piece, home, false);
    }

    pub(crate) fn stream_done(&mut self, piece: u32) {
        self.fresh_done(piece);
    }

    /// Into the log.
    pub(crate) fn land_piece(&mut self, piece: u32) {
        self.set_stage(piece, Stage::WriteLand);
        let p = &mut self.front.pieces[piece];
        (p.left, p.needs_commit) = (p.count, true);
        let (count, buf) = (p.count, p.buf.expect("a write has its buffer"));
        self.count_write(piece, FAST, buf);
        self.log.client.push_back(Job::Land { piece, from: 0, count });
    }

    /// Blocks of a landing piece are in the log.
    pub(crate) fn landed_part(&mut self, piece: u32, count: u32) {
        self.log.landed_blocks += u64::from(count);
        let p = &mut self.front.pieces[piece];
        p.left -= count;
        if p.left == 0 {
            self.written(piece);
        }
    }

    /// A write has ended.
    fn written(&mut self, piece: u32) {
        let failed = self.front.pieces[piece].failed;
        let chunk = self.front.pieces[piece].chunk;
        match failed {
            Some(_) => self.tell_failed_write(piece),
            None => self.touched(piece, true),
        }
        self.finish_piece(piece, failed.map_or(Ok(()), Err));
        if self.state.map.is_moving(chunk) {
            self.home_writers_changed();
        }
    }

    /// Whole blocks read zeros from now on: recorded unless they do already.
    pub(crate) fn discard_piece(&mut self, piece: u32) {
        if self.refuse_if_read_only(piece) {
            return;
        }
        let p = &self.front.pieces[piece];
        let (chunk, first, count) = (p.chunk, p.first, p.count);
        let blank = (first..first + count).all(|b| self.source(chunk, b) == Source::Zero);
        self.set_stage(piece, Stage::Discard);
        // What reads zeros already may do so by a discard that is not durable yet.
        self.front.pieces[piece].needs_commit = !(blank && planted(Bug::BlankFuaAnsweredEarly));
        if blank {
            return self.finish_piece(piece, Ok(()));
        }
        self.log.client.push_back(Job::Discard { piece });
    }

    /// The discard's record is being appended: from here on its blocks read zeros, and no later
    /// record may name them.
    pub(crate) fn apply_discard(&mut self, chunk: Chunk, first: u32, count: u32) {
        self.state.discard(chunk, first, count);
        self.state.sums.ended_by(self.log.appended());
        let blocks = BlockMask::range(first, count);
        self.discard_pending(chunk, blocks);
        self.discard_moving(chunk, blocks);
        self.forget_if_empty(chunk);
        self.drop_empty_home(chunk);
    }
}
