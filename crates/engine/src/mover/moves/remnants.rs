//! What is left of blocks of which some sectors are lost: it goes with the log's tail and with its chunk, until the block has
//! been written.

use super::*;

/// Of how many blocks a batch says again what is left, beside those of its first chunk: it takes space in the zone that the
/// batch may be there to make.
const MOST_REMNANTS: usize = 32;

impl<A: Arena> Engine<A> {
    /// These landed blocks are read behind all others.
    pub(super) fn add_remnants(&mut self, item: &mut Item, left: Vec<(u32, ZoneBlock)>) {
        let first = item.copy.count() + item.parts.count();
        for ((block, z), at) in left.into_iter().zip(first..) {
            let sectors = self.state.landed.sectors(z);
            item.remnants.push(Remnant { block, z, sectors, at });
            item.landed.push((block, z));
        }
    }

    /// What is left of blocks is appended before the records that end what landed of them.
    pub(super) fn say_remnants(&mut self, batch: u32) {
        let items = std::mem::take(&mut self.mover.batches[batch].items);
        for (i, item) in (0..).zip(&items) {
            for (nth, remnant) in (0..).zip(&item.remnants) {
                let (block, was, which) = self.landing(item, remnant.block, remnant.z, Which::Landed);
                if remnant.at < item.copy.count() {
                    // What landed is given up here.
                    self.tell_of_loss(item, (remnant.block, remnant.z), which);
                    self.mover.unread.forget(&(block, was, which));
                }
                self.log.internal.push_back(Job::Remnant { batch, item: i, nth, block, was });
            }
        }
        self.mover.batches[batch].items = items;
    }

    /// What is left of a block: where it is, and which sectors.
    pub(crate) fn remnant(&self, batch: u32, item: u32, nth: u32) -> (Buf, Sectors) {
        let item = &self.mover.batches[batch].items[item as usize];
        let (buf, remnant) = (item.buf.expect("it was read"), item.remnants[nth as usize]);
        (buf.slice(remnant.at * BLOCK_BYTES, BLOCK_BYTES), remnant.sectors)
    }

    /// Chunks behind the first whose remnants are too many for one batch wait for another one; and any whose remnants the log has
    /// no room for. Whether there was one of these.
    pub(super) fn leave_remnants(&self, items: &mut [Item]) -> bool {
        let (mut count, mut lacks_room) = (0, false);
        let room = self.room_for_remnants() as usize;
        for item in items.iter_mut().filter(|item| !item.failed) {
            let all = count + item.remnants.len();
            item.failed = all > room || count > 0 && all > MOST_REMNANTS;
            lacks_room |= all > room;
            count = if item.failed { count } else { all };
        }
        lacks_room
    }
}
