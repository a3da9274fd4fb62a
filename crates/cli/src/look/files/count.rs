//! Where the bytes of many files are: their extents, cut with those of the volume.

use super::FileDoc;
use crate::look::source::Source;
use crate::look::tree::Visitor;
use bimetal_driver::fiemap::FileExtent;
use bimetal_serve::map::{ExtentsDoc, Kept};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// A part of a file on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    from: u64,
    bytes: u64,
    /// Its place among the files.
    file: u32,
}

/// Files, and where each is.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// Where on the volume the file system begins.
    begins_at: u64,
    stretches: Vec<Stretch>,
    pub(super) files: Vec<FileDoc>,
    pub(super) unknowable: Vec<PathBuf>,
}

impl Counted {
    /// None yet, of a file system that begins here on its volume.
    pub(super) fn new(begins_at: u64) -> Counted {
        Counted { begins_at, ..Counted::default() }
    }

    /// Asks where everything is, in the order of the volume, so that each part of it is asked for once.
    pub(super) fn ask(&mut self, source: &mut Source) -> anyhow::Result<()> {
        self.stretches.sort_unstable();
        let end = self.stretches.iter().map(|stretch| stretch.from + stretch.bytes).max().unwrap_or(0);
        let mut window = Window::default();
        for stretch in &self.stretches {
            let file = &mut self.files[stretch.file as usize];
            let (mut at, to) = (stretch.from, stretch.from + stretch.bytes);
            while at < to {
                if !window.holds(at) {
                    window = Window::new(at, source.extents(at, end)?);
                }
                // What is behind the volume's end is nowhere.
                let (until, kept, heat) = window.at(at).unwrap_or((to, Kept::Lost, 0));
                let bytes = until.min(to) - at;
                file.kept.add(kept, bytes);
                file.heat += f64::from(heat) * bytes as f64;
                file.hottest = file.hottest.max(heat);
                at += bytes;
            }
        }
        for file in &mut self.files {
            file.heat /= file.bytes.max(1) as f64;
        }
        Ok(())
    }

    /// The chunks that hold something of the files, as ranges of bytes that do not meet.
    pub(super) fn ranges(&self, chunk_bytes: u32) -> Vec<(u64, u64)> {
        let chunk_bytes = u64::from(chunk_bytes).max(1);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for stretch in &self.stretches {
            let from = stretch.from / chunk_bytes * chunk_bytes;
            let to = (stretch.from + stretch.bytes).div_ceil(chunk_bytes) * chunk_bytes;
            match ranges.last_mut() {
                Some((begin, bytes)) if *begin + *bytes >= from => *bytes = (*bytes).max(to - *begin),
                _ => ranges.push((from, to - from)),
            }
        }
        ranges
    }
}

impl Visitor for Counted {
    fn file(&mut self, path: PathBuf, _meta: &Metadata, extents: &[FileExtent]) {
        let number = self.files.len() as u32;
        let mut file = FileDoc { path, ..FileDoc::default() };
        for extent in extents {
            match extent.physical {
                Some(physical) => {
                    file.bytes += extent.len;
                    let from = self.begins_at + physical;
                    self.stretches.push(Stretch { from, bytes: extent.len, file: number });
                }
                None => file.unknown_bytes += extent.len,
            }
        }
        self.files.push(file);
    }

    fn directory(&mut self, _path: &Path, _extents: &[FileExtent]) {}

    fn unknowable(&mut self, path: PathBuf) {
        self.unknowable.push(path);
    }
}

/// A part of the volume of which it is known where everything is.
#[derive(Debug, Default)]
struct Window {
    from: u64,
    /// Where each extent ends, and what it is.
    extents: Vec<(u64, Kept)>,
    chunk_bytes: u64,
    heats: Vec<u32>,
}

impl Window {
    fn new(from: u64, doc: ExtentsDoc) -> Window {
        let mut end = from;
        let ends = doc.extents.into_iter().map(|(bytes, kept)| {
            end += bytes;
            (end, kept)
        });
        Window {
            from,
            extents: ends.collect(),
            chunk_bytes: u64::from(doc.chunk_bytes).max(1),
            heats: doc.heats,
        }
    }

    fn holds(&self, byte: u64) -> bool {
        (self.from..self.extents.last().map_or(self.from, |last| last.0)).contains(&byte)
    }

    /// Up to where it is the same, where that is, and how hot.
    fn at(&self, byte: u64) -> Option<(u64, Kept, u32)> {
        let nth = self.extents.partition_point(|(end, _)| *end <= byte);
        let (end, kept) = *self.extents.get(nth)?;
        let chunk = byte / self.chunk_bytes;
        let heat =
            self.heats.get((chunk - self.from / self.chunk_bytes) as usize).copied().unwrap_or_default();
        Some((end.min((chunk + 1) * self.chunk_bytes), kept, heat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(stretches: &[(u64, u64)]) -> Counted {
        let stretches = stretches.iter().map(|&(from, bytes)| Stretch { from, bytes, file: 0 }).collect();
        Counted { stretches, ..Counted::default() }
    }

    #[test]
    fn neighbouring_chunks_are_one_range() {
        let ranges = counted(&[(4096, 4096), (65536, 65536), (140_000, 1), (300_000, 4096)]).ranges(65536);
        assert_eq!(ranges, [(0, 3 * 65536), (4 * 65536, 65536)]);
        assert!(counted(&[]).ranges(65536).is_empty());
    }

    #[test]
    fn a_window_tells_each_chunk_apart() {
        let doc = ExtentsDoc {
            chunk_bytes: 100,
            extents: vec![(60, Kept::Fast), (200, Kept::Slow)],
            heats: vec![1, 2, 3, 4],
            ..ExtentsDoc::default()
        };
        let window = Window::new(150, doc);
        assert!(window.holds(150) && window.holds(409) && !window.holds(410) && !window.holds(149));
        assert_eq!(window.at(150), Some((200, Kept::Fast, 1)));
        assert_eq!(window.at(205), Some((210, Kept::Fast, 2)));
        assert_eq!(window.at(210), Some((300, Kept::Slow, 2)));
        assert_eq!(window.at(399), Some((400, Kept::Slow, 3)));
        assert_eq!(window.at(410), None);
    }
}
