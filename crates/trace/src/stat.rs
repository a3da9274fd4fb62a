//! What is in a trace: everything that can be told without knowing how it was queued.

use crate::depth::{DepthFound, DepthOverTime, MAX_DEPTH};
use crate::footprint::Footprint;
use crate::reuse::{Reuse, ReuseSummary};
use crate::workset::{WorkingSet, Worksets};
use crate::{Format, LineError, Op, Record, Trace, Why};
use bimetal_units::{BLOCK_BYTES, Nanos};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;

/// Malformed lines that are named.
const MAX_NAMED: usize = 5;
/// Devices whose last request is remembered; those beyond have no sequential ones.
const MAX_DEVICES: usize = 65_536;
/// The classes of sizes: up to 512 bytes, 1 KiB, and so on to 4 GiB, the longest transfer.
const CLASSES: usize = 24;
const SMALLEST_CLASS: u64 = 512;
/// The longest time that is told from longer ones: about 12 days.
const MAX_NS: u64 = 1 << 50;

/// Malformed lines: how many, and which were the first.
#[derive(Debug, Default, Serialize)]
pub struct Malformed {
    /// All of them.
    pub count: u64,
    /// The first few, each in a sentence.
    pub first: Vec<String>,
    /// Files that could not be read to their end.
    pub unread_files: u64,
}

impl Malformed {
    /// Counts one.
    pub fn add(&mut self, error: &LineError) {
        self.count += 1;
        let unread = matches!(error.why, Why::Read(_));
        self.unread_files += u64::from(unread);
        if self.first.len() < MAX_NAMED || unread && self.first.len() < 2 * MAX_NAMED {
            self.first.push(error.to_string());
        }
    }
}

/// Times in microseconds.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// Requests of about one size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SizeClass {
    /// The largest of the class; the smallest is above half of that.
    pub up_to_bytes: u64,
    /// Reads of this class.
    pub reads: u64,
    /// Writes of this class.
    pub writes: u64,
}

/// How many requests were in flight at once.
#[derive(Debug, Serialize)]
pub struct QueueDepth {
    /// Over all of the time, also that in which nothing was.
    pub mean: f64,
    /// As requests found it when they began, themselves included, on average.
    pub found_mean: f64,
    /// The share of requests that found nothing in flight.
    pub alone_share: f64,
    /// As half of the requests found it when they began, themselves included.
    pub p50: u64,
    /// As nine in ten found it, or less.
    pub p90: u64,
    /// As 99 in a hundred found it, or less.
    pub p99: u64,
    /// The deepest.
    pub max: u64,
    /// How long the stretches of `over_time` are.
    pub slot_seconds: f64,
    /// The mean depth of each stretch.
    pub over_time: Vec<f64>,
}

/// What is in a trace. Shares are of reads and writes together; a footprint counts blocks of 4 KiB.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub format: Format,
    pub records: u64,
    pub malformed: Malformed,
    /// Requests logged again on a device below, and dropped.
    pub twins: u64,
    /// Requests that whoever recorded the trace had to leave out.
    pub lost: u64,
    pub devices: u64,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub read_share: f64,
    pub write_share: f64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub discarded_bytes: u64,
    /// Writes that were to be durable before they were answered.
    pub fua_writes: u64,
    /// Writes of zeros that came without their bytes.
    pub zero_writes: u64,
    pub footprint_bytes: u64,
    pub read_footprint_bytes: u64,
    pub written_footprint_bytes: u64,
    /// Nothing had to be estimated.
    pub footprint_exact: bool,
    /// Behind the last byte that is read or written.
    pub end_bytes: u64,
    pub duration_seconds: Option<f64>,
    /// Records that stand behind one of a later time; they are put where they belong, ...
    pub out_of_order: u64,
    /// ... but for these, which stand too far behind.
    pub unsorted: u64,
    pub requests_per_second: Option<f64>,
    /// Requests in the fullest second.
    pub busiest_second_requests: Option<u64>,
    pub inter_arrival: Option<Percentiles>,
    pub response: Option<Percentiles>,
    /// Reads and writes that begin where the one before on their device ended.
    pub sequential_share: f64,
    /// Reads and writes whose both ends are multiples of 4 KiB.
    pub aligned_share: f64,
    pub sizes: Vec<SizeClass>,
    /// From the response times of those that have one; none where none has.
    pub queue_depth: Option<QueueDepth>,
    /// None without reads and writes.
    pub reuse: Option<ReuseSummary>,
    /// None without records.
    pub working_set: Option<WorkingSet>,
}

/// Takes records and sums them up, in bounded memory.
pub struct Stat {
    malformed: Malformed,
    counts: [u64; 4],
    bytes: [u64; 4],
    footprint: Footprint,
    end_bytes: u64,
    ends: HashMap<u32, u64>,
    sequential: u64,
    aligned: u64,
    sizes: [SizeClass; CLASSES],
    times: Times,
    responses: Spread,
    fua_writes: u64,
    zero_writes: u64,
    depth: Depth,
    reuse: Reuse,
    worksets: Worksets,
}

/// How deep the queue was.
#[derive(Default)]
struct Depth {
    over_time: DepthOverTime,
    found: DepthFound,
    spread: Option<Histogram<u64>>,
    max: u64,
    sum: u64,
    alone: u64,
}

impl Depth {
    fn add(&mut self, begin: Nanos, response: Nanos) {
        self.over_time.add(begin, response);
        let found = self.found.begin(begin, response) as u64;
        self.max = self.max.max(found);
        self.sum += found;
        self.alone += u64::from(found == 1);
        if self.spread.is_none() {
            self.spread = Histogram::new_with_bounds(1, MAX_DEPTH as u64, 3).ok();
        }
        if let Some(spread) = &mut self.spread {
            spread.saturating_record(found);
        }
    }

    fn summary(self) -> Option<QueueDepth> {
        let (spread, mean) = (self.spread?, self.over_time.mean()?);
        let at = |quantile| spread.value_at_quantile(quantile).min(self.max);
        Some(QueueDepth {
            mean,
            found_mean: self.sum as f64 / spread.len().max(1) as f64,
            alone_share: share(self.alone, spread.len()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.max,
            slot_seconds: self.over_time.slot().0 as f64 / 1e9,
            over_time: self.over_time.depths().collect(),
        })
    }
}

/// How records follow one another.
#[derive(Default)]
struct Times {
    latest: Option<u64>,
    gaps: Spread,
    second: u64,
    in_second: u64,
    busiest: u64,
}

impl Times {
    fn add(&mut self, time: u64) {
        let before = self.latest.unwrap_or(time);
        if self.latest.is_some() {
            self.gaps.add(time.saturating_sub(before));
        }
        self.latest = Some(before.max(time));
        // A record out of order counts in the second that is going on.
        let second = time / 1_000_000_000;
        if second > self.second {
            self.second = second;
            self.in_second = 0;
        }
        self.in_second += 1;
        self.busiest = self.busiest.max(self.in_second);
    }
}

/// Times in nanoseconds, to three digits.
#[derive(Default)]
struct Spread {
    histogram: Option<Histogram<u64>>,
    sum: u128,
    max: u64,
}

impl Spread {
    fn add(&mut self, ns: u64) {
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
        if self.histogram.is_none() {
            // Made when the first one comes: many traces have no times. The bounds are sound.
            self.histogram = Histogram::new_with_bounds(1, MAX_NS, 3).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns);
        }
    }

    fn percentiles(&self) -> Option<Percentiles> {
        let histogram = self.histogram.as_ref()?;
        let at = |quantile| histogram.value_at_quantile(quantile).min(self.max) as f64 / 1e3;
        Some(Percentiles {
            mean_us: self.sum as f64 / histogram.len() as f64 / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            max_us: self.max as f64 / 1e3,
        })
    }
}

impl Default for Stat {
    fn default() -> Stat {
        Stat {
            malformed: Malformed::default(),
            counts: [0; 4],
            bytes: [0; 4],
            footprint: Footprint::new(),
            end_bytes: 0,
            ends: HashMap::new(),
            sequential: 0,
            aligned: 0,
            sizes: std::array::from_fn(|class| SizeClass {
                up_to_bytes: SMALLEST_CLASS << class,
                ..SizeClass::default()
            }),
            times: Times::default(),
            responses: Spread::default(),
            fua_writes: 0,
            zero_writes: 0,
            depth: Depth::default(),
            reuse: Reuse::default(),
            worksets: Worksets::default(),
        }
    }
}

/// The class of a size: the smallest that holds it.
fn class(bytes: u64) -> usize {
    let units = bytes.div_ceil(SMALLEST_CLASS).max(1);
    (units.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Stat {
    /// Counts what a reader gave out.
    pub fn add(&mut self, found: &Result<Record, LineError>) {
        match found {
            Ok(record) => self.record(record),
            Err(error) => self.malformed.add(error),
        }
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn record(&mut self, record: &Record) {
        let kind = record.op as usize;
        self.counts[kind] += 1;
        self.bytes[kind] = self.bytes[kind].saturating_add(record.bytes);
        if let Some(time) = record.time {
            self.times.add(time.0);
        }
        if let Some(response) = record.response {
            self.responses.add(response.0);
            if let Some(time) = record.time {
                self.depth.add(time, response);
            }
        }
        self.fua_writes += u64::from(record.marks.fua && record.op == Op::Write);
        self.zero_writes += u64::from(record.marks.zeroes);
        self.worksets.add(record);
        if matches!(record.op, Op::Read | Op::Write) {
            self.transfer(record);
        }
    }

    fn transfer(&mut self, record: &Record) {
        let (end, write) = (record.offset + record.bytes, record.op == Op::Write);
        self.footprint.touch(record.device, record.offset, record.bytes, write);
        self.reuse.touch(record.device, record.offset, record.bytes);
        self.end_bytes = self.end_bytes.max(end);
        let block = u64::from(BLOCK_BYTES);
        self.aligned += u64::from(record.offset.is_multiple_of(block) && end.is_multiple_of(block));
        let class = &mut self.sizes[class(record.bytes)];
        *(if write { &mut class.writes } else { &mut class.reads }) += 1;
        if let Some(last) = self.ends.get_mut(&record.device) {
            self.sequential += u64::from(*last == record.offset);
            *last = end;
        } else if self.ends.len() < MAX_DEVICES {
            self.ends.insert(record.device, end);
        }
    }

    /// All that was found in a trace that has been read.
    pub fn summary(self, trace: &Trace) -> Summary {
        let records = self.records();
        let [reads, writes, flushes, discards] = self.counts;
        let transfers = reads + writes;
        let touched = self.footprint.touched();
        let seconds = self.times.latest.map(|latest| latest as f64 / 1e9);
        Summary {
            format: trace.format(),
            records,
            malformed: self.malformed,
            twins: trace.twins(),
            lost: trace.lost(),
            devices: self.ends.len() as u64,
            reads,
            writes,
            flushes,
            discards,
            read_share: share(reads, transfers),
            write_share: share(writes, transfers),
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            discarded_bytes: self.bytes[3],
            fua_writes: self.fua_writes,
            zero_writes: self.zero_writes,
            footprint_bytes: touched.all,
            read_footprint_bytes: touched.read,
            written_footprint_bytes: touched.written,
            footprint_exact: touched.exact,
            end_bytes: self.end_bytes,
            duration_seconds: seconds,
            out_of_order: trace.out_of_order(),
            unsorted: trace.unsorted(),
            requests_per_second: seconds.filter(|seconds| *seconds > 0.0).map(|all| records as f64 / all),
            busiest_second_requests: seconds.map(|_| self.times.busiest),
            inter_arrival: self.times.gaps.percentiles(),
            response: self.responses.percentiles(),
            sequential_share: share(self.sequential, transfers),
            aligned_share: share(self.aligned, transfers),
            sizes: self.sizes.into_iter().filter(|class| class.reads + class.writes > 0).collect(),
            queue_depth: self.depth.summary(),
            reuse: self.reuse.summary(touched.all),
            working_set: self.worksets.summary(),
        }
    }
}
