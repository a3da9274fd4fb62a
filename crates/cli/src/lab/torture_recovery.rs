//! `bimetal lab torture-recovery`

use super::args::{OutputArgs, TargetArgs, time};
use super::disktester::Listener;
use super::report::{judge, keep_with, look_ahead, outcome};
use super::stop::Stop;
use super::target::{Opening, Wanted};
use super::tested::{Named, tested};
use crate::{Outcome, say, say_record};
use anyhow::{Context as _, ensure};
use bimetal_lab::classic::torture_recovery::{self as torture, Found, TorturePlan};
use bimetal_lab::record::Run;
use bimetal_lab::target::{OpenHow, TargetName};
use clap::Args;
use serde::Serialize;
use std::time::Duration;

/// `bimetal lab torture-recovery`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab torture-recovery model:ssd-128gb-2012 --html torture.html
  bimetal lab torture-recovery /dev/sdb --destroy-data
  bimetal lab torture-recovery 'model:ssd-128gb-2012?size=16G' --torture 150s --json

All of the target is given back (TRIM) and written in order; then random writes of 4 KiB go over all of it, 32 in flight;
then it is written in order twice, given back again, and written in order. A pass is back where it has 90 % of the speed
that the same place had when the target was fresh, and keeps it. All of the target is overwritten, four times and more.")]
pub(crate) struct TortureRecoveryArgs {
    /// A file, a block device, or whatever else the lab can measure
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// How long random writes go on
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "20min")]
    pub(crate) torture: Duration,
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

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    found: &'d Found,
    run: &'d Run,
}

pub(crate) fn run(args: &TortureRecoveryArgs) -> anyhow::Result<Outcome> {
    look_ahead(&args.output, Some(&args.target))?;
    ensure!(args.torture > Duration::ZERO, "--torture is a time above 0");
    let (stop, quiet) = (Stop::new(), args.output.json);
    let how = OpenHow { direct: !args.buffered, write: true };
    let wanted = Wanted { name: args.target.clone(), how, lay_out_bytes: None, read: false };
    let TargetArgs { connections, destroy_data: destroy } = args.opening;
    let opening = Opening { connections, destroy, quiet, seed: args.seed, stop: &stop };
    let target = args.target.to_string();
    let layout = |size_bytes| {
        torture::layout(size_bytes).with_context(|| {
            format!("{target} has {size_bytes} bytes, too few for {} parts", torture::PART_COUNT)
        })
    };
    let plan = TorturePlan { torture: args.torture, seed: args.seed };
    let mut listener = Listener::new(quiet, &stop);
    let named = Named { title: format!("torture and recovery of {target}"), target: target.clone() };
    let (found, mut run) = tested(named, wanted, opening, &mut listener, layout, |tester| {
        torture::torture_recovery(tester, plan)
    })?;
    run.notes.extend(found.verdict.iter().flat_map(|verdict| verdict.sentences.clone()));
    let steady = judge(&args.output, &mut run);
    match quiet {
        true => say_record(&Document { found: &found, run: &run })?,
        false => {
            say("");
            run.notes.iter().chain(&steady).for_each(|line| say(line));
        }
    }
    // Behind what is printed: a file that cannot be written loses no run.
    keep_with(&args.output, &run, &torture::extra(&found, &run))?;
    Ok(outcome(&[run]))
}
