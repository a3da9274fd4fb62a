//! `bimetal lab storage-bench`

mod args;

pub(crate) use args::StorageBenchArgs;

use super::args::TargetArgs;
use super::busy::Busy;
use super::report::{judge, keep_with, look_ahead, outcome};
use super::stop::Stop;
use super::target::{self, Open, Opening, Wanted};
use super::tested::session;
use crate::progress::Progress;
use crate::synth;
use crate::{Outcome, say, say_record};
use anyhow::{Context as _, ensure};
use args::{Idle, Policies};
use bimetal_lab::classic::storage_bench::{
    BenchError, Figures, IDLE_AT_MOST_NS, Measured, Plan, State, extra, measure, text,
};
use bimetal_lab::record::{Run, TargetFacts};
use bimetal_lab::replay::Fidelity;
use bimetal_lab::synth::Profile;
use bimetal_lab::target::{OpenHow, TargetName};
use bimetal_sim::peers::Policy;
use bimetal_sim::scenario::{Survey, TraceSpec};
use serde::Serialize;
use std::io::BufWriter;
use std::path::Path;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    workload: &'d str,
    published: &'d str,
    assumed: &'d [String],
    scale: u64,
    idle_at_most_ms: Option<f64>,
    results: Vec<ResultDoc<'d>>,
    run: &'d Run,
}

#[derive(Serialize)]
struct ResultDoc<'d> {
    target: &'d str,
    state: State,
    #[serde(flatten)]
    figures: &'d Figures,
    fidelity: &'d Fidelity,
}

impl<'d> ResultDoc<'d> {
    fn new(done: &'d Done) -> ResultDoc<'d> {
        let Measured { figures, fidelity, .. } = &done.measured;
        ResultDoc { target: &done.label, state: done.state, figures, fidelity }
    }
}

/// One of the targets.
struct Entry {
    label: String,
    name: TargetName,
    policy: Option<Policy>,
}

/// A target in a state, and what came of it.
struct Done {
    label: String,
    state: State,
    measured: Measured,
}

impl Done {
    /// As they are printed: those of a part of the trace must not be taken for those of all.
    fn figures(&self) -> Figures {
        let mut figures = self.measured.figures.clone();
        if self.measured.run.interrupted {
            figures.name += ", ended early";
        }
        figures
    }
}

pub(crate) fn run(args: &StorageBenchArgs) -> anyhow::Result<Outcome> {
    let entries = entries(args)?;
    entries.iter().try_for_each(|entry| look_ahead(&args.output, Some(&entry.name)))?;
    let profile = synth::profile(&args.workload, args.scale)?;
    let trace = tempfile::NamedTempFile::new().context("cannot make a file for the trace")?;
    let out = BufWriter::with_capacity(1 << 20, trace.as_file().try_clone()?);
    synth::make(&profile, args.seed, out, args.output.json)?;
    let survey =
        Survey::read(&TraceSpec::new(vec![trace.path().to_string_lossy().into_owned()]), Path::new(""))?;
    let (stop, busy) = (Stop::new(), Busy::new());
    let done = Bench { args, survey: &survey, stop: &stop }.all(&entries)?;
    let mut run = one_run(&profile, args, &done)?;
    run.cpu = Some(busy.cpu());
    let steady = judge(&args.output, &mut run);
    let figures: Vec<Figures> = done.iter().map(Done::figures).collect();
    match args.output.json {
        true => say_record(&Document {
            workload: &profile.name,
            published: &profile.published,
            assumed: &profile.assumed,
            scale: args.scale,
            idle_at_most_ms: (args.idle == Idle::Capped).then_some(IDLE_AT_MOST_NS as f64 / 1e6),
            results: done.iter().map(ResultDoc::new).collect(),
            run: &run,
        })?,
        false => {
            say(&run.title);
            say(text(&figures).trim_end());
            run.notes.iter().chain(&steady).for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep_with(&args.output, &run, &extra(&run.title, &figures))?;
    Ok(outcome(&[run]))
}

/// The targets, and those that are volumes of scenarios under each policy.
fn entries(args: &StorageBenchArgs) -> anyhow::Result<Vec<Entry>> {
    let named = |policies: &Policies| match policies {
        Policies::All => Policy::ALL.to_vec(),
        Policies::One(policy) => vec![*policy],
    };
    let policies: Vec<Policy> = args.policies.iter().flat_map(named).collect();
    let mut entries: Vec<Entry> = Vec::new();
    for name in std::iter::once(&args.target).chain(&args.against) {
        match name {
            TargetName::Scenario(file) if !policies.is_empty() => {
                entries.extend(policies.iter().map(|&policy| {
                    let stem = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy();
                    Entry {
                        label: format!("{stem}, {}", policy.name()),
                        name: name.clone(),
                        policy: Some(policy),
                    }
                }))
            }
            _ => entries.push(Entry { label: name.to_string(), name: name.clone(), policy: None }),
        }
    }
    for (nth, entry) in entries.iter().enumerate() {
        let twice = entries[..nth].iter().any(|before| before.label == entry.label);
        ensure!(!twice, "{} is named twice; name it once", entry.label);
    }
    ensure!(
        policies.is_empty() || entries.iter().any(|entry| entry.policy.is_some()),
        "--policies is of the volumes of scenarios, and no target is scenario:FILE"
    );
    Ok(entries)
}

/// What is measured, and with what.
struct Bench<'a> {
    args: &'a StorageBenchArgs,
    survey: &'a Survey,
    stop: &'a Stop,
}

impl Bench<'_> {
    /// Measures one after the other; when it is ended, what was done by then.
    fn all(&self, entries: &[Entry]) -> anyhow::Result<Vec<Done>> {
        let mut all: Vec<Done> = Vec::new();
        for entry in entries {
            for (nth, state) in self.args.state.iter().map(|state| state.state()).enumerate() {
                // What the first state left there is ours.
                match self.one(entry, state, nth > 0) {
                    Ok(measured) => {
                        let over = measured.run.interrupted;
                        all.push(Done { label: entry.label.clone(), state, measured });
                        if over {
                            return Ok(all);
                        }
                    }
                    Err(error) if !all.is_empty() && is_stop(&error) => return Ok(all),
                    Err(error) => return Err(error).with_context(|| format!("{}, {state}", entry.label)),
                }
            }
        }
        Ok(all)
    }

    fn one(&self, entry: &Entry, state: State, ours: bool) -> anyhow::Result<Measured> {
        if let (TargetName::Scenario(file), Some(policy)) = (&entry.name, entry.policy) {
            let target = target::simulated(file, Some(policy))?;
            let (kind, size_bytes) = (TargetFacts::SIMULATED.to_owned(), target.size_bytes());
            let facts = vec![TargetFacts { kind, size_bytes, ..TargetFacts::default() }];
            self.stop.listen()?;
            return self.on(entry, state, Open { target: Box::new(target), facts, virtual_time: true });
        }
        let how = OpenHow { direct: !self.args.buffered, write: true };
        let wanted = Wanted { name: entry.name.clone(), how, lay_out_bytes: None, read: false };
        let TargetArgs { connections, destroy_data } = self.args.opening;
        let (destroy, quiet) = (destroy_data || ours, self.args.output.json);
        let opening = Opening { connections, destroy, quiet, seed: self.args.seed, stop: self.stop };
        target::with(&[wanted], opening, |open| {
            self.stop.listen()?;
            self.on(entry, state, open)
        })
    }

    fn on(&self, entry: &Entry, state: State, mut open: Open<'_>) -> anyhow::Result<Measured> {
        let title = format!("{}, {state}", entry.label);
        let facts = open.facts[0].clone();
        let size_bytes = facts.size_bytes;
        let session = session(title.clone(), &entry.label, facts, open.virtual_time, self.args.seed);
        let idle_at_most_ns = (self.args.idle == Idle::Capped).then_some(IDLE_AT_MOST_NS);
        let plan = Plan { state, idle_at_most_ns };
        let mut line = Progress::new(title, self.args.output.json);
        let mut watch = |what: &str, share: f64| {
            line.at(&format!("{what} {:.0} %", share * 100.0));
            !self.stop.is_asked_for()
        };
        Ok(measure(&mut open.target, session, self.survey, plan, size_bytes, &mut watch)?)
    }
}

fn is_stop(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(BenchError::Stopped))
}

/// One record of all.
fn one_run(profile: &Profile, args: &StorageBenchArgs, done: &[Done]) -> anyhow::Result<Run> {
    let mut runs = done.iter().map(|done| done.measured.run.clone());
    let mut all = runs.next().context("nothing was measured")?;
    let virtual_times = done.iter().filter(|done| done.measured.run.virtual_time).count();
    for run in runs {
        all.jobs.extend(run.jobs);
        all.notes.extend(run.notes);
        all.environment.targets.extend(run.environment.targets);
        all.interrupted |= run.interrupted;
        all.virtual_time &= run.virtual_time;
    }
    let part = if args.scale > 1 { format!(", one in {} operations", args.scale) } else { String::new() };
    all.title = format!("{}{part}", profile.name);
    if virtual_times > 0 && !all.virtual_time {
        all.notes.push("some of the targets are simulated, in virtual time; others are real".to_owned());
    }
    all.notes.push(format!("a clone of what was published: {}", profile.published));
    all.notes.extend(profile.assumed.iter().map(|line| format!("assumed: {line}")));
    Ok(all)
}
