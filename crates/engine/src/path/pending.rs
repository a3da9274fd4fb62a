//! What is written and not shown yet comes and goes.

use crate::base::arena::Arena;
use crate::base::mask::BlockMask;
use crate::engine::Engine;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Notes that a write to the chunk's pending home begins.
    pub(crate) fn pend(&mut self, chunk: Chunk, home: Home) {
        self.space.pending.begin(chunk, home, self.state.geo.chunk_bytes);
        self.state.map.set_pending(chunk, true);
    }

    /// A write to the chunk's pending home has ended.
    pub(crate) fn pend_done(&mut self, chunk: Chunk, written: BlockMask) {
        self.space.pending.end(chunk, written, self.io.now);
        self.forget_if_empty(chunk);
    }

    /// Forgets an entry in which nothing is left; gives a slot that no record names back.
    pub(crate) fn forget_if_empty(&mut self, chunk: Chunk) {
        let forgotten = self.space.pending.forget_if_empty(chunk, self.state.geo.chunk_bytes);
        let Some(home) = forgotten else { return };
        self.state.map.set_pending(chunk, false);
        if self.state.map.home(chunk) != Some(home) {
            let after = self.all_said();
            self.free_slot(home, after, false);
        }
        self.drop_empty_home(chunk);
        self.wanted.wake = true;
    }

    /// Blocks of the chunk were discarded.
    pub(crate) fn discard_pending(&mut self, chunk: Chunk, blocks: BlockMask) {
        let said = self.all_said();
        if let Some(entry) = self.space.pending.get_mut(chunk) {
            if !entry.shown().and(blocks).is_empty() {
                // A flush owes what is discarded here to nobody any more, but the zeros in its stead.
                self.commit.discards_upto = said;
            }
            entry.written = entry.written.minus(blocks);
            entry.flushing = entry.flushing.minus(blocks);
        }
    }
}
