//! Buffers: handles into memory that the driver owns.
//!
//! The engine never looks at payload; it asks the arena to checksum, zero and copy it, so that a
//! driver without data runs the same engine.

use serde::{Deserialize, Serialize};

/// A byte range of the arena. The arena hands it out aligned to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Buf {
    /// First byte, in arena address space.
    pub start: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Buf {
    /// The part `[offset, offset + len)` of this buffer. Panics when it reaches outside.
    #[must_use]
    pub fn slice(self, offset: u32, len: u32) -> Buf {
        assert!(u64::from(offset) + u64::from(len) <= u64::from(self.len), "slice outside its buffer");
        Buf { start: self.start + u64::from(offset), len }
    }
}

/// Who a buffer is for. The pools are separate so that none can starve another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// Payload of client requests (the driver allocates these).
    Client,
    /// Headers and indexes of the log; read and written as bytes.
    Log,
    /// Payload of background moves and of read-modify-write.
    Background,
    /// Metadata pages; read and written as bytes.
    Meta,
    /// Payload of whoever stands between the engine and its devices, and may have writes of it wait: never the engine's, which would
    /// wait for what it holds itself.
    Copy,
    /// Headers of theirs; read and written as bytes.
    CopyMeta,
    /// What a device that takes another's place is given.
    Successor,
}

/// Bytes of [`Pool::CopyMeta`]: headers, a block each, that are on their way at once.
pub const COPY_META_BYTES: u32 = 64 << 10;

/// Bytes of [`Pool::Successor`]: two pieces, one is read while another is written.
pub const SUCCESSOR_BYTES: u32 = 2 << 20;

impl Pool {
    /// All of them, in the order of their places in memory.
    pub const ALL: [Pool; 7] =
        [Pool::Client, Pool::Log, Pool::Background, Pool::Meta, Pool::Copy, Pool::CopyMeta, Pool::Successor];

    /// Its place among them.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Memory for buffers, owned by whoever drives the engine.
pub trait Arena {
    /// A buffer of `len` bytes (a multiple of the block size), block-aligned, contents undefined;
    /// `None` when the pool is exhausted.
    fn alloc(&mut self, pool: Pool, len: u32) -> Option<Buf>;
    /// Gives back a whole buffer obtained from [`Arena::alloc`].
    fn free(&mut self, buf: Buf);
    /// CRC32C of payload.
    fn crc32c(&self, buf: Buf) -> u32;
    /// Fills payload with zeros.
    fn zero(&mut self, buf: Buf);
    /// Copies payload between buffers of the same length that do not overlap.
    fn copy(&mut self, dst: Buf, src: Buf);
    /// The bytes of a [`Pool::Log`], [`Pool::Meta`] or [`Pool::CopyMeta`] buffer.
    fn bytes(&self, buf: Buf) -> &[u8];
    /// The bytes of a [`Pool::Log`], [`Pool::Meta`] or [`Pool::CopyMeta`] buffer.
    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8];
}

/// The free blocks of one pool: for whoever keeps an arena.
pub struct FreeBlocks {
    /// Ranges, by address: (first, count).
    free: Vec<(u32, u32)>,
    end: u32,
    outstanding: u32,
}

impl FreeBlocks {
    /// All `count` blocks from `first` on.
    pub fn new(first: u32, count: u32) -> FreeBlocks {
        FreeBlocks { free: vec![(first, count)], end: first + count, outstanding: 0 }
    }

    /// First fit: low addresses stay warm in the processor's cache.
    pub fn take(&mut self, blocks: u32) -> Option<u32> {
        let i = self.free.iter().position(|&(_, count)| count >= blocks)?;
        let (first, count) = self.free[i];
        if count == blocks {
            self.free.remove(i);
        } else {
            self.free[i] = (first + blocks, count - blocks);
        }
        self.outstanding += 1;
        Some(first)
    }

    /// Ranges that were taken and not given back.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// One past the last block.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// Gives a range back that was taken whole.
    pub fn give(&mut self, first: u32, blocks: u32) {
        self.outstanding -= 1;
        let i = self.free.partition_point(|&(f, _)| f < first);
        let joins_next = i < self.free.len() && first + blocks == self.free[i].0;
        let joins_last = i > 0 && self.free[i - 1].0 + self.free[i - 1].1 == first;
        match (joins_last, joins_next) {
            (true, true) => {
                self.free[i - 1].1 += blocks + self.free[i].1;
                self.free.remove(i);
            }
            (true, false) => self.free[i - 1].1 += blocks,
            (false, true) => self.free[i] = (first, blocks + self.free[i].1),
            (false, false) => self.free.insert(i, (first, blocks)),
        }
    }
}
