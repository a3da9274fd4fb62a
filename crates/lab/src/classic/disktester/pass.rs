//! One pass over files, from the first to the last: they are written, or read.

use crate::job::{Job, Ops, Order, Sizes};
use crate::load::stamp;
use bimetal_load::{Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_sim::scenario::{Extent, Files, FilesSpec, Size, Whole};
use bimetal_units::rng::Rng;
use std::ops::Range;

/// What files are multiples of: a page, and the block of most file systems.
const GRANULE_BYTES: u64 = 4096;
/// The number that all stamps have: files are written once, so where a sector belongs says all.
const STAMP_NUMBER: u64 = 0;

/// The files, and how they are gone through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many.
    pub count: u64,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Bytes of an I/O.
    pub transfer_bytes: u64,
    /// I/Os in flight.
    pub depth: u32,
    /// Of what is written.
    pub seed: u64,
    /// Each sector says where it belongs.
    pub stamped: bool,
}

/// Why files cannot be so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// None, or too many.
    #[error("{0} files are not from 1 to {most}", most = crate::target::MAX_FILES)]
    Count(u64),
    /// A size that is no multiple of 4096.
    #[error("{0} bytes for {1} are not a multiple of {GRANULE_BYTES} from {GRANULE_BYTES} on")]
    Size(u64, &'static str),
    /// They do not fit.
    #[error("{0}")]
    Room(String),
}

impl Layout {
    /// # Errors
    /// When the figures make no sense.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.count == 0 || self.count > crate::target::MAX_FILES {
            return Err(LayoutError::Count(self.count));
        }
        for (bytes, what) in [(self.file_bytes, "a file"), (self.transfer_bytes, "a transfer")] {
            if bytes == 0 || !bytes.is_multiple_of(GRANULE_BYTES) {
                return Err(LayoutError::Size(bytes, what));
            }
        }
        Ok(())
    }

    /// All of them, bytes.
    pub fn bytes(&self) -> u64 {
        self.count.saturating_mul(self.file_bytes)
    }
}

/// What is done with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// They are written.
    Write,
    /// They are read.
    Read,
    /// They are read, and held against what was written.
    Verify,
}

impl Deed {
    pub(super) fn job(self, name: &str, layout: &Layout, files: &Range<u64>) -> Job {
        let span = files.start * layout.file_bytes..files.end * layout.file_bytes;
        let mut job = Job::new(name, span);
        job.ops = Ops::ReadWrite { read_percent: if self == Deed::Write { 0 } else { 100 } };
        job.order = [Order::SEQUENTIAL; 3];
        job.sizes = std::array::from_fn(|_| Sizes::one(layout.transfer_bytes.min(layout.file_bytes)));
        (job.depth, job.seed) = (layout.depth, layout.seed);
        // Payload is stamped, or compared.
        job.verify = self == Deed::Verify || (self == Deed::Write && layout.stamped);
        let options = [("transfer", layout.transfer_bytes), ("file size", layout.file_bytes)];
        job.options = options.map(|(name, bytes)| (name.to_owned(), bytes.to_string())).into();
        job
    }
}

/// The I/Os of a pass.
pub(super) struct Walk<'e> {
    files: Files,
    seed: u64,
    ios_per_file: u64,
    /// I/Os of each file that have not ended.
    left: Vec<u64>,
    /// How long each file took, of those that have ended with all before them.
    files_ns: Vec<u64>,
    last_ns: u64,
    failed: bool,
    /// Told how long each file took: on `true` no further one is begun.
    enough: &'e mut dyn FnMut(&[u64]) -> bool,
    is_enough: bool,
}

impl<'e> Walk<'e> {
    pub(super) fn new(
        layout: &Layout,
        files: &Range<u64>,
        deed: Deed,
        enough: &'e mut dyn FnMut(&[u64]) -> bool,
    ) -> Result<Walk<'e>, LayoutError> {
        layout.check()?;
        let kind = if deed == Deed::Write { Kind::Write { fua: false } } else { Kind::Read };
        let spec = FilesSpec {
            count: files.end - files.start,
            size: Size(layout.file_bytes),
            transfer: Size(layout.transfer_bytes),
            depth: layout.depth,
            from: Extent::Bytes(files.start * layout.file_bytes),
        };
        // Whoever opened the target has seen to it that they fit.
        let whole = Whole { target_bytes: layout.bytes(), trace_bytes: 0 };
        let (walk, _) = Files::new(&spec, kind, whole).map_err(LayoutError::Room)?;
        let ios_per_file = layout.file_bytes.div_ceil(layout.transfer_bytes);
        Ok(Walk {
            files: walk,
            seed: layout.seed,
            ios_per_file,
            left: vec![ios_per_file; spec.count as usize],
            files_ns: Vec::new(),
            last_ns: 0,
            failed: false,
            enough,
            is_enough: false,
        })
    }

    pub(super) fn into_files_ns(self) -> Vec<u64> {
        self.files_ns
    }
}

impl Source for Walk<'_> {
    fn next(&mut self, now: u64, rng: &mut Rng) -> Next {
        if self.failed || self.is_enough { Next::End } else { self.files.next(now, rng) }
    }

    fn ended(&mut self, number: u64, now: u64, done: bool) {
        self.failed |= !done;
        if self.failed {
            return;
        }
        self.left[(number / self.ios_per_file) as usize] -= 1;
        while self.left.get(self.files_ns.len()) == Some(&0) {
            self.files_ns.push(now - self.last_ns);
            self.last_ns = now;
            self.is_enough |= (self.enough)(&self.files_ns);
        }
    }

    fn fill(&mut self, _number: u64, command: &Command, bytes: &mut [u8]) {
        stamp::fill(bytes, self.seed, command.offset, STAMP_NUMBER);
    }

    fn check(&mut self, _number: u64, command: &Command, bytes: &[u8]) -> bool {
        stamp::is_filled(bytes, self.seed, command.offset, STAMP_NUMBER)
    }
}
