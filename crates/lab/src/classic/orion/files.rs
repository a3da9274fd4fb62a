//! Orion's output files, in its layout: programs that read these read ours.
//!
//! Rows of the matrices are loads of large I/Os, columns those of small ones; cells that were not run are empty, and a
//! line ends with its last cell that was. The summary is that of version 11.1.0.7.0, of which whole ones are published.
//! Latencies in the other files are microseconds, as since version 11.2, which has the histograms, too; megabytes are
//! 2^20 bytes, as Orion's sizes are. Of the trace, Orion's documents say only that it has the extended, unprocessed data; its layout
//! is ours.

use super::measure::{Class, Measured};
use super::run::Outcome;
use super::spec::{LargeOrder, Matrix, Point, RunType, Simulate, Spec};
use super::verdicts::{MB, tradeoff, verdicts};
use crate::record::{Latency, Side};
use crate::report::units::moment;
use crate::stats::{merged, quantile};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The last bound of Orion's histograms, microseconds.
const LAST_US: u64 = 1 << 28;
/// And the first.
const FIRST_US: u64 = 32;

/// What files say of a test besides its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// This program and its version.
    pub program: String,
    /// What was asked for, as it was written.
    pub command_line: String,
    /// The targets, and their bytes.
    pub luns: Vec<(String, u64)>,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What its name ends with, such as `iops.csv`.
    pub suffix: &'static str,
    /// What is in it.
    pub text: String,
}

/// `yyyymmdd_hhmm` of a moment, UTC.
pub fn stamp(unix_ms: u64) -> String {
    let digits: String = moment(unix_ms).chars().filter(char::is_ascii_digit).collect();
    let (day, time) = digits.split_at(digits.len().min(8));
    format!("{day}_{}", time.get(..4).unwrap_or("0000"))
}

/// All files of a test.
pub fn files(head: &Head, spec: &Spec, points: &[Point], outcome: &Outcome) -> Vec<File> {
    let measured = &outcome.points;
    let file = |suffix, text| File { suffix, text };
    let iops = |class: &Class| format!("{:.0}", class.iops);
    let latency = |class: &Class| format!("{:.2}", class.latency_ns / 1e3);
    let mut files = vec![
        file("summary.txt", summary(head, spec, points, outcome)),
        file("iops.csv", small_matrix(measured, iops)),
        file("lat.csv", small_matrix(measured, latency)),
        file("mbps.csv", large_matrix(measured)),
        file("hist.txt", measured.iter().map(histograms).collect()),
        file("trace.txt", trace(points, measured)),
    ];
    let trades = tradeoff(outcome);
    if !trades.is_empty() {
        let mut text = String::from("Latency, Large, Large MBPS, Small IOPS\n");
        for trade in trades {
            let mbps = trade.large_bytes_per_s / MB;
            let _ = writeln!(
                text,
                "{:.0}, {}, {mbps:.2}, {:.0}",
                trade.latency_us, trade.large, trade.small_iops
            );
        }
        files.push(file("tradeoff.csv", text));
    }
    files
}

/// The words and the order of version 11.1.0.7.0; behind its three results, in milliseconds, stand ours.
fn summary(head: &Head, spec: &Spec, points: &[Point], outcome: &Outcome) -> String {
    let mut text = format!("ORION VERSION {}\n\nCommandline:\n{}\n\n", head.program, head.command_line);
    let _ = writeln!(text, "This maps to this test:\nTest: {}", spec.testname);
    let _ = writeln!(text, "Small IO size: {} KB", spec.small_bytes >> 10);
    let _ = writeln!(text, "Large IO size: {} KB", spec.large_bytes >> 10);
    let _ = match spec.large_order {
        LargeOrder::Random => writeln!(text, "IO Types: Small Random IOs, Large Random IOs"),
        LargeOrder::Sequential => writeln!(
            text,
            "IO Types: Small Random IOs, Large Sequential Streams\nNumber of Concurrent IOs Per Stream: {}",
            spec.stream_ios
        ),
    };
    let array = match spec.simulate {
        Simulate::Concat => "CONCAT".to_owned(),
        Simulate::Raid0 => format!("RAID 0\nStripe Depth: {} KB", spec.stripe_bytes >> 10),
    };
    let _ = writeln!(text, "Simulated Array Type: {array}\nWrite: {}%", spec.write_percent);
    let cache = spec.cache_bytes.map_or("Not Entered".to_owned(), |bytes| format!("{} MB", bytes >> 20));
    let _ = writeln!(text, "Cache Size: {cache}\nDuration for each Data Point: {} seconds", spec.seconds);
    let levels = |of: &dyn Fn(&Point) -> Option<u32>| -> String {
        let levels: BTreeSet<u32> = points.iter().filter_map(of).chain(edge(spec)).collect();
        levels.iter().map(|level| format!(", {level:>6}")).collect()
    };
    // Of the two edges of a basic matrix, Orion names that of large I/Os.
    let basic =
        spec.run == RunType::Simple || (spec.run == RunType::Advanced && spec.matrix == Matrix::Basic);
    let small = levels(&|point| (!basic || point.large > 0).then_some(point.small));
    let _ = writeln!(text, "Small Columns:{small}");
    let _ = writeln!(text, "Large Columns:{}", levels(&|point| Some(point.large)));
    // Orion counts the idle point, too.
    let _ = writeln!(text, "Total Data Points: {}\n", points.len() + 1);
    for (name, bytes) in &head.luns {
        let _ = writeln!(text, "Name: {name}  Size: {bytes}");
    }
    let _ = writeln!(text, "{} FILEs found.\n", head.luns.len());
    text + &results(spec, outcome)
}

/// Where the matrix has edges, a load of 0 is one of its levels.
fn edge(spec: &Spec) -> Option<u32> {
    let edges = match spec.run {
        RunType::Simple | RunType::Normal => true,
        RunType::Advanced => matches!(spec.matrix, Matrix::Basic | Matrix::Detailed | Matrix::Max),
        RunType::Dss | RunType::Oltp => false,
    };
    edges.then_some(0)
}

/// The end of the summary, and what is printed: Orion's three lines, the latency in milliseconds; then, with their units,
/// what it does not have.
pub fn results(spec: &Spec, outcome: &Outcome) -> String {
    let mut text = String::new();
    let highest = |of: fn(&Measured) -> Option<f64>| {
        let all = outcome.points.iter().filter_map(|measured| Some((of(measured)?, measured)));
        all.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    if let Some((bytes, at)) = highest(|measured| Some(measured.large.as_ref()?.bytes_per_s)) {
        let _ = writeln!(text, "Maximum Large MBPS={:.2} @ {}", bytes / MB, place(at));
    }
    let busiest = highest(|measured| Some(measured.small.as_ref()?.iops));
    if let Some((iops, at)) = busiest {
        let _ = writeln!(text, "Maximum Small IOPS={iops:.0} @ {}", place(at));
    }
    let soonest = highest(|measured| Some(-measured.small.as_ref()?.latency_ns));
    if let Some((ns, at)) = soonest {
        let _ = writeln!(text, "Minimum Small Latency={:.2} @ {}", -ns / 1e6, place(at));
    }
    if let Some((_, at)) = busiest {
        text = text + "\n" + &latencies(at);
    }
    if let Some((_, at)) = soonest {
        text = text + "\n" + &latencies(at);
        if let Some(small) = &at.small {
            text += &histogram("Small", small, at);
        }
    }
    text.push('\n');
    verdicts(spec, outcome).iter().for_each(|line| text.extend([line.as_str(), "\n"]));
    text
}

fn place(measured: &Measured) -> String {
    format!("Small={} and Large={}", measured.point.small, measured.point.large)
}

fn latencies(measured: &Measured) -> String {
    let mut text = String::new();
    let Some(small) = &measured.small else { return text };
    for (name, side) in [("Read", &small.read), ("Write", &small.write)] {
        let Latency { count, mean_ns, min_ns, max_ns, stddev_ns, .. } = &side.response;
        if *count > 0 {
            let us = |ns: f64| ns / 1e3;
            let _ = writeln!(
                text,
                "Small {name} Latency: avg={:.3} us, min={:.3} us, max={:.3} us, std dev={:.3} us @ {}",
                us(*mean_ns),
                us(*min_ns as f64),
                us(*max_ns as f64),
                us(*stddev_ns),
                place(measured)
            );
        }
    }
    text
}

fn histograms(measured: &Measured) -> String {
    let classes = [("Small", &measured.small), ("Large", &measured.large)];
    let blocks =
        classes.into_iter().filter_map(|(what, class)| Some(histogram(what, class.as_ref()?, measured)));
    blocks.map(|block| block + "\n").collect()
}

/// Powers of two, and how many of all were no longer.
fn histogram(what: &str, class: &Class, measured: &Measured) -> String {
    let mut text = format!("{what} Read / Write Latency Histogram @ {}\n", place(measured));
    let _ =
        writeln!(text, "        Latency:                         # of IOs (read)          # of IOs (write)");
    let sides = [&class.read.response, &class.write.response];
    let longest_us = sides.iter().map(|side| side.max_ns).max().unwrap_or(0).div_ceil(1000);
    let (mut from, mut to, mut seen) = (0, FIRST_US, [0u64; 2]);
    loop {
        let _ = write!(text, "{from:>9} - {to:<9}  us:");
        for (at, side) in sides.iter().enumerate() {
            let within = count(side, from, to);
            seen[at] += within;
            let share = seen[at] as f64 / side.count.max(1) as f64 * 100.0;
            let width = if at == 0 { 16 } else { 15 };
            let _ = write!(text, "{within:>width$} ({share:>6.2}%)");
        }
        text.push('\n');
        if to >= LAST_US {
            return text;
        }
        // Behind the longest comes all that is left.
        (from, to) = (to, if to >= longest_us { LAST_US } else { to * 2 });
    }
}

/// How many took as long as from `from` to below `to` microseconds; the last holds whatever is longer.
fn count(latency: &Latency, from: u64, to: u64) -> u64 {
    let within = |ns: u64| ns / 1000 >= from && (ns / 1000 < to || to >= LAST_US);
    latency.bins.iter().filter(|bin| within(bin.0)).map(|bin| bin.1).sum()
}

/// A matrix of small I/Os: without the column of none.
fn small_matrix(measured: &[Measured], value: impl Fn(&Class) -> String) -> String {
    let small = |measured: &Measured| measured.small.as_ref().map(&value);
    matrix(measured, |point| point.small > 0, |_| true, small)
}

/// The matrix of large I/Os: without the row of none.
fn large_matrix(measured: &[Measured]) -> String {
    let large = |measured: &Measured| Some(format!("{:.2}", measured.large.as_ref()?.bytes_per_s / MB));
    matrix(measured, |_| true, |point| point.large > 0, large)
}

fn matrix(
    measured: &[Measured],
    has_column: impl Fn(&Point) -> bool,
    has_row: impl Fn(&Point) -> bool,
    value: impl Fn(&Measured) -> Option<String>,
) -> String {
    let points = || measured.iter().map(|measured| &measured.point);
    let columns: BTreeSet<u32> =
        points().filter(|point| has_column(point)).map(|point| point.small).collect();
    let rows: BTreeSet<u32> = points().filter(|point| has_row(point)).map(|point| point.large).collect();
    let mut text = String::from("Large/Small");
    columns.iter().for_each(|small| text += &format!(", {small:>6}"));
    text.push('\n');
    for large in rows {
        let cell = |small: &u32| {
            let point = Point { large, small: *small };
            measured.iter().find(|measured| measured.point == point).and_then(&value)
        };
        let cells: Vec<Option<String>> = columns.iter().map(cell).collect();
        let run = cells.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let _ = write!(text, "{large:>11}");
        cells[..run].iter().for_each(|cell| text += &format!(", {:>6}", cell.as_deref().unwrap_or("")));
        text.push('\n');
    }
    text
}

/// Everything that was measured of each point.
fn trace(points: &[Point], measured: &[Measured]) -> String {
    let mut text = String::new();
    for (nth, measured) in measured.iter().enumerate() {
        let Point { small, large } = measured.point;
        let of = match measured.searched {
            true => "step in the search for a knee".to_owned(),
            false => format!("of {}", points.len()),
        };
        let _ = writeln!(text, "Point {} (small={small}, large={large}) {of}", nth + 1);
        for (what, class) in [("small", &measured.small), ("large", &measured.large)] {
            text += &class.as_ref().map_or(String::new(), |class| trace_class(what, class));
        }
        text.push('\n');
    }
    text
}

fn trace_class(what: &str, class: &Class) -> String {
    let mut text = format!("ran ({what}): iops={:.2} mbps={:.3}", class.iops, class.bytes_per_s / MB);
    let both = merged(&class.read.response, &class.write.response);
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let _ = write!(text, " {name}={:.3} us", quantile(&both, q).unwrap_or(0) as f64 / 1e3);
    }
    text.push('\n');
    for (name, side) in [("read", &class.read), ("write", &class.write)] {
        let Side { ios, bytes, failed, response, .. } = side;
        if ios + failed == 0 {
            continue;
        }
        let us = |ns: f64| ns / 1e3;
        let _ = writeln!(
            text,
            "  {name}: ios={ios} bytes={bytes} failed={failed} avg={:.3} us min={:.3} us max={:.3} us std dev={:.3} us",
            us(response.mean_ns),
            us(response.min_ns as f64),
            us(response.max_ns as f64),
            us(response.stddev_ns)
        );
    }
    text
}
