//! Wear: what the engine writes to the fast device of its own accord, chunks that it moves up and copies of what was
//! read, and how much of that it may write in a day.
//!
//! What clients write is never held back by the budget, nor what has to follow from it: landing, log and checkpoints,
//! homes of what landed, whatever goes down. A pin is a user's wish, and is obeyed when the budget is spent; what it
//! writes is counted, and taken out of what is left.

use crate::api::economy::Economy;
use crate::api::options::{WearBudgetStatus, WearStatus};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// The time in which a budget is earned, ns.
const DAY_NS: u64 = 86_400 * Nanos::SECOND;

/// How much of a budget was left when the volume was closed is recorded nowhere. An opening begins with one part in this
/// many of a day's budget: enough to be quick soon after it, and opened four times a day, the engine cannot write more
/// than twice the budget. A budget of half of what the drive is rated for is within its rating even then.
const OPENING_SHARE: u64 = 4;

/// A token bucket of bytes that holds up to a day's budget.
#[derive(Serialize, Deserialize)]
struct Bucket {
    bytes_per_day: u64,
    /// Copies are made while more than one part in this many of it is left: at first, half of what an opening begins with. A
    /// copy is made at the first read of a chunk, a move at the third touch, and what is known to be hot is worth more.
    copies_share: u64,
    /// Nothing rises while less than one part in this many of it is left. Chunks that rise one by one, as they are earned,
    /// would cost the disk a seek and the log a record each.
    run_share: u64,
    /// Bytes that were left at `at`, times the nanoseconds of a day: earning adds budget x time, and nothing is rounded.
    level: u128,
    at: Nanos,
}

impl Bucket {
    fn new(bytes_per_day: u64, opened: Nanos, economy: &Economy) -> Bucket {
        let level = u128::from(bytes_per_day / OPENING_SHARE) * u128::from(DAY_NS);
        let (copies_share, run_share) = (economy.wear_copies_share, economy.wear_run_share);
        Bucket { bytes_per_day, copies_share, run_share, level, at: opened }
    }

    /// Below 2^112, whatever the clock says: two days of the largest budget.
    fn level_at(&self, now: Nanos) -> u128 {
        let earned = u128::from(self.bytes_per_day) * u128::from(now.since(self.at).min(DAY_NS));
        (self.level + earned).min(u128::from(self.bytes_per_day) * u128::from(DAY_NS))
    }

    fn left_bytes(&self, now: Nanos) -> u64 {
        (self.level_at(now) / u128::from(DAY_NS)) as u64
    }

    fn spend(&mut self, bytes: u64, now: Nanos) {
        self.level = self.level_at(now).saturating_sub(u128::from(bytes) * u128::from(DAY_NS));
        self.at = self.at.max(now);
    }

    /// What has to be there for something to rise, bytes.
    fn run_bytes(&self, chunk_bytes: u64) -> u64 {
        chunk_bytes.max(self.bytes_per_day / self.run_share)
    }
}

/// What the engine wrote of its own accord, and its budget for that.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wear {
    bucket: Option<Bucket>,
    pub(crate) moved_bytes: u64,
    pub(crate) copied_bytes: u64,
}

impl Wear {
    /// Of a volume opened now; without a budget, nothing is held back.
    pub(crate) fn new(budget_bytes_per_day: Option<u64>, opened: Nanos, economy: &Economy) -> Wear {
        let bucket = budget_bytes_per_day.map(|bytes_per_day| Bucket::new(bytes_per_day, opened, economy));
        Wear { bucket, moved_bytes: 0, copied_bytes: 0 }
    }

    /// Chunks that may be moved up now.
    pub(crate) fn may_rise(&self, chunk_bytes: u64, now: Nanos) -> usize {
        let Some(bucket) = &self.bucket else { return usize::MAX };
        let left = bucket.left_bytes(now);
        if left < bucket.run_bytes(chunk_bytes) { 0 } else { (left / chunk_bytes) as usize }
    }

    /// When something may rise again, if nothing may now; none where that is never.
    pub(crate) fn rises_again(&self, chunk_bytes: u64, now: Nanos) -> Option<Nanos> {
        let bucket = self.bucket.as_ref()?;
        let run = bucket.run_bytes(chunk_bytes);
        let missing = (u128::from(run) * u128::from(DAY_NS)).checked_sub(bucket.level_at(now))?;
        let possible = missing > 0 && run <= bucket.bytes_per_day;
        possible.then(|| now.after(missing.div_ceil(u128::from(bucket.bytes_per_day)) as u64))
    }

    /// Whether a copy of so many bytes may be written.
    pub(crate) fn may_copy(&self, bytes: u64, now: Nanos) -> bool {
        let Some(bucket) = &self.bucket else { return true };
        let left = bucket.left_bytes(now);
        left >= bytes && left - bytes >= bucket.bytes_per_day / bucket.copies_share
    }

    pub(crate) fn spend(&mut self, bytes: u64, now: Nanos) {
        if let Some(bucket) = &mut self.bucket {
            bucket.spend(bytes, now);
        }
    }

    pub(crate) fn has(&self, bytes: u64, now: Nanos) -> bool {
        self.bucket.as_ref().is_none_or(|bucket| bucket.left_bytes(now) >= bytes)
    }

    pub(crate) fn status(&self, now: Nanos) -> WearStatus {
        let budget = self.bucket.as_ref().map(|bucket| WearBudgetStatus {
            bytes_per_day: bucket.bytes_per_day,
            left_bytes: bucket.left_bytes(now),
        });
        WearStatus { moved_bytes: self.moved_bytes, copied_bytes: self.copied_bytes, budget }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 128 << 10;
    const NOW: Nanos = Nanos(5 * Nanos::SECOND);

    fn wear(budget: Option<u64>, opened: Nanos) -> Wear {
        Wear::new(budget, opened, &Economy::default())
    }

    fn left(wear: &Wear, now: Nanos) -> u64 {
        wear.status(now).budget.expect("a budget").left_bytes
    }

    #[test]
    fn without_a_budget_nothing_is_held_back() {
        let mut wear = wear(None, NOW);
        wear.spend(u64::MAX, NOW);
        assert!(wear.may_copy(CHUNK, NOW) && wear.has(u64::MAX, NOW));
        assert_eq!((wear.may_rise(CHUNK, NOW), wear.rises_again(CHUNK, NOW)), (usize::MAX, None));
    }

    #[test]
    fn with_a_budget_of_nothing_nothing_ever_rises() {
        let mut wear = self::wear(Some(0), NOW);
        wear.spend(CHUNK, NOW);
        for now in [Nanos(0), NOW, Nanos(u64::MAX)] {
            assert!(!wear.may_copy(CHUNK, now) && !wear.has(1, now));
            assert_eq!(
                (wear.may_rise(CHUNK, now), wear.rises_again(CHUNK, now), left(&wear, now)),
                (0, None, 0)
            );
        }
        // Nor does a chunk that is larger than a day's budget.
        let small = self::wear(Some(CHUNK - 1), NOW);
        let later = NOW.after(10 * DAY_NS);
        assert_eq!((small.may_rise(CHUNK, later), small.rises_again(CHUNK, later)), (0, None));
        assert!(!small.may_copy(CHUNK, later));
    }

    #[test]
    fn it_is_earned_evenly_and_no_more_than_a_day_of_it_is_kept() {
        let budget = 164u64 << 30;
        let mut wear = wear(Some(budget), NOW);
        assert_eq!(left(&wear, NOW), budget / OPENING_SHARE);
        wear.spend(u64::MAX, NOW);
        assert_eq!(left(&wear, NOW), 0, "a pin that was larger leaves no debt");
        // Looked at and spent from a million times, at odd moments: nothing is lost to rounding.
        let mut now = NOW;
        let mut spent = 0;
        for step in 0..1_000_000 {
            now = now.after(1_000_003 + step % 7);
            let bytes = left(&wear, now).min(step % 5000);
            wear.spend(bytes, now);
            spent += bytes;
        }
        let earned = u128::from(budget) * u128::from(now.since(NOW)) / u128::from(DAY_NS);
        assert_eq!(u128::from(spent + left(&wear, now)), earned);
        assert_eq!(left(&wear, now.after(DAY_NS)), budget);
        assert_eq!(left(&wear, Nanos(u64::MAX)), budget, "a clock far ahead earns no more than a day");
        wear.spend(0, Nanos(u64::MAX));
        assert_eq!(left(&wear, NOW), budget, "nor does one that goes back take anything");
    }

    #[test]
    fn copies_stop_first_and_what_rises_comes_in_runs() {
        let budget = 128u64 << 30;
        let mut wear = wear(Some(budget), NOW);
        assert!(wear.may_copy(CHUNK, NOW));
        let kept = budget / Economy::default().wear_copies_share;
        wear.spend(budget / OPENING_SHARE - kept, NOW);
        assert!(!wear.may_copy(CHUNK, NOW));
        assert_eq!(wear.may_rise(CHUNK, NOW), (kept / CHUNK) as usize);
        wear.spend(kept - CHUNK, NOW);
        assert_eq!(wear.may_rise(CHUNK, NOW), 0);
        let again = wear.rises_again(CHUNK, NOW).expect("it is earned again");
        assert_eq!(wear.may_rise(CHUNK, Nanos(again.0 - 1)), 0);
        assert_eq!(wear.may_rise(CHUNK, again), 1024);
        assert_eq!(wear.rises_again(CHUNK, again), None);
        assert!(again.since(NOW) < 85 * Nanos::SECOND);
    }

    #[test]
    fn the_largest_budget_overflows_nothing() {
        let mut wear = wear(Some(u64::MAX), Nanos(0));
        let end = Nanos(u64::MAX);
        assert_eq!(left(&wear, end), u64::MAX);
        wear.spend(u64::MAX, end);
        assert_eq!(left(&wear, end), 0);
        assert!(wear.rises_again(CHUNK, end).is_some());
        assert_eq!(wear.may_rise(CHUNK, end), 0);
    }
}
