//! A device of the machine: the volume as a block device of the kernel, which this server serves.
//!
//! What it is, and who takes it up after this server, is in a file beside the control socket ([`Record`]). The ways to
//! have one are `ublk`, the kernel's NBD client, and `nbdfuse` with a loop device; the best that the machine has is taken.

mod by_nbd;
mod by_ublk;
mod fuse;
mod link;
mod machine;
mod record;

pub(crate) use by_nbd::MachineNbd;
pub(crate) use by_ublk::{MachineUblk, UBLK, UBLK_CONTROL, from_ublk};
pub(crate) use fuse::MachineFuse;
pub(crate) use machine::Machine;
pub use record::{Record, recorded};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long requests wait while nobody serves the device, where nothing else is said, seconds.
pub const WAIT_SECONDS: u32 = 300;
/// Connections of devices of the machine, beside those of clients: one volume has one device.
pub(crate) const MACHINE_CONNECTIONS: usize = 1;

/// A way to have a device of the machine, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The kernel's `ublk` driver.
    Ublk,
    /// The kernel's NBD client.
    Nbd,
    /// `nbdfuse`, and a loop device on its file.
    Fuse,
}

impl Kind {
    /// All of them, the best first.
    pub const ALL: [Kind; 3] = [Kind::Ublk, Kind::Nbd, Kind::Fuse];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ublk => "ublk",
            Kind::Nbd => "nbd",
            Kind::Fuse => "fuse",
        }
    }
}

/// What is wished for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// This way and no other; else the best there is.
    pub kind: Option<Kind>,
    /// Nobody may write.
    pub read_only: bool,
    /// How long requests wait while nobody serves the device, seconds.
    pub wait_seconds: u32,
}

/// A device of the machine, as documents tell of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedDoc {
    /// Its path: the link that is named after the volume, where it could be made.
    pub path: PathBuf,
    /// What the kernel calls it: `/dev/ublkb0`.
    pub device: PathBuf,
    /// How it is made.
    pub kind: Kind,
    /// Nobody may write.
    pub read_only: bool,
    /// How long requests wait while nobody serves it, seconds.
    pub wait_seconds: u32,
    /// A server serves it; else it waits for one.
    pub served: bool,
    /// Why not a better way, and what else is to be known; a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Takes away the device that a record tells of, and that nobody serves: what waits for it fails.
pub fn remove_orphan(record_file: &Path, record: &Record) -> std::io::Result<()> {
    match record.kind {
        _ if record.put_away => Ok(()),
        Kind::Ublk => by_ublk::remove(record.number, record.ublk_identity()),
        Kind::Nbd => bimetal_driver::kernel_nbd::disconnect(record.number),
        Kind::Fuse => fuse::remove(record),
    }?;
    link::remove(&record.volume, &record.device());
    record::forget(record_file);
    Ok(())
}
