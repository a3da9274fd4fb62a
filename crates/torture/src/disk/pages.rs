//! Pages of a device's content, kept only once they are written.

use bimetal_units::rng::{GOLDEN, mix};
use std::sync::Arc;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// Sectors in a page.
pub(super) const SECTORS_PER_PAGE: u64 = 8;
/// The mask of all sectors of a page.
pub(super) const ALL_SECTORS: u8 = 0xff;
/// The index of a page that was never written: its content is computed.
pub(super) const GARBAGE: u32 = 0;

const SECTOR: usize = 512;

/// Storage for pages, by index; index zero stands for garbage. Copies of it share what neither has written since.
#[derive(Clone, Default)]
pub struct PageStore {
    pages: Vec<Arc<[u8; PAGE_BYTES]>>,
    free: Vec<u32>,
}

impl PageStore {
    fn page(&self, index: u32) -> &[u8; PAGE_BYTES] {
        &self.pages[index as usize - 1]
    }

    fn page_mut(&mut self, index: u32) -> &mut [u8; PAGE_BYTES] {
        Arc::make_mut(&mut self.pages[index as usize - 1])
    }

    fn alloc(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.pages.push(Arc::new([0; PAGE_BYTES]));
        self.pages.len() as u32
    }

    /// Gives a page back.
    pub(super) fn free(&mut self, index: u32) {
        if index != GARBAGE {
            self.free.push(index);
        }
    }

    /// Reads a page.
    pub(super) fn read(&self, index: u32, salt: u64, number: u64, out: &mut [u8]) {
        if index == GARBAGE {
            garbage(salt, number, out);
        } else {
            out.copy_from_slice(self.page(index));
        }
    }

    /// A page to be written under `mask`, which starts as a copy of `index` where it must.
    pub(super) fn copy_for(&mut self, index: u32, mask: u8, salt: u64, number: u64) -> u32 {
        let copy = self.alloc();
        if mask != ALL_SECTORS {
            if index == GARBAGE {
                garbage(salt, number, self.page_mut(copy));
            } else {
                self.pages[copy as usize - 1] = self.pages[index as usize - 1].clone();
            }
        }
        copy
    }

    /// Writes the sectors in `mask` of a page, making it if it is garbage.
    pub(super) fn write(&mut self, index: &mut u32, data: &[u8], mask: u8, salt: u64, number: u64) {
        if mask == 0 {
            return;
        }
        if *index == GARBAGE {
            *index = self.copy_for(GARBAGE, mask, salt, number);
        }
        let page = self.page_mut(*index);
        if mask == ALL_SECTORS {
            page.copy_from_slice(data);
            return;
        }
        for i in (0..SECTORS_PER_PAGE as usize).filter(|i| mask & (1 << i) != 0) {
            page[i * SECTOR..(i + 1) * SECTOR].copy_from_slice(&data[i * SECTOR..(i + 1) * SECTOR]);
        }
    }
}

/// What a page holds that nobody wrote: the same at each reading, and never zeros.
pub(super) fn garbage(salt: u64, number: u64, out: &mut [u8]) {
    let mut word = mix(salt ^ mix(number));
    for bytes in out.chunks_exact_mut(8) {
        word = word.wrapping_add(GOLDEN).rotate_left(23);
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}
