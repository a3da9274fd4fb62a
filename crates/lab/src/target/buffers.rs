//! The payload of what is in flight: a buffer for each slot, known to the ring.

use crate::load::{RunError, SlotSpec, stamped};
use bimetal_driver::ring::{ARENA, Mem};
use bimetal_driver::{Memory, Ring};
use bimetal_engine::arena::Buf;

/// What direct I/O of any device at hand is aligned to.
const ALIGN_BYTES: u64 = 4096;

/// Buffers by slot.
pub(super) struct Buffers {
    memory: Memory,
    bufs: Vec<Buf>,
}

impl Buffers {
    pub(super) fn new(slots: &[SlotSpec]) -> Result<Buffers, RunError> {
        let bytes: u64 = slots.iter().map(|slot| slot.bytes.next_multiple_of(ALIGN_BYTES)).sum();
        let no_memory = |error| RunError::Target(format!("no memory for I/O: {error}"));
        let mut memory = Memory::new(bytes.max(ALIGN_BYTES) as usize).map_err(no_memory)?;
        let (mut bufs, mut start) = (Vec::with_capacity(slots.len()), 0);
        for slot in slots {
            let buf = Buf { start, len: slot.bytes as u32 };
            bufs.push(buf);
            start += slot.bytes.next_multiple_of(ALIGN_BYTES);
            if slot.random {
                stamped(memory.bytes_mut(buf), slot.seed, start);
            }
        }
        Ok(Buffers { memory, bufs })
    }

    /// A ring that knows them, with room for so many operations in flight.
    pub(super) fn ring(&self, most: usize) -> Result<Ring, RunError> {
        Ring::with_room(self.memory.region(), most)
            .map_err(|error| RunError::Target(format!("cannot set up io_uring: {error}")))
    }

    /// The first bytes of a slot's buffer.
    #[inline]
    pub(super) fn buf(&self, slot: u32, len: u32) -> Buf {
        let buf = self.bufs[slot as usize];
        assert!(len <= buf.len, "an I/O is longer than its job said");
        Buf { len, ..buf }
    }

    pub(super) fn mem(&self, slot: u32, len: u32) -> Mem {
        Mem { region: ARENA, buf: self.buf(slot, len) }
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, slot: u32, len: u32) -> &mut [u8] {
        let buf = self.buf(slot, len);
        self.memory.bytes_mut(buf)
    }
}
