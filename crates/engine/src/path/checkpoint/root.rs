//! The upper floors of a checkpoint: pages of the directory, which refer to map and checksum pages, and the root,
//! which refers to them.

use super::*;
use crate::format::page::{LIST_ENTRIES_PER_BLOCK, LIST_ENTRY_BYTES, PAGE_PAYLOAD, root_sum};

impl<A: Arena> Engine<A> {
    /// Writes the pages of the directory that refer to pages written by this checkpoint.
    pub(super) fn step_directory(&mut self) {
        let first = self.state.geo.table_pages();
        while self.may_write()
            && let Some(directory_page) = self.next_in_directory()
        {
            let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
            let c = &mut self.checkpoint;
            let listed = self.state.geo.listed_in(directory_page);
            let payload = c.pages.encode(listed.clone(), &c.moved);
            c.cursor = listed.end;
            self.write_page(first + directory_page, PageKind::Directory, &payload, buf);
        }
        let done = self.next_in_directory().is_none();
        if done && self.checkpoint.in_flight == 0 && !self.checkpoint.failed {
            let c = &mut self.checkpoint;
            c.stage = CheckpointStage::Root;
            (c.root_block, c.root_sum, c.list_cursor, c.list_written) = (0, 0, 0, 0);
        }
    }

    /// The page of the directory that refers to the next page that was written, from the cursor on.
    fn next_in_directory(&self) -> Option<u32> {
        let c = &self.checkpoint;
        if c.cursor > 0 && planted(Bug::OneDirectoryPage) {
            return None;
        }
        let (page, _) = c.moved.get(c.moved.partition_point(|(page, _)| *page < c.cursor))?;
        let geo = &self.state.geo;
        (*page < geo.table_pages()).then(|| geo.directory_page_of(*page))
    }

    pub(super) fn step_root(&mut self) {
        let ref_blocks = self.state.geo.root_ref_blocks();
        while self.may_write() && self.checkpoint.root_block != u32::MAX {
            let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
            let block = self.checkpoint.root_block;
            let payload = if block < ref_blocks { self.root_refs(block) } else { self.root_list() };
            if payload.is_empty() {
                self.io.arena.free(buf);
                self.checkpoint.header.root_blocks = block;
                self.checkpoint.root_block = u32::MAX;
                break;
            }
            assert!(block < self.state.geo.root_blocks, "the root fits its place");
            let next = self.checkpoint.number + 1;
            let volume = &self.life.superblock.volume;
            let bytes = self.io.arena.bytes_mut(buf);
            let sum = page::encode(bytes, PageKind::Root, volume, u64::from(block), next, &payload);
            self.checkpoint.root_sum = root_sum(self.checkpoint.root_sum, sum);
            let geo = &self.state.geo;
            let (at, twin) = (geo.root_at(next % 2, block), geo.root_twin_at(next % 2, block));
            self.checkpoint.root_block = block + 1;
            // What joins the list from here on is in the log: a block that is not full ends the list, or
            // each newcomer would take a block of its own.
            let whole = LIST_ENTRIES_PER_BLOCK as usize * LIST_ENTRY_BYTES;
            if block >= ref_blocks && payload.len() < whole {
                self.checkpoint.header.root_blocks = block + 1;
                self.checkpoint.root_block = u32::MAX;
            }
            self.write_checkpoint(at, twin, buf);
        }
        if self.checkpoint.root_block == u32::MAX && self.checkpoint.in_flight == 0 && !self.checkpoint.failed
        {
            self.root_written();
        }
    }

    /// References to pages of the directory.
    fn root_refs(&mut self, block: u32) -> Vec<u8> {
        self.checkpoint.pages.encode(self.state.geo.named_in_root(block), &self.checkpoint.moved)
    }

    /// The next block of the list: what this checkpoint folded is in pages and need not be listed.
    fn root_list(&mut self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_PAYLOAD);
        let c = &mut self.checkpoint;
        // Both are in the order of their indexes.
        let behind = c.folded.partition_point(|entry| entry.0 < c.list_cursor);
        let mut folded = c.folded[behind..].iter().peekable();
        let listed = self.state.sums.list(c.list_cursor).filter(|entry| {
            while folded.next_if(|other| other.0 < entry.0).is_some() {}
            folded.peek() != Some(&entry)
        });
        let mut entries: Vec<_> = listed.take(LIST_ENTRIES_PER_BLOCK as usize).collect();
        // Those of the fast tier may be left out.
        let room = self.state.geo.list_entries.saturating_sub(c.list_written + entries.len() as u32);
        let left = (LIST_ENTRIES_PER_BLOCK as usize - entries.len()).min(room as usize);
        entries.extend(self.state.sums.list_fast(c.list_cursor).take(left));
        for (index, sum) in entries {
            out.extend_from_slice(&index.to_le_bytes());
            out.extend_from_slice(&sum.to_le_bytes());
            c.list_cursor = index + 1;
            c.list_written += 1;
        }
        assert!(c.list_written <= self.state.geo.list_entries, "the list of recent checksums fits its place");
        out
    }
}
