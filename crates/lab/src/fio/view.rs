//! What fio's reports show of a record: its jobs, or its groups as one, and the figures that fio works out.

use super::file::WrittenOptions;
use super::number::KbBase;
use super::options::{JobOptions, PerSide, Unified};
use super::table::{Known, Treat};
use super::value::Given;
use crate::load::TOO_LONG;
use crate::record::{Interval, IntervalSide, JobRun, Latency, Run, Side};
use crate::stats::{Steadiness, merged, merged_side};
use std::collections::BTreeMap;

const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: f64 = 1e9;
/// Checks of a steady state that are shown: a day of one each second.
const MOST_RATES: u64 = 86_400;

/// The fio whose layout the reports have: tools take the number from it.
pub(crate) const LAYOUT: &str = "fio-3.33";

/// Who made a report.
pub(crate) const MAKER: &str = concat!("bimetal-lab ", env!("CARGO_PKG_VERSION"));

/// A job, or a group of jobs that is reported as one.
pub(crate) struct View<'a> {
    pub(crate) name: &'a str,
    pub(crate) group: u32,
    /// How many jobs it is.
    pub(crate) jobs: usize,
    /// As they were written.
    pub(crate) written: &'a BTreeMap<String, String>,
    /// What fio's options among them say.
    pub(crate) options: JobOptions,
    pub(crate) depth: u32,
    /// The highest that kept the latency asked for, where one was looked for.
    pub(crate) found_depth: Option<u32>,
    pub(crate) began_ns: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) sides: PerSide<Side>,
    pub(crate) flush: Side,
    pub(crate) depths_ns: Vec<(u32, u64)>,
    pub(crate) found_at_once: Vec<(u32, u64)>,
    pub(crate) samples: PerSide<Samples>,
    /// All sides as one, where they are reported so beside each for itself.
    pub(crate) mixed: Option<(Side, Samples)>,
    /// I/Os and bytes per second, by checks of a steady state; the last window of them.
    pub(crate) rates: Vec<(f64, f64)>,
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) steady: Option<&'a Steadiness>,
}

/// The jobs of a record; those of a group are one if its first asked for that with `group_reporting`.
pub(crate) fn views(run: &Run) -> Vec<View<'_>> {
    let mut views = Vec::new();
    let mut together: BTreeMap<u32, Vec<&JobRun>> = BTreeMap::new();
    for job in &run.jobs {
        if job.options.get("group_reporting").is_some_and(|value| value != "0") {
            together.entry(job.group).or_default().push(job);
        }
    }
    for job in &run.jobs {
        match together.get_mut(&job.group) {
            Some(jobs) if jobs.iter().any(|one| std::ptr::eq(*one, job)) => {
                views.extend(View::of(&std::mem::take(jobs)));
            }
            // A part of a group that was reported with its first.
            Some(_) if job.options.get("group_reporting").is_some_and(|value| value != "0") => {}
            _ => views.extend(View::of(&[job])),
        }
    }
    views
}

impl<'a> View<'a> {
    fn of(jobs: &[&'a JobRun]) -> Option<View<'a>> {
        let (first, others) = jobs.split_first()?;
        let mut sides =
            PerSide { read: first.read.clone(), write: first.write.clone(), trim: first.discard.clone() };
        let mut flush = first.flush.clone();
        let mut errors = first.errors.clone();
        let mut depths: BTreeMap<u32, u64> = first.depths_ns.iter().copied().collect();
        let mut found: BTreeMap<u32, u64> = first.found_at_once.iter().copied().collect();
        for job in others {
            sides.read = merged_side(&sides.read, &job.read);
            sides.write = merged_side(&sides.write, &job.write);
            sides.trim = merged_side(&sides.trim, &job.discard);
            flush = merged_side(&flush, &job.flush);
            for (depth, ns) in &job.depths_ns {
                let sum = depths.entry(*depth).or_default();
                *sum = sum.saturating_add(*ns);
            }
            for (number, times) in &job.found_at_once {
                let sum = found.entry(*number).or_default();
                *sum = sum.saturating_add(*times);
            }
            for (error, count) in &job.errors {
                let sum = errors.entry(error.clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        let end = |job: &&JobRun| job.began_ns.saturating_add(job.elapsed_ns);
        let began_ns = jobs.iter().map(|job| job.began_ns).min().unwrap_or(0);
        let elapsed_ns = jobs.iter().map(end).max().unwrap_or(0) - began_ns;
        let options = options_of(&first.options);
        let samples = |of: &dyn Fn(&Interval) -> (u64, u64)| Samples::of(jobs, began_ns, elapsed_ns, of);
        let side = |side: &IntervalSide| (side.ios, side.bytes);
        let mut samples_of = PerSide {
            read: samples(&|interval| side(&interval.read)),
            write: samples(&|interval| side(&interval.write)),
            trim: Samples::default(),
        };
        let mut mixed = None;
        if options.faces.unified != Unified::Apart {
            let all = merged_side(&merged_side(&sides.read, &sides.write), &sides.trim);
            let of_all = samples(&|interval| {
                let (read, write) = (&interval.read, &interval.write);
                (read.ios.saturating_add(write.ios), read.bytes.saturating_add(write.bytes))
            });
            if options.faces.unified == Unified::Mixed {
                sides = PerSide { read: all, ..PerSide::default() };
                samples_of = PerSide { read: of_all, ..PerSide::default() };
            } else {
                mixed = Some((all, of_all));
            }
        }
        Some(View {
            name: &first.name,
            group: first.group,
            jobs: jobs.len(),
            written: &first.options,
            rates: rates(jobs, elapsed_ns, &options),
            options,
            depth: first.depth,
            found_depth: jobs.iter().filter_map(|job| job.found_depth).max(),
            began_ns,
            elapsed_ns,
            samples: samples_of,
            mixed,
            sides,
            flush,
            depths_ns: depths.into_iter().collect(),
            found_at_once: found.into_iter().collect(),
            errors,
            steady: first.steady.as_ref(),
        })
    }

    /// Whole milliseconds, as fio counts the time that it divides by; at least one.
    pub(crate) fn runtime_ms(&self) -> u64 {
        (self.elapsed_ns / NANOS_PER_MILLI).max(1)
    }

    /// The same, of what had these in it.
    pub(crate) fn runtime_ms_of(&self, side: &Side) -> u64 {
        if side.runtime_ns > 0 { (side.runtime_ns / NANOS_PER_MILLI).max(1) } else { self.runtime_ms() }
    }

    /// Bytes per second.
    pub(crate) fn bandwidth(&self, side: &Side) -> u64 {
        let per_second = u128::from(side.bytes) * 1000 / u128::from(self.runtime_ms_of(side));
        u64::try_from(per_second).unwrap_or(u64::MAX)
    }

    /// I/Os per second.
    pub(crate) fn iops(&self, side: &Side) -> f64 {
        side.ios as f64 * 1000.0 / self.runtime_ms_of(side) as f64
    }

    /// I/Os that were not done.
    pub(crate) fn failed(&self) -> u64 {
        let sides = self.sides.sides().into_iter().chain([&self.flush]);
        sides.fold(0u64, |sum, side| sum.saturating_add(side.failed))
    }

    /// I/Os that were done, but read something else than was written.
    pub(crate) fn mismatched(&self) -> u64 {
        self.sides.sides().into_iter().fold(0u64, |sum, side| sum.saturating_add(side.mismatched))
    }

    /// The number that fio would have for what went wrong, 0 for nothing: a record has the texts of errors.
    pub(crate) fn error(&self) -> u32 {
        /// EIO.
        const INPUT_OUTPUT: u32 = 5;
        /// EILSEQ, which fio has for a block that is not what it should be.
        const VERIFICATION: u32 = 84;
        /// ETIME, which fio has for an I/O that took too long.
        const TIME_EXPIRED: u32 = 62;
        match (self.failed(), self.mismatched()) {
            (0, 0) if self.errors.contains_key(TOO_LONG) => TIME_EXPIRED,
            (0, 0) => 0,
            (0, _) => VERIFICATION,
            _ => INPUT_OUTPUT,
        }
    }

    /// How long all I/Os took, together; flushes are none.
    fn all(&self) -> Latency {
        let both = merged(&self.sides.read.response, &self.sides.write.response);
        merged(&both, &self.sides.trim.response)
    }

    /// What share of the time the queue was so deep, percent: 1, 2, 4, 8, 16, 32 and up to twice that less one; 64
    /// and above. fio counts at each I/O, this is of the time in which anything was in flight.
    pub(crate) fn depth_levels(&self) -> [f64; 7] {
        let mut levels = [0.0; 7];
        for (depth, ns) in self.depths_ns.iter().filter(|(depth, _)| *depth > 0) {
            levels[depth.ilog2().min(6) as usize] += *ns as f64;
        }
        let all = levels.iter().sum::<f64>();
        levels.map(|ns| if all > 0.0 { ns * 100.0 / all } else { 0.0 })
    }

    /// How many completions were found at a time, percent of the times: none, up to 4, 8, 16, 32, 64, more. Of pairs by
    /// powers of two, one that lies between two of these is counted with the lower.
    pub(crate) fn found_levels(&self) -> [f64; 7] {
        let mut levels = [0.0; 7];
        for (number, times) in self.found_at_once.iter().filter(|(number, _)| *number > 0) {
            let level = number.ilog2().saturating_sub(1).clamp(1, 6);
            levels[level as usize] += *times as f64;
        }
        let all = levels.iter().sum::<f64>();
        levels.map(|times| if all > 0.0 { times * 100.0 / all } else { 0.0 })
    }

    /// How many I/Os were handed over at a time: each by itself.
    pub(crate) fn submit_levels(&self) -> [f64; 7] {
        let any = self.sides.sides().into_iter().any(|side| side.ios > 0 || side.failed > 0);
        [0.0, if any { 100.0 } else { 0.0 }, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    /// What share of the I/Os took how long.
    pub(crate) fn spread(&self) -> Spread {
        let mut spread = Spread::default();
        let all = self.all();
        let count = all.bins.iter().fold(0u64, |sum, bin| sum.saturating_add(bin.1)).max(1) as f64;
        for (ns, ios) in &all.bins {
            let share = *ios as f64 * 100.0 / count;
            let (steps, time) = match ns {
                0..1000 => (&mut spread.ns[..], *ns),
                1000..1_000_000 => (&mut spread.us[..], ns / 1000),
                _ => (&mut spread.ms[..], ns / NANOS_PER_MILLI),
            };
            let at = LIMITS.iter().position(|limit| time < *limit).unwrap_or(LIMITS.len());
            steps[at.min(steps.len() - 1)] += share;
        }
        spread
    }
}

/// What jobs did in each check of the window that a steady state is looked for in, the last whole ones of them; nothing
/// where intervals do not add up to checks.
fn rates(jobs: &[&JobRun], elapsed_ns: u64, options: &JobOptions) -> Vec<(f64, f64)> {
    let (length_ns, check_ns) = (jobs.first().map_or(0, |job| job.interval_ns), options.steady_interval_ns);
    let alike = length_ns > 0 && jobs.iter().all(|job| job.interval_ns == length_ns);
    if options.steady_state.is_none() || !alike || check_ns == 0 || !check_ns.is_multiple_of(length_ns) {
        return Vec::new();
    }
    let whole = elapsed_ns / check_ns;
    let first = whole.saturating_sub((options.steady_duration_ns / check_ns).min(MOST_RATES));
    let mut rates = vec![(0.0, 0.0); (whole - first) as usize];
    for interval in jobs.iter().flat_map(|job| &job.intervals) {
        let nth = (interval.n / (check_ns / length_ns)).checked_sub(first);
        if let Some(rate) = nth.and_then(|nth| rates.get_mut(usize::try_from(nth).ok()?)) {
            let (read, write) = (&interval.read, &interval.write);
            rate.0 += (read.ios as f64 + write.ios as f64) * NANOS_PER_SECOND / check_ns as f64;
            rate.1 += (read.bytes as f64 + write.bytes as f64) * NANOS_PER_SECOND / check_ns as f64;
        }
    }
    rates
}

/// Times below which fio counts I/Os together, in nanoseconds, then microseconds, then milliseconds.
pub(crate) const LIMITS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// Percent of the I/Os below each of [`LIMITS`] and not below the one before.
#[derive(Default)]
pub(crate) struct Spread {
    pub(crate) ns: [f64; 10],
    pub(crate) us: [f64; 10],
    /// The last is of two seconds and more.
    pub(crate) ms: [f64; 12],
}

/// As long as fio's samples are: what intervals are added up to, where they are shorter.
const SAMPLE_NS: u64 = 500_000_000;

/// What a job's or a group's samples were like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    /// Samples.
    pub(crate) count: u64,
    /// KiB per second.
    pub(crate) bandwidth: Moments,
    /// I/Os per second.
    pub(crate) iops: Moments,
}

/// Of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl Samples {
    /// Whole samples only, from the first to the last in which something was done: a short one at the end would look slow,
    /// and what comes before or after belongs to others, such as the reading of what was written. One without any between
    /// them is one of nothing; fio leaves it out. Jobs whose intervals differ in length cannot be added up, and have none.
    fn of(
        jobs: &[&JobRun],
        began_ns: u64,
        elapsed_ns: u64,
        side: &dyn Fn(&Interval) -> (u64, u64),
    ) -> Samples {
        let length_ns = jobs.first().map_or(0, |job| job.interval_ns);
        if length_ns == 0 || jobs.iter().any(|job| job.interval_ns != length_ns) {
            return Samples::default();
        }
        let each = (SAMPLE_NS / length_ns).max(1);
        let length_ns = length_ns.saturating_mul(each);
        let whole = elapsed_ns / length_ns;
        let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for job in jobs {
            let ahead = (job.began_ns - began_ns) / length_ns;
            for interval in &job.intervals {
                let n = (interval.n / each).saturating_add(ahead);
                let (ios, bytes) = side(interval);
                if n < whole && ios > 0 {
                    let sum = sums.entry(n).or_default();
                    sum.0 += bytes as f64;
                    sum.1 += ios as f64;
                }
            }
        }
        let per_second = NANOS_PER_SECOND / length_ns as f64;
        let (Some(first), Some(last)) = (sums.keys().next(), sums.keys().next_back()) else {
            return Samples::default();
        };
        let count = last - first + 1;
        let of = |value: fn(&(f64, f64)) -> f64| Moments::of(count, sums.values().map(value), per_second);
        Samples { count, bandwidth: of(|sum| sum.0 / 1024.0), iops: of(|sum| sum.1) }
    }
}

impl Moments {
    /// Of so many values, all that are not given being 0, each times something.
    fn of(count: u64, values: impl Iterator<Item = f64> + Clone, times: f64) -> Moments {
        let values = values.map(move |value| value * times);
        let given = values.clone().count() as u64;
        let all = count.max(1) as f64;
        let mean = values.clone().sum::<f64>() / all;
        let squares = values.clone().map(|value| (value - mean).powi(2)).sum::<f64>()
            + (count.saturating_sub(given)) as f64 * mean.powi(2);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        Moments {
            min: if given < count { 0.0 } else { least },
            max: values.fold(0.0, f64::max),
            mean,
            deviation: if count > 1 { (squares / (all - 1.0)).sqrt() } else { 0.0 },
        }
    }
}

/// What fio's options say among those that a job was given; the others, and what is wrong with any, do not matter to a
/// report.
pub(crate) fn options_of(written: &BTreeMap<String, String>) -> JobOptions {
    let mut options = JobOptions::default();
    let base = if written.get("kb_base").is_some_and(|base| base == "1000") {
        KbBase::Standard
    } else {
        KbBase::Traditional
    };
    for (name, value) in written {
        if let Some(Known { name, treat: Treat::Set(set), .. }) = Known::find(name) {
            let _ = set(&mut options, &mut Given { name, value: Some(value), base });
        }
    }
    options
}

/// The options of a job for its record: all that were written, and those that tools look for in any case.
pub(crate) fn options_for_record(
    options: &JobOptions,
    own: &WrittenOptions,
    globals: &WrittenOptions,
) -> BTreeMap<String, String> {
    let text =
        |(name, value): (&std::sync::Arc<str>, &std::sync::Arc<str>)| (name.to_string(), value.to_string());
    let mut all: BTreeMap<String, String> = globals.iter().chain(own).map(text).collect();
    for (name, value) in [
        ("rw", "read".to_owned()),
        ("bs", "4096".to_owned()),
        ("ioengine", options.engine_name.clone()),
        ("iodepth", options.depth.to_string()),
        ("numjobs", options.jobs.to_string()),
    ] {
        all.entry(name.to_owned()).or_insert(value);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, group: u32, reporting: bool) -> JobRun {
        let options = [("group_reporting".to_owned(), "1".to_owned())];
        JobRun {
            name: name.into(),
            group,
            options: if reporting { options.into() } else { BTreeMap::new() },
            elapsed_ns: 2_000_000_000,
            interval_ns: 1_000_000_000,
            read: Side { ios: 10, bytes: 40_960, ..Side::default() },
            intervals: [1, 3].map(interval).into(),
            depths_ns: vec![(0, 5), (1, 10), (2, 10), (64, 20)],
            ..JobRun::default()
        }
    }

    fn interval(n: u64) -> Interval {
        let read = IntervalSide { ios: 10, bytes: 40_960, ..IntervalSide::default() };
        Interval { n, read, ..Interval::default() }
    }

    fn run(jobs: Vec<JobRun>) -> Run {
        Run {
            format: crate::record::FORMAT.into(),
            version: 1,
            title: String::new(),
            began_unix_ms: 0,
            seed: 0,
            virtual_time: false,
            interrupted: false,
            cpu: None,
            global_options: Default::default(),
            disks: Vec::new(),
            environment: Default::default(),
            jobs,
            notes: Vec::new(),
        }
    }

    #[test]
    fn groups_are_one_where_that_was_asked_for() {
        let run = run(vec![job("a", 0, true), job("b", 1, false), job("c", 0, true), job("d", 1, false)]);
        let found = views(&run).iter().map(|view| (view.name.to_owned(), view.jobs)).collect::<Vec<_>>();
        assert_eq!(found, [("a".into(), 2), ("b".into(), 1), ("d".into(), 1)]);
        let all = &views(&run)[0];
        assert_eq!((all.sides.read.ios, all.runtime_ms(), all.iops(&all.sides.read)), (20, 2000, 10.0));
        assert_eq!(all.depth_levels(), [25.0, 25.0, 0.0, 0.0, 0.0, 0.0, 50.0]);
    }

    #[test]
    fn an_interval_without_io_is_a_sample_of_nothing() {
        let mut one = job("a", 0, false);
        one.elapsed_ns = 4_500_000_000;
        let one = run(vec![one]);
        let samples = views(&one)[0].samples.read;
        assert_eq!(samples.count, 3);
        let iops = Moments { min: 0.0, max: 10.0, mean: 20.0 / 3.0, deviation: (100f64 / 3.0).sqrt() };
        assert!((samples.iops.deviation - iops.deviation).abs() < 1e-9, "{:?}", samples.iops);
        assert_eq!(samples.iops, Moments { deviation: samples.iops.deviation, ..iops });
        assert_eq!(samples.bandwidth.max, 40.0);
    }

    #[test]
    fn a_sample_is_half_a_second() {
        let mut short = job("a", 0, false);
        (short.interval_ns, short.elapsed_ns) = (100_000_000, 1_900_000_000);
        short.intervals = [0, 1, 4, 5, 9, 12, 16].map(interval).into();
        let short = run(vec![short]);
        let samples = views(&short)[0].samples.read;
        // The fourth is not whole.
        assert_eq!((samples.count, samples.iops.min, samples.iops.max), (3, 20.0, 60.0));
    }

    #[test]
    fn a_record_is_not_believed() {
        let mut hostile = job("a", 0, true);
        (hostile.began_ns, hostile.elapsed_ns, hostile.interval_ns) = (u64::MAX, u64::MAX, 1);
        hostile.read.bytes = u64::MAX;
        hostile.intervals[0].n = u64::MAX;
        hostile.depths_ns = vec![(u32::MAX, u64::MAX), (u32::MAX, u64::MAX)];
        let run = run(vec![hostile, job("b", 0, true)]);
        let views = views(&run);
        let _ = (views[0].bandwidth(&views[0].sides.read), views[0].depth_levels(), views[0].spread().ns);
    }
}
