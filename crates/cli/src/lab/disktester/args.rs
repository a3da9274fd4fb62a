//! What the tests after DiskTester are told.

use crate::lab::args::{OutputArgs, TargetArgs, time};
use bimetal_lab::load::MAX_IN_FLIGHT;
use bimetal_lab::target::TargetName;
use bimetal_models::size;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// How files are gone through.
#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// Bytes of an I/O; a file that is smaller is one I/O
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "8M")]
    pub(crate) transfer: u64,
    /// I/Os in flight
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_IN_FLIGHT)))]
    pub(crate) depth: u32,
    /// Through the page cache, for file systems that cannot do without it
    #[arg(long)]
    pub(crate) buffered: bool,
}

/// `bimetal lab create-files`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab create-files -n 1000 -f 256M /mnt/fused
  bimetal lab create-files -n 100 -f 256M --verify --html files.html /mnt/fused
  bimetal lab create-files -n 1000 -f 256M scenario:scenarios/files-small.toml

The files go to DIR/bimetal-lab-files, where read-files finds them; they stay until that folder is removed. Files that
the lab made there before are replaced, anything else there is not touched. Where the target is no directory but a file,
a block device, or whatever else the lab can measure, files are parts of it, one behind the other.

A row is shown every 5 s: MB/s (of 2^20 bytes, as in DiskTester) over windows from 2 s to 60 min, and since the start. Ctrl-C ends with what
was done; the files that are complete stay.")]
pub(crate) struct CreateFilesArgs {
    /// A directory of a mounted file system, or any target of the lab
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// How many
    #[arg(short = 'n', long = "files", value_name = "N", default_value_t = 100)]
    pub(crate) count: u64,
    /// Bytes of each: a multiple of 4096
    #[arg(short = 'f', long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    pub(crate) file_size: u64,
    /// Stamp each sector with where it belongs, read all of it afterwards, and compare
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `bimetal lab read-files`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab read-files --iterations 3 /mnt/fused
  bimetal lab read-files -n 100 -f 256M /dev/sdb
  bimetal lab read-files -n 32 -f 256M --iterations 3 scenario:scenarios/files-small.toml

In a directory, the files are those that create-files made there. Elsewhere -n and -f say how many parts of the target
are read. A simulated volume is new each time, so its files are created first.")]
pub(crate) struct ReadFilesArgs {
    /// A directory of a mounted file system, or any target of the lab
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// How often all of them are read
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) iterations: u32,
    /// Compare what is read with what `create-files --verify` wrote
    #[arg(long)]
    pub(crate) verify: bool,
    /// How many, where the target is no directory
    #[arg(short = 'n', long = "files", value_name = "N", requires = "file_size")]
    pub(crate) count: Option<u64>,
    /// Bytes of each, where the target is no directory
    #[arg(short = 'f', long, value_name = "SIZE", value_parser = size::parse, requires = "count")]
    pub(crate) file_size: Option<u64>,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `bimetal lab fill`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab fill scratch.img --html fill.html
  bimetal lab fill /dev/sdb --destroy-data --rest 60s
  bimetal lab fill scenario:scenarios/hybrid-2012-fill.toml

The target is written in 1000 equal parts, then read in the same order. It is said where writing falls to a lower speed for
good, how deep, and how much went at the old speed after that. With --rest, the target is left alone once it has fallen:
what a landing zone takes after a pause can be seen then. In a directory, 95 % of what is free are filled, and the
files are removed in the end.")]
pub(crate) struct FillArgs {
    /// A directory of a mounted file system, or any target of the lab
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// Leave the target alone once it has become slow: until it is quiet, or for so long at most
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) rest: Option<Duration>,
    /// Do not read it afterwards
    #[arg(long)]
    pub(crate) no_read: bool,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `bimetal lab idle`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab idle volume:films
  bimetal lab idle /mnt/fused --at-most 2h
  bimetal lab idle /dev/sdb --json

Nothing is asked of the target. A volume of Bimetal, served or not, tells what it promotes, demotes, copies and merges; of
a file system or a block device the kernel tells what its device reads and writes. It ends when nothing was done for
--quiet, or less than 1 MiB by a device.")]
pub(crate) struct IdleArgs {
    /// volume:NAME, a directory of a mounted file system, or a block device
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// It is over when the target has done nothing for so long
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    pub(crate) quiet: Duration,
    /// And after so long in any case
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "120min")]
    pub(crate) at_most: Duration,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with a plot of what it did by when to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Replace a file that is there already
    #[arg(long)]
    pub(crate) force: bool,
}

/// `bimetal lab adaptation`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal lab adaptation /mnt/fused --html adaptation.html
  bimetal lab adaptation volume:films --destroy-data
  bimetal lab adaptation scenario:scenarios/hybrid-2012-files.toml -f 256M

Files are created until they have become slow, and some more: the fast tier is full. The first are read, then the last ones
--reads times; --rounds times the volume is left alone until it is quiet, and the last ones are read again. A volume
that spills leaves them as slow as they were; one that migrates has them risen. In a directory, the files are removed in
the end.")]
pub(crate) struct AdaptationArgs {
    /// A directory of a mounted file system, or any target of the lab
    #[arg(value_name = "TARGET", value_parser = TargetName::parse)]
    pub(crate) target: TargetName,
    /// Create so many files [default: as many as are needed to see the fast tier full]
    #[arg(short = 'n', long = "files", value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Bytes of each: a multiple of 4096 [default: a 400th of the room, 256M at most]
    #[arg(short = 'f', long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) file_size: Option<u64>,
    /// How often the late files are read before the volume is left alone
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) reads: u32,
    /// How often it is left alone, and they are read again
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// It is left alone until it has done nothing for so long, where it tells
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub(crate) quiet: Duration,
    /// And for so long at most [default: 120min; 5min where the target does not tell]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) idle: Option<Duration>,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) opening: TargetArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
