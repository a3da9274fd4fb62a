//! What the quick test is told.

use crate::lab::args::{OutputArgs, TargetArgs, time};
use bimetal_lab::target::TargetName;
use bimetal_models::size;
use clap::Args;
use std::time::Duration;

/// `bimetal lab quick`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab quick /srv/data
  bimetal lab quick /dev/sdb --reads-only --html sdb.html
  bimetal lab quick nbd://localhost/films --destroy-data
  bimetal lab quick model:ssd-128gb-2012

A directory is measured on a file of its own in it, which is removed in the end. Of anything else, the first part is
written over, unless --reads-only says otherwise. Measured are the eight speeds of Xbench's uncached disk test (4 KiB and
256 KiB, in order and at random, one in flight), latencies, a write with its flush, and random reads 32 at a time; the
same is run on the modelled drives that come with the lab, and it is said which of them the target is like. The four rows
that CrystalDiskMark prints (SEQ1M and RND4K, by what is in flight) stand below, in its MB/s and in IOPS.")]
pub(crate) struct QuickArgs {
    /// A directory, a file, a block device, or whatever else the lab can measure
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `bimetal lab compare`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab compare /srv/old /srv/new
  bimetal lab compare /dev/sdb /dev/sdc --reads-only --rounds 10
  bimetal lab compare model:disk-1tb-2012 model:ssd-128gb-2012 --each 1s --json

The quick test runs on both in turn, --rounds times, each first in every other round. For each figure it is said how B
compares with A, with an interval that holds the truth 95 of 100 times, or that no difference was seen; the sentence at the
end is about all figures together. Records of runs are laid side by side by `bimetal lab report`.")]
pub(crate) struct CompareArgs {
    /// A directory, a file, a block device, or whatever else the lab can measure
    #[arg(value_name = "A", value_parser = TargetName::parse)]
    pub(crate) a: TargetName,
    /// What it is compared with
    #[arg(value_name = "B", value_parser = TargetName::parse)]
    pub(crate) b: TargetName,
    /// How often both are run; 6 are needed to judge each figure by itself, 9 for all together
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) rounds: u32,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// How a target is measured.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// Write nothing: what writes would show is missing
    #[arg(long)]
    pub(crate) reads_only: bool,
    /// How much of the target is used, from its start
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "1G")]
    pub(crate) span: u64,
    /// How long each part takes, 14 of `quick` and 9 of `compare`; writing the span in order takes 30 s at most
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "5s")]
    pub(crate) each: Duration,
    /// Where random choices begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
}
