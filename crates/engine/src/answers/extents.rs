//! Where the newest copies of a range are.

use crate::api::extents::{Extents, MAX_EXTENT_STEPS, Placed, Placement};
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::path::piece::Source;
use bimetal_units::*;

/// What is told of where a block's newest copy is.
pub(super) fn placement(source: Source) -> Placement {
    match source {
        Source::Zero => Placement::Hole,
        Source::Landed(_) | Source::Part(_) => Placement::Landed,
        Source::Slot(home) | Source::Copy(home, _) => Placement::Home(home.tier),
        Source::Bad | Source::Remnant(_) => Placement::Lost,
    }
}

/// Puts extents together, merging neighbours, until there is no room for another.
struct Builder {
    extents: Extents,
    max: usize,
}

impl Builder {
    /// False when the extent would be one too many.
    fn push(&mut self, len: u64, place: Placement) -> bool {
        let full = self.extents.len() == self.max;
        match self.extents.last_mut() {
            Some(last) if last.place == place => last.len += len,
            _ if full => return false,
            _ => self.extents.push(Placed { len, place }),
        }
        true
    }
}

impl<A: Arena> Engine<A> {
    /// Where the `len` bytes at `offset` are at this moment: at most `max` extents, neighbours merged.
    ///
    /// The answer may end before the range does: after `max` extents, or after [`MAX_EXTENT_STEPS`]. It covers
    /// at least one byte unless the range is empty or begins at or beyond the volume's end, or `max` is 0.
    /// What clients are writing just now counts from when reads would see it.
    pub fn extents(&self, offset: u64, len: u64, max: usize) -> Extents {
        let end = offset.saturating_add(len).min(self.size_bytes());
        let mut builder = Builder { extents: Extents::new(), max };
        let (mut at, mut steps) = (offset, MAX_EXTENT_STEPS);
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        while at < end && steps > 0 {
            steps -= 1;
            let chunk = Chunk((at / chunk_bytes) as u32);
            let chunk_end = end.min((at / chunk_bytes + 1) * chunk_bytes);
            if let Some(place) = self.whole_chunk(chunk) {
                if !builder.push(chunk_end - at, place) {
                    break;
                }
                at = chunk_end;
                continue;
            }
            let block = (at % chunk_bytes) as u32 / BLOCK_BYTES;
            let block_end = chunk_end.min((at / u64::from(BLOCK_BYTES) + 1) * u64::from(BLOCK_BYTES));
            if !builder.push(block_end - at, placement(self.source(chunk, block))) {
                break;
            }
            at = block_end;
        }
        builder.extents
    }

    /// Where a chunk is of which all blocks are in one place, when that is known without looking at them.
    fn whole_chunk(&self, chunk: Chunk) -> Option<Placement> {
        let map = &self.state.map;
        if map.is_blank(chunk) {
            return Some(Placement::Hole);
        }
        if map.is_pending(chunk) || map.may_be_landed(chunk) {
            return None;
        }
        let home = map.home(chunk)?;
        let place =
            if self.life.is_missing(home.tier) { Placement::Lost } else { Placement::Home(home.tier) };
        map.all_valid(chunk, 0, self.state.geo.blocks_per_chunk()).then_some(place)
    }
}
