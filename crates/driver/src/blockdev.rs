//! What the kernel says about a block device, asked by `ioctl`.
//!
//! The requests and their arguments are those of Linux's `include/uapi/linux/fs.h`.

use rustix::io::Result;
use std::os::fd::AsFd;

/// `BLKROGET`: `_IO(0x12, 94)`, gives an `int`.
const BLKROGET: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 94);
/// `BLKGETSIZE64`: `_IOR(0x12, 114, size_t)`, gives a `u64`, bytes.
const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
/// `BLOCK_URING_CMD_DISCARD`: `_IO(0x12, 0)` of `include/uapi/linux/blkdev.h`, Linux 6.12 and newer.
pub(crate) const URING_DISCARD: u32 = rustix::ioctl::opcode::none(0x12, 0) as u32;

/// What matters of a block device, once it is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Its size in bytes.
    pub(crate) size_bytes: u64,
    /// The smallest unit that it reads and writes.
    pub(crate) logical_sector_bytes: u32,
    /// The unit that it writes without reading first.
    pub(crate) physical_sector_bytes: u32,
    /// Whether writing is forbidden.
    pub(crate) read_only: bool,
}

/// Asks the kernel about an open block device.
pub(crate) fn facts(fd: impl AsFd) -> Result<Facts> {
    let fd = fd.as_fd();
    // SAFETY: `BLKGETSIZE64` writes one `u64` to its argument and nothing else; `Getter` passes room for one.
    let size_bytes = unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new())? };
    // SAFETY: `BLKROGET` writes one `int` to its argument and nothing else; `Getter` passes room for one.
    let read_only = unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<BLKROGET, i32>::new())? };
    Ok(Facts {
        size_bytes,
        logical_sector_bytes: rustix::fs::ioctl_blksszget(fd)?,
        physical_sector_bytes: rustix::fs::ioctl_blkpbszget(fd)?,
        read_only: read_only != 0,
    })
}
