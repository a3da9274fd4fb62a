//! What `bimetal lab` and `bimetal trace replay` are told.

use super::disktester::args::{AdaptationArgs, CreateFilesArgs, FillArgs, IdleArgs, ReadFilesArgs};
use crate::lab::orion::OrionArgs;
use crate::lab::quick::{CompareArgs, QuickArgs};
use crate::lab::snia::SniaArgs;
use crate::lab::storage_bench::StorageBenchArgs;
use crate::lab::torture_recovery::TortureRecoveryArgs;
use bimetal_lab::target::{MAX_CONNECTIONS, TargetName};
use bimetal_models::size;
use bimetal_sim::scenario::{Map, Mode};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// What the lab can do.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Find out in two minutes what a target is good at, and which drive it is like
    Quick(QuickArgs),
    /// Compare two targets by the quick test, in alternation, with what chance leaves of the difference
    Compare(CompareArgs),
    /// Run a job file of fio
    Fio(FioArgs),
    /// Run Orion's tests: small and large I/Os at a matrix of loads, and their knees
    Orion(Box<OrionArgs>),
    /// Print what runs have recorded: a table, or a page with plots; several side by side
    Report(ReportArgs),
    /// Create files of one size, and say how fast that goes, over windows from 2 seconds to an hour
    CreateFiles(CreateFilesArgs),
    /// Read the files that create-files has made
    ReadFiles(ReadFilesArgs),
    /// Write a target from its start to its end: its speed at each fill level, and where that falls
    Fill(FillArgs),
    /// Leave a target alone until it is quiet, and say what it does meanwhile
    Idle(IdleArgs),
    /// Find out whether a volume migrates: how soon, how fast, to what speed
    Adaptation(AdaptationArgs),
    /// Replay a clone of Storage Bench's traces: data rates, busy time and service times, of several targets side by side
    StorageBench(Box<StorageBenchArgs>),
    /// Run SNIA's tests: preconditioned, in rounds, and measured only once they are steady
    Snia(SniaArgs),
    /// Torture a drive with random writes, and find out what brings it back: writing in order, or TRIM
    TortureRecovery(TortureRecoveryArgs),
}

/// What is measured, and how it is opened.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Overwrite what the target holds; without this, a target that holds anything that the lab did not write is
    /// not written to
    #[arg(long)]
    pub(crate) destroy_data: bool,
    /// Connections to an NBD server; of several jobs, each has so many
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CONNECTIONS)))]
    pub(crate) connections: u32,
}

/// What becomes of the figures.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep the record of the run in this file: `bimetal lab report` prints it again, beside others
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace files that are there already
    #[arg(long)]
    pub(crate) force: bool,
    /// Say when each job became steady, and whether it ceased to be so: of five rounds of this, none is further from
    /// another than 20 % of their mean, and their trend is no more than 10 % (SNIA's rule)
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) steady: Option<SteadyOf>,
    /// The length of a round, such as 60s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "steady")]
    pub(crate) round: Duration,
}

/// What may be steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SteadyOf {
    /// I/Os in a second
    Iops,
    /// Bytes in a second
    Bw,
    /// The mean response
    Lat,
}

/// `bimetal lab fio`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab fio random.fio
  bimetal lab fio random.fio --target scratch.img --json
  bimetal lab fio random.fio --target nbd://localhost/films --html films.html
  bimetal lab fio random.fio --target model:disk-1tb-2012
  bimetal lab fio random.fio --target scratch.img --against /dev/sdb --rounds 6
  bimetal lab fio --name=a --rw=randread --bs=4k --size=1g --iodepth=32 --direct=1 --runtime=10
  bimetal lab fio random.fio --parse-only

Jobs are fio's, in a file or on the command line; an option that is not done is named and refused. --parse-only,
--output=FILE, --output-format=normal|terse|json|json+, --minimal, --section=NAME and --readonly are fio's, too. Without --target, jobs go to the files that it
names. A target is a file or block device, nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH, volume:NAME (a volume
of Bimetal that nobody serves), model:NAME[?size=SIZE] (a modelled device in virtual time), scenario:FILE (what a
scenario describes), or null: (nothing, which measures the lab). Ctrl-C ends the run with the report of what was done.

With --against, the jobs are run on both targets in turn, --rounds times, and it is said how they compare, with an
interval that chance leaves.")]
pub(crate) struct FioArgs {
    /// Job files, `-` for standard input; or jobs, written with fio's options
    #[arg(value_name = "JOB.fio|--OPTION=VALUE", required = true)]
    pub(crate) words: Vec<std::ffi::OsString>,
    /// Where all of its jobs go, instead of where they say
    #[arg(long, value_parser = TargetName::parse)]
    pub(crate) target: Option<TargetName>,
    /// Compare the target with this one
    #[arg(long, value_name = "TARGET", requires = "target", value_parser = TargetName::parse)]
    pub(crate) against: Option<TargetName>,
    /// How often both are run; 95 % need 6
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) rounds: u32,
    /// Write all of the target first, in order, so many times: SNIA's preconditioning has 2
    #[arg(long, value_name = "TIMES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) precondition: u32,
    /// Where the random choices of jobs with randrepeat=0 begin [default: random]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `bimetal lab report`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab report before.json after.json
  bimetal lab report before.json after.json --html both.html

The files are those that --record made. With two or more, the last columns say how the others compare with the first.")]
pub(crate) struct ReportArgs {
    /// Records of runs
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Write a page with plots to this file, instead of a table
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace a page that is there already
    #[arg(long)]
    pub(crate) force: bool,
}

/// When requests are begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayMode {
    /// At the recorded times; a response counts from then
    Timed,
    /// As soon as another one has ended: --depth of them are always in flight
    Closed,
    /// When what they waited for when they were recorded has ended: a faster target is asked for more
    Dependent,
    /// As soon as fewer are in flight than each found when it was recorded; pauses in which nothing was are kept
    Queued,
}

impl ReplayMode {
    pub(crate) fn mode(self) -> Mode {
        match self {
            ReplayMode::Timed => Mode::Timed,
            ReplayMode::Closed => Mode::Closed,
            ReplayMode::Dependent => Mode::Dependent,
            ReplayMode::Queued => Mode::Queued,
        }
    }
}

/// Where addresses of the trace lie on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReplayMap {
    /// What the trace touches, without what lies between
    Compact,
    /// Where they are; what lies beyond the target is left out
    AsIs,
    /// Where they are; what lies beyond the target begins again at its start
    Wrap,
}

impl ReplayMap {
    pub(crate) fn map(self) -> Map {
        match self {
            ReplayMap::Compact => Map::Compact,
            ReplayMap::AsIs => Map::AsIs,
            ReplayMap::Wrap => Map::Wrap,
        }
    }
}

/// `bimetal trace replay`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal trace replay disk.trace --target scratch.img
  bimetal trace replay disk.blktrace.* --target /dev/sdb --idle-at-most 25ms --destroy-data
  bimetal trace replay disk.trace --target nbd://localhost/films --mode dependent --html films.html
  bimetal trace replay disk.trace --target model:disk-1tb-2012

A target is a file or block device, nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH, volume:NAME (a volume of
Bimetal that nobody serves), model:NAME (a modelled device in virtual time), or scenario:FILE (what a scenario
describes). At the end it is said how true the replay was: how late requests were begun, and how many were in flight,
beside what was recorded.")]
pub(crate) struct ReplayArgs {
    /// The files of one trace, compressed or not; - is standard input
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What it is replayed on
    #[arg(long, value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// When requests are begun
    #[arg(long, value_enum, default_value = "timed")]
    pub(crate) mode: ReplayMode,
    /// So many times as fast as it was recorded; not with --mode closed
    #[arg(long, value_name = "FACTOR")]
    pub(crate) speed: Option<f64>,
    /// Of a longer gap between two requests, only so much is kept, such as 25ms; not with --mode closed
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) idle_at_most: Option<Duration>,
    /// Requests in flight: always so many with --mode closed [default: 1], else at most [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// Where the addresses of the trace lie on the target
    #[arg(long, value_enum, default_value = "compact")]
    pub(crate) map: ReplayMap,
    /// Where on the target these begin
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) from: Option<u64>,
    /// Only so many records, from the beginning
    #[arg(long, value_name = "N")]
    pub(crate) first: Option<u64>,
    /// Through the page cache, if it is a file or block device
    #[arg(long)]
    pub(crate) buffered: bool,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A time such as `25ms` or `1.5s`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time; write a number with us, ms, s, min or h, such as 25ms");
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let number: f64 = text[..at].trim().parse().map_err(|_| wrong())?;
    let unit = match &text[at..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(time("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(time("2min"), Ok(Duration::from_secs(120)));
        for text in ["", "25", "ms", "-1s", "1e30s", "3 days", "nan s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
