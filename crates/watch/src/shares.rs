//! What part of clients' bytes the fast tier served, over spans of a history.

use crate::history::{HistoryError, read};
use crate::sample::{Sample, Step};
use std::path::Path;

/// Spans that are longer are read by the minute, and then by the hour.
const BY_SECONDS: u64 = 600;
const BY_MINUTES: u64 = 86_400;
/// A history is told of as a span when it goes back nearly as far.
const NEARLY: f64 = 0.9;

/// Bytes that clients read and wrote, by the tier that served them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Read from the fast tier, and from the slow one.
    pub read_bytes: [u64; 2],
    /// Written to the fast tier, which is where all that lands is, and to the slow one.
    pub written_bytes: [u64; 2],
}

impl Shares {
    fn add(&mut self, sample: &Sample) {
        let reads = ["fast_served_read_bytes", "slow_served_read_bytes"];
        let writes = ["fast_served_written_bytes", "slow_served_written_bytes"];
        for tier in 0..2 {
            self.read_bytes[tier] += sample.get(reads[tier]);
            self.written_bytes[tier] += sample.get(writes[tier]);
        }
    }
}

/// Over so many seconds before now, in seconds since 1970; over the year that is kept where that is none. None where the history
/// does not go back so far.
///
/// # Errors
/// When there is no such file, or it is no history.
pub fn shares(history: &Path, seconds: Option<u64>, now: u64) -> Result<Option<Shares>, HistoryError> {
    let minutes = read(history, Step::Minute, now)?;
    let samples = match seconds {
        Some(seconds) if seconds <= BY_SECONDS => read(history, Step::Second, now)?,
        Some(seconds) if seconds <= BY_MINUTES => minutes.clone(),
        _ => {
            // An hour that goes on, or was never written as a killed server's, is told by its minutes.
            let hours = read(history, Step::Hour, now)?;
            let hour = |at: u64| at / Step::Hour.seconds();
            let is_told =
                |at: u64| hours.iter().any(|sample| hour(sample.at) == hour(at)) && hour(at) != hour(now);
            let rest = minutes.iter().filter(|sample| !is_told(sample.at));
            hours.iter().filter(|sample| hour(sample.at) != hour(now)).chain(rest).copied().collect()
        }
    };
    let oldest = minutes.first().into_iter().chain(samples.first()).map(|sample| sample.at).min();
    let Some(age) = oldest.map(|at| now.saturating_sub(at)) else { return Ok(None) };
    let from = seconds.map_or(0, |seconds| now.saturating_sub(seconds));
    if seconds.is_some_and(|seconds| (age as f64) < seconds as f64 * NEARLY) {
        return Ok(None);
    }
    let mut sums = Shares::default();
    samples.iter().filter(|sample| sample.at >= from).for_each(|sample| sums.add(sample));
    Ok(Some(sums))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::sample::{FIELDS, place_of};

    /// A volume that was served for two hours, until now: by the minute, the first hour by the hour as well.
    fn kept(dir: &Path, now: u64) -> std::path::PathBuf {
        let path = dir.join("films.history");
        let (history, _) = History::open(&path, [1; 16]).expect("a history");
        let sample = |at: u64, span_ms: u64, fast: u64, slow: u64| {
            let mut values = [0; FIELDS.len()];
            values[place_of("fast_served_read_bytes").expect("a field")] = fast;
            values[place_of("slow_served_read_bytes").expect("a field")] = slow;
            values[place_of("slow_served_written_bytes").expect("a field")] = 1;
            Sample { at, span_ms, quiet_before: false, values }
        };
        let begun = now - 7200;
        for minute in 0..120 {
            let at = begun + 60 * minute;
            let fast = if minute < 60 { 1 } else { 3 };
            history.put(Step::Minute, &sample(at, 60_000, fast, 1)).expect("written");
            if minute == 0 {
                history.put(Step::Hour, &sample(at, 3_600_000, 60, 60)).expect("written");
            }
        }
        for second in now - 700..now {
            history.put(Step::Second, &sample(second, 1000, 9, 1)).expect("written");
        }
        path
    }

    #[test]
    fn each_span_has_what_was_served_in_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let now = 1_000_000 * 3600;
        let path = kept(dir.path(), now);
        let of = |seconds| shares(&path, seconds, now).expect("a history");
        let reads = |seconds| of(seconds).map(|shares| shares.read_bytes);
        assert_eq!(reads(Some(300)), Some([2700, 300]));
        assert_eq!(reads(Some(3600)), Some([180, 60]));
        assert_eq!(reads(Some(86_400)), None, "it does not go back so far");
        assert_eq!(of(None).expect("two hours").read_bytes, [60 + 180, 60 + 60], "no hour counts twice");
        assert_eq!(of(Some(3600)).expect("an hour").written_bytes, [0, 60]);
        assert!(shares(&dir.path().join("none"), None, now).is_err());
    }
}
