//! What the kernel and the system tell of themselves in files, read below a root: `/`, or a folder that stands for it.

use rustix::fs::{major, makedev, minor};
use std::path::{Path, PathBuf};

/// Where these files are.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) PathBuf);

impl Root {
    /// A path of the system, below the root.
    pub(crate) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// What a file says; none where it is not there, or may not be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(std::fs::read_to_string(self.at(path)).ok()?.trim().to_owned())
    }

    /// A field of `/proc/meminfo`, bytes.
    pub(crate) fn memory(&self, field: &str) -> Option<u64> {
        let text = self.text("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    /// The kernel's release, as two numbers.
    pub(crate) fn kernel(&self) -> Option<(u32, u32)> {
        let text = self.text("/proc/sys/kernel/osrelease")?;
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// The folder of a block device.
    pub(crate) fn block(&self, device: u64) -> Option<PathBuf> {
        let path = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        self.at(path).canonicalize().ok()
    }
}

/// What a file in a folder of `/sys` says.
pub(crate) fn said(folder: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder.join(name)).ok()?.trim().to_owned())
}

/// The same, as a number.
pub(crate) fn number(folder: &Path, name: &str) -> Option<u64> {
    said(folder, name)?.parse().ok()
}

/// The number of a block device, as its folder says.
pub(crate) fn device_number(folder: &Path) -> Option<u64> {
    let text = said(folder, "dev")?;
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A file system that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// `ext4`
    pub(crate) kind: String,
    /// Where it is mounted.
    pub(crate) place: PathBuf,
    /// What it is mounted from.
    pub(crate) source: String,
    /// Its own options, and those of this mount.
    pub(crate) options: Vec<String>,
}

/// The file system with this device number, of which one of its mounts is taken.
pub(crate) fn file_system(root: &Root, device: u64) -> Option<FileSystem> {
    let table = root.text("/proc/self/mountinfo")?;
    let wanted = format!("{}:{}", major(device), minor(device));
    table.lines().find_map(|line| {
        // The third field is the device, the fifth the place; behind a dash stand kind, source and options (proc(5)).
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let mut right = right.split(' ');
        (left.get(2) == Some(&wanted.as_str())).then_some(())?;
        let (kind, source) = (right.next()?.to_owned(), right.next()?.to_owned());
        let options = [left.get(5).copied(), right.next()];
        let options = options.into_iter().flatten().flat_map(|text| text.split(',')).map(str::to_owned);
        let place = PathBuf::from(left.get(4)?.replace("\\040", " "));
        Some(FileSystem { kind, place, source, options: options.collect() })
    })
}
