//! Loads pages of checksums from the fast tier, once for all who wait.

use crate::api::action::{Class, DeviceError};
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::hash::IndexMap;
use crate::engine::Engine;
use crate::format::page::{self, PageRef};
use crate::io::issue::Command;
use crate::io::patience::Unread;
use crate::io::tokens::Owner;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Reads of a page of the fast tier, one after the other, before who waits for it is told that it cannot be read.
const FAST_PAGE_READS: u32 = 5;

/// Who waits for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SumWaiter {
    /// A read or fill.
    Piece(u32),
    /// A batch of moves.
    Batch(u32),
    /// A scrub.
    Scrub(u32),
    /// The checkpoint, which folds recent checksums into it.
    Checkpoint,
}

#[derive(Serialize, Deserialize)]
struct Load {
    buf: Option<Buf>,
    /// The checkpoint in force when the read was issued; a later one may have moved the page.
    checkpoint: u64,
    /// Reads of it that failed.
    failures: u32,
    waiters: SmallVec<[SumWaiter; 4]>,
}

/// Pages being loaded.
#[derive(Default, Serialize, Deserialize)]
pub struct SumLoads {
    loads: IndexMap<u32, Load>,
    /// Pages that wait for a buffer.
    starved: Vec<u32>,
    unread: Unread<u32>,
    /// Pages of the fast tier that could not be read, and what the device had read well by then: where it reads others, one is
    /// given up after a few times, as no data goes with it.
    unread_fast: IndexMap<u32, u64>,
    /// Versions of pages that were given up: where the cache has forgotten one, nobody waits for it as long again.
    given_up: IndexMap<u32, PageRef>,
}

impl<A: Arena> Engine<A> {
    pub(crate) fn load_sum_page(&mut self, page: u32, piece: u32) {
        self.want_sum_page(page, SumWaiter::Piece(piece));
    }

    /// Calls the waiter when the page is cached.
    pub(crate) fn want_sum_page(&mut self, page: u32, waiter: SumWaiter) {
        if let Some(load) = self.front.sum_loads.loads.get_mut(&page) {
            return load.waiters.push(waiter);
        }
        let load = Load { buf: None, checkpoint: 0, failures: 0, waiters: SmallVec::from_elem(waiter, 1) };
        self.front.sum_loads.loads.insert(page, load);
        self.issue_sum_load(page);
    }

    fn issue_sum_load(&mut self, page: u32) {
        let number = self.state.geo.map_pages + page;
        let Some(place) = self.checkpoint.page(number).index() else {
            self.state.sums.fill(page, &[]);
            return self.finish_sum_load(page, true);
        };
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else {
            return self.front.sum_loads.starved.push(page);
        };
        let load = self.front.sum_loads.loads.get_mut(&page).expect("a page being loaded");
        (load.buf, load.checkpoint) = (Some(buf), self.checkpoint.number);
        let (offset, owner) = (self.state.geo.page_at(number, place), Owner::SumPage(page));
        self.io.read(Command { device: FAST, offset, owner, class: Class::Foreground }, buf);
    }

    pub(crate) fn sum_page_loaded(&mut self, page: u32, result: Result<(), DeviceError>) {
        let load = self.front.sum_loads.loads.get_mut(&page).expect("a page being loaded");
        let buf = load.buf.take().expect("a page being read has its buffer");
        if load.checkpoint != self.checkpoint.number {
            self.io.arena.free(buf);
            return self.issue_sum_load(page);
        }
        let number = self.state.geo.map_pages + page;
        let volume = &self.life.superblock.volume;
        let bytes = self.io.arena.bytes(buf);
        let sum = self.checkpoint.page(number).sum;
        let kind = self.state.geo.sums_kind(number);
        let read = || page::decode_version(bytes, kind, volume, u64::from(number), sum);
        let payload = match result {
            Ok(()) => read().map_err(|fault| fault.to_string()),
            Err(_) => Err("cannot be read".into()),
        };
        let mut good = payload.is_ok();
        let of_fast = self.state.sums.regions.of_page(page).is_some();
        if !good && of_fast && load.failures + 1 < FAST_PAGE_READS {
            load.failures += 1;
            self.io.arena.free(buf);
            self.front.sum_loads.unread_fast.entry(page).or_insert(self.io.good_reads[FAST]);
            self.want_probe(FAST);
            return self.issue_sum_load(page);
        }
        match payload {
            Ok(payload) => {
                self.state.sums.fill(page, payload);
                self.front.sum_loads.unread.forget(&page);
                self.front.sum_loads.unread_fast.remove(&page);
                self.front.sum_loads.given_up.remove(&page);
                self.read_well(FAST);
            }
            Err(what) => good = self.sum_page_failed(page, &what, result.err()),
        }
        self.io.arena.free(buf);
        self.finish_sum_load(page, good);
        if let Some(next) = self.front.sum_loads.starved.pop() {
            self.issue_sum_load(next);
        }
    }

    /// A page that stays unreadable, or is not the one in force, would keep every checkpoint from folding. In the end it
    /// counts as empty: what the list of recent checksums has is folded into it, and blocks whose checksums it held are
    /// errors until they are written again, as they are already; those of the fast tier are not verified. True: it was given up.
    fn sum_page_failed(&mut self, page: u32, what: &str, error: Option<DeviceError>) -> bool {
        let number = self.state.geo.map_pages + page;
        let version = self.checkpoint.page(number);
        if self.front.sum_loads.given_up.get(&page) == Some(&version) {
            self.state.sums.fill(page, &[]);
            return true;
        }
        let at = version.index().map_or(0, |p| self.state.geo.page_at(number, p));
        let name = self.told.names[FAST].clone();
        let region = self.state.sums.regions.of_page(page);
        let (loads, good_reads) = (&mut self.front.sum_loads, self.io.good_reads[FAST]);
        let lost = match region {
            Some(_) => loads.unread_fast.get(&page).is_some_and(|before| *before < good_reads),
            None => loads.unread.failed(page, error.is_none(), self.io.now, good_reads),
        };
        self.want_probe(FAST);
        let what = match region {
            _ if !lost => what,
            Some(_) => "is given up: the blocks it stands for are not verified until they are written again",
            None => "is given up: the blocks it stands for are lost",
        };
        let level = if lost { Level::Error } else { Level::Warning };
        self.told.event(level, format!("{name}: the checksum page at byte {at} {what}"), error);
        if lost {
            self.front.sum_loads.unread.forget(&page);
            self.front.sum_loads.unread_fast.remove(&page);
            self.front.sum_loads.given_up.insert(page, version);
            region.into_iter().for_each(|region| self.state.sums.regions.page_is_lost(region));
            self.state.sums.fill(page, &[]);
        }
        lost
    }

    fn finish_sum_load(&mut self, page: u32, ok: bool) {
        let load = self.front.sum_loads.loads.remove(&page).expect("a page being loaded");
        let region = self.state.sums.regions.of_page(page);
        region.into_iter().for_each(|region| self.keep_region(region));
        let tier = if region.is_some() { FAST } else { SLOW };
        for waiter in load.waiters {
            match waiter {
                SumWaiter::Piece(piece) => self.checksums_arrived(piece, ok),
                SumWaiter::Batch(batch) => self.batch_sums_arrived(batch, tier, ok),
                SumWaiter::Scrub(page) => self.scrub_sums_arrived(page, ok),
                SumWaiter::Checkpoint => self.checkpoint_page_arrived(ok),
            }
        }
    }

    pub(crate) fn sum_load_coverage(&self, page: u32) -> Option<Stage> {
        match self.front.sum_loads.loads.get(&page)?.waiters.first()? {
            SumWaiter::Piece(piece) => self.front.pieces.get(*piece)?.stage,
            SumWaiter::Batch(batch) => self.mover.stage(*batch),
            SumWaiter::Scrub(_) => Some(Stage::ScrubRead),
            SumWaiter::Checkpoint => self.checkpoint.coverage(),
        }
    }
}
