//! How the tests print: tables as the specification's report has them, and its plots.

use super::determination::determination;
use super::header::header;
use super::histogram::Histogram;
use super::loads::{MIXES, SIZES, Test, size};
use super::run::{Found, Load, Stage, StagePoint, Steady};
use crate::record::Run;
use crate::report::units::three;
use crate::report::{Axis, Extra, Figure, FigureLine, Table, Unit};

/// Points of a curve that a plot has at most.
const MAX_POINTS: usize = 2000;

/// What is said of a test.
fn sentences(found: &Found) -> Vec<String> {
    let mut out = Vec::new();
    if found.scale < 1.0 {
        out.push(format!(
            "All times are {} of those that SNIA's specification asks for: this is no result of it.",
            found.scale
        ));
    }
    if !found.purged {
        out.push(
            "The target takes no TRIM: it was not purged, and holds on to what it was before.".to_owned(),
        );
    }
    for steady in &found.steady {
        let what = if steady.tracks_latency { "mean response" } else { "IOPS" };
        out.push(format!("{} of {}: {}.", what, steady.tracked().name, steady.steadiness));
        if steady.steadiness.reached.is_none() {
            out.push(
                "Without a steady state these are no figures of the device, but of a moment.".to_owned(),
            );
        } else if steady.written_capacities < 1.0 && found.scale < 1.0 {
            out.push(format!(
                "Only {} of what was measured on was written in these rounds: what looks steady may be how it \
                 begins. Take a larger --scale, or a smaller --span.",
                three(steady.written_capacities)
            ));
        }
    }
    out.extend(found.steady.iter().filter_map(left_out));
    out.extend(found.stages.iter().filter_map(of_stage));
    out
}

/// Which loads were not run, and what the target said to them.
fn left_out(steady: &Steady) -> Option<String> {
    let out: Vec<&Load> = steady.loads.iter().filter(|load| load.left_out.is_some()).collect();
    let said = out.first()?.left_out.as_deref()?;
    let mut sizes: Vec<String> = out.iter().map(|load| size(load.bytes)).collect();
    sizes.dedup();
    Some(format!(
        "Left out are the loads of {}, of which the target does none ({said}): they are less than a sector.",
        sizes.join(", ")
    ))
}

fn of_stage(stage: &Stage) -> Option<String> {
    let (first, last) = (stage.points.first()?, stage.points.last()?);
    let mean = stage.points.iter().map(|point| point.mb_per_s).sum::<f64>() / stage.points.len() as f64;
    let longest = stage.points.iter().map(|point| point.max_us).fold(0.0, f64::max);
    Some(format!(
        "{}: {} MB/s at first, {} in the end, {} on average; the longest response {} ms.",
        stage.name,
        three(first.mb_per_s),
        three(last.mb_per_s),
        three(mean),
        three(longest / 1e3)
    ))
}

fn tables(found: &Found) -> Vec<Table> {
    let of_rounds = match found.test {
        Test::Iops => iops_table,
        _ => load_table,
    };
    let rounds = found.steady.iter().flat_map(|steady| [determination(steady), of_rounds(steady)]);
    let histograms = (!found.histograms.is_empty()).then(|| histogram_table(&found.histograms));
    rounds.chain(histograms).collect()
}

fn histogram_table(histograms: &[Histogram]) -> Table {
    let percents = histograms.iter().map(|histogram| &histogram.percentiles).max_by_key(|told| told.len());
    let percents: Vec<f64> = percents.into_iter().flatten().map(|told| told.0).collect();
    let row = |histogram: &Histogram| {
        let at = |percent: &f64| {
            let told = histogram.percentiles.iter().find(|told| told.0 == *percent);
            told.map_or("-".to_owned(), |told| three(told.1))
        };
        let begin = [histogram.name.clone(), histogram.ios.to_string(), three(histogram.mean_us)];
        begin.into_iter().chain(percents.iter().map(at)).chain([three(histogram.max_us)]).collect()
    };
    let head = ["load", "responses", "mean us"].map(str::to_owned).into_iter();
    let head = head.chain(percents.iter().map(|percent| format!("{percent} %")));
    Table {
        caption: "Responses once it was steady, microseconds".to_owned(),
        head: head.chain(["longest".to_owned()]).collect(),
        rows: histograms.iter().map(row).collect(),
    }
}

fn iops_table(steady: &Steady) -> Table {
    let at = |bytes: u64, mix: u32| {
        let load = steady.loads.iter().find(|load| load.bytes == bytes && load.read_percent == mix);
        load.and_then(|load| Load::measured(&load.iops)).map_or("-".to_owned(), three)
    };
    let row = |bytes: &u64| {
        std::iter::once(size(*bytes)).chain(MIXES.iter().map(|mix| at(*bytes, *mix))).collect::<Vec<_>>()
    };
    let mixes = MIXES.iter().map(|mix| format!("{mix}/{}", 100 - mix));
    Table {
        caption: "IOPS by size and reads/writes, mean of the last five rounds".to_owned(),
        head: std::iter::once("size".to_owned()).chain(mixes).collect(),
        rows: SIZES.iter().map(row).collect(),
    }
}

fn load_table(steady: &Steady) -> Table {
    let row = |load: &Load| {
        let mean = |values: &[f64]| Load::measured(values).map_or("-".to_owned(), three);
        let speed: Vec<f64> = load.iops.iter().map(|iops| iops * load.bytes as f64 / 1e6).collect();
        let longest = load.max_us.iter().copied().reduce(f64::max).map_or("-".to_owned(), three);
        vec![
            load.name.clone(),
            mean(&load.iops),
            mean(&speed),
            mean(&load.mean_us),
            mean(&load.p999_us),
            longest,
        ]
    };
    Table {
        caption: "Mean of the last five rounds".to_owned(),
        head: ["load", "IOPS", "MB/s", "mean us", "99.9 % us", "longest us"].map(str::to_owned).into(),
        rows: steady.loads.iter().map(row).collect(),
    }
}

/// Tests of a run, in lines.
pub fn text(found: &[Found], run: &Run) -> String {
    found.iter().map(|found| format!("{}\n\n{}\n", found.test.name(), test_text(found, run))).collect()
}

fn test_text(found: &Found, run: &Run) -> String {
    let mut out = String::new();
    for row in &header(found, run).rows {
        out += &format!("{}\n", row.join(": "));
    }
    out.push('\n');
    for table in tables(found) {
        out += &format!("{}\n", table.caption);
        let lines: Vec<&Vec<String>> = std::iter::once(&table.head).chain(&table.rows).collect();
        let width = |at: usize| lines.iter().map(|line| line[at].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
        // Of a field and its value, the value are words.
        let words = table.head.len() == 2;
        for line in lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 => format!("{cell:width$}"),
                _ if words => format!("  {cell}"),
                _ => format!("  {cell:>width$}"),
            });
            out += &format!("{}\n", cells.collect::<String>().trim_end());
        }
        out.push('\n');
    }
    sentences(found).iter().for_each(|sentence| out += &format!("{sentence}\n"));
    out
}

/// Plots and tables of the tests of a run, for its page.
pub fn page(found: &[Found], run: &Run) -> Extra {
    let mut all = Extra { title: "SNIA's kind of test".to_owned(), ..Extra::default() };
    for found in found {
        let name = found.test.name();
        all.findings.extend(sentences(found).into_iter().map(|sentence| format!("{name}: {sentence}")));
        all.tables.extend(
            std::iter::once(header(found, run))
                .chain(tables(found))
                .map(|table| Table { caption: format!("{name}: {}", table.caption), ..table }),
        );
        all.figures.extend(figures(found).into_iter().map(|figure| Figure {
            id: format!("snia-{name}-{}", figure.id),
            title: format!("{name}: {}", figure.title),
            ..figure
        }));
    }
    all
}

fn figures(found: &Found) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for (nth, steady) in found.steady.iter().enumerate() {
        figures.push(convergence(steady, nth));
        figures.extend(window(steady, nth));
    }
    if found.test == Test::Iops {
        figures.extend(found.steady.iter().map(by_size));
    }
    if !found.stages.is_empty() {
        let time: (&str, Over) = ("over time", Over { label: "time", unit: Unit::Nanoseconds, of: time_ns });
        let written: (&str, Over) =
            ("by what was written", Over { label: "written, capacities", unit: Unit::Count, of: written });
        let over = if found.test == Test::WriteSaturation { vec![time, written] } else { vec![time] };
        for (nth, (words, x)) in over.into_iter().enumerate() {
            let iops = Over { label: "IOPS", unit: Unit::Count, of: |point| point.iops };
            let mean =
                Over { label: "mean response", unit: Unit::Nanoseconds, of: |point| point.mean_us * 1e3 };
            let longest =
                Over { label: "longest response", unit: Unit::Nanoseconds, of: |point| point.max_us * 1e3 };
            figures.push(curve(found, &format!("iops-{nth}"), &format!("IOPS {words}"), &x, &iops));
            figures.push(curve(found, &format!("mean-{nth}"), &format!("Mean response {words}"), &x, &mean));
            figures.push(curve(
                found,
                &format!("max-{nth}"),
                &format!("Longest response {words}"),
                &x,
                &longest,
            ));
        }
    }
    figures.extend((!found.histograms.is_empty()).then(|| responses(&found.histograms)));
    figures
}

/// The specification's response time histogram, by the share of responses: loads of unlike speed stand beside each other.
fn responses(histograms: &[Histogram]) -> Figure {
    let line = |histogram: &Histogram| FigureLine {
        label: histogram.name.clone(),
        points: histogram
            .bins
            .iter()
            .map(|&(end_us, ios)| (end_us * 1e3, ios as f64 / histogram.ios.max(1) as f64 * 100.0))
            .collect(),
    };
    Figure {
        id: "responses".to_owned(),
        title: "Response time histogram".to_owned(),
        x: Axis { label: "response".to_owned(), unit: Unit::Nanoseconds, log: true },
        y: axis("of all responses", Unit::Percent),
        lines: histograms.iter().map(line).collect(),
        marks: Vec::new(),
    }
}

fn axis(label: &str, unit: Unit) -> Axis {
    Axis { label: label.to_owned(), unit, log: false }
}

/// The specification's steady state convergence plot, of all loads that are like the tracked one but for their size.
fn convergence(steady: &Steady, nth: usize) -> Figure {
    let like = steady.loads.iter().filter(|load| load.read_percent == steady.tracked().read_percent);
    let line = |load: &Load| {
        let rounds = steady.values(load).iter().enumerate();
        let points = rounds.map(|(round, value)| (round as f64 + 1.0, *value)).collect();
        FigureLine { label: load.name.clone(), points }
    };
    Figure {
        id: format!("convergence-{nth}"),
        title: "Steady state convergence".to_owned(),
        x: axis("round", Unit::Count),
        y: axis(steady.tracks(), Unit::Count),
        lines: like.map(line).collect(),
        marks: Vec::new(),
    }
}

/// Its measurement window: the rounds, their mean, 10 % above and below it, and the line of least squares.
fn window(steady: &Steady, nth: usize) -> Option<Figure> {
    let facts = steady.steadiness.reached.or(steady.steadiness.last)?;
    let load = steady.tracked();
    let end = facts.round as usize;
    let begin = end.checked_sub(facts.rounds)?;
    let rounds = (begin + 1) as f64..=end as f64;
    let middle = (rounds.start() + rounds.end()) / 2.0;
    let through = |label: &str, at: &dyn Fn(f64) -> f64| FigureLine {
        label: label.to_owned(),
        points: [*rounds.start(), *rounds.end()].map(|round| (round, at(round))).to_vec(),
    };
    let measured = steady.values(load).get(begin..end)?.iter().enumerate();
    let mut lines = vec![FigureLine {
        label: load.name.clone(),
        points: measured.map(|(at, value)| ((begin + at + 1) as f64, *value)).collect(),
    }];
    lines.push(through("mean", &|_| facts.mean));
    lines.push(through("110 % of it", &|_| facts.mean * 1.1));
    lines.push(through("90 % of it", &|_| facts.mean * 0.9));
    lines.push(through("least squares", &|round| facts.mean + facts.slope * (round - middle)));
    Some(Figure {
        id: format!("window-{nth}"),
        title: "Steady state measurement window".to_owned(),
        x: axis("round", Unit::Count),
        y: axis(steady.tracks(), Unit::Count),
        lines,
        marks: Vec::new(),
    })
}

/// What an axis of a curve counts.
struct Over {
    label: &'static str,
    unit: Unit,
    of: fn(&StagePoint) -> f64,
}

fn time_ns(point: &StagePoint) -> f64 {
    point.at_seconds * 1e9
}

fn written(point: &StagePoint) -> f64 {
    point.written_capacities
}

fn curve(found: &Found, id: &str, title: &str, x: &Over, y: &Over) -> Figure {
    let line = |stage: &Stage| {
        let every = stage.points.len().div_ceil(MAX_POINTS).max(1);
        let points = stage.points.iter().step_by(every).map(|point| ((x.of)(point), (y.of)(point)));
        FigureLine { label: stage.name.clone(), points: points.collect() }
    };
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: axis(x.label, x.unit),
        y: axis(y.label, y.unit),
        lines: found.stages.iter().filter(|stage| !stage.points.is_empty()).map(line).collect(),
        marks: Vec::new(),
    }
}

/// The specification's plot of IOPS by size, a line for each mix.
fn by_size(steady: &Steady) -> Figure {
    let log = |label: &str| Axis { label: label.to_owned(), unit: Unit::Count, log: true };
    let line = |mix: &u32| {
        let loads = steady.loads.iter().rev().filter(|load| load.read_percent == *mix);
        let point = |load: &Load| Some((load.bytes as f64 / 1024.0, Load::measured(&load.iops)?));
        let points = loads.filter_map(point).filter(|(_, iops)| *iops > 0.0).collect();
        FigureLine { label: format!("{mix}/{}", 100 - mix), points }
    };
    Figure {
        id: "sizes".to_owned(),
        title: "IOPS by size, reads/writes".to_owned(),
        x: log("KiB"),
        y: log("IOPS"),
        lines: MIXES.iter().map(line).filter(|line| !line.points.is_empty()).collect(),
        marks: Vec::new(),
    }
}
