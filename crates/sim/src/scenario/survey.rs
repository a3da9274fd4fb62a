//! What a trace touches: read once before anything is done, so that sizes can be shares of it.

use super::{ScenarioError, TraceSpec};
use bimetal_trace::{Far, Op, Trace, Why};
use bimetal_units::Nanos;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Grains of a trace that are told apart at most: of 128 KiB, half a terabyte, and about 100 MB of memory.
pub const MAX_GRAINS: usize = 1 << 22;

/// Alignments that are told apart: to 1, 2, 4, ... up to 4096 bytes.
const ALIGNMENTS: usize = 13;
/// A time in which a trace has nothing, and that is this many times as long as all of the rest, ...
const PAUSE_TIMES: u64 = 10;
/// ... is no pause of whoever was recorded, if it is as long as this.
pub(super) const PAUSE_NS: u64 = 86_400_000_000_000;

/// Reads and writes of one alignment: how many, and the number, offset and length of the first.
#[derive(Clone, Copy, Default)]
struct Aligned {
    count: u64,
    first: Option<(u64, u64, u64)>,
}

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
    /// Reads and writes by the power of two that both their ends are multiples of.
    aligned: [Aligned; ALIGNMENTS],
    /// Records that stood behind one of a later time, and those of them that still do.
    out_of_order: u64,
    unsorted: u64,
    /// The longest time without any record.
    pause_ns: u64,
    /// The files that lie furthest apart.
    far: Option<Far>,
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
        let (mut aligned, mut pause_ns) = ([Aligned::default(); ALIGNMENTS], 0);
        let mut trace = Trace::open(&files)?;
        for found in trace.by_ref() {
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
            if let Some(time) = record.time {
                pause_ns = pause_ns.max(time.0.saturating_sub(lasts_ns));
                lasts_ns = lasts_ns.max(time.0);
            }
            busy_ns += u128::from(record.response.map_or(0, |response| response.0));
            if matches!(record.op, Op::Read | Op::Write) {
                longest = longest.max(record.bytes);
                let ends = (record.offset | record.bytes).trailing_zeros() as usize;
                let class = &mut aligned[ends.min(ALIGNMENTS - 1)];
                class.count += 1;
                class.first.get_or_insert((records, record.offset, record.bytes));
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
        let (out_of_order, unsorted, far) = (trace.out_of_order(), trace.unsorted(), trace.far());
        Ok(Survey {
            files,
            grain,
            grains,
            records,
            timed,
            answered,
            lasts_ns,
            busy_ns,
            longest,
            changes,
            aligned,
            out_of_order,
            unsorted,
            pause_ns,
            far,
        })
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

    /// Reads and writes that are not in multiples of so many bytes, a power of two up to 4096: how many, and the offset
    /// and length of the first; none where all are.
    pub fn odd(&self, granule: u64) -> Option<(u64, (u64, u64))> {
        let below = &self.aligned[..(granule.max(1).ilog2() as usize).min(ALIGNMENTS - 1)];
        let (_, offset, bytes) = below.iter().filter_map(|class| class.first).min()?;
        Some((below.iter().map(|class| class.count).sum(), (offset, bytes)))
    }

    /// Records that the trace had behind one of a later time.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Those of them that stood so far behind that they could not be put where they belong.
    pub fn unsorted(&self) -> u64 {
        self.unsorted
    }

    /// Why nobody would wait for the longest time in which the trace has nothing; where it is so. Files whose clocks do
    /// not begin together look like this.
    pub fn torn(&self) -> Option<String> {
        let rest_ns = self.lasts_ns - self.pause_ns;
        if self.pause_ns < PAUSE_NS || self.pause_ns / PAUSE_TIMES < rest_ns {
            return None;
        }
        let pause = lasting(Nanos(self.pause_ns));
        Some(match self.far.as_ref().filter(|far| far.gap.0 == self.pause_ns) {
            Some(Far { before, behind, .. }) => format!(
                "{before} ends {pause} before {behind} begins: their clocks differ, or they were not recorded together"
            ),
            None => format!(
                "the trace has nothing for {pause}, and lasts {} beside that",
                lasting(Nanos(rest_ns))
            ),
        })
    }

    /// The longest time without a record.
    pub(super) fn pause_ns(&self) -> u64 {
        self.pause_ns
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

/// A time as people say it.
fn lasting(time: Nanos) -> String {
    let seconds = time.0 / 1_000_000_000;
    let days = seconds / 86_400;
    match (days, days / 365) {
        (0, _) if seconds < 3600 => format!("{seconds} s"),
        (0, _) => format!("{} hours", seconds / 3600),
        (_, 0 | 1) => format!("{days} days"),
        (_, years) => format!("{years} years"),
    }
}

/// Where a file is: `$NAME/` at the beginning is the folder that the environment names so.
fn locate(file: &str, folder: &Path) -> Result<PathBuf, String> {
    if file == "-" {
        return Err(
            "a trace is read more than once, and standard input (-) comes once; name a file".to_owned()
        );
    }
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
            aligned: Default::default(),
            out_of_order: 0,
            unsorted: 0,
            pause_ns: 0,
            far: None,
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
