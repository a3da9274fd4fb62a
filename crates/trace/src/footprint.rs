//! How much of its devices a trace touches, in bounded memory.

use bimetal_units::BLOCK_BYTES;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Regions of 1 MiB whose blocks are counted one by one. A trace that touches more is sampled: half of the regions are
/// let go, whichever their hash says, and each of those left stands for two; then a quarter, and so on.
pub const MAX_REGIONS: usize = 1 << 20;
const REGION_BYTES: u64 = 1 << 20;
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
const BLOCKS: u64 = REGION_BYTES / BLOCK;
const WORDS: usize = (BLOCKS / 64) as usize;

/// One bit for each block of a region.
type Mask = [u64; WORDS];

/// Keys are hashed well already: the hash also decides what is sampled.
#[derive(Default)]
struct Through(u64);

impl Hasher for Through {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, value: u64) {
        self.0 ^= value;
    }
    fn write_u32(&mut self, _value: u32) {}
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A device and a region of it, the hash of both first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key(u64, u32);

/// Blocks of 4 KiB that were touched, told apart by device.
pub(crate) struct Footprint {
    regions: HashMap<Key, [Mask; 2], BuildHasherDefault<Through>>,
    max_regions: usize,
    /// One region in two to this power is counted.
    halvings: u32,
}

/// Bytes touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) all: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Nothing was let go.
    pub(crate) exact: bool,
}

/// The constants of splitmix64; it loses nothing, so that a region is known by its hash and its device.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// What a block of a device is known by where it need not be known for sure: blocks below 2^44 of one device have
/// hashes of their own, and so it is with hardly an exception in one trace.
pub(crate) fn key_hash(device: u32, block: u64) -> u64 {
    mix((block ^ u64::from(device) << 44).wrapping_add(0x9e37_79b9_7f4a_7c15))
}

impl Footprint {
    pub(crate) fn new() -> Footprint {
        Footprint::with_limit(MAX_REGIONS)
    }

    fn with_limit(max_regions: usize) -> Footprint {
        Footprint { regions: HashMap::default(), max_regions, halvings: 0 }
    }

    fn counted(&self, key: Key) -> bool {
        key.0 & ((1 << self.halvings) - 1) == 0
    }

    /// A read or a write of these bytes.
    pub(crate) fn touch(&mut self, device: u32, offset: u64, bytes: u64, write: bool) {
        let (first, end) = (offset / BLOCK, offset.saturating_add(bytes).div_ceil(BLOCK));
        let mut block = first;
        while block < end {
            let region = block / BLOCKS;
            let stop = end.min((region + 1) * BLOCKS);
            let key = Key(mix(region ^ u64::from(device) << 44), device);
            if self.counted(key) {
                let masks = self.regions.entry(key).or_default();
                for block in block..stop {
                    let bit = block % BLOCKS;
                    masks[usize::from(write)][(bit / 64) as usize] |= 1 << (bit % 64);
                }
                self.shrink();
            }
            block = stop;
        }
    }

    fn shrink(&mut self) {
        while self.regions.len() > self.max_regions && self.halvings < 63 {
            self.halvings += 1;
            let mask = (1 << self.halvings) - 1;
            self.regions.retain(|key, _| key.0 & mask == 0);
        }
    }

    pub(crate) fn touched(&self) -> Touched {
        let mut blocks = [0u64; 3];
        for [read, written] in self.regions.values() {
            for (read, written) in read.iter().zip(written) {
                blocks[0] += u64::from((read | written).count_ones());
                blocks[1] += u64::from(read.count_ones());
                blocks[2] += u64::from(written.count_ones());
            }
        }
        let [all, read, written] = blocks.map(|blocks| (blocks * BLOCK) << self.halvings);
        Touched { all, read, written, exact: self.halvings == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_once_and_by_device() {
        let mut footprint = Footprint::new();
        footprint.touch(0, 4095, 2, false);
        footprint.touch(0, 0, 4096, true);
        footprint.touch(1, REGION_BYTES - 1, 2, true);
        let touched = footprint.touched();
        assert_eq!((touched.all, touched.read, touched.written), (4 * BLOCK, 2 * BLOCK, 3 * BLOCK));
        assert!(touched.exact);
    }

    #[test]
    fn too_many_regions_are_sampled() {
        let mut footprint = Footprint::with_limit(1000);
        for region in 0..20_000 {
            footprint.touch(7, region * REGION_BYTES, BLOCK * (1 + region % 3), region % 2 == 0);
        }
        assert!(footprint.regions.len() <= 1000);
        let touched = footprint.touched();
        let error = touched.all as f64 / (40_000 * BLOCK) as f64 - 1.0;
        assert!(!touched.exact && error.abs() < 0.1, "{error}");
    }
}
