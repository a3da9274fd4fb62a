//! `bimetal lab snia`

use super::args::{OutputArgs, TargetArgs};
use super::report::{judge, keep_with, look_ahead, outcome};
use super::stop::Stop;
use super::target::{Opening, Wanted};
use super::tested::{Named, tested};
use super::watcher::Watcher;
use crate::{Outcome, say, say_record};
use anyhow::{Context as _, ensure};
use bimetal_lab::classic::snia::{self, Found, SniaPlan, Test};
use bimetal_lab::record::Run;
use bimetal_lab::target::{OpenHow, TargetName};
use bimetal_models::size;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// `bimetal lab snia`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab snia iops /dev/sdb --destroy-data --html iops.html
  bimetal lab snia write-saturation model:ssd-128gb-2012 --scale 0.1
  bimetal lab snia latency scratch.img --scale 0.02 --json
  bimetal lab snia all 'model:ssd-128gb-2012?size=4G' --scale 0.05 --html all.html

After SNIA's performance test specification: the target is given back (TRIM), written in order twice, and loaded in rounds of
a minute for each kind of load, until the last five rounds keep within 20 % of their mean and their trend within 10 %, in 25
rounds at most. In full that takes hours; --scale makes all times shorter, and the report says that it is no result of the
specification then. Exit code 1 where no steady state was reached.")]
pub(crate) struct SniaArgs {
    /// Which test
    #[arg(value_enum, value_name = "TEST")]
    pub(crate) test: TestArg,
    /// A file, a block device, or whatever else the lab can measure
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// Of the specification's times, this share, up to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub(crate) scale: f64,
    /// Only so much of the target, from its start [default: all]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) span: Option<u64>,
    /// Where random choices begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestArg {
    /// IOPS of seven mixes of reads and writes by eight sizes, at random
    Iops,
    /// Reads and writes in order, 128 KiB and 1 MiB
    Throughput,
    /// One in flight: three sizes by three mixes
    Latency,
    /// Random writes from the fresh device on, until four times its capacity is written, or for six hours
    WriteSaturation,
    /// What rests of 5 to 50 s between random writes bring back
    HostIdle,
    /// Writes in order, at random, and in order again: what the one leaves to the other
    CrossStimulus,
    /// All of these, one after the other, each from a purge on
    All,
}

impl TestArg {
    fn tests(self) -> Vec<Test> {
        match self {
            TestArg::Iops => vec![Test::Iops],
            TestArg::Throughput => vec![Test::Throughput],
            TestArg::Latency => vec![Test::Latency],
            TestArg::WriteSaturation => vec![Test::WriteSaturation],
            TestArg::HostIdle => vec![Test::HostIdle],
            TestArg::CrossStimulus => vec![Test::CrossStimulus],
            TestArg::All => Test::ALL.to_vec(),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    target: String,
    tests: &'d [Found],
    run: &'d Run,
}

pub(crate) fn run(args: &SniaArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    ensure!(args.scale > 0.0 && args.scale <= 1.0, "--scale is a share above 0, up to 1");
    let (stop, quiet) = (Stop::new(), args.output.json);
    let how = OpenHow { direct: true, write: true };
    let wanted = Wanted { name: args.target.clone(), how, lay_out_bytes: None, read: false };
    let TargetArgs { connections, destroy_data: destroy } = args.opening;
    let opening = Opening { connections, destroy, quiet, seed: args.seed, stop: &stop };
    let (target, tests) = (args.target.to_string(), args.test.tests());
    let layout = |size_bytes| {
        snia::layout(size_bytes, args.span)
            .with_context(|| format!("{target}: there is no MiB to measure on"))
    };
    let names: Vec<&str> = tests.iter().map(|test| test.name()).collect();
    let title = format!("SNIA's kind of test on {target}: {}", names.join(", "));
    let mut watcher = Watcher::new("", quiet, &stop);
    let named = Named { title, target: target.clone() };
    let (found, mut run) = tested(named, wanted, opening, &mut watcher, layout, |tester| {
        let span_bytes = tester.layout().file_bytes;
        let mut found = Vec::new();
        for test in tests {
            if tester.is_over() {
                break;
            }
            let plan = SniaPlan { test, span_bytes, scale: args.scale, seed: args.seed };
            found.push(snia::snia(tester, &plan)?);
        }
        Ok(found)
    })?;
    let steady = judge(&args.output, &mut run);
    match quiet {
        true => say_record(&Document { target, tests: &found, run: &run })?,
        false => {
            say(&run.title);
            say(snia::text(&found, &run).trim_end());
            run.notes.iter().chain(&steady).for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep_with(&args.output, &run, &snia::page(&found, &run))?;
    let unsteady = |found: &&Found| found.steady.iter().any(|steady| steady.steadiness.reached.is_none());
    let unsteady: Vec<&str> = found.iter().filter(unsteady).map(|found| found.test.name()).collect();
    Ok(match outcome(&[run]) {
        Outcome::Good if !unsteady.is_empty() => {
            Outcome::Problem(format!("no steady state was reached: {}", unsteady.join(", ")))
        }
        outcome => outcome,
    })
}
