//! How far a scrub has come: a block of its own on the fast device, in one place.

use super::codec::{Get, Put};
use bimetal_units::{BLOCK_BYTES, Chunk};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Ranges in its list at most: they fit its block with room to spare.
pub const MAX_SCRUB_RANGES: usize = 480;
/// Blocks in one range at most.
pub const MAX_RANGE_BLOCKS: u64 = 1 << 16;
/// Bits of an entry that hold the range's first block.
const FIRST_BITS: u32 = 48;

/// What a scrub that was begun is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ScrubMark {
    /// None was ever begun.
    #[default]
    Never = 0,
    /// It is under way.
    Running = 1,
    /// It was stopped.
    Stopped = 2,
    /// It has seen everything.
    Whole = 3,
}

/// What is known of the last scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubPage {
    /// What it is doing.
    pub mark: ScrubMark,
    /// The chunk that it looks at next.
    pub next: Chunk,
    /// When it was begun, seconds since 1970.
    pub begun_unix_s: u64,
    /// When one had seen everything last, seconds since 1970; 0: never.
    pub whole_unix_s: u64,
    /// Blocks that were not as they should be.
    pub wrong: u64,
    /// Those of them that are as they should be again.
    pub repaired: u64,
    /// Bytes of the volume that are lost and for which the list has no room.
    pub unlisted_bytes: u64,
    /// Ranges of the volume that are lost, bytes: whole blocks; in order.
    pub lost: Vec<Range<u64>>,
}

/// Appends it: mark (1), zeros (3), next chunk (4), begun (8), whole (8), wrong (8), repaired (8), unlisted (8), the number of
/// ranges (4), zeros (4), then of each its first block (6) and one less than its blocks (2).
pub fn put_scrub(out: &mut Vec<u8>, page: &ScrubPage) {
    assert!(page.lost.len() <= MAX_SCRUB_RANGES, "the list fits its block");
    let mut put = Put(out);
    put.u8(page.mark as u8).bytes(&[0; 3]).u32(page.next.0);
    put.u64(page.begun_unix_s).u64(page.whole_unix_s).u64(page.wrong).u64(page.repaired);
    put.u64(page.unlisted_bytes).u32(page.lost.len() as u32).u32(0);
    for range in &page.lost {
        let block = u64::from(BLOCK_BYTES);
        let (first, blocks) = (range.start / block, (range.end - range.start) / block);
        put.u64(first | (blocks - 1) << FIRST_BITS);
    }
}

/// Reads it for a volume of so many chunks of so many bytes; `None` unless it makes sense there.
pub fn get_scrub(payload: &[u8], chunks: u32, volume_bytes: u64) -> Option<ScrubPage> {
    let mut get = Get(payload);
    let mark = match get.u8()? {
        1 => ScrubMark::Running,
        2 => ScrubMark::Stopped,
        3 => ScrubMark::Whole,
        _ => return None,
    };
    get.bytes(3)?;
    let next = Chunk(get.u32()?);
    let mut page = ScrubPage {
        mark,
        next,
        begun_unix_s: get.count()?,
        whole_unix_s: get.count()?,
        wrong: get.count()?,
        repaired: get.count()?,
        unlisted_bytes: get.count()?,
        lost: Vec::new(),
    };
    let count = get.u32()? as usize;
    get.u32()?;
    if count > MAX_SCRUB_RANGES || next.0 > chunks || page.repaired > page.wrong {
        return None;
    }
    let mut behind = 0;
    for _ in 0..count {
        let entry = get.u64()?;
        let (first, blocks) = (entry & ((1 << FIRST_BITS) - 1), (entry >> FIRST_BITS) + 1);
        let (start, end) = (first * u64::from(BLOCK_BYTES), (first + blocks) * u64::from(BLOCK_BYTES));
        if start < behind || end > volume_bytes {
            return None;
        }
        page.lost.push(start..end);
        behind = end;
    }
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn page() -> ScrubPage {
        ScrubPage {
            mark: ScrubMark::Running,
            next: Chunk(7),
            begun_unix_s: 1_700_000_000,
            whole_unix_s: 0,
            wrong: 5,
            repaired: 2,
            unlisted_bytes: 4096,
            lost: vec![0..BLOCK, 2 * BLOCK..4 * BLOCK],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        put_scrub(&mut bytes, &page());
        assert_eq!(get_scrub(&bytes, 8, 16384), Some(page()));
        let lost = (0..MAX_SCRUB_RANGES as u64).map(|n| 2 * n * BLOCK..(2 * n + 1) * BLOCK).collect();
        let full = ScrubPage { lost, ..page() };
        bytes.clear();
        put_scrub(&mut bytes, &full);
        assert!(bytes.len() <= crate::format::page::PAGE_PAYLOAD);
        assert_eq!(get_scrub(&bytes, 8, 1000 * BLOCK), Some(full));
    }

    #[test]
    fn what_makes_no_sense_is_none() {
        let mut bytes = Vec::new();
        put_scrub(&mut bytes, &page());
        assert_eq!(get_scrub(&bytes, 6, 16384), None, "a chunk behind the end");
        assert_eq!(get_scrub(&bytes, 8, 16383), None, "a range behind the end");
        assert_eq!(get_scrub(&bytes[..bytes.len() - 1], 8, 16384), None);
        for mark in [0, 4, 255] {
            bytes[0] = mark;
            assert_eq!(get_scrub(&bytes, 8, 16384), None);
        }
    }
}
