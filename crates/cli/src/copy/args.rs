//! What can be said about copying.

use clap::Args;
use std::path::PathBuf;

/// `bimetal import`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal import /dev/sdc films
  bimetal import old-disk.img films --json

Copies a disk, a partition or a raw image, whole and as it is, into a volume that nobody serves. What is zero there is not
written. What was written is flushed, read back and compared, part by part. A copy that was cut short goes on where it was
when the command is given again, if its source was not changed meanwhile. The source is only read; one that is mounted or in
use is refused, and so is one that is larger than the volume. A volume that holds anything is refused without --force, which
discards it first.")]
pub(crate) struct ImportArgs {
    /// The disk, partition or image
    pub(crate) source: PathBuf,
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// Discard what the volume holds
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// `bimetal export`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal export films old-disk.img
  bimetal export films /dev/sdc

Copies a volume that nobody serves to a sparse file, or to a block device that is as large or larger. What was written is
flushed, read back and compared, part by part. A copy that was cut short goes on where it was when the command is given
again, if nobody opened the volume meanwhile. A target that holds anything is refused without --force, as `create` does.")]
pub(crate) struct ExportArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// The file to write, which is made if it is not there, or the block device
    pub(crate) target: PathBuf,
    /// Overwrite what the target holds
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}
