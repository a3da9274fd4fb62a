//! What the figures say: sums of histograms, whether a run was steady, whether two sets of runs differ.

mod bootstrap;
mod hist;
mod knee;
mod normal;
mod runs;
mod steady;

pub use bootstrap::{Bootstrap, BootstrapError, MAX_PAIRS, Ratio, Statistic, pairs_needed};
pub use hist::{merged, merged_side, quantile, quantiles};
pub use knee::{Knee, Step as LoadStep, Verdict, knee, next_load, passes};
pub(crate) use normal::mean_interval;
pub use runs::{Finding, Metric, findings, rounds};
pub use steady::{
    Evidence, Facts, FioRule, Gate, Limit, Measure, ParseRuleError, Quantity, Rule, SniaRule, Steadiness,
    Step, Why,
};
