//! The files of a mounted file system, and where on the volume below it each of them lies.
//!
//! Each file and directory is asked where on the device it lies (`FS_IOC_FIEMAP`).

use crate::progress::Progress;
use anyhow::{Context as _, bail};
use bimetal_driver::fiemap::{FileExtent, file_extents};
use rustix::fs::{Mode, OFlags, major, makedev, minor};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The unit of `start` and `size` in `/sys`, bytes.
const SYS_SECTOR: u64 = 512;

/// Who is told of what is found.
pub(crate) trait Visitor {
    /// A file, once, whatever its names are, and where on the device its data lies.
    fn file(&mut self, path: PathBuf, meta: &Metadata, extents: &[FileExtent]);
    /// A directory, and where on the device it lies, as far as its file system tells that.
    fn directory(&mut self, path: &Path, extents: &[FileExtent]);
    /// What cannot be looked at; of a directory, what is in it neither.
    fn unknowable(&mut self, path: PathBuf);
}

/// Tells of a file, or of a directory and all that is below it on the same file system.
pub(crate) fn walk(start: &Path, quiet: bool, visitor: &mut dyn Visitor) -> anyhow::Result<()> {
    let meta =
        std::fs::symlink_metadata(start).with_context(|| format!("cannot look at {}", start.display()))?;
    let mut walk = Walk {
        visitor,
        device: meta.dev(),
        seen: HashSet::new(),
        looked_at: 0,
        progress: Progress::new(format!("looking through {}", start.display()), quiet),
    };
    if !meta.is_dir() {
        return walk.entry(start.into(), &meta);
    }
    let mut directories = vec![start.to_owned()];
    while let Some(directory) = directories.pop() {
        walk.directory(&directory, &mut directories)?;
    }
    Ok(())
}

struct Walk<'v> {
    visitor: &'v mut dyn Visitor,
    /// Of the file system: what is mounted below it is another one.
    device: u64,
    /// Files with several names.
    seen: HashSet<u64>,
    looked_at: u64,
    progress: Progress,
}

impl Walk<'_> {
    /// Looks at a directory and all that is in it; directories in it are for later.
    fn directory(&mut self, path: &Path, later: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        match extents(path, OFlags::DIRECTORY)? {
            Some(extents) => self.visitor.directory(path, &extents),
            None => self.visitor.unknowable(path.into()),
        }
        let Ok(entries) = std::fs::read_dir(path) else {
            self.visitor.unknowable(path.into());
            return Ok(());
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.visitor.unknowable(path.into());
                break;
            };
            let path = entry.path();
            self.looked_at += 1;
            let looked_at = self.looked_at;
            self.progress.at(&format!("{looked_at} files"));
            match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.dev() != self.device => {}
                Ok(meta) if meta.is_dir() => later.push(path),
                Ok(meta) => self.entry(path, &meta)?,
                Err(_) => self.visitor.unknowable(path),
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, meta: &Metadata) -> anyhow::Result<()> {
        if meta.is_symlink() {
            // Where a long one leads is in a block of its own.
            if std::fs::read_link(&path).is_err() {
                self.visitor.unknowable(path);
            }
            return Ok(());
        }
        if !meta.is_file() || meta.nlink() > 1 && !self.seen.insert(meta.ino()) {
            return Ok(());
        }
        match extents(&path, OFlags::NONBLOCK)? {
            Some(extents) => self.visitor.file(path, meta, &extents),
            None => self.visitor.unknowable(path),
        }
        Ok(())
    }
}

/// Where a file or directory lies on the device; none where that cannot be read.
fn extents(path: &Path, flags: OFlags) -> anyhow::Result<Option<Vec<FileExtent>>> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(None) };
    match file_extents(&file) {
        Ok(extents) => Ok(Some(extents)),
        Err(Errno::OPNOTSUPP | Errno::NOTTY) if flags.contains(OFlags::DIRECTORY) => Ok(Some(Vec::new())),
        Err(Errno::OPNOTSUPP | Errno::NOTTY) => bail!(
            "{} is on a file system that does not say where on the device its files are; it is not handled",
            path.display()
        ),
        Err(_) => Ok(None),
    }
}

/// Where a mounted file system lies.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// The disk that it is on, or on a partition of: `/dev/ublkb0`.
    pub(crate) disk: PathBuf,
    /// Where on the volume it begins, if the disk is one.
    pub(crate) begins_at: u64,
    /// Bytes of the volume, if the disk is one.
    pub(crate) volume_bytes: u64,
    source: String,
}

/// A file system, as `/proc/self/mountinfo` tells of it.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    device: u64,
    kind: String,
    source: String,
}

impl Mounted {
    fn at(mount: &Path) -> anyhow::Result<Mounted> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").context("cannot see what is mounted")?;
        // What was mounted last is on top.
        let found = table.lines().rev().find_map(|line| Mounted::parse(line, mount));
        found.with_context(|| {
            format!("{} is no mount point; name where the volume is mounted", mount.display())
        })
    }

    /// Its third field is the device, the fifth the place; behind a dash stand type and source (proc(5)).
    fn parse(line: &str, mount: &Path) -> Option<Mounted> {
        let (left, right) = line.split_once(" - ")?;
        let fields: Vec<&str> = left.split(' ').collect();
        let place = fields.get(4)?.replace("\\040", " ");
        let (major, minor) = fields.get(2)?.split_once(':')?;
        let mut right = right.split(' ');
        let (kind, source) = (right.next()?.to_owned(), right.next()?.to_owned());
        let device = makedev(major.parse().ok()?, minor.parse().ok()?);
        (Path::new(&place) == mount).then_some(Mounted { device, kind, source })
    }
}

impl Place {
    /// The file system that is mounted here.
    pub(crate) fn of(mount: &Path) -> anyhow::Result<Place> {
        let mount = mount.canonicalize().with_context(|| format!("cannot find {}", mount.display()))?;
        Place::on_disk(&mount, &Mounted::at(&mount)?)
    }

    fn on_disk(mount: &Path, mounted: &Mounted) -> anyhow::Result<Place> {
        let Mounted { device, kind, source } = mounted;
        if major(*device) == 0 {
            bail!("{source} is {kind}, whose files do not say where on a device they are; it is not handled");
        }
        let sys = Path::new("/sys/dev/block").join(format!("{}:{}", major(*device), minor(*device)));
        let sys = sys.canonicalize().with_context(|| format!("cannot find {source} in /sys"))?;
        let (disk, start) = match sys.join("partition").exists() {
            true => (sys.parent().unwrap_or(&sys).to_owned(), number(&sys, "start")? * SYS_SECTOR),
            false => (sys.clone(), 0),
        };
        let stands_on = std::fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten().next();
        if let Some(below) = stands_on {
            bail!(
                "{source} stands on {} by device-mapper or RAID (LVM, encryption), which is not handled",
                below.file_name().to_string_lossy()
            );
        }
        let loop_offset = if disk.join("loop").exists() { number(&disk, "loop/offset")? } else { 0 };
        Ok(Place {
            mount: mount.into(),
            disk: Path::new("/dev").join(disk.file_name().unwrap_or_default()),
            begins_at: loop_offset + start,
            volume_bytes: loop_offset + number(&disk, "size")? * SYS_SECTOR,
            source: source.clone(),
        })
    }

    /// Refuses a disk that cannot be the device of a volume of this size.
    pub(crate) fn must_be_of(&self, size_bytes: u64) -> anyhow::Result<()> {
        if self.volume_bytes != size_bytes {
            bail!(
                "{} is no device of this volume: that has {size_bytes} bytes, and {} has {}",
                self.source,
                self.disk.display(),
                self.volume_bytes
            );
        }
        Ok(())
    }
}

fn number(sys: &Path, name: &str) -> anyhow::Result<u64> {
    let file = sys.join(name);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    text.trim().parse().with_context(|| format!("{} holds no number", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_where_they_are() {
        let line = "36 35 98:5 / /mnt/my\\040films rw,noatime master:1 - ext4 /dev/ublkb0p1 ro,norecovery";
        let mounted = Mounted::parse(line, Path::new("/mnt/my films")).expect("it is this one");
        let expected =
            Mounted { device: makedev(98, 5), kind: "ext4".into(), source: "/dev/ublkb0p1".into() };
        assert_eq!(mounted, expected);
        assert_eq!(Mounted::parse(line, Path::new("/mnt")), None);
        assert_eq!(Mounted::parse("36 35 98:5 / /mnt", Path::new("/mnt")), None);
    }

    #[test]
    fn what_has_no_block_device_is_not_handled() {
        let mounted = Mounted { device: makedev(0, 40), kind: "btrfs".into(), source: "/dev/sdx".into() };
        let error = Place::on_disk(Path::new("/mnt"), &mounted)
            .expect_err("it does not say where files are")
            .to_string();
        assert!(error.contains("/dev/sdx is btrfs"), "{error}");
    }
}
