//! Pages of the map table, of the checksum table, of their directory, and of the checkpoint's root.

use super::Id;
use super::codec::{Get, Put, SEAL_BYTES, seal, seal_sum, unseal};
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::fmt;

const MAGIC: &[u8; 8] = b"BMTLpage";

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageKind {
    /// Homes and valid blocks of chunks.
    Map = 1,
    /// Checksums of slow blocks.
    Sums = 2,
    /// Which directory pages are in force, and the list of recent checksums.
    Root = 3,
    /// Which map and checksum pages are in force.
    Directory = 4,
    /// Which chunks are pinned to which tier.
    Pins = 5,
    /// How far a scrub has come.
    Scrub = 6,
    /// What the slow device says of chunks.
    Marks = 7,
    /// Which of these pages are in force.
    MarkDirectory = 8,
    /// Checksums of fast blocks.
    FastSums = 9,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Map => "a page of the map",
            PageKind::Sums => "a page of checksums",
            PageKind::Root => "a block of the checkpoint's root",
            PageKind::Directory => "a page of the directory",
            PageKind::Pins => "the list of pins",
            PageKind::Scrub => "the progress of a scrub",
            PageKind::Marks => "a page of marks",
            PageKind::FastSums => "a page of checksums of the fast tier",
            PageKind::MarkDirectory => "a page of the directory of marks",
        })
    }
}

/// Which version of a page is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PageRef {
    /// 0: the page was never written; 1 and 2: its places.
    pub place: u8,
    /// The checksum in its seal, which no other version of the page has.
    pub sum: u32,
}

impl PageRef {
    /// The place, counted from zero; none when the page was never written.
    pub fn index(self) -> Option<u8> {
        self.place.checked_sub(1)
    }
}

/// What is wrong with what stands in a page's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageFault {
    /// It is not that page.
    Invalid,
    /// It is that page, but not the version in force: one that this checkpoint wrote.
    Other(u64),
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PageFault::Invalid => f.write_str("is not valid"),
            PageFault::Other(by) => {
                write!(f, "is not the one in force, but another that checkpoint {by} wrote")
            }
        }
    }
}

const HEAD_BYTES: usize = 40;
/// Bytes of entries in a page.
pub const PAGE_PAYLOAD: usize = BLOCK_BYTES as usize - SEAL_BYTES - HEAD_BYTES;
/// Checksums in a page of the checksum table.
pub const SUMS_PER_PAGE: u64 = PAGE_PAYLOAD as u64 / 4;
/// Bytes of an entry of the list of recent checksums: index (8), checksum (4).
pub const LIST_ENTRY_BYTES: usize = 12;

/// Bytes of a [`PageRef`]: place (1), checksum (4).
pub const REF_BYTES: usize = 5;
/// References in a page of the directory, or in a block of the root.
pub const REFS_PER_PAGE: u32 = (PAGE_PAYLOAD / REF_BYTES) as u32;

/// Entries of the list in a block of the root: whole ones only.
pub const LIST_ENTRIES_PER_BLOCK: u32 = (PAGE_PAYLOAD / LIST_ENTRY_BYTES) as u32;

/// Bytes of a map entry: home (6), copy (6), valid blocks.
pub fn map_entry_bytes(mask_words: usize) -> usize {
    12 + 4 * mask_words
}

/// Map entries in a page.
pub fn map_entries_per_page(mask_words: usize) -> u32 {
    (PAGE_PAYLOAD / map_entry_bytes(mask_words)) as u32
}

/// Seals `payload` as page `number` of its kind. Gives the seal's checksum.
pub fn encode(
    block: &mut [u8],
    kind: PageKind,
    volume: &Id,
    number: u64,
    checkpoint: u64,
    payload: &[u8],
) -> u32 {
    let mut body = Vec::with_capacity(HEAD_BYTES + payload.len());
    let mut put = Put(&mut body);
    put.bytes(volume).u32(kind as u32).u32(0).u64(number).u64(checkpoint).bytes(payload);
    seal(block, MAGIC, &body)
}

/// The payload of a page, and the checkpoint that wrote it, if it is the page it should be.
pub fn decode<'a>(block: &'a [u8], kind: PageKind, volume: &Id, number: u64) -> Option<(&'a [u8], u64)> {
    let mut get = Get(unseal(block, MAGIC)?);
    let same = get.id()? == *volume && get.u32()? == kind as u32;
    get.u32()?;
    let same = same && get.u64()? == number;
    let written_by = get.u64()?;
    same.then_some((get.0, written_by))
}

/// Whether a page was begun here and is not whole: a write that a crash tore, or decay.
pub fn is_broken(block: &[u8]) -> bool {
    block.starts_with(MAGIC) && unseal(block, MAGIC).is_none()
}

/// Whether this is some page, whole, under this checksum.
pub fn is_version(block: &[u8], sum: u32) -> bool {
    unseal(block, MAGIC).is_some() && seal_sum(block) == Some(sum)
}

/// The payload of a page, if it is the page it should be, in the version with this checksum: a write that was
/// lost leaves an older one in its place, as whole as the one that is missing.
pub fn decode_version<'a>(
    block: &'a [u8],
    kind: PageKind,
    volume: &Id,
    number: u64,
    sum: u32,
) -> Result<&'a [u8], PageFault> {
    let (payload, written_by) = decode(block, kind, volume, number).ok_or(PageFault::Invalid)?;
    let in_force = seal_sum(block) == Some(sum) || planted(Bug::LostPageAccepted);
    if in_force { Ok(payload) } else { Err(PageFault::Other(written_by)) }
}

/// The checksum of a whole root, one block after the other: `so_far` (0 before the first) and the checksum in the
/// next block's seal.
pub fn root_sum(so_far: u32, block_sum: u32) -> u32 {
    crc32c::crc32c_append(so_far, &block_sum.to_le_bytes())
}

/// Appends a reference.
pub fn put_ref(out: &mut Vec<u8>, page: PageRef) {
    Put(out).u8(page.place).u32(page.sum);
}

/// Reads a reference; `None` when it names no place.
pub fn get_ref(get: &mut Get<'_>) -> Option<PageRef> {
    let page = PageRef { place: get.u8()?, sum: get.u32()? };
    (page.place <= 2).then_some(page)
}

/// A home in six bytes: slot (40 bits), flags (4, reserved), tier plus one (4; zero is no home).
pub fn pack_home(home: Option<Home>) -> u64 {
    home.map_or(0, |h| u64::from(h.slot.0) | (u64::from(h.tier.0) + 1) << 44)
}

/// The reverse of [`pack_home`]; `None` if it is no home of this format's two tiers.
pub fn unpack_home(raw: u64) -> Option<Option<Home>> {
    match raw >> 44 & 0xf {
        0 => Some(None),
        t @ 1..=2 => {
            let slot = Slot(u32::try_from(raw & 0xff_ffff_ffff).ok()?);
            Some(Some(Home { tier: Tier(t as u8 - 1), slot }))
        }
        _ => None,
    }
}

/// Appends a map entry.
pub fn put_map_entry(out: &mut Vec<u8>, home: Option<Home>, mask_words: usize, valid: &BlockMask) {
    let mut put = Put(out);
    put.bytes(&pack_home(home).to_le_bytes()[..6]).bytes(&[0; 6]);
    for i in 0..mask_words {
        put.u32(valid.word(i));
    }
}

/// Reads a map entry.
pub fn get_map_entry(get: &mut Get<'_>, mask_words: usize) -> Option<(Option<Home>, BlockMask)> {
    let mut raw = [0; 8];
    raw[..6].copy_from_slice(get.bytes(6)?);
    get.bytes(6)?;
    let words = get.bytes(4 * mask_words)?;
    let valid =
        BlockMask::from_words(words.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])));
    Some((unpack_home(u64::from_le_bytes(raw))?, valid))
}
