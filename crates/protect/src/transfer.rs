//! Pieces that go from one place to another: of the fast device to its copy, and of the ring.

use crate::bugs::{Bug, planted};
use crate::epoch::Phase;
use crate::protection::{BLOCK, Own, Protection};
use bimetal_engine::action::{Action, BufList, Class, DeviceError};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_units::{BLOCK_BYTES, FAST, Nanos, SLOW, Tier};
use std::ops::Range;

/// So many at once, and while the machine has something to do.
const TRANSFERS: usize = 2;
const TRANSFERS_BESIDE: usize = 1;
/// The machine has something to do if it had so long ago.
const BESIDE_NS: u64 = Nanos::SECOND;

/// Where memory for payload comes from. The engine may have all of its own in writes that wait for what this is for.
pub(crate) fn pool() -> Pool {
    if planted(Bug::MemoryShared) { Pool::Background } else { Pool::Copy }
}

/// A piece on its way.
pub(crate) struct Transfer {
    /// Of the fast device.
    blocks: Range<u64>,
    /// Where it is read.
    from: (Tier, u64),
    buf: Buf,
    is_written: bool,
    begun: Nanos,
}

impl Protection {
    /// Whether another one may begin. A disk that always has the next piece to write may leave others for as long as that goes on.
    pub(crate) fn has_room_for_transfer(&self, now: Nanos) -> bool {
        let most = if self.is_beside(now) { TRANSFERS_BESIDE } else { TRANSFERS };
        self.transfers.len() < most && now >= self.paused_until
    }

    /// Whether the machine has had something to do lately.
    fn is_beside(&self, now: Nanos) -> bool {
        now.0 < self.asked_at.0 + BESIDE_NS
    }

    /// Reads a piece somewhere, to write it where the fast device's copy has these blocks. Gives whether there was memory.
    pub(crate) fn begin_transfer<A: Arena>(
        &mut self,
        blocks: Range<u64>,
        (device, offset): (Tier, u64),
        now: Nanos,
        arena: &mut A,
    ) -> bool {
        let Some(buf) = arena.alloc(pool(), ((blocks.end - blocks.start) * BLOCK) as u32) else {
            return false;
        };
        let id = self.number();
        self.transfers
            .insert(id, Transfer { blocks, from: (device, offset), buf, is_written: false, begun: now });
        self.ask(Own::Transfer(id), |token| Action::Read {
            device,
            offset,
            buf,
            token,
            class: Class::Background,
        });
        true
    }

    pub(crate) fn transfer_done<A: Arena>(
        &mut self,
        id: u64,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        let (blocks, buf) = (transfer.blocks.clone(), transfer.buf);
        let is_base = matches!(self.phase, Phase::Base { .. });
        let is_applying = matches!(self.phase, Phase::Applying { .. });
        let was_read = transfer.is_written;
        let is_good = result.is_ok() && (was_read || self.is_as_it_was(transfer, arena));
        if is_good && !was_read && (is_base || is_applying) {
            self.transfers.get_mut(&id).into_iter().for_each(|transfer| transfer.is_written = true);
            let offset = self.plan.layout.copy_at() + blocks.start * BLOCK;
            self.ask(Own::Transfer(id), |token| Action::Write {
                device: SLOW,
                offset,
                bufs: BufList::from_elem(buf, 1),
                fua: false,
                token,
                class: Class::Background,
            });
            return;
        }
        let begun = transfer.begun;
        if self.is_beside(self.now) {
            // Half of the time is others'.
            self.paused_until = Nanos(self.now.0 + (self.now.0 - begun.0));
        }
        self.transfers.remove(&id);
        arena.free(buf);
        match result {
            Err(_) if is_base && !was_read => {
                // The epoch finds out which of them.
                self.base_lacks = true;
                self.fast.written(&blocks);
            }
            _ if is_applying && !was_read && !is_good => self.cannot_apply(&blocks),
            Err(error) => self.give_up(format!("the slow device: {error}")),
            Ok(()) => {}
        }
    }

    /// Whether what was read of the ring is what was written there. What the fast device answers is believed.
    fn is_as_it_was<A: Arena>(&self, transfer: &Transfer, arena: &A) -> bool {
        let (device, at) = transfer.from;
        let blocks = 0..transfer.buf.len / BLOCK_BYTES;
        device == FAST
            || planted(Bug::RotApplied)
            || blocks.map(|block| block * BLOCK_BYTES).all(|behind| {
                let sum = self.ring_sums.of(at + u64::from(behind));
                arena.crc32c(transfer.buf.slice(behind, BLOCK_BYTES)) == sum
            })
    }

    /// A piece of the ring cannot be read, or has rotted. Its blocks are tried by themselves; one that is alone is lost to the image
    /// until the next one, which has it from the fast device.
    fn cannot_apply(&mut self, blocks: &Range<u64>) {
        if blocks.end - blocks.start > 1 {
            self.apply_alone.extend(blocks.clone());
            return;
        }
        self.image_lost.insert(blocks.clone());
        self.fast.lost.insert(blocks.clone());
        self.fast.written(blocks);
    }
}
