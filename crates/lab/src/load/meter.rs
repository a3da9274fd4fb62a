//! What comes of a job: counts, latencies, and how they went over time.

use super::logs::Logger;
use crate::job::Job;
use crate::record::{ByTier, Interval, IntervalSide, JobRun, Late, Latency, Side, TierSide};
use bimetal_load::{Fault, Histogram, Io};
use bimetal_models::Kind;
use bimetal_units::ServedBy;
use std::collections::BTreeMap;
use std::ops::Range;

/// Intervals of a job at most: above, two become one. An hour in seconds, and a page that can be looked at.
const MAX_INTERVALS: usize = 4096;
/// Where the map of addresses puts an I/O: parts of the span.
const PLACES: usize = 128;
/// Halves of powers of two, for the heat map: up to 2^64 ns.
const HEATS: usize = 128;
/// An I/O that is begun later than this after its time is late: less is what a processor takes to look around.
const LATE_NS: u64 = 100_000;
/// The error of an I/O that took longer than its job allows.
pub(crate) const TOO_LONG: &str = "it took longer than max_latency";
/// Texts of errors that are told apart: more can only be a target gone mad.
const MAX_ERRORS: usize = 64;

/// Times of one kind.
struct Times {
    histogram: Histogram<u64>,
    /// Exactly: the histogram is off by up to 0.1 %.
    min: u64,
    max: u64,
    sum: u128,
    squares: f64,
}

impl Times {
    fn new() -> Times {
        // Three digits: 0.1 %. It grows as it must.
        let histogram = Histogram::new(3).expect("three digits are among those that a histogram can have");
        Times { histogram, min: u64::MAX, max: 0, sum: 0, squares: 0.0 }
    }

    #[inline]
    fn add(&mut self, ns: u64) {
        // It grows, so that no value is too large for it.
        self.histogram.record(ns).expect("a histogram that grows takes any value");
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
        self.sum += u128::from(ns);
        self.squares += (ns as f64) * (ns as f64);
    }

    fn latency(&self) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        let mean = self.sum as f64 / count as f64;
        // Of the sample.
        let degrees = count.saturating_sub(1).max(1) as f64;
        let variance = (self.squares - mean * mean * count as f64).max(0.0) / degrees;
        let bins = self.histogram.iter_recorded();
        Latency {
            count,
            min_ns: self.min,
            max_ns: self.max,
            mean_ns: mean,
            stddev_ns: variance.sqrt(),
            bins: bins.map(|bin| (bin.value_iterated_to(), bin.count_since_last_iteration())).collect(),
        }
    }
}

/// Reads, writes, discards or flushes.
#[derive(Default)]
struct Tally {
    ios: u64,
    bytes: u64,
    failed: u64,
    mismatched: u64,
    times: Option<Box<[Times; 3]>>,
    /// By the tiers that had a part in it, in the order of [`ByTier::each`].
    tiers: Option<Box<[TierTally; 4]>>,
    in_flight: u32,
    busy_since_ns: u64,
    busy_ns: u64,
}

/// I/Os that the same tiers had a part in.
struct TierTally {
    bytes: u64,
    service: Times,
}

impl TierTally {
    fn new() -> TierTally {
        TierTally { bytes: 0, service: Times::new() }
    }

    fn side(&self) -> TierSide {
        let service = self.service.latency();
        TierSide { ios: service.count, bytes: self.bytes, service }
    }
}

impl Tally {
    /// One more is in flight.
    #[inline]
    fn begun(&mut self, now_ns: u64) {
        if self.in_flight == 0 {
            self.busy_since_ns = now_ns;
        }
        self.in_flight += 1;
    }

    /// One fewer is; only what lies behind `from_ns` counts.
    #[inline]
    fn left(&mut self, now_ns: u64, from_ns: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.busy_ns += now_ns.saturating_sub(self.busy_since_ns.max(from_ns));
        }
    }

    #[inline]
    fn served(&mut self, by: ServedBy, bytes: u64, service_ns: u64) {
        let tiers = self.tiers.get_or_insert_with(|| Box::new(std::array::from_fn(|_| TierTally::new())));
        let tally = match (by.fast, by.slow) {
            (true, false) => &mut tiers[0],
            (false, true) => &mut tiers[1],
            (true, true) => &mut tiers[2],
            (false, false) => &mut tiers[3],
        };
        tally.bytes += bytes;
        tally.service.add(service_ns);
    }

    fn side(&self) -> Side {
        let none = Latency::default;
        let [submit, service, response] = match &self.times {
            Some(times) => [times[0].latency(), times[1].latency(), times[2].latency()],
            None => [none(), none(), none()],
        };
        let &Tally { ios, bytes, failed, mismatched, busy_ns, .. } = self;
        let tiers = self.tiers.as_ref().map(|tiers| {
            let [fast, slow, both, neither] = tiers.each_ref().map(TierTally::side);
            Box::new(ByTier { fast, slow, both, neither })
        });
        Side { ios, bytes, failed, mismatched, busy_ns, runtime_ns: 0, submit, service, response, tiers }
    }
}

/// What is going on in the present interval, of reads or writes.
struct Present {
    ios: u64,
    bytes: u64,
    max_ns: u64,
    total_ns: u64,
    heat: [u32; HEATS],
    places: [u32; PLACES],
}

impl Present {
    fn new() -> Present {
        Present { ios: 0, bytes: 0, max_ns: 0, total_ns: 0, heat: [0; HEATS], places: [0; PLACES] }
    }

    fn take(&mut self) -> IntervalSide {
        let past = std::mem::replace(self, Present::new());
        IntervalSide {
            ios: past.ios,
            bytes: past.bytes,
            max_ns: past.max_ns,
            total_ns: past.total_ns,
            heat: sparse(&past.heat),
            places: sparse(&past.places),
        }
    }
}

fn sparse(counts: &[u32]) -> Vec<(u8, u64)> {
    let found = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    found.map(|(n, &count)| (n as u8, u64::from(count))).collect()
}

/// Watches one job.
pub struct Meter {
    /// On the target's clock: when the run began, and when the job counts from.
    run_began_ns: u64,
    counts_from_ns: u64,
    last_ns: u64,
    span: Range<u64>,
    paced: bool,
    tallies: [Tally; 4],
    late: Late,
    errors: BTreeMap<String, u64>,
    /// How long each kind may take.
    max_latency_ns: [Option<u64>; 3],
    interval_ns: u64,
    present_n: u64,
    present: Box<[Present; 2]>,
    intervals: Vec<Interval>,
    in_flight: u32,
    depth_since_ns: u64,
    depths_ns: [u64; 33],
    /// When what was written is read back: how long in all, and the part that is going on, or was the last.
    back_ns: u64,
    back: Option<Range<u64>>,
    stopped: bool,
    logs: Vec<Logger>,
    /// When the last completion was found, how many were found then, and how often how many were.
    found_ns: u64,
    found: u32,
    found_at_once: [u64; 32],
}

impl Meter {
    /// Of a job of a run that begins now; the first intervals are so long.
    pub fn new(job: &Job, now_ns: u64, interval_ns: u64) -> Meter {
        let counts_from_ns = now_ns + job.start_delay_ns + job.ramp_ns;
        Meter {
            run_began_ns: now_ns,
            counts_from_ns,
            last_ns: counts_from_ns,
            span: job.span.clone(),
            paced: job.is_paced || job.rate.iter().any(Option::is_some),
            tallies: Default::default(),
            late: Late::default(),
            errors: BTreeMap::new(),
            max_latency_ns: job.max_latency_ns,
            interval_ns,
            present_n: 0,
            present: Box::new([Present::new(), Present::new()]),
            intervals: Vec::new(),
            in_flight: 0,
            depth_since_ns: counts_from_ns,
            depths_ns: [0; 33],
            back_ns: 0,
            back: None,
            stopped: false,
            found_ns: 0,
            found: 0,
            found_at_once: [0; 32],
            logs: job.logs.iter().map(|log| Logger::new(log, job.start_delay_ns + job.ramp_ns)).collect(),
        }
    }

    /// An I/O is begun; so much after its time, if it had one.
    #[inline]
    pub fn begun(&mut self, kind: Kind, now_ns: u64, late_ns: Option<u64>) {
        self.depth_changes(now_ns, 1);
        self.tallies[place(kind)].begun(now_ns);
        if let Some(late) = late_ns.filter(|_| self.paced && now_ns >= self.counts_from_ns) {
            self.late.timed += 1;
            self.late.count += u64::from(late > LATE_NS);
            self.late.total_ns += late;
            self.late.max_ns = self.late.max_ns.max(late);
        }
    }

    /// An I/O has ended.
    #[inline]
    pub fn ended(&mut self, io: &Io, error: impl FnOnce(Fault) -> String) {
        self.depth_changes(io.at_ns, -1);
        let kind = place(io.command.kind);
        if !self.stopped {
            self.tallies[kind].left(io.at_ns, self.counts_from_ns);
        }
        if io.at_ns < self.counts_from_ns || self.stopped {
            return;
        }
        self.last_ns = self.last_ns.max(io.at_ns);
        self.reads_back(io);
        self.finds(io.at_ns);
        let tally = &mut self.tallies[kind];
        if let Some(fault) = io.fault {
            tally.failed += 1;
            let text = error(fault);
            if self.errors.len() < MAX_ERRORS || self.errors.contains_key(&text) {
                *self.errors.entry(text).or_default() += 1;
            }
            return;
        }
        tally.ios += 1;
        tally.bytes += io.command.len;
        tally.mismatched += u64::from(io.mismatched);
        if io.mismatched && self.errors.len() < MAX_ERRORS {
            let bimetal_models::Command { offset, len, .. } = io.command;
            *self.errors.entry(format!("not what was written: {len} bytes at byte {offset}")).or_default() +=
                1;
        }
        let times = tally.times.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Times::new())));
        let response = io.at_ns.saturating_sub(io.meant_ns.unwrap_or(io.begun_ns));
        if self.max_latency_ns.get(kind).copied().flatten().is_some_and(|most| response > most) {
            *self.errors.entry(TOO_LONG.to_owned()).or_default() += 1;
        }
        times[0].add(io.handed_ns.saturating_sub(io.begun_ns));
        times[1].add(io.at_ns.saturating_sub(io.handed_ns));
        times[2].add(response);
        for log in &mut self.logs {
            log.ended(io, io.at_ns - self.counts_from_ns);
        }
        if kind < 2 {
            if let Some(served) = io.served {
                tally.served(served, io.command.len, io.at_ns.saturating_sub(io.handed_ns));
            }
            self.put_down(kind, io, response);
        }
    }

    /// Whether this is a time in which what was written is read back.
    #[inline]
    fn reads_back(&mut self, io: &Io) {
        match &mut self.back {
            Some(back) if io.reads_back => back.end = back.end.max(io.at_ns),
            None if io.reads_back => self.back = Some(io.begun_ns.max(self.counts_from_ns)..io.at_ns),
            Some(back) => {
                self.back_ns += back.end - back.start;
                self.back = None;
            }
            None => {}
        }
    }

    #[inline]
    fn put_down(&mut self, kind: usize, io: &Io, response_ns: u64) {
        let n = (io.at_ns - self.counts_from_ns) / self.interval_ns;
        if n != self.present_n {
            self.end_interval();
            self.present_n = (io.at_ns - self.counts_from_ns) / self.interval_ns;
        }
        let present = &mut self.present[kind];
        present.ios += 1;
        present.bytes += io.command.len;
        present.max_ns = present.max_ns.max(response_ns);
        present.total_ns += response_ns;
        present.heat[heat(response_ns)] += 1;
        let span = (self.span.end - self.span.start).max(1);
        let at = io.command.offset.saturating_sub(self.span.start).min(span - 1);
        present.places[(u128::from(at) * PLACES as u128 / u128::from(span)) as usize] += 1;
    }

    fn end_interval(&mut self) {
        let [read, write] = &mut *self.present;
        let interval = Interval { n: self.present_n, read: read.take(), write: write.take(), tiers: None };
        if interval.read.ios + interval.write.ios > 0 {
            self.intervals.push(interval);
        }
        if self.intervals.len() >= MAX_INTERVALS {
            self.intervals = in_pairs(std::mem::take(&mut self.intervals));
            self.interval_ns *= 2;
        }
    }

    #[inline]
    fn depth_changes(&mut self, now_ns: u64, by: i32) {
        if !self.stopped {
            let since = now_ns.saturating_sub(self.depth_since_ns);
            if since > 0 {
                let power = (u32::BITS - self.in_flight.leading_zeros()) as usize;
                self.depths_ns[power] += since;
                self.depth_since_ns = now_ns;
            }
        }
        self.in_flight = self.in_flight.saturating_add_signed(by);
    }

    /// A completion was found; those that are found together have one time.
    #[inline]
    fn finds(&mut self, now_ns: u64) {
        if self.found > 0 && now_ns != self.found_ns {
            self.found_at_once[self.found.ilog2() as usize] += 1;
            self.found = 0;
        }
        (self.found_ns, self.found) = (now_ns, self.found + 1);
    }

    /// From now on nothing counts: the job has been asked to end, and what is in flight is let pass.
    pub fn stop(&mut self, now_ns: u64) {
        self.stopped = true;
        for tally in self.tallies.iter_mut().filter(|tally| tally.in_flight > 0) {
            tally.in_flight = 1;
            tally.left(now_ns, self.counts_from_ns);
        }
        self.last_ns = self.last_ns.max(now_ns.max(self.counts_from_ns));
    }

    /// What has been done so far: reads and writes, and their bytes.
    pub fn so_far(&self) -> [(u64, u64); 2] {
        [0, 1].map(|kind| (self.tallies[kind].ios, self.tallies[kind].bytes))
    }

    /// All responses of reads and writes so far, and how many.
    pub fn responses(&self) -> (u128, u64) {
        let times = self.tallies[..2].iter().filter_map(|tally| tally.times.as_ref().map(|times| &times[2]));
        times.fold((0, 0), |(sum, count), times| (sum + times.sum, count + times.histogram.len()))
    }

    /// When it counts from, since the run began.
    pub fn counts_from_ns(&self) -> u64 {
        self.counts_from_ns - self.run_began_ns
    }

    /// What came of it; `tiers`: bytes of the fast tier and of all, by the end of their interval since the job began
    /// to count, on its target's clock.
    pub fn finish(mut self, job: &Job, target: &str, tiers: &[(u64, u64, u64)]) -> JobRun {
        self.end_interval();
        if self.found > 0 {
            self.found_at_once[self.found.ilog2() as usize] += 1;
        }
        for log in std::mem::take(&mut self.logs) {
            if let Some(error) = log.finish(self.last_ns - self.counts_from_ns) {
                self.errors.insert(error, 1);
            }
        }
        let ends_early = self.stopped
            || !self.errors.is_empty()
            || job.ios.is_some()
            || job.depth_search.is_some()
            || job.until_steady.is_some();
        if let Some(runtime_ns) = job.runtime_ns.filter(|_| job.time_based && !ends_early) {
            // Whatever a rate or a pause left at its end belongs to its time.
            self.last_ns = self.last_ns.max(self.counts_from_ns + runtime_ns);
        }
        for &(at_ns, fast, all) in tiers.iter().filter(|tier| tier.0 > self.counts_from_ns) {
            let n = (at_ns - 1 - self.counts_from_ns) / self.interval_ns;
            if let Ok(place) = self.intervals.binary_search_by_key(&n, |interval| interval.n) {
                let (fast_before, all_before) = self.intervals[place].tiers.unwrap_or_default();
                self.intervals[place].tiers = Some((fast_before + fast, all_before + all));
            }
        }
        let depths = self.depths_ns.iter().enumerate().filter(|(_, ns)| **ns > 0);
        let depth = |power: usize| if power == 0 { 0 } else { 1 << (power - 1) };
        let [mut read, mut write, mut discard, flush] = self.tallies.each_ref().map(Tally::side);
        let back_ns = self.back_ns + self.back.as_ref().map_or(0, |back| back.end - back.start);
        if back_ns > 0 {
            let other_ns = (self.last_ns - self.counts_from_ns).saturating_sub(back_ns);
            (write.runtime_ns, discard.runtime_ns) = (other_ns, other_ns);
            // A mix reads in both parts.
            let mixed = job.sides().any(|side| side == crate::job::side::READ);
            read.runtime_ns = if mixed { 0 } else { back_ns };
        }
        JobRun {
            name: job.name.clone(),
            target: target.to_owned(),
            group: job.group,
            options: job.options.clone(),
            depth: job.depth,
            began_ns: self.counts_from_ns - self.run_began_ns,
            elapsed_ns: self.last_ns - self.counts_from_ns,
            read,
            write,
            discard,
            flush,
            late: self.late,
            depths_ns: depths.map(|(power, &ns)| (depth(power), ns)).collect(),
            found_at_once: (0..32)
                .filter(|&power| self.found_at_once[power] > 0)
                .map(|power| (1 << power, self.found_at_once[power]))
                .collect(),
            intervals: self.intervals,
            interval_ns: self.interval_ns,
            span: (self.span.start, self.span.end),
            errors: self.errors,
            files_ns: Vec::new(),
            file_bytes: 0,
            unanswered: u64::from(self.in_flight),
            steady: None,
            found_depth: None,
        }
    }
}

/// Where a command is counted.
#[inline]
fn place(kind: Kind) -> usize {
    match kind {
        Kind::Read => 0,
        Kind::Write { .. } => 1,
        Kind::Discard => 2,
        Kind::Flush | Kind::Sync => 3,
    }
}

/// The half power of two that a time lies in.
#[inline]
fn heat(ns: u64) -> usize {
    let power = ns.max(1).ilog2() as usize;
    // The upper half begins at 2^(k + 1/2).
    let upper = u128::from(ns) * u128::from(ns) >= 1u128 << (2 * power + 1);
    2 * power + usize::from(upper)
}

/// Two intervals become one.
fn in_pairs(intervals: Vec<Interval>) -> Vec<Interval> {
    let mut paired: Vec<Interval> = Vec::with_capacity(intervals.len() / 2 + 1);
    for mut interval in intervals {
        interval.n /= 2;
        match paired.last_mut() {
            Some(last) if last.n == interval.n => {
                merge(&mut last.read, interval.read);
                merge(&mut last.write, interval.write);
            }
            _ => paired.push(interval),
        }
    }
    paired
}

fn merge(side: &mut IntervalSide, other: IntervalSide) {
    side.ios += other.ios;
    side.bytes += other.bytes;
    side.max_ns = side.max_ns.max(other.max_ns);
    side.total_ns += other.total_ns;
    for (counts, more) in [(&mut side.heat, other.heat), (&mut side.places, other.places)] {
        for (n, count) in more {
            match counts.binary_search_by_key(&n, |pair| pair.0) {
                Ok(place) => counts[place].1 += count,
                Err(place) => counts.insert(place, (n, count)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_powers() {
        for (ns, expected) in
            [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (5, 4), (6, 5), (1 << 63, 126), (u64::MAX, 127)]
        {
            assert_eq!(heat(ns), expected, "{ns}");
        }
    }

    #[test]
    fn pairs_keep_all() {
        let side = |n: u8| IntervalSide {
            ios: 2,
            bytes: 8192,
            max_ns: u64::from(n),
            total_ns: 10,
            heat: vec![(n, 2)],
            places: vec![(3, 2)],
        };
        let interval = |n: u64| Interval { n, read: side(n as u8), ..Interval::default() };
        let paired = in_pairs(vec![interval(0), interval(1), interval(5)]);
        assert_eq!(paired.iter().map(|interval| interval.n).collect::<Vec<_>>(), [0, 2]);
        let expected = IntervalSide {
            ios: 4,
            bytes: 16384,
            max_ns: 1,
            total_ns: 20,
            heat: vec![(0, 2), (1, 2)],
            places: vec![(3, 4)],
        };
        assert_eq!(paired[0].read, expected);
    }
}
