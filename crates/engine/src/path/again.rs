//! Reads that are made again: of what a device failed to read, or read wrong, and then of what holds the same elsewhere.
//!
//! What a device fails once it may read the next time. A home on the fast tier may have a shadow on the slow one
//! (`volume/shadows.rs`): that holds the same as long as it is there, for the first write to the home ends it, and its
//! checksums are those of the home. A copy that fails is given up for the home on the slow tier (`mover/copies.rs`).

use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::path::piece::{Extent, Source};
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Whether a piece of which something could not be read is to be read again: once where it was, or its home where it
    /// was a copy; then from shadows. Not where a device was away, for then the volume takes no more changes, nor what is
    /// known to be lost.
    pub(crate) fn may_read_again(&mut self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        if p.again {
            return self.may_read_shadows(piece);
        }
        let failed = p.error.is_some_and(|error| !error.is_away());
        self.read_without_copy(piece) || failed
    }

    /// Whether a piece that was read again in vain has to do with a shadow, and is to be read from there.
    pub(crate) fn may_read_shadows(&mut self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        let has_shadow = |e: &Extent| match e.source {
            Source::Slot(home) => self.space.shadows.get(home).is_some(),
            _ => false,
        };
        let may = !p.from_shadows && p.extents.iter().any(has_shadow);
        self.front.pieces[piece].from_shadows |= may;
        may
    }

    /// Turns extents in fast slots to the shadows of these, where the piece is to be read from there. As long as that is
    /// under way, nobody else has the slot.
    pub(crate) fn turn_to_shadows(&mut self, piece: u32, extents: &mut [Extent]) {
        if !self.front.pieces[piece].from_shadows {
            return;
        }
        for extent in extents {
            if let Source::Slot(home) = extent.source
                && let Some(slot) = self.space.shadows.get(home)
            {
                extent.source = Source::Slot(Home { tier: SLOW, slot });
            }
        }
    }

    /// The checksum that a block of a fast slot has by its shadow, if that is in memory: a page of them is not worth a read
    /// for each read of the fast tier.
    pub(crate) fn sum_of_shadow(&self, home: Home, block: u32) -> Option<u32> {
        let slot = self.space.shadows.get(home)?;
        self.state.sums.in_memory(slot, block)
    }
}
