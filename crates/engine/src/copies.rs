//! Clean copies: chunks of the slow device that are in fast slots as well, so that the next read of them is fast.
//!
//! A read that has to go to the slow device takes the whole chunk along, in the same seek, and keeps it in a slot that
//! nothing else needs. A chunk that is pushed down leaves a copy behind. Nothing on the devices tells of copies: they
//! end with the opening, or as soon as a home changes, and their slots count as free, for whoever needs one takes it.
//! Each costs the fast device a chunk's writes; a budget for that may forbid them (`wear.rs`).
//! What is read from a copy is held against the checksums of the slow home, so one that is wrong costs a second read.

use crate::action::{Action, BufList, Class, DeviceError};
use crate::arena::{Arena, Buf, Pool};
use crate::bugs::{Bug, planted};
use crate::coverage::Stage;
use crate::engine::{Engine, Owner};
use crate::hash::IndexMap;
use crate::piece::{Extent, PieceKind, Source};
use crate::policy::NextUse;
use crate::slab::Slab;
use crate::units::*;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;

/// Copies being made at a time: as many as a disk's queue holds; each has a buffer of a chunk.
const MAX_FILLS: usize = 32;
/// Copies looked at to find one that gives way.
const EVICTION_STEPS: usize = 64;
/// Copies that give way to a new one at most: the slot of one that is being read is free later.
const EVICTIONS: usize = 4;
/// One fast slot in this many is left without a copy for first writes and what rises, which would have to wait for
/// reads of a copy.
const SPARE_SHARE: u32 = 256;
/// Streams longer than this are copied only where they have been before, bytes: a film or a backup is read once.
const STREAM_BYTES: u64 = 1 << 20;
/// What streams had to leave without a copy counts for this long, ns, and up to twice as long: what is read round and round
/// from a disk comes by again within minutes.
const ASKED_NS: u64 = 60 * Nanos::SECOND;
/// A copy pays when it is read again before it gives way: it saved a seek (some 10 ms of the disk) and cost reading and
/// writing the rest of the chunk (some 1 ms of the disk, less of the SSD). While fewer than one in this many are read
/// again ...
const REPAID_SHARE: u32 = 8;
/// ... only one chunk in this many is copied, to find out when that changes.
const SAMPLE_SHARE: u32 = 16;
/// Copies that gave way after which what came of them counts half: so much is remembered.
const MEMORY: u32 = 1024;

/// Copies have use for one fast slot in this many at least, while the slow tier has room for what is at home there.
/// Replays of three recorded traces with a fast tier of a tenth of what they touch gave mean responses 14, 16 and 10 %
/// below those without; with a quarter, one of them became slower again.
pub(crate) const LEAST_SHARE: u32 = 8;
/// They have use for all but one in this many at most.
const OTHERS_SHARE: u32 = 8;
/// Each copy that gave way after it had been read was worth its slot: copies have use for so many more. One that had not
/// takes one away. A trace of reads alone was answered 1.2 times as fast as with [`LEAST_SHARE`] throughout.
const GROWTH: u32 = 4;

struct Copy {
    slot: Slot,
    filling: bool,
    /// Read since it was looked at for the last time as one to give way.
    used: bool,
    /// Whether it was read at all; unknown for one that cost nothing to make.
    repaid: Option<bool>,
}

struct Fill {
    chunk: Chunk,
    home: Home,
    slot: Slot,
    buf: Buf,
    writes: bool,
    /// Reads that wait for the chunk: pieces, and which of their extents.
    waiters: SmallVec<[(u32, u16); 4]>,
    /// It is not wanted any more.
    dropped: bool,
}

/// Whether a copy gives a read what it needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// It has.
    Now,
    /// It will.
    Later,
    /// The read goes to the device by itself.
    No,
}

/// Chunks that streams read from the slow device once more, and for which no slot was free.
#[derive(Default)]
struct Asked {
    since: Nanos,
    count: u32,
    /// Of the period before.
    before: u32,
}

impl Asked {
    fn another(&mut self, now: Nanos) {
        if now.since(self.since) >= ASKED_NS {
            self.before = if now.since(self.since) < 2 * ASKED_NS { self.count } else { 0 };
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
    }

    fn lately(&self, now: Nanos) -> u32 {
        match now.since(self.since) / ASKED_NS {
            0 => self.count.saturating_add(self.before),
            1 => self.count,
            _ => 0,
        }
    }
}

/// The copies, and those being made.
pub struct Copies {
    of: IndexMap<Chunk, Copy>,
    /// Oldest first; entries whose copy is gone are passed over.
    order: VecDeque<(Chunk, Slot)>,
    fills: Slab<Fill>,
    /// Copies that gave way, and those of them that were read at least once, of late.
    ended: u32,
    repaid: u32,
    candidates: u32,
    /// Slots that copies have use for, of so many.
    wanted: u32,
    slots: u32,
    asked: Asked,
    /// Bytes of clients' reads that copies served.
    pub(crate) read_bytes: u64,
}

/// What the copies of a volume with so many fast slots take at most.
pub(crate) fn ram_bytes_at_most(fast_slots: u64) -> u64 {
    let table = (fast_slots * 8 / 7 + 8).next_power_of_two() * (size_of::<(Chunk, Copy)>() as u64 + 1);
    table + (2 * fast_slots + 128).next_power_of_two() * size_of::<(Chunk, Slot)>() as u64
}

impl Copies {
    pub(crate) fn new(fast_slots: u32) -> Copies {
        Copies {
            of: IndexMap::default(),
            order: VecDeque::new(),
            fills: Slab::new(MAX_FILLS),
            ended: 0,
            repaid: 0,
            candidates: 0,
            wanted: fast_slots / LEAST_SHARE,
            slots: fast_slots,
            asked: Asked::default(),
            read_bytes: 0,
        }
    }

    /// Where a chunk's copy is, if it has one that can be read.
    pub fn slot(&self, chunk: Chunk) -> Option<Slot> {
        if self.of.is_empty() {
            return None;
        }
        self.of.get(&chunk).filter(|copy| !copy.filling).map(|copy| copy.slot)
    }

    /// Whether the slot holds a copy of the chunk, or will.
    pub fn is_in(&self, chunk: Chunk, slot: Slot) -> bool {
        self.of.get(&chunk).is_some_and(|copy| copy.slot == slot)
    }

    /// How many there are, those being made included.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Fast slots that copies have use for, as far as experience goes, and what streams asked for of late.
    pub fn wanted(&self, now: Nanos) -> u32 {
        self.wanted.saturating_add(self.asked.lately(now)).min(self.most_wanted())
    }

    /// Whether a stream comes by again and again where there was no slot for it.
    pub fn are_asked_for(&self, now: Nanos) -> bool {
        self.asked.lately(now) > 0
    }

    fn most_wanted(&self) -> u32 {
        self.slots - self.slots / OTHERS_SHARE
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.of.capacity() * (size_of::<(Chunk, Copy)>() + 1)
            + self.order.capacity() * size_of::<(Chunk, Slot)>()) as u64
    }

    fn fill_of(&self, chunk: Chunk) -> Option<u32> {
        self.fills.iter().find(|(_, fill)| fill.chunk == chunk && !fill.dropped).map(|(i, _)| i)
    }

    /// Whether another chunk is to be copied, as far as experience goes.
    fn is_worth_it(&mut self) -> bool {
        self.candidates = self.candidates.wrapping_add(1);
        self.ended < MEMORY / 4
            || self.repaid * REPAID_SHARE >= self.ended
            || self.candidates.is_multiple_of(SAMPLE_SHARE)
    }

    fn learn(&mut self, repaid: Option<bool>) {
        let Some(repaid) = repaid else { return };
        self.wanted = match repaid {
            true => (self.wanted + GROWTH).min(self.most_wanted()),
            false => self.wanted.saturating_sub(1).max(self.slots / LEAST_SHARE),
        };
        self.ended += 1;
        self.repaid += u32::from(repaid);
        if self.ended >= MEMORY {
            (self.ended, self.repaid) = (self.ended / 2, self.repaid / 2);
        }
    }

    fn enter(&mut self, chunk: Chunk, slot: Slot, filling: bool) {
        self.of.insert(chunk, Copy { slot, filling, used: false, repaid: filling.then_some(false) });
        self.order.push_back((chunk, slot));
        if self.order.len() > 2 * self.of.len() + 64 {
            let of = &self.of;
            self.order.retain(|(chunk, slot)| of.get(chunk).is_some_and(|copy| copy.slot == *slot));
        }
    }

    /// The copy that gives way next: the oldest that was not read since it was looked at last.
    fn oldest(&mut self) -> Option<Chunk> {
        for _ in 0..EVICTION_STEPS {
            let (chunk, slot) = self.order.pop_front()?;
            let Some(copy) = self.of.get_mut(&chunk).filter(|copy| copy.slot == slot) else { continue };
            if !copy.filling && !std::mem::take(&mut copy.used) {
                return Some(chunk);
            }
            self.order.push_back((chunk, slot));
        }
        None
    }

    /// The copy that gives way next where it is known when each is used: the last of some.
    fn last_used(&mut self, next_use: impl Fn(Chunk) -> NextUse) -> Option<(NextUse, Chunk)> {
        let steps = EVICTION_STEPS.min(self.order.len());
        self.order.rotate_left(steps);
        let seen = self.order.iter().rev().take(steps);
        let ready =
            seen.filter(|(chunk, slot)| self.of.get(chunk).is_some_and(|c| c.slot == *slot && !c.filling));
        ready.map(|(chunk, _)| (next_use(*chunk), *chunk)).max()
    }
}

impl<A: Arena> Engine<A> {
    /// A fast slot for a home; a copy gives way for it.
    pub(crate) fn take_fast_slot(&mut self) -> Option<Slot> {
        if self.evict(0, EVICTION_STEPS, None) { self.slots[0].take() } else { None }
    }

    /// Copies give way until more than `spare` fast slots are unused: to one of the rival, if there is one. False when no
    /// other one may, or `most` did; the last of them may have been enough.
    fn evict(&mut self, spare: u32, most: usize, rival: Option<Chunk>) -> bool {
        for _ in 0..most {
            if self.slots[0].unused() > spare {
                return true;
            }
            let leaving = match rival {
                Some(chunk) => self.copy_to_leave(chunk),
                None => self.copies.oldest(),
            };
            let Some(leaving) = leaving else { return false };
            self.drop_copy(leaving);
        }
        false
    }

    /// A slot of a tier for a home.
    pub(crate) fn take_slot(&mut self, tier: Tier) -> Option<Slot> {
        if tier == FAST { self.take_fast_slot() } else { self.take_slow_slot() }
    }

    /// A read needs an extent from the slow home of its chunk: it takes it from the memory that a copy is being written from,
    /// waits for a copy that is being made, or has one made. What was wrong is read again without any of that.
    pub(crate) fn read_with_copy(&mut self, piece: u32, extent: u16, home: Home, e: &Extent) -> Fetched {
        let p = &self.pieces[piece];
        let (chunk, request, reads) = (p.chunk, p.request, p.kind == PieceKind::Read);
        if p.again {
            return Fetched::No;
        }
        if let Some(fill) = self.copies.fill_of(chunk) {
            let fill = &mut self.copies.fills[fill];
            if fill.home != home {
                return Fetched::No;
            }
            if fill.writes {
                self.arena.copy(e.buf, fill.buf.slice(e.first * BLOCK_BYTES, e.count * BLOCK_BYTES));
                return Fetched::Now;
            }
            if reads {
                fill.waiters.push((piece, extent));
                return Fetched::Later;
            }
        }
        if !reads {
            return Fetched::No;
        }
        let stream = self.requests[request].stream_bytes > STREAM_BYTES;
        if stream && self.policy.heat(chunk, self.now) == 0
            || self.shutdown.began()
            || self.read_only
            || self.state.map.is_busy(chunk)
            || self.copies.slot(chunk).is_some()
            || !self.copies.fills.has_room()
            || !self.may_copy()
            || !stream && !self.copy_is_worth_it(chunk)
        {
            return Fetched::No;
        }
        if stream && self.slots[0].unused() <= self.spare_slots() {
            // What is read round and round would push out each copy just before it is read again.
            self.copies.asked.another(self.now);
            return Fetched::No;
        }
        if self.begin_copy(chunk, home, (piece, extent)) { Fetched::Later } else { Fetched::No }
    }

    /// Fast slots that are left without a copy.
    fn spare_slots(&self) -> u32 {
        self.slots[0].count() / SPARE_SHARE
    }

    /// Whether a chunk that is being read is to be copied: where it is known, if it will be touched again after that.
    fn copy_is_worth_it(&mut self, chunk: Chunk) -> bool {
        match self.policy.next_use(chunk, true) {
            NextUse::Unknown => self.copies.is_worth_it(),
            next => next != NextUse::Never,
        }
    }

    /// The copy that gives way to one of this chunk, which is being read.
    fn copy_to_leave(&mut self, chunk: Chunk) -> Option<Chunk> {
        let policy = &self.policy;
        match policy.next_use(chunk, true) {
            NextUse::Unknown => self.copies.oldest(),
            ours => self
                .copies
                .last_used(|chunk| policy.next_use(chunk, false))
                .filter(|last| last.0 > ours)
                .map(|last| last.1),
        }
    }

    fn begin_copy(&mut self, chunk: Chunk, home: Home, waiter: (u32, u16)) -> bool {
        let bytes = self.state.geo.chunk_bytes;
        let spare = self.spare_slots();
        if !self.evict(spare, EVICTIONS, Some(chunk)) && self.slots[0].unused() <= spare {
            return false;
        }
        let Some(buf) = self.arena.alloc(Pool::Background, bytes) else { return false };
        let Some(slot) = self.slots[0].take() else {
            self.arena.free(buf);
            return false;
        };
        self.slots[0].lend(slot, chunk);
        self.copies.enter(chunk, slot, true);
        let waiters = SmallVec::from_elem(waiter, 1);
        let fill =
            self.copies.fills.insert(Fill { chunk, home, slot, buf, writes: false, waiters, dropped: false });
        self.slots[usize::from(home.tier.0)].pin(home.slot);
        let token = self.tokens.issue(home.tier, Owner::Copy(fill), self.now);
        let offset = self.state.geo.slot_at(home);
        self.out.push_back(Action::Read { device: home.tier, offset, buf, token, class: Class::Foreground });
        true
    }

    pub(crate) fn copy_io_done(&mut self, fill: u32, result: Result<(), DeviceError>) {
        if self.copies.fills[fill].writes {
            self.flushers[0].dirty = true;
            return self.end_copy(fill, result.is_ok());
        }
        self.unpin_slot(self.copies.fills[fill].home);
        let waiters = std::mem::take(&mut self.copies.fills[fill].waiters);
        for (piece, extent) in waiters {
            self.serve_from_chunk(fill, piece, extent, result.is_ok());
        }
        let f = &self.copies.fills[fill];
        let (slot, buf, dropped) = (f.slot, f.buf, f.dropped);
        let unwanted = result.is_err() || dropped || self.shutdown.began() || self.read_only;
        if unwanted || !self.wear_by_copy(u64::from(buf.len)) {
            return self.end_copy(fill, false);
        }
        self.copies.fills[fill].writes = true;
        self.stats.device_written[0] += u64::from(buf.len);
        let token = self.tokens.issue(FAST, Owner::Copy(fill), self.now);
        let offset = self.state.geo.slot_at(Home { tier: FAST, slot });
        let (bufs, class) = (BufList::from_elem(buf, 1), Class::Background);
        self.out.push_back(Action::Write { device: FAST, offset, bufs, fua: false, token, class });
    }

    /// Gives a read its part of the chunk. Where some sector of it cannot be read, it tries its own alone.
    fn serve_from_chunk(&mut self, fill: u32, piece: u32, extent: u16, ok: bool) {
        let e = self.pieces[piece].extents[usize::from(extent)];
        let home = self.copies.fills[fill].home;
        if ok {
            let chunk = self.copies.fills[fill].buf;
            self.arena.copy(e.buf, chunk.slice(e.first * BLOCK_BYTES, e.count * BLOCK_BYTES));
            return self.piece_io_done(piece, Ok(()));
        }
        let offset = self.state.geo.block_at(home, e.first);
        let token = self.tokens.issue(home.tier, Owner::Piece(piece), self.now);
        let class = Class::Foreground;
        self.out.push_back(Action::Read { device: home.tier, offset, buf: e.buf, token, class });
    }

    /// Nothing of it is in flight any more.
    fn end_copy(&mut self, fill: u32, ok: bool) {
        let fill = self.copies.fills.remove(fill);
        self.arena.free(fill.buf);
        self.wanted.wake = true;
        if fill.dropped {
            if !planted(Bug::CopyFreedWhileWritten) {
                self.return_slot(fill.slot);
            }
            return;
        }
        let copy = self.copies.of.get_mut(&fill.chunk).expect("a copy being made is known");
        copy.filling = false;
        if !ok {
            self.drop_copy(fill.chunk);
        }
    }

    /// The chunk has no copy from here on: another home, or the slot is needed.
    pub(crate) fn drop_copy(&mut self, chunk: Chunk) {
        let Some(copy) = self.copies.of.remove(&chunk) else { return };
        let fill = self.copies.fill_of(chunk).filter(|_| copy.filling);
        if let Some(fill) = fill {
            // What is written into the slot late must not meet its next owner.
            self.slots[0].set_owner(copy.slot, None);
            self.copies.fills[fill].dropped = true;
            if planted(Bug::CopyFreedWhileWritten) {
                self.return_slot(copy.slot);
            }
            return;
        }
        self.copies.learn(copy.repaid);
        self.return_slot(copy.slot);
    }

    fn return_slot(&mut self, slot: Slot) {
        if self.slots[0].has_readers(slot) && !planted(Bug::CopyFreedUnderRead) {
            self.slots[0].reclaim(slot);
            self.free_slot(Home { tier: FAST, slot }, Seq(0), false);
        } else {
            self.slots[0].take_back(slot);
            self.wanted.wake = true;
        }
    }

    /// A chunk was pushed down as it was: its old home, which nothing needs any more, is a copy.
    pub(crate) fn keep_copy(&mut self, chunk: Chunk, slot: Slot) {
        self.slots[0].lend(slot, chunk);
        self.copies.enter(chunk, slot, false);
    }

    /// No copy is left in a range of slots, but those that still have I/O in flight.
    pub(crate) fn drop_copies_in(&mut self, range: Range<u32>) {
        for slot in range.map(Slot) {
            if let Some(chunk) = self.slots[0].owner(slot).filter(|chunk| self.copies.is_in(*chunk, slot)) {
                self.drop_copy(chunk);
            }
        }
    }

    /// A client's read was served by the copy.
    pub(crate) fn count_copy_read(&mut self, chunk: Chunk, bytes: u64) {
        self.copies.read_bytes += bytes;
        if let Some(copy) = self.copies.of.get_mut(&chunk) {
            (copy.used, copy.repaid) = (true, copy.repaid.map(|_| true));
        }
    }

    /// What the piece read of copies could not be read, or is wrong: they are dropped, and it reads again.
    pub(crate) fn read_without_copy(&mut self, piece: u32) -> bool {
        let p = &self.pieces[piece];
        let from_copy = p.extents.iter().any(|e| matches!(e.source, Source::Copy(..)));
        if from_copy {
            self.drop_copy(p.chunk);
        }
        from_copy
    }

    pub(crate) fn copy_coverage(&self, fill: u32) -> Option<Stage> {
        self.copies.fills.get(fill).map(|f| if f.writes { Stage::CopyWrite } else { Stage::CopyRead })
    }

    pub(crate) fn copies_coverage(&self, f: &mut dyn FnMut(Stage)) {
        self.copies.fills.iter().filter_map(|(i, _)| self.copy_coverage(i)).for_each(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_streams_ask_for_is_wanted_for_a_while() {
        let mut copies = Copies::new(800);
        let at = |seconds: u64| Nanos(seconds * Nanos::SECOND);
        (100..120).for_each(|second| copies.asked.another(at(second)));
        assert_eq!(copies.wanted(at(120)), 120);
        assert!(copies.are_asked_for(at(219)), "for a period more");
        assert!(!copies.are_asked_for(at(221)));
        (0..5000).for_each(|_| copies.asked.another(at(230)));
        assert_eq!(copies.wanted(at(230)), 700, "others keep theirs");
        copies.asked.another(at(295));
        assert_eq!(copies.asked.lately(at(295)), 5001);
        copies.asked.another(at(500));
        assert_eq!(copies.asked.lately(at(500)), 1);
    }

    #[test]
    fn copies_that_are_read_again_get_more_slots_and_others_fewer() {
        let mut copies = Copies::new(800);
        assert_eq!(copies.wanted(Nanos(0)), 100);
        copies.learn(None);
        copies.learn(Some(false));
        assert_eq!(copies.wanted(Nanos(0)), 100, "never below their share");
        (0..10).for_each(|_| copies.learn(Some(true)));
        (0..5).for_each(|_| copies.learn(Some(false)));
        assert_eq!(copies.wanted(Nanos(0)), 100 + 10 * GROWTH - 5);
        (0..1000).for_each(|_| copies.learn(Some(true)));
        assert_eq!(copies.wanted(Nanos(0)), 700, "others keep theirs");
    }
}
