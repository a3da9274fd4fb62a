//! Something is read of a device for no other reason than to hear whether it reads at all: what tells a block that cannot
//! be read from a device that reads nothing.
//!
//! Superblocks are read: they are known to be good, each device has two of them, far apart, and nobody needs them while the
//! volume is open. Should a device fail to read both, one is written again, until that has succeeded once: sectors that went
//! bad are good then, and who waits to hear whether the device reads at all does not wait for ever.

use crate::base::arena::Buf;

/// A question to one device.
#[derive(Default)]
pub struct Probe {
    pub(crate) wanted: bool,
    pub(crate) asked: Option<Asked>,
    /// Its superblock was written again in this opening.
    pub(crate) mended: bool,
}

/// A superblock that is being read or written.
pub(crate) struct Asked {
    pub(crate) buf: Buf,
    pub(crate) offset: u64,
    pub(crate) is_write: bool,
}
