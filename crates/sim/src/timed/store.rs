//! What a device without payload keeps: the blocks that the engine looks into.

use bimetal_units::BLOCK_BYTES;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are found together, so that I/O where nothing is kept costs one look.
const REGION_BLOCKS: usize = 256;
/// Lengths are multiples of this: few sizes are soon used again.
const GRAIN: usize = 256;

/// Bytes of a word.
const WORD: usize = 4;

/// A block without the word that fills its end, and before it that word: most often zero; in a page of checksums that
/// of a block of zeros, which all payload is.
type Kept = Option<Box<[u8]>>;

/// How much of a block is kept: all before its last words, if they are alike; none of a block of zeros.
fn kept_bytes(block: &[u8]) -> usize {
    let last = &block[BLOCK - WORD..];
    match block.chunks_exact(WORD).rposition(|word| word != last) {
        None if last == [0; WORD] => 0,
        None => GRAIN,
        Some(differs) => ((differs + 1) * WORD).next_multiple_of(GRAIN),
    }
}

/// The blocks of a stretch of the device, and how many of them are kept.
struct Region {
    blocks: [Kept; REGION_BLOCKS],
    count: usize,
}

/// Blocks that are not zeros.
#[derive(Default)]
pub(crate) struct Store {
    regions: Vec<Option<Box<Region>>>,
}

impl Store {
    /// A device of this size with nothing on it but zeros.
    pub(crate) fn new(size_bytes: u64) -> Store {
        let count = (size_bytes / BLOCK as u64).div_ceil(REGION_BLOCKS as u64);
        Store { regions: std::iter::repeat_with(|| None).take(count as usize).collect() }
    }

    /// Keeps what is written from a buffer with bytes, of whole blocks.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, block) in (offset as usize / BLOCK..).zip(bytes.chunks_exact(BLOCK)) {
            let end = kept_bytes(block);
            if end == 0 {
                self.clear((number * BLOCK) as u64, BLOCK as u64);
                continue;
            }
            let region = self.regions[number / REGION_BLOCKS].get_or_insert_with(|| {
                Box::new(Region { blocks: [const { None }; REGION_BLOCKS], count: 0 })
            });
            let kept = &mut region.blocks[number % REGION_BLOCKS];
            region.count += usize::from(kept.is_none());
            let place = match kept {
                Some(place) if place.len() == WORD + end => place,
                _ => kept.insert(vec![0; WORD + end].into()),
            };
            place[..WORD].copy_from_slice(&block[BLOCK - WORD..]);
            place[WORD..].copy_from_slice(&block[..end]);
        }
    }

    /// Takes note that a range now holds zeros.
    pub(crate) fn clear(&mut self, offset: u64, len: u64) {
        let (first, end) = (offset as usize / BLOCK, (offset + len).div_ceil(BLOCK as u64) as usize);
        for number in first / REGION_BLOCKS..end.div_ceil(REGION_BLOCKS) {
            let Some(region) = &mut self.regions[number] else { continue };
            let base = number * REGION_BLOCKS;
            for kept in &mut region.blocks[first.saturating_sub(base)..(end - base).min(REGION_BLOCKS)] {
                region.count -= usize::from(kept.take().is_some());
            }
            if region.count == 0 {
                self.regions[number] = None;
            }
        }
    }

    /// Fills a buffer of whole blocks.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (number, block) in (offset as usize / BLOCK..).zip(bytes.chunks_exact_mut(BLOCK)) {
            let region = self.regions[number / REGION_BLOCKS].as_ref();
            let Some(kept) = region.and_then(|region| region.blocks[number % REGION_BLOCKS].as_deref())
            else {
                block.fill(0);
                continue;
            };
            let (word, kept) = kept.split_at(WORD);
            let (start, end) = block.split_at_mut(kept.len());
            start.copy_from_slice(kept);
            // In pieces of a grain, which is several times as fast as word by word.
            let mut pattern = [0; GRAIN];
            pattern.chunks_exact_mut(WORD).for_each(|place| place.copy_from_slice(word));
            end.chunks_mut(GRAIN).for_each(|place| place.copy_from_slice(&pattern[..place.len()]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_whatever_they_end_in() {
        let mut store = Store::new(1 << 20);
        for (number, filled) in [(0, 0), (1, 3), (2, 4), (3, 255), (4, 256), (5, 4000), (6, 4093), (7, 4096)]
        {
            for word in [[0; 4], [7; 4], [1, 2, 3, 4]] {
                let mut block: Vec<u8> = word.iter().copied().cycle().take(BLOCK).collect();
                block[..filled].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + 13) as u8);
                store.write((number * BLOCK) as u64, &block);
                let mut read = vec![9; BLOCK];
                store.read((number * BLOCK) as u64, &mut read);
                assert!(read == block, "{filled} {word:?}");
            }
        }
    }

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
        let counts = |store: &Store| -> Vec<usize> {
            store.regions.iter().flatten().map(|region| region.count).collect()
        };
        assert_eq!(counts(&store), [1, 1]);
        store.clear(0, 8 << 20);
        assert!(counts(&store).is_empty());
    }
}
