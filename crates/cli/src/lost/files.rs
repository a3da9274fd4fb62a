//! Which files of a mounted file system have something in lost ranges of the volume below it.
//!
//! Each file and directory is asked where on the device it lies (`FS_IOC_FIEMAP`). What cannot be read or asked, since what
//! says so is lost itself, is named as unknowable: what is named in all is never too little.

use crate::progress::Progress;
use crate::size;
use anyhow::{Context as _, bail};
use bimetal_driver::fiemap::file_extents;
use bimetal_engine::loss::Losses;
use rustix::fs::{Mode, OFlags, major, makedev, minor};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The unit of `start` and `size` in `/sys`, bytes.
const SYS_SECTOR: u64 = 512;

/// A file of which something is lost.
#[derive(Debug, Serialize)]
pub(crate) struct FileDoc {
    path: PathBuf,
    lost_bytes: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Of which something is lost.
    pub(crate) files: Vec<FileDoc>,
    /// Of which that cannot be known; of a directory, what is in it neither.
    pub(crate) unknowable: Vec<PathBuf>,
}

impl Found {
    /// For who reads it, with so many of a kind at most.
    pub(crate) fn describe(&self, mount: &Path, most: usize) -> String {
        let mut text = format!(
            "  of {}, {} files have something in lost ranges, and of {} files and directories that cannot be known",
            mount.display(),
            self.files.len(),
            self.unknowable.len()
        );
        for file in self.files.iter().take(most) {
            text += &format!("\n  {:>10} lost of {}", size::show(file.lost_bytes), file.path.display());
        }
        for path in self.unknowable.iter().take(most) {
            text += &format!("\n  unknowable      {}", path.display());
        }
        if self.files.len().max(self.unknowable.len()) > most {
            text += "\n  and more: --json lists all";
        }
        text
    }
}

/// The files below a mount point that have something in these ranges of a volume of this size.
pub(crate) fn lost_files(
    mount: &Path,
    losses: &Losses,
    size_bytes: u64,
    quiet: bool,
) -> anyhow::Result<Found> {
    let mount = mount.canonicalize().with_context(|| format!("cannot find {}", mount.display()))?;
    let mounted = Mounted::at(&mount)?;
    let begins_at = on_volume(&mounted, size_bytes)?;
    let meta =
        std::fs::symlink_metadata(&mount).with_context(|| format!("cannot look at {}", mount.display()))?;
    let mut walk = Walk {
        losses,
        begins_at,
        device: meta.dev(),
        seen: HashSet::new(),
        looked_at: 0,
        found: Found::default(),
        progress: Progress::new(format!("looking through {}", mount.display()), quiet),
    };
    let mut directories = vec![mount];
    while let Some(directory) = directories.pop() {
        walk.directory(&directory, &mut directories)?;
    }
    let mut found = walk.found;
    found.files.sort_by(|one, other| one.path.cmp(&other.path));
    found.unknowable.sort();
    found.unknowable.dedup();
    Ok(found)
}

struct Walk<'l> {
    losses: &'l Losses,
    /// Where on the volume the file system begins.
    begins_at: u64,
    /// Of the file system: what is mounted below it is another one.
    device: u64,
    /// Files with several names.
    seen: HashSet<u64>,
    looked_at: u64,
    found: Found,
    progress: Progress,
}

impl Walk<'_> {
    /// Looks at a directory and all that is in it; directories in it are for later.
    fn directory(&mut self, path: &Path, later: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        // Some names may be in blocks that are lost.
        if self.lost_bytes(path, OFlags::DIRECTORY)? != Some(0) {
            self.found.unknowable.push(path.into());
        }
        let Ok(entries) = std::fs::read_dir(path) else {
            self.found.unknowable.push(path.into());
            return Ok(());
        };
        for entry in entries {
            let Ok(entry) = entry else {
                self.found.unknowable.push(path.into());
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
                Err(_) => self.found.unknowable.push(path),
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: PathBuf, meta: &Metadata) -> anyhow::Result<()> {
        if meta.is_symlink() {
            // Where a long one leads is in a block of its own.
            if std::fs::read_link(&path).is_err() {
                self.found.unknowable.push(path);
            }
            return Ok(());
        }
        if !meta.is_file() || meta.nlink() > 1 && !self.seen.insert(meta.ino()) {
            return Ok(());
        }
        match self.lost_bytes(&path, OFlags::NONBLOCK)? {
            None => self.found.unknowable.push(path),
            Some(0) => {}
            Some(lost) => {
                let lost_bytes = lost.min(meta.len().max(1));
                self.found.files.push(FileDoc { path, lost_bytes });
            }
        }
        Ok(())
    }

    /// Bytes of a file or directory in lost ranges; none where that cannot be known.
    fn lost_bytes(&self, path: &Path, flags: OFlags) -> anyhow::Result<Option<u64>> {
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(None) };
        let extents = match file_extents(&file) {
            Ok(extents) => extents,
            Err(Errno::OPNOTSUPP | Errno::NOTTY) if flags.contains(OFlags::DIRECTORY) => return Ok(Some(0)),
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => bail!(
                "{} is on a file system that does not say where on the device its files are; it is not handled",
                path.display()
            ),
            Err(_) => return Ok(None),
        };
        let mut lost = 0;
        for extent in extents {
            let Some(physical) = extent.physical else { return Ok(None) };
            lost += self.lost_in(self.begins_at + physical, extent.len);
        }
        Ok(Some(lost))
    }

    /// Bytes of a stretch of the volume that are no good.
    fn lost_in(&self, from: u64, len: u64) -> u64 {
        let ranges = &self.losses.ranges;
        let to = from.saturating_add(len);
        let first = ranges.partition_point(|range| range.offset + range.len <= from);
        let inside = ranges[first..].iter().take_while(|range| range.offset < to);
        inside.map(|range| to.min(range.offset + range.len) - from.max(range.offset)).sum()
    }
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

/// Where on the volume a file system begins, which is on the volume's device or on a partition of it.
fn on_volume(mounted: &Mounted, size_bytes: u64) -> anyhow::Result<u64> {
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
    let bytes = number(&disk, "size")? * SYS_SECTOR;
    if loop_offset + bytes != size_bytes {
        bail!(
            "{source} is no device of this volume: that has {size_bytes} bytes, and {} has {bytes}",
            disk.file_name().unwrap_or_default().to_string_lossy()
        );
    }
    Ok(loop_offset + start)
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
        let error = on_volume(&mounted, 1 << 30).expect_err("it does not say where files are").to_string();
        assert!(error.contains("/dev/sdx is btrfs"), "{error}");
    }
}
