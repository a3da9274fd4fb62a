//! Checksums of what the ring has of the fast device, in memory: what rots there is not brought to the copy, which has none.

use crate::group::{Group, Kind};
use bimetal_units::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Four bytes for each block of the ring. Those of blocks that hold nothing of the fast device count for nothing.
pub(crate) struct RingSums {
    /// The first byte of the ring on the device.
    start: u64,
    sums: Vec<u32>,
}

impl RingSums {
    pub(crate) fn new(start: u64, bytes: u64) -> RingSums {
        RingSums { start, sums: vec![0; (bytes / BLOCK) as usize] }
    }

    /// A group begins at this byte of the device.
    pub(crate) fn note_group(&mut self, group: &Group, at: u64) {
        if group.kind == Kind::Redo {
            for (entry, behind) in group.places() {
                entry.sums.iter().for_each(|sums| self.note(at + behind, sums));
            }
        }
    }

    /// The blocks from this byte of the device on have these.
    pub(crate) fn note(&mut self, at: u64, sums: &[u32]) {
        let first = self.place(at);
        self.sums[first..first + sums.len()].copy_from_slice(sums);
    }

    /// That of the block at this byte of the device.
    pub(crate) fn of(&self, at: u64) -> u32 {
        self.sums[self.place(at)]
    }

    fn place(&self, at: u64) -> usize {
        ((at - self.start) / BLOCK) as usize
    }
}
