//! What is still to be copied, and at which pace. Of each byte that is not in here, old and new are the same.

use crate::bugs::{Bug, planted};
use crate::plan::{Pace, Plan};
use bimetal_engine::arena::Buf;
use bimetal_units::{BLOCK_BYTES, Nanos};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Copied at once: one is read while another is written.
const PIECES: usize = 2;
/// Clients are busy if one asked for something so lately.
const BUSY_NS: u64 = Nanos::SECOND / 10;
/// How soon it is tried again where there was no memory.
const NO_MEMORY_NS: u64 = Nanos::SECOND / 50;
/// How soon a block is read again that could not be.
const AGAIN_NS: u64 = 60 * Nanos::SECOND;
/// A block is left out when it could not be read so often, after each of which the device could read a superblock.
const SHOWN_TIMES: u32 = 3;

/// How far a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Writes to its range are on their way.
    Waiting,
    /// The old device reads it.
    Reading,
    /// The old device could not read it, and reads a superblock to show that it reads anything.
    Probing,
    /// The new one writes it.
    Writing,
}

/// A range that is being copied. Nobody writes to it meanwhile.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) buf: Buf,
    pub(crate) stage: Stage,
    began: Nanos,
}

/// What is to be copied.
#[derive(Debug)]
pub(crate) struct Copying {
    bytes: u64,
    pace: Pace,
    /// Blocks that are not copied: each device has its own superblocks there.
    own: [u64; 2],
    /// From here on nothing has been.
    next: u64,
    /// Ranges before that, which are to be copied once more.
    again: VecDeque<Range<u64>>,
    /// Blocks that the old device cannot read, and how often that was shown.
    bad: BTreeMap<u64, u32>,
    /// The same of those that are read again.
    tried: BTreeMap<u64, u32>,
    bad_at: Nanos,
    /// What it cannot read is left out once that is certain.
    leaves_bad: bool,
    /// Blocks that were.
    left: u64,
    pieces: BTreeMap<u64, Piece>,
    rests_until: Nanos,
    clients_at: Option<Nanos>,
    /// Nothing new is begun.
    pub(crate) halted: bool,
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Copying {
    /// Everything from this byte on, and these ranges before it.
    pub(crate) fn new(plan: &Plan, next: u64, again: Vec<Range<u64>>) -> Copying {
        let again = again.into_iter().map(|range| range.start..range.end.min(next));
        Copying {
            bytes: plan.bytes,
            pace: plan.pace,
            own: plan.own,
            next,
            again: again.filter(|range| !range.is_empty()).collect(),
            bad: BTreeMap::new(),
            tried: BTreeMap::new(),
            bad_at: Nanos(0),
            leaves_bad: false,
            left: 0,
            pieces: BTreeMap::new(),
            rests_until: Nanos(0),
            clients_at: None,
            halted: true,
        }
    }

    /// Whether a range is one of the blocks that each device has its own of.
    pub(crate) fn is_own(&self, range: &Range<u64>) -> bool {
        self.own.iter().any(|at| overlap(range, &(*at..at + BLOCK)))
    }

    /// Whether nothing of a range has been copied yet, nor is.
    pub(crate) fn is_ahead(&self, range: &Range<u64>) -> bool {
        range.start >= self.next
    }

    /// Whether all of a range is copied.
    pub(crate) fn is_copied(&self, range: &Range<u64>) -> bool {
        range.end <= self.next
            && !self.is_own(range)
            && !self.is_in_piece(range)
            && !self.again.iter().any(|again| overlap(again, range))
            && !self.bad.keys().any(|at| range.contains(at))
    }

    /// Whether a part of a range is being copied.
    pub(crate) fn is_in_piece(&self, range: &Range<u64>) -> bool {
        self.pieces.values().any(|piece| overlap(&piece.range, range))
    }

    /// All is copied.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_still() && self.next == self.bytes && self.again.is_empty() && self.bad.is_empty()
    }

    /// Nothing is being copied.
    pub(crate) fn is_still(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Below this byte all is copied.
    pub(crate) fn low(&self) -> u64 {
        let pieces = self.pieces.keys().copied();
        let again = self.again.iter().map(|range| range.start);
        pieces.chain(again).chain(self.bad.keys().copied()).fold(self.next, u64::min)
    }

    /// Bytes that are copied.
    pub(crate) fn done_bytes(&self) -> u64 {
        let len = |range: &Range<u64>| range.end - range.start;
        let left = self
            .pieces
            .values()
            .map(|piece| len(&piece.range))
            .chain(self.again.iter().map(len))
            .sum::<u64>();
        self.next.saturating_sub(left + self.bad.len() as u64 * BLOCK)
    }

    /// Blocks that the old device cannot read, for now.
    pub(crate) fn bad_blocks(&self) -> u64 {
        self.bad.len() as u64
    }

    /// Blocks that were left out because of that.
    pub(crate) fn left_blocks(&self) -> u64 {
        self.left
    }

    /// A client has asked for something.
    pub(crate) fn client_asked(&mut self, now: Nanos) {
        self.clients_at = Some(now);
    }

    /// Whether what is to be copied once more is being copied: two writes that failed may have left the same range twice.
    fn is_blocked(&self) -> bool {
        self.again.front().is_some_and(|range| self.is_in_piece(range))
    }

    /// When there is something to do next; none where nothing is left, or where answers are waited for.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.halted || self.pieces.len() >= PIECES || self.is_blocked() {
            return None;
        }
        let left = self.next < self.bytes || !self.again.is_empty();
        match left {
            true => Some(self.rests_until),
            false => (!self.bad.is_empty()).then_some(self.bad_at.max(self.rests_until)),
        }
    }

    /// The range that is copied next, if it is time for it. What nobody needs, as the machine says, counts as copied: what is
    /// written there from now on goes to both.
    pub(crate) fn choose(
        &mut self,
        now: Nanos,
        next_needed: impl Fn(Range<u64>, u64) -> Option<Range<u64>>,
    ) -> Option<Range<u64>> {
        if self.halted || self.pieces.len() >= PIECES || now < self.rests_until {
            return None;
        }
        if self.again.is_empty() && self.next == self.bytes && now >= self.bad_at {
            self.again.extend(self.bad.keys().map(|at| *at..at + BLOCK));
            self.tried.append(&mut self.bad);
        }
        // What is not needed may have left another range in front.
        while !self.is_blocked() {
            let is_again = !self.again.is_empty();
            let rest = self.again.pop_front().unwrap_or(self.next..self.bytes);
            let part = next_needed(rest.clone(), self.pace.piece_bytes);
            let mut part = part.unwrap_or(rest.end..rest.end);
            let own = self.own.iter().copied().find(|at| part.contains(at));
            let is_own = own == Some(part.start) && !part.is_empty();
            match own {
                Some(at) if is_own => part.end = at + BLOCK,
                Some(at) => part.end = at,
                None => {}
            }
            match is_again {
                true if part.end < rest.end => self.again.push_front(part.end..rest.end),
                true => {}
                false => self.next = part.end,
            }
            if !is_own && !part.is_empty() {
                return Some(part);
            }
            if !is_again && self.next == self.bytes {
                break;
            }
        }
        None
    }

    /// Begins with a range that was chosen.
    pub(crate) fn begin(&mut self, range: Range<u64>, buf: Buf, now: Nanos) {
        let piece = Piece { range: range.clone(), buf, stage: Stage::Waiting, began: now };
        let before = self.pieces.insert(range.start, piece);
        assert!(before.is_none(), "a range is copied once at a time");
    }

    /// There was no memory for it.
    pub(crate) fn put_back(&mut self, range: Range<u64>, now: Nanos) {
        self.again.push_front(range);
        self.rests_until = Nanos(now.0 + NO_MEMORY_NS);
    }

    /// The pieces that wait for writes.
    pub(crate) fn waiting(&self) -> Vec<Range<u64>> {
        let waits = |piece: &&Piece| piece.stage == Stage::Waiting;
        self.pieces.values().filter(waits).map(|piece| piece.range.clone()).collect()
    }

    /// The piece that begins there.
    pub(crate) fn piece(&mut self, start: u64) -> Option<&mut Piece> {
        self.pieces.get_mut(&start)
    }

    /// A piece is copied. Gives its buffer back.
    pub(crate) fn copied(&mut self, start: u64, now: Nanos) -> Option<Buf> {
        let piece = self.pieces.remove(&start)?;
        self.tried.remove(&start);
        if self.clients_at.is_some_and(|at| now.since(at) < BUSY_NS) {
            self.rests_until = Nanos(now.0 + self.pace.rest_times * now.since(piece.began));
        }
        Some(piece.buf)
    }

    /// Whether what the old device cannot read is left out.
    pub(crate) fn leaves_bad(&self) -> bool {
        self.leaves_bad
    }

    /// From now on what the old device cannot read is left out.
    pub(crate) fn leave_bad(&mut self) {
        self.leaves_bad = true;
    }

    /// Whether it is to be shown of a piece that could not be read that the device reads other things.
    pub(crate) fn wants_probe(&self, start: u64) -> bool {
        let is_block = |piece: &Piece| piece.range.end - piece.range.start == BLOCK;
        (self.leaves_bad || planted(Bug::LeftUnasked)) && self.pieces.get(&start).is_some_and(is_block)
    }

    /// It was shown; whether that was often enough.
    pub(crate) fn is_proven(&mut self, start: u64) -> bool {
        let shown = self.tried.entry(start).or_default();
        *shown += 1;
        *shown >= SHOWN_TIMES || planted(Bug::LeftUnproven)
    }

    /// The block is left out: what the new device is to write there is in this buffer.
    pub(crate) fn leave_out(&mut self, start: u64, buf: Buf) {
        self.tried.remove(&start);
        if let Some(piece) = self.pieces.get_mut(&start) {
            piece.buf = buf;
            self.left += 1;
        }
    }

    /// A piece could not be read: its halves are tried by themselves, down to a block. Gives its buffer back.
    pub(crate) fn unread(&mut self, start: u64, now: Nanos) -> Option<Buf> {
        let Piece { range, buf, .. } = self.pieces.remove(&start)?;
        let half = (range.end - range.start) / 2 / BLOCK * BLOCK;
        if half == 0 {
            self.bad.insert(range.start, self.tried.remove(&range.start).unwrap_or(0));
            self.bad_at = Nanos(now.0 + AGAIN_NS);
        } else {
            self.again.push_front(range.start + half..range.end);
            self.again.push_front(range.start..range.start + half);
        }
        Some(buf)
    }

    /// A piece goes no further. Gives its buffer back.
    pub(crate) fn give_up(&mut self, start: u64) -> Option<Buf> {
        self.pieces.remove(&start).map(|piece| piece.buf)
    }

    /// Both hold what a write left in a range: what could not be read of it is no longer wanted.
    pub(crate) fn written(&mut self, range: &Range<u64>) {
        self.bad.retain(|at, _| !range.contains(at));
    }

    /// Old and new may differ in a range.
    pub(crate) fn differs(&mut self, range: Range<u64>) {
        self.again.push_back(range.start..range.end.min(self.next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::plan;

    /// The second took the place of the first in the table of what is being copied. What the first still wrote lay over a write of the
    /// client, which was held back no longer.
    #[test]
    fn a_range_that_is_to_be_copied_twice_is_not_copied_twice_at_once() {
        let (now, buf) = (Nanos(0), Buf { start: 0, len: BLOCK_BYTES });
        let all = |range: Range<u64>, _| Some(range).filter(|range| !range.is_empty());
        let mut copying = Copying::new(&plan(64 * BLOCK), 64 * BLOCK, Vec::new());
        copying.halted = false;
        copying.differs(8 * BLOCK..12 * BLOCK);
        copying.differs(8 * BLOCK..10 * BLOCK);
        let first = copying.choose(now, all).expect("a range");
        copying.begin(first.clone(), buf, now);
        assert_eq!((copying.choose(now, all), copying.deadline()), (None, None));
        assert!(copying.is_in_piece(&(11 * BLOCK..12 * BLOCK)));
        copying.copied(first.start, now);
        assert_eq!(copying.choose(now, all), Some(8 * BLOCK..10 * BLOCK));
    }

    /// It was to be woken when the block was due, and began nothing before the copy's rest was over: whoever served it turned in
    /// circles.
    #[test]
    fn it_is_not_woken_for_what_it_could_not_read_while_it_rests() {
        let buf = Buf { start: 0, len: BLOCK_BYTES };
        let all = |range: Range<u64>, _| Some(range).filter(|range| !range.is_empty());
        let mut copying = Copying::new(&plan(64 * BLOCK), 64 * BLOCK, Vec::new());
        copying.halted = false;
        copying.bad.insert(8 * BLOCK, 0);
        copying.bad_at = Nanos(0);
        // Clients are busy, and the last piece took long.
        let (began, ended) = (Nanos(1), Nanos(30 * Nanos::SECOND));
        copying.client_asked(ended);
        copying.begin(0..BLOCK, buf, began);
        copying.copied(0, ended);
        let woken = copying.deadline().expect("something is left");
        assert!(woken > ended);
        assert_eq!(copying.choose(woken, all), Some(8 * BLOCK..9 * BLOCK));
    }
}
