//! A spatial sample of a trace: whole regions of it, all that is asked of them, and nothing else.

use super::{Arrivals, PlanError};
use bimetal_trace::{LineError, Op, OwnWriter, Record, RecordWriter as _, Trace, Why};
use bimetal_units::rng::mix;
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;

/// Bytes of a region: in larger ones a small trace has too few to choose from, in smaller ones neighbours are torn apart.
pub const REGION_BYTES: u64 = 1 << 20;
/// Bytes of a grain: what a region touches is counted in these.
const GRAIN_BYTES: u64 = 128 << 10;
/// Regions at most: 4 TiB that are touched, and some 60 bytes of memory each.
pub const MAX_REGIONS: usize = 1 << 22;
/// Stretches of time at most in which it is counted who came.
const MAX_ARRIVALS: u64 = 1 << 22;
/// Choices of regions among which the one is taken that is most like the whole.
const CHOICES: u64 = 64;
/// Classes of regions, by requests to each grain: each twice as much as the one before.
const CLASSES: usize = 24;

/// What is asked of a region.
#[derive(Clone, Copy, Default)]
struct Facts {
    reads: u64,
    writes: u64,
    bytes: u64,
    grains: u64,
}

/// Sums over regions.
#[derive(Clone, Copy, Default)]
struct Sums {
    reads: f64,
    writes: f64,
    bytes: f64,
    grains: f64,
    by_heat: [f64; CLASSES],
}

impl Sums {
    fn add(&mut self, facts: &Facts) {
        let requests = facts.reads + facts.writes;
        let grains = u64::from(facts.grains.count_ones());
        self.reads += facts.reads as f64;
        self.writes += facts.writes as f64;
        self.bytes += facts.bytes as f64;
        self.grains += grains as f64;
        let class = (requests / grains.max(1)).max(1).ilog2() as usize;
        self.by_heat[class.min(CLASSES - 1)] += requests as f64;
    }

    fn requests(&self) -> f64 {
        self.reads + self.writes
    }

    /// How unlike the whole: 0 where each part of it is in proportion to the space.
    fn unlike(&self, whole: &Sums) -> f64 {
        if self.grains == 0.0 {
            return f64::INFINITY;
        }
        let space = self.grains / whole.grains;
        let off = |part: f64, all: f64| (part - space * all).abs();
        let heat: f64 = self.by_heat.iter().zip(&whole.by_heat).map(|(part, all)| off(*part, *all)).sum();
        let kinds = off(self.reads, whole.reads) + off(self.writes, whole.writes);
        let requests = (heat + kinds) / whole.requests().max(1.0);
        (requests + off(self.bytes, whole.bytes) / whole.bytes.max(1.0)) / space
    }
}

/// A trace by regions.
pub struct Regions {
    files: Vec<PathBuf>,
    facts: HashMap<(u32, u64), Facts>,
    whole: Sums,
    requests: u64,
    lasts_ns: Option<u64>,
    malformed: u64,
}

/// Regions that were chosen.
pub(super) struct Choice {
    /// By device and number, in order.
    regions: Vec<(u32, u64)>,
    /// Their part of what is touched, and of the requests.
    pub(super) space_share: f64,
    pub(super) request_share: f64,
}

impl Choice {
    /// The parts of a range that lie in chosen regions, as offset and length.
    fn parts(&self, record: &Record) -> impl Iterator<Item = (u64, u64)> {
        let (from, end) = (record.offset, record.offset + record.bytes);
        let first = self.regions.partition_point(|region| *region < (record.device, from / REGION_BYTES));
        let last = (record.device, (end - 1) / REGION_BYTES);
        let mut inside = self.regions[first..].iter().take_while(move |region| **region <= last).peekable();
        std::iter::from_fn(move || {
            let &(_, first) = inside.next()?;
            let mut behind = first + 1;
            while inside.next_if(|region| region.1 == behind).is_some() {
                behind += 1;
            }
            let at = from.max(first * REGION_BYTES);
            Some((at, end.min(behind * REGION_BYTES) - at))
        })
    }
}

fn hash(salt: u64, device: u32, region: u64) -> u64 {
    mix(region ^ mix(salt ^ u64::from(device)))
}

impl Regions {
    /// Reads a trace once.
    ///
    /// # Errors
    /// When it cannot be read, or reads and writes nothing.
    pub fn read(files: Vec<PathBuf>) -> Result<Regions, PlanError> {
        let mut found = Regions {
            files,
            facts: HashMap::new(),
            whole: Sums::default(),
            requests: 0,
            lasts_ns: Some(0),
            malformed: 0,
        };
        let mut first = None;
        for record in Trace::open(&found.files)? {
            match record {
                Ok(record) => found.take(&record)?,
                Err(LineError { file, why: Why::Read(error), .. }) => {
                    return Err(PlanError::Trace(format!("{file} cannot be read to its end: {error}")));
                }
                Err(error) => {
                    found.malformed += 1;
                    first.get_or_insert(error);
                }
            }
        }
        if found.facts.is_empty() {
            let why = first.map(|error| format!("; {error}")).unwrap_or_default();
            return Err(PlanError::Trace(format!("the trace reads and writes nothing{why}")));
        }
        let whole = &mut found.whole;
        found.facts.values().for_each(|facts| whole.add(facts));
        Ok(found)
    }

    fn take(&mut self, record: &Record) -> Result<(), PlanError> {
        self.lasts_ns = match (self.lasts_ns, record.time) {
            (Some(latest), Some(time)) => Some(latest.max(time.0)),
            _ => None,
        };
        if !matches!(record.op, Op::Read | Op::Write) {
            return Ok(());
        }
        self.requests += 1;
        let end = record.offset + record.bytes;
        for region in record.offset / REGION_BYTES..end.div_ceil(REGION_BYTES) {
            let (from, to) = (record.offset.max(region * REGION_BYTES), end.min((region + 1) * REGION_BYTES));
            if self.facts.len() >= MAX_REGIONS {
                let most = format!("{MAX_REGIONS} regions of 1 MiB");
                return Err(PlanError::Trace(format!(
                    "the trace touches {most} or more; plan with a part of it"
                )));
            }
            let facts = self.facts.entry((record.device, region)).or_default();
            match record.op {
                Op::Read => facts.reads += 1,
                _ => facts.writes += 1,
            }
            facts.bytes += to - from;
            for grain in from / GRAIN_BYTES..to.div_ceil(GRAIN_BYTES) {
                facts.grains |= 1 << (grain % (REGION_BYTES / GRAIN_BYTES));
            }
        }
        Ok(())
    }

    /// The files of the trace.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Lines that are no records.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Reads and writes.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Bytes that are touched.
    pub fn touched_bytes(&self) -> u64 {
        self.whole.grains as u64 * GRAIN_BYTES
    }

    /// The time of the last record; none where there are no times.
    pub fn lasts_ns(&self) -> Option<u64> {
        self.lasts_ns
    }

    /// It was listened for so long, whether or not somebody asked for anything at the end.
    pub(super) fn lasts_at_least(&mut self, ns: u64) {
        self.lasts_ns = self.lasts_ns.map(|lasts| lasts.max(ns));
    }

    /// How many regions there are.
    pub fn count(&self) -> usize {
        self.facts.len()
    }

    /// Chooses about this share of the regions: of some choices, the one that is most like the whole.
    pub(super) fn choose(&self, share: f64) -> Choice {
        let limit = (share.min(1.0) * u64::MAX as f64) as u64;
        let inside = |salt: u64, key: &(u32, u64)| hash(salt, key.0, key.1) <= limit;
        let sums = |salt: u64| {
            let mut sums = Sums::default();
            let chosen = self.facts.iter().filter(|(key, _)| inside(salt, key));
            chosen.for_each(|(_, facts)| sums.add(facts));
            sums
        };
        let choices = (0..CHOICES).map(|salt| (salt, sums(salt)));
        let unlike = |sums: &Sums| sums.unlike(&self.whole);
        let best = choices.min_by(|one, other| unlike(&one.1).total_cmp(&unlike(&other.1)));
        let (salt, sums) = best.expect("there are choices");
        let mut regions: Vec<(u32, u64)> =
            self.facts.keys().filter(|key| inside(salt, key)).copied().collect();
        regions.sort_unstable();
        Choice {
            regions,
            space_share: sums.grains / self.whole.grains,
            request_share: sums.requests() / self.whole.requests(),
        }
    }

    /// Writes what is asked of the chosen regions, as a trace; and who came when, where there are times.
    ///
    /// # Errors
    /// When the trace cannot be read, or the sample not written.
    pub(super) fn write(&self, choice: &Choice, out: impl Write) -> Result<Vec<Arrivals>, PlanError> {
        let mut writer = OwnWriter::new(out)?;
        let step_ns = (self.lasts_ns.unwrap_or(0) / MAX_ARRIVALS).max(1);
        let mut arrivals: Vec<Arrivals> = Vec::new();
        let mut unflushed = false;
        for record in Trace::open(&self.files)?.flatten() {
            if record.op == Op::Flush {
                // Nobody has to wait for what was not written.
                if std::mem::take(&mut unflushed) {
                    writer.record(&record)?;
                }
                continue;
            }
            let mut seen = 0;
            for (offset, bytes) in choice.parts(&record) {
                writer.record(&Record { offset, bytes, ..record })?;
                seen += 1;
                unflushed |= record.op != Op::Read;
            }
            if let Some(time) = record.time.filter(|_| record.op != Op::Discard) {
                let at_ns = time.0 / step_ns * step_ns;
                if arrivals.last().is_none_or(|last| last.at_ns < at_ns) {
                    arrivals.push(Arrivals { at_ns, seen: 0, others: 0 });
                }
                if let Some(last) = arrivals.last_mut() {
                    last.seen += seen;
                    last.others += u32::from(seen == 0);
                }
            }
        }
        Box::new(writer).finish()?;
        Ok(arrivals)
    }
}
