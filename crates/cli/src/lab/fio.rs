//! `bimetal lab fio`

use super::args::{FioArgs, TargetArgs};
use super::busy::Busy;
use super::precondition::{WRITE_BYTES, fill};
use super::report::{judge, keep, look_ahead, outcome};
use super::stop::Stop;
use super::target::{self, Opening, Wanted};
use super::turns::{Found, in_turns, refuse_of_one};
use crate::create::random_seed;
use crate::lab::PROGRAM;
use crate::progress::Progress;
use crate::{Outcome, complain, say};
use anyhow::Context as _;
use bimetal_lab::environment::environment;
use bimetal_lab::fio::{self, JobFile, Plan};
use bimetal_lab::record::Run;
use bimetal_lab::report::findings_text;
use bimetal_lab::session::{self, Session};
use bimetal_lab::stats::{Bootstrap, findings};
use bimetal_lab::target::{OpenHow, TargetName};
use std::time::Instant;

pub(crate) fn run(args: &FioArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, args.target.as_ref())?;
    let file = fio::open(&args.file)?;
    let seed = args.seed.map_or_else(random_seed, Ok)?;
    let stop = Stop::new();
    if let (Some(target), Some(against)) = (&args.target, &args.against) {
        return compare(args, &file, seed, [against, target], &stop);
    }
    let mut run = run_once(args, &file, seed, args.target.as_ref(), &stop, "")?;
    let steady = judge(&args.output, &mut run);
    match args.output.json {
        true => say(&fio::json(&run, true)),
        false => {
            say(fio::text(&run).trim_end());
            steady.iter().for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep(&args.output, &run)?;
    Ok(outcome(&[run]))
}

/// Runs the job file on both targets in turn: the second by the first.
fn compare(
    args: &FioArgs,
    file: &JobFile,
    seed: u64,
    targets: [&TargetName; 2],
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    refuse_of_one(&args.output)?;
    look_ahead(&args.output, Some(targets[0]))?;
    let turns = in_turns(args.rounds, |which, round, what| {
        let seed = seed.wrapping_add(u64::from(round));
        run_once(args, file, seed, Some(targets[which]), stop, &format!("{what}, "))
    })?;
    let findings = findings(&turns.ran[0], &turns.ran[1], &Bootstrap::default());
    let names = targets.map(ToString::to_string);
    let names = [names[0].as_str(), names[1].as_str()];
    let found = Found { names, findings: &findings, together: None, sentence: None };
    match args.output.json {
        true => found.say_json(&turns)?,
        false => {
            say(findings_text(&findings, names[0], names[1]).trim_end());
            turns.cut.iter().for_each(|line| say(line));
        }
    }
    found.keep(&args.output, &turns)?;
    Ok(outcome(&turns.ran.concat()))
}

fn run_once(
    args: &FioArgs,
    file: &JobFile,
    seed: u64,
    redirect: Option<&TargetName>,
    stop: &Stop,
    what: &str,
) -> anyhow::Result<Run> {
    let plan = fio::plan(file, redirect)?;
    let quiet = args.output.json;
    if what.is_empty() && !quiet {
        plan.notes.iter().for_each(|note| complain(&format!("bimetal: note: {note}")));
    }
    let wanted: Vec<Wanted> = plan
        .targets
        .iter()
        .map(|needed| Wanted {
            name: needed.name.clone(),
            how: OpenHow { direct: needed.direct, write: needed.write },
            lay_out_bytes: needed.at_least_bytes,
            read: needed.read,
        })
        .collect();
    let TargetArgs { connections, destroy_data: destroy } = args.opening;
    let opening = Opening { connections, destroy, quiet, seed, stop };
    let name = args.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let run = target::with(&wanted, opening, |mut open| {
        precondition(&plan, &mut open, args.precondition, stop, quiet)?;
        on(&plan, open, seed, &name, stop, &format!("{what}{name}"), quiet)
    })?;
    for needed in plan.targets.iter().filter(|needed| needed.unlink) {
        if let TargetName::Path(path) = &needed.name {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(run)
}

/// Writes all that will be written to, in order, so many times; none of it counts.
fn precondition(
    plan: &Plan<'_>,
    open: &mut target::Open<'_>,
    times: u32,
    stop: &Stop,
    quiet: bool,
) -> anyhow::Result<()> {
    for (place, needed) in plan.targets.iter().enumerate().filter(|(_, needed)| needed.write && times > 0) {
        let size_bytes = open.facts[place].size_bytes;
        let bytes = (size_bytes - size_bytes % WRITE_BYTES).saturating_mul(u64::from(times));
        fill(&mut open.target, &needed.name.to_string(), place as u32, size_bytes, bytes, stop, quiet)?;
    }
    Ok(())
}

/// Runs a plan on targets that are open.
fn on(
    plan: &Plan<'_>,
    mut open: target::Open<'_>,
    seed: u64,
    title: &str,
    stop: &Stop,
    what: &str,
    quiet: bool,
) -> anyhow::Result<Run> {
    let sizes: Vec<u64> = open.facts.iter().map(|facts| facts.size_bytes).collect();
    let phases = plan.phases(&sizes, seed)?;
    let places: Vec<String> = plan.targets.iter().map(|needed| needed.name.to_string()).collect();
    let shared = fio::shared_writes(&phases, &places);
    if !quiet && what == title {
        shared.iter().for_each(|warning| complain(&format!("bimetal: warning: {warning}")));
    }
    let mut environment = environment(PROGRAM);
    environment.targets.extend(places.iter().cloned().zip(open.facts.iter().cloned()));
    let session = Session {
        title: title.to_owned(),
        environment,
        places,
        seed,
        virtual_time: open.virtual_time,
        notes: plan.notes.iter().cloned().chain(shared).collect(),
    };
    stop.listen()?;
    let mut line = Progress::new(what.to_owned(), quiet);
    let began = Instant::now();
    let busy = Busy::new();
    let mut run = session::run(&mut open.target, session, &phases, &mut |now| {
        line.at(&how_far(now, began));
        !stop.is_asked_for()
    })?;
    run.cpu = Some(busy.cpu());
    Ok(run)
}

/// The share that is done, what is being done in a second, and how long it will go on.
fn how_far(now: &session::Progress<'_>, began: Instant) -> String {
    let done: u64 = now.going.done.iter().flatten().map(|side| side.0).sum();
    let bytes: u64 = now.going.done.iter().flatten().map(|side| side.1).sum();
    let seconds = (now.going.at_ns as f64 / 1e9).max(1e-9);
    let share = now.going.share;
    let mut text = String::new();
    if now.phases > 1 {
        text += &format!("phase {} of {}, ", now.phase + 1, now.phases);
    }
    text += &format!(
        "{:.0} %, {:.0} IOPS, {:.1} MB/s",
        share * 100.0,
        done as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
    let whole = (now.phase as f64 + share) / now.phases as f64;
    if whole > 0.01 {
        let left = began.elapsed().as_secs_f64() * (1.0 - whole) / whole;
        text += &format!(", about {left:.0} s left");
    }
    text
}
