//! How hot chunks are.

use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::placement::policy::Policy as _;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// How hot the chunk with this byte is, and the ones after it: so many of them at most, none behind the volume's end.
    pub fn heats(&self, now: Nanos, offset: u64, most: usize) -> Vec<u32> {
        let now = self.io.now.max(now);
        let first = offset / u64::from(self.state.geo.chunk_bytes);
        let end = u64::from(self.state.map.chunks());
        let chunks = (first..end).take(most).map(|chunk| Chunk(chunk as u32));
        chunks.map(|chunk| self.placement.policy.heat(chunk, now)).collect()
    }

    /// The heat from which on a chunk on the slow tier may rise.
    pub fn rises_at(&self) -> u32 {
        self.tuning.promote_touches.max(1)
    }
}
