//! What of the volume cannot be read, as far as that is known without reading it.

use crate::api::loss::{LossClass, LossRange, Losses, MAX_LOSS_RANGES, MAX_LOSS_STEPS};
use crate::base::arena::Arena;
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::path::piece::Source;
use bimetal_units::*;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl<A: Arena> Engine<A> {
    /// What is no good of the volume from byte `from` on: after [`MAX_LOSS_STEPS`] or [`MAX_LOSS_RANGES`] it says where to go
    /// on.
    pub fn losses(&self, from: u64) -> Losses {
        let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
        let (mut losses, mut steps) = (Losses::default(), MAX_LOSS_STEPS);
        let mut at = from / chunk_bytes * chunk_bytes;
        while at < self.size_bytes() {
            if steps == 0 || losses.ranges.len() >= MAX_LOSS_RANGES {
                losses.next = Some(at);
                break;
            }
            let chunk = Chunk((at / chunk_bytes) as u32);
            steps = steps.saturating_sub(self.chunk_losses(chunk, at, &mut losses));
            at += chunk_bytes;
        }
        losses
    }

    /// All that is no good of the volume.
    pub fn all_losses(&self) -> Losses {
        let mut losses = self.losses(0);
        while let Some(next) = losses.next {
            losses.append(self.losses(next));
        }
        losses
    }

    /// Those of one chunk, which begins at this byte; gives how many steps that took.
    fn chunk_losses(&self, chunk: Chunk, at: u64, losses: &mut Losses) -> u32 {
        let blocks = self.state.geo.blocks_per_chunk();
        if let Some(left) = &self.life.salvage {
            return left.chunk_losses(chunk, at, losses);
        }
        let map = &self.state.map;
        if !map.may_be_landed(chunk) && !map.is_pending(chunk) {
            let home = map.home(chunk);
            if home.is_none_or(|home| !self.life.is_missing(home.tier)) {
                return 1;
            }
            if map.all_valid(chunk, 0, blocks) {
                let len = u64::from(self.state.geo.chunk_bytes);
                losses.push(LossRange { offset: at, len, class: LossClass::Lost });
                return 1;
            }
        }
        for block in 0..blocks {
            let lost = self.lost_sectors(chunk, block);
            for offset in lost.into_iter().flat_map(Sectors::offsets) {
                let offset = at + u64::from(block) * BLOCK + u64::from(offset);
                losses.push(LossRange { offset, len: u64::from(SECTOR_BYTES), class: LossClass::Lost });
            }
        }
        blocks
    }

    /// The sectors of a block that cannot be read; none where all can.
    pub(crate) fn lost_sectors(&self, chunk: Chunk, block: u32) -> Option<Sectors> {
        match self.source(chunk, block) {
            Source::Bad => Some(Sectors::ALL),
            Source::Remnant(z) => self.state.landed.sectors(z).others(),
            Source::Part(z) => match self.beneath(chunk, block) {
                Source::Bad => self.state.landed.sectors(z).others(),
                _ => None,
            },
            Source::Zero | Source::Landed(_) | Source::Slot(_) | Source::Copy(..) => None,
        }
    }
}
