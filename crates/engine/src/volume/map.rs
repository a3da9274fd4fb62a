//! The map: where each chunk is at home and which of its blocks the home holds.
//!
//! Only what the log has recorded stands here; first writes and streams that no record shows yet
//! are in [`crate::volume::pending`]. 12 bytes per chunk of 128 KiB; heat takes the other four.

use crate::base::mask::BlockMask;
use crate::format::geometry::Geometry;
use crate::format::page;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

const SLOT_BITS: u64 = 0xffff_ffff;
const TIER_SHIFT: u32 = 32;
const TIER_BITS: u64 = 0xf;
const LANDED: u64 = 1 << 40;
const MOVING: u64 = 1 << 41;
const PENDING: u64 = 1 << 42;

/// Homes and valid blocks of all chunks, with the marks that route writes.
#[derive(Serialize, Deserialize)]
pub struct Map {
    words: Vec<u64>,
    valid: Vec<u32>,
    mask_words: usize,
    blocks_per_chunk: u32,
    per_page: u32,
    dirty: Vec<u64>,
    dirty_pages: u32,
    homeless: u32,
}

/// Of a chunk's word: blocks are landed, or may be, and there is no home to merge them into.
fn is_homeless(word: u64) -> bool {
    word & LANDED != 0 && word >> TIER_SHIFT & TIER_BITS == 0
}

impl Map {
    /// An empty map.
    pub fn new(geo: &Geometry) -> Map {
        let mask_words = geo.mask_words();
        Map {
            words: vec![0; geo.chunks as usize],
            valid: vec![0; geo.chunks as usize * mask_words],
            mask_words,
            blocks_per_chunk: geo.blocks_per_chunk(),
            per_page: page::map_entries_per_page(mask_words),
            dirty: vec![0; (geo.map_pages as usize).div_ceil(64)],
            dirty_pages: 0,
            homeless: 0,
        }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        (self.words.len() * 8 + self.valid.len() * 4 + self.dirty.len() * 8) as u64
    }

    /// Chunks of the volume.
    pub fn chunks(&self) -> u32 {
        self.words.len() as u32
    }

    /// The recorded home.
    pub fn home(&self, chunk: Chunk) -> Option<Home> {
        let word = self.words[chunk.0 as usize];
        let tier = word >> TIER_SHIFT & TIER_BITS;
        (tier != 0).then(|| Home { tier: Tier(tier as u8 - 1), slot: Slot((word & SLOT_BITS) as u32) })
    }

    /// Whether the chunk has a recorded home on this tier.
    pub fn is_on(&self, chunk: Chunk, tier: Tier) -> bool {
        self.home(chunk).is_some_and(|home| home.tier == tier)
    }

    /// Records a home and the blocks it holds.
    pub fn set(&mut self, chunk: Chunk, home: Option<Home>, valid: &BlockMask) {
        let packed = home.map_or(0, |h| u64::from(h.slot.0) | (u64::from(h.tier.0) + 1) << TIER_SHIFT);
        self.change(chunk, |word| word & !(SLOT_BITS | TIER_BITS << TIER_SHIFT) | packed);
        let at = chunk.0 as usize * self.mask_words;
        for i in 0..self.mask_words {
            self.valid[at + i] = valid.word(i);
        }
        self.mark_dirty(chunk);
    }

    /// The blocks that the home holds.
    pub fn valid(&self, chunk: Chunk) -> BlockMask {
        let at = chunk.0 as usize * self.mask_words;
        BlockMask::from_words(self.valid[at..at + self.mask_words].iter().copied())
    }

    /// Whether the home holds this block of the chunk.
    pub fn is_valid(&self, chunk: Chunk, block: u32) -> bool {
        self.valid[chunk.0 as usize * self.mask_words + block as usize / 32] >> (block % 32) & 1 != 0
    }

    /// Whether the home holds all of `[first, first + count)`.
    pub fn all_valid(&self, chunk: Chunk, first: u32, count: u32) -> bool {
        (first..first + count).all(|b| self.is_valid(chunk, b))
    }

    /// How many blocks of the chunk the home holds.
    pub fn valid_blocks(&self, chunk: Chunk) -> u32 {
        let at = chunk.0 as usize * self.mask_words;
        self.valid[at..at + self.mask_words].iter().map(|word| word.count_ones()).sum()
    }

    fn mark_dirty(&mut self, chunk: Chunk) {
        let page = (chunk.0 / self.per_page) as usize;
        let bit = 1 << (page % 64);
        if self.dirty[page / 64] & bit == 0 {
            self.dirty[page / 64] |= bit;
            self.dirty_pages += 1;
        }
    }

    /// Pages changed since they were last taken.
    pub fn dirty_pages(&self) -> u32 {
        self.dirty_pages
    }

    /// The first dirty page at or after `from`.
    pub fn next_dirty(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = *self.dirty.get(word)? & !0 << (from % 64);
        while bits == 0 {
            word += 1;
            bits = *self.dirty.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// The payload of a page as it stands; the page is clean from here on.
    pub fn take_page(&mut self, page: u32) -> Vec<u8> {
        let bit = 1 << (page % 64);
        if self.dirty[page as usize / 64] & bit != 0 {
            self.dirty[page as usize / 64] &= !bit;
            self.dirty_pages -= 1;
        }
        let first = page * self.per_page;
        let end = (first + self.per_page).min(self.chunks());
        let mut out = Vec::with_capacity(page::PAGE_PAYLOAD);
        for chunk in (first..end).map(Chunk) {
            page::put_map_entry(&mut out, self.home(chunk), self.mask_words, &self.valid(chunk));
        }
        out
    }

    /// The chunks of a page.
    pub fn chunks_of(&self, page: u32) -> impl Iterator<Item = Chunk> + use<> {
        let first = page * self.per_page;
        (first..(first + self.per_page).min(self.chunks())).map(Chunk)
    }

    /// Marks a page dirty again: its write failed.
    pub fn redirty(&mut self, page: u32) {
        self.mark_dirty(Chunk(page * self.per_page));
    }

    /// Fills the map from a page. False when the payload is malformed or names slots that do not exist.
    pub fn load_page(&mut self, geo: &Geometry, page: u32, payload: &[u8]) -> bool {
        let mut get = crate::format::codec::Get(payload);
        let first = page * self.per_page;
        for chunk in (first..(first + self.per_page).min(self.chunks())).map(Chunk) {
            let Some((home, valid)) = page::get_map_entry(&mut get, self.mask_words) else { return false };
            if !geo.can_hold(home, &valid) {
                return false;
            }
            self.set(chunk, home, &valid);
        }
        self.dirty[page as usize / 64] &= !(1 << (page % 64));
        self.dirty_pages = self.dirty.iter().map(|w| w.count_ones()).sum();
        true
    }

    fn mark(&mut self, chunk: Chunk, bit: u64, on: bool) {
        self.change(chunk, |word| if on { word | bit } else { word & !bit });
    }

    fn change(&mut self, chunk: Chunk, change: impl FnOnce(u64) -> u64) {
        let word = &mut self.words[chunk.0 as usize];
        let before = is_homeless(*word);
        *word = change(*word);
        self.homeless = self.homeless + u32::from(is_homeless(*word)) - u32::from(before);
    }

    /// Chunks of which something may be landed and which have no home: each of them will need a slot.
    pub fn homeless(&self) -> u32 {
        self.homeless
    }

    /// Whether some block of the chunk may be landed.
    pub fn may_be_landed(&self, chunk: Chunk) -> bool {
        self.words[chunk.0 as usize] & LANDED != 0
    }
    /// Notes whether some block of the chunk may be landed.
    pub fn set_may_be_landed(&mut self, chunk: Chunk, on: bool) {
        self.mark(chunk, LANDED, on);
    }
    /// Whether a batch is moving the chunk: writes to it land.
    pub fn is_moving(&self, chunk: Chunk) -> bool {
        self.words[chunk.0 as usize] & MOVING != 0
    }
    /// Notes whether a batch is moving the chunk.
    pub fn set_moving(&mut self, chunk: Chunk, on: bool) {
        self.mark(chunk, MOVING, on);
    }
    /// Whether blocks of the chunk wait to be shown by a commit.
    pub fn is_pending(&self, chunk: Chunk) -> bool {
        self.words[chunk.0 as usize] & PENDING != 0
    }
    /// Notes whether blocks of the chunk wait to be shown.
    pub fn set_pending(&mut self, chunk: Chunk, on: bool) {
        self.mark(chunk, PENDING, on);
    }
    /// Whether something is under way with the chunk, so that it cannot be moved now.
    pub fn is_busy(&self, chunk: Chunk) -> bool {
        self.words[chunk.0 as usize] & (MOVING | PENDING) != 0
    }

    /// How many chunks from this one on are blank, of so many at most.
    pub fn blank_from(&self, chunk: Chunk, most: u32) -> u32 {
        let words = &self.words[chunk.0 as usize..(chunk.0 + most) as usize];
        words.iter().position(|word| *word != 0).map_or(most, |place| place as u32)
    }

    /// Whether nothing at all is known of the chunk: it reads zeros.
    #[inline]
    pub fn is_blank(&self, chunk: Chunk) -> bool {
        self.words[chunk.0 as usize] == 0
    }

    /// The chunk of a block and the block within it.
    pub fn split(&self, block: Block) -> (Chunk, u32) {
        let per = u64::from(self.blocks_per_chunk);
        (Chunk((block.0 / per) as u32), (block.0 % per) as u32)
    }

    /// The block of the volume.
    pub fn join(&self, chunk: Chunk, block: u32) -> Block {
        Block(u64::from(chunk.0) * u64::from(self.blocks_per_chunk) + u64::from(block))
    }
}
