//! fio's JSON (`--output-format=json` and `json+`), from a record.
//!
//! What fio says of a job's process (`usr_cpu`, `sys_cpu`, `ctx`, `majf`, `minf`) is that of the whole program here, and
//! left out where nobody measured it; `disk_util` is of the machine's disks, which others use too. `short_ios` also counts I/Os whose data was not what it should be.
//! `lat_ns` begins when an I/O was meant to begin, so where a rate is given it has all that fio's leaves out.

use super::options::{PERCENTILES, Unified};
use super::view::{LAYOUT, LIMITS, MAKER, Samples, View, views};
use crate::record::{Cpu, DiskUse, Latency, Run, Side, TierSide};
use crate::stats::{Quantity, Rule, Steadiness, quantiles};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The record as fio would have printed it; with `plus` all the bins of the histograms.
pub fn json(run: &Run, plus: bool) -> String {
    let jobs = views(run);
    let ended_ns = run.jobs.iter().map(|job| job.began_ns.saturating_add(job.elapsed_ns)).max().unwrap_or(0);
    let ended_ms = run.began_unix_ms.saturating_add(ended_ns / 1_000_000);
    let report = Report {
        version: LAYOUT,
        maker: MAKER,
        timestamp: ended_ms / 1000,
        timestamp_ms: ended_ms,
        time: time_text(ended_ms / 1000),
        global_options: &run.global_options,
        jobs: jobs.iter().map(|view| Job::of(view, run, plus)).collect(),
        disk_util: &run.disks,
    };
    // Nothing in it can fail: keys are text, and numbers that are none are left out.
    serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
}

#[derive(Serialize)]
struct Report<'r> {
    #[serde(rename = "fio version")]
    version: &'static str,
    /// Not fio's: who made it.
    #[serde(rename = "made by")]
    maker: &'static str,
    timestamp: u64,
    timestamp_ms: u64,
    time: String,
    #[serde(rename = "global options")]
    global_options: &'r BTreeMap<String, String>,
    jobs: Vec<Job>,
    /// As in fio's, it is not there where there is no disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    disk_util: &'r Vec<DiskUse>,
}

#[derive(Serialize)]
struct Job {
    jobname: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<String>,
    groupid: u32,
    error: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_err: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<u32>,
    eta: u64,
    elapsed: u64,
    #[serde(rename = "job options")]
    options: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trim: Option<Direction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<Syncs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mixed: Option<Direction>,
    job_runtime: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    usr_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sys_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    majf: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minf: Option<u64>,
    iodepth_level: Pairs<f64>,
    iodepth_submit: Pairs<f64>,
    iodepth_complete: Pairs<f64>,
    latency_ns: Pairs<f64>,
    latency_us: Pairs<f64>,
    latency_ms: Pairs<f64>,
    latency_depth: u32,
    latency_target: u64,
    latency_percentile: f64,
    latency_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    steadystate: Option<Steady>,
}

#[derive(Serialize)]
struct Direction {
    io_bytes: u64,
    io_kbytes: u64,
    bw_bytes: u64,
    bw: u64,
    iops: f64,
    runtime: u64,
    total_ios: u64,
    short_ios: u64,
    drop_ios: u64,
    slat_ns: Times,
    clat_ns: Times,
    lat_ns: Times,
    bw_min: u64,
    bw_max: u64,
    bw_agg: f64,
    bw_mean: f64,
    bw_dev: f64,
    bw_samples: u64,
    iops_min: u64,
    iops_max: u64,
    iops_mean: f64,
    iops_stddev: f64,
    iops_samples: u64,
    /// Not fio's: by the tiers that had a part, where the target tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiers: Option<Pairs<Tier>>,
}

#[derive(Serialize)]
struct Tier {
    total_ios: u64,
    io_bytes: u64,
    clat_ns: Times,
}

#[derive(Serialize)]
struct Syncs {
    total_ios: u64,
    lat_ns: Times,
}

#[derive(Serialize)]
struct Times {
    min: u64,
    max: u64,
    mean: f64,
    stddev: f64,
    #[serde(rename = "N")]
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<Pairs<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bins: Option<Pairs<u64>>,
}

#[derive(Serialize)]
struct Steady {
    ss: String,
    duration: u64,
    attained: u32,
    criterion: String,
    max_deviation: f64,
    slope: f64,
    data: SteadyData,
}

#[derive(Serialize)]
struct SteadyData {
    bw_mean: u64,
    iops_mean: u64,
    /// By checks: the last window of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    iops: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bw: Option<Vec<u64>>,
}

/// A JSON object whose keys keep their order.
struct Pairs<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for Pairs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Job {
    fn of(view: &View<'_>, run: &Run, plus: bool) -> Job {
        let spread = view.spread();
        let levels = ["1", "2", "4", "8", "16", "32", ">=64"].map(String::from);
        let at_once = ["0", "4", "8", "16", "32", "64", ">=64"].map(String::from);
        let cpu: Option<Cpu> = run.cpu;
        let globals = &run.global_options;
        let errors = view.failed().saturating_add(view.mismatched());
        // What is for all jobs stands above them.
        let mut options = view.written.clone();
        options.retain(|name, value| globals.get(name) != Some(value));
        for (name, value) in [("iodepth", view.depth.to_string()), ("numjobs", view.jobs.to_string())] {
            if !globals.contains_key(name) {
                options.entry(name.into()).or_insert(value);
            }
        }
        let as_one = view.options.faces.unified == Unified::Mixed;
        let [read, write, trim] = [0, 1, 2].map(|n| {
            let (side, samples) = (view.sides.sides()[n], view.samples.sides()[n]);
            Some(Direction::of(view, side, samples, plus))
        });
        let both = view.mixed.as_ref().map(|(side, samples)| Direction::of(view, side, samples, plus));
        let sync = Syncs {
            total_ios: view.flush.ios,
            lat_ns: Times::of(&view.flush.service, percentiles(view, true), plus),
        };
        // What is reported as one has nothing beside it.
        let (read, write, trim, sync, mixed) = match as_one {
            true => (None, None, None, None, read),
            false => (read, write, trim, Some(sync), both),
        };
        Job {
            jobname: view.name.into(),
            desc: view.options.description.clone(),
            groupid: view.group,
            error: view.error(),
            total_err: Some(errors).filter(|errors| *errors > 0 || view.options.goes_on),
            first_error: view.options.goes_on.then(|| view.error()),
            eta: 0,
            elapsed: view.began_ns.saturating_add(view.elapsed_ns).div_ceil(1_000_000_000),
            options,
            read,
            write,
            trim,
            sync,
            mixed,
            job_runtime: view.runtime_ms(),
            usr_cpu: cpu.map(|cpu| cpu.user_percent),
            sys_cpu: cpu.map(|cpu| cpu.system_percent),
            ctx: cpu.map(|cpu| cpu.context_switches),
            majf: cpu.map(|cpu| cpu.major_faults),
            minf: cpu.map(|cpu| cpu.minor_faults),
            iodepth_submit: Pairs(at_once.clone().into_iter().zip(view.submit_levels()).collect()),
            iodepth_complete: Pairs(at_once.into_iter().zip(view.found_levels()).collect()),
            iodepth_level: Pairs(levels.into_iter().zip(view.depth_levels()).collect()),
            latency_ns: below(&spread.ns),
            latency_us: below(&spread.us),
            latency_ms: below(&spread.ms),
            latency_depth: view.found_depth.unwrap_or(view.depth),
            latency_target: view.options.latency_target_ns.unwrap_or(0) / 1000,
            latency_percentile: view.options.latency_percentile,
            latency_window: view.options.latency_window_ns / 1000,
            steadystate: view.steady.and_then(|steady| Steady::of(view, steady)),
        }
    }
}

fn below(shares: &[f64]) -> Pairs<f64> {
    let keys = LIMITS.iter().map(u64::to_string).chain([">=2000".to_owned()]);
    Pairs(keys.zip(shares.iter().copied()).collect())
}

impl Direction {
    fn of(view: &View<'_>, side: &Side, samples: &Samples, plus: bool) -> Direction {
        let bandwidth = view.bandwidth(side);
        let faces = &view.options.faces;
        Direction {
            io_bytes: side.bytes,
            io_kbytes: side.bytes / 1024,
            bw_bytes: bandwidth,
            bw: bandwidth / 1024,
            iops: view.iops(side),
            runtime: if is_idle(side) { 0 } else { view.runtime_ms_of(side) },
            total_ios: side.ios,
            short_ios: side.mismatched,
            // None is given up for being late.
            drop_ios: 0,
            slat_ns: Times::of(&side.submit, percentiles(view, faces.slat_percentiles), plus),
            clat_ns: Times::of(&side.service, percentiles(view, faces.clat_percentiles), plus),
            lat_ns: Times::of(&side.response, percentiles(view, faces.lat_percentiles), plus),
            bw_min: samples.bandwidth.min as u64,
            bw_max: samples.bandwidth.max as u64,
            bw_agg: aggregate_percent(samples.bandwidth.mean, bandwidth),
            bw_mean: samples.bandwidth.mean,
            bw_dev: samples.bandwidth.deviation,
            bw_samples: samples.count,
            iops_min: samples.iops.min as u64,
            iops_max: samples.iops.max as u64,
            iops_mean: samples.iops.mean,
            iops_stddev: samples.iops.deviation,
            iops_samples: samples.count,
            tiers: side.tiers.as_ref().map(|tiers| {
                let tier = |(name, tier): (&str, &TierSide)| {
                    let clat_ns = Times::of(&tier.service, percentiles(view, true), plus);
                    (name.to_owned(), Tier { total_ios: tier.ios, io_bytes: tier.bytes, clat_ns })
                };
                Pairs(tiers.each().map(tier).into())
            }),
        }
    }
}

/// What the mean of the samples (KiB per second) is of the whole (bytes per second); no more than all of it, as in fio.
pub(crate) fn aggregate_percent(mean: f64, bandwidth: u64) -> f64 {
    if bandwidth == 0 { 0.0 } else { (mean * 1024.0 * 100.0 / bandwidth as f64).min(100.0) }
}

pub(crate) fn is_idle(side: &Side) -> bool {
    side.ios == 0 && side.failed == 0
}

/// Which percentiles, if any.
fn percentiles<'a>(view: &'a View<'_>, wanted: bool) -> Option<&'a [f64]> {
    let list = &view.options.faces.percentiles;
    wanted.then_some(if list.is_empty() { &PERCENTILES } else { list })
}

impl Times {
    fn of(latency: &Latency, percentiles: Option<&[f64]>, plus: bool) -> Times {
        let percentiles = percentiles.filter(|_| latency.count > 0);
        let percentile = percentiles.map(|list| {
            let shares = list.iter().map(|percent| percent / 100.0).collect::<Vec<_>>();
            let values = quantiles(latency, &shares).into_iter().map(Option::unwrap_or_default);
            Pairs(list.iter().map(|percent| format!("{percent:.6}")).zip(values).collect())
        });
        let bins = (plus && percentile.is_some())
            .then(|| Pairs(latency.bins.iter().map(|(ns, count)| (ns.to_string(), *count)).collect()));
        Times {
            min: latency.min_ns,
            max: latency.max_ns,
            mean: finite(latency.mean_ns),
            stddev: finite(latency.stddev_ns),
            count: latency.count,
            percentile,
            bins,
        }
    }
}

/// JSON has no word for what is no number.
fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

impl Steady {
    /// fio's own rules only: a tool would take another for one of them.
    fn of(view: &View<'_>, steady: &Steadiness) -> Option<Steady> {
        let Rule::Fio(rule) = steady.rule else { return None };
        let facts = steady.reached.or(steady.last);
        let bytes = view.sides.sides().iter().map(|side| view.bandwidth(side)).fold(0, u64::saturating_add);
        let ios = view.sides.sides().iter().map(|side| view.iops(side)).sum::<f64>();
        let mean = |quantity: Quantity, otherwise: f64| {
            let mean = facts.filter(|_| rule.quantity == quantity).map(|facts| facts.mean);
            mean.unwrap_or(otherwise) as u64
        };
        let series = |of: fn(&(f64, f64)) -> f64| {
            (!view.rates.is_empty()).then(|| view.rates.iter().map(|rate| of(rate) as u64).collect())
        };
        Some(Steady {
            ss: view.written.get("steadystate").cloned().unwrap_or_default(),
            duration: view.options.steady_duration_ns / 1_000_000_000,
            attained: u32::from(steady.reached.is_some()),
            criterion: steady.rule.to_string(),
            max_deviation: facts.map_or(0.0, |facts| finite(facts.deviation)),
            slope: facts.map_or(0.0, |facts| finite(facts.slope)),
            data: SteadyData {
                bw_mean: mean(Quantity::Bw, bytes as f64),
                iops_mean: mean(Quantity::Iops, ios),
                iops: series(|rate| rate.0),
                bw: series(|rate| rate.1),
            },
        })
    }
}

/// `Sun Nov 22 19:33:50 2026`, of Unix time in seconds, without a zone's offset.
pub(crate) fn time_text(seconds: u64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end, so that months follow one rule; these began in 0000.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    let (weekday, month) = (WEEKDAYS[(days % 7) as usize], MONTHS[((month + 2) % 12) as usize]);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday} {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `date -u -d @N '+%a %b %e %H:%M:%S %Y'`
    #[test]
    fn times_as_date_writes_them() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_795_376_030, "Sun Nov 22 19:33:50 2026"),
            (4_107_542_399, "Sun Feb 28 23:59:59 2100"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(time_text(seconds), text);
        }
        let _ = time_text(u64::MAX / 1000);
    }
}
