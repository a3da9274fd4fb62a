//! Which of the waiting commands and cache entries comes next.

use super::mechanism::{Mechanism, Target, Way};
use super::params::{QueueParams, QueuePolicy};

/// Something that the arm could do next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) start: u64,
    /// Not before.
    pub(crate) ready: u64,
    pub(crate) target: Target,
    pub(crate) way: Way,
    /// Reading ahead has come to its beginning.
    pub(crate) under_head: bool,
}

/// Searches the best among candidates that are shown one by one.
pub(crate) struct Search<'a> {
    policy: QueuePolicy,
    margin: u32,
    mechanism: &'a Mechanism,
    now: u64,
    angle: u32,
    /// Behind the last sector that was read or written.
    position: u64,
    best: Option<((bool, u64), usize)>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(params: &QueueParams, mechanism: &'a Mechanism, now: u64, position: u64) -> Search<'a> {
        let angle = mechanism.angle(now);
        Search {
            policy: params.policy,
            margin: params.margin_ns,
            mechanism,
            now,
            angle,
            position,
            best: None,
        }
    }

    /// Shows a candidate; of two that are as good, the one shown first wins.
    pub(crate) fn show(&mut self, number: usize, candidate: &Candidate) {
        let cost = match self.policy {
            QueuePolicy::Fifo => (false, 0),
            QueuePolicy::Elevator => (candidate.start < self.position, candidate.start),
            QueuePolicy::Sptf => (false, self.until(candidate)),
        };
        if self.best.is_none_or(|(best, _)| cost < best) {
            self.best = Some((cost, number));
        }
    }

    /// Nanoseconds until the head would be at the candidate's beginning.
    fn until(&self, candidate: &Candidate) -> u64 {
        if candidate.under_head {
            return 0;
        }
        let wait = candidate.ready.saturating_sub(self.now);
        let angle = if wait == 0 { self.angle } else { self.mechanism.angle(self.now + wait) };
        wait + u64::from(self.mechanism.positioning(angle, &candidate.target, candidate.way, self.margin))
    }

    /// The number of the best.
    pub(crate) fn best(self) -> Option<usize> {
        self.best.map(|(_, number)| number)
    }
}
