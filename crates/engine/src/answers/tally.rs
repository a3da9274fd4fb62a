//! How much of a range is in each kind of place, and how hot it is.

use super::extents::placement;
use crate::api::extents::Placement;
use crate::api::tally::{BLOCK_STEPS, Tally};
use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// How much of the range from the chunk with the byte `from` to the byte `to` is in each kind of place at this moment, and
    /// the byte at which that ends: `to`, the volume's end, or earlier where no steps are left. What it takes is taken off
    /// the steps. It covers at least one chunk unless the range is empty.
    pub fn tally(&self, now: Nanos, from: u64, to: u64, steps: &mut u32) -> (Tally, u64) {
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let (now, rises_at) = (self.io.now.max(now), self.rises_at());
        let mut tally = Tally::default();
        let end = to.min(self.size_bytes());
        let behind = end.div_ceil(chunk_bytes) as u32;
        let mut chunk = (from / chunk_bytes).min(behind.into()) as u32;
        let mut heats = self.placement.policy.heats(chunk..behind, now);
        let mut heat_of_next = |chunk: u32, tally: &mut Tally| {
            let heat = heats.next().unwrap_or(0);
            if heat > tally.hottest {
                (tally.hottest, tally.hottest_offset) = (heat, u64::from(chunk) * chunk_bytes);
            }
            heat
        };
        while chunk < behind {
            // What was never written comes in long stretches.
            let whole = (end / chunk_bytes) as u32;
            let blank = self.state.map.blank_from(Chunk(chunk), whole.saturating_sub(chunk).min(*steps));
            if blank > 0 {
                (chunk..chunk + blank).for_each(|chunk| _ = heat_of_next(chunk, &mut tally));
                tally.add(Placement::Hole, u64::from(blank) * chunk_bytes);
                (chunk, *steps) = (chunk + blank, *steps - blank);
            } else {
                let heat = heat_of_next(chunk, &mut tally);
                let slow_before = tally.home_bytes[SLOW];
                let bytes = chunk_bytes.min(end - u64::from(chunk) * chunk_bytes);
                let took = self.tally_chunk(Chunk(chunk), bytes, &mut tally);
                if heat >= rises_at {
                    tally.hot_slow_bytes += tally.home_bytes[SLOW] - slow_before;
                }
                (chunk, *steps) = (chunk + 1, steps.saturating_sub(took));
            }
            if *steps == 0 {
                break;
            }
        }
        (tally, (u64::from(chunk) * chunk_bytes).min(end))
    }

    /// Counts the first bytes of a chunk, and gives the steps that this took.
    fn tally_chunk(&self, chunk: Chunk, bytes: u64, tally: &mut Tally) -> u32 {
        let map = &self.state.map;
        if map.is_blank(chunk) {
            tally.add(Placement::Hole, bytes);
            return 1;
        }
        let whole = bytes == u64::from(self.state.geo.chunk_bytes) && self.life.salvage.is_none();
        if !whole || map.is_pending(chunk) || map.may_be_landed(chunk) {
            return self.tally_blocks(chunk, bytes, tally);
        }
        // All that there is of it is at home.
        let (mut left, held) = (bytes, u64::from(map.valid_blocks(chunk)) * u64::from(BLOCK_BYTES));
        if let Some(home) = map.home(chunk) {
            let is_missing = self.life.is_missing(home.tier);
            tally.add(if is_missing { Placement::Lost } else { Placement::Home(home.tier) }, held);
            left -= held;
        }
        tally.add(Placement::Hole, left);
        1
    }

    fn tally_blocks(&self, chunk: Chunk, bytes: u64, tally: &mut Tally) -> u32 {
        let block_bytes = u64::from(BLOCK_BYTES);
        let blocks = bytes.div_ceil(block_bytes) as u32;
        for block in 0..blocks {
            let len = (bytes - u64::from(block) * block_bytes).min(block_bytes);
            tally.add(placement(self.source(chunk, block)), len);
        }
        blocks * BLOCK_STEPS
    }
}
