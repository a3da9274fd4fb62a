//! Marks: what the slow device says about itself, so that it can be read alone should the fast one be lost.
//!
//! Pages say of each chunk which blocks are in its slow slot and which are lost with the fast device; a header says which of
//! these pages are in force, when it was written, and in which regions what they say may be stale.

use super::Id;
use super::codec::{Get, Put, SEAL_BYTES, seal, sealed_blocks, unseal};
use super::geometry::Geometry;
use super::page::{self, PAGE_PAYLOAD, PageRef, REF_BYTES};
use crate::base::bits::Bits;
use crate::base::mask::BlockMask;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::ops::Range;

const MAGIC: &[u8; 8] = b"BMTLmark";
const BLOCK: u64 = BLOCK_BYTES as u64;
/// What is opened and closed as one: so few bytes of marks that opening one is cheap, so many that all of them fit a header.
pub const REGION_BYTES: u32 = 8 << 20;
/// Copies of a header in each of its two places, written as one: a sector that goes bad later takes one of them.
pub const MARK_COPIES: u64 = 2;
/// Bytes of a header before its references: volume, number, generation, time, counts.
const HEAD_BYTES: usize = 48;

/// A reference to a page that was never written: of its chunks nothing is known, and all are lost.
pub const UNKNOWN: PageRef = PageRef { place: 0, sum: 0 };
/// A reference to a page that need not be written: all of its chunks read zeros.
pub const BLANK: PageRef = PageRef { place: 0, sum: 1 };

/// Where the marks of a volume lie on its slow device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkLayout {
    at: u64,
    /// Blocks of one copy of a header.
    header_blocks: u32,
    /// Pages of entries; those of the directory are numbered behind them.
    pages: u32,
    directory_pages: u32,
    refs_per_page: u32,
    per_page: u32,
    chunks: u32,
    chunks_per_region: u32,
    mask_words: usize,
}

impl MarkLayout {
    /// Of a volume with so many chunks.
    pub(super) fn new(geo: &Geometry, chunks: u32) -> MarkLayout {
        let (mask_words, refs_per_page) = (geo.mask_words(), geo.refs_per_page());
        let per_page = (PAGE_PAYLOAD / entry_bytes(mask_words)) as u32;
        let pages = chunks.div_ceil(per_page);
        let directory_pages = pages.div_ceil(refs_per_page);
        let chunks_per_region = REGION_BYTES / geo.chunk_bytes;
        let regions = chunks.div_ceil(chunks_per_region);
        let body = HEAD_BYTES + directory_pages as usize * REF_BYTES + regions.div_ceil(8) as usize;
        MarkLayout {
            at: geo.owners_at,
            header_blocks: sealed_blocks(body),
            pages,
            directory_pages,
            refs_per_page,
            per_page,
            chunks,
            chunks_per_region,
            mask_words,
        }
    }

    /// Bytes from the first header on.
    pub fn bytes(&self) -> u64 {
        let headers = 2 * MARK_COPIES * u64::from(self.header_blocks);
        (headers + 2 * u64::from(self.all_pages())) * BLOCK
    }
    /// Bytes of all copies of a header.
    pub fn header_bytes(&self) -> u32 {
        MARK_COPIES as u32 * self.copy_bytes()
    }
    /// Bytes of one copy of a header.
    pub fn copy_bytes(&self) -> u32 {
        self.header_blocks * BLOCK_BYTES
    }
    /// Where the copies of the header in this place (0 or 1) begin.
    pub fn header_at(&self, place: u8) -> u64 {
        self.at + u64::from(place) * u64::from(self.header_bytes())
    }
    /// Byte offset of one of the two places (0 or 1) of a page: all first places, then all second ones, so that pages which
    /// were written together are read together.
    pub fn page_at(&self, page: u32, place: u8) -> u64 {
        let before = u64::from(place) * u64::from(self.all_pages()) + u64::from(page);
        self.header_at(0) + 2 * u64::from(self.header_bytes()) + before * BLOCK
    }
    /// Pages of entries.
    pub fn pages(&self) -> u32 {
        self.pages
    }
    /// Pages of entries and of the directory.
    pub fn all_pages(&self) -> u32 {
        self.pages + self.directory_pages
    }
    /// The numbers of the directory's pages.
    pub fn directory(&self) -> Range<u32> {
        self.pages..self.all_pages()
    }
    /// The pages that a page of the directory refers to.
    pub fn listed_in(&self, directory_page: u32) -> Range<u32> {
        let first = (directory_page - self.pages) * self.refs_per_page;
        first..(first + self.refs_per_page).min(self.pages)
    }
    /// The page of the directory that refers to a page.
    pub fn directory_page_of(&self, page: u32) -> u32 {
        self.pages + page / self.refs_per_page
    }
    /// The page that a chunk's entry is in.
    pub fn page_of(&self, chunk: Chunk) -> u32 {
        chunk.0 / self.per_page
    }
    /// The chunks of a page.
    pub fn chunks_of(&self, page: u32) -> Range<u32> {
        let first = page * self.per_page;
        first..(first + self.per_page).min(self.chunks)
    }
    /// Regions of the volume.
    pub fn regions(&self) -> u32 {
        self.chunks.div_ceil(self.chunks_per_region)
    }
    /// The region of a chunk.
    pub fn region_of(&self, chunk: Chunk) -> u32 {
        chunk.0 / self.chunks_per_region
    }
    /// The chunks of a region.
    pub fn chunks_in(&self, region: u32) -> Range<u32> {
        let first = region * self.chunks_per_region;
        first..(first + self.chunks_per_region).min(self.chunks)
    }
    /// Words of 32 blocks in a mask.
    pub fn mask_words(&self) -> usize {
        self.mask_words
    }
}

/// What is said of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mark {
    /// The slow slot that holds something of it.
    pub slot: Option<Slot>,
    /// The blocks that the slot holds, of which nothing newer is on the fast device.
    pub held: BlockMask,
    /// The blocks whose newest copy is on the fast device. All others read zeros.
    pub lost: BlockMask,
}

impl Mark {
    /// Whether all of it reads zeros.
    pub fn is_blank(&self) -> bool {
        *self == Mark::default()
    }
}

/// Bytes of an entry: home (6), zeros (2), blocks that are held, blocks that are lost.
fn entry_bytes(mask_words: usize) -> usize {
    8 + 8 * mask_words
}

/// Appends an entry.
pub fn put_mark(out: &mut Vec<u8>, mark: &Mark, mask_words: usize) {
    let home = mark.slot.map(|slot| Home { tier: SLOW, slot });
    let mut put = Put(out);
    put.u64(page::pack_home(home));
    for mask in [&mark.held, &mark.lost] {
        (0..mask_words).for_each(|i| _ = put.u32(mask.word(i)));
    }
}

/// Reads the entries of a page; none where they name what the volume does not have.
pub fn get_marks(payload: &[u8], geo: &Geometry, chunks: Range<u32>) -> Option<Vec<Mark>> {
    let (mut get, words) = (Get(payload), geo.mask_words());
    let all = BlockMask::range(0, geo.blocks_per_chunk());
    let mut marks = Vec::with_capacity(chunks.len());
    for _ in chunks {
        let home = page::unpack_home(get.u64()?)?;
        let [held, lost] = [get.bytes(4 * words)?, get.bytes(4 * words)?].map(|bytes| {
            let word = |w: &[u8]| u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
            BlockMask::from_words(bytes.chunks_exact(4).map(word))
        });
        let is_sound = match home {
            Some(home) => home.tier == SLOW && geo.can_hold(Some(home), &held) && !held.is_empty(),
            None => held.is_empty(),
        };
        if !is_sound || !held.and(lost).is_empty() || !lost.minus(all).is_empty() {
            return None;
        }
        marks.push(Mark { slot: home.map(|home| home.slot), held, lost });
    }
    Some(marks)
}

/// What names all marks that are in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkHeader {
    /// One more with each that is written in an opening.
    pub number: u64,
    /// The opening that wrote it.
    pub generation: Generation,
    /// Seconds since 1970 when it was written.
    pub unix_s: u64,
    /// Which pages of the directory are in force.
    pub directory: Vec<PageRef>,
    /// Regions of which what the pages say may be stale.
    pub open: Bits,
}

impl MarkHeader {
    /// Writes it into the blocks of one copy.
    pub fn encode(&self, blocks: &mut [u8], volume: &Id) {
        let mut body = Vec::with_capacity(blocks.len() - SEAL_BYTES);
        let mut put = Put(&mut body);
        put.bytes(volume).u64(self.number).u64(self.generation.0).u64(self.unix_s);
        put.u32(self.directory.len() as u32).u32(self.open.size());
        self.directory.iter().for_each(|version| page::put_ref(&mut body, *version));
        body.extend(self.open.to_bytes());
        seal(blocks, MAGIC, &body);
    }

    /// Reads one copy.
    pub fn decode(blocks: &[u8], volume: &Id, layout: &MarkLayout) -> Option<MarkHeader> {
        let mut get = Get(unseal(blocks, MAGIC)?);
        if get.id()? != *volume {
            return None;
        }
        let (number, generation, unix_s) = (get.count()?, Generation(get.count()?), get.u64()?);
        let (directory, regions) = (get.u32()?, get.u32()?);
        if directory != layout.directory_pages || regions != layout.regions() {
            return None;
        }
        let directory = (0..directory).map(|_| page::get_ref(&mut get)).collect::<Option<Vec<_>>>()?;
        let open = Bits::from_bytes(get.bytes(regions.div_ceil(8) as usize)?, regions);
        Some(MarkHeader { number, generation, unix_s, directory, open })
    }
}
