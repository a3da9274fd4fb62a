//! Hash maps that behave the same in every run: a fixed, fast hash in place of the random default.

use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds integer keys (the engine hashes nothing but its own indexes).
#[derive(Default, Clone, Copy)]
pub struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Spreads the bits of an index (the finaliser of MurmurHash3, public domain constants).
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let n = (n ^ (n >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    n ^ (n >> 33)
}

/// A map keyed by engine indexes. Never iterate it where the order could show.
pub type IndexMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<IndexHasher>>;
