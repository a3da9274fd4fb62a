//! One workload under one policy.

use super::figures::Figures;
use super::grammar::{Arrival, Pause, Workload};
use super::mix::Mix;
use crate::peers::Policy;
use crate::scenario::{DeviceSpec, Extent, ScenarioError, Target, VolumeSpec};
use bimetal_engine::options::Tuning;
use bimetal_load::{Ask, Bench, Next, Source, Stream, Until};
use bimetal_models::{Command, Kind, Model as _};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

const MIB: u64 = 1 << 20;
/// How long the volume is left alone when it was filled, and when all is over, nanoseconds.
const REST_NS: u64 = 600 * Nanos::SECOND;
/// Commands in flight of an open loop at most: all that a burst has.
const OPEN_DEPTH: u32 = 1 << 14;
/// Commands in flight where it is measured how many the static policy sustains.
const SUSTAINED_DEPTH: u16 = 32;

/// Requests a second that the static policy sustains of a workload: what the load of an open loop is a share of. For a
/// closed loop nobody asks.
///
/// # Errors
/// When no volume can be made.
pub(super) fn sustained_rate(workload: &Workload, seed: u64) -> Result<f64, ScenarioError> {
    let closed = Workload {
        arrival: Arrival::Closed { depth: SUSTAINED_DEPTH },
        requests: workload.requests / 2,
        pauses: Vec::new(),
        ..workload.clone()
    };
    let ran = run(&closed, seed, Policy::Static, &Tuning::default(), 1.0)?;
    Ok(ran.rate)
}

/// Runs a workload; `rate` is what [`sustained_rate`] said.
///
/// # Errors
/// When no volume can be made.
pub(super) fn run(
    workload: &Workload,
    seed: u64,
    policy: Policy,
    tuning: &Tuning,
    rate: f64,
) -> Result<Figures, ScenarioError> {
    let target = Target::volume(&volume(workload, policy), seed, tuning.clone())?;
    let size_bytes = target.size_bytes();
    let filled_bytes = size_bytes / 100 * u64::from(workload.fill_percent) / MIB * MIB;
    let opened = target.now();
    let mut bench = Bench::since(target, opened, seed);
    fill(&mut bench, workload, seed, filled_bytes);
    bench.rest(REST_NS);
    let mut mix = Mix::new(workload, seed, size_bytes, filled_bytes, rate);
    let depth = match workload.arrival {
        Arrival::Closed { depth } => u32::from(depth),
        Arrival::Open { .. } => OPEN_DEPTH,
    };
    let parts = workload.pauses.len() as u32 + 1;
    let (mut clock, mut asked_for) = (Nanos(0), 0);
    for part in 0..parts {
        let up_to = (u64::from(workload.requests) * u64::from(part + 1) / u64::from(parts)) as u32;
        mix.begin_part(up_to - asked_for, clock);
        asked_for = up_to;
        let before = bench.now();
        bench.run_streams(vec![Stream::new(&mut mix, depth)], Until::Dry, (u64::MAX, &mut |_, _| {}));
        clock = clock.after(bench.now().since(before));
        if let Some(&Pause { seconds, reopen }) = workload.pauses.get(part as usize) {
            bench.rest(u64::from(seconds) * Nanos::SECOND);
            if let (Some(how), Policy::Bimetal) = (reopen, policy) {
                let before = bench.now();
                let target = bench.model.reopen(how)?.0;
                let opened = before.max(target.now());
                bench = Bench::since(target, opened, seed);
            }
        }
    }
    let before = bench.model.busy_ns();
    bench.rest(REST_NS);
    let after = bench.model.busy_ns();
    let debt_ns = match (before.last(), after.last()) {
        (Some(before), Some(after)) => after - before,
        _ => 0,
    };
    Ok(Figures::new(mix.asked(), clock, debt_ns))
}

fn volume(workload: &Workload, policy: Policy) -> VolumeSpec {
    let device =
        |model: &str, bytes| DeviceSpec { model: model.to_owned(), size: Some(Extent::Bytes(bytes)) };
    VolumeSpec {
        fast: device(&workload.fast, workload.fast_bytes),
        slow: device(&workload.slow, workload.slow_bytes),
        chunk: None,
        landing: None,
        wear_budget: None,
        protect_seconds: None,
        policy,
        foresight: 1.0,
        crowd: None,
    }
}

/// Writes of a MiB, in order or shuffled.
struct Fill {
    pieces: Vec<u32>,
    next: usize,
}

impl Source for Fill {
    fn next(&mut self, _now: u64, _: &mut Rng) -> Next {
        let Some(&piece) = self.pieces.get(self.next) else { return Next::End };
        self.next += 1;
        let command = Command { kind: Kind::Write { fua: false }, offset: u64::from(piece) * MIB, len: MIB };
        Next::Ask(Ask { at: None, command })
    }
}

fn fill(bench: &mut Bench<Target>, workload: &Workload, seed: u64, bytes: u64) {
    let mut pieces: Vec<u32> = (0..(bytes / MIB) as u32).collect();
    if workload.fill_shuffled {
        Rng::new(seed, 3).shuffle(&mut pieces);
    }
    let mut source = Fill { pieces, next: 0 };
    bench.run_streams(vec![Stream::new(&mut source, 2)], Until::Dry, (u64::MAX, &mut |_, _| {}));
}
