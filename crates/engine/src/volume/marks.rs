//! What the marks on the slow device say, as far as a running volume has to know: which slot they name for each chunk, which
//! versions of their pages are in force, and in which regions what they say may be stale.
//!
//! A running volume never believes its marks. It only sees to it that they may be believed once it is gone.

use crate::base::bits::{self, Bits};
use crate::format::marks::{Mark, MarkLayout};
use crate::format::page::PageRef;
use crate::volume::pages::{self, Pages};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Openings of regions within a second beyond which many are opened at a time.
const BURST_OPENINGS: u32 = 64;
/// Regions that are opened at a time in a burst, neighbours: 128 MiB.
const BURST_REGIONS: u32 = 16;

/// Marks of a volume.
#[derive(Serialize, Deserialize)]
pub(crate) struct MarkTable {
    pub(crate) layout: MarkLayout,
    /// The slot that the page in force names for each chunk, plus one; 0 is none.
    slots: Vec<u32>,
    /// Versions of pages in force, those of the directory behind the others.
    pages: Pages,
    /// Pages that name a slot which its chunk has left.
    stale: Bits,
    /// Regions of which what the pages say may be stale, as the next header will say.
    open: Bits,
    /// Regions that are to be closed by the round that is under way, of which nothing has been written since it began.
    closing: Bits,
    /// When each region was last written.
    written: Vec<Nanos>,
    /// The second in which regions are being opened, and how many were.
    burst: (u64, u32),
}

/// What the table of a volume takes, bytes of RAM.
pub(crate) fn ram_bytes(layout: &MarkLayout, chunks: u64) -> u64 {
    let regions = u64::from(layout.regions());
    chunks * 4
        + regions * size_of::<Nanos>() as u64
        + 2 * bits::ram_bytes(regions)
        + bits::ram_bytes(u64::from(layout.pages()))
        + pages::ram_bytes(layout.all_pages())
}

impl MarkTable {
    /// Where nothing is known of what is on the device, all regions open.
    pub(crate) fn unknown(layout: MarkLayout, chunks: u32) -> MarkTable {
        MarkTable {
            layout,
            slots: vec![0; chunks as usize],
            pages: Pages::new(layout.all_pages()),
            stale: Bits::none(layout.pages()),
            open: Bits::all(layout.regions()),
            closing: Bits::none(layout.regions()),
            written: vec![Nanos(0); layout.regions() as usize],
            burst: (0, 0),
        }
    }

    /// Bytes of RAM.
    pub(crate) fn ram_bytes(&self) -> u64 {
        ram_bytes(&self.layout, self.slots.len() as u64)
    }

    /// The version of a page that is in force.
    pub(crate) fn page(&self, page: u32) -> PageRef {
        self.pages.get(page)
    }

    /// Another version of a page is in force.
    pub(crate) fn set_page(&mut self, page: u32, version: PageRef) {
        self.pages.set(page, version);
    }

    /// What a page of the directory says once `moved` is in force.
    pub(crate) fn directory_page(&self, page: u32, moved: &[(u32, PageRef)]) -> Vec<u8> {
        self.pages.encode(self.layout.listed_in(page), moved)
    }

    /// The slot that the page in force names for a chunk.
    pub(crate) fn slot(&self, chunk: Chunk) -> Option<Slot> {
        self.slots[chunk.0 as usize].checked_sub(1).map(Slot)
    }

    /// The page in force names this slot for the chunk.
    pub(crate) fn set_slot(&mut self, chunk: Chunk, slot: Option<Slot>) {
        self.slots[chunk.0 as usize] = slot.map_or(0, |slot| slot.0 + 1);
    }

    /// The chunk has left a slot, or may have: if it is the one that is named, its page is to be written anew.
    pub(crate) fn left(&mut self, chunk: Chunk, slot: Slot) {
        if self.slot(chunk) == Some(slot) {
            self.stale.set(self.layout.page_of(chunk));
        }
    }

    /// Pages that name slots which their chunks have left.
    pub(crate) fn stale(&self) -> &Bits {
        &self.stale
    }

    /// A page is being written as it is now.
    pub(crate) fn is_written(&mut self, page: u32) {
        self.stale.clear(page);
    }

    /// It could not be written, or is not in force.
    pub(crate) fn is_stale(&mut self, page: u32) {
        self.stale.set(page);
    }

    /// A write to a chunk begins, or a discard: whether a header that opens regions has to be written before a flush is
    /// answered.
    pub(crate) fn changes(&mut self, chunk: Chunk, now: Nanos) -> bool {
        let region = self.layout.region_of(chunk);
        self.written[region as usize] = now;
        self.closing.clear(region);
        if self.open.has(region) {
            return false;
        }
        let second = now.0 / Nanos::SECOND;
        if self.burst.0 != second {
            self.burst = (second, 0);
        }
        self.burst.1 += 1;
        if self.burst.1 <= BURST_OPENINGS {
            return self.open.set(region);
        }
        let first = region / BURST_REGIONS * BURST_REGIONS;
        for neighbour in first..(first + BURST_REGIONS).min(self.open.size()) {
            if self.open.set(neighbour) {
                self.written[neighbour as usize] = now;
            }
            self.closing.clear(neighbour);
        }
        true
    }

    /// All may be stale from here on.
    pub(crate) fn open_all(&mut self) {
        self.open.set_all();
        self.stop_closing();
    }

    /// Whether all may be stale.
    pub(crate) fn all_open(&self) -> bool {
        self.open.count() == self.open.size()
    }

    /// Regions that may be stale.
    pub(crate) fn open(&self) -> &Bits {
        &self.open
    }

    /// Chunks in these.
    pub(crate) fn open_chunks(&self) -> u64 {
        // All have as many, but for the last, which ends where the volume does: the status asks for this, and there are many.
        let (whole, last) = (self.layout.chunks_in(0).len(), self.open.size() - 1);
        let missing = if self.open.has(last) { whole - self.layout.chunks_in(last).len() } else { 0 };
        u64::from(self.open.count()) * whole as u64 - missing as u64
    }

    /// When a region was last written.
    pub(crate) fn written(&self, region: u32) -> Nanos {
        self.written[region as usize]
    }

    /// A region is to be closed, unless something is written there before the header is.
    pub(crate) fn begin_closing(&mut self, region: u32) {
        self.closing.set(region);
    }

    /// Whether some region is to be closed.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.count() > 0
    }

    /// Nothing is closed.
    pub(crate) fn stop_closing(&mut self) {
        self.closing = Bits::none(self.closing.size());
    }

    /// The header is being written: what is still to be closed is closed from here on.
    pub(crate) fn close(&mut self) {
        let closing: Vec<u32> = self.closing.iter().collect();
        closing.into_iter().for_each(|region| _ = self.open.clear(region));
        self.stop_closing();
    }

    /// Of what an opening has read: a page in force, and what it says of its chunks.
    pub(crate) fn found(&mut self, page: u32, version: PageRef, marks: &[Mark]) {
        self.set_page(page, version);
        for (chunk, mark) in self.layout.chunks_of(page).zip(marks) {
            self.set_slot(Chunk(chunk), mark.slot);
        }
    }
}
