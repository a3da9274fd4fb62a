//! Buffers without payload.

use bimetal_engine::arena::{Arena, Buf, COPY_META_BYTES, FreeBlocks, Pool};
use bimetal_protect::Plan;
use bimetal_units::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Where the handles of payload begin: far above all bytes there are. Each pool has its own range.
const CLIENT_AT: u64 = 1 << 40;
/// See [`CLIENT_AT`].
const BACKGROUND_AT: u64 = 2 << 40;
/// See [`CLIENT_AT`].
const COPY_AT: u64 = 3 << 40;

/// Bytes in each pool: those of a real server.
const CLIENT_BYTES: u64 = 64 << 20;
const BACKGROUND_BYTES: u64 = 32 << 20;
const LOG_BYTES: u32 = 16 << 20;
const META_BYTES: u32 = 16 << 20;
const COPY_BYTES: u64 = Plan::POOL_BYTES as u64;

/// The log's and metadata buffers have bytes; those for payload are counted, and read as zeros.
pub struct NoDataArena {
    bytes: Vec<u8>,
    log: FreeBlocks,
    meta: FreeBlocks,
    copy_meta: FreeBlocks,
    client_free: u64,
    background_free: u64,
    copy_free: u64,
    /// CRC32C of a block of zeros.
    zero_block: u32,
}

impl Default for NoDataArena {
    fn default() -> Self {
        let [log_blocks, meta_blocks, copy_meta_blocks] =
            [LOG_BYTES, META_BYTES, COPY_META_BYTES].map(|bytes| bytes / BLOCK_BYTES);
        NoDataArena {
            bytes: vec![0; (LOG_BYTES + META_BYTES + COPY_META_BYTES) as usize],
            log: FreeBlocks::new(0, log_blocks),
            meta: FreeBlocks::new(log_blocks, meta_blocks),
            copy_meta: FreeBlocks::new(log_blocks + meta_blocks, copy_meta_blocks),
            client_free: CLIENT_BYTES,
            background_free: BACKGROUND_BYTES,
            copy_free: COPY_BYTES,
            zero_block: crc32c::crc32c(&[0; BLOCK]),
        }
    }
}

impl NoDataArena {
    /// Whether a buffer is payload, which is zeros.
    #[inline]
    pub fn is_payload(buf: Buf) -> bool {
        buf.start >= CLIENT_AT
    }
}

impl Arena for NoDataArena {
    #[inline]
    fn alloc(&mut self, pool: Pool, len: u32) -> Option<Buf> {
        assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES), "a buffer of {len} bytes is not whole blocks");
        let counted = |free: &mut u64, start| {
            *free = free.checked_sub(u64::from(len))?;
            Some(Buf { start, len })
        };
        let blocks = len / BLOCK_BYTES;
        let first = match pool {
            Pool::Client => return counted(&mut self.client_free, CLIENT_AT),
            Pool::Background => return counted(&mut self.background_free, BACKGROUND_AT),
            Pool::Copy => return counted(&mut self.copy_free, COPY_AT),
            Pool::Log => self.log.take(blocks),
            Pool::Meta => self.meta.take(blocks),
            Pool::CopyMeta => self.copy_meta.take(blocks),
            // No device takes another's place in simulation.
            Pool::Successor => None,
        };
        first.map(|first| Buf { start: u64::from(first) * u64::from(BLOCK_BYTES), len })
    }

    #[inline]
    fn free(&mut self, buf: Buf) {
        let len = u64::from(buf.len);
        match buf.start {
            COPY_AT.. => self.copy_free += len,
            BACKGROUND_AT.. => self.background_free += len,
            CLIENT_AT.. => self.client_free += len,
            start => {
                let (first, blocks) = ((start / u64::from(BLOCK_BYTES)) as u32, buf.len / BLOCK_BYTES);
                let pools = [&mut self.log, &mut self.meta, &mut self.copy_meta];
                let own = pools.into_iter().find(|pool| first < pool.end());
                own.expect("the block is in a pool").give(first, blocks);
            }
        }
    }

    #[inline]
    fn crc32c(&self, buf: Buf) -> u32 {
        match NoDataArena::is_payload(buf) && buf.len == BLOCK_BYTES {
            true => self.zero_block,
            false if NoDataArena::is_payload(buf) => crc32c::crc32c(&vec![0; buf.len as usize]),
            false => crc32c::crc32c(self.bytes(buf)),
        }
    }

    fn zero(&mut self, buf: Buf) {
        if !NoDataArena::is_payload(buf) {
            self.bytes_mut(buf).fill(0);
        }
    }

    fn copy(&mut self, dst: Buf, src: Buf) {
        assert_eq!(dst.len, src.len, "a copy between lengths that differ");
        assert!(
            NoDataArena::is_payload(dst) && NoDataArena::is_payload(src),
            "a copy of what is not payload"
        );
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.start as usize..][..buf.len as usize]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.start as usize..][..buf.len as usize]
    }
}
