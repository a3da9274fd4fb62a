//! The ring of the slow device: groups one behind the other, what of it is in use, and what of it is durable.

use bimetal_units::BLOCK_BYTES;
use std::collections::VecDeque;

/// A place in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pos {
    /// Bytes that the ring has had before it: it is at this, less whole rounds.
    pub at: u64,
    /// The number of the group there.
    pub seq: u64,
    /// It is of this opening, or of a later one. One that lies there from before may have its number.
    pub session: u64,
}

/// A group that is being written, or was.
struct Written {
    seq: u64,
    done: bool,
}

/// The ring.
pub(crate) struct Ring {
    /// The first byte on the device.
    start: u64,
    bytes: u64,
    tail: Pos,
    /// Its session is this one.
    head: Pos,
    /// In order; those before are done.
    writing: VecDeque<Written>,
    /// Groups below this number are durable, or were read after a crash.
    durable: u64,
    /// Groups below this number are durable.
    claims: u64,
}

/// The place for a group that comes after a position: groups do not go across the end. The rest of a round is left out.
pub(crate) fn place_of(at: u64, bytes: u64, ring: u64) -> u64 {
    if at % ring + bytes > ring { at.next_multiple_of(ring) } else { at }
}

impl Ring {
    pub(crate) fn new(start: u64, bytes: u64, (tail, head): (Pos, Pos), claims: u64) -> Ring {
        assert!(bytes >= u64::from(BLOCK_BYTES), "a ring has a block");
        Ring { start, bytes, tail, head, writing: VecDeque::new(), durable: head.seq, claims }
    }

    pub(crate) fn tail(&self) -> Pos {
        self.tail
    }

    pub(crate) fn head(&self) -> Pos {
        self.head
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes between the first group that is needed and the end.
    pub(crate) fn used(&self) -> u64 {
        self.head.at - self.tail.at
    }

    /// Whether a group of so many bytes has room, if so much is to remain free.
    pub(crate) fn has_room(&self, bytes: u64, spare: u64) -> bool {
        let at = place_of(self.head.at, bytes, self.bytes);
        at + bytes + spare <= self.tail.at + self.bytes
    }

    /// A group of so many bytes gets its number, and its place on the device.
    pub(crate) fn begin(&mut self, bytes: u64) -> (u64, u64) {
        assert!(self.has_room(bytes, 0), "there is room");
        let (at, seq) = (place_of(self.head.at, bytes, self.bytes), self.head.seq);
        self.head = Pos { at: at + bytes, seq: seq + 1, ..self.head };
        self.writing.push_back(Written { seq, done: false });
        (seq, self.start + at % self.bytes)
    }

    /// It is written.
    pub(crate) fn written(&mut self, seq: u64) {
        self.writing.iter_mut().filter(|group| group.seq == seq).for_each(|group| group.done = true);
        while self.writing.front().is_some_and(|group| group.done) {
            self.writing.pop_front();
        }
    }

    /// Groups below this number are written: what a flush that begins now makes durable.
    pub(crate) fn written_below(&self) -> u64 {
        self.writing.front().map_or(self.head.seq, |group| group.seq)
    }

    /// A flush has ended before which that was so.
    pub(crate) fn flushed(&mut self, below: u64) {
        self.durable = self.durable.max(below);
        self.claims = self.claims.max(below);
    }

    /// Whether a group is durable, and all before it: who reads the ring after a crash comes as far as this.
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        seq < self.durable
    }

    /// Groups below this number are durable: whoever finds one of them missing knows that something has rotted.
    pub(crate) fn claims(&self) -> u64 {
        self.claims
    }

    /// Nothing of it is needed, and nothing is on its way; whatever of it was not written leaves no gap.
    pub(crate) fn clear(&mut self) {
        self.writing.clear();
        self.tail = self.head;
    }

    /// Nothing before this is needed.
    pub(crate) fn trim(&mut self, tail: Pos) {
        assert!(tail.at >= self.tail.at && tail.at <= self.head.at, "it is in the ring");
        self.tail = tail;
    }
}
