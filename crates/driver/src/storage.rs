//! Which bytes a file or block device stands for, down to where they are kept: so that two names of one storage are
//! known as such, whatever lies between.
//!
//! A regular file is the file (device and inode), under whichever name, link or mount. A partition is a range of its
//! disk, a loop device a range of the file or device below it, and either may stand on another such. What stands on
//! several devices, or on one in a way that the kernel does not tell (device-mapper, RAID), is taken for the whole of
//! each: two such may still lie beside each other, as LVM's volumes do, and then the kernel keeps them apart. Two mappings of
//! device-mapper that together are larger than the one device below them meet there: nothing else keeps them apart.

use crate::blockdev;
use rustix::fs::{FileType, Mode, OFlags, fstat, major, makedev, minor, open, stat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The unit of `start` and `size` in `/sys`, bytes.
const SYS_SECTOR: u64 = 512;
/// Layers that are followed: more than anybody stacks.
const MAX_LAYERS: usize = 16;

/// Where bytes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A regular file, by device and inode.
    File(u64, u64),
    /// A block device, by its number.
    Device(u64),
}

/// A range of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    place: Place,
    start: u64,
    end: u64,
    /// Which part of the range it is, is not known.
    vague: bool,
    /// How large that part is, where that is known.
    mapped: Option<Mapped>,
}

/// A part of a device, somewhere on it, in the kernel's sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    sectors: u64,
    of_sectors: u64,
}

impl Mapped {
    /// What a mapping uses of the one device below it. `None` where that may be less than it has: LVM's volumes, which LVM keeps
    /// apart, and mappings of mappings, such as thin ones.
    fn of(sys: &Path, slave: &Path) -> Option<Mapped> {
        let uuid = std::fs::read_to_string(sys.join("dm/uuid")).ok()?;
        if uuid.starts_with("LVM-") || slave.join("dm").exists() {
            return None;
        }
        let (sectors, of_sectors) = (number(sys, "size")?, number(slave, "size")?);
        (sectors <= of_sectors).then_some(Mapped { sectors, of_sectors })
    }

    /// Whether there is no room for both beside each other.
    fn meets(self, other: Mapped) -> bool {
        self.sectors.saturating_add(other.sectors) > self.of_sectors.min(other.of_sectors)
    }
}

impl Span {
    fn overlaps(&self, other: &Span) -> bool {
        let meet = self.mapped.zip(other.mapped).is_some_and(|(one, two)| one.meets(two));
        let apart = self.vague && other.vague && !meet;
        self.place == other.place && self.start < other.end && other.start < self.end && !apart
    }
}

/// What is below a loop device.
#[derive(Clone, Debug)]
pub(crate) struct Below {
    /// As the kernel names it; it may be of another mount namespace, or gone.
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether all of that range is used, as far as is known.
    pub(crate) vague: bool,
}

/// What a file or block device stands for.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Itself, and what it stands on.
    spans: Vec<Span>,
    /// What is below the loop devices among them.
    pub(crate) below: Vec<Below>,
}

impl Storage {
    /// Follows a path down to where its bytes are kept.
    ///
    /// # Errors
    /// When there is nothing, or neither a regular file nor a block device.
    pub fn of(path: &Path) -> std::io::Result<Storage> {
        let meta = stat(path)?;
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::RegularFile => Ok(Storage::of_place(Place::File(meta.st_dev, meta.st_ino))),
            FileType::BlockDevice => Ok(Storage::of_place(Place::Device(meta.st_rdev))),
            _ => Err(Errno::NOTBLK.into()),
        }
    }

    /// The same of what is open.
    pub(crate) fn of_open(fd: &OwnedFd) -> std::io::Result<Storage> {
        let meta = fstat(fd)?;
        Ok(Storage::of_place(match FileType::from_raw_mode(meta.st_mode) {
            FileType::BlockDevice => Place::Device(meta.st_rdev),
            _ => Place::File(meta.st_dev, meta.st_ino),
        }))
    }

    pub(crate) fn of_place(place: Place) -> Storage {
        let mut storage = Storage { spans: Vec::new(), below: Vec::new() };
        storage.follow(Span { place, start: 0, end: u64::MAX, vague: false, mapped: None }, MAX_LAYERS);
        storage
    }

    /// Whether a write to one can change what the other one reads.
    pub fn overlaps(&self, other: &Storage) -> bool {
        self.spans.iter().any(|one| other.spans.iter().any(|two| one.overlaps(two)))
    }

    /// Whether both are the very same file or device, by whatever name.
    pub fn is_same(&self, other: &Storage) -> bool {
        self.spans.first() == other.spans.first()
    }

    /// How many layers lead down to where its bytes are.
    pub fn layers(&self) -> usize {
        self.spans.len()
    }

    /// Whether it stands on this block device, or is it.
    pub(crate) fn stands_on(&self, device: u64) -> bool {
        self.spans.iter().any(|span| span.place == Place::Device(device))
    }

    fn follow(&mut self, span: Span, layers_left: usize) {
        self.spans.push(span);
        let Place::Device(device) = span.place else { return };
        if layers_left == 0 {
            return;
        }
        let sys = sys(device);
        let mut under = |place, start: u64, bytes: u64, vague: bool| {
            let from = start.saturating_add(span.start);
            let to = start.saturating_add(span.end).min(start.saturating_add(bytes));
            let under = Span { place, start: from, end: to, vague: vague || span.vague, mapped: None };
            self.follow(under, layers_left - 1);
            under
        };
        if let (Some(start), Some(size)) = (number(&sys, "start"), number(&sys, "size"))
            && sys.join("partition").exists()
            && let Some(disk) = sys.canonicalize().ok().and_then(|sys| device_number(sys.parent()?))
        {
            under(Place::Device(disk), start * SYS_SECTOR, size * SYS_SECTOR, false);
        } else if let Some((path, place, start, limit)) = below_loop(&sys) {
            let Span { start, end, vague, .. } = under(place, start, limit, false);
            self.below.push(Below { path, place, start, end, vague });
        } else {
            let slaves = std::fs::read_dir(sys.join("slaves")).into_iter().flatten().flatten();
            let slaves: Vec<PathBuf> = slaves.map(|slave| slave.path()).collect();
            for slave in &slaves {
                if let Some(device) = device_number(slave) {
                    let mapped = Some(slave).filter(|_| slaves.len() == 1);
                    let mapped = mapped.and_then(|slave| Mapped::of(&sys, slave));
                    let (place, end) = (Place::Device(device), u64::MAX);
                    let whole = Span { place, start: 0, end, vague: true, mapped };
                    self.follow(whole, layers_left - 1);
                }
            }
        }
    }
}

/// Whether a block device turns, as far as its driver tells; `None` of anything else.
pub fn turns(path: &Path) -> Option<bool> {
    let meta = stat(path).ok()?;
    if FileType::from_raw_mode(meta.st_mode) != FileType::BlockDevice {
        return None;
    }
    let sys = sys(meta.st_rdev).canonicalize().ok()?;
    // A partition has no queue of its own.
    let queues = [sys.join("queue/rotational"), sys.parent()?.join("queue/rotational")];
    let told = queues.iter().find_map(|queue| std::fs::read_to_string(queue).ok())?;
    Some(told.trim() != "0")
}

/// All loop devices that are in use, with their numbers and nodes.
pub(crate) fn loops() -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let used = entries.map(|entry| entry.path()).filter(|sys| sys.join("loop").exists());
    used.filter_map(|sys| Some((device_number(&sys)?, node(&sys)?))).collect()
}

pub(crate) fn sys(device: u64) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{}:{}", major(device), minor(device)))
}

/// What has been written to a block device so far, and to the disk it is a part of: counts of writes and discards.
pub(crate) fn writes(device: u64) -> Vec<u64> {
    let sys = sys(device);
    let disk = sys.canonicalize().ok().filter(|_| sys.join("partition").exists());
    let disk = disk.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut counts = Vec::new();
    for folder in std::iter::once(sys).chain(disk) {
        let text = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        // Documentation/block/stat.rst: the fifth field is writes, the twelfth discards.
        let fields: Vec<u64> = text.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        counts.extend([4, 11].iter().filter_map(|&field| fields.get(field)));
    }
    counts
}

/// The node of a device in `/dev`.
pub(crate) fn node(sys: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(sys.join("uevent")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

fn number(sys: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(sys.join(name)).ok()?.trim().parse().ok()
}

pub(crate) fn device_number(sys: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(sys.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// What is below a loop device: its path as the kernel has it, where it is kept, and which range of that is used. The
/// kernel is asked for device and inode; who may not ask it goes by the path.
fn below_loop(sys: &Path) -> Option<(PathBuf, Place, u64, u64)> {
    let text = std::fs::read_to_string(sys.join("loop/backing_file")).ok()?;
    let path = PathBuf::from(text.trim_end_matches('\n'));
    let read_only = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let asked = node(sys)
        .and_then(|node| open(node, read_only, Mode::empty()).ok())
        .and_then(|fd| blockdev::loop_below(&fd).ok());
    let (place, start, limit) = match asked {
        Some(below) => (below.place, below.offset, below.size_limit),
        None => {
            let meta = stat(&path).ok()?;
            let place = match FileType::from_raw_mode(meta.st_mode) {
                FileType::BlockDevice => Place::Device(meta.st_rdev),
                _ => Place::File(meta.st_dev, meta.st_ino),
            };
            (place, number(sys, "loop/offset")?, number(sys, "loop/sizelimit")?)
        }
    };
    // The device's size, which is what is left of the file where no limit is set; it may be a moment behind.
    let limit = if limit > 0 { limit } else { u64::MAX };
    Some((path, place, start, limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(place: Place, start: u64, end: u64, vague: bool) -> Storage {
        Storage { spans: vec![Span { place, start, end, vague, mapped: None }], below: Vec::new() }
    }

    #[test]
    fn ranges_of_one_place_may_lie_beside_each_other() {
        let (disk, other) = (Place::Device(7), Place::Device(8));
        let first = span(disk, 0, 100, false);
        assert!(first.overlaps(&span(disk, 99, 200, false)));
        assert!(!first.overlaps(&span(disk, 100, 200, false)));
        assert!(!first.overlaps(&span(other, 0, 100, false)));
        assert!(first.overlaps(&span(disk, 0, u64::MAX, true)), "a part of it stands on the disk");
        let logical = span(disk, 0, u64::MAX, true);
        assert!(!logical.overlaps(&logical.clone()), "two logical volumes of one group");
    }

    #[test]
    fn two_mappings_that_have_no_room_beside_each_other_meet() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let device = |name: &str, sectors: u64, uuid: Option<&str>| {
            let sys = dir.path().join(name);
            std::fs::create_dir_all(&sys).expect("a folder");
            std::fs::write(sys.join("size"), format!("{sectors}\n")).expect("write");
            if let Some(uuid) = uuid {
                std::fs::create_dir_all(sys.join("dm")).expect("a folder");
                std::fs::write(sys.join("dm/uuid"), format!("{uuid}\n")).expect("write");
            }
            sys
        };
        let disk = device("sda", 1000, None);
        let on_disk = |sys: &Path| {
            let mapped = Mapped::of(sys, &disk);
            let span = Span { place: Place::Device(7), start: 0, end: u64::MAX, vague: true, mapped };
            Storage { spans: vec![span], below: Vec::new() }
        };
        let (whole, half) = (device("dm-0", 1000, Some("")), device("dm-1", 500, Some("")));
        let crypt = device("dm-2", 968, Some("CRYPT-LUKS2-x"));
        let logical = device("dm-3", 900, Some("LVM-x"));
        assert!(on_disk(&whole).overlaps(&on_disk(&half)) && on_disk(&crypt).overlaps(&on_disk(&half)));
        assert!(!on_disk(&half).overlaps(&on_disk(&half)), "they may lie beside each other");
        assert!(!on_disk(&logical).overlaps(&on_disk(&whole)), "LVM keeps its volumes apart");
        assert_eq!(Mapped::of(&disk, &disk), None);
        assert_eq!(Mapped::of(&half, &whole), None, "a thin mapping");
        assert_eq!(
            Mapped::of(&device("dm-4", 2000, Some("VDO-x")), &disk),
            None,
            "larger than what is below"
        );
    }

    #[test]
    fn links_are_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "x").expect("write");
        std::fs::hard_link(at("file"), at("hard")).expect("link");
        std::os::unix::fs::symlink("hard", at("soft")).expect("link");
        std::fs::write(at("other"), "x").expect("write");
        let of = |name: &str| Storage::of(&at(name)).expect("a file");
        assert!(of("file").overlaps(&of("hard")) && of("hard").overlaps(&of("soft")));
        assert!(!of("file").overlaps(&of("other")));
        assert!(Storage::of(dir.path()).is_err() && Storage::of(&at("none")).is_err());
    }
}
