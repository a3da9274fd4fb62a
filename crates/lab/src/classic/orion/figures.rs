//! What a page shows of a test besides its record: the curves with their knees, the matrix of megabytes, histograms, and
//! what small I/Os lose to large ones.

use super::measure::Measured;
use super::run::{Outcome, class};
use super::spec::{Point, Ramp, Spec};
use super::verdicts::{MB, tradeoff, verdicts};
use crate::report::{Axis, Extra, Figure, FigureLine, Mark, Table, Unit};
use crate::stats::{Verdict, merged};
use std::collections::{BTreeMap, BTreeSet};

/// Lines of a plot: more are not told apart.
const MAX_LINES: usize = 6;
/// Columns of a matrix on a page.
const MAX_COLUMNS: usize = 40;

/// The part of a page that is this test's own.
pub fn figures(spec: &Spec, outcome: &Outcome) -> Extra {
    let mut figures = Vec::new();
    for (ramp, verdict) in &outcome.knees {
        figures.extend(curves(spec, outcome, *ramp, verdict));
    }
    figures.extend(histogram(outcome));
    figures.extend(trades(outcome));
    figures.extend(beside(outcome));
    let large =
        |measured: &Measured| measured.large.as_ref().map(|class| format!("{:.1}", class.bytes_per_s / MB));
    let small = |measured: &Measured| measured.small.as_ref().map(|class| format!("{:.0}", class.iops));
    let matrices =
        [matrix(outcome, "Large MBPS (of 2^20 bytes)", large), matrix(outcome, "Small IOPS", small)];
    Extra {
        title: "Loads".to_owned(),
        findings: verdicts(spec, outcome),
        tables: matrices.into_iter().flatten().collect(),
        figures,
        ..Extra::default()
    }
}

/// Throughput by load, and latency by throughput, of a ramp.
fn curves(spec: &Spec, outcome: &Outcome, ramp: Ramp, verdict: &Verdict) -> Vec<Figure> {
    let (id, what, other, label, unit) = match ramp {
        Ramp::Small { large } => ("small", "Small", format!("Large={large}"), "IOPS", 1.0),
        Ramp::Large { small } => {
            ("large", "Large", format!("Small={small}"), "MBPS", spec.large_bytes as f64 / MB)
        }
    };
    let mut steps: Vec<(f64, f64, f64)> = outcome
        .points
        .iter()
        .filter_map(|measured| {
            let class = class(measured, ramp)?;
            Some((f64::from(ramp.load(measured.point)?), class.iops * unit, class.latency_ns))
        })
        .collect();
    steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    if steps.len() < 2 {
        return Vec::new();
    }
    let mark = |at: f64, low: f64, high: f64| Mark { label: "knee".to_owned(), at, low, high };
    let (by_load, by_rate) = match verdict {
        Verdict::Knee(knee) => (
            vec![mark(knee.load.into(), knee.load_low.into(), knee.load_high.into())],
            vec![mark(knee.rate * unit, knee.rate_low * unit, knee.rate_high * unit)],
        ),
        _ => (Vec::new(), Vec::new()),
    };
    let load = Axis { label: format!("{what} I/Os in flight"), unit: Unit::Count, log: true };
    let rate = Axis { label: format!("{what} {label}"), unit: Unit::Count, log: false };
    let latency = Axis { label: "mean latency".to_owned(), unit: Unit::Nanoseconds, log: true };
    let line = |points: Vec<(f64, f64)>| vec![FigureLine { label: other.clone(), points }];
    vec![
        Figure {
            id: format!("{id}-rate"),
            title: format!("{what} {label} by load; the band is where the knee is"),
            x: load,
            y: Axis { log: false, ..rate.clone() },
            lines: line(steps.iter().map(|&(load, rate, _)| (load, rate)).collect()),
            marks: by_load,
        },
        Figure {
            id: format!("{id}-latency"),
            title: format!(
                "Latency of {} I/Os by {label}; past the knee only latency grows",
                what.to_lowercase()
            ),
            x: rate,
            y: latency,
            lines: line(steps.iter().map(|&(_, rate, ns)| (rate, ns)).collect()),
            marks: by_rate,
        },
    ]
}

/// Shares of I/Os by powers of two, of some small loads from the least to the highest.
fn histogram(outcome: &Outcome) -> Option<Figure> {
    let points: Vec<&Measured> = outcome.points.iter().filter(|measured| measured.small.is_some()).collect();
    let every = points.len().div_ceil(MAX_LINES).max(1);
    let line = |measured: &&Measured| {
        let small = measured.small.as_ref()?;
        let both = merged(&small.read.response, &small.write.response);
        let mut shares: BTreeMap<u32, u64> = BTreeMap::new();
        for (ns, count) in both.bins {
            *shares.entry(ns.max(1).ilog2()).or_default() += count;
        }
        let all = both.count.max(1) as f64;
        let at = |(&power, &count): (&u32, &u64)| (2f64.powi(power as i32), count as f64 / all * 100.0);
        let Point { small, large } = measured.point;
        Some(FigureLine {
            label: format!("Small={small} Large={large}"),
            points: shares.iter().map(at).collect(),
        })
    };
    let lines: Vec<FigureLine> = points.iter().step_by(every).filter_map(line).collect();
    (!lines.is_empty()).then(|| Figure {
        id: "histogram".to_owned(),
        title: "Histogram of small latencies: each point from a power of two nanoseconds to the next"
            .to_owned(),
        x: Axis { label: "latency".to_owned(), unit: Unit::Nanoseconds, log: true },
        y: Axis { label: "share of the I/Os".to_owned(), unit: Unit::Percent, log: false },
        lines,
        marks: Vec::new(),
    })
}

/// Small throughput by large throughput: a line for each limit of latency.
fn trades(outcome: &Outcome) -> Option<Figure> {
    let mut lines: Vec<FigureLine> = Vec::new();
    for trade in tradeoff(outcome) {
        let label = format!("small latency {}", crate::report::units::time(trade.latency_us * 1e3));
        let point = (trade.large_bytes_per_s / MB, trade.small_iops);
        match lines.iter_mut().find(|line| line.label == label) {
            Some(line) => line.points.push(point),
            None => lines.push(FigureLine { label, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    (!lines.is_empty()).then(|| Figure {
        id: "tradeoff".to_owned(),
        title: "What small I/Os lose to large ones, at limits of the small ones' latency".to_owned(),
        x: Axis { label: "Large MBPS".to_owned(), unit: Unit::Count, log: false },
        y: Axis { label: "Small IOPS".to_owned(), unit: Unit::Count, log: false },
        lines,
        marks: Vec::new(),
    })
}

/// The same at loads: a line for each of some small loads, through the large loads beside it.
fn beside(outcome: &Outcome) -> Option<Figure> {
    let mixed = |measured: &&Measured| measured.point.small > 0 && measured.point.large > 0;
    let loads: BTreeSet<u32> =
        outcome.points.iter().filter(mixed).map(|measured| measured.point.small).collect();
    let every = loads.len().div_ceil(MAX_LINES).max(1);
    let line = |small: &u32| {
        let of = outcome.points.iter().filter(|measured| measured.point.small == *small);
        let place = |measured: &Measured| {
            let large = measured.large.as_ref().map_or(0.0, |large| large.bytes_per_s / MB);
            Some((large, measured.small.as_ref()?.iops))
        };
        let mut points: Vec<(f64, f64)> = of.filter_map(place).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        FigureLine { label: format!("Small={small}"), points }
    };
    let lines: Vec<FigureLine> = loads.iter().step_by(every).map(line).collect();
    (!lines.is_empty()).then(|| Figure {
        id: "beside".to_owned(),
        title: "Small IOPS and large MBPS of the same small load, beside more and more large I/Os".to_owned(),
        x: Axis { label: "Large MBPS".to_owned(), unit: Unit::Count, log: false },
        y: Axis { label: "Small IOPS".to_owned(), unit: Unit::Count, log: false },
        lines,
        marks: Vec::new(),
    })
}

/// A matrix of all points; none where it would be empty.
fn matrix(outcome: &Outcome, caption: &str, value: fn(&Measured) -> Option<String>) -> Option<Table> {
    let run = || outcome.points.iter().filter(|measured| value(measured).is_some());
    let columns: BTreeSet<u32> = run().map(|measured| measured.point.small).collect();
    let large: BTreeSet<u32> = run().map(|measured| measured.point.large).collect();
    let shown: Vec<u32> = columns.iter().copied().take(MAX_COLUMNS).collect();
    let row = |&large: &u32| {
        let cell = |&small: &u32| {
            let point = Point { large, small };
            run().find(|measured| measured.point == point).and_then(value).unwrap_or_default()
        };
        std::iter::once(format!("Large={large}")).chain(shown.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = large.iter().map(row).collect();
    let more = columns.len() - shown.len();
    let caption =
        if more > 0 { format!("{caption}; {more} columns are left out") } else { caption.to_owned() };
    let head =
        std::iter::once(String::new()).chain(shown.iter().map(|small| format!("Small={small}"))).collect();
    (!rows.is_empty()).then_some(Table { caption, head, rows })
}
