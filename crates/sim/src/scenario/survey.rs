//! What a trace touches: read once before anything is done, so that sizes can be shares of it.

use super::{ScenarioError, TraceSpec};
use bimetal_trace::{Op, Trace, Why};
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Grains of a trace that are told apart at most: of 128 KiB, half a terabyte, and about 100 MB of memory.
pub const MAX_GRAINS: usize = 1 << 22;

/// A trace that was read once.
pub struct Survey {
    files: Vec<PathBuf>,
    grain: u64,
    /// Device and number of each grain that is read or written, in order: where it stands is where it is mapped to.
    grains: Vec<(u32, u64)>,
    /// Records, or as many as the scenario wants.
    pub(super) records: u64,
    /// The records have times.
    pub(super) timed: bool,
    /// Some of them have responses.
    pub(super) answered: bool,
    /// The time of the last, and the responses of all, nanoseconds.
    lasts_ns: u64,
    busy_ns: u128,
    /// The longest read or write.
    longest: u64,
    /// Something is written or discarded.
    changes: bool,
}

impl Survey {
    /// Reads a trace whose relative paths begin at this folder.
    ///
    /// # Errors
    /// When it cannot be read, or touches nothing or too much.
    pub fn read(spec: &TraceSpec, folder: &Path) -> Result<Survey, ScenarioError> {
        let wrong = |what: String| Err(ScenarioError::Sense(what));
        let files = spec.files.iter().map(|file| locate(file, folder));
        let files = files.collect::<Result<Vec<_>, _>>().map_err(ScenarioError::Sense)?;
        let name = spec.files.join(", ");
        let (grain, most) = (spec.grain.0, spec.first.unwrap_or(u64::MAX));
        let mut touched = HashSet::new();
        let (mut records, mut timed, mut answered) = (0, true, false);
        let (mut lasts_ns, mut busy_ns, mut longest, mut changes) = (0, 0, 0, false);
        let mut malformed = None;
        for found in Trace::open(&files)? {
            let record = match found {
                Ok(record) => record,
                Err(error) if matches!(error.why, Why::Read(_)) => return wrong(error.to_string()),
                Err(error) => {
                    malformed.get_or_insert(error);
                    continue;
                }
            };
            timed &= record.time.is_some();
            changes |= matches!(record.op, Op::Write | Op::Discard);
            answered |= record.response.is_some();
            lasts_ns = record.time.map_or(lasts_ns, |time| lasts_ns.max(time.0));
            busy_ns += u128::from(record.response.map_or(0, |response| response.0));
            if matches!(record.op, Op::Read | Op::Write) {
                longest = longest.max(record.bytes);
                let last = (record.offset + record.bytes - 1) / grain;
                touched.extend((record.offset / grain..=last).map(|number| (record.device, number)));
                if touched.len() > MAX_GRAINS {
                    return wrong(format!(
                        "{name} touches more than {MAX_GRAINS} grains of {grain} bytes; take a larger [trace] grain, \
                         or fewer records with [trace] first"
                    ));
                }
            }
            records += 1;
            if records == most {
                break;
            }
        }
        if touched.is_empty() {
            let why = malformed.map(|error| format!("; {error}")).unwrap_or_default();
            return wrong(format!("{name} reads and writes nothing{why}"));
        }
        let mut grains: Vec<(u32, u64)> = touched.into_iter().collect();
        grains.sort_unstable();
        Ok(Survey { files, grain, grains, records, timed, answered, lasts_ns, busy_ns, longest, changes })
    }

    /// The trace from its beginning.
    pub(super) fn open(&self) -> Result<Trace, ScenarioError> {
        Ok(Trace::open(&self.files)?)
    }

    /// Records that are replayed.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether all of them have times.
    pub fn timed(&self) -> bool {
        self.timed
    }

    /// The time of the last record.
    pub fn lasts_ns(&self) -> u64 {
        self.lasts_ns
    }

    /// Requests that were in flight on average when it was recorded, where the trace tells.
    pub fn mean_depth(&self) -> Option<f64> {
        (self.answered && self.lasts_ns > 0).then(|| self.busy_ns as f64 / self.lasts_ns as f64)
    }

    /// Whether it writes or discards anything.
    pub fn changes(&self) -> bool {
        self.changes
    }

    /// Bytes of the longest read or write.
    pub fn longest_bytes(&self) -> u64 {
        self.longest
    }

    /// Bytes that the trace touches, in whole grains.
    pub fn bytes(&self) -> u64 {
        self.grains.len() as u64 * self.grain
    }

    /// Where the part of a range that is touched lies, with nothing of the rest in between; none if no part is. A read
    /// or write is touched as a whole.
    pub(super) fn place(&self, device: u32, offset: u64, len: u64) -> Option<(u64, u64)> {
        let at = |byte: u64| {
            let key = (device, byte / self.grain);
            let number = self.grains.partition_point(|grain| *grain < key);
            let inside = if self.grains.get(number) == Some(&key) { byte % self.grain } else { 0 };
            number as u64 * self.grain + inside
        };
        let (start, end) = (at(offset), at(offset + len));
        (start < end).then_some((start, end - start))
    }
}

/// Where a file is: `$NAME/` at the beginning is the folder that the environment names so.
fn locate(file: &str, folder: &Path) -> Result<PathBuf, String> {
    let Some((name, rest)) = variable(file) else { return Ok(folder.join(file)) };
    match set(name) {
        Some(value) => Ok(PathBuf::from(value).join(rest)),
        None => Err(format!(
            "the environment variable {name} is not set; it names the folder of the trace {file:?}"
        )),
    }
}

/// The environment variable that a path begins with, and what is behind it.
fn variable(file: &str) -> Option<(&str, &str)> {
    let named = file.strip_prefix('$')?;
    Some(named.split_once('/').unwrap_or((named, "")))
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The environment variable that this path begins with, if it is not set.
pub(super) fn missing_variable(file: &str) -> Option<&str> {
    variable(file).map(|(name, _)| name).filter(|name| set(name).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_lies_together_and_in_order() {
        let grains = vec![(0, 5), (0, 6), (0, 9), (1, 0)];
        let survey = Survey {
            files: Vec::new(),
            grain: 4096,
            grains,
            records: 4,
            timed: true,
            answered: false,
            lasts_ns: 0,
            busy_ns: 0,
            longest: 4096,
            changes: false,
        };
        assert_eq!(survey.bytes(), 4 * 4096);
        assert_eq!(survey.place(0, 5 * 4096 + 100, 4096), Some((100, 4096)));
        assert_eq!(survey.place(0, 9 * 4096, 4096), Some((2 * 4096, 4096)));
        assert_eq!(survey.place(1, 512, 512), Some((3 * 4096 + 512, 512)));
        // Of what reaches over all of a device, the part that is touched.
        assert_eq!(survey.place(0, 0, 100 * 4096), Some((0, 3 * 4096)));
        assert_eq!(survey.place(0, 5 * 4096 + 512, 2 * 4096), Some((512, 2 * 4096 - 512)));
        assert_eq!(survey.place(0, 7 * 4096, 2 * 4096), None);
    }
}
