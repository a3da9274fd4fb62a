//! Which files somebody wants on a tier. A pin is for a place on the volume; a wish is for a file or a directory, wherever it
//! lies. Wishes are in a small file beside the volume's history, with what was pinned for each.

use crate::volume::Volume;
use anyhow::{Context as _, bail};
use bimetal_serve::ask::TierName;
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const VERSION: u32 = 1;
/// Largest file of wishes that is read.
const MAX_BYTES: u64 = 16 << 20;

/// Bytes from, and how many.
pub(super) type Range = (u64, u64);

/// That a file or a directory is to be on a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wish {
    /// Where its file system begins on the volume.
    pub(super) begins_at: u64,
    /// From the mount point.
    pub(super) path: PathBuf,
    /// Which it is under whatever name: its inode, and when that was made, nanoseconds since 1970.
    pub(super) inode: u64,
    pub(super) made_ns: u64,
    pub(super) tier: TierName,
    /// What was pinned for it.
    pub(super) ranges: Vec<Range>,
}

/// Which file this is, whatever it is called: none where its file system does not tell when it was made.
pub(super) fn identity(meta: &Metadata) -> (u64, u64) {
    let made = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    (meta.ino(), made.map_or(0, |since| since.as_nanos() as u64))
}

/// All wishes of a volume.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Wishes {
    version: u32,
    pub(super) wishes: Vec<Wish>,
}

impl Wishes {
    /// Reads them; none where there is no file.
    pub(super) fn read(volume: &Volume) -> anyhow::Result<Wishes> {
        let file = volume.pinned_file();
        let cannot = || format!("cannot read {}", file.display());
        let bytes = match std::fs::metadata(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Wishes::default()),
            found => found.with_context(cannot)?.len(),
        };
        if bytes > MAX_BYTES {
            bail!("{} is no list of wishes: it is too large", file.display());
        }
        let text = std::fs::read_to_string(&file).with_context(cannot)?;
        let read: Wishes = serde_json::from_str(&text)
            .with_context(|| format!("{} is no list of wishes", file.display()))?;
        if read.version != VERSION {
            bail!("{} is of another release", file.display());
        }
        Ok(read)
    }

    /// Writes them, whole or not at all.
    pub(super) fn write(&mut self, volume: &Volume) -> anyhow::Result<()> {
        self.version = VERSION;
        let file = volume.pinned_file();
        let cannot = || format!("cannot write {}", file.display());
        let dir = file.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(dir).with_context(cannot)?;
        let mut new = tempfile::NamedTempFile::new_in(dir).with_context(cannot)?;
        new.write_all(&serde_json::to_vec_pretty(self)?).with_context(cannot)?;
        new.as_file().sync_all().with_context(cannot)?;
        new.persist(&file).with_context(cannot)?;
        Ok(())
    }

    /// What is wished for of this file or directory from now on, in place of what was.
    pub(super) fn set(&mut self, wish: Wish) {
        self.wishes.retain(|other| (other.begins_at, &other.path) != (wish.begins_at, &wish.path));
        self.wishes.push(wish);
    }

    /// Forgets what is wished for of this and of what is below it; what was pinned for that.
    pub(super) fn forget(&mut self, begins_at: u64, path: &Path) -> anyhow::Result<Vec<Range>> {
        let is_here = |wish: &&Wish| wish.begins_at == begins_at;
        let above =
            self.wishes.iter().filter(is_here).find(|wish| path.starts_with(&wish.path) && path != wish.path);
        if let Some(above) = above {
            bail!("{} is pinned as a part of {}; unpin that", path.display(), above.path.display());
        }
        let is_it = |wish: &Wish| wish.begins_at == begins_at && wish.path.starts_with(path);
        let ranges =
            self.wishes.iter().filter(|wish| is_it(wish)).flat_map(|wish| wish.ranges.clone()).collect();
        self.wishes.retain(|wish| !is_it(wish));
        Ok(joined(ranges))
    }

    /// What is pinned for all of them.
    pub(super) fn ranges(&self) -> Vec<Range> {
        joined(self.wishes.iter().flat_map(|wish| wish.ranges.iter().copied()).collect())
    }
}

/// Ranges in order that do not meet.
pub(super) fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut all: Vec<Range> = Vec::with_capacity(ranges.len());
    for (from, bytes) in ranges {
        match all.last_mut() {
            Some((begin, length)) if *begin + *length >= from => {
                *length = (*length).max(from + bytes - *begin)
            }
            _ => all.push((from, bytes)),
        }
    }
    all
}

/// What is in one and not in the other; both in order, and apart.
pub(super) fn without(ranges: &[Range], others: &[Range]) -> Vec<Range> {
    let mut left = Vec::new();
    for &(from, bytes) in ranges {
        let (mut at, end) = (from, from + bytes);
        let first = others.partition_point(|(other, length)| other + length <= from);
        for &(other, length) in others[first..].iter().take_while(|(other, _)| *other < end) {
            if other > at {
                left.push((at, other - at));
            }
            at = at.max(other + length);
        }
        if at < end {
            left.push((at, end - at));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(path: &str, ranges: &[Range]) -> Wish {
        let (path, ranges) = (path.into(), ranges.to_vec());
        Wish { begins_at: 0, path, inode: 1, made_ns: 2, tier: TierName::Fast, ranges }
    }

    #[test]
    fn ranges_are_taken_apart() {
        assert_eq!(joined(vec![(8, 4), (0, 4), (4, 2), (10, 6)]), [(0, 6), (8, 8)]);
        let all = [(0, 10), (20, 10), (40, 10)];
        assert_eq!(without(&all, &[]), all);
        assert_eq!(without(&all, &all), []);
        assert_eq!(
            without(&all, &[(2, 3), (8, 14), (25, 1), (49, 50)]),
            [(0, 2), (5, 3), (22, 3), (26, 4), (40, 9)]
        );
    }

    #[test]
    fn who_is_pinned_as_a_part_is_not_unpinned_alone() {
        let mut wishes = Wishes::default();
        wishes.set(wish("series", &[(0, 4)]));
        wishes.set(wish("series", &[(4, 4)]));
        wishes.set(wish("film", &[(8, 4)]));
        assert!(wishes.forget(0, Path::new("series/one")).is_err());
        assert_eq!(wishes.forget(7, Path::new("series")).expect("of another file system"), []);
        assert_eq!(wishes.forget(0, Path::new("series")).expect("it is there"), [(4, 4)]);
        assert_eq!(wishes.ranges(), [(8, 4)]);
        assert_eq!(wishes.forget(0, Path::new("")).expect("all of it"), [(8, 4)]);
        assert!(wishes.wishes.is_empty());
    }
}
