//! Hard disks.
//!
//! The model follows a command through the drive: the processor and the bus, the buffer with its read-ahead, the
//! volatile write cache, the queue and its reordering, the arm, the heads and the rotation, which goes by the clock.
//! All of it is a drive's parameters ([`DiskParams`]); there is no code for one drive.

mod buffer;
mod layout;
mod mechanism;
pub mod params;
mod queue;
mod seek;
mod work;
mod write_cache;

use crate::device::{Command, Done, Kind, Model, Usage};
use crate::spec::SpecError;
use bimetal_units::Nanos;
use buffer::Buffer;
use mechanism::{Cursor, Mechanism, Target, Way};
use params::{CommandNs, DiskParams};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use write_cache::WriteCache;

/// A command that the medium is needed for, and has not begun.
#[derive(Clone, Copy, Debug)]
struct Pending {
    tag: u64,
    start: u64,
    end: u64,
    way: Way,
    /// When the arm may begin to move.
    ready: u64,
    /// When the medium may be written.
    least: u64,
    partial: bool,
    target: Target,
}

/// A write that waits for room in the cache.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    tag: u64,
    start: u64,
    end: u64,
    partial: bool,
    cost: u64,
}

/// What the arm is at.
#[derive(Clone, Copy, Debug)]
struct Operation {
    end: u64,
    doing: Doing,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    /// Reads for the host: all of the command, from where the medium was needed, when that began to pass, and the
    /// first sector of the track that can be kept.
    Read { tag: u64, start: u64, end: u64, from: u64, first: u64, passed_from: u64, joined: bool },
    /// Writes for the host, past the cache.
    Write { tag: u64 },
    /// Writes an entry of the cache.
    Destage,
}

/// Reading ahead of what was asked for.
#[derive(Clone, Copy, Debug)]
struct ReadingAhead {
    cursor: Cursor,
    segment: usize,
}

/// A hard disk in virtual time.
#[derive(Clone, Debug)]
pub struct Disk {
    params: DiskParams,
    size_bytes: u64,
    mechanism: Mechanism,
    buffer: Buffer,
    cache: WriteCache,
    /// Commands beyond the drive's queue depth.
    waiting: VecDeque<(u64, Command)>,
    pending: Vec<Pending>,
    blocked: VecDeque<Blocked>,
    /// Flushes, and up to where the cache is to be empty for them.
    flushes: VecDeque<(u64, u64)>,
    operation: Option<Operation>,
    reading_ahead: Option<ReadingAhead>,
    /// When a cache entry that nothing urges may be written.
    wake: Option<u64>,
    /// Commands of the drive that will be complete at a known time.
    ending: BinaryHeap<Reverse<(u64, u64, u64)>>,
    ended: VecDeque<Done>,
    /// Commands in the drive, up to its queue depth, in no order.
    inside: Vec<(u64, Command)>,
    /// How far time has come.
    now: u64,
    sequence: u64,
    bus_free: u64,
    /// Behind the last sector that was read or written on the medium.
    position: u64,
    last_was_write: bool,
    last_end: u64,
    usage: Usage,
    busy_since: Option<u64>,
}

impl Disk {
    /// A drive whose buffer is empty and whose arm is at cylinder 0.
    ///
    /// # Errors
    /// Parameters out of their bounds.
    pub fn new(params: &DiskParams) -> Result<Disk, SpecError> {
        params.validate()?;
        let mechanism = Mechanism::new(params);
        let depth = params.queue.depth as usize;
        Ok(Disk {
            size_bytes: params.bytes(),
            buffer: Buffer::new(params.buffer.segments, params.buffer.segment_sectors),
            cache: WriteCache::new(&params.write_cache),
            waiting: VecDeque::new(),
            pending: Vec::with_capacity(depth),
            blocked: VecDeque::with_capacity(depth),
            flushes: VecDeque::with_capacity(depth),
            operation: None,
            reading_ahead: None,
            wake: None,
            ending: BinaryHeap::with_capacity(depth),
            ended: VecDeque::with_capacity(depth),
            inside: Vec::with_capacity(depth),
            now: 0,
            sequence: 0,
            bus_free: 0,
            position: 0,
            last_was_write: false,
            last_end: 0,
            usage: Usage::default(),
            busy_since: None,
            params: params.clone(),
            mechanism,
        })
    }

    /// A revolution, in nanoseconds.
    pub fn rotation_period_ns(&self) -> u64 {
        u64::from(self.mechanism.period)
    }

    /// The sectors that a range of bytes touches, and whether it covers the first or the last only in part.
    fn sectors(&self, offset: u64, len: u64) -> (u64, u64, bool) {
        let size = u64::from(self.params.sector_bytes);
        let end = (offset + len).min(self.size_bytes);
        let (start, stop) = (offset / size, end.div_ceil(size));
        assert!(start < stop, "an access within the device: {offset} and {len} of {}", self.size_bytes);
        (start, stop, !offset.is_multiple_of(size) || !end.is_multiple_of(size))
    }

    fn cost(&self, cost: CommandNs) -> u64 {
        u64::from(if self.last_was_write { cost.after_write } else { cost.after_read })
    }

    /// The command will be complete at this time.
    fn end_at(&mut self, tag: u64, at: u64) {
        self.sequence += 1;
        self.ending.push(Reverse((at, self.sequence, tag)));
    }

    /// When something changes next inside.
    fn next_event(&self) -> Option<u64> {
        let ending = self.ending.peek().map(|Reverse((at, _, _))| *at);
        let operation = self.operation.map(|operation| operation.end);
        [ending, operation, self.wake].into_iter().flatten().min()
    }

    /// Lets everything happen that happens up to `now`.
    fn catch_up(&mut self, now: u64) {
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            if let Some(&Reverse((ends, _, tag))) = self.ending.peek()
                && ends == at
            {
                self.ending.pop();
                self.complete(tag, at);
            } else if let Some(operation) = self.operation.filter(|operation| operation.end == at) {
                self.operation = None;
                self.operation_ended(operation);
                self.dispatch(at);
            } else {
                self.wake = None;
                self.dispatch(at);
            }
            self.account(at);
        }
    }

    fn complete(&mut self, tag: u64, at: u64) {
        if let Some(number) = self.inside.iter().position(|&(known, _)| known == tag) {
            let (_, command) = self.inside.swap_remove(number);
            self.usage.count(command.kind, command.len);
        }
        self.ended.push_back(Done::ok(Nanos(at), tag));
        if let Some((tag, command)) = self.waiting.pop_front() {
            self.accept(at, tag, command);
        }
    }

    /// Begins or ends a stretch of being busy.
    fn account(&mut self, at: u64) {
        self.now = at;
        let busy = !self.inside.is_empty() || self.operation.is_some();
        match (busy, self.busy_since) {
            (true, None) => self.busy_since = Some(at),
            (false, Some(since)) => {
                self.usage.busy_ns += at - since;
                self.busy_since = None;
            }
            _ => {}
        }
    }

    /// A command enters the drive.
    fn accept(&mut self, now: u64, tag: u64, command: Command) {
        self.inside.push((tag, command));
        match command.kind {
            Kind::Read => self.accept_read(now, tag, command),
            Kind::Write { fua } => self.accept_write(now, tag, command, fua),
            Kind::Flush | Kind::Sync => {
                let mark = self.cache.mark();
                if self.cache.has_before(mark) {
                    self.flushes.push_back((tag, mark));
                    self.dispatch(now);
                } else {
                    self.end_at(tag, now + self.cost(self.params.overheads.cached_write_ns));
                }
            }
            Kind::Discard => {
                self.end_at(tag, now + self.cost(self.params.overheads.cached_write_ns));
            }
        }
    }
}

impl Model for Disk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        self.catch_up(now.0);
        if self.inside.len() < self.params.queue.depth as usize {
            self.accept(now.0, tag, command);
        } else {
            self.waiting.push_back((tag, command));
        }
        self.account(now.0);
    }

    fn deadline(&self) -> Option<Nanos> {
        if self.inside.is_empty() && self.ended.is_empty() {
            return None;
        }
        match self.ended.front() {
            Some(done) => Some(done.at),
            None => self.next_event().map(Nanos),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.catch_up(now.0);
        self.account(now.0);
        done.extend(self.ended.drain(..));
    }

    fn usage(&self) -> Usage {
        let going_on = self.busy_since.map_or(0, |since| self.now - since);
        Usage { busy_ns: self.usage.busy_ns + going_on, ..self.usage }
    }
}

#[cfg(test)]
pub(crate) mod tests;
