//! What the page's script draws, bounded in size however large the runs are.

use super::Named;
use super::extra::{Extra, Figure, Origin};
use super::page::{MAX_HEAT_MAPS, MAX_PLOTTED_JOBS};
use super::series::{CLASSES, Cells, Line, Slots, cells, digits, each, moving};
use super::summary::{QUANTILES, kinds};
use super::units::{bytes, name, time};
use crate::record::{Interval, IntervalSide, JobRun, Latency, Side};
use crate::stats::{quantile, quantiles};
use serde::Serialize;
use std::collections::BTreeMap;

/// Parts of the time for all lines of a plot together, each of two points.
const PARTS: usize = 8_000;
/// And of a line.
const LINE_PARTS: (usize, usize) = (150, 600);
/// Columns of a heat map.
const COLUMNS: usize = 300;
/// Points of the plot of latency against rate.
const MAX_LOADS: usize = 600;
/// Points of the plot of speed by place.
const MAX_FILE_POINTS: usize = 1200;
/// Points of percentiles by factor of ten.
const BY_NINE: u32 = 20;

/// A window of a moving mean; the first is an interval.
#[derive(Serialize)]
struct Window {
    label: String,
    /// The default.
    chosen: bool,
}

/// Reads or writes of a job of a run: what a line is drawn for.
#[derive(Serialize)]
struct Series {
    label: String,
    run: usize,
    /// Lines of one origin share no colour with those of another.
    origin: Origin,
    /// Which of its origin's lines it is.
    hue: usize,
}

#[derive(Serialize)]
struct Load {
    label: String,
    run: usize,
    kind: &'static str,
    origin: Origin,
    depth: u32,
    iops: f64,
    /// Mean, and the quantiles of the table.
    response: [Option<f64>; 4],
}

/// What a map's colours say: from one I/O in a cell to the most.
#[derive(Serialize)]
struct Scale {
    most: u64,
    /// The numbers that are written beside the colours, from 1 to the most.
    ticks: Vec<u64>,
}

/// Of reads and writes together, of reads, of writes.
#[derive(Serialize)]
struct Scales {
    both: Scale,
    read: Scale,
    write: Scale,
    /// What is counted.
    unit: String,
}

#[derive(Serialize)]
struct HeatMap {
    label: String,
    read: Cells,
    write: Cells,
    scales: Scales,
}

#[derive(Serialize)]
struct Places {
    label: String,
    span: (u64, u64),
    read: Cells,
    write: Cells,
    scales: Scales,
}

#[derive(Serialize)]
struct Depths {
    label: String,
    run: usize,
    origin: Origin,
    hue: usize,
    /// A depth, and the share of the time.
    shares: Vec<(u32, f64)>,
}

/// All that is drawn.
#[derive(Serialize)]
pub(super) struct Data<'d> {
    /// When the last job ended, seconds.
    end: f64,
    runs: Vec<String>,
    series: Vec<Series>,
    windows: Vec<Window>,
    /// Bytes per second, by window.
    bandwidth: Vec<Vec<Line>>,
    /// I/Os per second, by window.
    iops: Vec<Vec<Line>>,
    /// Share of the bytes that the fast tier served, by window; its series count in [`Data::jobs`].
    fast: Vec<Vec<Line>>,
    /// The jobs that are drawn.
    jobs: Vec<Series>,
    /// The longest response of each interval.
    longest: Vec<Line>,
    /// Of jobs that go through files or equal parts of their target, the speed of each: 10^9 bytes from the beginning of
    /// the target, and MB/s; its series count in [`Data::jobs`].
    files: Vec<Line>,
    heat: Vec<HeatMap>,
    places: Vec<Places>,
    /// Nines, and nanoseconds: of the response, the service, the time to hand over, and the service by tier.
    percentiles: [Vec<Line>; 4],
    /// The series of the last of these.
    tiers: Vec<Series>,
    loads: Vec<Load>,
    depths: Vec<Depths>,
    /// The heading of a test's own plots, where what they show comes from, and these.
    own: &'d str,
    own_origin: Origin,
    figures: &'d [Figure],
}

/// A job that is drawn.
struct Drawn<'a> {
    run: usize,
    label: String,
    origin: Origin,
    job: &'a JobRun,
}

/// Numbers the lines of each origin.
#[derive(Default)]
struct Hues([usize; Origin::ALL.len()]);

impl Hues {
    fn next(&mut self, origin: Origin) -> usize {
        let hue = &mut self.0[origin as usize];
        *hue += 1;
        *hue - 1
    }
}

/// The jobs that are drawn: of each run the first, then of each the second.
fn drawn(runs: &[Named]) -> Vec<Drawn<'_>> {
    let most = runs.iter().map(|named| named.run.jobs.len()).max().unwrap_or(0).min(MAX_PLOTTED_JOBS);
    let mut out: Vec<Drawn<'_>> = (0..most)
        .flat_map(|at| runs.iter().enumerate().map(move |(run, named)| (run, named, at)))
        .filter_map(|(run, named, at)| {
            let job = named.run.jobs.get(at)?;
            let label = if runs.len() > 1 {
                format!("{}: {}", name(&named.name), name(&job.name))
            } else {
                name(&job.name)
            };
            Some(Drawn { run, label, origin: Origin::of(&named.run, job), job })
        })
        .take(MAX_PLOTTED_JOBS)
        .collect();
    // Jobs of one name are told apart by their number.
    for at in 1..out.len() {
        let (before, after) = out.split_at_mut(at);
        let twin = |other: &&Drawn<'_>| other.run == after[0].run && other.job.name == after[0].job.name;
        let twins = before.iter().filter(twin).count();
        if twins > 0 {
            after[0].label = format!("{} ({})", after[0].label, twins + 1);
        }
    }
    // Where both are on a page, a model's figures are called that wherever they stand.
    if out.windows(2).any(|two| two[0].origin != two[1].origin) {
        let modelled = out.iter_mut().filter(|drawn| drawn.origin == Origin::Modelled);
        modelled.for_each(|drawn| drawn.label += " [modelled]");
    }
    out
}

type SideOf = fn(&Interval) -> &IntervalSide;
const READ: SideOf = |interval| &interval.read;
const WRITE: SideOf = |interval| &interval.write;

/// A line of which the series is set afterwards.
fn lines<'a, T>(items: impl Iterator<Item = (usize, &'a T)>, line: impl Fn(&T) -> Line) -> Vec<Line>
where
    T: 'a,
{
    items.map(|(series, item)| Line { series, ..line(item) }).filter(|line| !line.x.is_empty()).collect()
}

/// The job's side that a series stands for.
struct Source<'a> {
    job: &'a JobRun,
    side: &'a Side,
    of: Option<SideOf>,
}

/// What there is to draw of the runs.
pub(super) fn data<'d>(runs: &[Named], extra: &'d Extra) -> Data<'d> {
    let drawn = drawn(runs);
    let mut series = Vec::new();
    let mut sources = Vec::new();
    let mut hues = Hues::default();
    for Drawn { run, label, origin, job } in &drawn {
        for (kind, side) in kinds(job) {
            let label = format!("{label} {kind}");
            series.push(Series { label, run: *run, origin: *origin, hue: hues.next(*origin) });
            let of = match kind {
                "read" => Some(READ),
                "write" => Some(WRITE),
                _ => None,
            };
            sources.push(Source { job, side, of });
        }
    }
    let tiers = tiers(&drawn);
    let jobs: Vec<&JobRun> = drawn.iter().map(|drawn| drawn.job).collect();
    let windows = windows(&jobs);
    let parts = (PARTS / sources.len().max(1)).clamp(LINE_PARTS.0, LINE_PARTS.1);
    let rates = |figure: fn(&IntervalSide) -> u64| -> Vec<Vec<Line>> {
        let rate = |sum: [u64; 2], seconds: f64| Some(sum[0] as f64 / seconds);
        windows
            .iter()
            .map(|(ns, _)| {
                lines(sources.iter().enumerate(), |source| match source.of {
                    Some(of) => {
                        moving(source.job, window(source.job, *ns), parts, |i| [figure(of(i)), 0], rate)
                    }
                    None => Line::default(),
                })
            })
            .collect()
    };
    Data {
        end: jobs.iter().filter_map(|job| Slots::of(job)).map(|slots| slots.end_s()).fold(0.0, f64::max),
        runs: runs.iter().map(|named| name(&named.name)).collect(),
        bandwidth: rates(|side| side.bytes),
        iops: rates(|side| side.ios),
        fast: windows.iter().map(|(ns, _)| fast(&jobs, *ns, parts)).collect(),
        longest: longest(&sources, parts),
        files: lines(jobs.iter().enumerate(), |job| files(job)),
        heat: heat(&drawn),
        places: places(&drawn),
        percentiles: percentiles(&sources, &tiers),
        tiers: tiers.into_iter().map(|(series, _)| series).collect(),
        loads: loads(runs),
        depths: depths(&drawn),
        own: &extra.title,
        own_origin: own_origin(runs),
        figures: &extra.figures,
        jobs: job_series(&drawn),
        windows: windows.into_iter().map(|(_, window)| window).collect(),
        series,
    }
}

/// A test's own plots are of its run, or of its first job where targets differ.
fn own_origin(runs: &[Named]) -> Origin {
    let first = runs.first().map(|named| &named.run);
    match first.map(|run| (run, run.jobs.first())) {
        Some((run, Some(job))) => Origin::of(run, job),
        Some((run, None)) if run.virtual_time => Origin::Modelled,
        _ => Origin::Measured,
    }
}

fn job_series(drawn: &[Drawn<'_>]) -> Vec<Series> {
    let mut hues = Hues::default();
    let series = drawn.iter().map(|d| {
        let hue = hues.next(d.origin);
        Series { label: d.label.clone(), run: d.run, origin: d.origin, hue }
    });
    series.collect()
}

fn window(job: &JobRun, ns: u64) -> u64 {
    Slots::of(job).map_or(1, |slots| slots.in_window(ns))
}

/// Each interval, and those of a second, ten and a minute that some job has at least two of, each of several intervals.
/// The default is the first of which a plot has no more than five hundred.
fn windows(jobs: &[&JobRun]) -> Vec<(u64, Window)> {
    let recorded: Vec<&&JobRun> = jobs.iter().filter(|job| !job.intervals.is_empty()).collect();
    let Some(shortest) = recorded.iter().map(|job| job.interval_ns).min() else { return Vec::new() };
    let longest = recorded.iter().map(|job| job.elapsed_ns).max().unwrap_or(0);
    let interval =
        Window { label: format!("each interval ({})", super::units::time(shortest as f64)), chosen: false };
    let mut out = vec![(0, interval)];
    for (seconds, label) in [(1, "1 s"), (10, "10 s"), (60, "1 min")] {
        let ns = seconds * 1_000_000_000;
        if shortest < ns && ns <= longest / 2 {
            out.push((ns, Window { label: label.into(), chosen: false }));
        }
    }
    let fine = out.iter().position(|(ns, _)| longest / (*ns).max(shortest).max(1) <= 500);
    let last = out.len() - 1;
    out[fine.unwrap_or(last)].1.chosen = true;
    out
}

fn fast(jobs: &[&JobRun], ns: u64, parts: usize) -> Vec<Line> {
    let share = |sum: [u64; 2], _| (sum[1] > 0).then(|| sum[0] as f64 / sum[1] as f64 * 100.0);
    let tiers = |interval: &Interval| interval.tiers.map_or([0, 0], |(fast, all)| [fast, all]);
    lines(jobs.iter().enumerate(), |job| moving(job, window(job, ns), parts, tiers, share))
}

fn longest(sources: &[Source<'_>], parts: usize) -> Vec<Line> {
    lines(sources.iter().enumerate(), |source| match source.of {
        Some(of) => each(source.job, parts, |interval| {
            let side = of(interval);
            (side.ios > 0 && side.max_ns > 0).then_some(side.max_ns as f64)
        }),
        None => Line::default(),
    })
}

/// The speed by place; of more files than can be shown, each point is the mean of some.
fn files(job: &JobRun) -> Line {
    let mut line = Line::default();
    let mut done: u64 = job.span.0;
    for some in job.files_ns.chunks(job.files_ns.len().div_ceil(MAX_FILE_POINTS).max(1)) {
        let bytes = job.file_bytes.saturating_mul(some.len() as u64);
        done = done.saturating_add(bytes);
        let ns = some.iter().sum::<u64>().max(1);
        line.x.push(digits(done as f64 / 1e9, 7));
        line.y.push(digits(bytes as f64 * 1e3 / ns as f64, 5));
    }
    line
}

fn heat(drawn: &[Drawn<'_>]) -> Vec<HeatMap> {
    let side = |job: &JobRun, of: SideOf| cells(job, COLUMNS, of, |side| &side.heat);
    let map = |d: &Drawn<'_>| {
        let (read, write) = (side(d.job, READ), side(d.job, WRITE));
        let scales = scales(&read, &write, "half a power of two of the response");
        HeatMap { label: d.label.clone(), read, write, scales }
    };
    drawn
        .iter()
        .map(map)
        .filter(|map| !(map.read.cells.is_empty() && map.write.cells.is_empty()))
        .take(MAX_HEAT_MAPS)
        .collect()
}

/// The scales of a map whose cells are so high.
fn scales(read: &Cells, write: &Cells, high: &str) -> Scales {
    let scale = |sides: &[&Cells]| {
        let mut cells: BTreeMap<[u64; 2], u64> = BTreeMap::new();
        for cell in sides.iter().flat_map(|side| side.cells.chunks_exact(3)) {
            let sum = cells.entry([cell[0], cell[1]]).or_default();
            *sum = sum.saturating_add(cell[2]);
        }
        let most = cells.into_values().max().unwrap_or(0).max(1);
        let tens = (0..20).map(|power| 10u64.saturating_pow(power)).take_while(|ten| *ten <= most / 2);
        let mut ticks: Vec<u64> = tens.chain([most]).collect();
        ticks.dedup();
        if ticks[0] != 1 {
            ticks.insert(0, 1);
        }
        Scale { most, ticks }
    };
    let column = if read.cells.is_empty() { write.column } else { read.column };
    Scales {
        both: scale(&[read, write]),
        read: scale(&[read]),
        write: scale(&[write]),
        unit: format!("I/Os in a cell of {} by {high}", time(column * 1e9)),
    }
}

fn places(drawn: &[Drawn<'_>]) -> Vec<Places> {
    let side = |job: &JobRun, of: SideOf| cells(job, COLUMNS, of, |side| &side.places);
    drawn
        .iter()
        .map(|d| {
            let (read, write) = (side(d.job, READ), side(d.job, WRITE));
            let part = d.job.span.1.saturating_sub(d.job.span.0).div_ceil(CLASSES as u64);
            let scales = scales(&read, &write, &format!("{} of the target", bytes(part)));
            Places { label: d.label.clone(), span: d.job.span, read, write, scales }
        })
        .filter(|map| !(map.read.cells.is_empty() && map.write.cells.is_empty()))
        .take(MAX_HEAT_MAPS)
        .collect()
}

/// Reads and writes of the jobs by the tiers that had a part in them, where their targets tell.
fn tiers<'a>(drawn: &[Drawn<'a>]) -> Vec<(Series, &'a Latency)> {
    let mut hues = Hues::default();
    let of = |d: &Drawn<'a>| {
        let (label, run, origin) = (d.label.clone(), d.run, d.origin);
        let each = kinds(d.job).flat_map(|(kind, side)| {
            side.tiers.iter().flat_map(|tiers| tiers.each()).map(move |tier| (kind, tier))
        });
        each.filter(|(_, (_, tier))| tier.ios > 0)
            .map(|(kind, (by, tier))| {
                let label = format!("{label} {kind}, {by}");
                (Series { label, run, origin, hue: hues.next(origin) }, &tier.service)
            })
            .collect::<Vec<_>>()
    };
    drawn.iter().flat_map(of).collect()
}

fn percentiles(sources: &[Source<'_>], tiers: &[(Series, &Latency)]) -> [Vec<Line>; 4] {
    let of = |latency: fn(&Side) -> &Latency| lines(sources.iter().enumerate(), |s| nines(latency(s.side)));
    let by_tier = lines(tiers.iter().enumerate(), |(_, latency)| nines(latency));
    [of(|side| &side.response), of(|side| &side.service), of(|side| &side.submit), by_tier]
}

/// The times of 0, 90 %, 99 %, ... and between; at as many nines as the count has digits stands the longest.
fn nines(latency: &Latency) -> Line {
    if latency.bins.is_empty() || latency.max_ns == 0 {
        return Line::default();
    }
    let end = (latency.count as f64).log10();
    let x: Vec<f64> =
        (0..).map(|step| f64::from(step) / f64::from(BY_NINE)).take_while(|x| *x < end).collect();
    let qs: Vec<f64> = x.iter().map(|x| 1.0 - 10f64.powf(-x)).collect();
    let mut line = Line::default();
    for (x, ns) in x.into_iter().zip(quantiles(latency, &qs)) {
        line.x.push(x);
        line.y.push(digits(ns.unwrap_or(0).max(1) as f64, 5));
    }
    line.x.push(digits(end, 6));
    line.y.push(digits(latency.max_ns as f64, 5));
    line
}

fn loads(runs: &[Named]) -> Vec<Load> {
    let each =
        runs.iter().enumerate().flat_map(|(run, named)| named.run.jobs.iter().map(move |job| (run, job)));
    let sides = each.flat_map(|(run, job)| kinds(job).map(move |(kind, side)| (run, job, kind, side)));
    sides
        .filter(|(_, job, _, side)| job.elapsed_ns > 0 && side.ios > 0 && side.response.count > 0)
        .map(|(run, job, kind, side)| {
            let [half, p99, p999] = QUANTILES.map(|q| quantile(&side.response, q).map(|ns| ns as f64));
            Load {
                label: name(&job.name),
                run,
                kind,
                origin: Origin::of(&runs[run].run, job),
                depth: job.depth,
                iops: digits(side.ios as f64 * 1e9 / job.elapsed_ns as f64, 6),
                response: [Some(digits(side.response.mean_ns, 6)), half, p99, p999],
            }
        })
        .take(MAX_LOADS)
        .collect()
}

fn depths(drawn: &[Drawn<'_>]) -> Vec<Depths> {
    let shares = |job: &JobRun| {
        let all = job.depths_ns.iter().fold(0u64, |sum, pair| sum.saturating_add(pair.1));
        let share = |ns| digits(ns as f64 / all.max(1) as f64 * 100.0, 5);
        job.depths_ns.iter().filter(|pair| pair.1 > 0).map(|pair| (pair.0, share(pair.1))).collect()
    };
    drawn
        .iter()
        .zip(job_series(drawn))
        .map(|(d, Series { label, run, origin, hue })| Depths {
            label,
            run,
            origin,
            hue,
            shares: shares(d.job),
        })
        .filter(|depths| !depths.shares.is_empty())
        .collect()
}
