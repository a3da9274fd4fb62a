//! Checksums of blocks of fast slots, of what was written there last, in memory, as far as there is room. What a page says of
//! them (`regions.rs`) comes to be here when it is read.
//!
//! One is forgotten when a write of its block begins, and known again when the write has ended. So what is known is what the
//! device was told last, whatever home the slot was when it was told; and nothing waits for it.

use crate::base::mask::BlockMask;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Bytes of RAM that a slot takes beside its checksums.
const SLOT_BYTES: u64 = 8;
/// Where there is no room one write in so many to a slot that has none takes it from another: what is written at random all
/// over a larger fast tier would have all of them come and go for nothing.
const TAKES_ONE_IN: u32 = 8;
/// A slot that has none.
const NOWHERE: u32 = u32::MAX;
/// Stands for no checksum. A block of which this is the checksum has none.
pub const UNKNOWN: u32 = 0;

/// A slot of which checksums are known.
#[derive(Serialize, Deserialize)]
struct Sheet {
    slot: u32,
    used: bool,
}

/// The checksums of what was written to fast slots.
#[derive(Serialize, Deserialize)]
pub struct LiveSums {
    sheets: Vec<Sheet>,
    /// Theirs, one behind the other.
    sums: Vec<u32>,
    /// By slot, up to the last that had any.
    places: Vec<u32>,
    /// Writes that found no room.
    crowded: u32,
    /// Slots at most.
    limit: usize,
    hand: usize,
    blocks_per_chunk: usize,
}

/// Bytes of RAM at most, of a volume with so many fast slots.
pub fn ram_bytes_at_most(limit_bytes: u64, slots: u64, blocks_per_chunk: u32) -> u64 {
    match limit_bytes < sheet_bytes(blocks_per_chunk) {
        true => 0,
        false => limit_bytes.min(slots * sheet_bytes(blocks_per_chunk)) + slots * 4,
    }
}

fn sheet_bytes(blocks_per_chunk: u32) -> u64 {
    u64::from(blocks_per_chunk) * 4 + SLOT_BYTES
}

impl LiveSums {
    /// None, and room for so many bytes of them.
    pub fn new(limit_bytes: u64, blocks_per_chunk: u32) -> LiveSums {
        LiveSums {
            sheets: Vec::new(),
            sums: Vec::new(),
            places: Vec::new(),
            crowded: 0,
            limit: (limit_bytes / sheet_bytes(blocks_per_chunk)) as usize,
            hand: 0,
            blocks_per_chunk: blocks_per_chunk as usize,
        }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        self.sheets.len() as u64 * sheet_bytes(self.blocks_per_chunk as u32) + self.places.len() as u64 * 4
    }

    /// Whether what is known of the slot finds room without another giving way.
    pub fn has_room_for(&self, slot: Slot) -> bool {
        self.sheets.len() < self.limit || self.place(slot).is_some()
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        self.places.get(slot.0 as usize).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    /// The checksum of a block, if it is known.
    pub fn get(&self, slot: Slot, block: u32) -> Option<u32> {
        let place = self.place(slot)?;
        Some(self.sums[place * self.blocks_per_chunk + block as usize]).filter(|sum| *sum != UNKNOWN)
    }

    /// These blocks were written, in their order with these checksums.
    pub fn note(&mut self, slot: Slot, blocks: &BlockMask, sums: impl Iterator<Item = u32>) {
        let Some(place) = self.place_for(slot) else { return };
        self.sheets[place].used = true;
        let known = self.of(place);
        blocks.iter().zip(sums).for_each(|(block, sum)| known[block as usize] = sum);
    }

    /// These blocks are being written.
    pub fn forget(&mut self, slot: Slot, blocks: &BlockMask) {
        if let Some(place) = self.place(slot) {
            let sums = self.of(place);
            blocks.iter().for_each(|block| sums[block as usize] = UNKNOWN);
        }
    }

    /// What the slot holds is not known.
    pub fn forget_slot(&mut self, slot: Slot) {
        let Some(place) = self.place(slot) else { return };
        self.places[slot.0 as usize] = NOWHERE;
        let (each, last) = (self.blocks_per_chunk, self.sheets.len() - 1);
        self.sums.copy_within(last * each.., place * each);
        self.sums.truncate(last * each);
        self.sheets.swap_remove(place);
        if let Some(moved) = self.sheets.get(place) {
            self.places[moved.slot as usize] = place as u32;
        }
    }

    /// Nothing is known: the device may have lost what it was told.
    pub fn forget_all(&mut self) {
        self.sheets.clear();
        self.sums.clear();
        self.places.clear();
    }

    fn of(&mut self, place: usize) -> &mut [u32] {
        &mut self.sums[place * self.blocks_per_chunk..(place + 1) * self.blocks_per_chunk]
    }

    /// The place of a slot's checksums: where they are, a new one, or that of another slot, which is forgotten.
    fn place_for(&mut self, slot: Slot) -> Option<usize> {
        if let Some(place) = self.place(slot) {
            return Some(place);
        }
        let place = if self.sheets.len() < self.limit {
            self.sheets.push(Sheet { slot: slot.0, used: true });
            if self.sums.len() == self.sums.capacity() {
                // By a quarter: twice as much would be up to twice the limit.
                let more = (self.sheets.len() / 4 + 64).min(self.limit - self.sheets.len() + 1);
                self.sums.reserve_exact(more * self.blocks_per_chunk);
            }
            self.sums.resize(self.sheets.len() * self.blocks_per_chunk, UNKNOWN);
            self.sheets.len() - 1
        } else {
            self.crowded = (self.crowded + 1) % TAKES_ONE_IN;
            if self.crowded > 0 || self.limit == 0 {
                return None;
            }
            let place = self.victim();
            let sheet = &mut self.sheets[place];
            self.places[sheet.slot as usize] = NOWHERE;
            sheet.slot = slot.0;
            self.of(place).fill(UNKNOWN);
            place
        };
        if self.places.len() <= slot.0 as usize {
            self.places.resize(slot.0 as usize + 1, NOWHERE);
        }
        self.places[slot.0 as usize] = place as u32;
        Some(place)
    }

    fn victim(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.sheets.len();
            if !std::mem::take(&mut self.sheets[self.hand].used) {
                return self.hand;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_known_until_it_is_written_again_or_has_no_room() {
        let mut sums = LiveSums::new(2 * sheet_bytes(8), 8);
        let blocks = BlockMask::range(2, 3);
        sums.note(Slot(7), &blocks, [20, 30, UNKNOWN].into_iter());
        assert_eq!([1, 2, 3, 4].map(|block| sums.get(Slot(7), block)), [None, Some(20), Some(30), None]);
        sums.forget(Slot(7), &BlockMask::range(3, 2));
        sums.forget(Slot(8), &blocks);
        assert_eq!([2, 3].map(|block| sums.get(Slot(7), block)), [Some(20), None]);
        for (slot, times) in [(8, 1), (9, TAKES_ONE_IN)] {
            for _ in 0..times {
                assert_eq!(sums.get(Slot(slot), 0), None);
                sums.note(Slot(slot), &BlockMask::range(0, 1), [slot].into_iter());
            }
            assert_eq!(sums.get(Slot(slot), 0), Some(slot));
        }
        let known = |sums: &LiveSums| [7, 8, 9].map(|slot| (0..8).any(|b| sums.get(Slot(slot), b).is_some()));
        assert_eq!(known(&sums).iter().filter(|known| **known).count(), 2, "there is room for two slots");
        assert_eq!(sums.ram_bytes(), 2 * sheet_bytes(8) + 10 * 4);
        sums.forget_slot(Slot(9));
        assert_eq!(known(&sums).iter().filter(|known| **known).count(), 1);
        sums.note(Slot(1), &BlockMask::range(7, 1), [5].into_iter());
        assert_eq!(sums.get(Slot(1), 7), Some(5));
        sums.forget_all();
        assert_eq!((sums.get(Slot(1), 7), sums.ram_bytes()), (None, 0));
        let mut none = LiveSums::new(sheet_bytes(8) - 1, 8);
        (0..TAKES_ONE_IN).for_each(|_| none.note(Slot(0), &blocks, [1, 2, 3].into_iter()));
        assert_eq!(none.get(Slot(0), 2), None);
    }
}
