//! Requests and their ends, where a trace has both as events of their own: how long each took.
//!
//! A request is held back until its end comes, so that all go out in the order in which they began. An end may be that
//! of several requests that were merged, or of a part of one: a request has ended when its last byte is in the range
//! that has. Where several in flight end at the same byte, the oldest is the one.

use crate::{Op, Record};
use bimetal_engine::units::Nanos;
use std::collections::{BTreeMap, VecDeque};

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

/// A device, an operation, and the byte behind the last.
type Key = (u32, u8, u64);

fn key(device: u32, op: Op, end: u64) -> Key {
    (device, op as u8, end)
}

struct Held {
    record: Record,
    has_ended: bool,
}

/// Holds requests back until they have ended.
#[derive(Default)]
pub(crate) struct Join {
    held: VecDeque<Held>,
    /// The number of the first that is held.
    first: u64,
    /// Numbers of those without an end, ascending.
    open: BTreeMap<Key, VecDeque<u64>>,
    latest: u64,
}

impl Join {
    /// A request has begun; its record has a time.
    pub(crate) fn begun(&mut self, record: Record) {
        self.latest = self.latest.max(record.time.map_or(0, |time| time.0));
        let key = key(record.device, record.op, record.offset + record.bytes);
        self.open.entry(key).or_default().push_back(self.first + self.held.len() as u64);
        self.held.push_back(Held { record, has_ended: false });
    }

    /// Something has ended, so long after the first record.
    pub(crate) fn ended(&mut self, end: End, at: u64) {
        self.latest = self.latest.max(at);
        let upto = end.offset.saturating_add(end.bytes);
        // A flush has no range: both ends are 0.
        let from = if end.bytes == 0 { end.offset } else { end.offset + 1 };
        let range = key(end.device, end.op, from)..=key(end.device, end.op, upto);
        let keys: Vec<Key> = self.open.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            let Some(numbers) = self.open.get_mut(&key) else { continue };
            let number = numbers.pop_front();
            if numbers.is_empty() {
                self.open.remove(&key);
            }
            let place = number.and_then(|number| number.checked_sub(self.first));
            let Some(held) = place.and_then(|place| self.held.get_mut(place as usize)) else { continue };
            held.has_ended = true;
            held.record.response = held.record.time.and_then(|time| at.checked_sub(time.0)).map(Nanos);
        }
    }

    /// The next request that nothing is waited for; with `last`, all are.
    pub(crate) fn next(&mut self, last: bool) -> Option<Record> {
        let front = self.held.front()?;
        let since = front.record.time.map_or(0, |time| time.0);
        let too_long = self.held.len() > MAX_HELD || self.latest - since.min(self.latest) > MAX_HELD_NS;
        if !(front.has_ended || too_long || last) {
            return None;
        }
        let held = self.held.pop_front()?;
        if !held.has_ended {
            let Record { device, op, offset, bytes, .. } = held.record;
            let key = key(device, op, offset + bytes);
            if let Some(numbers) = self.open.get_mut(&key) {
                // The oldest is the first of its kind, too.
                numbers.pop_front();
                if numbers.is_empty() {
                    self.open.remove(&key);
                }
            }
        }
        self.first += 1;
        Some(held.record)
    }
}
