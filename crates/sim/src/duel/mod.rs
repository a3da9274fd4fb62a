//! A duel: workloads that nobody chose, each under our engine and under what else can be had, on the same modelled
//! devices. It is how a user compares policies for a workload of their own, and how nobody tunes to what they know.
//!
//! A seed draws a workload ([`Workload`]). The volume is filled, rests for ten minutes, meets the workload, and rests
//! again. A figure is compared seed by seed: theirs over ours, so that above 1 ours is ahead.

mod figures;
mod grammar;
mod mix;
mod run;
mod score;
mod search;

pub use figures::{Figures, Metric, times};
pub use grammar::{Arrival, GRAMMAR, Pause, StreamSpec, Workload};
pub use score::{Harms, Score, Worst, scores, worst};
pub use search::{Found, climb, shrink};

use crate::peers::Policy;
use crate::scenario::ScenarioError;
use bimetal_engine::options::Tuning;

/// The policies that ours is compared with unless others are asked for.
pub const OTHERS: [Policy; 5] =
    [Policy::Static, Policy::Bcache, Policy::BcacheSecond, Policy::Fusion, Policy::DmCacheSmq];

/// Who meets, and how ours weighs.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The others.
    pub others: Vec<Policy>,
    /// What ours weighs.
    pub tuning: Tuning,
}

/// One workload under all.
#[derive(Clone, Debug)]
pub struct Bout {
    /// The seed of its random choices.
    pub seed: u64,
    /// What was asked for.
    pub workload: Workload,
    /// What ours did.
    pub ours: Figures,
    /// What the others did, in the order of the rules.
    pub theirs: Vec<(Policy, Figures)>,
}

impl Bout {
    /// How many times as long as ours another takes; none where there was too little to see.
    pub fn times(&self, policy: Policy, metric: Metric) -> Option<f64> {
        let (_, theirs) = self.theirs.iter().find(|(other, _)| *other == policy)?;
        Some(times(theirs.of(metric)?, self.ours.of(metric)?))
    }

    /// The same of whoever is best.
    pub fn best(&self, metric: Metric) -> Option<(Policy, f64)> {
        let all = self.theirs.iter().filter_map(|&(policy, _)| Some((policy, self.times(policy, metric)?)));
        all.min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// Runs one workload under all.
///
/// # Errors
/// When a volume cannot be made of its devices.
pub fn bout(workload: &Workload, seed: u64, rules: &Rules) -> Result<Bout, ScenarioError> {
    let rate = if workload.is_open() { run::sustained_rate(workload, seed)? } else { 1.0 };
    let figures = |policy| run::run(workload, seed, policy, &rules.tuning, rate);
    let theirs = rules.others.iter().map(|&policy| Ok((policy, figures(policy)?)));
    let theirs = theirs.collect::<Result<_, ScenarioError>>()?;
    Ok(Bout { seed, workload: workload.clone(), ours: figures(Policy::Bimetal)?, theirs })
}
