//! The torture command: many seeds on all cores, a report at the end.

use super::{Outcome, Stats, run_plan, shrink};
use crate::arena::ArenaMemory;
use crate::draw::Kind;
use crate::world::storm::Harm;
use bimetal_units::rng::mix;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Failures that are shrunk; the rest are only counted.
const SHRUNK: usize = 3;

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many seeds; `None` is 1,000.
    pub seeds: Option<u64>,
    /// The first seed; `None` takes one from the clock.
    pub seed: Option<u64>,
    /// Threads; `None` is one per core.
    pub threads: Option<usize>,
    /// Stop at the first violation.
    pub stop_at_violation: bool,
    /// What is drawn from the seeds.
    pub kind: Kind,
}

/// A violation.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed that replays it.
    pub seed: u64,
    /// What was violated.
    pub what: String,
    /// The shrunk plan, for the first few.
    pub plan: Option<String>,
}

/// What a torture run found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The first seed.
    pub first_seed: u64,
    /// Seeds run.
    pub seeds: u64,
    /// Crash-and-recover cycles.
    pub cycles: u64,
    /// Client operations answered.
    pub operations: u64,
    /// Violations of the promise.
    pub violations: u64,
    /// The hash of all that happened: the same for the same seeds and program.
    pub event_hash: String,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Wall-clock time.
    pub seconds: f64,
    /// How often a stage was hit by a fault: `STAGE x FAULT`.
    pub crossings: BTreeMap<String, u64>,
    /// Crossings that can exist and were not seen.
    pub unseen: Vec<String>,
    /// What the engine did by itself.
    pub activity: BTreeMap<String, u64>,
    /// The longest that it took from the end of all faults until nothing was pending, virtual seconds.
    pub longest_rest_seconds: f64,
    /// The violations.
    pub failures: Vec<Failure>,
}

struct Shared {
    stats: Stats,
    seeds: u64,
    failures: Vec<Failure>,
    /// Failures being shrunk or shrunk already.
    shrinking: usize,
    next_line: Instant,
}

/// Runs seeds on all threads. Messages (the seed first, progress, violations with their short plans)
/// go to `say`, one line or block at a time.
pub fn main_loop(options: &Options, say: &(dyn Fn(&str) + Sync)) -> Report {
    let start = Instant::now();
    let first = options.seed.unwrap_or_else(clock_seed);
    let count = options.seeds.unwrap_or(1000);
    let threads =
        options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    say(&format!("torture: first seed {first}, {count} seeds, {threads} threads"));
    let next = AtomicU64::new(0);
    let shared = Mutex::new(Shared {
        stats: Stats::default(),
        seeds: 0,
        failures: Vec::new(),
        shrinking: 0,
        next_line: start + PROGRESS,
    });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let memory = ArenaMemory::default();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        return;
                    }
                    let seed = first.wrapping_add(i);
                    let Some(plan) = options.kind.plan(seed) else { continue };
                    let outcome = run_plan(plan, &memory, false);
                    let failed = take(&shared, outcome, &memory, start, say);
                    if failed && options.stop_at_violation {
                        next.store(count, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let shared = shared.into_inner().expect("no thread panicked");
    report(shared, first, start.elapsed())
}

/// A seed when none is given: small enough to type.
fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    mix(now) >> 24
}

/// Adds an outcome; true if it is a violation.
fn take(
    shared: &Mutex<Shared>,
    outcome: Outcome,
    memory: &ArenaMemory,
    start: Instant,
    say: &(dyn Fn(&str) + Sync),
) -> bool {
    let shrinks = {
        let mut s = shared.lock().expect("no thread panicked");
        s.stats.add(&outcome.stats);
        s.seeds += 1;
        if Instant::now() >= s.next_line {
            s.next_line = Instant::now() + PROGRESS;
            let seconds = start.elapsed().as_secs_f64();
            let rate = s.stats.cycles as f64 / seconds;
            say(&format!(
                "torture: {} seeds, {} cycles ({rate:.0}/s), {} operations, {} violations",
                s.seeds,
                s.stats.cycles,
                s.stats.operations,
                s.failures.len()
            ));
        }
        if outcome.violation.is_none() {
            return false;
        }
        s.shrinking += 1;
        s.shrinking <= SHRUNK
    };
    let failure = failure(&outcome, shrinks, memory, say);
    shared.lock().expect("no thread panicked").failures.push(failure);
    true
}

fn failure(outcome: &Outcome, shrinks: bool, memory: &ArenaMemory, say: &(dyn Fn(&str) + Sync)) -> Failure {
    let seed = outcome.plan.seed;
    let what = outcome.violation.clone().unwrap_or_default();
    say(&format!("VIOLATION at seed {seed}: {what}"));
    if !shrinks {
        return Failure { seed, what, plan: None };
    }
    let (plan, short) = shrink(outcome, memory);
    say(&format!(
        "shrunk from {} to {} operations; it fails with: {short}\n{plan}\nreplay: bimetal sim torture --seed {seed} --seeds 1",
        outcome.plan.ops(),
        plan.ops(),
    ));
    Failure { seed, what, plan: Some(format!("fails with: {short}\n{plan}")) }
}

fn report(shared: Shared, first_seed: u64, elapsed: Duration) -> Report {
    let Shared { stats, seeds, mut failures, .. } = shared;
    failures.sort_by_key(|f| f.seed);
    let mut faults = BTreeMap::new();
    for (name, count) in &stats.faults {
        faults.insert((*name).to_string(), *count);
    }
    faults.insert("io-error".into(), stats.injected.total());
    faults.insert("io-error-cycle".into(), stats.io_error_lives);
    let injected = &stats.injected;
    let harms = Harm::ALL.iter().zip(injected.harms).map(|(harm, count)| (harm.name(), count));
    let counts = [
        ("lost-cache", injected.lost_caches),
        ("stall", injected.stalls),
        ("slow-ramp", injected.ramps),
        ("device-vanished", injected.vanished),
        ("connection-broken", injected.breaks),
        ("server-forgot", injected.forgot),
        ("timed-out", injected.timed_out),
        ("late-answer", injected.late_answers),
    ];
    for (name, count) in harms.chain(counts) {
        *faults.entry(name.into()).or_default() += count;
    }
    Report {
        first_seed,
        seeds,
        cycles: stats.cycles,
        operations: stats.operations,
        violations: failures.len() as u64,
        event_hash: format!("{:016x}", stats.hash),
        faults,
        seconds: elapsed.as_secs_f64(),
        crossings: stats.coverage.crossings(),
        unseen: stats.coverage.unseen(),
        activity: stats.activity.iter().map(|(n, c)| ((*n).to_string(), *c)).collect(),
        longest_rest_seconds: stats.longest_rest_ms as f64 / 1000.0,
        failures,
    }
}
