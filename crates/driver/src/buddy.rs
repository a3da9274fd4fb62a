//! A buddy allocator of pages, with a last-in-first-out cache of single pages in front.
//!
//! An allocation gets exactly the pages it asked for: the tail of the power of two that was found goes back
//! at once. So a free takes a start and a length, as the arena's buffers carry them, and no header or table
//! of allocations is needed.

use serde::{Deserialize, Serialize};

/// No page: ends a free list.
const NONE: u32 = u32::MAX;
/// Orders up to 2^20 pages (4 GiB of 4 KiB pages).
const ORDERS: usize = 21;
/// Single pages kept unmerged. Most requests are one block; splitting and merging for each would cost
/// more than all the rest of the allocation.
const SINGLES: usize = 512;

/// Pages `0..pages`, each free or in use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Buddy {
    pages: u32,
    free_pages: u32,
    heads: [u32; ORDERS],
    /// For the first page of a free block: its order + 1; 0 for every other page.
    order: Vec<u8>,
    next: Vec<u32>,
    prev: Vec<u32>,
    singles: Vec<u32>,
}

impl Buddy {
    /// All pages free.
    pub fn new(pages: u32) -> Self {
        assert!(pages < 1 << ORDERS, "more pages than the largest order holds");
        let n = pages as usize;
        let mut buddy = Buddy {
            pages,
            free_pages: 0,
            heads: [NONE; ORDERS],
            order: vec![0; n],
            next: vec![NONE; n],
            prev: vec![NONE; n],
            singles: Vec::with_capacity(SINGLES),
        };
        buddy.release(0, pages);
        buddy
    }

    /// Pages that are free, in whatever pieces.
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// All pages.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Runs of pages that are free: the first of each, and how many.
    pub fn free_runs(&self) -> Vec<(u32, u32)> {
        let blocks = (0..self.pages).zip(&self.order).filter(|&(_, &order)| order > 0);
        let blocks = blocks.map(|(page, &order)| (page, 1 << (order - 1)));
        blocks.chain(self.singles.iter().map(|&page| (page, 1))).collect()
    }

    /// Pages that are in use, in order.
    pub fn taken_pages(&self) -> Vec<u32> {
        let mut free = vec![false; self.pages as usize];
        for (page, count) in self.free_runs() {
            free[page as usize..][..count as usize].fill(true);
        }
        (0..self.pages).filter(|&page| !free[page as usize]).collect()
    }

    /// Whether this can be what a buddy allocator has: for one that was read from somewhere. It may still hand out what is
    /// in use, but nothing outside its pages.
    pub fn is_sound(&self) -> bool {
        let n = self.pages as usize;
        let is_page = |page: &u32| (*page as usize) < n;
        let ends = |list: &[u32]| list.iter().all(|page| *page == NONE || is_page(page));
        let whole = |(page, &order): (usize, &u8)| {
            order == 0 || usize::from(order) <= ORDERS && page + (1 << (order - 1)) <= n
        };
        let lists = [&self.next, &self.prev];
        n < 1 << ORDERS
            && self.order.len() == n
            && self.order.iter().enumerate().all(whole)
            && lists.into_iter().all(|list| list.len() == n && ends(list))
            && ends(&self.heads)
            && self.singles.len() <= SINGLES
            && self.singles.iter().all(is_page)
    }

    /// The first of `count` consecutive pages.
    #[inline]
    pub fn alloc(&mut self, count: u32) -> Option<u32> {
        if count == 1
            && let Some(page) = self.singles.pop()
        {
            self.free_pages -= 1;
            return Some(page);
        }
        self.alloc_block(count).or_else(|| {
            self.merge_singles();
            self.alloc_block(count)
        })
    }

    fn alloc_block(&mut self, count: u32) -> Option<u32> {
        assert!(count > 0, "an allocation of nothing");
        let want = count.checked_next_power_of_two()?.trailing_zeros() as usize;
        let found = (want..ORDERS).find(|&order| self.heads[order] != NONE)?;
        let page = self.heads[found];
        self.unlink(page, found);
        let have = 1u32 << found;
        self.free_pages -= have;
        // Give back the tail that was not asked for.
        self.release(page + count, have - count);
        Some(page)
    }

    /// Gives back `count` pages from `start`, which were allocated together or apart.
    #[inline]
    pub fn free(&mut self, start: u32, count: u32) {
        if count == 1 && self.singles.len() < SINGLES {
            self.free_pages += 1;
            self.singles.push(start);
            return;
        }
        self.release(start, count);
    }

    fn merge_singles(&mut self) {
        while let Some(page) = self.singles.pop() {
            self.free_pages -= 1;
            self.release(page, 1);
        }
    }

    /// Frees a run of pages as the largest aligned blocks it consists of.
    fn release(&mut self, start: u32, count: u32) {
        let end = start + count;
        assert!(end <= self.pages, "free beyond the pool");
        self.free_pages += count;
        let mut page = start;
        while page < end {
            let aligned = if page == 0 { ORDERS - 1 } else { page.trailing_zeros() as usize };
            let fits = (end - page).ilog2() as usize;
            let order = aligned.min(fits).min(ORDERS - 1);
            self.insert_merged(page, order);
            page += 1 << order;
        }
    }

    fn insert_merged(&mut self, mut page: u32, mut order: usize) {
        assert!(self.order[page as usize] == 0, "a page was freed twice");
        while order + 1 < ORDERS {
            let buddy = page ^ (1 << order);
            let whole = buddy < self.pages && self.order[buddy as usize] as usize == order + 1;
            if !whole {
                break;
            }
            self.unlink(buddy, order);
            page = page.min(buddy);
            order += 1;
        }
        let head = self.heads[order];
        self.order[page as usize] = order as u8 + 1;
        self.next[page as usize] = head;
        self.prev[page as usize] = NONE;
        if head != NONE {
            self.prev[head as usize] = page;
        }
        self.heads[order] = page;
    }

    fn unlink(&mut self, page: u32, order: usize) {
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        match prev {
            NONE => self.heads[order] = next,
            prev => self.next[prev as usize] = next,
        }
        if next != NONE {
            self.prev[next as usize] = prev;
        }
        self.order[page as usize] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_whole_again() {
        let mut buddy = Buddy::new(16384);
        let whole = buddy.alloc(8193).expect("the pool is empty");
        assert_eq!(buddy.free_pages(), 16384 - 8193);
        buddy.free(whole, 8193);
        let mut held = Vec::new();
        let mut seed = 7u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let count = 1 + ((seed >> 33) % 40) as u32;
            if seed >> 63 == 0
                && let Some(page) = buddy.alloc(count)
            {
                held.push((page, count));
            } else if !held.is_empty() {
                let (page, count) = held.swap_remove((seed >> 20) as usize % held.len());
                buddy.free(page, count);
            }
        }
        let mut used = vec![false; 16384];
        for &(page, count) in &held {
            for p in page..page + count {
                assert!(!std::mem::replace(&mut used[p as usize], true), "page {p} handed out twice");
            }
        }
        for (page, count) in held {
            buddy.free(page, count);
        }
        assert_eq!(buddy.free_pages(), 16384);
        assert_eq!(buddy.alloc(16384), Some(0), "free pages did not merge");
    }

    #[test]
    fn a_pool_that_is_no_power_of_two_works_to_the_last_page() {
        let mut buddy = Buddy::new(100);
        let pages: Vec<u32> = std::iter::from_fn(|| buddy.alloc(1)).collect();
        assert_eq!(pages.len(), 100);
        assert_eq!(buddy.alloc(1), None);
        pages.into_iter().for_each(|page| buddy.free(page, 1));
        assert!(buddy.alloc(64).is_some());
    }
}
