//! Reads a record, and sees to it that nothing in it can mislead the reports: a record may come from another machine,
//! another version, or somebody's script.

use crate::record::{FORMAT, Interval, IntervalSide, JobRun, Latency, Run, Side, VERSION};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A larger file is refused: it is read into memory whole, beside what is made of it. Six hours of eight
/// jobs by the second, each with its heat and places, are about 300 MB.
pub const MAX_RECORD_BYTES: u64 = 512 << 20;
const MAX_JOBS: usize = 10_000;
/// No time is beyond this: 146 years, so that sums of two still fit.
const MAX_NS: u64 = 1 << 62;
/// No count or size is, either: a billion GB.
const MAX_COUNT: u64 = 1 << 60;
/// Parts of a job's span.
const PLACES: u8 = 128;
/// 2^(128/2) ns are all that a time can be.
const HEATS: u8 = 128;

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file, or its medium.
    #[error("{file} cannot be read: {why}")]
    Io {
        /// As it was named.
        file: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// It is no record.
    #[error("{file}: {why}")]
    Invalid {
        /// As it was named.
        file: String,
        /// What is wrong.
        why: Invalid,
    },
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// Longer than [`MAX_RECORD_BYTES`].
    #[error(
        "larger than {} MiB, the most that is read into memory; a run with longer intervals has a smaller record",
        MAX_RECORD_BYTES >> 20
    )]
    Large,
    /// The text ends within a value.
    #[error("ends in the middle of the record; it was not written to its end, or was cut off")]
    Truncated,
    /// Other JSON, or none.
    #[error("not a record of a run: {0}")]
    NotARecord(String),
    /// A later version's.
    #[error(
        "a record of version {0}; this program knows up to version {VERSION}, a newer one is needed to read it"
    )]
    Newer(u32),
    /// A value is not what it should be.
    #[error("not a valid record: {0}")]
    Malformed(String),
    /// A value contradicts another, or is beyond all measure.
    #[error("not a valid record: {place}{what}")]
    Contradiction {
        /// In which job; empty where it is not in one.
        place: String,
        /// What.
        what: &'static str,
    },
}

/// Reads the record in a file.
///
/// # Errors
/// It cannot be read, is too large, no record, or one that [`validate`] refuses.
pub fn read(path: &Path) -> Result<Run, ReadError> {
    let file = || path.display().to_string();
    let io = |why| ReadError::Io { file: file(), why };
    let mut text = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut text)).map_err(io)?;
    parse(&text).map_err(|why| ReadError::Invalid { file: file(), why })
}

/// What every version has.
#[derive(Deserialize)]
struct Head {
    format: Option<String>,
    version: Option<u32>,
}

/// Reads a record.
///
/// # Errors
/// It is too large, no record, or one that [`validate`] refuses.
pub fn parse(text: &[u8]) -> Result<Run, Invalid> {
    if text.len() as u64 > MAX_RECORD_BYTES {
        return Err(Invalid::Large);
    }
    let head: Head = serde_json::from_slice(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof => Invalid::Truncated,
        _ => Invalid::NotARecord(error.to_string()),
    })?;
    match (head.format.as_deref(), head.version) {
        (Some(FORMAT), Some(version)) if version > VERSION => return Err(Invalid::Newer(version)),
        (Some(FORMAT), Some(_)) => {}
        (Some(FORMAT), None) => return Err(Invalid::NotARecord("it has no version".into())),
        _ => return Err(Invalid::NotARecord(format!("its \"format\" is not \"{FORMAT}\""))),
    }
    let run: Run = serde_json::from_slice(text).map_err(|error| Invalid::Malformed(error.to_string()))?;
    validate(&run)?;
    Ok(run)
}

/// What the reports rely on: order, sums, and numbers of which sums can be formed.
///
/// # Errors
/// The first thing that is not so.
pub fn validate(run: &Run) -> Result<(), Invalid> {
    let anywhere = |what| Invalid::Contradiction { place: String::new(), what };
    if run.jobs.len() > MAX_JOBS {
        return Err(anywhere("more than 10000 jobs"));
    }
    let percents = run.cpu.iter().flat_map(|cpu| [cpu.user_percent, cpu.system_percent]);
    if percents.into_iter().any(|percent| !percent.is_finite()) {
        return Err(anywhere("a share of the processor is no number"));
    }
    for (at, job) in run.jobs.iter().enumerate() {
        check_job(job).map_err(|what| {
            let name: String = job.name.chars().take(60).collect();
            Invalid::Contradiction { place: format!("job {} ({name:?}): ", at + 1), what }
        })?;
    }
    Ok(())
}

type Checked = Result<(), &'static str>;

fn ensure(holds: bool, otherwise: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn check_job(job: &JobRun) -> Checked {
    let times = [job.began_ns, job.elapsed_ns, job.interval_ns, job.late.total_ns, job.late.max_ns];
    ensure(times.iter().all(|&ns| ns <= MAX_NS), "a time is beyond 146 years")?;
    ensure(job.span.0 <= job.span.1, "the span ends before it begins")?;
    ensure(job.files_ns.is_empty() || job.file_bytes > 0, "there are files, and they have no bytes")?;
    ensure(job.file_bytes <= MAX_COUNT, "a file is beyond all measure")?;
    sum(job.files_ns.iter().copied(), MAX_NS, "the times of the files are beyond 146 years")?;
    ensure(job.late.count <= job.late.timed, "more I/Os were late than had a time")?;
    for side in [&job.read, &job.write, &job.discard, &job.flush] {
        check_side(side)?;
    }
    ensure(ascend(job.depths_ns.iter().map(|pair| pair.0)), "depths are not in order")?;
    sum(job.depths_ns.iter().map(|pair| pair.1), MAX_NS, "the times of the depths are beyond 146 years")?;
    ensure(job.intervals.is_empty() || job.interval_ns > 0, "there are intervals, and they have no length")?;
    ensure(ascend(job.intervals.iter().map(|interval| interval.n)), "intervals are not in order")?;
    if let Some(last) = job.intervals.last() {
        let ends = u128::from(last.n).saturating_add(1) * u128::from(job.interval_ns);
        ensure(ends <= u128::from(MAX_NS), "an interval lies beyond 146 years")?;
    }
    job.intervals.iter().try_for_each(check_interval)?;
    let of_intervals = |count: fn(&IntervalSide) -> u64| {
        sum(
            job.intervals.iter().flat_map(|interval| [count(&interval.read), count(&interval.write)]),
            MAX_COUNT,
            "the intervals together are beyond all measure",
        )
    };
    of_intervals(|side| side.ios)?;
    of_intervals(|side| side.bytes)
}

fn check_side(side: &Side) -> Checked {
    let counts = [side.ios, side.bytes, side.failed, side.mismatched];
    ensure(counts.iter().all(|&count| count <= MAX_COUNT), "a count is beyond all measure")?;
    [&side.submit, &side.service, &side.response].into_iter().try_for_each(check_latency)?;
    for (_, tier) in side.tiers.iter().flat_map(|tiers| tiers.each()) {
        ensure(tier.ios <= MAX_COUNT && tier.bytes <= MAX_COUNT, "a count is beyond all measure")?;
        check_latency(&tier.service)?;
    }
    Ok(())
}

fn check_latency(latency: &Latency) -> Checked {
    let Latency { count, min_ns, max_ns, mean_ns, stddev_ns, bins } = latency;
    ensure(*count <= MAX_COUNT && *max_ns <= MAX_NS, "a latency is beyond all measure")?;
    ensure(min_ns <= max_ns, "the shortest latency is longer than the longest")?;
    ensure(mean_ns.is_finite() && stddev_ns.is_finite() && *stddev_ns >= 0.0, "a mean is no number")?;
    // A mean is rounded, and may have been rounded to something readable.
    let room = *max_ns as f64 * 1e-3 + 1.0;
    let within = *min_ns as f64 - room <= *mean_ns && *mean_ns <= *max_ns as f64 + room;
    ensure(*count == 0 || within, "a mean is not between the shortest and the longest latency")?;
    ensure(ascend(bins.iter().map(|bin| bin.0)), "a histogram's bins are not in order")?;
    let binned = bins.iter().try_fold(0u64, |sum, bin| sum.checked_add(bin.1));
    ensure(bins.is_empty() || binned == Some(*count), "a histogram's bins do not add up to its count")
}

fn check_interval(interval: &Interval) -> Checked {
    for side in [&interval.read, &interval.write] {
        ensure(side.max_ns <= MAX_NS, "an interval's longest latency is beyond 146 years")?;
        for (pairs, end) in [(&side.heat, HEATS), (&side.places, PLACES)] {
            ensure(ascend(pairs.iter().map(|pair| pair.0)), "an interval's heat or places are not in order")?;
            ensure(pairs.iter().all(|pair| pair.0 < end), "an interval's heat or place is beyond 127")?;
            sum(pairs.iter().map(|pair| pair.1), MAX_COUNT, "an interval's heat is beyond all measure")?;
        }
    }
    let (fast, all) = interval.tiers.unwrap_or_default();
    ensure(fast <= all && all <= MAX_COUNT, "the fast tier served more than was served")
}

fn ascend<T: PartialOrd>(keys: impl Iterator<Item = T>) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}

fn sum(mut values: impl Iterator<Item = u64>, limit: u64, otherwise: &'static str) -> Checked {
    let sum = values.try_fold(0u64, u64::checked_add);
    ensure(sum.is_some_and(|sum| sum <= limit), otherwise)
}
