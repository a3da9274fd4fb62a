//! Which files of a mounted file system have something in lost ranges of the volume below it. What cannot be read or asked, since
//! what says so is lost itself, is named as unknowable: what is named in all is never too little.

use crate::look::tree::{self, Place, Visitor};
use crate::size;
use bimetal_driver::fiemap::FileExtent;
use bimetal_engine::loss::Losses;
use serde::Serialize;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

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
    let place = Place::of(mount)?;
    place.must_be_of(size_bytes)?;
    let mut search = Search { losses, begins_at: place.begins_at, found: Found::default() };
    tree::walk(&place.mount, quiet, &mut search)?;
    let mut found = search.found;
    found.files.sort_by(|one, other| one.path.cmp(&other.path));
    found.unknowable.sort();
    found.unknowable.dedup();
    Ok(found)
}

struct Search<'l> {
    losses: &'l Losses,
    /// Where on the volume the file system begins.
    begins_at: u64,
    found: Found,
}

impl Visitor for Search<'_> {
    fn file(&mut self, path: PathBuf, meta: &Metadata, extents: &[FileExtent]) {
        match self.lost_bytes(extents) {
            None => self.found.unknowable.push(path),
            Some(0) => {}
            Some(lost) => {
                let lost_bytes = lost.min(meta.len().max(1));
                self.found.files.push(FileDoc { path, lost_bytes });
            }
        }
    }

    fn directory(&mut self, path: &Path, extents: &[FileExtent]) {
        // Some names may be in blocks that are lost.
        if self.lost_bytes(extents) != Some(0) {
            self.found.unknowable.push(path.into());
        }
    }

    fn unknowable(&mut self, path: PathBuf) {
        self.found.unknowable.push(path);
    }
}

impl Search<'_> {
    /// Bytes of a file or directory in lost ranges; none where that cannot be known.
    fn lost_bytes(&self, extents: &[FileExtent]) -> Option<u64> {
        let of = |extent: &FileExtent| Some(self.lost_in(self.begins_at + extent.physical?, extent.len));
        extents.iter().map(of).sum()
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
