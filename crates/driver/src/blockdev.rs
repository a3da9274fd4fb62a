//! What the kernel says about a block device, asked by `ioctl`, and locks of ranges.
//!
//! The requests and their arguments are those of Linux's `include/uapi/linux/fs.h`, unless something else is said.

use crate::storage::Place;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd as _};

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
    let size_bytes = size_bytes(fd)?;
    // SAFETY: `BLKROGET` writes one `int` to its argument and nothing else; `Getter` passes room for one.
    let read_only = unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Getter::<BLKROGET, i32>::new())? };
    Ok(Facts {
        size_bytes,
        logical_sector_bytes: rustix::fs::ioctl_blksszget(fd)?,
        physical_sector_bytes: rustix::fs::ioctl_blkpbszget(fd)?,
        read_only: read_only != 0,
    })
}

/// `LOOP_GET_STATUS64` of `include/uapi/linux/loop.h`.
const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// What a loop device stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopBelow {
    /// The file, or the block device.
    pub(crate) place: Place,
    /// Where in it the device begins.
    pub(crate) offset: u64,
    /// Bytes of it that are used at most; 0 where all of it is.
    pub(crate) size_limit: u64,
}

/// Asks an open loop device what it stands on; an error on any other, and on one that stands on nothing.
pub(crate) fn loop_below(fd: impl AsFd) -> Result<LoopBelow> {
    // SAFETY: `LOOP_GET_STATUS64` writes one `struct loop_info64` to its argument and nothing else; `Getter` passes room
    // for one, which has the same layout.
    let info = unsafe {
        rustix::ioctl::ioctl(fd.as_fd(), rustix::ioctl::Getter::<LOOP_GET_STATUS64, LoopInfo64>::new())?
    };
    // A file has no number of its own: there the kernel gives that of its file system twice.
    let place = match info.rdevice == info.device || info.rdevice == 0 {
        true => Place::File(info.device, info.inode),
        false => Place::Device(info.rdevice),
    };
    Ok(LoopBelow { place, offset: info.offset, size_limit: info.size_limit })
}

/// Size of an open block device, bytes.
pub(crate) fn size_bytes(fd: impl AsFd) -> Result<u64> {
    // SAFETY: `BLKGETSIZE64` writes one `u64` to its argument and nothing else; `Getter` passes room for one.
    unsafe { rustix::ioctl::ioctl(fd.as_fd(), rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Locks a range of an open file against everybody who locks one that overlaps it through another open file
/// description, of this process or not: alone, or together with others who do not want it alone. The lock goes with the
/// description. `EAGAIN` where somebody else has one.
pub(crate) fn lock_range(fd: impl AsFd, start: u64, bytes: u64, alone: bool) -> Result<()> {
    let kind = if alone { libc::F_WRLCK } else { libc::F_RDLCK };
    // SAFETY: `flock64` is a plain C structure for which all zeros is a valid value.
    let mut lock: libc::flock64 = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = i64::try_from(start).unwrap_or(i64::MAX);
    // No length is all that follows.
    lock.l_len =
        i64::try_from(bytes).ok().filter(|bytes| lock.l_start.checked_add(*bytes).is_some()).unwrap_or(0);
    // SAFETY: reads one `flock64` from its argument and nothing else; the descriptor is open.
    let done = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match done {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        _ => Ok(()),
    }
}
