//! `bimetal lab orion`

mod args;

pub(crate) use args::{OrionArgs, with_two_dashes};

use super::precondition::fill;
use super::report::{judge, keep_with, look_ahead, write};
use super::stop::Stop;
use super::target::{self, Opening};
use crate::lab::PROGRAM;
use crate::progress::Progress as Line;
use crate::{Outcome as Exit, complain, say, say_json, text_file};
use anyhow::{bail, ensure};
use bimetal_lab::classic::orion::{
    self, Head, MAX_LUN_FILE_BYTES, Measured, Outcome, Point, Progress, Simulate, Spec, stamp,
};
use bimetal_lab::environment::environment;
use bimetal_lab::session::Session;
use bimetal_lab::target::{Array, Layout, OpenHow, TargetName};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) fn run(args: &OrionArgs) -> anyhow::Result<Exit> {
    let luns = luns(args)?;
    luns.iter().try_for_each(|lun| look_ahead(&args.output, Some(lun)))?;
    let spec = args.spec(luns.len());
    let points = spec.points()?;
    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let prefix = format!("{}_{}", args.testname, stamp(began_ms));
    results_fit(args, &prefix)?;
    let stop = Stop::new();
    let quiet = args.output.json;
    let opening = Opening {
        connections: args.opening.connections,
        destroy: args.opening.destroy_data,
        quiet,
        seed: args.seed,
        stop: &stop,
    };
    let how = OpenHow { direct: !args.buffered, write: spec.writes() || args.precondition > 0.0 };
    let (mut outcome, head) =
        target::with_luns(&luns, how, opening, |open| on(args, &spec, &points, &luns, open, &stop, &prefix))?;
    let steady = judge(&args.output, &mut outcome.run);
    let files = orion::files(&head, &spec, &points, &outcome);
    let names: Vec<String> = files.iter().map(|file| format!("{prefix}_{}", file.suffix)).collect();
    match quiet {
        true => say_json(&orion::json(&head, &spec, &points, &outcome, &names))?,
        false => {
            say(orion::results(&spec, &outcome).trim_end());
            steady.iter().for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    for (file, name) in files.iter().zip(&names) {
        write(Path::new(name), args.output.force, file.text.as_bytes())?;
    }
    keep_with(&args.output, &outcome.run, &orion::figures(&spec, &outcome))?;
    Ok(super::report::outcome(&[outcome.run]))
}

/// The targets: those of the command line, or of the `.lun` file.
fn luns(args: &OrionArgs) -> anyhow::Result<Vec<TargetName>> {
    if !args.targets.is_empty() {
        for (nth, name) in args.targets.iter().enumerate() {
            let twice = args.targets[..nth].contains(name) && !matches!(name, TargetName::Model { .. });
            ensure!(!twice, "{name} is named twice; each target counts once, so name it once");
        }
        return Ok(args.targets.clone());
    }
    let file = PathBuf::from(format!("{}.lun", args.testname));
    ensure!(
        file.exists(),
        "there is no {}; write the name of a target in each of its lines, or name targets with --target",
        file.display()
    );
    let text = text_file::read(&file, MAX_LUN_FILE_BYTES)?;
    Ok(orion::parse_luns(&file.display().to_string(), &text)?)
}

/// Refuses, before the run, what could not be written after it.
fn results_fit(args: &OrionArgs, prefix: &str) -> anyhow::Result<()> {
    let first = PathBuf::from(format!("{prefix}_summary.txt"));
    ensure!(
        args.output.force || !first.exists(),
        "{} is there already; wait for the next minute, take another -testname, or replace it with --force",
        first.display()
    );
    let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("{} is not a directory; make it, or take another -testname", folder.display());
    }
    Ok(())
}

/// Runs a test on targets that are open.
fn on(
    args: &OrionArgs,
    spec: &Spec,
    points: &[Point],
    luns: &[TargetName],
    open: target::Open<'_>,
    stop: &Stop,
    prefix: &str,
) -> anyhow::Result<(Outcome, Head)> {
    let quiet = args.output.json;
    let sizes: Vec<u64> = open.facts.iter().map(|facts| facts.size_bytes).collect();
    let layout = match spec.simulate {
        Simulate::Concat => Layout::concat(&sizes, common_multiple(spec.small_bytes, spec.large_bytes)),
        Simulate::Raid0 => Layout::raid0(&sizes, spec.stripe_bytes),
    };
    let (span_bytes, virtual_time) = (layout.bytes(), open.virtual_time);
    orion::check(spec, points, span_bytes)?;
    let names: Vec<String> = luns.iter().map(TargetName::to_string).collect();
    let mut environment = environment(PROGRAM);
    environment.targets.extend(names.iter().cloned().zip(open.facts));
    let place = names.join(" + ");
    let session = Session {
        title: format!("orion {}", spec.testname),
        environment,
        places: vec![place.clone()],
        seed: args.seed,
        virtual_time,
        notes: notes(args),
    };
    if !quiet {
        session.notes.iter().for_each(|note| complain(&format!("bimetal: note: {note}")));
        say(&announcement(spec, points.len(), prefix, virtual_time));
    }
    stop.listen()?;
    let mut array = Array::new(open.target, layout);
    let filled = (span_bytes as f64 * args.precondition) as u64;
    fill(&mut array, &place, 0, span_bytes, filled, stop, quiet)?;
    let mut line = Line::new(prefix.to_owned(), quiet);
    let began = Instant::now();
    let mut watch = |now: &Progress<'_>| {
        line.at(&how_far(now, began));
        !stop.is_asked_for()
    };
    let mut told = |measured: &Measured| {
        if args.verbose {
            complain(&describe(measured));
        }
    };
    let outcome = orion::run(&mut array, spec, points, span_bytes, session, &mut watch, &mut told)?;
    let command_line = with_two_dashes(std::env::args_os())
        .iter()
        .skip_while(|word| *word != "orion")
        .skip(1)
        .map(|word| word.to_string_lossy().replacen("--", "-", 1))
        .collect::<Vec<_>>()
        .join(" ");
    let head =
        Head { program: PROGRAM.to_owned(), command_line, luns: names.into_iter().zip(sizes).collect() };
    Ok((outcome, head))
}

fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

/// Options that change nothing here.
fn notes(args: &OrionArgs) -> Vec<String> {
    let note = |option: &str| format!("-{option} changes nothing here");
    let storax = args.storax.is_some().then(|| note("storax"));
    storax.into_iter().chain(args.hugenotneeded.then(|| note("hugenotneeded"))).collect()
}

/// What Orion says before it begins, in the words of 11.1.0.7.0.
fn announcement(spec: &Spec, points: usize, prefix: &str, virtual_time: bool) -> String {
    // Orion counts the idle point, and rounds up.
    let minutes = ((points as u64 + 1) * u64::from(spec.seconds)).div_ceil(60) + 1;
    let clock = if virtual_time { " of the model's time" } else { "" };
    let knee = if spec.knee { "\nThe search for knees comes after that" } else { "" };
    format!(
        "ORION: ORacle IO Numbers -- Version {PROGRAM}\n{prefix}\nTest will take approximately {minutes} \
         minutes{clock}\nLarger caches may take longer{knee}\n"
    )
}

/// What has been done of a test, and how long it will go on.
fn how_far(now: &Progress<'_>, began: Instant) -> String {
    let Progress { nth, points, point, warming, going } = now;
    let done: u64 = going.done.iter().flatten().map(|side| side.0).sum();
    let seconds = (going.at_ns as f64 / 1e9).max(1e-9);
    let what = match (warming, nth < points) {
        (true, _) => format!("before point {}", nth + 1),
        (false, true) => format!("point {} of {points}", nth + 1),
        (false, false) => format!("step {} to the knee", nth + 1 - points),
    };
    let mut text = format!(
        "{what} (small={}, large={}), {:.0} %, {:.0} IOPS",
        point.small,
        point.large,
        going.share * 100.0,
        done as f64 / seconds
    );
    let whole = (*nth as f64 + if *warming { 0.0 } else { going.share }) / *points as f64;
    if (0.01..1.0).contains(&whole) {
        let left = began.elapsed().as_secs_f64() * (1.0 - whole) / whole;
        text += &format!(", about {left:.0} s left");
    }
    text
}

/// A point that is done, in a line.
fn describe(measured: &Measured) -> String {
    let mut text = format!("small={} large={}:", measured.point.small, measured.point.large);
    for (what, class) in [("small", &measured.small), ("large", &measured.large)] {
        if let Some(class) = class {
            let (mb, us) = (class.bytes_per_s / 1e6, class.latency_ns / 1e3);
            text += &format!(" {what} {:.0} IOPS, {mb:.1} MB/s, {us:.1} us;", class.iops);
        }
    }
    text.trim_end_matches(';').to_owned()
}
