//! Where protection has its things: behind what the volume uses of each device.

use bimetal_engine::format::codec::{Get, Put};
use bimetal_units::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// One part of so many of the slow device is the ring's: half a minute's writes of a busy disk, and more.
const RING_PART: u64 = 32;
/// The ring has so many bytes at least, and at most: what is in it is known block by block.
const LEAST_RING: u64 = 8 << 20;
const MOST_RING: u64 = 16 << 30;
/// Where half as much again as the fast device has is no more than this, the ring has it.
const WHOLE_RING: u64 = 1 << 30;

/// Where everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// What the volume uses of the fast device, bytes.
    pub fast_bytes: u64,
    /// What it uses of the slow device, bytes.
    pub slow_bytes: u64,
    /// The ring, bytes.
    pub ring_bytes: u64,
}

impl Layout {
    /// Where a slow device of which the volume uses so many bytes has the two headers.
    pub fn headers_behind(slow_bytes: u64) -> [u64; 2] {
        [slow_bytes, slow_bytes + BLOCK]
    }

    /// The largest ring that there is room for; none where there is too little.
    pub fn fitting(fast_bytes: u64, slow_bytes: u64, slow_device_bytes: u64) -> Option<Layout> {
        let room = slow_device_bytes.checked_sub(slow_bytes + 2 * BLOCK + fast_bytes)?;
        let ring_bytes = room.min(Self::ring_bytes_of(fast_bytes, slow_device_bytes)) / BLOCK * BLOCK;
        (ring_bytes >= LEAST_RING).then_some(Layout { fast_bytes, slow_bytes, ring_bytes })
    }

    /// What the ring is to have: all of a small fast device, as after a crash the image may lack any of it.
    fn ring_bytes_of(fast_bytes: u64, slow_device_bytes: u64) -> u64 {
        let whole = (fast_bytes + fast_bytes / 2).min(WHOLE_RING).min(slow_device_bytes / 4);
        (slow_device_bytes / RING_PART).max(whole).clamp(LEAST_RING, MOST_RING) / BLOCK * BLOCK
    }

    /// What a volume may use of devices of these sizes, so that there is room for all this.
    pub fn left_of(fast_device_bytes: u64, slow_device_bytes: u64) -> [u64; 2] {
        let [fast, slow] = Self::needs(fast_device_bytes, slow_device_bytes);
        [fast_device_bytes.saturating_sub(fast), slow_device_bytes.saturating_sub(slow)]
    }

    /// What is to be left free of each device of these sizes, so that there is room for all this.
    pub fn needs(fast_device_bytes: u64, slow_device_bytes: u64) -> [u64; 2] {
        let slow = 2 * BLOCK
            + fast_device_bytes.next_multiple_of(BLOCK)
            + Self::ring_bytes_of(fast_device_bytes, slow_device_bytes);
        [2 * BLOCK, slow]
    }

    /// Where the slow device has the two headers.
    pub fn headers(&self) -> [u64; 2] {
        Self::headers_behind(self.slow_bytes)
    }

    /// Where it has the copy of the fast device.
    pub fn copy_at(&self) -> u64 {
        self.slow_bytes + 2 * BLOCK
    }

    /// Where it has the ring.
    pub fn ring_at(&self) -> u64 {
        self.copy_at() + self.fast_bytes
    }

    /// The first byte of the slow device behind all that.
    pub fn end(&self) -> u64 {
        self.ring_at() + self.ring_bytes
    }

    /// Where the fast device has the two maps of what the image may lack.
    pub fn maps(&self) -> [u64; 2] {
        [self.fast_bytes, self.fast_bytes + BLOCK]
    }

    pub(crate) fn put(&self, put: &mut Put<'_>) {
        put.u64(self.fast_bytes).u64(self.slow_bytes).u64(self.ring_bytes);
    }

    /// None where it can be none.
    pub(crate) fn get(get: &mut Get<'_>) -> Option<Layout> {
        let layout = Layout { fast_bytes: get.count()?, slow_bytes: get.count()?, ring_bytes: get.count()? };
        let all = [layout.fast_bytes, layout.slow_bytes, layout.ring_bytes];
        all.iter().all(|bytes| bytes.is_multiple_of(BLOCK) && *bytes > 0).then_some(layout)
    }
}
