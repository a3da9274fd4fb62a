//! What can be said about looking at volumes.

use crate::args::PinTier;
use crate::size;
use clap::Args;
use std::path::PathBuf;

/// `bimetal doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal doctor films
  bimetal doctor films --json
  bimetal doctor films --active                     tries it on a scratch volume, too

Says what is wrong with a volume and what stands below it, each with its cure: devices, their file systems and sectors, caches,
flushes and discards, wear, memory, moves, hot chunks in the wrong place, losses, and whether it is served when it ought to be. It
writes nothing, and works on a volume that is served, on one that is not, and on one that is broken or lacks a device. With --active
it also times reads of both devices, which wakes a disk that sleeps, and makes a scratch volume in the system's temporary directory,
on which it writes, moves, reads back and checks.
Exit codes: 0 nothing was found; 1 something was, and is listed; 2 it could not look.")]
pub(crate) struct DoctorArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Time reads of the devices, and try a scratch volume
    #[arg(long)]
    pub(crate) active: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal map`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal map films
  bimetal map films --from 1G --to 9G --cells 720
  bimetal map films --json
  bimetal map films --picture films.svg

Shows how much of each part of a volume is on which tier: a letter for a part, 72 in a line. Where the volume is served, its server is
asked, and a second line says how hot the hottest chunk of each part is. Where it is not, what its devices say is read, nothing is
written, and there is no heat. A part is a number of whole chunks.")]
pub(crate) struct MapArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// The first byte that is shown
    #[arg(long, value_name = "OFFSET", value_parser = size::parse, default_value = "0")]
    pub(crate) from: u64,
    /// The byte behind the last one [default: the end]
    #[arg(long, value_name = "OFFSET", value_parser = size::parse)]
    pub(crate) to: Option<u64>,
    /// Parts that are shown [default: 72; 720 in a picture]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) cells: Option<u64>,
    /// Draw it into this file, too
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) picture: Option<PathBuf>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FilesOrder {
    Size,
    Heat,
}

/// `bimetal files`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal files /films
  bimetal files /films holidays --by heat --top 50
  bimetal files /films index.db --pin fast
  bimetal files /films index.db --unpin
  bimetal files /films --keep-pins

Says of the files of a mounted file system how much of each is on which tier, the largest or the hottest first. The file system may be
on the device of a volume that is attached, on a partition of it, or on a loop device on it; one on LVM, RAID or encryption in between,
and btrfs, are not handled. What was written a moment ago may not be on the device yet: `sync` first. With --pin the chunks that hold
something of the files are pinned to a tier, neighbours included, and with --unpin they are left to their heat again. Which files that
are is noted: where one was moved, renamed or written anew, --keep-pins pins it where it is now, and lets go where it was.")]
pub(crate) struct FilesArgs {
    /// Where the file system is mounted
    pub(crate) mountpoint: PathBuf,
    /// Only this file, or what is below this directory; may be given from the mount point
    pub(crate) path: Option<PathBuf>,
    /// How many are listed [default: 20; with --json all]
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// What is listed first
    #[arg(long, value_name = "ORDER", default_value = "size")]
    pub(crate) by: FilesOrder,
    /// Keep these files on this tier
    #[arg(long, value_name = "TIER", requires = "path", conflicts_with = "unpin")]
    pub(crate) pin: Option<PinTier>,
    /// Leave these files to their heat
    #[arg(long, requires = "path")]
    pub(crate) unpin: bool,
    /// Pin what was pinned by file where it lies now, under whatever name, and let go where it lay before
    #[arg(long, conflicts_with_all = ["path", "pin", "unpin", "top"])]
    pub(crate) keep_pins: bool,
    /// With --keep-pins: do so again and again, so long apart, until Ctrl-C
    #[arg(long, value_name = "TIME", requires = "keep_pins", value_parser = crate::watch::times::span)]
    pub(crate) every: Option<std::time::Duration>,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal top`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal top
  bimetal top films photos
  bimetal top films --once
  bimetal top films --once --json

Shows each second what volumes do: throughput, operations, latency, busy share and queue of each device; how full tiers and landing
zone are; how much of what clients read and wrote was on the fast tier, of late and ever, by the history where it was not watched so
long; what moves where and why; and where it is hot. Keys: q ends it, Tab goes to the next volume, s sorts the devices, p pauses what
need not be moved and resumes it, up and down mark a hot range, Enter asks why it is where it is, Esc goes back. A server that goes away is waited for. With NO_COLOR set there is no colour. Without names, all
volumes that this user serves are shown.")]
pub(crate) struct TopArgs {
    /// Names of volumes, or paths of their volume files
    #[arg(value_name = "VOLUME")]
    pub(crate) volumes: Vec<String>,
    /// Look for a second, print one screen as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: print one JSON document on standard output and nothing else there
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}
