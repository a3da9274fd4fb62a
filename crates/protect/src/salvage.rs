//! The image in the place of the devices: where each block of it is on the slow one.

use crate::extents::Held;
use crate::layout::Layout;
use crate::scan::Scanned;
use bimetal_units::{BLOCK_BYTES, FAST, Tier};
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The image of two devices on the slow one.
pub struct Salvage {
    layout: Layout,
    scanned: Scanned,
}

impl Salvage {
    /// Of what a ring holds.
    pub fn new(layout: Layout, scanned: Scanned) -> Salvage {
        Salvage { layout, scanned }
    }

    /// Where the slow device holds blocks of one of the devices, in parts; none where a part is lost.
    pub fn places(&self, tier: Tier, blocks: Range<u64>) -> Vec<(Range<u64>, Option<u64>)> {
        let (extents, behind) = match tier {
            FAST => (&self.scanned.fast, self.layout.copy_at()),
            _ => (&self.scanned.slow, 0),
        };
        let place = |(part, held): (Range<u64>, Option<Held>)| match held {
            Some(Held::At(at)) => (part, Some(at)),
            Some(Held::Lost) => (part, None),
            None => (part.clone(), Some(behind + part.start * BLOCK)),
        };
        extents.parts(&blocks).into_iter().map(place).collect()
    }
}
