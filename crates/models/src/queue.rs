//! The commands of a device: which wait before its queue, which are in flight, and what has been done.

use crate::device::{Command, Done, Failure, Kind, Usage};
use bimetal_units::Nanos;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// A command whose end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    at: u64,
    /// How many were started before it: the order of those that end together.
    order: u64,
    tag: u64,
    len: u64,
    kind: Kind,
    failure: Option<Failure>,
}

impl Ord for Running {
    /// The first to end is the greatest, as the heap gives the greatest.
    fn cmp(&self, other: &Running) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Running {
    fn partial_cmp(&self, other: &Running) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A device that knows the end of a command when it starts it.
pub(crate) trait Queued {
    /// Its queue.
    fn queue(&mut self) -> &mut Queue;

    /// Starts a command whose turn it is, and tells the queue when it ends.
    fn start(&mut self, now: u64, tag: u64, command: Command);

    /// Takes a command.
    fn take(&mut self, now: Nanos, tag: u64, command: Command) {
        if self.queue().admit(now.0, tag, command) {
            self.start(now.0, tag, command);
        }
    }

    /// Ends what has ended by `now`, and starts what waited for that.
    fn end(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(ended) = self.queue().pop(now.0) {
            done.push(ended);
            if let Some((tag, command)) = self.queue().next_waiting() {
                self.start(ended.at.0, tag, command);
            }
        }
    }
}

/// The queue of a device that knows the end of a command when it starts it.
#[derive(Debug)]
pub(crate) struct Queue {
    depth: usize,
    running: BinaryHeap<Running>,
    waiting: VecDeque<(u64, Command)>,
    started: u64,
    usage: Usage,
    /// End of the last stretch that counts as busy.
    busy_until: u64,
    /// The latest time that was told.
    now: u64,
}

impl Queue {
    /// A queue that lets `depth` commands be in flight.
    pub fn new(depth: u32) -> Queue {
        let depth = depth as usize;
        Queue {
            depth,
            running: BinaryHeap::with_capacity(depth.min(1024)),
            waiting: VecDeque::new(),
            started: 0,
            usage: Usage::default(),
            busy_until: 0,
            now: 0,
        }
    }

    /// Whether the command may start now; if not, it is kept until its turn.
    pub fn admit(&mut self, now: u64, tag: u64, command: Command) -> bool {
        assert!(now >= self.now, "time runs backwards: {now} after {}", self.now);
        self.now = now;
        let starts = self.running.len() < self.depth;
        if !starts {
            self.waiting.push_back((tag, command));
        }
        starts
    }

    /// A command was started and will have ended `at`.
    pub fn start(&mut self, from: u64, at: u64, tag: u64, command: Command, failure: Option<Failure>) {
        self.busy(from, at);
        let Command { kind, len, .. } = command;
        self.running.push(Running { at, order: self.started, tag, len, kind, failure });
        self.started += 1;
    }

    /// Counts a stretch of work; the starts of stretches never run backwards.
    pub fn busy(&mut self, from: u64, until: u64) {
        self.usage.busy_ns += until.saturating_sub(from.max(self.busy_until));
        self.busy_until = self.busy_until.max(until);
    }

    /// When the next command ends.
    pub fn deadline(&self) -> Option<Nanos> {
        self.running.peek().map(|next| Nanos(next.at))
    }

    /// The next command that has ended by `now`.
    pub fn pop(&mut self, now: u64) -> Option<Done> {
        let Some(&Running { at, tag, len, kind, failure, .. }) =
            self.running.peek().filter(|next| next.at <= now)
        else {
            self.now = self.now.max(now);
            return None;
        };
        self.running.pop();
        self.now = self.now.max(at);
        if failure.is_none() {
            self.usage.count(kind, len);
        }
        Some(Done { at: Nanos(at), tag, failure, served: None })
    }

    /// The command that may start now that one has ended.
    pub fn next_waiting(&mut self) -> Option<(u64, Command)> {
        self.waiting.pop_front()
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// What has been done by the latest time that was told.
    pub fn usage(&self) -> Usage {
        // A stretch is counted when it starts: what lies ahead is not yet done.
        let ahead = self.busy_until.saturating_sub(self.now);
        Usage { busy_ns: self.usage.busy_ns.saturating_sub(ahead), ..self.usage }
    }
}
