//! What is at home on the fast tier and has no checksum gets one from a scrub, of what it reads: after a crash, of what was open,
//! and of what was written before there were any. What rots from then on is noticed.

use super::exam::{Exam, Held, Look};
use crate::base::arena::{Arena, Buf};
use crate::base::mask::BlockMask;
use crate::engine::Engine;
use crate::volume::live_sums::UNKNOWN;
use bimetal_units::*;

impl Look {
    /// Of a block without a checksum.
    pub(super) fn to_learn(block: u32, held: Held) -> Look {
        Look { block, held, sum: UNKNOWN }
    }

    /// The slot of a block without a checksum.
    pub(super) fn unsummed(&self) -> Option<Slot> {
        match self.held {
            Held::Home(home) if home.tier == FAST && self.sum == UNKNOWN => Some(home.slot),
            _ => None,
        }
    }
}

impl<A: Arena> Engine<A> {
    /// Whether a block that has no checksum there is worth reading for one.
    pub(super) fn may_learn(&self, held: Held) -> bool {
        let has_room = |slot| self.state.sums.live.has_room_for(slot) && !self.life.is_read_only();
        matches!(held, Held::Home(home) if home.tier == FAST && has_room(home.slot))
    }

    /// A read for checksums begins: they count if nobody writes to the slot until it has ended.
    pub(super) fn begin_learning(&mut self, chunk: Chunk, slot: Slot) {
        let is_written = !self.is_unwritten(chunk);
        self.state.sums.watch(slot, is_written);
    }

    /// What was read of a block without a checksum is taken for what it should be.
    pub(super) fn learn_sum(&mut self, exam: &Exam, look: &Look, slot: Slot, here: Buf) {
        let is_there = self.state.map.home(exam.chunk) == Some(Home { tier: FAST, slot })
            && self.state.map.is_valid(exam.chunk, look.block);
        let sums = &mut self.state.sums;
        if is_there && sums.was_not_written(slot) && sums.of_fast(slot, look.block).is_none() {
            let sum = self.io.arena.crc32c(here);
            sums.note_fast(slot, &BlockMask::range(look.block, 1), [sum].into_iter());
        }
    }

    /// Whether nothing is being written to a chunk's home.
    fn is_unwritten(&self, chunk: Chunk) -> bool {
        !self.state.map.is_busy(chunk) && !self.front.home_writers.contains_key(&chunk)
    }
}
