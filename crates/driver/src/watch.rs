//! Whether the devices of an open volume still are what they were, looked at each second: nobody cut, replaced or
//! detached one of them, and nobody else opened the volume meanwhile.
//!
//! Sizes and names are asked of the kernel, which costs no I/O. The superblocks of the fast device are read past the
//! page cache, on the ring, so that a device that answers nothing holds nobody up; only in seconds in which somebody used
//! it: one that rests is left alone, since whoever opened it again would have written to it.

use crate::blockdev::{self, LoopBelow};
use crate::claims::Held;
use crate::device::{BlockFile, IO_BYTES};
use crate::memory::Memory;
use crate::ring::{Mem, Ring};
use crate::storage;
use bimetal_engine::arena::Buf;
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::{Generation, Nanos, SLOW, Tier};
use rustix::fs::{FileType, Stat, fstat, stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// How often it is looked.
const EVERY_NS: u64 = Nanos::SECOND;
/// Who comes so much too late was stopped meanwhile: much may have happened.
const GAP_NS: u64 = 2 * Nanos::SECOND;
/// For how long then nothing is asked of the devices before the superblocks have been read: they may be silent.
const HOLD_NS: u64 = Nanos::SECOND;
/// How soon it is looked again at a superblock that is not whole: our own write of it may be under way.
const AGAIN_NS: u64 = Nanos::SECOND / 20;
/// Looks in a row that must find it so.
const LOOKS: u32 = 3;
/// A block that differs from what was written in no more bytes than these has decayed; nobody wrote it so.
const ROT_BYTES: usize = 16;
/// The first tag of its reads; the driver's operations have places far below.
pub(crate) const FIRST_TAG: u64 = u32::MAX as u64 - 1;

/// Something about a device is not as it was. Each says so in a sentence that names the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing may be written any more, and nothing that is read can be believed: whatever is asked of the devices fails
    /// from now on.
    Lost(String),
    /// What is written would not be found again: nothing should be promised any more, but all is still there to be read.
    Orphaned(String),
    /// Nothing is lost by that.
    Moved(String),
    /// An export cannot be reached: what is asked of it waits.
    Away(String),
    /// It can be reached again.
    Back(String),
}

/// What was known of a device when the volume was opened.
struct Watched {
    /// Bytes of it that the volume uses.
    need_bytes: u64,
    /// What it stood on, if it is a loop device.
    below: Option<LoopBelow>,
    /// It was said that its name leads elsewhere.
    is_told: bool,
}

/// One of the superblocks of the first device.
struct Copy {
    at: u64,
    /// As it was when the volume had been opened.
    block: Vec<u8>,
    reading: bool,
    /// Looks in a row that found something else.
    doubts: u32,
    is_told: bool,
}

/// What is held against what.
pub(crate) struct Watch {
    volume: Id,
    generation: Generation,
    /// The tier of the device that is looked at first: the fast one, unless it is missing.
    first: Tier,
    devices: Vec<Watched>,
    copies: Vec<Copy>,
    memory: Memory,
    region: usize,
    next: Nanos,
    /// Until then the superblocks are waited for.
    hold_until: Nanos,
    /// Commands that had been given to the devices, and marks that writers leave, when the superblocks were read last.
    seen: Option<(u64, Vec<u64>)>,
    changes: Vec<Change>,
}

impl Watch {
    /// Looks at devices that were just opened under this generation, which is on them. Says where the slow one has its second
    /// superblock, for whoever looks after an export.
    pub(crate) fn new(
        (devices, first): (&[BlockFile], Tier),
        (volume, generation): (Id, u64),
        ring: &mut Ring,
        now: Nanos,
    ) -> io::Result<(Watch, u64)> {
        let memory = Memory::new(2 * IO_BYTES as usize)?;
        let region = ring.add_region(memory.region().clone());
        let mut watch = Watch {
            volume,
            generation: Generation(generation),
            first,
            devices: Vec::new(),
            copies: Vec::new(),
            memory,
            region,
            next: now,
            hold_until: now,
            seen: None,
            changes: Vec::new(),
        };
        let superblock = watch.take_copies(devices)?;
        for (device, &need_bytes) in
            devices.iter().zip(&superblock.geometry.device_bytes[usize::from(first.0)..])
        {
            let below = device.fd().filter(|_| device.facts().block_device);
            let below = below.and_then(|fd| blockdev::loop_below(fd).ok());
            watch.devices.push(Watched { need_bytes, below, is_told: false });
        }
        Ok((watch, superblock.geometry.second_superblock_at(SLOW)))
    }

    /// Reads the superblocks that are to be as they are; gives one of them. Where a device is missing nobody has made good what
    /// was wrong with one, or brought it up to the other: one is enough.
    fn take_copies(&mut self, devices: &[BlockFile]) -> io::Result<Box<Superblock>> {
        let (device, alone) = (&devices[0], devices.len() == 1);
        let last = (device.size_bytes() / u64::from(IO_BYTES)).saturating_sub(1) * u64::from(IO_BYTES);
        let read = |at| device.read_block(at).map_err(io::Error::other);
        let decode = |at| match Superblock::decode(&read(at).ok()?, at) {
            Found::Valid(superblock) => Some(superblock),
            _ => None,
        };
        let superblock = decode(0).or_else(|| decode(last).filter(|_| alone));
        let Some(superblock) = superblock else {
            return Err(io::Error::other(format!("{} lost its superblock", device.path().display())));
        };
        for at in [0, superblock.geometry.second_superblock_at(self.first)] {
            let taken = read(at).and_then(|block| {
                self.judge(device, at, &block).map(|is_ours| (block, is_ours)).map_err(io::Error::other)
            });
            match taken {
                Ok((_, false)) | Err(_) if alone => {}
                taken => {
                    let block = taken?.0;
                    self.copies.push(Copy { at, block, reading: false, doubts: 0, is_told: false });
                }
            }
        }
        Ok(superblock)
    }

    /// When it is to be looked next.
    pub(crate) fn deadline(&self) -> Nanos {
        self.next
    }

    /// What has changed since it was asked last.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether nothing is to be asked of the devices for a moment.
    pub(crate) fn holds(&self, now: Nanos) -> bool {
        now < self.hold_until && self.copies.iter().any(|copy| copy.reading)
    }

    /// Whether a device is lost, as far as nobody has asked yet.
    pub(crate) fn has_lost(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Lost(_)))
    }

    /// Looks, if it is time. `commands` counts what has been asked of the devices.
    pub(crate) fn look(&mut self, now: Nanos, devices: &[BlockFile], commands: u64, ring: &mut Ring) {
        if now < self.next {
            return;
        }
        if now.since(self.next) > GAP_NS {
            self.seen = None;
            self.hold_until = Nanos(now.0 + HOLD_NS);
        }
        self.next = Nanos(now.0 + EVERY_NS);
        for (device, watched) in devices.iter().zip(&mut self.devices) {
            self.changes.extend(watched.look(device));
        }
        let seen = Some((commands, marks(&devices[0])));
        let doubtful = self.copies.iter().any(|copy| copy.doubts > 0);
        if self.copies.iter().any(|copy| copy.reading) || seen == self.seen && !doubtful {
            return;
        }
        let Some(fd) = devices[0].raw_fd() else { return };
        self.seen = seen;
        for (place, copy) in self.copies.iter_mut().enumerate() {
            copy.reading = true;
            let buf = Buf { start: place as u64 * u64::from(IO_BYTES), len: IO_BYTES };
            let mem = Mem { region: self.region, buf };
            ring.read_mem(fd, devices[0].base() + copy.at, mem, FIRST_TAG + place as u64);
        }
    }

    /// Looks whether all of the devices is there, before something is promised to be kept: that cannot wait for the next
    /// second, and costs a system call for each.
    pub(crate) fn look_at_sizes(&mut self, devices: &[BlockFile]) {
        for (device, watched) in devices.iter().zip(&self.devices) {
            self.changes.extend(watched.look_at_size(device));
        }
    }

    /// A superblock has been read, or could not be: then what failed will fail for the volume, too.
    pub(crate) fn was_read(&mut self, now: Nanos, tag: u64, result: i32, device: &BlockFile) {
        let place = (tag - FIRST_TAG) as usize;
        self.copies[place].reading = false;
        if result != IO_BYTES as i32 {
            return;
        }
        let buf = Buf { start: place as u64 * u64::from(IO_BYTES), len: IO_BYTES };
        let block = self.memory.bytes(buf).to_vec();
        let verdict = self.judge(device, self.copies[place].at, &block);
        let copy = &mut self.copies[place];
        let differs = copy.block.iter().zip(&block).filter(|(was, is)| was != is).count();
        copy.doubts = match verdict {
            Ok(true) => 0,
            // Somebody's whole superblock is no rot.
            Err(why) => return self.changes.push(Change::Lost(why)),
            Ok(false) => copy.doubts + 1,
        };
        if copy.doubts == 0 || copy.doubts > LOOKS {
            return;
        }
        self.next = Nanos(now.0 + AGAIN_NS);
        if copy.doubts < LOOKS {
            return;
        }
        let (name, at) = (device.path().display(), copy.at);
        if differs > ROT_BYTES {
            self.changes.push(Change::Lost(format!(
                "{name}: the superblock at byte {at} is gone; somebody overwrote or cut the device while it is in use"
            )));
        } else if !std::mem::replace(&mut copy.is_told, true) {
            self.changes.push(Change::Moved(format!("{name}: the superblock at byte {at} has decayed")));
        }
    }

    /// Whether a block is our superblock, of this opening; false where it is none at all. The error says whose it is.
    fn judge(&self, device: &BlockFile, at: u64, block: &[u8]) -> Result<bool, String> {
        let name = device.path().display();
        let found = match Superblock::decode(block, at) {
            Found::Nothing => return Ok(false),
            Found::Newer(format) => {
                return Err(format!("{name} was written by a newer release (format {format}) meanwhile"));
            }
            Found::Valid(found) => found,
        };
        if found.volume != self.volume || found.tier != self.first {
            return Err(format!("{name} holds another volume by now"));
        }
        if found.generation != self.generation {
            return Err(format!(
                "{name} was opened by somebody else (generation {}, this server has {}): two servers on one volume \
                 destroy it",
                found.generation.0, self.generation.0
            ));
        }
        Ok(true)
    }
}

impl Watched {
    fn look(&mut self, device: &BlockFile) -> Option<Change> {
        let fd = device.fd()?;
        self.look_at_size(device).or_else(|| match device.facts().block_device {
            true => self.look_below(device, fd),
            false => self.follow_name(device, &fstat(fd).ok()?),
        })
    }

    /// Whether all of it that is used is there.
    fn look_at_size(&self, device: &BlockFile) -> Option<Change> {
        let (name, fd) = (device.path().display(), device.fd()?);
        let bytes = match device.facts().block_device {
            // One of no size is one that is away: its errors say so.
            true => blockdev::size_bytes(fd).ok().filter(|bytes| *bytes > 0)?,
            false => fstat(fd).ok()?.st_size as u64,
        };
        let need = device.base() + self.need_bytes;
        if bytes < need {
            return Some(Change::Lost(format!("{name} has shrunk to {bytes} bytes; the volume uses {need}")));
        }
        for below in device.claim().below.iter().filter(|below| !below.vague) {
            let Ok(now) = fstat(&below.fd) else { continue };
            let bytes = now.st_size as u64;
            let is_file = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
            if is_file && bytes < below.start.saturating_add(self.need_bytes) {
                let file = below.path.display();
                return Some(Change::Lost(format!(
                    "{file}, which {name} stands on, has shrunk to {bytes} bytes"
                )));
            }
        }
        None
    }

    /// What is below a loop device.
    fn look_below(&mut self, device: &BlockFile, fd: &OwnedFd) -> Option<Change> {
        let name = device.path().display();
        if let Some(was) = self.below {
            match blockdev::loop_below(fd) {
                Ok(is) if is.place == was.place && is.offset == was.offset => {}
                Ok(_) => return Some(Change::Lost(format!("{name} leads to other bytes by now"))),
                Err(Errno::NXIO) => return Some(Change::Lost(format!("{name} was detached from its file"))),
                // Not known.
                Err(_) => {}
            }
        }
        let is_gone = |below: &&Held| {
            let is_file = |now: &Stat| FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
            fstat(&below.fd).is_ok_and(|now| is_file(&now) && now.st_nlink == 0)
        };
        let gone = device.claim().below.iter().find(is_gone)?;
        let change = Change::Orphaned(format!(
            "{}, which {name} stands on, was deleted: what is on it is gone when {name} is detached",
            gone.path.display()
        ));
        (!std::mem::replace(&mut self.is_told, true)).then_some(change)
    }

    /// Where a file's name leads by now.
    fn follow_name(&mut self, device: &BlockFile, now: &Stat) -> Option<Change> {
        let (path, name) = (device.path(), device.path().display());
        let named = stat(path).map(|named| (named.st_dev, named.st_ino) == (now.st_dev, now.st_ino));
        let change = match named {
            Ok(true) => {
                self.is_told = false;
                return None;
            }
            Ok(false) => Change::Orphaned(format!("{name} was replaced: another file has its name by now")),
            Err(Errno::NOENT) if now.st_nlink == 0 => {
                Change::Orphaned(format!("{name} was deleted: what is on it is gone when this server ends"))
            }
            Err(Errno::NOENT) => {
                Change::Moved(format!("{name} was renamed; the volume file should name its new place"))
            }
            // Not known.
            Err(_) => return None,
        };
        (!std::mem::replace(&mut self.is_told, true)).then_some(change)
    }
}

/// What changes with every write to a device, by whomever: times of files, counts of disks.
fn marks(device: &BlockFile) -> Vec<u64> {
    let mut marks = Vec::new();
    let below = device.claim().below.iter().map(|below| &below.fd);
    for meta in device.fd().into_iter().chain(below).filter_map(|fd| fstat(fd).ok()) {
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::BlockDevice => marks.extend(storage::writes(meta.st_rdev)),
            _ => marks.extend([meta.st_mtime as u64, meta.st_mtime_nsec, meta.st_size as u64]),
        }
    }
    marks
}
