//! Which version of every page is in force: in which of its places, and under which checksum.
//!
//! Five bytes of RAM a page: 0.02 for each chunk of 128 KiB in the map, 0.16 for each on the slow tier.

use crate::format::page::{PageRef, put_ref};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// References to map, checksum and directory pages, by page number.
#[derive(Serialize, Deserialize)]
pub struct Pages {
    places: Vec<u8>,
    sums: Vec<u32>,
}

/// Bytes of RAM for these many pages.
pub fn ram_bytes(pages: u32) -> u64 {
    u64::from(pages) * 5
}

impl Pages {
    /// So many pages, none of them ever written.
    pub fn new(pages: u32) -> Pages {
        Pages { places: vec![0; pages as usize], sums: vec![0; pages as usize] }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        ram_bytes(self.places.len() as u32)
    }

    /// The version of a page that is in force.
    pub fn get(&self, page: u32) -> PageRef {
        PageRef { place: self.places[page as usize], sum: self.sums[page as usize] }
    }

    /// Another version of a page is in force from here on.
    pub fn set(&mut self, page: u32, version: PageRef) {
        (self.places[page as usize], self.sums[page as usize]) = (version.place, version.sum);
    }

    /// References to these pages, as a directory page or a root holds them, once `moved` is in force. `moved` is
    /// in the order of page numbers.
    pub fn encode(&self, pages: Range<u32>, moved: &[(u32, PageRef)]) -> Vec<u8> {
        let mut next = moved[moved.partition_point(|(page, _)| *page < pages.start)..].iter().peekable();
        let mut out = Vec::new();
        for page in pages {
            let new = next.next_if(|(moved, _)| *moved == page);
            put_ref(&mut out, new.map_or_else(|| self.get(page), |(_, version)| *version));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::Get;
    use crate::format::page::get_ref;

    #[test]
    fn what_moved_stands_in_for_what_is_in_force() {
        let version = |n: u32| PageRef { place: 1 + (n % 2) as u8, sum: n };
        let mut pages = Pages::new(20);
        (0..20).for_each(|p| pages.set(p, version(p)));
        let moved = [3, 10, 11, 15, 19].map(|p| (p, version(p + 101)));
        let bytes = pages.encode(10..16, &moved);
        let mut get = Get(&bytes);
        let read: Vec<_> = std::iter::from_fn(|| get_ref(&mut get)).collect();
        assert_eq!(read, [111, 112, 12, 13, 14, 116].map(version));
        assert!(get.0.is_empty());
    }
}
