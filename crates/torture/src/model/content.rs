//! What sectors hold: each full write is self-describing, so that misplaced, torn, old and
//! foreign data are told apart.

use crate::arena::POISON;
use bimetal_units::SECTOR_BYTES;
use bimetal_units::rng::{GOLDEN, mix};

/// Bytes in a sector.
pub const SECTOR: usize = SECTOR_BYTES as usize;
/// The bytes of a sector.
pub type SectorBytes = [u8; SECTOR];

/// Names a sector's value: zeros, what a write puts there, or bytes that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Content(u32);

const KEPT: u32 = 1 << 31;

impl Content {
    /// Zeros.
    pub(super) const ZERO: Content = Content(0);

    /// What the write with this number (from 1) puts there.
    pub(super) fn pattern(write: u32) -> Content {
        debug_assert!(write > 0 && write < KEPT);
        Content(write)
    }
}

/// Fills a sector with what a write puts there: its number, the sector's, and a run of words that depends on both.
pub fn pattern(salt: u64, sector: u64, write: u32, out: &mut SectorBytes) {
    let mut word = mix(salt ^ mix(sector) ^ (u64::from(write) << 32));
    for bytes in out.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(GOLDEN);
    }
    out[..8].copy_from_slice(&(u64::from(write) ^ salt).to_le_bytes());
    out[8..16].copy_from_slice(&(sector ^ salt.rotate_left(32)).to_le_bytes());
}

/// The values in use in one run.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) salt: u64,
    kept: Vec<SectorBytes>,
}

impl Contents {
    pub(super) fn new(salt: u64) -> Contents {
        Contents { salt, kept: Vec::new() }
    }

    /// The bytes of a value.
    pub(super) fn bytes(&self, sector: u64, content: Content, out: &mut SectorBytes) {
        if content == Content::ZERO {
            out.fill(0);
        } else if content.0 & KEPT != 0 {
            *out = self.kept[(content.0 & !KEPT) as usize];
        } else {
            pattern(self.salt, sector, content.0, out);
        }
    }

    /// Keeps bytes that no whole write made.
    pub(super) fn keep(&mut self, bytes: SectorBytes) -> Content {
        if bytes == [0; SECTOR] {
            return Content::ZERO;
        }
        self.kept.push(bytes);
        Content((self.kept.len() - 1) as u32 | KEPT)
    }

    /// Whether the bytes of the sector from `from` on are those of a value.
    pub(super) fn matches(&self, sector: u64, content: Content, from: usize, found: &[u8]) -> bool {
        if content == Content::ZERO {
            return *found == [0; SECTOR][..found.len()];
        }
        let mut want = [0; SECTOR];
        self.bytes(sector, content, &mut want);
        want[from..from + found.len()] == *found
    }

    /// Whether two values have the same bytes.
    pub(super) fn same(&self, sector: u64, a: Content, b: Content) -> bool {
        if a == b {
            return true;
        }
        if (a.0 | b.0) & KEPT == 0 {
            return false;
        }
        let mut bytes = [0; SECTOR];
        self.bytes(sector, a, &mut bytes);
        self.matches(sector, b, 0, &bytes)
    }

    /// Names a value, for a report.
    pub(super) fn name(&self, sector: u64, content: Content) -> String {
        let mut bytes = [0; SECTOR];
        self.bytes(sector, content, &mut bytes);
        let name = self.describe(sector, &bytes);
        if content.0 & KEPT != 0 { format!("a mix of writes starting with {name}") } else { name }
    }

    /// The sector that bytes name as their own.
    pub(super) fn sector_of(&self, bytes: &[u8]) -> Option<u64> {
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let (write, at) = (word(0) ^ self.salt, word(1) ^ self.salt.rotate_left(32));
        (write <= u64::from(u32::MAX) && at >> 40 == 0).then_some(at)
    }

    /// Says what bytes that were read are.
    pub(super) fn describe(&self, sector: u64, found: &[u8]) -> String {
        if found.iter().all(|&b| b == 0) {
            return "zeros".into();
        }
        if found.len() < SECTOR {
            return format!("{} bytes, {:02x?}..", found.len(), &found[..found.len().min(8)]);
        }
        if found[..POISON.len()] == POISON {
            return "memory that was never filled".into();
        }
        let word = |i: usize| u64::from_le_bytes(found[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let (write, at) = (word(0) ^ self.salt, word(1) ^ self.salt.rotate_left(32));
        if write > u64::from(u32::MAX) || at >> 40 != 0 {
            return format!("garbage ({:02x?}..)", &found[..16]);
        }
        let mut whole = [0; SECTOR];
        pattern(self.salt, at, write as u32, &mut whole);
        let torn = if whole[..] == *found { "" } else { ", torn inside the sector" };
        let place =
            if at == sector { String::new() } else { format!(" of sector {at}: another block's data") };
        format!("write {write}{place}{torn}")
    }
}
