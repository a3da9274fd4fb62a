//! Running a scenario: one phase after the other, on the same volume or device.

use super::figures::{devices, figures, judge, lateness, settle};
use super::files::Files;
use super::replay::Replay;
use super::report::{MAX_POINTS, Phase, Report};
use super::series::Samples;
use super::survey::Survey;
use super::target::{Counts, Target};
use super::{FilesSpec, LoadSpec, Mode, PhaseSpec, ReplaySpec, Scenario, ScenarioError, VolumeSpec, Whole};
use crate::plan::Crowd;
use bimetal_load::{Bench, Job, Looped, Paced, Sample, Source, Stream, Until};
use bimetal_models::{Kind, Model as _};
use bimetal_units::BLOCK_BYTES;
use bimetal_units::rng::mix;
use std::path::Path;

/// How far a run has come: the phase, and its share that is done where that is known.
pub type Progress<'p> = &'p mut dyn FnMut(&str, Option<f64>);

/// How often a phase is looked at whose length is not known, nanoseconds; twice as rarely each time that as many
/// samples are there as are kept.
const FIRST_EVERY_NS: u64 = 10_000_000;
/// Parts of a pause, for the sake of progress.
const PAUSE_PARTS: u64 = 100;

/// Runs a scenario to its end. Relative paths in it begin at this folder.
pub fn run(scenario: &Scenario, folder: &Path, progress: Progress<'_>) -> Result<Report, ScenarioError> {
    let survey = match &scenario.trace {
        Some(spec) => {
            progress("reading the trace", None);
            Some(Survey::read(spec, folder)?)
        }
        None => None,
    };
    let trace_bytes = survey.as_ref().map_or(0, Survey::bytes);
    let mut target = Target::new(scenario, Whole { target_bytes: 0, trace_bytes })?;
    let mut now = target.now();
    let whole = Whole { target_bytes: target.size_bytes(), trace_bytes };
    let mut phases = Vec::new();
    for (spec, name) in scenario.phases.iter().flat_map(|spec| spec.rows().map(move |name| (spec, name))) {
        progress(&name, None);
        let seed = mix(scenario.seed ^ mix(phases.len() as u64));
        let mut phase = Phase { name, ..Phase::default() };
        let before;
        if let Some(how) = spec.reopen {
            let (reopened, took) = target.reopen(how)?;
            target = reopened;
            now = now.max(target.now());
            phase.seconds = took as f64 / 1e9;
            before = Counts { usage: target.counts().usage, ..Counts::default() };
        } else {
            before = target.counts();
            let mut act = Act {
                in_sight: scenario.volume.as_ref().and_then(VolumeSpec::in_sight),
                crowd: scenario.volume.as_ref().and_then(|volume| volume.crowd.as_deref()),
                bench: Bench::since(target, now, seed),
                phase: &mut phase,
                whole,
                progress: &mut *progress,
            };
            act.act(spec, survey.as_ref())?;
            let ended = act.bench.now();
            target = act.bench.model;
            phase.seconds = ended.since(now) as f64 / 1e9;
            now = ended;
        }
        settle(&mut phase, &before, &target.counts());
        phases.push(phase);
    }
    let expectations = scenario.expectations.iter().map(|expect| judge(expect, &phases)).collect();
    Ok(Report {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        event_hash: format!("{:016x}", target.hash()),
        size_bytes: whole.target_bytes,
        trace_bytes: survey.map(|survey| survey.bytes()),
        tuning: scenario.tuning.told(),
        phases,
        devices: devices(scenario, &target.counts().usage),
        expectations,
    })
}

/// How the end of a run is known, and how far it is there.
#[derive(Clone, Copy)]
enum End {
    Until(Until),
    /// So many bytes, or commands, are all that there is.
    AllBytes(u64),
    AllCommands(u64),
}

impl End {
    fn until(self) -> Until {
        match self {
            End::Until(until) => until,
            End::AllBytes(_) | End::AllCommands(_) => Until::Dry,
        }
    }

    /// How often to look, nanoseconds.
    fn every_ns(self) -> u64 {
        match self {
            End::Until(Until::Elapsed(ns)) => (ns / MAX_POINTS).max(1),
            _ => FIRST_EVERY_NS,
        }
    }

    /// The share that is done.
    fn share(self, sample: Sample) -> Option<f64> {
        let (done, all) = match self {
            End::Until(Until::Elapsed(ns)) => (sample.at_ns, ns),
            End::Until(Until::Bytes(bytes)) | End::AllBytes(bytes) => (sample.bytes, bytes),
            End::AllCommands(commands) => (sample.commands, commands),
            End::Until(Until::Dry) => return None,
        };
        Some((done as f64 / all.max(1) as f64).min(1.0))
    }
}

/// A phase that is being run.
struct Act<'a> {
    bench: Bench<Target>,
    /// The share of a replay that placement knows ahead.
    in_sight: Option<f64>,
    /// Who else uses the devices in a replay.
    crowd: Option<&'a Crowd>,
    phase: &'a mut Phase,
    whole: Whole,
    progress: Progress<'a>,
}

impl Act<'_> {
    /// Does what the phase says.
    fn act(&mut self, spec: &PhaseSpec, survey: Option<&Survey>) -> Result<(), ScenarioError> {
        if let Some(seconds) = spec.pause_seconds {
            self.pause(seconds);
        } else if let Some(extent) = spec.discard {
            let block = u64::from(BLOCK_BYTES);
            let size_bytes = self.whole.target_bytes;
            self.bench.discard(0, extent.of(self.whole).min(size_bytes) / block * block);
        } else if let Some(files) = &spec.create_files {
            self.files(files, Kind::Write { fua: false })?;
        } else if let Some(files) = &spec.read_files {
            self.files(files, Kind::Read)?;
        } else if let (Some(replay), Some(survey)) = (&spec.replay, survey) {
            self.replay(replay, survey)?;
        } else {
            self.loads(spec)?;
        }
        Ok(())
    }

    fn pause(&mut self, seconds: f64) {
        let ns = (seconds * 1e9) as u64;
        for part in 0..PAUSE_PARTS {
            self.bench.rest(ns * (part + 1) / PAUSE_PARTS - ns * part / PAUSE_PARTS);
            (self.progress)(&self.phase.name, Some((part + 1) as f64 / PAUSE_PARTS as f64));
        }
    }

    fn loads(&mut self, spec: &PhaseSpec) -> Result<(), ScenarioError> {
        let mut sources = Vec::new();
        for load in &spec.load {
            let looped = Looped::new(self.job(load)?);
            sources.push(match load.rate_iops {
                Some(rate) => Box::new(Paced::new(looped, rate)) as Box<dyn Source>,
                None => Box::new(looped),
            });
        }
        let streams = sources.iter_mut().zip(&spec.load);
        let streams = streams.map(|(source, load)| Stream::new(source.as_mut(), load.depth()));
        let until = match (spec.bytes, spec.seconds) {
            (Some(bytes), _) => Until::Bytes(bytes.of(self.whole).max(1)),
            (_, seconds) => Until::Elapsed((seconds.unwrap_or(0.0) * 1e9) as u64),
        };
        let timed = spec.load.iter().any(|load| load.rate_iops.is_some());
        self.run(streams.collect(), End::Until(until), timed);
        Ok(())
    }

    fn job(&self, load: &LoadSpec) -> Result<Job, ScenarioError> {
        let block = load.block.0;
        let size_bytes = self.whole.target_bytes;
        let from_byte = load.from.of(self.whole) / block * block;
        let most = size_bytes.saturating_sub(from_byte);
        let span_bytes = load.span.map_or(most, |span| span.of(self.whole)) / block * block;
        if span_bytes < block || span_bytes > most {
            return Err(ScenarioError::Sense(format!(
                "phase {:?}: a span of {span_bytes} bytes from byte {from_byte} in blocks of {block} does not fit \
                 into {size_bytes} bytes",
                self.phase.name
            )));
        }
        Ok(Job {
            pattern: load.pattern(),
            read_percent: load.read_percent,
            block_bytes: block,
            depth: load.depth(),
            from_byte,
            span_bytes,
        })
    }

    fn files(&mut self, spec: &FilesSpec, kind: Kind) -> Result<(), ScenarioError> {
        let wrong = |what| ScenarioError::Sense(format!("phase {:?}: {what}", self.phase.name));
        let (mut files, bytes) = Files::new(spec, kind, self.whole).map_err(wrong)?;
        let stream = Stream::new(&mut files, spec.depth);
        self.run(vec![stream], End::AllBytes(bytes), false);
        Ok(())
    }

    fn replay(&mut self, spec: &ReplaySpec, survey: &Survey) -> Result<(), ScenarioError> {
        let name = self.phase.name.clone();
        let in_phase = |error| match error {
            ScenarioError::Sense(what) => ScenarioError::Sense(format!("phase {name:?}: {what}")),
            other => other,
        };
        if let Some(share) = self.in_sight {
            let touched = Replay::new(spec, survey, self.whole)?.touched();
            self.bench.model.foresee(&touched, share);
        }
        if let Some(crowd) = self.crowd {
            crowd.begin(self.bench.now());
        }
        let end = End::AllCommands(survey.records());
        self.phase.replay = Some(match spec.mode {
            Mode::Dependent => {
                let mut replay = Replay::dependent(spec, survey, self.whole).map_err(in_phase)?;
                self.run(vec![Stream::new(&mut replay, spec.depth())], end, true);
                replay.replay().counts()
            }
            Mode::Queued => {
                let mut replay = Replay::queued(spec, survey, self.whole).map_err(in_phase)?;
                self.run(vec![Stream::new(&mut replay, spec.depth())], end, false);
                replay.replay().counts()
            }
            Mode::Timed | Mode::Closed => {
                let mut replay = Replay::new(spec, survey, self.whole).map_err(in_phase)?;
                self.run(vec![Stream::new(&mut replay, spec.depth())], end, spec.mode == Mode::Timed);
                replay.counts()
            }
        });
        Ok(())
    }

    /// Runs streams, and puts down what they saw; `timed` where commands have times of their own.
    fn run(&mut self, streams: Vec<Stream<'_>>, end: End, timed: bool) {
        let mut samples = Samples::new(self.bench.model.counts());
        let (phase, progress) = (&mut *self.phase, &mut *self.progress);
        let observe = &mut |target: &Target, sample: Sample| {
            samples.take(sample, target);
            progress(&phase.name, end.share(sample));
        };
        let ran = self.bench.run_streams(streams, end.until(), (end.every_ns(), observe));
        phase.series = samples.points();
        figures(phase, &ran);
        phase.late = timed.then(|| lateness(&ran.seen));
    }
}
