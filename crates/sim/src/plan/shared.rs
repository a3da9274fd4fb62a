//! A device that is asked for a part of what it is asked for in truth: what is left out takes its time all the same.

use bimetal_models::{Command, Done, Model, Usage};
use bimetal_units::Nanos;
use std::sync::{Arc, OnceLock};

/// Requests of a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// When, nanoseconds since the beginning.
    pub at_ns: u64,
    /// Those that are replayed.
    pub seen: u32,
    /// Those that are left out.
    pub others: u32,
}

/// Who else asks for something while a sample is replayed, and when.
#[derive(Debug, Default)]
pub struct Crowd {
    arrivals: Vec<Arrivals>,
    share: f64,
    began: OnceLock<Nanos>,
}

impl Crowd {
    /// In the order of their times; `share` of all of them are seen.
    pub fn new(arrivals: Vec<Arrivals>, share: f64) -> Arc<Crowd> {
        Arc::new(Crowd { arrivals, share, began: OnceLock::new() })
    }

    /// The replay begins.
    pub(crate) fn begin(&self, now: Nanos) {
        let _ = self.began.set(now);
    }
}

/// Requests over which it is averaged what each takes of a device.
const AVERAGED: f64 = 256.0;

/// A modelled device that a crowd uses as well. While some of the crowd wait, it works for them in proportion: so much for who
/// is seen, so much for the others, and stands still for as long. Where nobody else asks, it is as fast as it always is.
pub(crate) struct Shared {
    inner: Box<dyn Model>,
    crowd: Arc<Crowd>,
    next: usize,
    /// How much of the time it has stood still: its own clock is so far behind.
    still_ns: u64,
    /// Its own time, and what it was busy by then.
    own: Nanos,
    busy_ns: u64,
    /// What the others have asked for and was not done, nanoseconds of work.
    backlog_ns: f64,
    /// What was done lately for those who are seen, and how many that were.
    recent_ns: f64,
    recent: f64,
    now: Nanos,
    done: Vec<Done>,
}

impl Shared {
    /// The device itself where nobody else uses it.
    pub(crate) fn of(device: Box<dyn Model>, crowd: Option<&Arc<Crowd>>) -> Box<dyn Model> {
        let Some(crowd) = crowd else { return device };
        Box::new(Shared {
            inner: device,
            crowd: crowd.clone(),
            next: 0,
            still_ns: 0,
            own: Nanos(0),
            busy_ns: 0,
            backlog_ns: 0.0,
            recent_ns: 0.0,
            recent: 0.0,
            now: Nanos(0),
            done: Vec::new(),
        })
    }

    /// Counts who has come by now.
    fn meet(&mut self, now: Nanos) {
        let Some(began) = self.crowd.began.get() else { return };
        while let Some(arrivals) = self.crowd.arrivals.get(self.next) {
            if began.0 + arrivals.at_ns > now.0 {
                return;
            }
            self.next += 1;
            let seen = f64::from(arrivals.seen);
            let keep = (1.0 - 1.0 / AVERAGED).powf(seen);
            self.recent_ns *= keep;
            self.recent = self.recent * keep + seen;
            let each_ns = if self.recent > 0.0 { self.recent_ns / self.recent } else { 0.0 };
            self.backlog_ns += each_ns * f64::from(arrivals.others);
        }
    }

    /// Brings the device to this time, or leaves it where it is while it stands still.
    fn bring(&mut self, now: Nanos) {
        let passed = now.since(self.now);
        self.now = now;
        let to = Nanos(now.0.saturating_sub(self.still_ns)).max(self.own);
        let elapsed = to.since(self.own);
        let before = self.done.len();
        self.inner.advance(to, &mut self.done);
        self.own = to;
        for done in &mut self.done[before..] {
            done.at = Nanos(done.at.0 + self.still_ns).min(now);
        }
        let all = self.inner.usage().busy_ns;
        let busy = all.saturating_sub(self.busy_ns);
        self.busy_ns = self.busy_ns.max(all);
        if self.crowd.began.get().is_none() {
            return;
        }
        self.recent_ns += busy as f64;
        // While nobody who is seen waits, it works for the others.
        let idle = passed.min(elapsed).saturating_sub(busy) as f64;
        self.backlog_ns = (self.backlog_ns - idle).max(0.0);
        self.meet(now);
        let still = (busy as f64 * (1.0 / self.crowd.share - 1.0)).min(self.backlog_ns);
        self.backlog_ns -= still;
        self.still_ns += still as u64;
    }
}

impl Model for Shared {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        self.bring(now);
        self.inner.submit(self.own, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        if let Some(first) = self.done.first() {
            return Some(first.at);
        }
        self.inner.deadline().map(|own| Nanos(own.0 + self.still_ns))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.bring(now);
        done.append(&mut self.done);
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
