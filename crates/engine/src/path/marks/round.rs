//! One round of marks: pages, directory, flush, header, flush.
//!
//! A page says what the map shows when it is written, so only what is durable; a region counts as good only where nothing was
//! written from then on until the header was made.

use super::*;
use crate::api::action::{Class, DeviceError};
use crate::api::options::Level;
use crate::base::arena::Pool;
use crate::base::mask::BlockMask;
use crate::format::marks::{BLANK, Mark, MarkHeader, put_mark};
use crate::format::page::{self, PAGE_PAYLOAD, PageKind};
use crate::io::flush::Waiter;
use crate::io::issue::Command;
use crate::io::tokens::Owner;

/// The writer of a header: pages are named by their number, and none has this one.
const HEADER: u32 = u32::MAX;

impl<A: Arena> Engine<A> {
    pub(super) fn step_round(&mut self) {
        loop {
            let Some(marks) = self.marks.as_mut() else { return };
            let before = marks.stage;
            if marks.failed && marks.bufs.is_empty() && !marks.flushing {
                return self.round_failed();
            }
            match before {
                MarkStage::Pages => self.step_mark_pages(),
                MarkStage::Directory => self.step_mark_directory(),
                MarkStage::FlushPages => self.flush_mark_pages(),
                MarkStage::Header => self.write_mark_header(),
                MarkStage::Idle | MarkStage::FlushHeader => return,
            }
            if self.marks.as_ref().is_none_or(|marks| marks.stage == before) {
                return;
            }
        }
    }

    /// What is said of a chunk as it is now.
    fn mark_of(&self, chunk: Chunk) -> Mark {
        let mut lost = BlockMask::EMPTY;
        self.state.landed_in(chunk).iter().for_each(|(block, _)| lost.set(*block));
        if planted(Bug::LandedMarkedGood) {
            lost = BlockMask::EMPTY;
        }
        let valid = self.state.map.valid(chunk).minus(lost);
        match self.state.map.home(chunk) {
            Some(home) if home.tier == SLOW && !valid.is_empty() => {
                Mark { slot: Some(home.slot), held: valid, lost }
            }
            Some(home) if home.tier == FAST => {
                Mark { slot: None, held: BlockMask::EMPTY, lost: lost.or(valid) }
            }
            _ => Mark { slot: None, held: BlockMask::EMPTY, lost },
        }
    }

    fn may_write_marks(&self) -> bool {
        let marks = self.marks.as_ref();
        marks.is_some_and(|marks| !marks.failed && marks.bufs.len() < self.tuning.background_depth)
    }

    fn step_mark_pages(&mut self) {
        while self.may_write_marks() {
            let Some(page) = self.marks.as_ref().and_then(|marks| marks.todo.front().copied()) else { break };
            if !self.write_mark_page(page) {
                return;
            }
        }
        if let Some(marks) = self.marks.as_mut().filter(|marks| !marks.failed && marks.todo.is_empty()) {
            let directory = |page: &(u32, PageRef)| marks.table.layout.directory_page_of(page.0);
            let mut pages: Vec<u32> = marks.moved.iter().map(directory).collect();
            pages.dedup();
            marks.todo = pages.into();
            marks.stage = MarkStage::Directory;
        }
    }

    /// Writes the first page that is to be written, unless the one in force says the same. False where there is no memory.
    fn write_mark_page(&mut self, page: u32) -> bool {
        let Some(layout) = self.marks.as_ref().map(|marks| marks.table.layout) else { return false };
        let mut payload = Vec::with_capacity(PAGE_PAYLOAD);
        let marked: Vec<(Chunk, Mark)> =
            layout.chunks_of(page).map(|chunk| (Chunk(chunk), self.mark_of(Chunk(chunk)))).collect();
        marked.iter().for_each(|(_, mark)| put_mark(&mut payload, mark, layout.mask_words()));
        let is_blank = marked.iter().all(|(_, mark)| mark.is_blank());
        let written = match is_blank {
            true => Some(BLANK).filter(|blank| self.version_in_force(page) != *blank),
            false => match self.write_version(PageKind::Marks, page, &payload) {
                Ok(version) => version,
                Err(NoMemory) => return false,
            },
        };
        let Some(marks) = self.marks.as_mut() else { return false };
        marks.todo.pop_front();
        marks.table.is_written(page);
        let Some(version) = written else { return true };
        marks.moved.push((page, version));
        for (chunk, mark) in marked {
            if let Some(slot) = mark.slot {
                self.space.slots[SLOW].name(slot);
            }
            if mark.slot != marks.table.slot(chunk) {
                marks.named.push((chunk, mark.slot));
            }
        }
        true
    }

    fn version_in_force(&self, page: u32) -> PageRef {
        let Some(marks) = self.marks.as_ref() else { return BLANK };
        match page.checked_sub(marks.table.layout.pages()) {
            Some(directory) => marks.directory[directory as usize],
            None => marks.table.page(page),
        }
    }

    /// Writes a page to the place that is not in force; none where what is in force is the same.
    fn write_version(
        &mut self,
        kind: PageKind,
        page: u32,
        payload: &[u8],
    ) -> Result<Option<PageRef>, NoMemory> {
        let in_force = self.version_in_force(page);
        let buf = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES).ok_or(NoMemory)?;
        let volume = &self.life.superblock.volume;
        let sum = page::encode(self.io.arena.bytes_mut(buf), kind, volume, u64::from(page), 0, payload);
        if in_force.place > 0 && in_force.sum == sum {
            self.io.arena.free(buf);
            return Ok(None);
        }
        let place = if in_force.place == 1 { 2 } else { 1 };
        let Some(marks) = self.marks.as_ref() else { return Ok(None) };
        let at = marks.table.layout.page_at(page, place - 1);
        self.write_marks(page, at, buf);
        Ok(Some(PageRef { place, sum }))
    }

    fn write_marks(&mut self, page: u32, offset: u64, buf: Buf) {
        if let Some(marks) = &mut self.marks {
            marks.bufs.insert(page, buf);
            let (owner, class) = (Owner::Marks(page), Class::Background);
            self.io.write(Command { device: SLOW, offset, owner, class }, buf);
        }
    }

    fn step_mark_directory(&mut self) {
        while self.may_write_marks() {
            let Some(marks) = self.marks.as_ref() else { return };
            let Some(page) = marks.todo.front().copied() else { break };
            let payload = marks.table.directory_page(page, &marks.moved);
            let Ok(version) = self.write_version(PageKind::MarkDirectory, page, &payload) else { return };
            let Some(marks) = self.marks.as_mut() else { return };
            marks.todo.pop_front();
            marks.moved.extend(version.map(|version| (page, version)));
        }
        if let Some(marks) = self.marks.as_mut()
            && !marks.failed
            && marks.todo.is_empty()
            && marks.bufs.is_empty()
        {
            let any = !marks.moved.is_empty() && !planted(Bug::MarkHeaderBeforePages);
            marks.stage = if any { MarkStage::FlushPages } else { MarkStage::Header };
        }
    }

    fn flush_mark_pages(&mut self) {
        if let Some(marks) = self.marks.as_mut().filter(|marks| !marks.flushing && !marks.failed) {
            marks.flushing = true;
            self.request_flush(SLOW, Waiter::Marks);
        }
    }

    /// Makes the header: what was written to until now may be stale, what is to be closed is good.
    fn write_mark_header(&mut self) {
        let Some(marks) = self.marks.as_mut().filter(|marks| marks.bufs.is_empty() && !marks.failed) else {
            return;
        };
        let layout = marks.table.layout;
        let Some(buf) = self.io.arena.alloc(Pool::Meta, layout.header_bytes()) else { return };
        marks.made += 1;
        marks.table.close();
        let mut directory = marks.directory.clone();
        let first = layout.pages();
        let moved = marks.moved.iter().filter(|(page, _)| *page >= first);
        moved.for_each(|(page, version)| directory[(page - first) as usize] = *version);
        let header = MarkHeader {
            number: marks.made,
            generation: self.life.superblock.generation,
            unix_s: self.io.now.0 / Nanos::SECOND,
            directory,
            open: marks.table.open().clone(),
        };
        let at = layout.header_at(1 - marks.place);
        for copy in self.io.arena.bytes_mut(buf).chunks_exact_mut(layout.copy_bytes() as usize) {
            header.encode(copy, &self.life.superblock.volume);
        }
        self.write_marks(HEADER, at, buf);
    }

    pub(crate) fn marks_io_done(&mut self, page: u32, result: Result<(), DeviceError>) {
        self.io.flushers[SLOW].dirty = true;
        let Some(marks) = self.marks.as_mut() else { return };
        let buf = marks.bufs.remove(&page).expect("a write that ended has its buffer");
        self.io.arena.free(buf);
        if let Err(error) = result {
            marks.failed = true;
            marks.late |= error.is_late();
            let what = format!("{}: a write of marks failed", self.told.names[SLOW]);
            return self.told.event(Level::Warning, what, Some(error));
        }
        if page == HEADER && !marks.failed && !self.life.is_read_only() {
            marks.stage = MarkStage::FlushHeader;
            if planted(Bug::MarkNotFlushed) {
                return self.marks_are_durable();
            }
            marks.flushing = true;
            self.request_flush(SLOW, Waiter::Marks);
        }
    }

    pub(crate) fn marks_flushed(&mut self, ok: bool) {
        let Some(marks) = self.marks.as_mut().filter(|marks| marks.flushing) else { return };
        marks.flushing = false;
        match marks.stage {
            // The volume goes read-only.
            _ if !ok => marks.failed = true,
            MarkStage::FlushPages => marks.stage = MarkStage::Header,
            MarkStage::FlushHeader => self.marks_are_durable(),
            other => unreachable!("no flush is awaited in stage {other:?}"),
        }
    }

    /// The header is durable: slots that it names no longer are free, and flushes that waited for it are answered.
    fn marks_are_durable(&mut self) {
        let Some(marks) = self.marks.as_mut() else { return };
        (marks.durable, marks.place, marks.stage) = (marks.made, 1 - marks.place, MarkStage::Idle);
        (marks.failures, marks.own_heard) = (0, self.io.now);
        let first = marks.table.layout.pages();
        for (page, version) in marks.moved.drain(..) {
            match page.checked_sub(first) {
                Some(directory) => marks.directory[directory as usize] = version,
                None => marks.table.set_page(page, version),
            }
        }
        for (chunk, slot) in marks.named.drain(..) {
            let old = marks.table.slot(chunk);
            marks.table.set_slot(chunk, slot);
            // It may have left this one as well meanwhile.
            if slot.is_some_and(|slot| self.state.map.home(chunk) != Some(Home { tier: SLOW, slot })) {
                marks.table.is_stale(marks.table.layout.page_of(chunk));
            }
            if let Some(old) = old {
                self.wanted.wake |= self.space.slots[SLOW].unname(old);
            }
        }
    }

    /// Something of the round could not be written: it is tried again soon, since clients may wait for it.
    fn round_failed(&mut self) {
        let Some(marks) = self.marks.as_mut() else { return };
        marks.failed = false;
        // What does not answer comes back, and flushes wait for that as long as it takes.
        marks.failures += u32::from(!std::mem::take(&mut marks.late));
        marks.retry_at = Some(self.io.now.after(RETRY_NS));
        let failures = marks.failures;
        match marks.stage {
            // It may be on the device all the same: what it names stays named, and the next one takes its place.
            MarkStage::Header | MarkStage::FlushHeader => marks.stage = MarkStage::Header,
            _ => self.forget_round(),
        }
        if failures >= MAX_FAILURES {
            let what = format!(
                "{}: marks cannot be written: the volume is read-only until it is opened again",
                self.told.names[SLOW]
            );
            self.fail_volume(what, None);
        }
    }

    /// No header names what the round has written.
    fn forget_round(&mut self) {
        let Some(marks) = self.marks.as_mut() else { return };
        marks.stage = MarkStage::Idle;
        marks.todo.clear();
        marks.table.stop_closing();
        marks.look_by(self.io.now);
        let pages = marks.table.layout.pages();
        for (page, _) in marks.moved.drain(..).filter(|(page, _)| *page < pages) {
            marks.table.is_stale(page);
        }
        for (chunk, slot) in marks.named.drain(..) {
            if let Some(slot) = slot.filter(|slot| marks.table.slot(chunk) != Some(*slot)) {
                self.wanted.wake |= self.space.slots[SLOW].unname(slot);
            }
        }
    }

    /// The volume is read-only: nothing of a round is written any more.
    pub(super) fn give_up_round(&mut self) {
        if let Some(marks) = self.marks.as_mut().filter(|marks| marks.bufs.is_empty() && !marks.flushing) {
            (marks.stage, marks.retry_at) = (MarkStage::Idle, None);
        }
    }
}

/// There is no buffer now: the round goes on when there is one.
struct NoMemory;
