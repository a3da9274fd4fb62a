//! When something that cannot be read is given up, because keeping it would hold everything else up.
//!
//! A device that fails for a while fails everything: that is no evidence against one block. So a block is
//! given up only after several attempts over a time in which the device could read others.

use crate::hash::IndexMap;
use crate::units::Nanos;
use std::hash::Hash;

/// Failed reads before something is given up, so that a device in a bad moment, which fails every other read, is not
/// taken for one that has lost it, ...
const READ_ATTEMPTS: u32 = 10;
/// ... for this long, ns, while the device could read others, ...
const READ_PATIENCE_NS: u64 = 10 * Nanos::SECOND;
/// ... or this long, ns, and so often, where the device did read it, and what it read is wrong: that seldom passes, ...
const MISMATCH_PATIENCE_NS: u64 = Nanos::SECOND;
const MISMATCH_ATTEMPTS: u32 = 3;
/// ... or for this long whatever else the device does.
const READ_LIMIT_NS: u64 = 120 * Nanos::SECOND;

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    since: Nanos,
    last: Nanos,
}

/// What could not be read lately.
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

    /// It failed again, or was read and is wrong. True: it is time to give it up. `last_good` is when the device last
    /// read anything.
    pub fn failed(&mut self, key: K, was_read: bool, now: Nanos, last_good: Nanos) -> bool {
        self.is_over(key, was_read, now, last_good, Some(READ_LIMIT_NS))
    }

    /// The same of something that is not given up for what a device fails that is away: it read something between any two
    /// of the failures that count.
    pub fn failed_alone(&mut self, key: K, was_read: bool, now: Nanos, last_good: Nanos) -> bool {
        if !was_read && self.0.get(&key).is_some_and(|failures| last_good <= failures.last) {
            return false;
        }
        self.is_over(key, was_read, now, last_good, None)
    }

    fn is_over(
        &mut self,
        key: K,
        was_read: bool,
        now: Nanos,
        last_good: Nanos,
        limit_ns: Option<u64>,
    ) -> bool {
        let failures = self.0.entry(key).or_insert(Failures { count: 0, since: now, last: now });
        failures.count += 1;
        failures.last = now;
        let (attempts, patience) = if was_read {
            (MISMATCH_ATTEMPTS, MISMATCH_PATIENCE_NS)
        } else {
            (READ_ATTEMPTS, READ_PATIENCE_NS)
        };
        let limit_ns = if last_good > failures.since { Some(patience) } else { limit_ns };
        failures.count >= attempts && limit_ns.is_some_and(|limit| now.since(failures.since) >= limit)
    }
}
