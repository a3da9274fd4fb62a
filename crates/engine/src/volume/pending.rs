//! Written but not yet shown: first writes into fast slots and streams into slow slots.
//!
//! Their data is on the device, perhaps in its cache, and reads see it here; no record names it yet,
//! so a crash forgets it, which is allowed as long as no flush was answered. A commit flushes the
//! data, records it, flushes the record, and moves the entry into the map.

use crate::base::hash::IndexMap;
use crate::base::mask::BlockMask;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// A chunk with blocks that no record shows.
#[derive(Serialize, Deserialize)]
pub struct PendingChunk {
    /// Where they were written.
    pub home: Home,
    /// Blocks whose write has completed.
    pub written: BlockMask,
    /// Blocks that the running commit flushes and records.
    pub flushing: BlockMask,
    /// Landed blocks before this are superseded (a stream); zero supersedes none.
    pub ends: LogPos,
    /// Checksums by block (slow homes only).
    pub sums: Vec<u32>,
    /// Writes in flight.
    pub in_flight: u32,
}

impl PendingChunk {
    /// Blocks that reads find here.
    pub fn shown(&self) -> BlockMask {
        self.written.or(self.flushing)
    }
}

/// All such chunks.
#[derive(Default, Serialize, Deserialize)]
pub struct Pending {
    chunks: IndexMap<Chunk, PendingChunk>,
    /// Chunks with written blocks, in the order they came: what the next commit takes.
    pub dirty: Vec<Chunk>,
    /// Bytes in slow slots.
    pub slow_bytes: u64,
    /// When the oldest of `dirty` came.
    pub since: Option<Nanos>,
}

impl Pending {
    /// The chunk's entry.
    pub fn get(&self, chunk: Chunk) -> Option<&PendingChunk> {
        self.chunks.get(&chunk)
    }
    /// The chunk's entry.
    pub fn get_mut(&mut self, chunk: Chunk) -> Option<&mut PendingChunk> {
        self.chunks.get_mut(&chunk)
    }
    /// Entries.
    pub fn len(&self) -> usize {
        self.chunks.len()
    }

    /// A write to the chunk's pending home begins; there is an entry from here on.
    pub(crate) fn begin(&mut self, chunk: Chunk, home: Home, chunk_bytes: u32) {
        let entry = self.chunks.entry(chunk).or_insert_with(|| {
            self.slow_bytes += if home.tier == SLOW { u64::from(chunk_bytes) } else { 0 };
            let (written, flushing) = (BlockMask::EMPTY, BlockMask::EMPTY);
            PendingChunk { home, written, flushing, ends: LogPos(0), sums: Vec::new(), in_flight: 0 }
        });
        assert!(entry.home == home, "a chunk is written to one pending home");
        entry.in_flight += 1;
    }

    /// A write to the chunk's pending home has ended.
    pub(crate) fn end(&mut self, chunk: Chunk, written: BlockMask, now: Nanos) {
        let entry = self.chunks.get_mut(&chunk).expect("a write in flight has its entry");
        entry.in_flight -= 1;
        if entry.written.is_empty() && !written.is_empty() {
            self.dirty.push(chunk);
            self.since.get_or_insert(now);
        }
        entry.written = entry.written.or(written);
    }

    /// Forgets an entry in which nothing is left; gives its home.
    pub(crate) fn forget_if_empty(&mut self, chunk: Chunk, chunk_bytes: u32) -> Option<Home> {
        let entry = self.chunks.get(&chunk)?;
        if entry.in_flight > 0 || !entry.shown().is_empty() {
            return None;
        }
        let home = entry.home;
        self.chunks.remove(&chunk);
        self.dirty.retain(|c| *c != chunk);
        if home.tier == SLOW {
            self.slow_bytes -= u64::from(chunk_bytes);
        }
        Some(home)
    }
}
