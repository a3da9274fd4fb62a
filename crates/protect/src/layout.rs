//! Where protection has its things: behind what the volume uses of each device.

use bimetal_engine::format::codec::{Get, Put};
use bimetal_units::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

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
    /// Where the slow device has the two headers.
    pub fn headers(&self) -> [u64; 2] {
        [self.slow_bytes, self.end() - BLOCK]
    }

    /// Where it has the copy of the fast device.
    pub fn copy_at(&self) -> u64 {
        self.slow_bytes + BLOCK
    }

    /// Where it has the ring.
    pub fn ring_at(&self) -> u64 {
        self.copy_at() + self.fast_bytes
    }

    /// The first byte of the slow device behind all that.
    pub fn end(&self) -> u64 {
        self.ring_at() + self.ring_bytes + BLOCK
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
