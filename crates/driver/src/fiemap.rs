//! Where the bytes of a file lie on the block device below its file system, as `FS_IOC_FIEMAP` says.
//!
//! The request and its structures are those of Linux's `include/uapi/linux/fiemap.h`.

use rustix::io::Result;
use std::os::fd::AsFd;

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`, whose size is that of its head, 32 bytes.
const FS_IOC_FIEMAP: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Head>(b'f', 11);
/// Extents asked for at a time.
const EXTENTS: usize = 128;

/// It is the file's last.
const LAST: u32 = 0x1;
/// Where it lies is not known, or not yet.
const UNKNOWN: u32 = 0x2;
/// Its bytes lie in the file's inode, or with others' in one block.
const NOT_ALIGNED: u32 = 0x100;
/// It was allocated and not written: it reads zeros, whatever the device holds.
const UNWRITTEN: u32 = 0x800;

/// The head of `struct fiemap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` with room for some extents.
#[repr(C)]
struct Fiemap {
    head: Head,
    extents: [RawExtent; EXTENTS],
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Where in the file it begins.
    pub logical: u64,
    /// Where on the device; none where that is not known.
    pub physical: Option<u64>,
    /// Bytes.
    pub len: u64,
}

/// Where the data of an open file lies, in order: holes, and what was allocated and never written, are left out.
///
/// # Errors
/// Where the file system does not say, or cannot read it.
pub fn file_extents(file: impl AsFd) -> Result<Vec<FileExtent>> {
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let head = Head { start, length: u64::MAX - start, extent_count: EXTENTS as u32, ..Head::default() };
        let mut map = Fiemap { head, extents: [RawExtent::default(); EXTENTS] };
        // SAFETY: `FS_IOC_FIEMAP` reads the head and writes it, and at most `extent_count` extents behind it, for which
        // there is room; all of them are plain numbers, so whatever it writes is valid.
        unsafe {
            rustix::ioctl::ioctl(&file, rustix::ioctl::Updater::<FS_IOC_FIEMAP, Fiemap>::new(&mut map))?
        };
        let extents = &map.extents[..(map.head.mapped_extents as usize).min(EXTENTS)];
        found.extend(extents.iter().filter_map(extent));
        match extents.last() {
            Some(last) if last.flags & LAST == 0 && last.logical + last.length > start => {
                start = last.logical + last.length;
            }
            _ => return Ok(found),
        }
    }
}

fn extent(raw: &RawExtent) -> Option<FileExtent> {
    // What lies in the inode was read with it.
    if raw.flags & UNWRITTEN != 0 || raw.length == 0 || raw.flags & NOT_ALIGNED != 0 && raw.physical == 0 {
        return None;
    }
    let physical = (raw.flags & UNKNOWN == 0).then_some(raw.physical);
    Some(FileExtent { logical: raw.logical, physical, len: raw.length })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!((size_of::<Head>(), size_of::<RawExtent>(), FS_IOC_FIEMAP), (32, 56, 0xc020_660b));
    }

    #[test]
    fn what_was_never_written_is_no_data() {
        let raw = RawExtent { logical: 4096, physical: 1 << 20, length: 8192, ..RawExtent::default() };
        let known = FileExtent { logical: 4096, physical: Some(1 << 20), len: 8192 };
        assert_eq!(extent(&raw), Some(known));
        assert_eq!(extent(&RawExtent { flags: UNWRITTEN, ..raw }), None);
        assert_eq!(
            extent(&RawExtent { flags: UNKNOWN, ..raw }),
            Some(FileExtent { physical: None, ..known })
        );
    }
}
