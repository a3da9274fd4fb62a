//! What `bimetal lab storage-bench` is told.

use crate::args::rival;
use crate::lab::args::{OutputArgs, TargetArgs};
use bimetal_lab::classic::storage_bench::State;
use bimetal_lab::target::TargetName;
use bimetal_sim::peers::Policy;
use clap::{Args, ValueEnum};

/// `bimetal lab storage-bench`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab storage-bench heavy model:ssd-128gb-2012 --state empty,full
  bimetal lab storage-bench light scratch.img --scale 10 --html light.html
  bimetal lab storage-bench heavy scenario:scenarios/hybrid-2012-fill.toml --policies all \\
      --against model:ssd-128gb-2012 --against model:disk-1tb-2012 --state full --html heavy.html

A clone of a published trace (bimetal trace synth says what it has, and what is assumed) is replayed with the queue that
it was recorded with: each operation begins as soon as fewer are in flight than it found then, and after pauses of 25 ms
at most. Before, all of the target is given back, and written: empty, where the trace goes; full, everywhere. All of the
target is overwritten. Reported are data rate, busy time without idle, and service times, of reads, of writes and of both.")]
pub(crate) struct StorageBenchArgs {
    /// heavy, light, destroyer, or a profile in a file that ends in .toml
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workload: String,
    /// What is measured, as with `bimetal lab fio --target`
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// And this one, beside it; may be given several times
    #[arg(long, value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) against: Vec<TargetName>,
    /// Run the volumes of scenarios under each of these, separated by commas: all, or names as of `bimetal sim table`
    /// [default: as the scenario says]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = policies)]
    pub(crate) policies: Vec<Policies>,
    /// What the target holds when the trace begins; both, separated by a comma, one after the other
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',', default_value = "empty")]
    pub(crate) state: Vec<StateArg>,
    /// What is kept of idle time
    #[arg(long, value_enum, value_name = "HOW", default_value = "capped")]
    pub(crate) idle: Idle,
    /// One in so many operations, in a span so much smaller
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) scale: u64,
    /// Where random choices begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Through the page cache, if it is a file or block device
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// One policy, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policies {
    All,
    One(Policy),
}

fn policies(name: &str) -> Result<Policies, String> {
    match name {
        "all" => Ok(Policies::All),
        name => rival(name).map(Policies::One),
    }
}

/// What a target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    /// Only what the trace is going to touch
    Empty,
    /// It was written from its start to its end
    Full,
}

impl StateArg {
    pub(crate) fn state(self) -> State {
        match self {
            StateArg::Empty => State::Empty,
            StateArg::Full => State::Full,
        }
    }
}

/// What is kept of pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// 25 ms of each at most
    Capped,
    /// All of them
    Kept,
}
