//! The other side of a copy: a disk, a partition or an image, with raw bytes.

use crate::signatures;
use anyhow::{Context as _, bail};
use rustix::fs::{Advice, FlockOperation, Mode, OFlags, SeekFrom, fadvise, flock, open, seek};
use rustix::io::Errno;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Images whose bytes are not those of the disk in them.
const NOT_RAW: [&str; 4] = ["a qcow2 image", "a VMDK image", "a VHDX image", "a VHD image"];

/// What is copied from, open and kept from being changed by those who ask.
pub(super) struct Source {
    path: PathBuf,
    file: File,
    size_bytes: u64,
    /// Whether it can say where its holes are.
    knows_holes: bool,
}

impl Source {
    /// Refuses what is in use, or is no raw image.
    pub(super) fn open(path: &Path) -> anyhow::Result<Source> {
        let cannot = || format!("cannot read {}", path.display());
        let kind = std::fs::metadata(path).with_context(cannot)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            bail!("{} is neither a regular file nor a block device", path.display());
        }
        let in_use =
            || format!("{} is mounted or in use; unmount it, or end who uses it, first", path.display());
        if bimetal_driver::in_use(path) {
            bail!(in_use());
        }
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        if kind.is_block_device() {
            flags |= OFlags::EXCL;
        }
        let fd = match open(path, flags, Mode::empty()) {
            Err(Errno::BUSY) => bail!(in_use()),
            opened => opened.map_err(std::io::Error::from).with_context(cannot)?,
        };
        if flock(&fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK) {
            bail!(in_use());
        }
        let size_bytes = seek(&fd, SeekFrom::End(0)).map_err(std::io::Error::from).with_context(cannot)?;
        let knows_holes = kind.is_file() && !matches!(seek(&fd, SeekFrom::Hole(0)), Err(Errno::INVAL));
        let source = Source { path: path.into(), file: fd.into(), size_bytes, knows_holes };
        let found = signatures::probe(&source.file, size_bytes).with_context(cannot)?;
        if let Some(image) = found.iter().find(|found| NOT_RAW.contains(&found.what.as_str())) {
            bail!(
                "{} is {}, and only raw bytes are copied; make a raw image of it with `qemu-img convert -O raw`",
                path.display(),
                image.what
            );
        }
        Ok(source)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// By what it is known whether this is the same source, and unchanged: text that is compared as a whole.
    pub(super) fn mark(&self) -> anyhow::Result<String> {
        let meta = self.file.metadata().with_context(|| format!("cannot examine {}", self.path.display()))?;
        if !meta.file_type().is_block_device() {
            let (dev, ino, at) = (meta.dev(), meta.ino(), (meta.mtime(), meta.mtime_nsec()));
            return Ok(format!("file {dev} {ino}, {} bytes, of {}.{:09}", self.size_bytes, at.0, at.1));
        }
        // The kernel counts what is written to a device from boot on; where it does not, nothing is known.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let stat =
            std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
        let written = stat.split_whitespace().nth(WRITTEN_SECTORS).unwrap_or("unknown");
        Ok(format!("device {major}:{minor} {}, {} bytes, {written} written", boot.trim(), self.size_bytes))
    }

    /// Whether there may be data in a range.
    pub(super) fn has_data(&self, range: &Range<u64>) -> bool {
        !self.knows_holes
            || match seek(&self.file, SeekFrom::Data(range.start)) {
                Ok(data) => data < range.end,
                // None up to the end.
                Err(Errno::NXIO) => false,
                Err(_) => true,
            }
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.file.read_exact_at(bytes, at).with_context(|| {
            format!("cannot read the {} bytes from byte {at} of {}", bytes.len(), self.path.display())
        })
    }

    /// Lets go of what the page cache keeps of it: nobody reads it twice.
    pub(super) fn forget(&self, range: &Range<u64>) {
        let _ = fadvise(&self.file, range.start, NonZeroU64::new(range.end - range.start), Advice::DontNeed);
    }
}

/// The place of the sectors written in a block device's `stat`.
const WRITTEN_SECTORS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(bytes).expect("bytes");
        file
    }

    #[test]
    fn a_source_that_was_changed_has_another_mark() {
        let made = file(&[1; 5000]);
        let mark = |path: &Path| Source::open(path).expect("a source").mark().expect("a mark");
        let before = mark(made.path());
        assert_eq!(before, mark(made.path()));
        made.as_file().set_len(5001).expect("size");
        assert_ne!(before, mark(made.path()));
    }

    #[test]
    fn what_is_not_raw_or_is_in_use_is_refused_with_a_cure() {
        let refused =
            |path: &Path| Source::open(path).err().map(|error| format!("{error:#}")).unwrap_or_default();
        let image = file(b"QFI\xfb and more");
        assert!(refused(image.path()).contains("qemu-img convert"), "{}", refused(image.path()));
        let used = file(&[1; 100]);
        flock(used.as_file(), FlockOperation::NonBlockingLockExclusive).expect("a lock");
        assert!(refused(used.path()).contains("in use"), "{}", refused(used.path()));
        assert!(refused(Path::new("/dev/null")).contains("neither"), "{}", refused(Path::new("/dev/null")));
        assert!(refused(Path::new("/nowhere/x")).contains("/nowhere/x"));
    }

    #[test]
    fn holes_have_no_data() {
        let sparse = tempfile::NamedTempFile::new().expect("a file");
        sparse.as_file().set_len(10 << 20).expect("size");
        sparse.as_file().write_all_at(&[1; 4096], 5 << 20).expect("bytes");
        let source = Source::open(sparse.path()).expect("a source");
        assert!(source.has_data(&(5 << 20..6 << 20)));
        // A file system without holes says that there is data everywhere.
        if source.knows_holes && !source.has_data(&(8 << 20..9 << 20)) {
            assert!(!source.has_data(&(0..1 << 20)));
        }
        let mut bytes = [0; 4096];
        source.read(5 << 20, &mut bytes).expect("bytes");
        assert_eq!(bytes, [1; 4096]);
        assert!(source.read(10 << 20, &mut bytes).is_err());
    }
}
