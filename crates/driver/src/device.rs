//! Opening the files and block devices that hold a volume.
//!
//! The engine reads and writes whole blocks of 4 KiB at multiples of 4 KiB, in buffers that lie at multiples
//! of 4 KiB ([`IO_BYTES`]). So direct I/O works on every device whose logical sectors are 512 or 4096 bytes,
//! and on every file whose file system asks for no coarser alignment; where one does, the page cache is used.
//!
//! A flush is `fdatasync`, which sends a block device's own flush command after what was written, and
//! `RWF_DSYNC` gives a write to one the FUA bit: both hold for files and for block devices alike.

mod plain;

use crate::claims::Claim;
use crate::modelled::Timing;
use crate::remote::{DialError, Export, Standing, Unfit};
use crate::storage::Storage;
use crate::{blockdev, claims};
use bimetal_nbd::{NbdUri, UriError};
use bimetal_units::Nanos;
use rustix::fs::{
    Advice, AtFlags, FileType, FlockOperation, Mode, OFlags, StatxFlags, fadvise, fdatasync, flock, fstat,
    fstatfs, ftruncate, open, stat, statx,
};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Unit and alignment of all I/O on devices, bytes.
pub const IO_BYTES: u32 = bimetal_units::BLOCK_BYTES;

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
    /// The system uses the block device itself.
    #[error("{} is {by}; release it first", path.display())]
    Claimed {
        /// The block device.
        path: PathBuf,
        /// By whom, as far as is known.
        by: String,
    },
    /// Neither a regular file nor a block device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    WrongKind {
        /// The file.
        path: PathBuf,
    },
    /// Nothing can be written to it.
    #[error("{} is read-only; make it, or the file system it is on, writable first", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// Its sectors do not divide our blocks.
    #[error("{} has sectors of {bytes} bytes; use a device with sectors of 512 or 4096 bytes", path.display())]
    SectorSize {
        /// The block device.
        path: PathBuf,
        /// Its logical sector size.
        bytes: u32,
    },
    /// It begins as the URI of an export does, and is none.
    #[error("{} names no export: {why}", path.display())]
    Uri {
        /// As it was written.
        path: PathBuf,
        /// What is wrong with it.
        why: UriError,
    },
    /// Its server grants nothing, or is not there.
    #[error("{} cannot be opened: {why}; see to its server, and to the network between", path.display())]
    Export {
        /// Its URI.
        path: PathBuf,
        /// In words.
        why: String,
    },
    /// Its server is not to be trusted, or does not trust us.
    #[error("{} cannot be opened: {why}", path.display())]
    Insecure {
        /// Its URI.
        path: PathBuf,
        /// In words, with what can be done.
        why: String,
    },
    /// Its server cannot make anything durable.
    #[error(
        "{} has a server that cannot flush: nothing that it answers would be sure to be kept; export it with flushes",
        path.display()
    )]
    NoFlush {
        /// Its URI.
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

/// How space is given back to a device. What does not work is not asked for again; the next is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GiveBack {
    /// Not at all.
    Nothing,
    /// `fallocate`: a hole in a file; on a block device zeros that take no space, which many SSDs do not have.
    Punch,
    /// A block device's own discard (TRIM, UNMAP, Deallocate); needs Linux 6.12.
    Discard,
}

/// How I/O reaches a device, for whoever wants to know why it is as fast as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFacts {
    /// Past the page cache.
    pub direct: bool,
    /// Whether it is a block device.
    pub block_device: bool,
    /// The smallest unit of I/O, bytes: a block device's logical sector, or the alignment that a file's
    /// direct I/O needs. `None` for files through the page cache and where the kernel does not say.
    pub logical_sector_bytes: Option<u32>,
    /// The unit that a block device writes without reading first, bytes.
    pub physical_sector_bytes: Option<u32>,
    /// The model that says how long it takes to answer; `None` where it answers as soon as it can.
    pub model: Option<&'static str>,
    /// How an export stands; `None` for files and block devices.
    pub remote: Option<RemoteFacts>,
}

/// How an export and its connections stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteFacts {
    /// Connections to it.
    pub connections: u32,
    /// Single writes can be made durable there; else each is followed by a flush.
    pub fua: bool,
    /// Since when it is away.
    pub away_since: Option<Nanos>,
    /// How often the connections broke.
    pub breaks: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// Bytes that were written there and not flushed: they are kept here.
    pub unflushed_bytes: u64,
}

impl RemoteFacts {
    pub(crate) fn new(export: &Export, standing: Standing) -> RemoteFacts {
        RemoteFacts {
            connections: standing.connections,
            fua: export.has_fua(),
            away_since: standing.away_since,
            breaks: standing.breaks,
            resent: standing.resent,
            unflushed_bytes: standing.journal_bytes,
        }
    }
}

/// What a device is.
#[derive(Debug)]
enum Store {
    /// A file or a block device.
    Local(OwnedFd),
    /// An export of an NBD server.
    Export(Box<Export>),
}

/// An open, exclusively locked file or block device; or an export of an NBD server, which nothing can lock.
#[derive(Debug)]
pub struct BlockFile {
    path: PathBuf,
    store: Store,
    size_bytes: u64,
    facts: IoFacts,
    in_memory: bool,
    give_back: GiveBack,
    timing: Option<Timing>,
    claim: Claim,
    /// It begins at this byte of what is open: it is a part of another device.
    base: u64,
}

impl BlockFile {
    /// Opens and locks a file or block device that exists, past the page cache where its file system allows.
    ///
    /// The lock is `flock`'s, which the kernel drops only when the last reference to the open file is gone:
    /// the last I/O of a killed process holds one. A block device is claimed besides (`O_EXCL`), so that what
    /// is mounted, or part of another device, is refused, and cannot be mounted while it is open. The same bytes
    /// under another name are the same storage, and refused where anybody uses them (`claims.rs`).
    pub fn open(path: &Path) -> Result<BlockFile, DeviceOpenError> {
        BlockFile::open_for(path, OFlags::RDWR)
    }

    /// The same to read it and nothing else: the kernel refuses every write. A device that takes none any more, as an SSD at
    /// the end of its life, is opened so, too.
    pub fn open_read_only(path: &Path) -> Result<BlockFile, DeviceOpenError> {
        BlockFile::open_for(path, OFlags::RDONLY)
    }

    fn open_for(path: &Path, access: OFlags) -> Result<BlockFile, DeviceOpenError> {
        if let Some(uri) = path.to_str().and_then(NbdUri::parse) {
            let uri = uri.map_err(|why| DeviceOpenError::Uri { path: path.into(), why })?;
            return BlockFile::open_export(path, uri, access);
        }
        let kind = stat(path).map_err(|e| open_error(path, e)).map(|s| FileType::from_raw_mode(s.st_mode))?;
        let mut file = match kind {
            FileType::RegularFile => BlockFile::open_file(path, access)?,
            FileType::BlockDevice => BlockFile::open_block_device(path, access)?,
            _ => return Err(DeviceOpenError::WrongKind { path: path.into() }),
        };
        // Between the two calls something else may have taken the name.
        let fd = file.fd().ok_or_else(|| DeviceOpenError::WrongKind { path: path.into() })?;
        match fstat(fd).map(|s| FileType::from_raw_mode(s.st_mode)) {
            Ok(now) if now == kind => {}
            _ => return Err(DeviceOpenError::WrongKind { path: path.into() }),
        }
        file.claim = claim(path, fd)?;
        Ok(file)
    }

    fn open_export(path: &Path, uri: NbdUri, access: OFlags) -> Result<BlockFile, DeviceOpenError> {
        let export = Export::find(uri, access == OFlags::RDWR).map_err(|unfit| {
            let path = path.into();
            match unfit {
                Unfit::Dial(DialError::Insecure(why)) => DeviceOpenError::Insecure { path, why },
                Unfit::Dial(error) => DeviceOpenError::Export { path, why: error.whole() },
                Unfit::Blocks(bytes) => DeviceOpenError::SectorSize { path, bytes },
                Unfit::Payload(bytes) => {
                    let why = format!(
                        "its server takes no more than {bytes} bytes at a time, and a block has {IO_BYTES}"
                    );
                    DeviceOpenError::Export { path, why }
                }
                Unfit::ReadOnly => DeviceOpenError::ReadOnly { path },
                Unfit::NoFlush => DeviceOpenError::NoFlush { path },
            }
        })?;
        let remote = Some(RemoteFacts::new(&export, Standing::default()));
        Ok(BlockFile {
            path: path.into(),
            size_bytes: export.size_bytes(),
            facts: IoFacts { direct: true, remote, ..IoFacts::default() },
            in_memory: false,
            give_back: if export.has_trim() { GiveBack::Discard } else { GiveBack::Nothing },
            timing: None,
            claim: Claim::default(),
            base: 0,
            store: Store::Export(Box::new(export)),
        })
    }

    fn open_file(path: &Path, access: OFlags) -> Result<BlockFile, DeviceOpenError> {
        let (fd, align) = open_direct_or_cached(path, access)?;
        lock(path, &fd)?;
        if align.is_none() {
            // After a failed write-back the cache holds what the disk does not; nothing read may come from it.
            fdatasync(&fd).map_err(|e| system(path, "flush", e))?;
            let _ = fadvise(&fd, 0, None, Advice::DontNeed);
        }
        /// `TMPFS_MAGIC`
        const TMPFS: i64 = 0x0102_1994;
        Ok(BlockFile {
            path: path.into(),
            size_bytes: fstat(&fd).map_err(|e| system(path, "examine", e))?.st_size as u64,
            facts: IoFacts {
                direct: align.is_some(),
                logical_sector_bytes: align.filter(|&bytes| bytes > 0),
                ..IoFacts::default()
            },
            in_memory: fstatfs(&fd).is_ok_and(|fs| fs.f_type == TMPFS),
            give_back: GiveBack::Punch,
            timing: None,
            claim: Claim::default(),
            base: 0,
            store: Store::Local(fd),
        })
    }

    fn open_block_device(path: &Path, access: OFlags) -> Result<BlockFile, DeviceOpenError> {
        let fd = open_exclusively(path, access)?;
        lock(path, &fd)?;
        let device = blockdev::facts(&fd).map_err(|e| system(path, "examine", e))?;
        if device.read_only && access == OFlags::RDWR {
            return Err(DeviceOpenError::ReadOnly { path: path.into() });
        }
        if ![512, IO_BYTES].contains(&device.logical_sector_bytes) {
            return Err(DeviceOpenError::SectorSize {
                path: path.into(),
                bytes: device.logical_sector_bytes,
            });
        }
        Ok(BlockFile {
            path: path.into(),
            store: Store::Local(fd),
            size_bytes: device.size_bytes,
            facts: IoFacts {
                direct: true,
                block_device: true,
                logical_sector_bytes: Some(device.logical_sector_bytes),
                physical_sector_bytes: Some(device.physical_sector_bytes),
                model: None,
                remote: None,
            },
            // Its node is in a file system in memory; its data is not.
            in_memory: false,
            give_back: GiveBack::Discard,
            timing: None,
            claim: Claim::default(),
            base: 0,
        })
    }

    /// Creates a sparse file of `size_bytes` bytes. One that exists is left as it is unless it is empty or
    /// shorter, in which case it grows. Returns whether it is new.
    pub fn create_sparse(path: &Path, size_bytes: u64) -> Result<bool, DeviceOpenError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let existed = path.exists();
        let fd = open(path, flags, Mode::from_raw_mode(0o600)).map_err(|e| open_error(path, e))?;
        let stat = fstat(&fd).map_err(|e| system(path, "examine", e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(DeviceOpenError::WrongKind { path: path.into() });
        }
        if (stat.st_size as u64) < size_bytes {
            ftruncate(&fd, size_bytes).map_err(|e| system(path, "set the size of", e))?;
        }
        Ok(!existed)
    }

    /// A part of this device as one of its own, from a multiple of [`IO_BYTES`] on. It answers as soon as it can, and shares the lock.
    ///
    /// # Errors
    /// Where the system gives no other descriptor, or this is an export.
    pub fn part(&self, at: u64, bytes: u64) -> Result<BlockFile, DeviceOpenError> {
        assert!(at.is_multiple_of(u64::from(IO_BYTES)), "a part from {at} on");
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.size_bytes);
        let fd = self.fd().filter(|_| inside).map_or(Err(Errno::INVAL.into()), OwnedFd::try_clone);
        Ok(BlockFile {
            path: self.path.clone(),
            store: Store::Local(fd.map_err(|error| self.system("open a part of", error))?),
            size_bytes: bytes,
            facts: IoFacts { model: None, ..self.facts },
            timing: None,
            claim: Claim::default(),
            base: self.base + at,
            ..*self
        })
    }

    /// Whether it is a part of another device.
    pub fn is_part(&self) -> bool {
        self.base > 0
    }

    /// Where it begins, in bytes of what is open.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// What it is called in sentences.
    pub fn name(&self) -> String {
        let path = self.path.display();
        if self.is_part() { format!("the copy on {path}") } else { path.to_string() }
    }

    /// The same, to be timed by a model. What is on it has nothing to do with that.
    #[must_use]
    pub fn timed(self, timing: Timing) -> BlockFile {
        let facts = IoFacts { model: Some(timing.name()), ..self.facts };
        BlockFile { timing: Some(timing), facts, ..self }
    }

    /// The same, answering as soon as it can.
    #[must_use]
    pub fn untimed(self) -> BlockFile {
        BlockFile { timing: None, facts: IoFacts { model: None, ..self.facts }, ..self }
    }

    /// What it is timed by.
    pub(crate) fn timing(&self) -> Option<&Timing> {
        self.timing.as_ref()
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
        self.facts.direct
    }

    /// How I/O reaches it.
    pub fn facts(&self) -> IoFacts {
        self.facts
    }

    /// Whether its file system keeps it in memory, so that I/O on it does not wait.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// For questions; an export has none.
    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        match &self.store {
            Store::Local(fd) => Some(fd),
            Store::Export(_) => None,
        }
    }

    /// The export that it is.
    pub(crate) fn export(&self) -> Option<&Export> {
        match &self.store {
            Store::Export(export) => Some(export),
            Store::Local(_) => None,
        }
    }

    /// Memory that it takes in use, beyond the buffers that all devices share: an export's connections, and what is not flushed.
    pub fn ram_bytes(&self) -> u64 {
        self.export().map_or(0, |_| crate::remote::RAM_BYTES)
    }

    /// The same, where reads and writes wait for so long when it is an export and away.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> BlockFile {
        if let Store::Export(export) = &mut self.store {
            export.set_patience(patience);
        }
        self
    }

    /// What keeps others away from it.
    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// For submissions; an export has none.
    pub(crate) fn raw_fd(&self) -> Option<RawFd> {
        self.fd().map(|fd| fd.as_raw_fd())
    }

    /// The best way to give space back that has not failed yet. A hole in a file is none for what will be `refilled`: then
    /// the file system may have no room for it.
    pub(crate) fn give_back(&self, refilled: bool) -> GiveBack {
        match self.give_back {
            GiveBack::Punch if refilled => GiveBack::Nothing,
            way => way,
        }
    }

    /// `way` does not work here: asks for the next one from now on.
    pub(crate) fn cannot_give_back(&mut self, way: GiveBack) {
        let can_punch = way == GiveBack::Discard && self.export().is_none();
        let next = if can_punch { GiveBack::Punch } else { GiveBack::Nothing };
        self.give_back = self.give_back.min(next);
    }

    fn system(&self, what: &'static str, source: std::io::Error) -> DeviceOpenError {
        DeviceOpenError::System { path: self.path.clone(), what, source }
    }
}

/// Opens a file; with the alignment that its direct I/O needs (0: not known), or `None` when it goes through
/// the page cache.
fn open_direct_or_cached(path: &Path, access: OFlags) -> Result<(OwnedFd, Option<u32>), DeviceOpenError> {
    let plain = access | OFlags::CLOEXEC;
    match open(path, plain | OFlags::DIRECT, Mode::empty()) {
        Ok(fd) => {
            let align = direct_align(&fd);
            if align.is_none_or(|align| (1..=IO_BYTES).contains(&align)) {
                return Ok((fd, Some(align.unwrap_or(0))));
            }
        }
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(open_error(path, error)),
    }
    Ok((open(path, plain, Mode::empty()).map_err(|e| open_error(path, e))?, None))
}

/// What direct I/O on a file must be aligned to, in the file and in memory, bytes: 0 says that it cannot be
/// done, `None` that the kernel (before 6.1) or the file system does not say.
fn direct_align(fd: &OwnedFd) -> Option<u32> {
    let answer = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let said = answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    said.then_some(match answer.stx_dio_offset_align {
        0 => 0,
        offset => offset.max(answer.stx_dio_mem_align),
    })
}

/// Opens and claims a block device, with patience for a process that was just killed.
fn open_exclusively(path: &Path, access: OFlags) -> Result<OwnedFd, DeviceOpenError> {
    let flags = access | OFlags::CLOEXEC | OFlags::EXCL | OFlags::DIRECT;
    let start = Instant::now();
    loop {
        match open(path, flags, Mode::empty()) {
            Ok(fd) => return Ok(fd),
            Err(Errno::BUSY) => {}
            Err(Errno::NXIO) => return Err(system(path, "open", Errno::NXIO)),
            Err(error) => return Err(open_error(path, error)),
        }
        let device = stat(path).map_err(|e| open_error(path, e))?.st_rdev;
        if let Some(by) = claims::holder(device) {
            return Err(DeviceOpenError::Claimed { path: path.into(), by });
        }
        if start.elapsed() >= LOCK_PATIENCE {
            return Err(busy(path));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Why a block device stays busy: a process that serves it has its lock, too.
fn busy(path: &Path) -> DeviceOpenError {
    let locked = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).is_ok_and(|fd| {
        matches!(flock(&fd, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK))
    });
    match locked {
        true => DeviceOpenError::InUse { path: path.into() },
        false => DeviceOpenError::Claimed {
            path: path.into(),
            by: "in use, as a whole or in part, by the system (a mounted file system, swap, RAID, LVM) or by another \
                 program"
                .into(),
        },
    }
}

/// How long to wait for a lock: a process that was just killed holds it until its last I/O has ended.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How often it is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

fn lock(path: &Path, fd: &OwnedFd) -> Result<(), DeviceOpenError> {
    let start = Instant::now();
    loop {
        match flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Err(DeviceOpenError::InUse { path: path.into() }),
            Err(error) => return Err(system(path, "lock", error)),
        }
    }
}

/// Keeps others away who know the same bytes by other names, with the same patience.
pub fn claim(path: &Path, fd: &OwnedFd) -> Result<Claim, DeviceOpenError> {
    let start = Instant::now();
    loop {
        let storage = Storage::of_open(fd).map_err(|error| DeviceOpenError::System {
            path: path.into(),
            what: "examine",
            source: error,
        })?;
        match claims::claim(&storage) {
            Ok(claim) => return Ok(claim),
            Err(_) if start.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOCK_PAUSE),
            Err(by) => return Err(DeviceOpenError::Claimed { path: path.into(), by }),
        }
    }
}

fn open_error(path: &Path, error: Errno) -> DeviceOpenError {
    match error {
        Errno::NOENT => DeviceOpenError::Missing { path: path.into() },
        Errno::ROFS => DeviceOpenError::ReadOnly { path: path.into() },
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
        let again = BlockFile::open(&path).expect("open");
        assert!(again.facts().logical_sector_bytes.is_none_or(|bytes| bytes <= IO_BYTES));
        let wrong = BlockFile::open(dir.path()).expect_err("a directory");
        assert!(wrong.to_string().contains("neither"), "{wrong}");
    }

    #[test]
    fn what_is_erased_reads_zeros_and_nothing_else_does() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("device");
        std::fs::write(&path, [7; 5 * IO_BYTES as usize]).expect("write");
        let file = BlockFile::open(&path).expect("open");
        file.erase(4096, 8192).expect("erase");
        let first = |block: u64| file.read_block(block * 4096).expect("read")[4095];
        assert_eq!([0, 1, 2, 3, 4].map(first), [7, 0, 0, 7, 7]);
        assert!(file.read_block(5 * 4096).is_err(), "behind the end");
    }

    #[test]
    fn a_way_to_give_space_back_that_failed_is_not_tried_again() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("device");
        BlockFile::create_sparse(&path, 1 << 20).expect("create");
        let mut file = BlockFile::open(&path).expect("open");
        file.give_back = GiveBack::Discard;
        // Two discards in flight fail one after the other: that is one step, not two.
        file.cannot_give_back(GiveBack::Discard);
        file.cannot_give_back(GiveBack::Discard);
        assert_eq!((file.give_back(false), file.give_back(true)), (GiveBack::Punch, GiveBack::Nothing));
        file.cannot_give_back(GiveBack::Punch);
        file.cannot_give_back(GiveBack::Discard);
        assert_eq!(file.give_back(false), GiveBack::Nothing);
    }
}
