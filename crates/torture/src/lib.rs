//! Torture: random volumes, random clients, random crashes, and a model that knows the promise.

mod anatomy;
pub mod arena;
mod client;
pub mod coverage;
pub mod disk;
pub mod draw;
pub mod model;
mod panics;
mod pins;
pub mod plan;
mod report;
mod run;
mod scrubs;
mod shrink;
pub mod world;

pub use report::{Failure, Options, Report, main_loop};

use crate::arena::ArenaMemory;
use crate::coverage::{Coverage, StageSet};
use crate::world::Injected;
use bimetal_engine::options::Status;
use plan::Plan;
use std::collections::BTreeMap;

/// What one run did.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Lives that ended: crashes (or stops) each followed by a recovery.
    pub cycles: u64,
    /// Client requests answered, verification aside.
    pub operations: u64,
    /// Bytes verified after recoveries.
    pub verified_bytes: u64,
    /// What was done to the engine, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Injected I/O errors.
    pub injected: Injected,
    /// Lives with I/O errors.
    pub io_error_lives: u64,
    /// Stages crossed with faults.
    pub coverage: Coverage,
    /// What the engine did by itself.
    pub activity: BTreeMap<&'static str, u64>,
    /// The longest that it took from the end of all faults until nothing was pending, virtual ms.
    pub longest_rest_ms: u64,
    /// The event hash; of several seeds the sum, in whatever order they ended.
    pub hash: u64,
    pub(crate) reached_life: usize,
    pub(crate) recovery_stages: StageSet,
}

impl Stats {
    pub(crate) fn count(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn status(&mut self, status: &Status) {
        let done = [
            ("promoted-chunks", status.promoted_chunks),
            ("demoted-chunks", status.demoted_chunks),
            ("shadow-demoted-chunks", status.shadow_demoted_chunks),
            ("destaged-blocks", status.destaged_blocks),
            ("checkpoints", status.checkpoints),
        ];
        for (name, count) in done {
            *self.activity.entry(name).or_default() += count;
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Stats) {
        self.cycles += other.cycles;
        self.hash = self.hash.wrapping_add(other.hash);
        self.operations += other.operations;
        self.verified_bytes += other.verified_bytes;
        self.io_error_lives += other.io_error_lives;
        self.longest_rest_ms = self.longest_rest_ms.max(other.longest_rest_ms);
        self.injected.add(&other.injected);
        self.coverage.add(&other.coverage);
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_default() += count;
        }
        for (name, count) in &other.activity {
            *self.activity.entry(name).or_default() += count;
        }
    }
}

/// How one seed went.
pub struct Outcome {
    /// What it did.
    pub stats: Stats,
    /// The violation, if there was one.
    pub violation: Option<String>,
    /// The plan as far as it was drawn.
    pub plan: Plan,
    life: usize,
}

/// Runs one seed.
pub fn run_seed(seed: u64, memory: &ArenaMemory) -> Outcome {
    run_plan(draw::plan(seed), memory, false)
}

/// Runs a plan. With `trace` each step is told on standard error.
pub fn run_plan(mut plan: Plan, memory: &ArenaMemory, trace: bool) -> Outcome {
    let mut stats = Stats::default();
    let result = panics::caught(|| run::Run::new(&mut plan, &mut stats, memory.clone(), trace).run());
    let life = stats.reached_life;
    Outcome { stats, violation: result.err(), plan, life }
}

/// Shrinks a failing outcome: a short plan and what it fails with.
pub fn shrink(outcome: &Outcome, memory: &ArenaMemory) -> (Plan, String) {
    let what = outcome.violation.clone().unwrap_or_default();
    shrink::shrink(outcome.plan.clone(), what, outcome.life, |plan| {
        let again = run_plan(plan.clone(), memory, false);
        again.violation.map(|v| (v, again.life))
    })
}
