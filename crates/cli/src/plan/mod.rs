//! `bimetal plan`

pub(crate) mod args;
mod plot;
mod served;

use crate::progress::Progress;
use crate::threads::threads;
use crate::trace::Spooled;
use crate::{Outcome, complain, say, say_json, size, volume};
use anyhow::{Context as _, ensure};
use args::PlanArgs;
use bimetal_sim::plan::{Calibration, PlanDoc, PlanRow, PlanSpec, plan};
use tempfile::TempPath;

/// What a served volume was asked for in less than this is no day.
const SHORT_SECONDS: f64 = 6.0 * 3600.0;

/// Where what was measured is so many times what was planned, or as small a part of it, other devices were modelled.
const UNLIKE: f64 = 5.0;

/// The fast tier that may be asked about: what is run has a quarter and four times of it.
const FAST_BYTES: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 44;

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<Outcome> {
    if let Some(fast) = args.fast {
        ensure!(
            FAST_BYTES.contains(&fast),
            "a fast tier of {} cannot be planned with; ask about one from {} to {}",
            size::show(fast),
            size::show(*FAST_BYTES.start()),
            size::show(*FAST_BYTES.end())
        );
    }
    if let Some(file) = &args.plot {
        volume::spare(file)?;
    }
    let source = Source::new(args)?;
    let spec = PlanSpec {
        fast_models: args.fast_model.clone(),
        slow_models: args.slow_model.clone(),
        share: args.share,
        ..source.spec
    };
    let mut progress = Progress::new("planning".to_owned(), args.json);
    let found = plan(&spec, threads(args.threads)?, &mut |what| progress.at(what));
    drop(progress);
    let doc = found.with_context(|| spec.source.clone())?;
    if let Some(file) = &args.plot {
        std::fs::write(file, plot::svg(&doc)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    match args.json {
        true => say_json(&doc)?,
        false => describe(&doc, spec.sampled.is_some()),
    }
    if doc.malformed > 0 {
        return Ok(Outcome::Problem(format!("{} lines of {} are no records", doc.malformed, doc.source)));
    }
    Ok(Outcome::Good)
}

/// What is planned with, and what it is in, which is there for as long as this is.
struct Source {
    spec: PlanSpec,
    _spooled: Option<Spooled>,
    _tape: Option<TempPath>,
}

impl Source {
    fn new(args: &PlanArgs) -> anyhow::Result<Source> {
        if let Some(volume) = served::volume(&args.files)? {
            ensure!(
                args.share.is_none(),
                "what {} was asked for is noted as a sample already; plan without --share",
                volume.file.display()
            );
            let (spec, tape) = served::spec(&volume, args.fast)?;
            return Ok(Source { spec, _spooled: None, _tape: Some(tape) });
        }
        let spooled = Spooled::new(&args.files)?;
        let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
        let spec = PlanSpec {
            source: names.join(", "),
            files: spooled.paths.clone(),
            fast_bytes: args.fast,
            fast_models: Vec::new(),
            slow_models: Vec::new(),
            share: None,
            sampled: None,
            measured: None,
        };
        Ok(Source { spec, _spooled: Some(spooled), _tape: None })
    }
}

fn describe(doc: &PlanDoc, is_served: bool) {
    say(&doc.sentence);
    say("");
    let how_long =
        doc.seconds.map_or("no times".to_owned(), |seconds| format!("{:.1} hours", seconds / 3600.0));
    let taken = match doc.sampled_share {
        share if share >= 1.0 => "all of it was run".to_owned(),
        share => format!("{:.1} % of that was run, a sample", share * 100.0),
    };
    say(&format!(
        "{}: {} requests, {how_long}, {} touched; {taken}",
        doc.source,
        doc.requests,
        size::show(doc.touched_bytes)
    ));
    say(&format!(
        "{:>10} {:>20} {:>24} {:>6} {:>6} {:>11} {:>11} {:>10} {:>10} {:>7} {:>8}",
        "fast", "on", "above", "hits", "LRU", "mean", "99 %", "worn/day", "worn/year", "lasts", "woken/d"
    ));
    doc.rows.iter().for_each(|row| say(&line(row)));
    if doc.rows.iter().any(|row| !row.keeps_up) {
        say("* the slow device does not keep up: requests wait for those before them");
    }
    if let Some(measured) = &doc.measured {
        say_calibration(measured);
    }
    if is_served && doc.seconds.is_some_and(|seconds| seconds < SHORT_SECONDS) {
        let minutes = doc.seconds.unwrap_or(0.0) / 60.0;
        let hot = if doc.calibrated { "; what has become hot may still wait for the disk" } else { "" };
        complain(&format!(
            "bimetal: only the last {minutes:.0} minutes are known, and days are told as if they were like these{hot}"
        ));
    }
    if doc.sampled_share < 1.0 {
        let cure = if is_served {
            "`bimetal trace record` keeps all of it"
        } else {
            "--share 1 runs the whole trace"
        };
        let which = if doc.calibrated { "99 % of responses are" } else { "responses are" };
        complain(&format!(
            "bimetal: {which} those of a sample, from a third of what all requests would take to three times that; {cure}"
        ));
    }
}

/// Whether means are what was measured, or why they are not.
fn say_calibration(measured: &Calibration) {
    let Calibration { answered, mean_us, planned_mean_us, factor, why_not } = measured;
    if let Some(why) = why_not {
        return say(&format!("means are not scaled to what was measured: {why}"));
    }
    let (Some(factor), Some(planned)) = (factor, planned_mean_us) else { return };
    say(&format!(
        "means are scaled to what was measured: {answered} answers took {} on average, and {} as planned; 99 % are as planned",
        time(*mean_us),
        time(*planned)
    ));
    if !(1.0 / UNLIKE..UNLIKE).contains(factor) {
        complain(
            "bimetal: the volume's devices are not like those that are modelled; name others (--fast-model, --slow-model)",
        );
    }
}

fn line(row: &PlanRow) -> String {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let bytes = |bytes: f64| size::show((bytes as u64) >> 20 << 20);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "{:>10} {:>20} {:>24} {:>6} {:>6} {:>11} {:>11} {:>10} {:>10} {:>7} {:>8}{}",
        size::show(row.fast_bytes),
        row.fast_model,
        row.slow_model,
        percent(row.fast_share),
        or_none(row.lru_share.map(percent)),
        time(row.mean_us),
        time(row.p99_us),
        or_none(row.wear_bytes_per_day.map(bytes)),
        or_none(row.wear_bytes_per_day.map(|wear| bytes(wear * 365.25))),
        or_none(row.lasts_years.map(|years| format!("{years:.1} y"))),
        or_none(row.wakeups_per_day.map(|wakeups| format!("{wakeups:.0}"))),
        if row.keeps_up { "" } else { " *" }
    )
}

/// A time as people say it.
fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.0} us"),
    }
}
