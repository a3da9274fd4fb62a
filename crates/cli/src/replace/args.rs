//! What can be said of replacing a device on the command line.

use crate::paths::DeviceSpec;
use clap::Args;

/// `bimetal replace`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bimetal replace films --slow /dev/disk/by-id/ata-NEW
  bimetal replace films --fast new.img?size=20G
  bimetal replace films
  bimetal replace films --cancel
  bimetal replace films --leave-unreadable

The volume may be served, and used, meanwhile: what is written goes to both devices, and the rest is copied beside that, in a
third of the devices' time while clients are busy. Until the last step the old device is the volume's, and nothing but a copy of
it is on the new one; --cancel ends it at any moment before. After a crash it goes on by itself when the volume is served
again. Ctrl-C ends this command: a server goes on all the same.

The new device is at least as large as what the volume uses of the old one; what is larger is left free. When it is over, the old
one can be taken away: it is refused as a part of this volume from then on. What the volume does not use is not copied. What
cannot be read of the old device is tried again each minute: while something cannot, the old one stays (`bimetal scrub` repairs
what it can). --leave-unreadable does without what a slow device could not read three times, a minute apart: it stays an error, on
the new device as well, until it is written again. The new device is not an NBD export.

A fast device that is gone is replaced, too, where the volume is protected: it goes on with its image, for good.

With neither --fast nor --slow it is said how far it has come.

Exit code: 0; 1 where it failed or cannot come to its end; 2 where it cannot begin.")]
pub(crate) struct ReplaceArgs {
    /// Name of the volume, or path of its volume file
    pub(crate) volume: String,
    /// The device that is to be the fast one: PATH, or PATH?size=10G to create a sparse file
    #[arg(long, value_name = "DEV", value_parser = DeviceSpec::parse_fast, conflicts_with = "slow")]
    pub(crate) fast: Option<DeviceSpec>,
    /// The device that is to be the slow one
    #[arg(long, value_name = "DEV", value_parser = DeviceSpec::parse)]
    pub(crate) slow: Option<DeviceSpec>,
    /// Do without what the old slow device cannot read: it stays an error to read that
    #[arg(long, conflicts_with_all = ["fast", "cancel"])]
    pub(crate) leave_unreadable: bool,
    /// End it; the old device stays
    #[arg(long)]
    pub(crate) cancel: bool,
    /// Overwrite what is on the new device
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON document on standard output and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}
