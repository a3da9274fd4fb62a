//! The write buffer: when there is room for another page, and what a read finds in it.

/// Pages between the host and the flash, in the order in which they were opened. Room is given back in that order.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// For each of the latest pages, when it is on the medium; the end of time while it is being filled.
    done_at: Vec<u64>,
    /// Pages opened so far.
    opened: u64,
}

impl Buffer {
    /// Room for so many pages.
    pub fn new(pages: u64) -> Buffer {
        Buffer { done_at: vec![0; pages as usize], opened: 0 }
    }

    fn index(&self, page: u64) -> usize {
        (page % self.done_at.len() as u64) as usize
    }

    /// Opens a page; when there is room for it.
    pub fn open(&mut self) -> u64 {
        let index = self.index(self.opened);
        self.opened += 1;
        std::mem::replace(&mut self.done_at[index], u64::MAX)
    }

    /// The page opened last will be on the medium at `end`.
    pub fn close(&mut self, end: u64) {
        let index = self.index(self.opened - 1);
        self.done_at[index] = end;
    }

    /// Whether the page opened `back` pages before the latest is still in the buffer at `now`.
    pub fn holds(&self, back: u32, now: u64) -> bool {
        let back = u64::from(back);
        back < self.done_at.len() as u64
            && back < self.opened
            && self.done_at[self.index(self.opened - 1 - back)] > now
    }
}
