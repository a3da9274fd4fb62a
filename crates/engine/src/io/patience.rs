//! When something that cannot be read is given up, because keeping it would hold everything else up.
//!
//! A device that fails for a while fails everything: that is no evidence against one block, however long it lasts. So a
//! block is given up only after several failures between any two of which the device read something else well; where nobody
//! else reads, the engine asks for something by itself (`probe.rs`).

use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};
use std::hash::Hash;

/// Failed reads before something is given up, so that a device in a bad moment, which fails every other read, is not
/// taken for one that has lost it, ...
const READ_ATTEMPTS: u32 = 10;
/// ... for this long, ns, ...
const READ_PATIENCE_NS: u64 = 10 * Nanos::SECOND;
/// ... or this long, ns, and so often, where the device did read it, and what it read is wrong: that seldom passes.
const MISMATCH_PATIENCE_NS: u64 = Nanos::SECOND;
const MISMATCH_ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Failures {
    count: u32,
    /// When it failed first, later by as long as the device has read nothing since.
    since: Nanos,
    /// When it failed last.
    last: Nanos,
    /// What the device had read well when it failed last.
    good_reads: u64,
}

/// What could not be read lately.
#[derive(Serialize, Deserialize)]
#[serde(bound(serialize = "K: Serialize", deserialize = "K: Deserialize<'de> + Hash + Eq"))]
pub struct Unread<K>(IndexMap<K, Failures>);

impl<K> Default for Unread<K> {
    fn default() -> Self {
        Unread(IndexMap::default())
    }
}

impl<K: Hash + Eq> Unread<K> {
    /// It could be read, or is not wanted any more.
    pub fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// Whether it failed last time.
    pub fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// It failed again, or was read and is wrong. True: it is time to give it up. `good_reads` is how much the device has
    /// read well so far: where that is no more than when it failed last, the device fails as a whole, and the time in which
    /// it does counts for nothing.
    pub fn failed(&mut self, key: K, was_read: bool, now: Nanos, good_reads: u64) -> bool {
        let first = Failures { count: 0, since: now, last: now, good_reads };
        let failures = self.0.entry(key).or_insert(first);
        let reads_nothing = failures.count > 0 && failures.good_reads == good_reads;
        let last = std::mem::replace(&mut failures.last, now);
        if reads_nothing && !planted(Bug::SilenceIsEvidence) {
            failures.since = failures.since.after(now.since(last));
            return false;
        }
        failures.count += 1;
        failures.good_reads = good_reads;
        let (attempts, patience) = if was_read {
            (MISMATCH_ATTEMPTS, MISMATCH_PATIENCE_NS)
        } else {
            (READ_ATTEMPTS, READ_PATIENCE_NS)
        };
        failures.count >= attempts && now.since(failures.since) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND)
    }

    #[test]
    fn a_block_is_given_up_where_the_device_reads_others() {
        let mut unread = Unread::default();
        let over: Vec<bool> = (0..12).map(|i| unread.failed(7, false, at(i), i)).collect();
        assert_eq!(over.iter().position(|over| *over), Some(10), "ten seconds, and ten failures");
        assert!((0..3).map(|i| unread.failed(8, true, at(i), i)).last().expect("three of them"));
    }

    /// Two who wait for it hear of the same failure, or of two in a row: what the device reads between the others counts.
    #[test]
    fn two_failures_at_once_do_not_begin_the_time_anew() {
        let mut unread = Unread::default();
        let twice = (0..12).flat_map(|i| [(at(i), i), (at(i), i)]);
        let mut over = false;
        twice.for_each(|(now, good)| over |= unread.failed(7, false, now, good));
        assert!(over);
    }

    #[test]
    fn a_device_that_reads_nothing_else_says_nothing_however_long() {
        for was_read in [false, true] {
            let mut unread = Unread::default();
            assert!((0..100_000).all(|i| !unread.failed(7, was_read, at(i), 3)));
            // Nor does the time before it reads something again.
            assert!((4..14).all(|good| !unread.failed(7, was_read, at(99_999), good)));
        }
    }
}
