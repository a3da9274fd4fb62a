//! Requests and their ends, where a trace has both as events of their own: how long each took.
//!
//! A request is held back until its end comes, so that all go out in the order in which they began. An end may be that
//! of several requests that were merged, or of a part of one: a request has ended when its last byte is in the range
//! that has. Where several in flight end at the same byte, the oldest is the one.

use crate::{Op, Record};
use bimetal_units::Nanos;
use std::collections::{BTreeSet, VecDeque};

/// Requests that are held back at most: far more than devices have in flight. What is still without an end then goes
/// out without one.
const MAX_HELD: usize = 1 << 16;
/// And for how long, in the trace's time: the kernel's own patience with a device, after which it resets it.
const MAX_HELD_NS: u64 = 30_000_000_000;

/// The end of something, as its file has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) device: u32,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Requests without any end among them, after which a trace is one that has no ends: far more than are in flight before
/// the first of them is done. Such a one would be held back for nothing.
const NO_ENDS: u64 = 4096;

/// A device, an operation, the byte behind the last, and a number.
type Key = (u32, u8, u64, u64);

struct Held {
    record: Record,
    /// It has ended, or its end is not waited for.
    is_done: bool,
}

/// Holds requests back until they have ended.
#[derive(Default)]
pub(crate) struct Join {
    held: VecDeque<Held>,
    /// The number of the first that is held.
    first: u64,
    /// Those without an end; of those that end at the same byte, the oldest comes first.
    open: BTreeSet<Key>,
    latest: u64,
    has_ends: bool,
    /// Kept from one end to the next, for its memory.
    found: Vec<Key>,
}

impl Join {
    /// A request has begun; its record has a time.
    pub(crate) fn begun(&mut self, record: Record) {
        self.latest = self.latest.max(record.time.map_or(0, |time| time.0));
        let number = self.first + self.held.len() as u64;
        let is_held = self.has_ends || number < NO_ENDS;
        if is_held {
            self.open.insert(open_key(&record, number));
        }
        self.held.push_back(Held { record, is_done: !is_held });
    }

    fn has_no_ends(&self) -> bool {
        !self.has_ends && self.first + self.held.len() as u64 > NO_ENDS
    }

    /// Something has ended, so long after the first record.
    pub(crate) fn ended(&mut self, end: End, at: u64) {
        self.latest = self.latest.max(at);
        self.has_ends = true;
        let upto = end.offset.saturating_add(end.bytes);
        // A flush has no range: both ends are 0.
        let from = if end.bytes == 0 { end.offset } else { end.offset + 1 };
        let at_byte = |byte: u64, number: u64| (end.device, end.op as u8, byte, number);
        let mut found = std::mem::take(&mut self.found);
        found.extend(self.open.range(at_byte(from, 0)..=at_byte(upto, u64::MAX)));
        found.dedup_by_key(|key| key.2);
        for key in found.drain(..) {
            self.open.remove(&key);
            let place = key.3.checked_sub(self.first);
            let Some(held) = place.and_then(|place| self.held.get_mut(place as usize)) else { continue };
            held.is_done = true;
            held.record.response = held.record.time.and_then(|time| at.checked_sub(time.0)).map(Nanos);
        }
        self.found = found;
    }

    /// The next request that nothing is waited for; with `last`, all are.
    pub(crate) fn next(&mut self, last: bool) -> Option<Record> {
        let front = self.held.front()?;
        let since = front.record.time.map_or(0, |time| time.0);
        let too_long = self.held.len() > MAX_HELD || self.latest - since.min(self.latest) > MAX_HELD_NS;
        if !(front.is_done || too_long || last || self.has_no_ends()) {
            return None;
        }
        let held = self.held.pop_front()?;
        if !held.is_done {
            self.open.remove(&open_key(&held.record, self.first));
        }
        self.first += 1;
        Some(held.record)
    }
}

fn open_key(record: &Record, number: u64) -> Key {
    (record.device, record.op as u8, record.offset + record.bytes, number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Marks;

    fn record(number: u64) -> Record {
        Record {
            time: Some(Nanos(number * 1000)),
            device: 0,
            op: Op::Write,
            offset: number % 7 * 4096,
            bytes: 4096,
            response: None,
            marks: Marks::default(),
        }
    }

    fn end(number: u64) -> End {
        End { device: 0, op: Op::Write, offset: number % 7 * 4096, bytes: 4096 }
    }

    #[test]
    fn a_trace_without_ends_is_held_back_only_until_that_is_known() {
        let mut join = Join::default();
        let mut out = Vec::new();
        for number in 0..10_000 {
            join.begun(record(number));
            assert!(join.held.len() <= NO_ENDS as usize + 1 && join.open.len() <= join.held.len());
            out.extend(std::iter::from_fn(|| join.next(false)));
        }
        assert!(join.held.is_empty() && join.open.is_empty(), "all of it is through, and none is waited for");
        // The first end makes it a trace that has some: from there on each is waited for.
        join.ended(end(3), 20_000_000);
        join.begun(record(10_000));
        assert!(join.next(false).is_none());
        join.ended(end(10_000), 10_000_500);
        out.extend(join.next(false));
        assert_eq!(out.len(), 10_001);
        assert_eq!(out[10_000].response, Some(Nanos(500)));
        assert!(out.windows(2).all(|two| two[0].time < two[1].time) && out[9_999].response.is_none());
    }

    #[test]
    fn of_two_that_end_at_the_same_byte_the_older_has_ended() {
        let mut join = Join::default();
        (0..8).for_each(|number| join.begun(record(number)));
        // 0 and 7 write the same block.
        join.ended(end(0), 9_000);
        assert_eq!(join.next(false).and_then(|record| record.response), Some(Nanos(9_000)));
        assert!(join.next(false).is_none());
        // One end for all that were merged into it.
        join.ended(End { offset: 0, bytes: 7 * 4096, ..end(0) }, 10_000);
        let responses: Vec<_> =
            std::iter::from_fn(|| join.next(false)).map(|record| record.response).collect();
        assert_eq!(responses, (1..8).map(|number| Some(Nanos(10_000 - number * 1000))).collect::<Vec<_>>());
        assert!(join.open.is_empty());
    }
}
