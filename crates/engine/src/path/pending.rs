//! What is written and not shown yet comes and goes.

use crate::base::arena::Arena;
use crate::base::mask::BlockMask;
use crate::engine::Engine;
use crate::volume::pending::PendingChunk;
use bimetal_units::*;

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
