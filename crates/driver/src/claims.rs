//! Keeping others away from a storage, under whichever name they know it, and saying who is there already.
//!
//! Who opens a file or block device has the lock of that ([`crate::device`]). What stands above and below it is looked
//! after here:
//!
//! - *Below*: who opens a loop device locks the range of the file or device under it, too. `flock` is shared among those
//!   who use parts of a file, so that it meets the exclusive one of who uses all of it; locks of ranges (those of open
//!   file descriptions, which a process has against itself as well) keep the parts apart.
//! - *Above*: a loop device on the same bytes that somebody has open exclusively (a mount, a server) is in the way.
//!
//! A disk and its partitions, and what device-mapper and RAID stand on, the kernel keeps apart where they are opened
//! exclusively.

use crate::blockdev;
use crate::storage::{Below, Place, Storage, device_number, loops, node, sys};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Keeps others away until it is dropped.
#[derive(Debug, Default)]
pub struct Claim {
    /// What is locked below.
    pub(crate) below: Vec<Held>,
}

/// Something below a device that is held open, and locked.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    /// Where in it the device begins.
    pub(crate) start: u64,
    /// Which part of it is used, is not known.
    pub(crate) vague: bool,
}

/// Claims what is above and below a storage whose own lock is held. The error says who is there, so that a sentence can
/// begin with the device: "is ...".
pub(crate) fn claim(storage: &Storage) -> Result<Claim, String> {
    let mut claim = Claim::default();
    for below in &storage.below {
        lock_below(below, &mut claim)?;
    }
    match user_above(storage) {
        Some(by) => Err(by),
        None => Ok(claim),
    }
}

/// Whether somebody uses a storage, through this name or another one: as far as can be told without any lock that lasts.
pub fn in_use(path: &Path) -> bool {
    let Ok(storage) = Storage::of(path) else { return false };
    let read_only = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let locked = open(path, read_only, Mode::empty())
        .is_ok_and(|fd| flock(&fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK));
    locked || claim(&storage).is_err()
}

fn lock_below(below: &Below, claim: &mut Claim) -> Result<(), String> {
    let used = || format!("in use through {}, which another process has locked", below.path.display());
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let both = [OFlags::RDWR, OFlags::RDONLY].map(|access| open(&below.path, flags | access, Mode::empty()));
    // Another file may stand under that name by now, or none: then nobody comes to these bytes by it either.
    let Some(fd) = both.into_iter().flatten().find(|fd| place(fd) == Some(below.place)) else {
        return Ok(());
    };
    if flock(&fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
        return Err(used());
    }
    let bytes = below.end.saturating_sub(below.start);
    // A file system without such locks has nothing to keep others away with, and who may not write cannot have one.
    let locked = blockdev::lock_range(&fd, below.start, bytes, !below.vague);
    if let Err(Errno::AGAIN | Errno::ACCESS) = locked {
        return Err(used());
    }
    if let Place::Device(device) = below.place {
        if let Some(by) = holder(device) {
            return Err(format!("on {}, which is {by}", below.path.display()));
        }
        // Others who use parts of it may have it: then the locks of ranges keep us apart.
        let exclusive = open(&below.path, flags | OFlags::RDONLY | OFlags::EXCL, Mode::empty());
        claim.below.extend(exclusive.map(|fd| held(below, fd)));
    }
    claim.below.push(held(below, fd));
    Ok(())
}

fn held(below: &Below, fd: OwnedFd) -> Held {
    Held { fd, path: below.path.clone(), start: below.start, vague: below.vague }
}

fn place(fd: &OwnedFd) -> Option<Place> {
    let meta = fstat(fd).ok()?;
    Some(match FileType::from_raw_mode(meta.st_mode) {
        FileType::BlockDevice => Place::Device(meta.st_rdev),
        _ => Place::File(meta.st_dev, meta.st_ino),
    })
}

/// Somebody who uses loop devices, or partitions of them, that lead to the same bytes.
fn user_above(storage: &Storage) -> Option<String> {
    let is_other = |device: &u64| {
        !storage.stands_on(*device) && Storage::of_place(Place::Device(*device)).overlaps(storage)
    };
    for (device, path) in loops().into_iter().filter(|(device, _)| is_other(device)) {
        // Who has a partition has a part of the device: another part may be ours.
        let parts: Vec<u64> = partitions(&sys(device)).collect();
        let probed = if parts.is_empty() { vec![device] } else { parts };
        for device in probed.into_iter().filter(is_other) {
            let path = node(&sys(device)).unwrap_or_else(|| path.clone());
            if is_claimed(&path) {
                let by = holder(device).unwrap_or_else(|| "open in another process".to_owned());
                return Some(format!("in use through {}, which is {by}", path.display()));
            }
        }
    }
    None
}

/// Whether somebody has a block device open exclusively. Who may not open it cannot tell.
fn is_claimed(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::EXCL | OFlags::NONBLOCK;
    open(path, flags, Mode::empty()).is_err_and(|error| error == Errno::BUSY)
}

/// Partitions are folders of their disk that hold a number of their own.
fn partitions(sys: &Path) -> impl Iterator<Item = u64> + use<> {
    let entries = std::fs::read_dir(sys).into_iter().flatten().flatten();
    let partitions = entries.map(|entry| entry.path()).filter(|path| path.join("partition").exists());
    partitions.filter_map(|path| device_number(&path))
}

/// Says what holds the block device with this number, or a partition of it: a mount, swap, or a device made
/// of it. `None` when none of them shows (btrfs over several devices and ZFS do not).
pub(crate) fn holder(device: u64) -> Option<String> {
    let sys = sys(device);
    let numbers: Vec<String> = std::iter::once(device).chain(partitions(&sys)).map(number).collect();
    mounted(&numbers).or_else(|| swap(&numbers)).or_else(|| stacked(&sys))
}

fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// `/proc/self/mountinfo`: the third field is the device, the fifth the place (proc(5)).
fn mounted(numbers: &[String]) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let number = fields.next()?;
        let place = fields.nth(1)?.replace("\\040", " ");
        numbers.iter().any(|ours| ours == number).then(|| format!("mounted on {place}"))
    })
}

/// `/proc/swaps`: a heading, then one path a line.
fn swap(numbers: &[String]) -> Option<String> {
    let table = std::fs::read_to_string("/proc/swaps").ok()?;
    table.lines().skip(1).find_map(|line| {
        let meta = std::fs::metadata(line.split_whitespace().next()?).ok()?;
        numbers.contains(&number(meta.rdev())).then(|| "in use as swap".to_owned())
    })
}

/// Devices that stand on this one: LVM, RAID, encryption.
fn stacked(sys: &Path) -> Option<String> {
    let above = std::fs::read_dir(sys.join("holders")).ok()?.flatten().next()?;
    Some(format!("part of /dev/{}", above.file_name().to_string_lossy()))
}

/// Who holds a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// In a few words: `mounted on /x`, `open in cat (process 1)`.
    pub how: String,
    /// It only has it open, and may be about to close it: `udev` looks so at whatever is new or was closed.
    pub may_pass: bool,
}

/// Who holds a block device, or a partition of it: what is mounted, swap, a device made of it, or a process that has it
/// open. `None` when nobody does, or nobody whom this process may know of.
pub fn who_holds(path: &Path) -> Option<Holder> {
    let device = std::fs::metadata(path).ok()?.rdev();
    if let Some(how) = holder(device) {
        return Some(Holder { how, may_pass: false });
    }
    let devices: Vec<u64> = std::iter::once(device).chain(partitions(&sys(device))).collect();
    let unknown = || is_claimed(path).then(|| "in exclusive use by the system".to_owned());
    opener(&devices).or_else(unknown).map(|how| Holder { how, may_pass: true })
}

/// A process that has one of these block devices open.
fn opener(devices: &[u64]) -> Option<String> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").ok()?.flatten();
    let processes = entries.map(|entry| entry.path()).filter(|path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name != own && name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    processes.into_iter().find_map(|process| {
        let files = std::fs::read_dir(process.join("fd")).ok()?.flatten();
        let is_one = |file: PathBuf| {
            // Only what is called a device is looked at: to look at a file may wait for a file system.
            std::fs::read_link(&file).is_ok_and(|target| target.starts_with("/dev"))
                && std::fs::metadata(&file)
                    .is_ok_and(|meta| meta.file_type().is_block_device() && devices.contains(&meta.rdev()))
        };
        files.into_iter().any(|file| is_one(file.path())).then(|| {
            let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
            let pid = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            format!("open in {} (process {pid})", name.trim_end())
        })
    })
}
