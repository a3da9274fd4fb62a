//! Little-endian fields in and out of byte slices, and sealed blocks.

use bimetal_units::BLOCK_BYTES;

/// No generation, checkpoint, segment or group ever has a number as high as this. Times the blocks of a
/// segment it still fits 64 bits.
const MAX_COUNT: u64 = 1 << 52;

/// Writes fields one after the other.
pub struct Put<'a>(pub &'a mut Vec<u8>);

impl Put<'_> {
    /// One byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.0.push(v);
        self
    }
    /// Two bytes.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    /// Four bytes.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    /// Eight bytes.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }
    /// Bytes as they are.
    pub fn bytes(&mut self, v: &[u8]) -> &mut Self {
        self.0.extend_from_slice(v);
        self
    }
}

/// Reads fields one after the other; `None` at the end of the bytes.
pub struct Get<'a>(pub &'a [u8]);

impl<'a> Get<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// Eight bytes that count what happened to the volume. None reaches the limit, and nothing overflows below it.
    pub fn count(&mut self) -> Option<u64> {
        self.u64().filter(|n| *n < MAX_COUNT)
    }
    /// An identity.
    pub fn id(&mut self) -> Option<super::Id> {
        self.array()
    }
}

/// Every metadata block begins with this: magic, checksum of all that follows, length covered.
pub const SEAL_BYTES: usize = 16;

/// Lays `body` behind a seal at the start of `out` (whole blocks) and zeroes the rest. Gives the seal's checksum.
pub fn seal(out: &mut [u8], magic: &[u8; 8], body: &[u8]) -> u32 {
    assert!(SEAL_BYTES + body.len() <= out.len(), "a sealed body fits its blocks");
    out[..8].copy_from_slice(magic);
    out[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    out[SEAL_BYTES..SEAL_BYTES + body.len()].copy_from_slice(body);
    out[SEAL_BYTES + body.len()..].fill(0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(magic), &out[12..SEAL_BYTES + body.len()]);
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// The checksum in a seal, valid or not.
pub fn seal_sum(bytes: &[u8]) -> Option<u32> {
    Get(bytes.get(8..)?).u32()
}

/// The body behind a valid seal.
pub fn unseal<'a>(bytes: &'a [u8], magic: &[u8; 8]) -> Option<&'a [u8]> {
    let mut get = Get(bytes);
    if get.bytes(8)? != magic {
        return None;
    }
    let crc = get.u32()?;
    let len = get.u32()? as usize;
    let covered = bytes.get(12..SEAL_BYTES.checked_add(len)?)?;
    (crc32c::crc32c_append(crc32c::crc32c(magic), covered) == crc)
        .then(|| &bytes[SEAL_BYTES..SEAL_BYTES + len])
}

/// Blocks that a seal with this magic claims to cover, valid or not.
pub fn claimed_blocks(bytes: &[u8], magic: &[u8; 8]) -> Option<u32> {
    let mut get = Get(bytes);
    let ours = get.bytes(8)? == magic;
    get.u32()?;
    let len = get.u32()?;
    ours.then(|| len.saturating_add(SEAL_BYTES as u32).div_ceil(BLOCK_BYTES))
}

/// Blocks that a sealed body of this length takes.
pub fn sealed_blocks(body_bytes: usize) -> u32 {
    ((SEAL_BYTES + body_bytes) as u32).div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_breaks_the_seal() {
        let mut block = vec![0xa5; 4096];
        seal(&mut block, b"BMTLtest", b"some body");
        assert_eq!(unseal(&block, b"BMTLtest"), Some(&b"some body"[..]));
        for bit in 0..(SEAL_BYTES + 9) * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&bad, b"BMTLtest"), None, "bit {bit}");
        }
        assert_eq!(unseal(&block[..20], b"BMTLtest"), None);
    }
}
