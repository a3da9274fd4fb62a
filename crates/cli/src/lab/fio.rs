//! `bimetal lab fio`

use super::args::{FioArgs, TargetArgs};
use super::busy::Busy;
use super::disks::Disks;
use super::precondition::{WRITE_BYTES, fill};
use super::report::{judge, keep, look_ahead, look_ahead_at, outcome, write};
use super::stop::Stop;
use super::target::{self, Opening, Wanted};
use super::turns::{Found, in_turns, refuse_of_one};
use crate::create::random_seed;
use crate::lab::PROGRAM;
use crate::progress::Progress;
use crate::{Outcome, complain, say};
use anyhow::{Context as _, anyhow, ensure};
use bimetal_lab::environment::environment;
use bimetal_lab::fio::{self, CommandLine, Format, JobFile, Plan};
use bimetal_lab::record::Run;
use bimetal_lab::report::findings_text;
use bimetal_lab::session::{self, Session};
use bimetal_lab::stats::{Bootstrap, findings};
use bimetal_lab::target::{Array, OpenHow, TargetName};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs::File;
use std::time::Instant;

pub(crate) fn run(args: &FioArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, args.target.as_ref())?;
    let line =
        CommandLine::parse(&args.words).map_err(|error| anyhow!("{error}; see `bimetal lab fio --help`"))?;
    look_ahead_at(&line.output, true, args.target.as_ref())?;
    let mut file = fio::open_all(&line)?;
    if line.read_only {
        refuse_writers(&file)?;
    }
    if line.parse_only {
        return parsed(&file);
    }
    // With --against, too, all is done on one target.
    fio::read_logs(&mut file, args.target.as_ref())?;
    let formats = formats(&line, args.output.json);
    let quiet = line.output.is_none() && formats != [Format::Normal];
    let asked = &Asked { args, title: line.title(), quiet };
    let seed = args.seed.map_or_else(random_seed, Ok)?;
    let stop = Stop::new();
    if let (Some(target), Some(against)) = (&args.target, &args.against) {
        ensure!(
            line.output.is_none() && line.formats.is_empty(),
            "--output and --output-format are for one target; with --against, use --json and redirect the output"
        );
        return compare(asked, &file, seed, [against, target], &stop);
    }
    let mut run = run_once(asked, &file, seed, args.target.as_ref(), &stop, "")?;
    let steady = judge(&args.output, &mut run);
    let report: String = formats.iter().map(|format| printed(*format, &run, &steady)).collect();
    match &line.output {
        Some(path) => write(path, true, report.as_bytes())?,
        None => say(report.trim_end_matches('\n')),
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep(&args.output, &run)?;
    Ok(outcome(&[run]))
}

/// What was asked for, and how it is told.
struct Asked<'a> {
    args: &'a FioArgs,
    title: String,
    /// A program reads along.
    quiet: bool,
}

/// How the report is printed: as fio's command line says, or as ours does.
fn formats(line: &CommandLine, json: bool) -> Vec<Format> {
    match line.formats.as_slice() {
        [] if json => vec![Format::JsonPlus],
        [] => vec![Format::Normal],
        given => given.to_vec(),
    }
}

fn printed(format: Format, run: &Run, steady: &[String]) -> String {
    match format {
        Format::Terse => fio::terse(run),
        Format::Json => fio::json(run, false),
        Format::JsonPlus => fio::json(run, true),
        Format::Normal => {
            let steady = steady.iter().map(|line| format!("{line}\n"));
            fio::text(run).trim_end().to_owned() + "\n" + &steady.collect::<String>()
        }
    }
}

/// Says that all of it can be run, and what may surprise.
fn parsed(file: &JobFile) -> anyhow::Result<Outcome> {
    let plan = fio::plan(file, Some(&TargetName::Null))?;
    plan.notes.iter().for_each(|note| complain(&format!("bimetal: note: {note}")));
    let copies: u64 = file.jobs.iter().map(|job| u64::from(job.options.jobs)).sum();
    say(&format!("{} jobs, {copies} with their copies; nothing was run", file.jobs.len()));
    Ok(Outcome::Good)
}

/// Refuses jobs that write, where `--readonly` says that none does.
fn refuse_writers(file: &JobFile) -> anyhow::Result<()> {
    for job in &file.jobs {
        let does = job.options.direction.does();
        ensure!(
            !does.write && !does.trim,
            "job {}: it writes, and --readonly says that none does; leave out one of them",
            job.name
        );
    }
    Ok(())
}

/// Runs the job file on both targets in turn: the second by the first.
fn compare(
    asked: &Asked<'_>,
    file: &JobFile,
    seed: u64,
    targets: [&TargetName; 2],
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let args = asked.args;
    refuse_of_one(&args.output)?;
    look_ahead(&args.output, Some(targets[0]))?;
    let turns = in_turns(args.rounds, |which, round, what| {
        let seed = seed.wrapping_add(u64::from(round));
        run_once(asked, file, seed, Some(targets[which]), stop, &format!("{what}, "))
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
    asked: &Asked<'_>,
    file: &JobFile,
    seed: u64,
    redirect: Option<&TargetName>,
    stop: &Stop,
    what: &str,
) -> anyhow::Result<Run> {
    let plan = fio::plan(file, redirect)?;
    let (args, quiet) = (asked.args, asked.quiet);
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
    let name = asked.title.clone();
    more_files(plan.targets.len());
    let processors: BTreeSet<u16> =
        file.jobs.iter().flat_map(|job| &job.options.processors).copied().collect();
    bind(&processors)?;
    let mut run = target::with(&wanted, opening, |mut open| {
        precondition(&plan, &mut open, args.precondition, stop, quiet)?;
        pre_read(&plan)?;
        on(&plan, open, seed, &name, stop, &format!("{what}{name}"), quiet)
    })?;
    for needed in plan.targets.iter().filter(|needed| needed.unlink) {
        if let TargetName::Path(path) = &needed.name {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    let globals = file.jobs.last().map(|job| &job.globals);
    let globals = globals.into_iter().flat_map(|globals| globals.iter());
    run.global_options = globals.map(|(name, value)| (name.to_string(), value.to_string())).collect();
    Ok(run)
}

/// Lets the program have so many files open, as far as it is allowed to; where it is not, opening says so.
fn more_files(files: usize) {
    /// What else is open: rings, sockets, standard streams.
    const OTHERS: u64 = 64;
    let limit = getrlimit(Resource::Nofile);
    let wanted = files as u64 + OTHERS;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Has the program run on these processors only, if jobs name any.
fn bind(processors: &BTreeSet<u16>) -> anyhow::Result<()> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    processors.iter().for_each(|&number| set.set(usize::from(number)));
    sched_setaffinity(None, &set).with_context(|| {
        let list: Vec<String> = processors.iter().map(u16::to_string).collect();
        format!(
            "cpus_allowed: the program cannot run on processors {}; name some that there are",
            list.join(",")
        )
    })
}

/// Reads the files that the page cache is to have before the run.
fn pre_read(plan: &Plan<'_>) -> anyhow::Result<()> {
    for needed in plan.targets.iter().filter(|needed| needed.pre_read) {
        if let TargetName::Path(path) = &needed.name {
            let read = File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
            read.with_context(|| format!("cannot read {}", path.display()))?;
        }
    }
    Ok(())
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
    let targets: Vec<String> = plan.targets.iter().map(|needed| needed.name.to_string()).collect();
    let mut shared = fio::shared_writes(&phases, &plan.place_names());
    shared.extend(fio::idle_copies(&phases));
    if !quiet && what == title {
        shared.iter().for_each(|warning| complain(&format!("bimetal: warning: {warning}")));
    }
    let mut environment = environment(PROGRAM);
    environment.targets.extend(targets.into_iter().zip(open.facts.iter().cloned()));
    if let Some(spread) = plan.spread(&sizes) {
        open.target = Box::new(Array::spread(open.target, spread));
    }
    let session = Session {
        title: title.to_owned(),
        environment,
        places: plan.place_names(),
        seed,
        virtual_time: open.virtual_time,
        notes: plan.notes.iter().cloned().chain(shared).collect(),
    };
    for log in phases.iter().flatten().flat_map(|job| &job.logs) {
        let path = &log.file.path;
        log.file.open().with_context(|| format!("cannot write the log {}", path.display()))?;
    }
    stop.listen()?;
    let mut line = Progress::new(what.to_owned(), quiet);
    let began = Instant::now();
    let paths = plan.targets.iter().filter_map(|needed| match &needed.name {
        TargetName::Path(path) => Some(path.as_path()),
        _ => None,
    });
    let (busy, disks) = (Busy::new(), Disks::below(paths));
    let mut run = session::run(&mut open.target, session, &phases, &mut |now| {
        line.at(&how_far(now, began));
        !stop.is_asked_for()
    })?;
    (run.cpu, run.disks) = (Some(busy.cpu()), disks.done());
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
