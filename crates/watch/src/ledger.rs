//! The ledger: what the fast tier has saved, and what that cost, by day. All of it is derived from the history.
//!
//! What is saved is what clients would have waited longer with the slow device alone: for each read and write that the fast tier
//! served, as much as the volume measured then that one is answered sooner from there.

use crate::history::{HistoryError, read};
use crate::sample::{Sample, Step};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// What was saved and spent in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LedgerSums {
    /// Reads and writes of clients.
    pub requests: u64,
    /// As many of them as the bytes that the fast tier served are of all.
    pub fast_requests: f64,
    /// Hours that clients would have waited longer for these.
    pub saved_hours: f64,
    /// Bytes written to the fast device in all.
    pub worn_bytes: u64,
    /// Of these, what landed, with its records; what chunks took that rose; and copies.
    pub log_bytes: u64,
    /// Chunks that rose.
    pub moved_bytes: u64,
    /// Copies of what is on the slow tier.
    pub copied_bytes: u64,
    /// Chunks that rose and have repaid it.
    pub repaid_chunks: u64,
    /// Chunks that rose and went down again without.
    pub unrepaid_chunks: u64,
}

/// A day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LedgerDay {
    /// When it began, seconds since 1970.
    pub unix_s: u64,
    /// What came of it.
    #[serde(flatten)]
    pub sums: LedgerSums,
}

/// What is known of a volume, up to a year.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ledger {
    /// Days on which it was served, the oldest first.
    pub days: Vec<LedgerDay>,
    /// All of them together.
    pub total: LedgerSums,
}

impl LedgerSums {
    fn add(&mut self, sample: &Sample) {
        let share = |fast: &str, slow: &str| {
            let (fast, slow) = (sample.get(fast) as f64, sample.get(slow) as f64);
            if fast + slow > 0.0 { fast / (fast + slow) } else { 0.0 }
        };
        let reads = sample.get("reads") as f64 * share("fast_served_read_bytes", "slow_served_read_bytes");
        let writes =
            sample.get("writes") as f64 * share("fast_served_written_bytes", "slow_served_written_bytes");
        let saved_us =
            reads * sample.get("saved_us_per_read") as f64 + writes * sample.get("saved_us_per_write") as f64;
        self.requests += sample.get("reads") + sample.get("writes");
        self.fast_requests += reads + writes;
        self.saved_hours += saved_us / 3.6e9;
        self.worn_bytes += sample.get("fast_written_bytes");
        self.log_bytes += sample.get("log_written_bytes");
        self.moved_bytes += sample.get("moved_bytes");
        self.copied_bytes += sample.get("copied_bytes");
        self.repaid_chunks += sample.get("repaid_chunks");
        self.unrepaid_chunks += sample.get("judged_chunks").saturating_sub(sample.get("repaid_chunks"));
    }
}

/// The ledger of samples of hours, and of minutes where an hour is not complete.
fn of(hours: &[Sample], minutes: &[Sample], now: u64) -> Ledger {
    let hour = |at: u64| at / Step::Hour.seconds();
    let complete: BTreeSet<u64> =
        hours.iter().map(|sample| hour(sample.at)).filter(|at| *at != hour(now)).collect();
    let hours = hours.iter().filter(|sample| complete.contains(&hour(sample.at)));
    let minutes = minutes.iter().filter(|sample| !complete.contains(&hour(sample.at)));
    let mut days: BTreeMap<u64, LedgerSums> = BTreeMap::new();
    let mut total = LedgerSums::default();
    for sample in hours.chain(minutes) {
        days.entry(sample.at / DAY_S * DAY_S).or_default().add(sample);
        total.add(sample);
    }
    Ledger { days: days.into_iter().map(|(unix_s, sums)| LedgerDay { unix_s, sums }).collect(), total }
}

/// The ledger of a volume, from the file of its history, as of now in seconds since 1970.
///
/// # Errors
/// When there is no such file, or it is no history.
pub fn ledger(history: &Path, now: u64) -> Result<Ledger, HistoryError> {
    Ok(of(&read(history, Step::Hour, now)?, &read(history, Step::Minute, now)?, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{FIELDS, place_of};

    fn sample(at: u64, values: &[(&str, u64)]) -> Sample {
        let mut sample = Sample { at, span_ms: 1000, quiet_before: false, values: [0; FIELDS.len()] };
        for (name, value) in values {
            sample.values[place_of(name).expect("a field")] = *value;
        }
        sample
    }

    #[test]
    fn what_was_saved_is_what_would_have_been_waited() {
        let at = sample(
            DAY_S,
            &[
                ("reads", 1000),
                ("writes", 500),
                ("fast_served_read_bytes", 3),
                ("slow_served_read_bytes", 1),
                ("fast_served_written_bytes", 1),
                ("saved_us_per_read", 8000),
                ("saved_us_per_write", 2000),
                ("fast_written_bytes", 70),
                ("judged_chunks", 9),
                ("repaid_chunks", 7),
            ],
        );
        let found = of(&[at], &[], 10 * DAY_S);
        let sums = found.total;
        assert_eq!((sums.requests, sums.fast_requests, sums.worn_bytes), (1500, 1250.0, 70));
        assert_eq!((sums.repaid_chunks, sums.unrepaid_chunks), (7, 2));
        assert!((sums.saved_hours - 7.0 / 3600.0).abs() < 1e-12, "{}", sums.saved_hours);
        assert_eq!(found.days, [LedgerDay { unix_s: DAY_S, sums }]);
    }

    /// An hour counts once: by its own sample, or by its minutes while it goes on, or where a killed server never wrote it.
    #[test]
    fn no_hour_counts_twice() {
        let reads = |at: u64| sample(at, &[("reads", 1)]);
        let hours = [reads(3600), reads(7200), reads(10_800)];
        let minutes: Vec<Sample> = (60..=190).map(|minute| reads(minute * 60)).chain([reads(0)]).collect();
        // The third hour goes on; of the one from 0 there are only minutes.
        let found = of(&hours, &minutes, 11_400);
        assert_eq!(found.total.requests, 2 + 11 + 1);
        let of_days: u64 = found.days.iter().map(|day| day.sums.requests).sum();
        assert_eq!(of_days, found.total.requests);
    }
}
