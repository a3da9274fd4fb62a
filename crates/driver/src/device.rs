//! Opening the files and block devices that hold a volume.

use rustix::fs::{
    Advice, FlockOperation, Mode, OFlags, SeekFrom, fadvise, fdatasync, flock, fstat, fstatfs, ftruncate,
    open, seek,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why a device cannot be opened. Each sentence names it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceOpenError {
    /// There is no such file.
    #[error("{} does not exist; write {}?size=10G to create it as a sparse file", path.display(), path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds its lock.
    #[error("{} is in use by another process; stop the one that serves it first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// An open, exclusively locked file or block device.
#[derive(Debug)]
pub struct BlockFile {
    path: PathBuf,
    fd: OwnedFd,
    size_bytes: u64,
    direct: bool,
    in_memory: bool,
    punch: bool,
}

impl BlockFile {
    /// Opens and locks a file or block device that exists, past the page cache where its file system allows.
    ///
    /// The lock is `flock`'s, which the kernel drops only when the last reference to the open file is gone:
    /// the last I/O of a killed process holds one.
    pub fn open(path: &Path) -> Result<BlockFile, DeviceOpenError> {
        let plain = OFlags::RDWR | OFlags::CLOEXEC;
        let (fd, direct) = match open(path, plain | OFlags::DIRECT, Mode::empty()) {
            Ok(fd) => (fd, true),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                (open(path, plain, Mode::empty()).map_err(|e| open_error(path, e))?, false)
            }
            Err(error) => return Err(open_error(path, error)),
        };
        lock(path, &fd)?;
        if !direct {
            // After a failed write-back the cache holds what the disk does not; nothing read may come from it.
            fdatasync(&fd).map_err(|e| system(path, "flush", e))?;
            let _ = fadvise(&fd, 0, None, Advice::DontNeed);
        }
        let size_bytes = size_of(path, &fd)?;
        /// `TMPFS_MAGIC`
        const TMPFS: i64 = 0x0102_1994;
        let in_memory = fstatfs(&fd).is_ok_and(|fs| fs.f_type == TMPFS);
        Ok(BlockFile { path: path.into(), fd, size_bytes, direct, in_memory, punch: true })
    }

    /// Creates a sparse file of `size_bytes` bytes. One that exists is left as it is unless it is empty or
    /// shorter, in which case it grows. Returns whether it is new.
    pub fn create_sparse(path: &Path, size_bytes: u64) -> Result<bool, DeviceOpenError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let existed = path.exists();
        let fd = open(path, flags, Mode::from_raw_mode(0o600)).map_err(|e| open_error(path, e))?;
        if size_of(path, &fd)? < size_bytes {
            ftruncate(&fd, size_bytes).map_err(|e| system(path, "set the size of", e))?;
        }
        Ok(!existed)
    }

    /// How it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether its file system keeps it in memory, so that I/O on it does not wait.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// For submissions.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether giving space back has worked so far.
    pub(crate) fn can_punch(&self) -> bool {
        self.punch
    }

    /// The file system refused to give space back: do not ask again.
    pub(crate) fn cannot_punch(&mut self) {
        self.punch = false;
    }
}

/// How long to wait for a lock: a process that was just killed holds it until its last I/O has ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

fn lock(path: &Path, fd: &OwnedFd) -> Result<(), DeviceOpenError> {
    let start = Instant::now();
    loop {
        match flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(Errno::WOULDBLOCK) => return Err(DeviceOpenError::InUse { path: path.into() }),
            Err(error) => return Err(system(path, "lock", error)),
        }
    }
}

fn size_of(path: &Path, fd: &OwnedFd) -> Result<u64, DeviceOpenError> {
    let stat = fstat(fd).map_err(|e| system(path, "examine", e))?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::RegularFile => Ok(stat.st_size as u64),
        rustix::fs::FileType::BlockDevice => {
            seek(fd, SeekFrom::End(0)).map_err(|e| system(path, "find the size of", e))
        }
        _ => Err(DeviceOpenError::WrongKind { path: path.into() }),
    }
}

fn open_error(path: &Path, error: Errno) -> DeviceOpenError {
    match error {
        Errno::NOENT => DeviceOpenError::Missing { path: path.into() },
        Errno::ISDIR | Errno::NXIO => DeviceOpenError::WrongKind { path: path.into() },
        error => system(path, "open", error),
    }
}

fn system(path: &Path, what: &'static str, error: Errno) -> DeviceOpenError {
    DeviceOpenError::System { path: path.into(), what, source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opening_is_refused_and_says_why() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("device");
        let missing = BlockFile::open(&path).expect_err("it does not exist");
        assert!(missing.to_string().contains("does not exist"), "{missing}");
        assert!(BlockFile::create_sparse(&path, 1 << 20).expect("create"));
        let first = BlockFile::open(&path).expect("open");
        assert_eq!(first.size_bytes(), 1 << 20);
        let second = BlockFile::open(&path).expect_err("it is locked");
        assert!(second.to_string().contains("in use"), "{second}");
        drop(first);
        assert!(BlockFile::open(&path).is_ok());
        let wrong = BlockFile::open(dir.path()).expect_err("a directory");
        assert!(wrong.to_string().contains("neither"), "{wrong}");
    }
}
