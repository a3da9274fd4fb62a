//! What a block holds that could not be read when its device was replaced, and was done without.

use bimetal_units::BLOCK_BYTES;
use std::sync::LazyLock;

/// Over and over, to the end of the block. Whoever reads it finds that it is not what the block's checksum is of, or knows it by its own.
const TEXT: &[u8] = b"This block could not be read when its device was replaced.\n";

/// The whole block.
static BLOCK: LazyLock<Vec<u8>> =
    LazyLock::new(|| TEXT.iter().copied().cycle().take(BLOCK_BYTES as usize).collect());
static SUM: LazyLock<u32> = LazyLock::new(|| crc32c::crc32c(&BLOCK));

/// What such a block holds.
pub fn block() -> &'static [u8] {
    &BLOCK
}

/// The checksum of that.
pub fn sum() -> u32 {
    *SUM
}
