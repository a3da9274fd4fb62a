//! fio's normal report, from a record.
//!
//! What is left out: the process's number, `cpu` where nobody measured it, I/Os dropped and zone resets.

use super::json::{aggregate_percent, is_idle, time_text};
use super::options::{PERCENTILES, Unified};
use super::view::{LAYOUT, LIMITS, MAKER, Samples, View, options_of, views};
use crate::record::{Cpu, JobRun, Latency, Run, Side};
use crate::stats::quantiles;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Digits that a number has at most before it gets a larger unit.
const DIGITS: usize = 4;
/// The same, of minima and maxima.
const MANY_DIGITS: usize = 6;
const LINE_COLUMNS: usize = 80;

/// The record as fio would have printed it.
pub fn text(run: &Run) -> String {
    let mut out = String::new();
    headers(&mut out, run);
    line(&mut out, format_args!("{LAYOUT}, as {MAKER} writes it"));
    for note in &run.notes {
        line(&mut out, format_args!("note: {note}"));
    }
    out.push('\n');
    let views = views(run);
    for view in &views {
        let ended_ns = view.began_ns.saturating_add(view.elapsed_ns);
        let ended_ms = run.began_unix_ms.saturating_add(ended_ns / 1_000_000);
        job(&mut out, view, ended_ms / 1000, run.cpu);
    }
    groups(&mut out, &views);
    disks(&mut out, run);
    out
}

/// What the disks below the targets did.
fn disks(out: &mut String, run: &Run) {
    if run.disks.is_empty() {
        return;
    }
    line(out, format_args!("\nDisk stats (read/write):"));
    for disk in &run.disks {
        let [reads, writes, read_merges, write_merges, read_ticks, write_ticks, in_queue] = disk.counters();
        line(
            out,
            format_args!(
                "  {}: ios={reads}/{writes}, merge={read_merges}/{write_merges}, ticks={read_ticks}/{write_ticks}, \
                 in_queue={in_queue}, util={:.2}%",
                disk.name, disk.util
            ),
        );
    }
}

/// Writing into a text cannot fail.
fn line(out: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{what}");
}

/// A line for each job; copies of one have three dots between them.
fn headers(out: &mut String, run: &Run) {
    let mut before: Option<&JobRun> = None;
    let mut copies = false;
    for job in &run.jobs {
        let same = before.is_some_and(|one| (&one.name, &one.options) == (&job.name, &job.options));
        if !same {
            header(out, job);
        } else if !copies {
            line(out, format_args!("..."));
        }
        (before, copies) = (Some(job), same);
    }
}

/// What a job is to do, as far as its options say so.
fn header(out: &mut String, job: &JobRun) {
    let _ = write!(out, "{}: (g={}):", job.name, job.group);
    let option = |name: &str| job.options.get(name);
    let mut parts = Vec::new();
    parts.extend(option("rw").map(|rw| format!("rw={rw}")));
    if ["bs", "bsrange", "bssplit"].into_iter().any(|name| option(name).is_some()) {
        let sizes = options_of(&job.options).block_sizes();
        let size = |bytes| amount(bytes, DIGITS, Unit::Bytes, Base::Binary);
        let ranges = ["R", "W", "T"].into_iter().zip(sizes.sides()).map(|(side, sizes)| {
            format!("({side}) {}-{}", size(sizes.smallest_bytes()), size(sizes.largest_bytes()))
        });
        parts.push(format!("bs={}", ranges.collect::<Vec<_>>().join(", ")));
    }
    parts.extend(option("ioengine").map(|engine| format!("ioengine={engine}")));
    parts.push(format!("iodepth={}", job.depth));
    line(out, format_args!(" {}", parts.join(", ")));
}

fn job(out: &mut String, view: &View<'_>, ended: u64, cpu: Option<Cpu>) {
    let error = view.errors.keys().next().filter(|_| view.error() > 0);
    let error = error.map_or_else(|| view.error().to_string(), |text| format!("{} ({text})", view.error()));
    line(
        out,
        format_args!(
            "{}: (groupid={}, jobs={}): err= {error}: {}",
            view.name,
            view.group,
            view.jobs,
            time_text(ended)
        ),
    );
    if let Some(description) = &view.options.description {
        line(out, format_args!("  Description  : [{description}]"));
    }
    let first = if view.options.faces.unified == Unified::Mixed { "mixed" } else { "read" };
    let apart = view.sides.sides().into_iter().zip(view.samples.sides()).zip([first, "write", "trim"]);
    let mixed = view.mixed.as_ref().map(|(side, samples)| ((side, samples), "mixed"));
    for ((side, samples), name) in apart.chain(mixed) {
        if !is_idle(side) {
            direction(out, view, name, side, samples);
        }
    }
    spread(out, view);
    if !is_idle(&view.flush) {
        line(out, format_args!("  fsync/fdatasync/sync_file_range:"));
        latency(out, "sync", &view.flush.service);
        percentiles(out, view, "sync", &view.flush.service);
    }
    if let Some(cpu) = cpu {
        let (user, system) = (cpu.user_percent, cpu.system_percent);
        let Cpu { context_switches, major_faults, minor_faults, .. } = cpu;
        line(
            out,
            format_args!(
                "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={context_switches}, majf={major_faults}, \
                 minf={minor_faults}"
            ),
        );
    }
    levels(out, view);
    if let Some(steady) = view.steady {
        let attained = if steady.reached.is_some() { "yes" } else { "no" };
        line(out, format_args!("  steadystate  : attained={attained}, {steady}"));
    }
}

fn direction(out: &mut String, view: &View<'_>, name: &str, side: &Side, samples: &Samples) {
    let bandwidth = view.bandwidth(side);
    let faces = &view.options.faces;
    line(
        out,
        format_args!(
            "  {name}: IOPS={}, BW={} ({})({}/{}msec)",
            amount(view.iops(side) as u64, DIGITS, Unit::None, Base::Decimal),
            amount(bandwidth, DIGITS, Unit::BytesPerSecond, Base::Binary),
            amount(bandwidth, DIGITS, Unit::BytesPerSecond, Base::Decimal),
            amount(side.bytes, DIGITS, Unit::Bytes, Base::Binary),
            view.runtime_ms_of(side),
        ),
    );
    let times = [
        ("slat", &side.submit, faces.slat, faces.slat_percentiles),
        ("clat", &side.service, faces.clat, faces.clat_percentiles),
        ("lat", &side.response, faces.lat, faces.lat_percentiles),
    ];
    for (name, times, shown, _) in times {
        if shown {
            latency(out, name, times);
        }
    }
    for (name, times, _, shown) in times {
        if shown {
            percentiles(out, view, name, times);
        }
    }
    for (name, tier) in side.tiers.iter().flat_map(|tiers| tiers.each()).filter(|(_, tier)| tier.ios > 0) {
        let share = tier.ios as f64 * 100.0 / side.ios.max(1) as f64;
        let (by, unit) =
            scale(tier.service.min_ns as f64, tier.service.max_ns as f64, tier.service.stddev_ns);
        let at = quantiles(&tier.service, &[0.5, 0.99]).into_iter().map(|ns| ns.unwrap_or(0) as f64 / by);
        let at: Vec<f64> = at.collect();
        let (mean, max) = (tier.service.mean_ns / by, tier.service.max_ns as f64 / by);
        line(
            out,
            format_args!(
                "    tier ({name}): {share:.2}% of the I/Os, clat ({unit}): avg={mean:.2}, p50={:.0}, p99={:.0}, max={max:.0}",
                at[0], at[1],
            ),
        );
    }
    if faces.bandwidth && samples.count > 0 {
        bandwidth_samples(out, samples, bandwidth);
    }
}

/// Divides by a thousand, twice at most, what would be too long otherwise; and how often.
fn scale(min: f64, max: f64, deviation: f64) -> (f64, &'static str) {
    if min > 2_000_000.0 && max > 99_999_999.0 && deviation > 1_000_000.0 {
        (1e6, "msec")
    } else if min > 2000.0 && max > 99_999.0 && deviation > 1000.0 {
        (1e3, "usec")
    } else {
        (1.0, "nsec")
    }
}

fn latency(out: &mut String, name: &str, latency: &Latency) {
    if latency.count == 0 {
        return;
    }
    let (by, unit) = scale(latency.min_ns as f64, latency.max_ns as f64, latency.stddev_ns);
    let (mean, deviation) = (latency.mean_ns / by, latency.stddev_ns / by);
    let whole = |ns: u64| amount(ns / by as u64, MANY_DIGITS, Unit::None, Base::Decimal);
    line(
        out,
        format_args!(
            "    {name:>4} ({unit}): min={}, max={}, avg={mean:5.2}, stdev={deviation:5.2}",
            whole(latency.min_ns),
            whole(latency.max_ns),
        ),
    );
}

fn percentiles(out: &mut String, view: &View<'_>, name: &str, latency: &Latency) {
    if latency.count == 0 {
        return;
    }
    let list = &view.options.faces.percentiles;
    let list = if list.is_empty() { &PERCENTILES[..] } else { list };
    let shares = list.iter().map(|percent| percent / 100.0).collect::<Vec<_>>();
    let values = quantiles(latency, &shares).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
    let least = values.iter().copied().min().unwrap_or(0);
    let most = values.iter().copied().max().unwrap_or(0);
    let (times, unit) = match (least, most) {
        (2_000_001.., 100_000_000..) => (2, "msec"),
        (2001.., 100_000..) => (1, "usec"),
        _ => (0, "nsec"),
    };
    let divided = |value: u64| (0..times).fold(value, |value, _| value.div_ceil(1000));
    let width = divided(most).to_string().len().max(5);
    let per_line = ((LINE_COLUMNS - 7) / (12 + width)).max(1);
    let _ = writeln!(out, "    {name} percentiles ({unit}):");
    for (n, (percent, value)) in list.iter().zip(&values).enumerate() {
        let begin = if n % per_line == 0 { "     |" } else { "" };
        let last = n + 1 == list.len();
        let end = if last || (n + 1) % per_line == 0 { "\n" } else { "" };
        let comma = if last { "" } else { "," };
        let _ = write!(out, "{begin} {percent:5.2}th=[{:width$}]{comma}{end}", divided(*value));
    }
}

fn bandwidth_samples(out: &mut String, samples: &Samples, bandwidth: u64) {
    let (moments, count) = (samples.bandwidth, samples.count);
    let (by, unit) = if moments.mean > 1024.0 * 1024.0 { (1024.0, "MiB") } else { (1.0, "KiB") };
    let share = aggregate_percent(moments.mean, bandwidth);
    line(
        out,
        format_args!(
            "   bw ({unit:>5}/s): min={:5}, max={:5}, per={share:.2}%, avg={:5.2}, stdev={:5.2}, samples={count}",
            (moments.min / by) as u64,
            (moments.max / by) as u64,
            moments.mean / by,
            moments.deviation / by,
        ),
    );
    let moments = samples.iops;
    line(
        out,
        format_args!(
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={count}",
            moments.min as u64, moments.max as u64, moments.mean, moments.deviation,
        ),
    );
}

/// A share that is not 0 is not shown as one.
fn at_least(share: f64, least: f64) -> f64 {
    if share > 0.0 { share.max(least) } else { 0.0 }
}

fn spread(out: &mut String, view: &View<'_>) {
    let spread = view.spread();
    for (unit, shares) in [("nsec", &spread.ns[..]), ("usec", &spread.us[..]), ("msec", &spread.ms[..])] {
        let limits = LIMITS.iter().map(u64::to_string).chain([">=2000".to_owned()]);
        let shown = limits.zip(shares).filter(|(_, share)| **share > 0.0);
        let shown =
            shown.map(|(limit, share)| format!("{limit}={:.2}%", at_least(*share, 0.01))).collect::<Vec<_>>();
        for five in shown.chunks(5) {
            line(out, format_args!("  lat ({unit})   : {}", five.join(", ")));
        }
    }
}

fn levels(out: &mut String, view: &View<'_>) {
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    let levels = names.into_iter().zip(view.depth_levels());
    let levels = levels.map(|(name, share)| format!("{name}={:.1}%", at_least(share, 0.1)));
    line(out, format_args!("  IO depths    : {}", levels.collect::<Vec<_>>().join(", ")));
    let at_once = ["0", "4", "8", "16", "32", "64", ">=64"];
    for (title, levels) in [("submit   ", view.submit_levels()), ("complete ", view.found_levels())] {
        let levels = at_once.into_iter().zip(levels);
        let levels = levels.map(|(name, share)| format!("{name}={:.1}%", at_least(share, 0.1)));
        line(out, format_args!("     {title} : {}", levels.collect::<Vec<_>>().join(", ")));
    }
    let sides = view.sides.sides().into_iter().chain([&view.flush]);
    let counts = |count: fn(&Side) -> u64| {
        sides.clone().map(|side| count(side).to_string()).collect::<Vec<_>>().join(",")
    };
    let (total, short) = (counts(|side| side.ios), counts(|side| side.mismatched));
    line(out, format_args!("     issued rwts: total={total} short={short}"));
    if view.error() > 0 {
        let (first, code) = (view.errors.keys().next().map_or("", String::as_str), view.error());
        let total = view.failed().saturating_add(view.mismatched());
        line(out, format_args!("     errors    : total={total}, first_error={code}/<{first}>"));
    }
    let options = &view.options;
    line(
        out,
        format_args!(
            "     latency   : target={}, window={}, percentile={:.2}%, depth={}",
            options.latency_target_ns.unwrap_or(0) / 1000,
            options.latency_window_ns / 1000,
            options.latency_percentile,
            view.found_depth.unwrap_or(view.depth),
        ),
    );
}

/// The least and the most of a group's jobs, and all of it together.
#[derive(Default)]
struct Together {
    bytes: u64,
    bandwidth: u64,
    least: u64,
    most: u64,
    shortest_ms: u64,
    longest_ms: u64,
}

fn groups(out: &mut String, views: &[View<'_>]) {
    let mut groups: BTreeMap<u32, [Option<Together>; 4]> = BTreeMap::new();
    for view in views {
        let [read, write, trim] = view.sides.sides();
        let (nothing, mixed) = (Side::default(), view.mixed.as_ref().map(|(side, _)| side));
        let sides = match view.options.faces.unified {
            Unified::Mixed => [&nothing, &nothing, &nothing, read],
            _ => [read, write, trim, mixed.unwrap_or(&nothing)],
        };
        let group = groups.entry(view.group).or_default();
        for (side, together) in sides.into_iter().zip(group) {
            if is_idle(side) {
                continue;
            }
            let (bandwidth, ms) = (view.bandwidth(side), view.runtime_ms_of(side));
            let first = || Together { least: u64::MAX, shortest_ms: u64::MAX, ..Together::default() };
            let together = together.get_or_insert_with(first);
            together.bytes = together.bytes.saturating_add(side.bytes);
            together.least = together.least.min(bandwidth);
            together.most = together.most.max(bandwidth);
            together.shortest_ms = together.shortest_ms.min(ms);
            together.longest_ms = together.longest_ms.max(ms);
            let all = u128::from(together.bytes) * 1000 / u128::from(together.longest_ms);
            together.bandwidth = u64::try_from(all).unwrap_or(u64::MAX);
        }
    }
    for (group, sides) in groups {
        line(out, format_args!("\nRun status group {group} (all jobs):"));
        for (together, name) in sides.into_iter().zip(["READ", "WRITE", "TRIM", "MIXED"]) {
            together.into_iter().for_each(|together| status(out, name, &together));
        }
    }
}

fn status(out: &mut String, name: &str, all: &Together) {
    let rate = |bytes, base| amount(bytes, DIGITS, Unit::BytesPerSecond, base);
    let both = |bytes| (rate(bytes, Base::Binary), rate(bytes, Base::Decimal));
    let ((bw, bw_si), (least, least_si), (most, most_si)) =
        (both(all.bandwidth), both(all.least), both(all.most));
    let io = amount(all.bytes, DIGITS, Unit::Bytes, Base::Binary);
    let io_si = amount(all.bytes, DIGITS, Unit::Bytes, Base::Decimal);
    let (shortest, longest) = (all.shortest_ms, all.longest_ms);
    line(
        out,
        format_args!(
            "{name:>7}: bw={bw} ({bw_si}), {least}-{most} ({least_si}-{most_si}), io={io} ({io_si}), \
             run={shortest}-{longest}msec"
        ),
    );
}

/// What an amount is of.
#[derive(Clone, Copy)]
enum Unit {
    None,
    Bytes,
    BytesPerSecond,
}

/// What its prefixes are powers of; fio's reports use those of the standards, whatever `kb_base` says.
#[derive(Clone, Copy, PartialEq)]
enum Base {
    Binary,
    Decimal,
}

/// A number with a prefix that leaves so many digits, rounded; what fio has no room for behind the point is not there.
fn amount(mut number: u64, digits: usize, unit: Unit, base: Base) -> String {
    let (thousand, prefixes) = match base {
        Base::Binary => (1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
        Base::Decimal => (1000, ["", "k", "M", "G", "T", "P", "E"]),
    };
    let unit = match unit {
        Unit::None => "",
        Unit::Bytes => "B",
        Unit::BytesPerSecond => "B/s",
    };
    let (mut prefix, mut rest) = (0, None);
    while number.to_string().len() > digits && prefix + 1 < prefixes.len() {
        rest = Some(number % thousand);
        number /= thousand;
        prefix += 1;
    }
    let places = digits.saturating_sub(number.to_string().len() + 1) as u32;
    let prefix = prefixes[prefix];
    let Some(rest) = rest else { return format!("{number}{unit}") };
    if places == 0 {
        number += u64::from(rest * 2 >= thousand);
        return format!("{number}{prefix}{unit}");
    }
    let ten = 10u64.pow(places);
    let fraction = (rest * ten + thousand / 2) / thousand;
    // A fraction that was rounded up to the whole carries over.
    let (number, fraction) = (number + fraction / ten, fraction % ten);
    format!("{number}.{fraction:0width$}{prefix}{unit}", width = places as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each as fio 3.33 printed it.
    #[test]
    fn amounts_as_fio_writes_them() {
        for (number, unit, base, text) in [
            (27_250_688, Unit::Bytes, Base::Binary, "26.0MiB"),
            (27_250_688, Unit::Bytes, Base::Decimal, "27.3MB"),
            (6_873_088, Unit::Bytes, Base::Binary, "6712KiB"),
            (6_873_088, Unit::Bytes, Base::Decimal, "6873kB"),
            (2048, Unit::Bytes, Base::Binary, "2048B"),
            (65_536, Unit::Bytes, Base::Binary, "64.0KiB"),
            (6626, Unit::None, Base::Decimal, "6626"),
            (28_100, Unit::None, Base::Decimal, "28.1k"),
            (0, Unit::BytesPerSecond, Base::Binary, "0B/s"),
        ] {
            assert_eq!(amount(number, DIGITS, unit, base), text);
        }
        assert_eq!(amount(134_966, MANY_DIGITS, Unit::None, Base::Decimal), "134966");
        assert_eq!(amount(u64::MAX, DIGITS, Unit::Bytes, Base::Binary), "16.0EiB");
    }
}
