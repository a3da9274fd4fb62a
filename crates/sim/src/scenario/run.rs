//! Running a scenario: one phase after the other, on the same volume or device.

use super::report::{Device, Expectation, MAX_POINTS, Phase, Point, Report};
use super::{DeviceSpec, ExpectSpec, PhaseSpec, Reopen, Scenario, ScenarioError, VolumeSpec};
use crate::event_hash::EventHash;
use crate::timed::{TimedDevice, TimedVolume};
use bimetal_engine::options::CreateOptions;
use bimetal_engine::units::{BLOCK_BYTES, Nanos};
use bimetal_models::load::{Bench, Histogram, Job, Sample, Seen, Until};
use bimetal_models::rng::mix;
use bimetal_models::{Command, Done, Model, Usage};

/// How far a run has come: the phase, and its share that is done where that is known.
pub type Progress<'p> = &'p mut dyn FnMut(&str, Option<f64>);

/// Samples of a phase kept before every other one is dropped.
const MAX_SAMPLES: usize = 2 * MAX_POINTS as usize;
/// How often a phase is looked at whose length is not known, nanoseconds; twice as rarely each time that
/// [`MAX_SAMPLES`] are there.
const FIRST_EVERY_NS: u64 = 10_000_000;
/// Parts of a pause, for the sake of progress.
const PAUSE_PARTS: u64 = 100;

/// What is loaded.
struct Target {
    kind: Kind,
}

enum Kind {
    Volume(Box<TimedVolume>),
    /// With the hash of its answers; a volume keeps its own.
    Device(Box<dyn Model>, EventHash),
}

/// What a target counts, since it was opened.
#[derive(Clone, Default)]
struct Counts {
    fast_bytes: u64,
    all_bytes: u64,
    promoted_bytes: u64,
    demoted_bytes: u64,
    destaged_bytes: u64,
    usage: Vec<Usage>,
}

impl Target {
    fn new(scenario: &Scenario) -> Result<Target, ScenarioError> {
        let kind = match (&scenario.volume, &scenario.device) {
            (Some(volume), _) => Kind::Volume(Box::new(create(volume, scenario.seed)?)),
            (_, Some(device)) => Kind::Device(device.spec()?.build(scenario.seed)?, EventHash::new()),
            _ => return Err(ScenarioError::Sense("there is nothing to load".into())),
        };
        Ok(Target { kind })
    }

    fn now(&self) -> Nanos {
        match &self.kind {
            Kind::Volume(volume) => volume.now(),
            Kind::Device(..) => Nanos(0),
        }
    }

    /// The hash of all that happened.
    fn hash(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.hash(),
            Kind::Device(_, hash) => hash.value(),
        }
    }

    fn counts(&self) -> Counts {
        match &self.kind {
            Kind::Device(device, _) => Counts { usage: vec![device.usage()], ..Counts::default() },
            Kind::Volume(volume) => {
                let status = volume.status();
                let bytes = |tier: &bimetal_engine::options::TierStatus| tier.read_bytes + tier.written_bytes;
                let chunk = u64::from(status.chunk_bytes);
                Counts {
                    fast_bytes: status.tiers.first().map_or(0, bytes),
                    all_bytes: status.tiers.iter().map(bytes).sum(),
                    promoted_bytes: status.promoted_chunks * chunk,
                    demoted_bytes: status.demoted_chunks * chunk,
                    destaged_bytes: status.destaged_blocks * u64::from(BLOCK_BYTES),
                    usage: volume.device_usage(),
                }
            }
        }
    }

    /// Ends what serves the volume and opens it again. How long opening took, nanoseconds.
    fn reopen(self, how: Reopen) -> Result<(Target, u64), ScenarioError> {
        let Kind::Volume(volume) = self.kind else {
            return Err(ScenarioError::Sense("only a volume can be opened again".into()));
        };
        let world = match how {
            Reopen::Close => volume.close()?,
            Reopen::Kill => volume.kill(),
        };
        let before = world.now();
        let volume = TimedVolume::open(world)?;
        let took = volume.now().since(before);
        Ok((Target { kind: Kind::Volume(Box::new(volume)) }, took))
    }
}

impl Model for Target {
    fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.size_bytes(),
            Kind::Device(device, _) => device.size_bytes(),
        }
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.submit(now, tag, command),
            Kind::Device(device, _) => device.submit(now, tag, command),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Volume(volume) => volume.deadline(),
            Kind::Device(device, _) => device.deadline(),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.advance(now, done),
            Kind::Device(device, hash) => {
                let before = done.len();
                device.advance(now, done);
                done[before..].iter().for_each(|end| hash.add([end.at.0, end.tag]));
            }
        }
    }

    fn usage(&self) -> Usage {
        match &self.kind {
            Kind::Volume(volume) => volume.usage(),
            Kind::Device(device, _) => device.usage(),
        }
    }
}

fn create(spec: &VolumeSpec, seed: u64) -> Result<TimedVolume, ScenarioError> {
    let device = |device: &DeviceSpec, tier: u64| -> Result<TimedDevice, ScenarioError> {
        Ok(TimedDevice::new(device.spec()?.build(mix(seed ^ tier))?))
    };
    let devices = vec![device(&spec.fast, 0)?, device(&spec.slow, 1)?];
    let chunk = spec.chunk.map_or(128 << 10, |size| size.0);
    let options = CreateOptions {
        volume_id: *b"simulated volume",
        chunk_bytes: u32::try_from(chunk)
            .map_err(|_| ScenarioError::Sense(format!("a chunk of {chunk} bytes is too large")))?,
        landing_bytes: spec.landing.map(|size| size.0),
        area_bytes: None,
        created_unix_s: 0,
    };
    Ok(TimedVolume::create(devices, options)?)
}

/// Runs a scenario to its end.
pub fn run(scenario: &Scenario, progress: Progress<'_>) -> Result<Report, ScenarioError> {
    let mut target = Target::new(scenario)?;
    let mut now = target.now();
    let size_bytes = target.size_bytes();
    let mut phases = Vec::new();
    for (place, spec) in scenario.phases.iter().enumerate() {
        progress(&spec.name, None);
        let seed = mix(scenario.seed ^ mix(place as u64));
        let mut phase = Phase { name: spec.name.clone(), ..Phase::default() };
        let before;
        if let Some(how) = spec.reopen {
            let (reopened, took) = target.reopen(how)?;
            target = reopened;
            now = now.max(target.now());
            phase.seconds = took as f64 / 1e9;
            before = Counts { usage: target.counts().usage, ..Counts::default() };
        } else {
            before = target.counts();
            let mut bench = Bench::since(target, now, seed);
            let began = bench.now();
            act(&mut bench, spec, &mut phase, progress)?;
            phase.seconds = bench.now().since(began) as f64 / 1e9;
            now = bench.now();
            target = bench.model;
        }
        settle(&mut phase, &before, &target.counts());
        phases.push(phase);
    }
    let expectations = scenario.expectations.iter().map(|expect| judge(expect, &phases)).collect();
    Ok(Report {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        event_hash: format!("{:016x}", target.hash()),
        size_bytes,
        phases,
        devices: devices(scenario, &target.counts().usage),
        expectations,
    })
}

/// Does what a phase says.
fn act(
    bench: &mut Bench<Target>,
    spec: &PhaseSpec,
    phase: &mut Phase,
    progress: Progress<'_>,
) -> Result<(), ScenarioError> {
    let size_bytes = bench.model.size_bytes();
    if let Some(seconds) = spec.pause_seconds {
        let ns = (seconds * 1e9) as u64;
        for part in 0..PAUSE_PARTS {
            bench.rest(ns * (part + 1) / PAUSE_PARTS - ns * part / PAUSE_PARTS);
            progress(&spec.name, Some((part + 1) as f64 / PAUSE_PARTS as f64));
        }
        return Ok(());
    }
    if let Some(extent) = spec.discard {
        let block = u64::from(BLOCK_BYTES);
        bench.discard(0, extent.of(size_bytes).min(size_bytes) / block * block);
        return Ok(());
    }
    let jobs = jobs(spec, size_bytes)?;
    let until = match (spec.bytes, spec.seconds) {
        (Some(bytes), _) => Until::Bytes(bytes.of(size_bytes).max(1)),
        (_, seconds) => Until::Elapsed((seconds.unwrap_or(0.0) * 1e9) as u64),
    };
    let (every, whole) = match until {
        Until::Elapsed(ns) => ((ns / MAX_POINTS).max(1), ns as f64),
        Until::Bytes(bytes) => (FIRST_EVERY_NS, bytes as f64),
    };
    let mut samples = Samples::new(bench.model.counts());
    let seen = bench.run_observed(
        &jobs,
        until,
        (every, &mut |target: &Target, sample| {
            samples.take(sample, target);
            let done = if matches!(until, Until::Elapsed(_)) { sample.at_ns } else { sample.bytes };
            progress(&spec.name, Some(done as f64 / whole));
        }),
    );
    phase.series = samples.points();
    figures(phase, &seen);
    Ok(())
}

fn jobs(spec: &PhaseSpec, size_bytes: u64) -> Result<Vec<Job>, ScenarioError> {
    let job = |load: &super::LoadSpec| {
        let block = load.block.0;
        let from_byte = load.from.of(size_bytes) / block * block;
        let most = size_bytes.saturating_sub(from_byte);
        let span_bytes = load.span.map_or(most, |span| span.of(size_bytes)) / block * block;
        if span_bytes < block || span_bytes > most {
            return Err(ScenarioError::Sense(format!(
                "phase {:?}: a span of {span_bytes} bytes from byte {from_byte} in blocks of {block} does not fit \
                 into {size_bytes} bytes",
                spec.name
            )));
        }
        Ok(Job {
            pattern: load.pattern,
            read_percent: load.read_percent,
            block_bytes: block,
            depth: load.depth,
            from_byte,
            span_bytes,
        })
    };
    spec.load.iter().map(job).collect()
}

/// Samples at even distances, and what the target had counted by then.
struct Samples {
    kept: Vec<(Sample, u64, u64)>,
    start: Counts,
    /// One in this many is kept.
    stride: u64,
    taken: u64,
}

impl Samples {
    fn new(start: Counts) -> Samples {
        Samples { kept: Vec::new(), start, stride: 1, taken: 0 }
    }

    fn take(&mut self, sample: Sample, target: &Target) {
        self.taken += 1;
        if !self.taken.is_multiple_of(self.stride) {
            return;
        }
        let counts = target.counts();
        self.kept.push((sample, counts.fast_bytes, counts.all_bytes));
        if self.kept.len() == MAX_SAMPLES {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.stride *= 2;
        }
    }

    fn points(&self) -> Vec<Point> {
        let mut before = (Sample::default(), self.start.fast_bytes, self.start.all_bytes);
        let per_point = self.kept.len().div_ceil(MAX_POINTS as usize).max(1);
        let mut points = Vec::new();
        for &now in self.kept.iter().skip(per_point - 1).step_by(per_point) {
            let seconds = (now.0.at_ns - before.0.at_ns) as f64 / 1e9;
            let all = now.2 - before.2;
            points.push(Point {
                at_s: now.0.at_ns as f64 / 1e9,
                mb_per_s: (now.0.bytes - before.0.bytes) as f64 / 1e6 / seconds,
                iops: (now.0.commands - before.0.commands) as f64 / seconds,
                fast_share: (all > 0).then(|| (now.1 - before.1) as f64 / all as f64),
            });
            before = now;
        }
        points
    }
}

fn figures(phase: &mut Phase, seen: &[Seen]) {
    let mut all: Option<Histogram<u64>> = None;
    for seen in seen {
        phase.mb_per_s += seen.mb_per_s();
        phase.iops += seen.iops();
        phase.failures += seen.failures;
        let all = all.get_or_insert_with(|| Histogram::new_from(&seen.reads));
        for latencies in [&seen.reads, &seen.writes] {
            // They have the same bounds.
            let _ = all.add(latencies);
        }
    }
    if let Some(all) = all.filter(|all| !all.is_empty()) {
        phase.mean_us = all.mean() / 1e3;
        phase.p50_us = all.value_at_quantile(0.5) as f64 / 1e3;
        phase.p99_us = all.value_at_quantile(0.99) as f64 / 1e3;
        phase.max_us = all.max() as f64 / 1e3;
    }
}

/// Puts down what the target and its devices did meanwhile.
fn settle(phase: &mut Phase, before: &Counts, after: &Counts) {
    let all = after.all_bytes - before.all_bytes;
    phase.fast_share = (all > 0).then(|| (after.fast_bytes - before.fast_bytes) as f64 / all as f64);
    phase.promoted_bytes = after.promoted_bytes - before.promoted_bytes;
    phase.demoted_bytes = after.demoted_bytes - before.demoted_bytes;
    phase.destaged_bytes = after.destaged_bytes - before.destaged_bytes;
    let busy = |(before, after): (&Usage, &Usage)| (after.busy_ns - before.busy_ns) as f64 / 1e9;
    phase.busy_seconds = before.usage.iter().zip(&after.usage).map(busy).collect();
}

fn devices(scenario: &Scenario, usage: &[Usage]) -> Vec<Device> {
    let names: Vec<String> = match (&scenario.volume, &scenario.device) {
        (Some(volume), _) => {
            vec![format!("fast: {}", volume.fast.model), format!("slow: {}", volume.slow.model)]
        }
        (_, device) => device.iter().map(|device| device.model.clone()).collect(),
    };
    let device = |(name, usage): (String, &Usage)| Device {
        name,
        busy_seconds: usage.busy_ns as f64 / 1e9,
        read_bytes: usage.read_bytes,
        written_bytes: usage.written_bytes,
        flushes: usage.flushes,
    };
    names.into_iter().zip(usage).map(device).collect()
}

fn judge(expect: &ExpectSpec, phases: &[Phase]) -> Expectation {
    let phase = phases.iter().find(|phase| phase.name == expect.phase);
    let value = phase.and_then(|phase| phase.metric(&expect.metric));
    let within = |value: f64| {
        expect.at_least.is_none_or(|least| value >= least) && expect.at_most.is_none_or(|most| value <= most)
    };
    let bounds = match (expect.at_least, expect.at_most) {
        (Some(least), Some(most)) => format!("from {least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, most) => format!("at most {}", most.unwrap_or_default()),
    };
    Expectation {
        what: format!("{}: {} {bounds}", expect.phase, expect.metric),
        value,
        held: value.is_some_and(within),
    }
}
