//! Written but not yet shown: first writes into fast slots and streams into slow slots.
//!
//! Their data is on the device, perhaps in its cache, and reads see it here; no record names it yet,
//! so a crash forgets it, which is allowed as long as no flush was answered. A commit flushes the
//! data, records it, flushes the record, and moves the entry into the map.

use crate::base::arena::Arena;
use crate::base::hash::IndexMap;
use crate::base::mask::BlockMask;
use crate::engine::Engine;
use bimetal_units::*;

/// A chunk with blocks that no record shows.
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
#[derive(Default)]
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
}

impl<A: Arena> Engine<A> {
    /// Notes that a write to the chunk's pending home begins; makes the entry if there is none.
    pub(crate) fn pend(&mut self, chunk: Chunk, home: Home) {
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let entry = self.space.pending.chunks.entry(chunk).or_insert_with(|| {
            self.space.pending.slow_bytes += if home.tier == SLOW { chunk_bytes } else { 0 };
            let (written, flushing) = (BlockMask::EMPTY, BlockMask::EMPTY);
            PendingChunk { home, written, flushing, ends: LogPos(0), sums: Vec::new(), in_flight: 0 }
        });
        assert!(entry.home == home, "a chunk is written to one pending home");
        entry.in_flight += 1;
        self.state.map.set_pending(chunk, true);
    }

    /// A write to the chunk's pending home has ended.
    pub(crate) fn pend_done(&mut self, chunk: Chunk, written: BlockMask) {
        let now = self.io.now;
        let entry = self.space.pending.chunks.get_mut(&chunk).expect("a write in flight has its entry");
        entry.in_flight -= 1;
        if entry.written.is_empty() && !written.is_empty() {
            self.space.pending.dirty.push(chunk);
            self.space.pending.since.get_or_insert(now);
        }
        entry.written = entry.written.or(written);
        self.forget_if_empty(chunk);
    }

    /// Forgets an entry in which nothing is left; gives a slot that no record names back.
    pub(crate) fn forget_if_empty(&mut self, chunk: Chunk) {
        let Some(entry) = self.space.pending.get(chunk) else { return };
        if entry.in_flight > 0 || !entry.shown().is_empty() {
            return;
        }
        let home = entry.home;
        self.space.pending.chunks.remove(&chunk);
        self.space.pending.dirty.retain(|c| *c != chunk);
        if home.tier == SLOW {
            self.space.pending.slow_bytes -= u64::from(self.state.geo.chunk_bytes);
        }
        self.state.map.set_pending(chunk, false);
        if self.state.map.home(chunk) != Some(home) {
            let after = self.log.appended();
            self.free_slot(home, after, false);
        }
        self.drop_empty_home(chunk);
        self.wanted.wake = true;
    }

    /// Blocks of the chunk were discarded.
    pub(crate) fn discard_pending(&mut self, chunk: Chunk, blocks: BlockMask) {
        let appended = self.log.appended();
        if let Some(entry) = self.space.pending.get_mut(chunk) {
            if !entry.shown().and(blocks).is_empty() {
                // A flush owes what is discarded here to nobody any more, but the zeros in its stead.
                self.commit.discards_upto = appended;
            }
            entry.written = entry.written.minus(blocks);
            entry.flushing = entry.flushing.minus(blocks);
        }
    }
}
