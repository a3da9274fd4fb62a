//! Clean copies: what is at home on the slow device and is on the fast one as well, so that the next read of it is fast.
//!
//! A read that has to go to the slow device is copied into cells of fast slots that nothing else needs (`volume/cells.rs`);
//! where that has paid (`placement/worth.rs`), the rest of the chunk comes along in the same seek. A chunk that is pushed down
//! leaves a copy behind. No record tells of copies: they end as soon as a home changes, and with an opening that was not closed
//! (`life/hints.rs`). Their slots count as free, for whoever needs one takes it.
//! Each costs the fast device a write; a budget for that may forbid them (`placement/wear.rs`).
//! What is read from a copy is held against the checksums of the slow home, so one that is wrong costs a second read.

use crate::api::action::{BufList, Class, DeviceError, MAX_BUFS};
use crate::api::coverage::Stage;
use crate::api::economy::Economy;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::base::slab::Slab;
use crate::engine::Engine;
use crate::format::geometry::Geometry;
use crate::format::hints::CopyHint;
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use crate::path::piece::{Extent, PieceKind, Source};
use crate::path::read::Fetched;
use crate::placement::policy::{NextUse, Policy as _};
use crate::placement::worth::Worth;
use crate::volume::cells::{Cell, CellBlock, Cells, Ended, Wish};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

/// Copies being made at a time: as many as a disk's queue holds; each has a buffer of a chunk at most.
const MAX_FILLS: usize = 32;
/// Trays that give way to a home at most: the slot of one that is being read is free later.
const EVICTIONS: usize = 64;

/// Blocks of a chunk that are read from its slow home, to be copied.
#[derive(Serialize, Deserialize)]
struct Fill {
    chunk: Chunk,
    home: Home,
    buf: Buf,
    /// The first block of the chunk that is read; the buffer says how many.
    first: u32,
    /// What the first reader asked for.
    piece: u32,
    asked: Range<u32>,
    /// A long one: it pushes nothing out, and nothing is concluded from it.
    stream: bool,
    /// Reads that wait for it: pieces, and which of their extents.
    waiters: SmallVec<[(u32, u16); 4]>,
    /// Blocks that others read meanwhile.
    used: BlockMask,
    /// What is being written; before that, it is being read.
    writes: Option<Writes>,
    /// It is not wanted any more.
    dropped: bool,
}

#[derive(Serialize, Deserialize)]
struct Writes {
    cells: Vec<Cell>,
    left: u32,
    ok: bool,
}

impl Fill {
    fn has(&self, e: &Extent) -> bool {
        self.first <= e.first && e.first + e.count <= self.first + self.buf.len / BLOCK_BYTES
    }

    fn part(&self, e: &Extent) -> Buf {
        self.buf.slice((e.first - self.first) * BLOCK_BYTES, e.count * BLOCK_BYTES)
    }
}

/// The copies, and those being made.
#[derive(Serialize, Deserialize)]
pub struct Copies {
    cells: Cells,
    fills: Slab<Fill>,
    worth: Worth,
    /// When a copy last gave way to another.
    gave_way: Option<Nanos>,
    /// Bytes of clients' reads that copies served.
    pub(crate) read_bytes: u64,
}

impl Copies {
    pub(crate) fn new(geo: &Geometry, economy: &Economy) -> Copies {
        let homes = geo.slots(FAST);
        Copies {
            cells: Cells::new(homes, geo.slots_of_areas(), geo.blocks_per_chunk(), economy),
            fills: Slab::new(MAX_FILLS),
            worth: Worth::new(homes, economy),
            gave_way: None,
            read_bytes: 0,
        }
    }

    /// Where a block's copy is, if it has one that can be read.
    pub fn find(&self, chunk: Chunk, block: u32) -> Option<CellBlock> {
        self.cells.find(chunk, block)
    }

    /// The slot that a block of a copy is in, and which block of the slot it is.
    pub fn place(&self, at: CellBlock) -> (Slot, u32) {
        self.cells.place(at)
    }

    /// A copy is where it was before the volume was opened; nothing where it cannot be.
    pub(crate) fn recall(&mut self, hint: CopyHint) {
        self.cells.recall(hint);
    }

    /// A slot in which nothing is holds copies from here on.
    pub(crate) fn add_tray(&mut self, slot: Slot) {
        self.cells.add_tray(slot);
    }

    /// Whether the slot holds copies, or will.
    pub fn are_in(&self, slot: Slot) -> bool {
        self.cells.is_tray(slot)
    }

    /// Whether there are copies in a slot, none of which was ever read.
    pub fn are_unread_in(&self, slot: Slot) -> bool {
        self.cells.is_unread(slot)
    }

    /// Blocks of the chunk with a copy, or of which one is being made.
    pub fn blocks_of(&self, chunk: Chunk) -> u32 {
        self.cells.parts_of(chunk) * self.cells.part_blocks()
    }

    /// Bytes in copies, those being made included.
    pub fn bytes(&self) -> u64 {
        u64::from(self.cells.len()) * u64::from(self.cells.part_blocks()) * u64::from(BLOCK_BYTES)
    }

    /// Fast slots that copies have use for, as far as experience goes, and what streams asked for of late.
    pub fn wanted(&self, now: Nanos) -> u32 {
        self.worth.wanted(now)
    }

    /// Whether copies were read again so often that they are worth more than the least share of the fast tier.
    pub fn have_proved(&self, now: Nanos) -> bool {
        self.worth.have_proved(now)
    }

    /// Where they are.
    pub(crate) fn cells(&self) -> &Cells {
        &self.cells
    }

    /// Whether a stream comes by again and again where there was no slot for it.
    pub fn are_asked_for(&self, now: Nanos) -> bool {
        self.worth.are_asked_for(now)
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        self.cells.ram_bytes()
    }

    /// Bytes that were asked for where a copy is made; the rest of the chunk may come along.
    pub(crate) fn asked_bytes(&self, fill: u32) -> u32 {
        self.fills[fill].asked.len() as u32 * BLOCK_BYTES
    }

    fn fill_with(&self, chunk: Chunk, e: &Extent) -> Option<u32> {
        let mut fills = self.fills.iter();
        fills.find(|(_, fill)| fill.chunk == chunk && !fill.dropped && fill.has(e)).map(|(i, _)| i)
    }

    fn learn(worth: &mut Worth, ended: Ended) {
        if let Some(repaid) = ended {
            worth.learn(repaid);
        }
    }
}

impl<A: Arena> Engine<A> {
    /// A fast slot for a home; copies give way for it.
    pub(crate) fn take_fast_slot(&mut self) -> Option<Slot> {
        for _ in 0..EVICTIONS {
            if self.space.slots[FAST].unused() > 0 {
                break;
            }
            let slot = self.mover.copies.cells.tray_to_leave()?;
            self.drop_tray(slot);
        }
        let slot = self.space.slots[FAST].take()?;
        // Whatever else it was meanwhile, what was known of it is not known any more.
        self.state.sums.forget_fast_slot(slot);
        Some(slot)
    }

    /// A fast slot in which nothing is, or copies that nobody has read.
    pub(crate) fn take_unmissed_slot(&mut self) -> Option<Slot> {
        let slots = &self.space.slots[FAST];
        let cells = &self.mover.copies.cells;
        let unmissed = slots.unused() > 0 || cells.next_tray().is_some_and(|slot| cells.is_unread(slot));
        unmissed.then(|| self.take_fast_slot()).flatten()
    }

    /// Whether a chunk may have a fast home now: while nobody asks for anything, no copies that are worth more give way.
    pub(crate) fn outdoes_copies(&self, chunk: Chunk) -> bool {
        let pushes_out = self.space.slots[FAST].unused() == 0 && self.is_idle();
        !pushes_out
            || self
                .mover
                .copies
                .cells
                .next_tray()
                .is_some_and(|slot| self.placement.policy.outdoes(chunk, slot, self.io.now, &self.view()))
    }

    /// A slot of a tier for a home.
    pub(crate) fn take_slot(&mut self, tier: Tier, chunk: Chunk, in_order: bool) -> Option<Slot> {
        if tier == FAST { self.take_fast_slot() } else { self.take_slow_slot(chunk, in_order) }
    }

    /// A read needs an extent from the slow home of its chunk, and up to block `until` others from there: it takes it from
    /// the memory that a copy is being written from, waits for what is being read for a copy, or has one made. What was
    /// wrong is read again without any of that.
    pub(crate) fn read_with_copy(
        &mut self,
        piece: u32,
        extent: u16,
        home: Home,
        e: &Extent,
        until: u32,
    ) -> Fetched {
        let p = &self.front.pieces[piece];
        let (chunk, request, reads) = (p.chunk, p.request, p.kind == PieceKind::Read);
        if p.again {
            return Fetched::No;
        }
        if let Some(i) = self.mover.copies.fill_with(chunk, e) {
            return self.join_fill(i, piece, extent, home, e);
        }
        if !reads {
            return Fetched::No;
        }
        let stream = self.front.requests[request].stream_bytes > self.tuning.economy.copies_stream_bytes;
        if stream && self.placement.policy.heat(chunk, self.io.now) == 0
            || self.life.shutdown.began()
            || self.life.is_read_only()
            || self.state.map.is_busy(chunk)
            || !self.mover.copies.fills.has_room()
            || !self.may_copy()
            || !stream && !self.copy_is_worth_it(chunk)
        {
            return Fetched::No;
        }
        let full = self.space.slots[FAST].unused() <= self.spare_slots();
        if stream && full && !self.mover.copies.cells.has_kept() {
            // What is read round and round would push out each copy just before it is read again.
            self.mover.copies.worth.asked(self.io.now);
            return Fetched::No;
        }
        let part = self.mover.copies.cells.part_blocks();
        let blocks = match stream || self.mover.copies.worth.whole_pays() {
            true => 0..self.state.geo.blocks_per_chunk(),
            false => e.first / part * part..until.next_multiple_of(part),
        };
        let bytes = (blocks.end - blocks.start) * BLOCK_BYTES;
        let Some(buf) = self.io.arena.alloc(Pool::Background, bytes) else { return Fetched::No };
        self.begin_fill(Fill {
            chunk,
            home,
            buf,
            first: blocks.start,
            piece,
            asked: e.first..until,
            stream,
            waiters: SmallVec::from_elem((piece, extent), 1),
            used: BlockMask::EMPTY,
            writes: None,
            dropped: false,
        });
        Fetched::Later
    }

    /// A read needs what is being read for a copy, or written from memory.
    fn join_fill(&mut self, i: u32, piece: u32, extent: u16, home: Home, e: &Extent) -> Fetched {
        let reads = self.front.pieces[piece].kind == PieceKind::Read;
        let fill = &mut self.mover.copies.fills[i];
        if fill.home != home {
            return Fetched::No;
        }
        if fill.writes.is_some() {
            let src = fill.part(e);
            self.io.arena.copy(e.buf, src);
            if reads {
                self.count_copy_use(e.first, e.count, piece);
            }
            return Fetched::Now;
        }
        if !reads {
            return Fetched::No;
        }
        fill.waiters.push((piece, extent));
        if fill.piece != piece {
            fill.used = fill.used.or(BlockMask::range(e.first, e.count));
        }
        Fetched::Later
    }

    /// Whether more slots would be filled with copies at once: some give way to others, or streams asked for more in vain
    /// than there is by now.
    pub(crate) fn copies_are_pressed(&self) -> bool {
        let asked = self.mover.copies.worth.asked_lately(self.io.now);
        let lately_ns = self.tuning.economy.copies_pressed_ns;
        self.mover.copies.gave_way.is_some_and(|at| self.io.now.since(at) < lately_ns)
            || asked > 0 && self.space.slots[FAST].unused() < self.spare_slots() + asked
    }

    /// Fast slots that are left without a copy.
    pub(crate) fn spare_slots(&self) -> u32 {
        self.space.slots[FAST].count() / self.tuning.economy.copies_spare_share
    }

    /// Whether a chunk that is being read is to be copied: where it is known, if it will be touched again after that.
    fn copy_is_worth_it(&mut self, chunk: Chunk) -> bool {
        match self.placement.policy.next_use(chunk, true) {
            NextUse::Unknown => self.mover.copies.worth.copies_pay(),
            next => next != NextUse::Never,
        }
    }

    fn begin_fill(&mut self, fill: Fill) {
        let (home, buf) = (fill.home, fill.buf);
        let offset = self.state.geo.block_at(home, fill.first);
        let fill = self.mover.copies.fills.insert(fill);
        self.space.slots[home.tier].pin(home.slot);
        let owner = Owner::Copy(fill);
        self.io.read(Command { device: home.tier, offset, owner, class: Class::Foreground }, buf);
    }

    pub(crate) fn copy_io_done(&mut self, fill: u32, result: Result<(), DeviceError>) {
        if let Some(writes) = &mut self.mover.copies.fills[fill].writes {
            self.io.flushers[FAST].dirty = true;
            writes.ok &= result.is_ok();
            writes.left -= 1;
            if writes.left == 0 {
                self.end_fill(fill);
            }
            return;
        }
        self.unpin_slot(self.mover.copies.fills[fill].home);
        let waiters = std::mem::take(&mut self.mover.copies.fills[fill].waiters);
        for (piece, extent) in waiters {
            self.serve_from_fill(fill, piece, extent, result.is_ok());
        }
        let unwanted =
            self.mover.copies.fills[fill].dropped || self.life.shutdown.began() || self.life.is_read_only();
        if result.is_err() || unwanted || !self.write_fill(fill) {
            self.end_fill(fill);
        }
    }

    /// Gives a read its part. Where some sector of the rest cannot be read, it tries its own alone.
    fn serve_from_fill(&mut self, fill: u32, piece: u32, extent: u16, ok: bool) {
        let e = self.front.pieces[piece].extents[usize::from(extent)];
        let home = self.mover.copies.fills[fill].home;
        if ok {
            let src = self.mover.copies.fills[fill].part(&e);
            self.io.arena.copy(e.buf, src);
            return self.piece_io_done(piece, Ok(()));
        }
        let offset = self.state.geo.block_at(home, e.first);
        let owner = Owner::Piece(piece);
        self.io.read(Command { device: home.tier, offset, owner, class: Class::Foreground }, e.buf);
    }

    /// Parts of what was read that have no copy, what clients read first.
    fn parts_to_copy(&self, fill: u32) -> Vec<(u32, Wish)> {
        let (f, cells) = (&self.mover.copies.fills[fill], &self.mover.copies.cells);
        let size = cells.part_blocks();
        let of = |blocks: Range<u32>| blocks.start / size..blocks.end.div_ceil(size);
        let read = of(f.first..f.first + f.buf.len / BLOCK_BYTES);
        let asked = of(f.asked.clone());
        let wish = |part: u32| match part {
            _ if part == asked.start => Wish::First,
            _ if asked.contains(&part) => Wish::Asked,
            _ if f.stream || (part * size..(part + 1) * size).any(|b| f.used.has(b)) => Wish::Given,
            _ => Wish::Extra,
        };
        let mut parts: Vec<_> =
            read.filter(|part| !cells.has(f.chunk, *part)).map(|part| (part, wish(part))).collect();
        parts.sort_by_key(|(_, wish)| *wish == Wish::Extra);
        parts
    }

    /// Cells for so many parts of a chunk: in slots that nobody has, or in the place of others.
    fn take_cells(&mut self, chunk: Chunk, most: usize, may_push_out: bool) -> Vec<Cell> {
        let spare = self.spare_slots();
        while (self.mover.copies.cells.free() as usize) < most && self.space.slots[FAST].unused() > spare {
            let Some(slot) = self.space.slots[FAST].take() else { break };
            self.space.slots[FAST].lend(slot, None);
            self.mover.copies.add_tray(slot);
        }
        while may_push_out && (self.mover.copies.cells.free() as usize) < most && self.lend_segment() {}
        while !may_push_out
            && (self.mover.copies.cells.free() as usize) < most
            && self.mover.copies.cells.evict_kept()
        {}
        for _ in 0..most {
            if !may_push_out || self.mover.copies.cells.free() as usize >= most || !self.push_out_for(chunk) {
                break;
            }
            self.mover.copies.gave_way = Some(self.io.now);
        }
        let slots = &self.space.slots[FAST];
        self.mover.copies.cells.take(most, |slot| !slots.has_readers(slot))
    }

    /// A copy gives way to one of this chunk, which is being read; false when none may.
    fn push_out_for(&mut self, chunk: Chunk) -> bool {
        let policy = &self.placement.policy;
        let ours = policy.next_use(chunk, true);
        if ours == NextUse::Unknown {
            let ended = self.mover.copies.cells.evict();
            ended.is_some_and(|ended| {
                Copies::learn(&mut self.mover.copies.worth, ended);
                true
            })
        } else {
            let last = self.mover.copies.cells.last_used(|chunk| policy.next_use(chunk, false));
            let leaving = last.filter(|last| last.0 > ours).map(|last| last.1);
            leaving.is_some_and(|leaving| {
                self.mover.copies.cells.drop_chunk(leaving, |_, _| {});
                true
            })
        }
    }

    /// Writes what was read into cells; false when there is nothing to write, or nowhere.
    fn write_fill(&mut self, fill: u32) -> bool {
        let f = &self.mover.copies.fills[fill];
        let (chunk, first, buf, stream) = (f.chunk, f.first, f.buf, f.stream);
        let mut parts = self.parts_to_copy(fill);
        let size = self.mover.copies.cells.part_blocks();
        let part_bytes = size * BLOCK_BYTES;
        if parts.is_empty() || !self.wear_by_copy(u64::from(part_bytes) * parts.len() as u64) {
            return false;
        }
        let taken = self.take_cells(chunk, parts.len(), !stream);
        if taken.is_empty() {
            return false;
        }
        parts.truncate(taken.len());
        parts.sort_unstable_by_key(|(part, _)| *part);
        let mut runs: Vec<(Cell, BufList)> = Vec::new();
        let mut last: Option<(Cell, u32)> = None;
        for ((part, wish), cell) in parts.iter().zip(&taken) {
            if self.mover.copies.cells.fill(chunk, *part, *cell, *wish) && !stream {
                self.mover.copies.worth.missed();
            }
            if *wish == Wish::Given && !stream {
                self.mover.copies.worth.saved();
            }
            let data = buf.slice((part * size - first) * BLOCK_BYTES, part_bytes);
            let follows = last.is_some_and(|(l, _)| self.mover.copies.cells.are_neighbours(l, *cell));
            match runs.last_mut() {
                Some((_, bufs)) if follows && last.is_some_and(|(_, l)| l + 1 == *part) => {
                    bufs.last_mut().expect("a run has data").len += part_bytes;
                }
                Some((_, bufs)) if follows && bufs.len() < MAX_BUFS => bufs.push(data),
                _ => runs.push((*cell, BufList::from_elem(data, 1))),
            }
            last = Some((*cell, *part));
        }
        self.mover.copies.fills[fill].writes =
            Some(Writes { cells: taken, left: runs.len() as u32, ok: true });
        for (cell, bufs) in runs {
            let offset = self.copy_at(self.mover.copies.cells.block_of(cell));
            let (owner, class) = (Owner::Copy(fill), Class::Background);
            self.io.write_all(Command { device: FAST, offset, owner, class }, bufs, false);
        }
        true
    }

    /// Where on the fast device a block of a copy is.
    pub(crate) fn copy_at(&self, at: CellBlock) -> u64 {
        let (slot, block) = self.mover.copies.place(at);
        self.state.geo.block_at(Home { tier: FAST, slot }, block)
    }

    /// Nothing of it is in flight any more.
    fn end_fill(&mut self, fill: u32) {
        let fill = self.mover.copies.fills.remove(fill);
        self.io.arena.free(fill.buf);
        self.wanted.wake = true;
        let Some(writes) = fill.writes else { return };
        for cell in writes.cells {
            if let Some(slot) = self.mover.copies.cells.filled(cell, writes.ok) {
                self.return_slot(slot);
            }
        }
    }

    /// The chunk has no copies from here on: another home.
    pub(crate) fn drop_copies(&mut self, chunk: Chunk) {
        let mut emptied: SmallVec<[Slot; 4]> = SmallVec::new();
        let Copies { cells, worth, fills, .. } = &mut self.mover.copies;
        fills.iter_mut().filter(|fill| fill.chunk == chunk).for_each(|fill| fill.dropped = true);
        cells.drop_chunk(chunk, |ended, slot| {
            Copies::learn(worth, ended);
            emptied.extend(slot);
        });
        for slot in emptied {
            self.return_slot(slot);
        }
    }

    /// The copies in a slot end, and it is somebody's else, as soon as nothing is written into it any more.
    pub(crate) fn drop_tray(&mut self, slot: Slot) {
        let Copies { cells, worth, .. } = &mut self.mover.copies;
        if cells.drop_tray(slot, |ended| Copies::learn(worth, ended)) {
            self.return_slot(slot);
        }
    }

    /// A slot in which no copies are any more.
    fn return_slot(&mut self, slot: Slot) {
        let of_zone = slot.0 >= self.state.geo.slots(FAST);
        if of_zone && self.state.zone.is_lent(Area(slot.0 / self.state.geo.slots_per_area())) {
            return;
        }
        self.mover.copies.cells.remove_tray(slot);
        if of_zone {
            self.wanted.wake = true;
        } else if self.space.slots[FAST].has_readers(slot) && !planted(Bug::CopyFreedUnderRead) {
            self.space.slots[FAST].reclaim(slot);
            self.free_slot(Home { tier: FAST, slot }, Seq(0), false);
        } else {
            self.space.slots[FAST].take_back(slot);
            self.wanted.wake = true;
        }
    }

    /// A chunk was pushed down as it was: its old home, which nothing needs any more, is a copy.
    pub(crate) fn keep_copy(&mut self, chunk: Chunk, slot: Slot) {
        self.drop_copies(chunk);
        self.space.slots[FAST].lend(slot, None);
        self.mover.copies.cells.keep(chunk, slot);
    }

    /// No copy is left in a range of slots, but those that still have I/O in flight.
    pub(crate) fn drop_copies_in(&mut self, range: Range<u32>) {
        for slot in range.map(Slot) {
            if self.mover.copies.are_in(slot) {
                self.drop_tray(slot);
            }
        }
    }

    /// A client's read was served by copies.
    pub(crate) fn count_copy_read(&mut self, piece: u32, e: &Extent) {
        self.mover.copies.read_bytes += u64::from(e.count) * u64::from(BLOCK_BYTES);
        self.count_copy_use(e.first, e.count, piece);
    }

    fn count_copy_use(&mut self, first: u32, count: u32, piece: u32) {
        if self.mover.copies.cells.read(self.front.pieces[piece].chunk, first, count) {
            self.mover.copies.worth.saved();
        }
    }

    /// What the piece read of copies could not be read, or is wrong: they are dropped, and it reads again.
    pub(crate) fn read_without_copy(&mut self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        let from_copy = p.extents.iter().any(|e| matches!(e.source, Source::Copy(..)));
        if from_copy {
            self.drop_copies(p.chunk);
        }
        from_copy
    }

    pub(crate) fn copy_coverage(&self, fill: u32) -> Option<Stage> {
        let fill = self.mover.copies.fills.get(fill)?;
        Some(if fill.writes.is_some() { Stage::CopyWrite } else { Stage::CopyRead })
    }

    pub(crate) fn copies_coverage(&self, f: &mut dyn FnMut(Stage)) {
        self.mover.copies.fills.iter().filter_map(|(i, _)| self.copy_coverage(i)).for_each(f);
    }
}
