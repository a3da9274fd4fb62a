//! The checkpoint: writes what changed in the map and the checksums, so that the log's tail can go.
//!
//! It is fuzzy: pages are written while the log goes on, each as it stands when it is its turn, and
//! recovery replays the log from before the first of them. Three things make that safe: records say
//! what holds, not what changed; pages hold only what the log (perhaps not yet durably) says; and the
//! header is written only after a flush that covers pages and log alike.
//!
//! Whatever refers to a page says under which checksum it is in force, from the header down to the pages of
//! both tables: so a page whose write was lost is told from the older version that its place still holds.

mod regions;
mod root;

use crate::api::action::DeviceError;
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::place::Place;
use crate::engine::Engine;
use crate::format::geometry::{HEADER_COPIES, header_at};
use crate::format::header::CheckpointHeader;
use crate::format::page::{self, PageKind, PageRef};
use crate::io::flush::Waiter;
use crate::io::tokens::Owner;
use crate::path::sumload::SumWaiter;
use crate::volume::pages::Pages;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
enum CheckpointStage {
    #[default]
    Idle,
    Map,
    Fold,
    Regions,
    Directory,
    Root,
    FlushPages,
    Header,
    FlushHeader,
}

/// Pause after a checkpoint that failed, ns.
const RETRY_NS: u64 = Nanos::SECOND;
/// Checkpoints that fail in a row before the volume goes read-only.
const MAX_FAILURES: u32 = 30;

/// The checkpoint that is running, and what the last one left.
#[derive(Serialize, Deserialize)]
pub struct Checkpoint {
    stage: CheckpointStage,
    /// Number of the newest durable checkpoint.
    pub number: u64,
    pages: Pages,
    /// The pages written by the one that is running, in the order of their numbers.
    moved: Vec<(u32, PageRef)>,
    applied: Seq,
    cursor: u32,
    list_cursor: u64,
    list_written: u32,
    folding: bool,
    /// A page is being read for it.
    fold_waits: bool,
    folded: Vec<(u64, u32)>,
    root_block: u32,
    root_sum: u32,
    tail: Option<Place>,
    /// Groups up to here must be complete before the pages are flushed.
    pub(crate) log_upto: Seq,
    flushing: bool,
    /// Buffers being written, and how many writes of each are in flight.
    bufs: Vec<Option<(Buf, usize)>>,
    in_flight: u32,
    failed: bool,
    /// What the device said when a write last failed.
    error: Option<DeviceError>,
    failures: u32,
    retry_at: Option<Nanos>,
    /// The tail that a durable header names.
    pub header: CheckpointHeader,
}

impl Checkpoint {
    /// After opening with this header and these pages in force.
    pub fn new(header: CheckpointHeader, pages: Pages) -> Checkpoint {
        Checkpoint {
            stage: CheckpointStage::Idle,
            number: header.number,
            pages,
            moved: Vec::new(),
            applied: Seq(0),
            cursor: 0,
            list_cursor: 0,
            list_written: 0,
            folding: false,
            fold_waits: false,
            folded: Vec::new(),
            root_block: 0,
            root_sum: 0,
            tail: None,
            log_upto: Seq(0),
            flushing: false,
            bufs: Vec::new(),
            in_flight: 0,
            failed: false,
            error: None,
            failures: 0,
            retry_at: None,
            header,
        }
    }

    /// The version of a page that is in force.
    pub fn page(&self, page: u32) -> PageRef {
        self.pages.get(page)
    }

    /// The map held every record up to here when the newest one began.
    pub fn applied(&self) -> Seq {
        self.applied
    }

    /// Whether none is running.
    pub fn is_idle(&self) -> bool {
        self.stage == CheckpointStage::Idle
    }

    /// When to try again.
    pub fn deadline(&self) -> Option<Nanos> {
        self.retry_at
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        self.pages.ram_bytes()
    }

    /// Whether a header is written that is not known to be durable.
    pub(crate) fn header_is_unflushed(&self) -> bool {
        matches!(self.stage, CheckpointStage::Header | CheckpointStage::FlushHeader)
    }

    /// Its stage, for coverage.
    pub fn coverage(&self) -> Option<Stage> {
        match self.stage {
            CheckpointStage::Idle => None,
            CheckpointStage::Map => Some(Stage::CheckpointMap),
            CheckpointStage::Fold => Some(Stage::CheckpointFold),
            CheckpointStage::Regions => Some(Stage::CheckpointRegions),
            CheckpointStage::Directory => Some(Stage::CheckpointDirectory),
            CheckpointStage::Root => Some(Stage::CheckpointRoot),
            CheckpointStage::FlushPages => Some(Stage::CheckpointFlushPages),
            CheckpointStage::Header => Some(Stage::CheckpointHeader),
            CheckpointStage::FlushHeader => Some(Stage::CheckpointFlushHeader),
        }
    }
}

impl<A: Arena> Engine<A> {
    pub(crate) fn pump_checkpoint(&mut self) {
        if self.checkpoint.retry_at.is_some_and(|at| at <= self.io.now) {
            self.checkpoint.retry_at = None;
            if self.checkpoint.stage == CheckpointStage::Header {
                self.write_header();
            }
            self.wanted.checkpoint = true;
        }
        if self.checkpoint.stage == CheckpointStage::Idle {
            self.wanted.checkpoint |= self.log_wants_checkpoint();
            self.wanted.checkpoint |= self.regions_want_checkpoint();
            // One that failed at the end is not tried again beside the marks: it would outlive the volume.
            let over = self.life.is_read_only() || self.life.shutdown.is_marking();
            let may = self.wanted.checkpoint && !over && self.checkpoint.retry_at.is_none();
            if !may {
                return;
            }
            self.wanted.checkpoint = false;
            self.start_checkpoint();
        }
        self.step_checkpoint();
    }

    /// The last group of which the map holds every record. Those of commits and moves reach the map only
    /// when they are durable: a checkpoint must not claim those that are under way.
    pub(crate) fn recorded(&self) -> Seq {
        let unapplied = [self.commit.unapplied(), self.mover.unapplied()].into_iter().flatten().min();
        unapplied.map_or(self.log.applied, |first| Seq(first.0 - 1)).min(self.log.applied)
    }

    /// Whether the log is short of segments and a checkpoint would let it have some.
    fn log_wants_checkpoint(&self) -> bool {
        let zone = &self.state.zone;
        let oldest = zone.chain().front().filter(|p| zone.get(**p).live == 0);
        self.zone_is_full()
            && oldest.is_some_and(|p| Some(*p) != self.log.current())
            && self.recorded() > self.checkpoint.applied
    }

    fn start_checkpoint(&mut self) {
        let recorded = self.recorded();
        let c = &mut self.checkpoint;
        c.applied = if planted(Bug::CheckpointAheadOfMap) { self.log.applied } else { recorded };
        c.stage = CheckpointStage::Map;
        (c.cursor, c.failed, c.error, c.tail, c.flushing) = (0, false, None, None, false);
        c.moved.clear();
        c.folded.clear();
        let many = self.state.sums.recent() * 4 > self.state.sums.limit;
        c.folding = std::mem::take(&mut self.wanted.fold) || many || self.life.shutdown.began();
    }

    fn step_checkpoint(&mut self) {
        loop {
            let before = self.checkpoint.stage;
            self.checkpoint.failed |= self.life.is_read_only();
            if self.checkpoint.failed
                && self.checkpoint.in_flight == 0
                && !self.checkpoint.fold_waits
                && !self.checkpoint.flushing
            {
                return self.abort_checkpoint();
            }
            match before {
                CheckpointStage::Idle => return,
                CheckpointStage::Map => self.step_map(),
                CheckpointStage::Fold => self.step_fold(),
                CheckpointStage::Regions => self.step_regions(),
                CheckpointStage::Directory => self.step_directory(),
                CheckpointStage::Root => self.step_root(),
                CheckpointStage::FlushPages => self.step_flush_pages(),
                CheckpointStage::Header | CheckpointStage::FlushHeader => return,
            }
            if self.checkpoint.stage == before {
                return;
            }
        }
    }

    fn may_write(&self) -> bool {
        !self.checkpoint.failed && (self.checkpoint.in_flight as usize) < self.tuning.background_depth
    }

    fn write_page(&mut self, number: u32, kind: PageKind, payload: &[u8], buf: Buf) {
        // From nowhere to the first place, then to and fro: the place in force is never written.
        let place = if self.checkpoint.page(number).place == 1 { 2 } else { 1 };
        let volume = &self.life.superblock.volume;
        let next = self.checkpoint.number + 1;
        let bytes = self.io.arena.bytes_mut(buf);
        let sum = page::encode(bytes, kind, volume, u64::from(number), next, payload);
        self.push_moved(number, PageRef { place, sum });
        let geo = &self.state.geo;
        let (offset, twin) = (geo.page_at(number, place - 1), geo.page_twin_at(number, place - 1));
        self.write_checkpoint(offset, twin, buf);
    }

    fn push_moved(&mut self, number: u32, version: PageRef) {
        let moved = &mut self.checkpoint.moved;
        assert!(moved.last().is_none_or(|(last, _)| *last < number), "pages are written in order");
        moved.push((number, version));
    }

    /// Writes a block, and its second copy where it has one. Both are awaited before the flush that precedes the header.
    fn write_checkpoint(&mut self, offset: u64, twin: Option<u64>, buf: Buf) {
        let twin = twin.filter(|_| !planted(Bug::MirrorNotWritten));
        let c = &mut self.checkpoint;
        let io = match c.bufs.iter().position(Option::is_none) {
            Some(i) => i,
            None => {
                c.bufs.push(None);
                c.bufs.len() - 1
            }
        };
        let writes = [Some(offset), twin].into_iter().flatten();
        c.bufs[io] = Some((buf, writes.clone().count()));
        c.in_flight += if planted(Bug::MirrorNotAwaited) { 1 } else { writes.clone().count() as u32 };
        writes.for_each(|at| self.write_metadata(Owner::Checkpoint(io as u32), at, buf));
    }

    pub(crate) fn checkpoint_io_done(&mut self, io: u32, result: Result<(), DeviceError>) {
        self.io.flushers[FAST].dirty = true;
        let c = &mut self.checkpoint;
        let place = &mut c.bufs[io as usize];
        let (buf, left) = place.expect("a write that ended has its buffer");
        *place = (left > 1).then_some((buf, left - 1));
        if left == 1 {
            self.io.arena.free(buf);
        }
        c.in_flight = c.in_flight.saturating_sub(1);
        if let Err(error) = result {
            self.checkpoint.error = Some(error);
            return self.checkpoint_write_failed();
        }
        if self.checkpoint.stage == CheckpointStage::Header
            && !self.checkpoint.failed
            && !self.life.is_read_only()
        {
            self.checkpoint.stage = CheckpointStage::FlushHeader;
            if planted(Bug::SegmentFreedEarly) {
                return self.publish();
            }
            self.checkpoint.flushing = true;
            self.request_flush(FAST, Waiter::Checkpoint);
        }
    }

    /// A header may be on the device although its write failed, so nothing but the same header may follow.
    fn checkpoint_write_failed(&mut self) {
        let c = &mut self.checkpoint;
        if c.stage == CheckpointStage::Header && c.failures < MAX_FAILURES && !self.life.shutdown.began() {
            c.failures += 1;
            c.retry_at = Some(self.io.now.after(RETRY_NS));
        } else {
            c.failed = true;
        }
    }

    fn step_map(&mut self) {
        while self.may_write()
            && let Some(page) = self.state.map.next_dirty(self.checkpoint.cursor)
        {
            let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
            let payload = self.state.map.take_page(page);
            self.checkpoint.cursor = page + 1;
            self.write_page(page, PageKind::Map, &payload, buf);
        }
        let done = self.state.map.next_dirty(self.checkpoint.cursor).is_none();
        if done && self.checkpoint.in_flight == 0 && !self.checkpoint.failed {
            self.checkpoint.stage = CheckpointStage::Fold;
            self.checkpoint.cursor = 0;
        }
    }

    fn step_fold(&mut self) {
        while self.checkpoint.folding && self.may_write() && !self.checkpoint.fold_waits {
            let Some(page) = self.state.sums.next_recent_page(self.checkpoint.cursor) else {
                self.checkpoint.folding = false;
                break;
            };
            let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
            match self.state.sums.fold(page, &mut self.checkpoint.folded) {
                Some(payload) => {
                    self.checkpoint.cursor = page + 1;
                    let number = self.state.geo.map_pages + page;
                    self.write_page(number, PageKind::Sums, &payload, buf);
                }
                None => {
                    self.io.arena.free(buf);
                    self.checkpoint.fold_waits = true;
                    self.want_sum_page(page, SumWaiter::Checkpoint);
                }
            }
        }
        if !self.checkpoint.folding && self.checkpoint.in_flight == 0 && !self.checkpoint.failed {
            self.checkpoint.stage = CheckpointStage::Regions;
            self.checkpoint.cursor = 0;
        }
    }

    pub(crate) fn checkpoint_page_arrived(&mut self, ok: bool) {
        self.checkpoint.fold_waits = false;
        self.checkpoint.failed |= !ok;
        // At once, before another page pushes this one out.
        match self.checkpoint.stage {
            CheckpointStage::Fold => self.step_fold(),
            CheckpointStage::Regions => self.step_regions(),
            _ => {}
        }
    }

    /// Everything is written. The tail is chosen now, before the flush that will make durable whatever
    /// superseded the landed blocks that were in the segments it leaves behind.
    fn root_written(&mut self) {
        self.choose_tail();
        self.checkpoint.log_upto = self.all_said();
        self.checkpoint.stage = CheckpointStage::FlushPages;
    }

    fn choose_tail(&mut self) {
        let zone = &self.state.zone;
        // A segment that has begun only here, not on the device, cannot be a tail.
        let before_last = zone.chain().iter().rev().nth(1).or(zone.chain().back());
        let current = self.log.current().or(before_last.copied());
        let applied = self.checkpoint.applied;
        let needed = |p: &Place| {
            let s = zone.get(*p);
            let last = s.index.as_ref().map_or(s.last, |i| i.last.max(s.last));
            Some(*p) == current || s.live > 0 || last > applied
        };
        self.checkpoint.tail = zone.chain().iter().copied().find(needed);
    }

    fn step_flush_pages(&mut self) {
        if self.checkpoint.flushing || self.log.applied < self.checkpoint.log_upto {
            // Discards show in pages from the moment they are appended: their groups must be complete.
            return;
        }
        self.checkpoint.flushing = true;
        if planted(Bug::HeaderBeforePages) {
            return self.checkpoint_flushed(true);
        }
        self.request_flush(FAST, Waiter::Checkpoint);
    }

    pub(crate) fn checkpoint_flushed(&mut self, ok: bool) {
        self.checkpoint.flushing = false;
        self.checkpoint.failed |= !ok;
        if self.checkpoint.failed {
            return;
        }
        match self.checkpoint.stage {
            CheckpointStage::FlushPages => self.write_header(),
            CheckpointStage::FlushHeader => self.publish(),
            other => unreachable!("no flush is awaited in stage {other:?}"),
        }
    }

    fn write_header(&mut self) {
        self.checkpoint.stage = CheckpointStage::Header;
        let tail = self.checkpoint.tail.expect("the current segment is always needed");
        let segment = self.state.zone.get(tail);
        let c = &mut self.checkpoint;
        let number = c.number + 1;
        c.header = CheckpointHeader {
            number,
            generation: self.life.superblock.generation,
            applied: c.applied,
            durable: self.log.durable(),
            tail_area: self.state.zone.area(tail),
            tail_ordinal: segment.ordinal,
            tail_first: segment.first,
            list_entries: c.list_written,
            root_blocks: c.header.root_blocks,
            root_sum: c.root_sum,
            fast_bytes: self.state.geo.device_bytes[0],
        };
        let Some(buf) = self.io.arena.alloc(Pool::Meta, HEADER_COPIES as u32 * BLOCK_BYTES) else {
            self.checkpoint.failed = true;
            return;
        };
        for block in self.io.arena.bytes_mut(buf).chunks_exact_mut(BLOCK_BYTES as usize) {
            self.checkpoint.header.encode(block, &self.life.superblock.volume);
        }
        self.write_checkpoint(header_at(number % 2), None, buf);
    }

    /// The header is durable: pages are where it says, and what the log holds before its tail is free.
    fn publish(&mut self) {
        let c = &mut self.checkpoint;
        self.log.claims.written(c.header.durable);
        c.number += 1;
        for (page, version) in c.moved.drain(..) {
            c.pages.set(page, version);
        }
        self.state.sums.forget(&std::mem::take(&mut c.folded));
        self.state.sums.regions_published();
        (c.stage, c.failures) = (CheckpointStage::Idle, 0);
        let tail = c.tail.expect("a published checkpoint has its tail");
        self.state.zone.drop_before(tail);
        self.told.stats.checkpoints += 1;
        self.wanted.wake = true;
        let many = self.state.sums.recent() * 2 > self.state.sums.limit;
        self.want_fold(many);
    }

    fn abort_checkpoint(&mut self) {
        let c = &mut self.checkpoint;
        c.retry_at = None;
        // A header that failed may be on the device all the same: what it names must stay as it is.
        let fatal = matches!(c.stage, CheckpointStage::Header | CheckpointStage::FlushHeader);
        c.stage = CheckpointStage::Idle;
        c.failures += 1;
        let moved = std::mem::take(&mut c.moved);
        for (page, _) in moved {
            if page < self.state.geo.map_pages {
                self.state.map.redirty(page);
            }
        }
        self.checkpoint.folded.clear();
        self.state.sums.regions.aborted();
        let (name, error) = (self.told.names[FAST].clone(), self.checkpoint.error.take());
        self.told.event(Level::Warning, format!("{name}: a checkpoint failed"), error);
        if fatal || self.checkpoint.failures >= MAX_FAILURES {
            let what = "checkpoints fail: the volume is read-only until it is opened again";
            self.fail_volume(format!("{name}: {what}"), error);
        } else {
            self.checkpoint.retry_at = Some(self.io.now.after(RETRY_NS));
        }
    }
}
