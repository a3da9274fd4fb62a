//! Buffers: handles into memory that the driver owns.
//!
//! The engine never looks at payload; it asks the arena to checksum, zero and copy it, so that a
//! driver without data runs the same engine.

/// A byte range of the arena. The arena hands it out aligned to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// The bytes of a [`Pool::Log`] or [`Pool::Meta`] buffer.
    fn bytes(&self, buf: Buf) -> &[u8];
    /// The bytes of a [`Pool::Log`] or [`Pool::Meta`] buffer.
    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8];
}
