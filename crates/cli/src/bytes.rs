//! Bytes of something that is looked at before it is used: a file, a block device, or an export of an NBD server.

use bimetal_driver::BlockFile;
use rustix::fs::{Advice, SeekFrom};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

/// What can be read at a place.
pub(crate) trait Bytes {
    /// Reads all of `bytes`.
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    /// The next data from a place on, where that is known: `None` where nothing knows of holes.
    fn data_from(&self, at: u64, size: u64) -> Option<Data>;

    /// What was read there is not needed any more.
    fn forget(&self, at: u64, len: u64);
}

/// Where data is.
pub(crate) enum Data {
    /// From here to there.
    At(u64, u64),
    /// Nowhere up to the end.
    Nowhere,
}

impl Bytes for File {
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, at)
    }

    fn data_from(&self, at: u64, size: u64) -> Option<Data> {
        match rustix::fs::seek(self, SeekFrom::Data(at)) {
            Ok(begin) => {
                let end = rustix::fs::seek(self, SeekFrom::Hole(begin)).unwrap_or(size);
                Some(Data::At(begin, end))
            }
            // No data up to the end.
            Err(rustix::io::Errno::NXIO) => Some(Data::Nowhere),
            // A device or file system that knows no holes.
            Err(_) => None,
        }
    }

    fn forget(&self, at: u64, len: u64) {
        // What was only looked at is not to push what others need out of the page cache.
        let _ = rustix::fs::fadvise(self, at, NonZeroU64::new(len), Advice::DontNeed);
    }
}

/// An export.
impl Bytes for BlockFile {
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.read_remote(at, bytes)
    }

    fn data_from(&self, _at: u64, _size: u64) -> Option<Data> {
        None
    }

    fn forget(&self, _at: u64, _len: u64) {}
}
