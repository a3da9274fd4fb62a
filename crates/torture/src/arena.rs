//! The simulated driver's memory: bounded pools, cheap to make anew for each opening.
//!
//! A crash drops the engine with the arena inside it, and with all the buffers it held. The
//! memory itself goes back to an [`ArenaMemory`], from which the next arena is made.

use bimetal_engine::arena::{Arena, Buf, COPY_META_BYTES, FreeBlocks, Pool, SUCCESSOR_BYTES};
use bimetal_units::{BLOCK_BYTES, SECTOR_BYTES};
use std::cell::RefCell;
use std::rc::Rc;

/// What stands at the start of each sector of memory that [`Arena::alloc`] gives out.
pub const POISON: [u8; 16] = *b"POISONED-MEMORY!";

const BLOCK: usize = BLOCK_BYTES as usize;
const POOLS: usize = Pool::ALL.len();

/// Bytes in each pool: multiples of the block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaSizes {
    /// Payload of client requests.
    pub client: u32,
    /// Headers and indexes of the log.
    pub log: u32,
    /// Payload of background moves and fills.
    pub background: u32,
    /// Metadata pages.
    pub meta: u32,
    /// Payload of an image.
    pub copy: u32,
}

impl Default for ArenaSizes {
    fn default() -> Self {
        ArenaSizes { client: 4 << 20, log: 2 << 20, background: 4 << 20, meta: 2 << 20, copy: 0 }
    }
}

/// Memory that outlives arenas.
#[derive(Clone, Default)]
pub struct ArenaMemory(Rc<RefCell<Vec<u8>>>);

/// An arena over one vector.
pub struct SimArena {
    bytes: Vec<u8>,
    pools: [FreeBlocks; POOLS],
    /// By block: how many blocks the buffer that starts here has, zero if none does.
    starts: Vec<u32>,
    /// By block: whether it belongs to a buffer that was given out.
    used: Vec<bool>,
    poison_all: bool,
    home: ArenaMemory,
}

impl ArenaMemory {
    /// An arena in this memory. With `poison_all`, alloc poisons every byte, else the first of each sector.
    pub fn arena(&self, sizes: ArenaSizes, poison_all: bool) -> SimArena {
        let mut bytes = std::mem::take(&mut *self.0.borrow_mut());
        let mut first = 0;
        let ArenaSizes { client, log, background, meta, copy } = sizes;
        let pools = [client, log, background, meta, copy, COPY_META_BYTES, SUCCESSOR_BYTES].map(|size| {
            let count = size / BLOCK_BYTES;
            let state = FreeBlocks::new(first, count);
            first += count;
            state
        });
        let blocks = first as usize;
        if bytes.len() < blocks * BLOCK {
            bytes.resize(blocks * BLOCK, 0);
        }
        SimArena {
            bytes,
            pools,
            starts: vec![0; blocks],
            used: vec![false; blocks],
            poison_all,
            home: self.clone(),
        }
    }
}

impl Drop for SimArena {
    fn drop(&mut self) {
        *self.home.0.borrow_mut() = std::mem::take(&mut self.bytes);
    }
}

impl SimArena {
    /// Buffers of a pool that were not given back.
    pub fn outstanding(&self, pool: Pool) -> u32 {
        self.pools[pool.index()].outstanding()
    }

    /// The bytes of any buffer, or part of one, that is given out: the driver's own access.
    pub fn payload(&self, buf: Buf) -> &[u8] {
        self.assert_used(buf);
        &self.bytes[buf.start as usize..buf.start as usize + buf.len as usize]
    }

    /// The bytes of any buffer, or part of one, that is given out: the driver's own access.
    pub fn payload_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.assert_used(buf);
        &mut self.bytes[buf.start as usize..buf.start as usize + buf.len as usize]
    }

    fn assert_used(&self, buf: Buf) {
        let first = buf.start as usize / BLOCK;
        let end = (buf.start as usize + buf.len as usize).div_ceil(BLOCK);
        assert!(
            end <= self.used.len() && self.used[first..end].iter().all(|&u| u),
            "arena: {buf:?} is used but not allocated"
        );
    }

    /// The engine promises to look into the log's and metadata buffers only.
    fn assert_readable(&self, buf: Buf) {
        let block = (buf.start as usize / BLOCK) as u32;
        let payload = |pool: Pool| {
            let i = pool.index();
            let first = if i == 0 { 0 } else { self.pools[i - 1].end() };
            (first..self.pools[i].end()).contains(&block)
        };
        assert!(
            ![Pool::Client, Pool::Background, Pool::Copy, Pool::Successor].into_iter().any(payload),
            "arena: {buf:?} is payload, which is opaque"
        );
    }

    fn poison(&mut self, first: usize, blocks: usize) {
        let bytes = &mut self.bytes[first * BLOCK..(first + blocks) * BLOCK];
        if self.poison_all {
            bytes.chunks_exact_mut(POISON.len()).for_each(|c| c.copy_from_slice(&POISON));
        } else {
            for sector in bytes.chunks_exact_mut(SECTOR_BYTES as usize) {
                sector[..POISON.len()].copy_from_slice(&POISON);
            }
        }
    }
}

impl Arena for SimArena {
    fn alloc(&mut self, pool: Pool, len: u32) -> Option<Buf> {
        assert!(
            len > 0 && len.is_multiple_of(BLOCK_BYTES),
            "arena: a buffer of {len} bytes is not whole blocks"
        );
        let blocks = len / BLOCK_BYTES;
        let first = self.pools[pool.index()].take(blocks)? as usize;
        self.starts[first] = blocks;
        self.used[first..first + blocks as usize].fill(true);
        self.poison(first, blocks as usize);
        Some(Buf { start: (first * BLOCK) as u64, len })
    }

    fn free(&mut self, buf: Buf) {
        let (first, blocks) = (buf.start as usize / BLOCK, buf.len / BLOCK_BYTES);
        let whole =
            buf.start.is_multiple_of(BLOCK as u64) && self.starts.get(first) == Some(&blocks) && blocks > 0;
        assert!(whole, "arena: {buf:?} is freed but is no whole buffer in use (freed twice, or a part)");
        self.starts[first] = 0;
        self.used[first..first + blocks as usize].fill(false);
        let pool = self.pools.iter().position(|p| (first as u32) < p.end()).expect("the block is in a pool");
        self.pools[pool].give(first as u32, blocks);
    }

    fn crc32c(&self, buf: Buf) -> u32 {
        crc32c::crc32c(self.payload(buf))
    }

    fn zero(&mut self, buf: Buf) {
        self.payload_mut(buf).fill(0);
    }

    fn copy(&mut self, dst: Buf, src: Buf) {
        assert_eq!(dst.len, src.len, "arena: a copy between lengths that differ");
        self.assert_used(dst);
        self.assert_used(src);
        let apart =
            dst.start + u64::from(dst.len) <= src.start || src.start + u64::from(src.len) <= dst.start;
        assert!(apart, "arena: a copy between buffers that overlap");
        let from = src.start as usize;
        self.bytes.copy_within(from..from + src.len as usize, dst.start as usize);
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        self.assert_readable(buf);
        self.payload(buf)
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.assert_readable(buf);
        self.payload_mut(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena() -> SimArena {
        let small = ArenaSizes { client: 4 * 4096, log: 4096, background: 4096, meta: 4096, copy: 0 };
        ArenaMemory::default().arena(small, false)
    }

    #[test]
    fn pools_are_bounded_and_separate() {
        let mut a = arena();
        let whole = a.alloc(Pool::Client, 4 * 4096).unwrap();
        assert!(a.alloc(Pool::Client, 4096).is_none());
        assert!(a.alloc(Pool::Meta, 4096).is_some());
        assert_eq!(a.payload(whole)[512..528], POISON);
        a.free(whole);
        assert_eq!((a.outstanding(Pool::Client), a.outstanding(Pool::Meta)), (0, 1));
    }

    #[test]
    fn freed_ranges_join() {
        let mut a = arena();
        let bufs: Vec<Buf> = (0..4).map(|_| a.alloc(Pool::Client, 4096).unwrap()).collect();
        for i in [1, 3, 0, 2] {
            a.free(bufs[i]);
        }
        assert!(a.alloc(Pool::Client, 4 * 4096).is_some());
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn double_free_is_seen() {
        let mut a = arena();
        let buf = a.alloc(Pool::Log, 4096).unwrap();
        a.free(buf);
        a.free(buf);
    }

    #[test]
    #[should_panic(expected = "opaque")]
    fn payload_is_opaque() {
        let mut a = arena();
        let buf = a.alloc(Pool::Client, 4096).unwrap();
        a.bytes(buf);
    }

    #[test]
    fn memory_outlives_arenas() {
        let memory = ArenaMemory::default();
        drop(memory.arena(ArenaSizes::default(), false));
        assert!(!memory.0.borrow().is_empty());
    }
}
