//! How many requests were in flight: told from when they began and how long they took.

use crate::slots::{Join, Slots};
use bimetal_units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Requests in flight that are counted; a depth beyond is told as this.
pub const MAX_DEPTH: usize = 65_536;
/// Slots of a [`DepthOverTime`] at most.
pub const MAX_DEPTH_SLOTS: usize = 1024;
/// The width of the slots of a short trace.
const FIRST_SLOT_NS: u64 = 1_000_000;

/// Nanoseconds that requests spent in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy(u128);

impl Join for Busy {
    fn join(&mut self, other: Busy) {
        self.0 += other.0;
    }
}

/// The mean depth of the queue in each of at most [`MAX_DEPTH_SLOTS`] stretches of time. The order in which requests are
/// added is of no matter, so that what a replay achieved can be held against what was recorded.
#[derive(Debug)]
pub struct DepthOverTime {
    slots: Slots<Busy>,
    end: u64,
    busy: u128,
}

impl Default for DepthOverTime {
    fn default() -> DepthOverTime {
        DepthOverTime { slots: Slots::new(FIRST_SLOT_NS, MAX_DEPTH_SLOTS), end: 0, busy: 0 }
    }
}

impl DepthOverTime {
    /// A request that began and took so long.
    pub fn add(&mut self, begin: Nanos, response: Nanos) {
        let end = begin.0.saturating_add(response.0);
        self.end = self.end.max(end);
        self.busy += u128::from(end - begin.0);
        // The slots may become wider: before any of them is looked at.
        self.slots.at(end);
        let width = self.slots.width();
        let mut at = begin.0;
        while at < end {
            let until = (at / width + 1).saturating_mul(width).min(end);
            self.slots.at(at).0 += u128::from(until - at);
            at = until;
        }
    }

    /// How long a slot is.
    pub fn slot(&self) -> Nanos {
        Nanos(self.slots.width())
    }

    /// The mean depth of each slot.
    pub fn depths(&self) -> impl Iterator<Item = f64> {
        let width = self.slots.width();
        let slots = self.end.div_ceil(width) as usize;
        // The last one is over when the last request is.
        let length = move |slot: usize| (self.end - slot as u64 * width).min(width);
        self.slots.iter().take(slots).enumerate().map(move |(slot, busy)| busy.0 as f64 / length(slot) as f64)
    }

    /// The mean depth from zero to the end of the last request; none without requests that took time.
    pub fn mean(&self) -> Option<f64> {
        (self.busy > 0).then(|| self.busy as f64 / self.end as f64)
    }
}

/// The depth that requests find, in the order in which they begin.
#[derive(Debug, Default)]
pub struct DepthFound {
    ends: BinaryHeap<Reverse<u64>>,
}

impl DepthFound {
    /// How many are in flight when this one has begun, itself included.
    pub fn begin(&mut self, begin: Nanos, response: Nanos) -> usize {
        while self.ends.peek().is_some_and(|Reverse(end)| *end <= begin.0) {
            self.ends.pop();
        }
        if self.ends.len() < MAX_DEPTH {
            self.ends.push(Reverse(begin.0.saturating_add(response.0)));
        }
        self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn depth_is_told_over_time_and_as_it_is_found() {
        let (mut over, mut found) = (DepthOverTime::default(), DepthFound::default());
        // Two at a time for 10 s, then one for as long.
        let requests = (0..2000).map(|number| (number / 2 * 10 * MS, 10 * MS));
        let requests = requests.chain((0..1000).map(|number| (10_000 * MS + number * 10 * MS, 10 * MS)));
        let depths: Vec<usize> = requests
            .map(|(begin, response)| {
                over.add(Nanos(begin), Nanos(response));
                found.begin(Nanos(begin), Nanos(response))
            })
            .collect();
        assert_eq!(depths.iter().max(), Some(&2));
        assert_eq!(depths[2500], 1);
        assert!((over.mean().expect("some") - 1.5).abs() < 1e-9);
        let told: Vec<f64> = over.depths().collect();
        assert!(told.len() <= MAX_DEPTH_SLOTS && told.len() > MAX_DEPTH_SLOTS / 2);
        let at = |seconds: f64| told[(seconds * 1e9 / over.slot().0 as f64) as usize];
        assert!((at(5.0) - 2.0).abs() < 1e-9 && (at(15.0) - 1.0).abs() < 1e-9);
        assert!((told[told.len() - 1] - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_longest_times_do_no_harm() {
        let mut over = DepthOverTime::default();
        over.add(Nanos(0), Nanos(u64::MAX));
        over.add(Nanos(u64::MAX), Nanos(u64::MAX));
        assert!(over.mean().is_some_and(|mean| (mean - 1.0).abs() < 1e-6));
        assert!(over.depths().count() <= MAX_DEPTH_SLOTS);
        let mut found = DepthFound::default();
        for _ in 0..MAX_DEPTH + 5 {
            assert!(found.begin(Nanos(0), Nanos(1)) <= MAX_DEPTH);
        }
    }
}
