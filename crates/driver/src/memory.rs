//! The arena: one mapping, split into pools, registered with the ring as one buffer.
//!
//! Everything that travels between sockets and devices lives here, so payload is never copied on its way.
//! The mapping is shared by reference count between the arena (which the engine owns) and the ring (whose
//! submissions name addresses in it), and is unmapped when the last of them is gone.

mod noted;

pub use noted::ArenaState;

use crate::buddy::Buddy;
use bimetal_engine::arena::{Arena, Buf, COPY_META_BYTES, Pool, SUCCESSOR_BYTES};
use bimetal_units::BLOCK_BYTES;
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags, mlockall, mmap_anonymous, munmap};
use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use std::io;
use std::rc::Rc;

/// Keeps the memory of this process from being paged out, what it takes later included where no limit can make that
/// fail. To be called when the large pieces are there: memory is taken from the system at once.
pub fn lock_memory() -> io::Result<()> {
    let unlimited = rustix::process::getrlimit(Resource::Memlock).current.is_none();
    let future = if unlimited || rustix::process::geteuid().is_root() {
        MlockAllFlags::FUTURE
    } else {
        MlockAllFlags::empty()
    };
    Ok(mlockall(MlockAllFlags::CURRENT | future)?)
}

/// Marks this thread, and those that it starts later, as one that writes back for others: memory that it asks for is
/// then never found by writing to a file system, which may be one that waits for this very process. False where the
/// right to do so (CAP_SYS_RESOURCE) is missing, or the kernel is too old.
pub fn become_io_flusher() -> bool {
    /// From linux/prctl.h.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    let (on, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: sets a flag of the calling thread; no pointer is passed.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, on, none, none, none) == 0 }
}

const POOLS: usize = Pool::ALL.len();

/// Bytes of each pool, multiples of a block.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PoolSizes {
    /// Payload of clients: at least one largest request.
    pub client: u32,
    /// Log headers and indexes.
    pub log: u32,
    /// Payload of background moves.
    pub background: u32,
    /// Metadata pages.
    pub meta: u32,
    /// Payload of an image, where one is kept.
    #[serde(default)]
    pub copy: u32,
    /// Headers of an image, or of a device that takes another's place.
    #[serde(default)]
    pub copy_meta: u32,
    /// Payload for a device that takes another's place.
    #[serde(default)]
    pub successor: u32,
}

impl Default for PoolSizes {
    fn default() -> Self {
        PoolSizes {
            client: 64 << 20,
            log: 16 << 20,
            background: 32 << 20,
            meta: 16 << 20,
            copy: 0,
            copy_meta: COPY_META_BYTES,
            successor: SUCCESSOR_BYTES,
        }
    }
}

impl PoolSizes {
    /// The least that serves a volume with chunks of this size and segments of that size: one largest request
    /// (33 MiB, which the allocator finds in a block of 64), a segment of the log to replay, a few chunks on the move.
    pub fn least(chunk_bytes: u32, segment_bytes: u32) -> PoolSizes {
        PoolSizes {
            client: 64 << 20,
            log: segment_bytes.next_power_of_two().max(4 << 20),
            background: (4 * chunk_bytes.next_power_of_two()).max(8 << 20),
            meta: 4 << 20,
            copy: 0,
            copy_meta: COPY_META_BYTES,
            successor: SUCCESSOR_BYTES,
        }
    }

    /// Bytes of all pools.
    pub fn total(self) -> u64 {
        self.list().into_iter().map(u64::from).sum()
    }

    /// Sizes from `least` to `self`, in proportion, that take `budget` bytes at most; none where not even `least` fits.
    pub fn within(self, least: PoolSizes, budget: u64) -> Option<PoolSizes> {
        let spare = budget.checked_sub(least.total())?;
        let wanted = self.total().saturating_sub(least.total());
        let size = |least: u32, most: u32| {
            let more = u128::from(most.saturating_sub(least)) * u128::from(spare.min(wanted))
                / u128::from(wanted.max(1));
            least + more as u32 / BLOCK_BYTES * BLOCK_BYTES
        };
        Some(PoolSizes {
            client: size(least.client, self.client),
            log: size(least.log, self.log),
            background: size(least.background, self.background),
            meta: size(least.meta, self.meta),
            copy: size(least.copy, self.copy),
            copy_meta: size(least.copy_meta, self.copy_meta),
            successor: size(least.successor, self.successor),
        })
    }

    /// In the order of [`Pool::ALL`].
    fn list(self) -> [u32; POOLS] {
        [self.client, self.log, self.background, self.meta, self.copy, self.copy_meta, self.successor]
    }
}

/// The mapping itself.
#[derive(Debug)]
pub struct Region {
    base: *mut u8,
    len: usize,
}

impl Region {
    fn map(len: usize) -> io::Result<Region> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no memory that
        // exists; it is unmapped only in `drop`.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, MapFlags::PRIVATE) }?;
        Ok(Region { base: base.cast(), len })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a region of nothing cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of `buf`, for the kernel. Panics when it is not inside.
    #[inline]
    pub fn address(&self, buf: Buf) -> *mut u8 {
        let end = buf.start.checked_add(u64::from(buf.len));
        assert!(end.is_some_and(|end| end <= self.len as u64), "buffer outside the arena");
        // SAFETY: start <= len by the assertion, so the result is inside or one past the mapping.
        unsafe { self.base.add(buf.start as usize) }
    }

    /// Appends the bytes of a buffer that an operation in flight names, as the kernel does that sends it.
    pub(crate) fn load(&self, buf: Buf, out: &mut Vec<u8>) {
        let (from, len) = (self.address(buf), buf.len as usize);
        out.reserve(len);
        // SAFETY: `address` checks that the range is inside the mapping, which is initialised (anonymous memory is zero);
        // the room behind the vector's end is its own. As with the kernel's reads, the owner of a buffer does not write to
        // it while an operation names it; and no slice of it is held across a call of the driver, on this one thread.
        unsafe {
            std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Puts bytes at the front of a buffer that an operation in flight names, as the kernel does that receives it.
    pub(crate) fn store(&self, buf: Buf, bytes: &[u8]) {
        assert!(bytes.len() <= buf.len as usize, "more bytes than the buffer has");
        let to = self.address(buf);
        // SAFETY: `address` checks that the range is inside the mapping; `bytes` is of another one, as no slice of the arena
        // is ever given to this. As with the kernel's writes, the owner of a buffer does not look at it while an operation
        // names it; and no slice of it is held across a call of the driver, on this one thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made in `map`; the reference count that owns
        // this value is zero, so neither the arena nor a ring refers to it.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// Bytes that this process and the kernel share: a region and its one owner on this side.
pub struct Memory {
    region: Rc<Region>,
}

impl Memory {
    /// Maps `len` bytes of zeros; they take real memory when they are first used.
    pub fn new(len: usize) -> io::Result<Memory> {
        Ok(Memory { region: Rc::new(Region::map(len)?) })
    }

    /// The mapping, to be named in submissions.
    pub fn region(&self) -> &Rc<Region> {
        &self.region
    }

    /// The bytes of a range.
    #[inline]
    pub fn bytes(&self, buf: Buf) -> &[u8] {
        // SAFETY: `address` checks that the range is inside the mapping, which is initialised (anonymous
        // memory is zero) and lives as long as `self`. No `&mut` to it exists: those borrow `self` mutably,
        // and no two `Memory` share a region. The kernel writes to a range only while an operation naming
        // it is in flight, and its owner does not look at it then.
        unsafe { std::slice::from_raw_parts(self.region.address(buf), buf.len as usize) }
    }

    /// The bytes of a range.
    #[inline]
    pub fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        // SAFETY: as in `bytes`; the slice borrows `self` mutably, so it is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.region.address(buf), buf.len as usize) }
    }
}

struct PoolState {
    /// First byte in the arena.
    start: u64,
    buddy: Buddy,
}

/// The production arena.
pub struct RealArena {
    memory: Memory,
    pools: [PoolState; POOLS],
    sizes: PoolSizes,
    notes: Option<Box<noted::Notes>>,
}

impl RealArena {
    /// Maps the pools. Memory is taken from the system when it is first used or registered.
    pub fn new(sizes: PoolSizes) -> io::Result<Self> {
        let mut start = 0u64;
        let pools = sizes.list().map(|bytes| {
            let pages = bytes / BLOCK_BYTES;
            let pool = PoolState { start, buddy: Buddy::new(pages) };
            start += u64::from(pages) * u64::from(BLOCK_BYTES);
            pool
        });
        Ok(RealArena { memory: Memory::new(start as usize)?, pools, sizes, notes: None })
    }

    /// The mapping, to be registered with a ring.
    pub fn region(&self) -> &Rc<Region> {
        self.memory.region()
    }

    /// Free bytes of a pool.
    pub fn free_bytes(&self, pool: Pool) -> u64 {
        u64::from(self.pools[pool.index()].buddy.free_pages()) * u64::from(BLOCK_BYTES)
    }

    /// The bytes of any buffer, payload too.
    #[inline]
    pub fn payload(&self, buf: Buf) -> &[u8] {
        self.memory.bytes(buf)
    }

    /// The bytes of any buffer, payload too.
    #[inline]
    pub fn payload_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.memory.bytes_mut(buf)
    }
}

impl Arena for RealArena {
    #[inline]
    fn alloc(&mut self, pool: Pool, len: u32) -> Option<Buf> {
        assert!(len > 0 && len.is_multiple_of(BLOCK_BYTES), "a buffer of {len} bytes");
        let pool = &mut self.pools[pool.index()];
        let page = pool.buddy.alloc(len / BLOCK_BYTES)?;
        Some(Buf { start: pool.start + u64::from(page) * u64::from(BLOCK_BYTES), len })
    }

    #[inline]
    fn free(&mut self, buf: Buf) {
        if self.notes.as_mut().is_some_and(|notes| notes.given_back(buf)) {
            self.memory.bytes_mut(buf).fill(0);
        }
        let last = self.pools.iter().rposition(|pool| pool.start <= buf.start);
        let pool = &mut self.pools[last.unwrap_or(0)];
        let page = (buf.start - pool.start) / u64::from(BLOCK_BYTES);
        pool.buddy.free(page as u32, buf.len / BLOCK_BYTES);
    }

    fn crc32c(&self, buf: Buf) -> u32 {
        let own = || crc32c::crc32c(self.payload(buf));
        match &self.notes {
            // Whoever stands between the engine and its devices is not there when it is done again.
            Some(notes) if buf.start < self.pools[Pool::Copy.index()].start => notes.sum(own),
            _ => own(),
        }
    }

    fn zero(&mut self, buf: Buf) {
        self.payload_mut(buf).fill(0);
    }

    fn copy(&mut self, dst: Buf, src: Buf) {
        assert_eq!(dst.len, src.len, "copy between different lengths");
        let apart =
            dst.start + u64::from(dst.len) <= src.start || src.start + u64::from(src.len) <= dst.start;
        assert!(apart, "copy between overlapping buffers");
        if self.notes.is_some()
            && self.is_of_metadata(dst)
            && let Some(notes) = &mut self.notes
        {
            notes.payload_came(dst);
        }
        let (to, from) = (self.memory.region.address(dst), self.memory.region.address(src));
        // SAFETY: both ranges are inside the mapping (`address` checks) and do not overlap (asserted above).
        unsafe { std::ptr::copy_nonoverlapping(from, to, dst.len as usize) }
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        self.payload(buf)
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.payload_mut(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_back_to_their_pool() {
        let sizes = PoolSizes {
            client: 1 << 20,
            log: 1 << 16,
            background: 1 << 16,
            meta: 1 << 16,
            copy: 1 << 16,
            copy_meta: 1 << 16,
            successor: 1 << 16,
        };
        let mut arena = RealArena::new(sizes).expect("map");
        for pool in Pool::ALL {
            let before = arena.free_bytes(pool);
            let buf = arena.alloc(pool, 12288).expect("room");
            arena.payload_mut(buf).fill(pool as u8 + 1);
            assert_eq!(arena.free_bytes(pool), before - 12288);
            assert_eq!(arena.alloc(pool, 2 << 20), None);
            arena.free(buf);
            assert_eq!(arena.free_bytes(pool), before);
        }
    }

    #[test]
    fn pools_shrink_within_a_budget() {
        let (most, least) = (PoolSizes::default(), PoolSizes::least(128 << 10, 4 << 20));
        assert!(most.within(least, least.total() - 1).is_none());
        assert_eq!(most.within(least, least.total()).map(PoolSizes::total), Some(least.total()));
        assert_eq!(most.within(least, u64::MAX).map(PoolSizes::total), Some(most.total()));
        let between = (most.total() + least.total()) / 2;
        let some = most.within(least, between).expect("room").total();
        assert!(some <= between && some + (1 << 20) > between, "{some} of {between}");
        // The largest request has room in the smallest pool.
        let mut arena = RealArena::new(least).expect("map");
        assert!(arena.alloc(Pool::Client, (32 << 20) + 2 * BLOCK_BYTES).is_some());
    }

    #[test]
    fn crc_zero_and_copy_see_the_same_bytes() {
        let mut arena = RealArena::new(PoolSizes::default()).expect("map");
        let a = arena.alloc(Pool::Client, 4096).expect("room");
        let b = arena.alloc(Pool::Background, 4096).expect("room");
        arena.payload_mut(a).fill(0x5a);
        arena.copy(b, a);
        assert_eq!(arena.crc32c(a), arena.crc32c(b));
        arena.zero(a.slice(512, 512));
        assert_eq!(&arena.payload(a)[510..514], &[0x5a, 0x5a, 0, 0]);
    }
}
