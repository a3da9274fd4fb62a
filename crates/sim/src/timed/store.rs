//! What a device without payload keeps: the blocks that the engine looks into.

use bimetal_engine::units::BLOCK_BYTES;
use std::collections::BTreeMap;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are counted together, so that I/O where nothing is kept costs no search.
const REGION_BLOCKS: u64 = 256;

/// Blocks that are not zeros, without the zeros at their ends.
#[derive(Default)]
pub(crate) struct Store {
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// How many of each region are kept.
    counts: Vec<u16>,
}

impl Store {
    /// A device of this size with nothing on it but zeros.
    pub(crate) fn new(size_bytes: u64) -> Store {
        let regions = (size_bytes / BLOCK as u64).div_ceil(REGION_BLOCKS);
        Store { blocks: BTreeMap::new(), counts: vec![0; regions as usize] }
    }

    /// Keeps what is written from a buffer with bytes, of whole blocks.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, block) in (offset / BLOCK as u64..).zip(bytes.chunks_exact(BLOCK)) {
            let end = block.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let before = match end {
                0 => self.blocks.remove(&number).is_some(),
                end => self.blocks.insert(number, block[..end].into()).is_some(),
            };
            let count = &mut self.counts[(number / REGION_BLOCKS) as usize];
            *count = *count + u16::from(end > 0) - u16::from(before);
        }
    }

    /// Takes note that a range now holds zeros.
    pub(crate) fn clear(&mut self, offset: u64, len: u64) {
        let (first, end) = (offset / BLOCK as u64, (offset + len).div_ceil(BLOCK as u64));
        for region in first / REGION_BLOCKS..end.div_ceil(REGION_BLOCKS) {
            if self.counts[region as usize] == 0 {
                continue;
            }
            let range = first.max(region * REGION_BLOCKS)..end.min((region + 1) * REGION_BLOCKS);
            let kept: Vec<u64> = self.blocks.range(range).map(|(&number, _)| number).collect();
            self.counts[region as usize] -= kept.len() as u16;
            kept.iter().for_each(|number| drop(self.blocks.remove(number)));
        }
    }

    /// Fills a buffer of whole blocks.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let first = offset / BLOCK as u64;
        for (number, block) in self.blocks.range(first..first + (bytes.len() / BLOCK) as u64) {
            bytes[(number - first) as usize * BLOCK..][..block.len()].copy_from_slice(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_until_it_is_cleared() {
        let mut store = Store::new(8 << 20);
        let mut bytes = vec![0; 3 * BLOCK];
        bytes[5] = 1;
        bytes[2 * BLOCK + 4095] = 2;
        store.write(255 * BLOCK as u64, &bytes);
        let mut read = vec![9; 4 * BLOCK];
        store.read(254 * BLOCK as u64, &mut read);
        assert!(read[..BLOCK].iter().all(|&byte| byte == 0) && read[BLOCK..] == bytes[..]);
        store.clear(256 * BLOCK as u64, 4096);
        assert_eq!((store.blocks.len(), store.counts[0], store.counts[1]), (2, 1, 1));
        store.clear(0, 8 << 20);
        assert_eq!((store.blocks.len(), store.counts[0], store.counts[1]), (0, 0, 0));
    }
}
