//! The model volume: per sector, the values it may legally hold.
//!
//! The promise is that of a disk with a volatile write cache, per sector of 512 bytes. Each sector
//! has a list of candidates. One is *current* for a read unless a write that began after it
//! had ended was itself answered before the read began. One may be found *after a crash* unless a
//! write that began after it had ended is covered by an answered flush or was FUA. Time is
//! the order of calls.

mod content;

pub use content::{SECTOR, SectorBytes, pattern};

use bimetal_units::BLOCK_BYTES;
use content::{Content, Contents};
use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::ops::Range;

/// Candidates in a sector beyond which no sub-sector write is taken: its results would multiply.
const MAX_BASES: usize = 4;
/// Candidates in a sector beyond which dead ones are swept out.
const SWEEP_AT: usize = 4;
const NEVER: u32 = u32::MAX;
/// The pseudo-write that stands for what was there before.
const BASE: u32 = 0;

/// A write (or discard, or zeroing) that the model knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteHandle(u32);
/// A read in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadHandle(u32);
/// A flush in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushHandle(u32);

/// A sector holds what it may not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The sector of the volume.
    pub sector: u64,
    /// What was found there.
    pub found: String,
    /// What might have been.
    pub legal: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { sector, found, legal } = self;
        let byte = sector * SECTOR as u64;
        write!(f, "sector {sector} (byte {byte}) holds {found}; legal: {}", legal.join(" | "))
    }
}

#[derive(Clone, Copy)]
struct Op {
    /// The write's number, unique over the run; zero for zeroing.
    write: u32,
    begin: u32,
    /// [`NEVER`] while in flight.
    end: u32,
    ok: bool,
    fua: bool,
    range: (u64, u64),
}

#[derive(Clone, Copy)]
struct Candidate {
    op: u32,
    /// For a sub-sector write: the write that made the rest of the sector; else itself.
    root: u32,
    /// For a sub-sector write on top of another one in flight: that one, else [`NEVER`].
    via: u32,
    content: Content,
    /// The write that a read showed to have come after this one, [`NEVER`] if none.
    before: u32,
    /// When that was seen.
    seen: u32,
}

type List = SmallVec<[Candidate; 2]>;

/// The model of one volume.
#[derive(Clone)]
pub struct Model {
    sectors: Vec<List>,
    /// Sectors that may have more than one candidate.
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    ops: Vec<Op>,
    contents: Contents,
    reads: Vec<u32>,
    tick: u32,
    /// Writes that ended before this are durable.
    covered: u32,
    next_write: u32,
    lost_cache: bool,
}

fn candidate(op: u32, content: Content) -> Candidate {
    Candidate { op, root: op, via: NEVER, content, before: NEVER, seen: NEVER }
}

impl Model {
    /// A volume that reads zeros. `salt` sets its data apart from that of other volumes.
    pub fn new(size_bytes: u64, salt: u64) -> Model {
        let sectors = (size_bytes / SECTOR as u64) as usize;
        let mut model = Model {
            sectors: vec![List::new(); sectors],
            touched: Vec::new(),
            is_touched: vec![false; sectors],
            ops: Vec::new(),
            contents: Contents::new(salt),
            reads: Vec::new(),
            tick: 0,
            covered: 0,
            next_write: 1,
            lost_cache: false,
        };
        model.restart();
        model
    }

    fn restart(&mut self) {
        self.ops.clear();
        self.ops.push(Op { write: 0, begin: 0, end: 0, ok: true, fua: true, range: (0, 0) });
        self.reads.clear();
        (self.tick, self.covered, self.lost_cache) = (0, 0, false);
    }

    fn now(&mut self) -> u32 {
        self.tick += 1;
        self.tick
    }

    /// Whether the model can follow a write of this range: sub-sector writes need few candidates
    /// in their first and last sector, and few other such writes in flight there.
    pub fn can_follow(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let sector = SECTOR as u64;
        let edge = |at: u64| {
            let list = &self.sectors[(at / sector) as usize];
            let partial =
                list.iter().filter(|c| self.in_flight(c.op) && !self.whole(c.op, at / sector)).count();
            list.len() <= MAX_BASES && partial <= 1
        };
        (offset.is_multiple_of(sector) || edge(offset)) && (end.is_multiple_of(sector) || edge(end - 1))
    }

    fn in_flight(&self, op: u32) -> bool {
        self.ops[op as usize].end == NEVER
    }

    /// The bytes of a sector that an operation covers.
    fn part(&self, op: u32, sector: u64) -> Range<usize> {
        let (start, end) = self.ops[op as usize].range;
        let base = sector * SECTOR as u64;
        start.saturating_sub(base) as usize..(end - base).min(SECTOR as u64) as usize
    }

    fn whole(&self, op: u32, sector: u64) -> bool {
        op == BASE || self.part(op, sector) == (0..SECTOR)
    }

    /// A write begins.
    pub fn begin_write(&mut self, offset: u64, len: u64, fua: bool) -> WriteHandle {
        let write = self.next_write;
        self.next_write += 1;
        self.begin(write, offset, offset + len, fua)
    }

    /// A zeroing begins.
    pub fn begin_zeroes(&mut self, offset: u64, len: u64, fua: bool) -> WriteHandle {
        self.begin(0, offset, offset + len, fua)
    }

    /// A discard begins: whole blocks read zeros, parts of blocks are left alone.
    pub fn begin_discard(&mut self, offset: u64, len: u64, fua: bool) -> WriteHandle {
        let block = u64::from(BLOCK_BYTES);
        let start = offset.next_multiple_of(block);
        let end = (offset + len) / block * block;
        self.begin(0, start, end.max(start), fua)
    }

    /// The number that a write's data carries; zero for zeroing.
    pub fn write_number(&self, handle: WriteHandle) -> u32 {
        self.ops[handle.0 as usize].write
    }

    fn begin(&mut self, write: u32, start: u64, end: u64, fua: bool) -> WriteHandle {
        let begin = self.now();
        let op = self.ops.len() as u32;
        self.ops.push(Op { write, begin, end: NEVER, ok: false, fua, range: (start, end) });
        let sector = SECTOR as u64;
        if start < end {
            for s in start / sector..end.div_ceil(sector) {
                self.add(s, op);
            }
        }
        WriteHandle(op)
    }

    /// Adds the candidates that an operation makes in a sector.
    fn add(&mut self, sector: u64, op: u32) {
        let index = sector as usize;
        if !self.is_touched[index] {
            self.is_touched[index] = true;
            self.touched.push(index as u32);
        }
        if self.sectors[index].is_empty() {
            self.sectors[index].push(candidate(BASE, Content::ZERO));
        }
        if self.sectors[index].len() >= SWEEP_AT {
            self.sweep(index);
        }
        let write = self.ops[op as usize].write;
        let made: SmallVec<[Candidate; 4]> = if self.whole(op, sector) {
            smallvec![candidate(op, if write == 0 { Content::ZERO } else { Content::pattern(write) })]
        } else {
            let bases = self.current(index, self.tick);
            bases.into_iter().map(|base| self.overlay(sector, base, op)).collect()
        };
        let others: SmallVec<[u32; 2]> = self.partial_in_flight(sector, op);
        for new in made {
            self.push(index, new);
            for &other in &others {
                let over = self.overlay(sector, new, other);
                self.push(index, over);
            }
        }
    }

    fn partial_in_flight(&self, sector: u64, except: u32) -> SmallVec<[u32; 2]> {
        let mut found = SmallVec::new();
        for c in &self.sectors[sector as usize] {
            if c.op != except && self.in_flight(c.op) && !self.whole(c.op, sector) && !found.contains(&c.op) {
                found.push(c.op);
            }
        }
        found
    }

    /// What a sub-sector write makes of a candidate.
    fn overlay(&mut self, sector: u64, base: Candidate, op: u32) -> Candidate {
        let mut bytes = [0; SECTOR];
        self.contents.bytes(sector, base.content, &mut bytes);
        let mut new = [0; SECTOR];
        let write = self.ops[op as usize].write;
        if write != 0 {
            pattern(self.contents.salt, sector, write, &mut new);
        }
        let part = self.part(op, sector);
        bytes[part.clone()].copy_from_slice(&new[part]);
        let on_top = base.op != base.root && self.in_flight(base.op);
        let (root, via) = if on_top { (base.root, base.op) } else { (base.op, NEVER) };
        Candidate { root, via, ..candidate(op, self.contents.keep(bytes)) }
    }

    fn push(&mut self, index: usize, new: Candidate) {
        let same = |c: &Candidate| {
            (c.op, c.root, c.via) == (new.op, new.root, new.via)
                && self.contents.same(index as u64, c.content, new.content)
        };
        if !self.sectors[index].iter().any(same) {
            self.sectors[index].push(new);
        }
    }

    /// Whether a candidate lacks a write that must be in it: one that began after the rest of
    /// the sector was made, is no part of it, and of which `must` is true.
    fn lacks(&self, list: &List, c: &Candidate, must: impl Fn(u32) -> bool) -> bool {
        c.op != c.root
            && list.iter().any(|o| {
                let inside = o.op == c.op || o.op == c.via || o.op == c.root;
                !inside && self.ops[o.op as usize].begin > self.ops[c.root as usize].end && must(o.op)
            })
    }

    /// Fills the payload of a write that began, whose first byte is at `offset` in the volume.
    pub fn fill(&self, handle: WriteHandle, offset: u64, out: &mut [u8]) {
        let write = self.ops[handle.0 as usize].write;
        each_sector(offset, out.len(), |sector, from, range| {
            let mut bytes = [0; SECTOR];
            pattern(self.contents.salt, sector, write, &mut bytes);
            let len = range.len();
            out[range].copy_from_slice(&bytes[from..from + len]);
        });
    }

    /// A write, zeroing or discard was answered.
    pub fn end_write(&mut self, handle: WriteHandle, ok: bool) {
        let end = self.now();
        let op = &mut self.ops[handle.0 as usize];
        (op.end, op.ok) = (end, ok);
    }

    /// A flush begins.
    pub fn begin_flush(&mut self) -> FlushHandle {
        FlushHandle(self.now())
    }

    /// A flush was answered.
    pub fn end_flush(&mut self, handle: FlushHandle, ok: bool) {
        if ok {
            self.covered = self.covered.max(handle.0);
        }
    }

    /// All that was answered is durable: the volume was closed in order.
    pub fn cover_all(&mut self) {
        self.covered = self.now();
    }

    /// A device lost part of its cache while running: until the next opening, reads may go back
    /// to any value that a crash would allow.
    pub fn cache_was_lost(&mut self) {
        self.lost_cache = true;
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> ReadHandle {
        let now = self.now();
        self.reads.push(now);
        ReadHandle(now)
    }

    /// A read failed.
    pub fn fail_read(&mut self, handle: ReadHandle) {
        self.reads.retain(|&r| r != handle.0);
    }

    /// A read was answered with `data`, whose first byte is at `offset`.
    pub fn end_read(&mut self, handle: ReadHandle, offset: u64, data: &[u8]) -> Result<(), Mismatch> {
        self.fail_read(handle);
        let mut result = Ok(());
        each_sector(offset, data.len(), |sector, from, range| {
            if result.is_ok() {
                result = self.check(handle.0, sector, from, &data[range]);
            }
        });
        result
    }

    /// Whether the volume may be found so where nothing was asked of it since it went down: what a look at it shows decides
    /// nothing, so nothing is learned.
    pub fn may_be_found(&self, offset: u64, data: &[u8]) -> Result<(), Mismatch> {
        let mut result = Ok(());
        each_sector(offset, data.len(), |sector, from, range| {
            let (list, found) = (&self.sectors[sector as usize], &data[range]);
            let fits = |content| self.contents.matches(sector, content, from, found);
            let fits =
                if list.is_empty() { fits(Content::ZERO) } else { list.iter().any(|c| fits(c.content)) };
            if !fits && result.is_ok() {
                result = Err(self.mismatch(0, sector, found));
            }
        });
        result
    }

    fn check(&mut self, began: u32, sector: u64, from: usize, found: &[u8]) -> Result<(), Mismatch> {
        let index = sector as usize;
        let list = &self.sectors[index];
        if list.is_empty() || (list.len() == 1 && list[0].op == BASE) {
            let only = list.first().map_or(Content::ZERO, |c| c.content);
            let fits = self.contents.matches(sector, only, from, found);
            return if fits { Ok(()) } else { Err(self.mismatch(began, sector, found)) };
        }
        let floor = self.floor(list, began);
        let crash_floor = self.crash_floor(list);
        let mut matching = SmallVec::<[usize; 4]>::new();
        for (i, c) in list.iter().enumerate() {
            let legal = self.is_current(list, c, floor, began)
                || (self.lost_cache && self.survives(list, c, crash_floor));
            if legal && self.contents.matches(sector, c.content, from, found) {
                matching.push(i);
            }
        }
        if matching.is_empty() {
            return Err(self.mismatch(began, sector, found));
        }
        if found.len() == SECTOR && !self.lost_cache {
            self.learn(index, &matching, began);
        }
        Ok(())
    }

    /// What a read showed narrows what later ones may show.
    fn learn(&mut self, index: usize, matching: &[usize], began: u32) {
        let list = &self.sectors[index];
        if list.iter().any(|c| !self.in_flight(c.op) && !self.ops[c.op as usize].ok) {
            return;
        }
        let shown = list[matching[0]];
        if matching.iter().any(|&i| list[i].op != shown.op) {
            return;
        }
        if shown.op == BASE {
            // What recovery left is one of several values: now it is known which.
            self.sectors[index].retain(|c| c.op != BASE || c.content == shown.content);
        }
        let list = &self.sectors[index];
        let settled = list.iter().all(|c| self.ops[c.op as usize].end < began);
        if !settled || list.len() == 1 {
            return;
        }
        let now = self.now();
        for c in &mut self.sectors[index] {
            if c.content != shown.content && c.before == NEVER {
                (c.before, c.seen) = (shown.op, now);
            }
        }
    }

    /// The latest beginning of a write that was answered before `began`.
    fn floor(&self, list: &List, began: u32) -> u32 {
        let answered = list.iter().map(|c| &self.ops[c.op as usize]).filter(|o| o.ok && o.end < began);
        answered.map(|o| o.begin).max().unwrap_or(0)
    }

    fn is_current(&self, list: &List, c: &Candidate, floor: u32, began: u32) -> bool {
        let answered = |op: u32| self.ops[op as usize].ok && self.ops[op as usize].end < began;
        self.ops[c.op as usize].end >= floor
            && (c.before == NEVER || c.seen > began)
            && !self.lacks(list, c, answered)
    }

    fn is_covered(&self, op: u32) -> bool {
        let o = &self.ops[op as usize];
        o.ok && (o.fua || o.end < self.covered)
    }

    fn crash_floor(&self, list: &List) -> u32 {
        let covered = list.iter().filter(|c| self.is_covered(c.op));
        covered.map(|c| self.ops[c.op as usize].begin).max().unwrap_or(0)
    }

    fn survives(&self, list: &List, c: &Candidate, crash_floor: u32) -> bool {
        self.ops[c.op as usize].end >= crash_floor
            && (c.before == NEVER || !self.is_covered(c.before))
            && !self.lacks(list, c, |op| self.is_covered(op))
    }

    /// The values that are current for a read that begins at `began`.
    fn current(&self, index: usize, began: u32) -> SmallVec<[Candidate; 4]> {
        let list = &self.sectors[index];
        let floor = self.floor(list, began);
        list.iter().filter(|c| self.is_current(list, c, floor, began)).copied().collect()
    }

    /// Drops the candidates that no read in flight, no later one and no crash can show.
    fn sweep(&mut self, index: usize) {
        let began = self.reads.iter().copied().min().unwrap_or(self.tick);
        let list = &self.sectors[index];
        let (floor, crash_floor) = (self.floor(list, began), self.crash_floor(list));
        let kept = list
            .iter()
            .filter(|c| self.is_current(list, c, floor, began) || self.survives(list, c, crash_floor));
        self.sectors[index] = kept.copied().collect();
    }

    fn mismatch(&self, began: u32, sector: u64, found: &[u8]) -> Mismatch {
        let index = sector as usize;
        let mut legal: Vec<String> =
            self.current(index, began).iter().map(|c| self.contents.name(sector, c.content)).collect();
        if self.sectors[index].is_empty() {
            legal.push("zeros".into());
        }
        let mut name = self.contents.describe(sector, found);
        let known =
            |c: &Candidate| found.len() == SECTOR && self.contents.matches(sector, c.content, 0, found);
        if self.sectors[index].iter().any(known) {
            name.push_str(", which was superseded");
        }
        Mismatch { sector, found: name, legal }
    }

    /// The sector whose data this is, as far as it says so itself.
    pub fn sector_of(&self, bytes: &[u8]) -> Option<u64> {
        let sector = self.contents.sector_of(bytes)?;
        (sector < self.sectors.len() as u64).then_some(sector)
    }

    /// Where the volume kept a sector it has changed to this, without a checksum that would tell: it may be read. Only
    /// while the volume is closed.
    pub fn decayed(&mut self, sector: u64, bytes: &SectorBytes) {
        let content = self.contents.keep(*bytes);
        let list = &mut self.sectors[sector as usize];
        if list.is_empty() {
            list.push(candidate(BASE, Content::ZERO));
        }
        list.push(candidate(BASE, content));
    }

    /// Whether a sector that was read as a whole, and was not since the volume went down, holds what was written last of
    /// what may have survived.
    pub fn is_newest(&self, sector: u64, found: &[u8]) -> bool {
        let newest = self.sectors[sector as usize].last().map_or(Content::ZERO, |c| c.content);
        self.contents.matches(sector, newest, 0, found)
    }

    /// The volume is what it was then, after a crash at that moment. No write is numbered as one that has been since.
    pub fn go_back_to(&mut self, then: &Model) {
        let next_write = self.next_write;
        *self = then.clone();
        self.next_write = next_write;
        self.crash();
    }

    /// The volume went down, in whatever way: what survives is one of each sector's candidates.
    /// Returns the sectors that were written since the last opening.
    pub fn crash(&mut self) -> Vec<u32> {
        let touched = std::mem::take(&mut self.touched);
        for &s in &touched {
            let index = s as usize;
            self.is_touched[index] = false;
            let crash_floor = self.crash_floor(&self.sectors[index]);
            let mut left = List::new();
            let list = &self.sectors[index];
            for c in list.iter().filter(|c| self.survives(list, c, crash_floor)) {
                // The newest stays the last.
                left.retain(|l| !self.contents.same(u64::from(s), l.content, c.content));
                left.push(candidate(BASE, c.content));
            }
            if left.len() == 1 && left[0].content == Content::ZERO {
                left.clear();
            }
            self.sectors[index] = left;
        }
        self.restart();
        touched
    }
}

/// Calls `f` for each sector that a byte range touches: the sector, the first byte in it, the part of the range.
fn each_sector(offset: u64, len: usize, mut f: impl FnMut(u64, usize, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let from = (at % SECTOR as u64) as usize;
        let count = (SECTOR - from).min(len - done);
        f(at / SECTOR as u64, from, done..done + count);
        done += count;
    }
}
