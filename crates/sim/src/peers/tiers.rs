//! Chunks with one place each: the sum of both devices is the volume.

use super::pieces::{Piece, Runs, pieces, whole_chunks};
use super::rig::{FAST, Rig, SLOW, Ticket};
use bimetal_models::{Command, Kind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a chunk: the unit in which hybrid drives were seen to move data (A9), and that of our own volumes.
pub(super) const CHUNK_BYTES: u64 = 128 << 10;

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: usize,
    pub(super) slot: u32,
}

impl Place {
    /// First byte on its device.
    pub(super) fn at(self) -> u64 {
        u64::from(self.slot) * CHUNK_BYTES
    }
}

/// The slots of a device that are free: those that were never used in order, others lowest first.
struct Slots {
    unused: u32,
    count: u32,
    returned: BinaryHeap<Reverse<u32>>,
}

impl Slots {
    fn take(&mut self) -> Option<u32> {
        if let Some(Reverse(slot)) = self.returned.pop() {
            return Some(slot);
        }
        let slot = self.unused;
        (slot < self.count).then(|| {
            self.unused += 1;
            slot
        })
    }

    fn free(&self) -> u32 {
        self.count - self.unused + self.returned.len() as u32
    }
}

/// Which chunk lies where. Memory: 4 bytes for each chunk, and 4 for each slot.
pub(super) struct Tiers {
    /// Twice the slot and one more for the slow device, all plus two; 0 for a chunk that was never written.
    map: Vec<u32>,
    slots: [Slots; 2],
    /// The chunk in each fast slot plus one; 0 for none.
    owners: Vec<u32>,
}

impl Tiers {
    pub(super) fn new(sizes: [u64; 2], size_bytes: u64) -> Tiers {
        let slots = |bytes: u64| Slots {
            unused: 0,
            count: (bytes / CHUNK_BYTES) as u32,
            returned: BinaryHeap::new(),
        };
        let slots = sizes.map(slots);
        Tiers {
            map: vec![0; size_bytes.div_ceil(CHUNK_BYTES) as usize],
            owners: vec![0; slots[FAST].count as usize],
            slots,
        }
    }

    pub(super) fn chunks(&self) -> usize {
        self.map.len()
    }

    pub(super) fn place(&self, chunk: u64) -> Option<Place> {
        let word = self.map[chunk as usize].checked_sub(2)?;
        Some(Place { device: (word & 1) as usize, slot: word >> 1 })
    }

    /// The chunk in a fast slot.
    pub(super) fn in_fast_slot(&self, slot: u32) -> Option<u64> {
        self.owners[slot as usize].checked_sub(1).map(u64::from)
    }

    pub(super) fn fast_slots(&self) -> u32 {
        self.slots[FAST].count
    }

    /// Bytes of free slots.
    pub(super) fn free_bytes(&self, device: usize) -> u64 {
        u64::from(self.slots[device].free()) * CHUNK_BYTES
    }

    /// Takes a slot that no chunk has yet.
    pub(super) fn take(&mut self, device: usize) -> Option<Place> {
        self.slots[device].take().map(|slot| Place { device, slot })
    }

    /// A slot is free again.
    pub(super) fn give(&mut self, place: Place) {
        self.slots[place.device].returned.push(Reverse(place.slot));
    }

    /// A chunk lies there from now on, and no longer where it was.
    pub(super) fn put(&mut self, chunk: u64, place: Place) {
        self.forget(chunk);
        self.map[chunk as usize] = (place.slot << 1 | place.device as u32) + 2;
        if place.device == FAST {
            self.owners[place.slot as usize] = chunk as u32 + 1;
        }
    }

    /// A chunk lies nowhere from now on.
    pub(super) fn forget(&mut self, chunk: u64) -> Option<Place> {
        let place = self.place(chunk)?;
        self.map[chunk as usize] = 0;
        if place.device == FAST {
            self.owners[place.slot as usize] = 0;
        }
        self.give(place);
        Some(place)
    }

    /// A chunk that is written for the first time: on this device, or on the other where there is no slot.
    pub(super) fn allocate(&mut self, chunk: u64, device: usize) -> Place {
        let place = self.take(device).or_else(|| self.take(FAST + SLOW - device));
        let place = place.expect("the devices together hold the volume");
        self.put(chunk, place);
        place
    }

    /// Reads and writes where the chunks lie. Chunks that were never written take no device to read; written, they go
    /// to the device that `first` says.
    pub(super) fn transfer(
        &mut self,
        rig: &mut Rig,
        ticket: Ticket,
        command: Command,
        mut first: impl FnMut(&Tiers) -> usize,
    ) {
        let write = matches!(command.kind, Kind::Write { .. });
        let mut runs = Runs::new(command.kind);
        for Piece { number, within, len } in pieces(command.offset, command.len, CHUNK_BYTES) {
            let place = match self.place(number) {
                Some(place) => place,
                None if write => {
                    let device = first(self);
                    self.allocate(number, device)
                }
                None => continue,
            };
            runs.add(rig, ticket, place.device, place.at() + within, len);
        }
        runs.end(rig, ticket);
    }

    /// Gives back the chunks that lie wholly in the range; the fast device hears of it, as it has a use for that.
    pub(super) fn discard(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        let mut runs = Runs::new(Kind::Discard);
        for chunk in whole_chunks(command.offset, command.len, CHUNK_BYTES) {
            if let Some(place) = self.forget(chunk)
                && place.device == FAST
            {
                runs.add(rig, ticket, FAST, place.at(), CHUNK_BYTES);
            }
        }
        runs.end(rig, ticket);
    }
}
