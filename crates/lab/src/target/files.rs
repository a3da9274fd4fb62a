//! Files and block devices, through io_uring: one ring for each job that runs beside others.

use crate::load::{Granule, LoadTarget, Own, RunError, SlotSpec};
use crate::target::buffers::Buffers;
use bimetal_driver::{Claim, Completion, Ring, Storage, claim};
use bimetal_load::{Ended, Fault, Target};
use bimetal_models::{Command, Kind};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags, flock, open};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Past the page cache.
    pub direct: bool,
    /// For writing, too.
    pub write: bool,
}

/// What stands behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A file.
    Regular,
    /// A block device.
    BlockDevice,
    /// One of the kernel's devices without storage: `/dev/zero`, `/dev/null` and their kin.
    Memory,
}

impl FileKind {
    /// What it is called in a record.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Regular => "file",
            FileKind::BlockDevice => "block device",
            FileKind::Memory => "memory device",
        }
    }

    fn of(stat: &rustix::fs::Stat) -> Option<FileKind> {
        /// The kernel's number for its memory devices; of these, `null`, `zero`, `full` and `urandom` never wait.
        const MEMORY: (u32, [u32; 4]) = (1, [3, 5, 7, 9]);
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(FileKind::Regular),
            FileType::BlockDevice => Some(FileKind::BlockDevice),
            FileType::CharacterDevice if device.0 == MEMORY.0 && MEMORY.1.contains(&device.1) => {
                Some(FileKind::Memory)
            }
            _ => None,
        }
    }
}

/// A file or a device that is open.
pub struct OpenFile {
    fd: OwnedFd,
    path: PathBuf,
    /// What it stands for, if it stores anything: the same bytes may go by several names.
    storage: Option<Storage>,
    /// Opened for writing, too.
    write: bool,
    kind: FileKind,
    size_bytes: u64,
    /// What I/O past the page cache has to be a multiple of; 1 where it goes through it.
    granule_bytes: u64,
}

/// Why a file cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system says no.
    #[error("cannot {what} {path}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Its file system cannot.
    #[error(
        "{0} cannot be opened past the page cache: its file system does not do direct I/O; set direct=0 or --buffered"
    )]
    Direct(PathBuf),
    /// Somebody has the block device, or a part of it, to himself.
    #[error("{0} is in use: mounted, part of another device, or open in another program; release it first")]
    Busy(PathBuf),
    /// Neither file nor block device.
    #[error("{0} is neither a file nor a block device; name one that is")]
    Kind(PathBuf),
}

impl OpenFile {
    /// Opens what is there.
    ///
    /// # Errors
    /// When it cannot be opened so.
    pub fn open(path: &Path, how: OpenHow) -> Result<OpenFile, FileError> {
        let mut flags = OFlags::CLOEXEC | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        if how.direct {
            flags |= OFlags::DIRECT;
        }
        let kind = rustix::fs::stat(path).map(|stat| FileKind::of(&stat));
        // Who opens a FIFO waits for somebody at its other end.
        if kind == Ok(None) {
            return Err(FileError::Kind(path.into()));
        }
        if how.write && kind == Ok(Some(FileKind::BlockDevice)) {
            // Refuses what is mounted, or part of another device.
            flags |= OFlags::EXCL;
        }
        let fd = open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::INVAL if how.direct => FileError::Direct(path.into()),
            Errno::BUSY => FileError::Busy(path.into()),
            errno => FileError::System { what: "open", path: path.into(), error: errno.into() },
        })?;
        let examine = |error: io::Error| FileError::System { what: "examine", path: path.into(), error };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| examine(errno.into()))?;
        let kind = FileKind::of(&stat).ok_or_else(|| FileError::Kind(path.into()))?;
        let granule_bytes = if how.direct { direct_granule(&fd, kind == FileKind::BlockDevice) } else { 1 };
        if !how.direct {
            // What the page cache holds of it is not to be measured; that it holds it is no failure.
            let _ = rustix::fs::fadvise(&fd, 0, None, rustix::fs::Advice::DontNeed);
        }
        // The end of a block device is where seeking ends.
        let mut file = File::from(fd);
        let size_bytes = io::Seek::seek(&mut file, io::SeekFrom::End(0)).map_err(examine)?;
        let storage = match kind {
            FileKind::Memory => None,
            _ => Some(Storage::of(path).map_err(examine)?),
        };
        let (fd, write) = (file.into(), how.write);
        Ok(OpenFile { fd, path: path.into(), storage, write, kind, size_bytes, granule_bytes })
    }

    /// As large as is asked for, where it is a device that has no size of its own.
    pub fn of_bytes(mut self, bytes: Option<u64>) -> OpenFile {
        if self.kind == FileKind::Memory {
            self.size_bytes = bytes.unwrap_or(0);
        }
        self
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    fn storage(&self) -> Option<&Storage> {
        self.storage.as_ref()
    }

    /// Bytes that it has.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The same file, opened once more in the same way; none where the system does not let us.
    fn again(&self) -> Option<OwnedFd> {
        let how = rustix::fs::fcntl_getfl(&self.fd).ok()? & (OFlags::RWMODE | OFlags::DIRECT);
        open(format!("/proc/self/fd/{}", self.fd.as_raw_fd()), how | OFlags::CLOEXEC, Mode::empty()).ok()
    }
}

/// What a file's or a block device's I/O past the page cache has to be a multiple of. Kernels before 6.1 do not tell of
/// files, and some file systems never do: there it is a sector, which is the least that any of them has.
fn direct_granule(fd: &OwnedFd, is_block_device: bool) -> u64 {
    const SECTOR_BYTES: u64 = 512;
    let bytes = if is_block_device {
        rustix::fs::ioctl_blksszget(fd).map_or(0, u64::from)
    } else {
        let told = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        told.map_or(0, |told| u64::from(told.stx_dio_offset_align))
    };
    if bytes.is_power_of_two() { bytes } else { SECTOR_BYTES }
}

/// Files under load.
pub struct Files {
    /// What keeps others away who know the same bytes by other names.
    _claims: Vec<Claim>,
    ring: Ring,
    files: Vec<Arc<OpenFile>>,
    /// Of who is one of several, each file opened once more: what the kernel reads ahead of a file follows whoever has
    /// it open, and two that read in order would look like one who jumps. Opened when it is first used.
    own: Vec<OnceCell<Option<OwnedFd>>>,
    buffers: Buffers,
    lens: Vec<u32>,
    began: Instant,
    handed_ns: Vec<u64>,
    in_flight: usize,
    done: Vec<Completion>,
}

impl Files {
    /// All files of a run; jobs name them by their places. Until it is over, no other run gets them.
    ///
    /// # Errors
    /// When another run has one of them, or the kernel has no ring for us.
    pub fn new(files: Vec<OpenFile>) -> Result<Files, RunError> {
        let claims = lock(&files)?;
        Files::of(claims, files.into_iter().map(Arc::new).collect(), Vec::new(), Instant::now())
    }

    fn of(
        claims: Vec<Claim>,
        files: Vec<Arc<OpenFile>>,
        own: Vec<OnceCell<Option<OwnedFd>>>,
        began: Instant,
    ) -> Result<Files, RunError> {
        let buffers = Buffers::new(&[])?;
        Ok(Files {
            _claims: claims,
            ring: buffers.ring(1)?,
            files,
            own,
            buffers,
            lens: Vec::new(),
            began,
            handed_ns: Vec::new(),
            in_flight: 0,
            done: Vec::new(),
        })
    }

    /// Another file in a place that nothing is in flight for; places are given from 0 on, one after the other.
    pub fn put(&mut self, place: u32, file: OpenFile) {
        let file = Arc::new(file);
        match self.files.get_mut(place as usize) {
            Some(there) => *there = file,
            None => self.files.push(file),
        }
    }

    /// What a place's file is known by to the kernel.
    #[inline]
    fn fd(&self, place: usize) -> RawFd {
        let file = &self.files[place];
        let own = self.own.get(place).and_then(|own| own.get_or_init(|| file.again()).as_ref());
        own.unwrap_or(&file.fd).as_raw_fd()
    }

    /// Where a file has data, in bytes from its beginning, ascending, so many ranges at most; `None` where its file
    /// system does not tell, or there are more.
    fn data_ranges(&self, place: u32, most: usize) -> Option<Vec<Range<u64>>> {
        let file = self.files.get(place as usize).filter(|file| file.kind == FileKind::Regular)?;
        let (mut ranges, mut at) = (Vec::new(), 0);
        while at < file.size_bytes {
            let start = match rustix::fs::seek(&file.fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(_) => return None,
            };
            let end = rustix::fs::seek(&file.fd, SeekFrom::Hole(start)).ok()?.max(start + 1);
            if ranges.len() == most {
                return None;
            }
            ranges.push(start..end);
            at = end;
        }
        Some(ranges)
    }

    fn is_done(&self, slot: u32, result: i32) -> Option<Fault> {
        match result {
            negative if negative < 0 => Some(Fault::Errno(-negative)),
            bytes if (bytes as u32) < self.lens[slot as usize] => Some(Fault::Short(bytes as u32)),
            _ => None,
        }
    }
}

/// Keeps others from the files of a run: two runs on one would measure each other, and one could destroy what the other
/// reads, or what a server keeps there. Block devices that are written to are opened exclusively; one that is only read is
/// nobody's.
fn lock(files: &[OpenFile]) -> Result<Vec<Claim>, RunError> {
    let mut claims = Vec::new();
    let is_claimed = |file: &&OpenFile| file.write || file.kind != FileKind::BlockDevice;
    let storage = |file| Some((file, OpenFile::storage(file)?));
    let claimed: Vec<(&OpenFile, &Storage)> = files.iter().filter(is_claimed).filter_map(storage).collect();
    for (n, (file, storage)) in claimed.iter().enumerate() {
        match claimed[..n].iter().find(|(_, before)| before.overlaps(storage)) {
            // Jobs may share a file, which is ours already.
            Some((_, before)) if before.is_same(storage) => continue,
            Some((before, _)) => {
                return Err(RunError::Target(format!(
                    "{} and {} are the same storage, or overlap; name one of them",
                    before.path.display(),
                    file.path.display()
                )));
            }
            None => {}
        }
        // A file system without locks has nothing to keep others away with.
        if let Err(Errno::WOULDBLOCK) = flock(&file.fd, FlockOperation::NonBlockingLockExclusive) {
            let path = file.path.display();
            return Err(RunError::Target(format!(
                "{path} is in use by another program; wait for its end, or name another"
            )));
        }
        claims.push(claim(&file.path, &file.fd).map_err(|error| RunError::Target(error.to_string()))?);
    }
    Ok(claims)
}

impl Target for Files {
    fn now_ns(&mut self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        let fd = self.fd(place as usize);
        let is_block_device = self.files[place as usize].kind == FileKind::BlockDevice;
        let tag = u64::from(slot);
        let len = match command.kind {
            Kind::Read | Kind::Write { .. } => command.len as u32,
            Kind::Flush | Kind::Sync | Kind::Discard => 0,
        };
        self.lens[slot as usize] = len;
        let buf = self.buffers.buf(slot, len);
        match command.kind {
            Kind::Read => self.ring.read(fd, command.offset, buf, tag),
            Kind::Write { fua } => self.ring.write(fd, command.offset, &[buf], fua, tag),
            Kind::Flush => self.ring.flush(fd, tag),
            Kind::Sync => self.ring.sync(fd, tag),
            Kind::Discard if is_block_device => {
                self.ring.discard(fd, command.offset, command.len, tag);
            }
            Kind::Discard => self.ring.punch(fd, command.offset, command.len, tag),
        }
        self.in_flight += 1;
        self.ring.submit_and_sleep(Some(Duration::ZERO)).expect("a ring that was set up takes I/O");
        self.handed_ns[slot as usize] = self.now_ns();
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        if self.in_flight == 0 {
            let now = self.now_ns();
            std::thread::sleep(Duration::from_nanos(until.unwrap_or(now).saturating_sub(now)));
            return self.now_ns();
        }
        self.ring.completions(&mut self.done);
        if self.done.is_empty() {
            let now = self.now_ns();
            let timeout = until.map(|until| Duration::from_nanos(until.saturating_sub(now)));
            // As fio does it. Whoever looks for the answer instead takes the processor from the kernel's threads that
            // work on it, and where processors are scarce pays for it with the mean.
            self.ring.submit_and_sleep(timeout).expect("a ring that was set up takes I/O");
            self.ring.completions(&mut self.done);
        }
        let now = self.now_ns();
        self.in_flight -= self.done.len();
        let done = std::mem::take(&mut self.done);
        ended.extend(done.iter().map(|&Completion { tag, result }| Ended {
            slot: tag as u32,
            handed_ns: Some(self.handed_ns[tag as usize]),
            at_ns: now,
            fault: self.is_done(tag as u32, result),
            served: None,
        }));
        self.done = done;
        self.done.clear();
        now
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        Some(self.buffers.bytes_mut(slot, len as u32))
    }
}

impl LoadTarget for Files {
    fn data(&mut self, place: u32, most: usize) -> Option<Vec<Range<u64>>> {
        self.data_ranges(place, most)
    }

    fn granule(&self, place: u32) -> Option<Granule> {
        let bytes = self.files.get(place as usize)?.granule_bytes;
        let (why, cure) =
            ("it is read and written past the page cache", "go through the page cache with --buffered");
        (bytes > 1).then_some(Granule { bytes, why, cure })
    }

    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.buffers = Buffers::new(slots)?;
        // A ring knows its memory since it was made.
        self.ring = self.buffers.ring(slots.len())?;
        self.lens = vec![0; slots.len()];
        self.handed_ns = vec![0; slots.len()];
        Ok(())
    }

    fn apart(&mut self, jobs: usize) -> Option<Vec<Own>> {
        let own = |_| -> Own {
            let (files, began) = (self.files.clone(), self.began);
            Box::new(move || {
                let own = files.iter().map(|_| OnceCell::new()).collect();
                Ok(Box::new(Files::of(Vec::new(), files, own, began)?) as Box<dyn LoadTarget>)
            })
        };
        Some((0..jobs).map(own).collect())
    }
}
