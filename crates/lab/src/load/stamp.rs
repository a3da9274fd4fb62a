//! What is written, such that it can be told when it is read again.
//!
//! A stamped I/O carries, at the head of each [`STAMP_BYTES`] of it, who wrote it where: a block that is stale,
//! misplaced, torn or zeroed is told from what should be there.

use crate::job::Reducible;
use bimetal_units::rng::mix;

/// A head stands at each multiple of so many bytes of an I/O; the sector of most devices.
pub(super) const STAMP_BYTES: usize = 512;
/// "bimetal\0", little-endian.
const MAGIC: u64 = 0x006c_6174_656d_6962;

/// Stamps what a job of this seed writes at an offset as its n-th I/O. What follows a head depends on all three.
pub(crate) fn fill(bytes: &mut [u8], seed: u64, offset: u64, number: u64) {
    for (part, at) in bytes.chunks_mut(STAMP_BYTES).zip((offset..).step_by(STAMP_BYTES)) {
        let mut word = mix(seed ^ mix(at ^ mix(number)));
        let head = [MAGIC, seed, at, number];
        for (n, eight) in part.chunks_mut(8).enumerate() {
            let value = match head.get(n) {
                Some(&value) => value,
                None => {
                    word =
                        word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    word
                }
            };
            eight.copy_from_slice(&value.to_le_bytes()[..eight.len()]);
        }
    }
}

/// The same of bytes that can be stored in less: a share of the I/Os has one and the same content, and of each chunk the
/// end is zeros.
pub(crate) fn fill_reducible(bytes: &mut [u8], how: Reducible, seed: u64, offset: u64, number: u64) {
    let same = mix(seed ^ mix(number)) % 100 < u64::from(how.same_percent);
    let (offset, number) = if same { (0, 0) } else { (offset, number) };
    fill(bytes, seed, offset, number);
    let chunk = (how.chunk_bytes as usize).clamp(1, bytes.len().max(1));
    for chunk in bytes.chunks_mut(chunk) {
        let kept = chunk.len() * (100 - usize::from(how.zero_percent.min(100))) / 100;
        chunk[kept..].fill(0);
    }
}

/// Whether these bytes are what the job wrote there as its n-th I/O.
pub(crate) fn is_filled(bytes: &[u8], seed: u64, offset: u64, number: u64) -> bool {
    let mut expected = [0; STAMP_BYTES];
    bytes.chunks(STAMP_BYTES).zip((offset..).step_by(STAMP_BYTES)).all(|(part, at)| {
        let expected = &mut expected[..part.len()];
        fill(expected, seed, at, number);
        part == expected
    })
}

/// Whether these bytes are what some job wrote there, each part of them as a whole.
pub(super) fn is_whole(bytes: &[u8], offset: u64) -> bool {
    let word = |part: &[u8], n: usize| {
        part.get(8 * n..8 * n + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    bytes
        .chunks(STAMP_BYTES)
        .zip((offset..).step_by(STAMP_BYTES))
        .all(|(part, at)| is_stamped(part) && is_filled(part, word(part, 1), at, word(part, 3)))
}

/// Bytes for what is written without being verified: they are told to be the lab's all the same.
pub fn stamped(bytes: &mut [u8], seed: u64, offset: u64) {
    fill(bytes, seed, offset, u64::MAX);
}

/// Whether these bytes were stamped by some job: the lab's own files are told from others' by it. Of the last bytes of
/// a file there may be fewer than a head has.
pub fn is_stamped(bytes: &[u8]) -> bool {
    let magic = MAGIC.to_le_bytes();
    let there = bytes.len().min(magic.len());
    there > 0 && bytes[..there] == magic[..there]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_reduced_is_so_by_as_much() {
        let how = Reducible { zero_percent: 75, chunk_bytes: 512, same_percent: 30 };
        let blocks: Vec<Vec<u8>> = (0..1000u64)
            .map(|number| {
                let mut bytes = vec![1; 4096];
                fill_reducible(&mut bytes, how, 9, number * 4096, number);
                bytes
            })
            .collect();
        assert!(blocks.iter().all(|block| block.iter().filter(|byte| **byte == 0).count() >= 3072));
        assert!(blocks.iter().flat_map(|block| block.chunks(512)).all(is_stamped));
        let distinct: std::collections::HashSet<&Vec<u8>> = blocks.iter().collect();
        assert!((650..750).contains(&distinct.len()), "{}", distinct.len());
    }

    #[test]
    fn what_is_wrong_is_seen() {
        let mut bytes = vec![0; 4096 + 100];
        fill(&mut bytes, 1, 8192, 5);
        assert!(is_filled(&bytes, 1, 8192, 5) && is_stamped(&bytes));
        assert!(is_filled(&bytes[512..1024], 1, 8704, 5));
        assert!(is_whole(&bytes, 8192) && !is_whole(&bytes, 4096));
        for (seed, offset, number) in [(2, 8192, 5), (1, 8704, 5), (1, 8192, 6)] {
            assert!(!is_filled(&bytes, seed, offset, number));
        }
        for at in [0, 40, 511, 512, 4095, 4195] {
            bytes[at] ^= 1;
            assert!(!is_filled(&bytes, 1, 8192, 5), "byte {at}");
            assert!(!is_whole(&bytes, 8192), "byte {at}");
            bytes[at] ^= 1;
        }
    }
}
