//! The four rows that CrystalDiskMark 8 prints, by which reviewers compare drives: 1 MiB in order with 8 and with 1 in
//! flight, 4 KiB at random with 32 and with 1; each read and written by one thread.

use super::run::{DEEP, SMALL_READ, SMALL_WRITE};
use crate::record::{JobRun, Side};
use serde::Serialize;

/// Reads or writes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MarkSide {
    /// Millions of bytes in a second.
    pub mb_per_s: f64,
    /// I/Os in a second.
    pub iops: f64,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// As CrystalDiskMark calls it.
    pub name: &'static str,
    /// Of an I/O.
    pub bytes: u64,
    /// In flight.
    pub depth: u32,
    /// None where nothing was read.
    pub read: Option<MarkSide>,
    /// None where nothing was written.
    pub write: Option<MarkSide>,
}

pub(super) const SEQ_DEEP_READ: &str = "sequential read, 1M, 8 in flight";
pub(super) const SEQ_READ: &str = "sequential read, 1M";
pub(super) const SEQ_DEEP_WRITE: &str = "sequential write, 1M, 8 in flight";
pub(super) const SEQ_WRITE: &str = "sequential write, 1M";
pub(super) const RANDOM_DEEP_WRITE: &str = "random write, 4K, 32 in flight";

/// The rows: their names, what is in flight, and the parts that read and write.
const ROWS: [(&str, u64, u32, &str, &str); 4] = [
    ("SEQ1M Q8T1", 1 << 20, 8, SEQ_DEEP_READ, SEQ_DEEP_WRITE),
    ("SEQ1M Q1T1", 1 << 20, 1, SEQ_READ, SEQ_WRITE),
    ("RND4K Q32T1", 4 << 10, 32, DEEP, RANDOM_DEEP_WRITE),
    ("RND4K Q1T1", 4 << 10, 1, SMALL_READ, SMALL_WRITE),
];

/// All four rows of what was run.
pub(super) fn marks(ran: &[JobRun]) -> Vec<Mark> {
    let side = |part: &str, of: fn(&JobRun) -> &Side| {
        let ran = ran.iter().find(|ran| ran.name == part && ran.errors.is_empty())?;
        let (side, seconds) = (of(ran), ran.elapsed_ns as f64 / 1e9);
        let found = MarkSide { mb_per_s: side.bytes as f64 / 1e6 / seconds, iops: side.ios as f64 / seconds };
        (side.ios > 0 && seconds > 0.0).then_some(found)
    };
    let row = |(name, bytes, depth, reads, writes)| Mark {
        name,
        bytes,
        depth,
        read: side(reads, |ran| &ran.read),
        write: side(writes, |ran| &ran.write),
    };
    ROWS.map(row).into()
}
