//! One chunk is looked at: all that is held of it and has a checksum is read, what is wrong once more, by itself.
//!
//! Clients go on meanwhile. What is being read is kept from being used for something else; and what does not match counts only
//! if its checksum is what it was before, and it is where it was: whoever overwrites what has a checksum changes one of the two
//! first, or the chunk is moving. A device that fails to read something is believed only once it has read something else well.

use super::*;
use crate::api::action::{Class, DeviceError};
use crate::base::arena::{Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use crate::path::sumload::SumWaiter;
use crate::volume::cells::CellBlock;
use crate::volume::landed::ZoneBlock;
use crate::volume::sums::Lookup;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Blocks that are read at a time.
const RUN_BLOCKS: u32 = 32;
/// Times that a page of checksums is asked for before its blocks count as lost.
const PAGE_TRIES: u32 = 5;
/// Failures in a row without a word of the device after which it is said that it fails.
const SILENT_FAILURES: u32 = 3;
/// Times that something is looked up anew because it has changed: then it is somebody's who writes it all the time.
const MOST_CHANGES: u32 = 16;

/// Where a value of a block is held that has a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Held {
    /// In the log, as a whole or in part.
    Landed(ZoneBlock),
    /// In the chunk's home.
    Home(Home),
    /// In the shadow of that home.
    Shadow(Home, Slot),
    /// In a copy of that home.
    Copy(Home, CellBlock),
}

/// What is read, and what checksum it must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) block: u32,
    pub(super) held: Held,
    pub(super) sum: u32,
}

/// What was wrong, and is read again by itself.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Doubt {
    look: Look,
    /// What the device had read well when it failed to read this.
    failed: Option<u64>,
    failures: u32,
    changes: u32,
}

/// What is wrong.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Wrong {
    pub(super) look: Look,
    /// Whether the device could read it.
    pub(super) was_read: bool,
}

/// What a read is for.
#[derive(Clone, Serialize, Deserialize)]
pub(super) enum What {
    /// So many of the looks.
    Run(Range<usize>),
    /// One that was wrong.
    Again(Doubt),
    /// What may stand in for one that is.
    StandIn(Wrong, Look),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Reading {
    pub(super) what: What,
    pub(super) buf: Buf,
    since: Nanos,
}

/// A chunk that is being looked at.
#[derive(Serialize, Deserialize)]
pub(super) struct Exam {
    pub(super) chunk: Chunk,
    /// It is the turn of the chunk in a scrub.
    pub(super) scrubs: bool,
    /// The block that is looked up next.
    gathered: u32,
    /// Where it is held of which that is done: one page of checksums may give way to another.
    looked_up: Vec<Held>,
    pub(super) looks: Vec<Look>,
    next: usize,
    doubts: VecDeque<Doubt>,
    /// All that is wrong, and that of it which is still to be judged.
    pub(super) wrong: Vec<Wrong>,
    pub(super) to_judge: VecDeque<Wrong>,
    pub(super) reading: Option<Reading>,
    pub(super) awaits_page: bool,
    page_tries: u32,
    /// Times that a block was found elsewhere than before.
    moved: u32,
    pub(super) lost_page: Option<u32>,
    /// The chunk counts as moving for it: until all that is wrong is judged, nobody merges or writes in place, which would end
    /// what may stand in.
    pub(super) holds: bool,
    /// What is being written again.
    pub(super) mending: Option<Wrong>,
    pub(super) mend_tries: u32,
    /// Blocks that are lost.
    pub(super) lost: BlockMask,
    /// Blocks of the home that were found wrong and are not repaired.
    pub(super) bad_home: bool,
}

impl Exam {
    pub(super) fn of(chunk: Chunk, scrubs: bool) -> Exam {
        Exam {
            chunk,
            scrubs,
            gathered: 0,
            looked_up: Vec::new(),
            looks: Vec::new(),
            next: 0,
            doubts: VecDeque::new(),
            wrong: Vec::new(),
            to_judge: VecDeque::new(),
            reading: None,
            awaits_page: false,
            page_tries: 0,
            moved: 0,
            lost_page: None,
            holds: false,
            mending: None,
            mend_tries: 0,
            lost: BlockMask::EMPTY,
            bad_home: false,
        }
    }

    /// What was wrong is something else by now: it is read once more.
    pub(super) fn doubt_again(&mut self, look: Look) {
        if self.moved < MOST_CHANGES && !planted(Bug::ScrubForgetsPage) {
            self.moved += 1;
            self.doubts.push_back(Doubt { look, failed: None, failures: 0, changes: 0 });
        }
    }

    /// Whether it is nothing but time that it waits for.
    pub(super) fn waits_for_time(&self) -> bool {
        self.reading.is_none() && !self.awaits_page && self.mending.is_none()
    }
}

impl<A: Arena> Engine<A> {
    /// All places of a block in which a value is held.
    fn places_of(&self, chunk: Chunk, block: u32) -> impl Iterator<Item = Held> + use<A> {
        let landed = self.state.landed.get(self.state.map.join(chunk, block));
        let is_whole = landed.is_some_and(|z| self.state.landed.sectors(z).is_all());
        let home = self.state.map.home(chunk).filter(|_| self.state.map.is_valid(chunk, block) && !is_whole);
        let shadow = home.and_then(|home| Some(Held::Shadow(home, self.space.shadows.get(home)?)));
        let copy = home.filter(|home| home.tier == SLOW);
        let copy = copy.and_then(|home| Some(Held::Copy(home, self.mover.copies.find(chunk, block)?)));
        [landed.map(Held::Landed), home.map(Held::Home), shadow, copy].into_iter().flatten()
    }

    /// The checksum that what is held there must have, if it has one.
    fn sum_of(&mut self, block: u32, held: Held) -> Option<Lookup> {
        let sums = &mut self.state.sums;
        match held {
            Held::Landed(z) => {
                (!self.state.landed.is_bad(z)).then(|| Lookup::Known(self.state.landed.sum(z)))
            }
            Held::Home(home) if home.tier == FAST => {
                let own = sums.of_fast(home.slot, block);
                let by_shadow = self.space.shadows.get(home).map(|slot| sums.get(slot, block));
                // The same, where both are known. What is in memory counts, or one page could take the room of the other for ever.
                let known = [own, by_shadow].into_iter().flatten().find(|it| matches!(it, Lookup::Known(_)));
                known.or(own).or(by_shadow)
            }
            Held::Home(home) | Held::Copy(home, _) => Some(sums.get(home.slot, block)),
            Held::Shadow(_, slot) => Some(sums.get(slot, block)),
        }
    }

    /// Whether a value is still held where it was, under the same checksum.
    pub(super) fn stands(&mut self, chunk: Chunk, look: &Look) -> bool {
        let is_there = self.is_held(chunk, look);
        is_there && self.sum_of(look.block, look.held) == Some(Lookup::Known(look.sum))
    }

    /// Whether it is known that a value is no more held there under this checksum.
    pub(super) fn has_changed(&mut self, chunk: Chunk, look: &Look) -> bool {
        let is_there = self.is_held(chunk, look);
        match self.sum_of(look.block, look.held).filter(|_| is_there) {
            Some(Lookup::Known(sum)) => sum != look.sum,
            Some(Lookup::InPage(_)) => false,
            None => true,
        }
    }

    /// The page of checksums without which that is not known: it was in memory, and has given way to others.
    pub(super) fn page_for(&mut self, chunk: Chunk, look: &Look) -> Option<u32> {
        let is_there = self.is_held(chunk, look);
        match self.sum_of(look.block, look.held).filter(|_| is_there) {
            Some(Lookup::InPage(page)) if !planted(Bug::ScrubForgetsPage) => Some(page),
            _ => None,
        }
    }

    pub(super) fn device_place(&self, look: &Look) -> (Tier, u64) {
        let geo = &self.state.geo;
        match look.held {
            Held::Landed(z) => (FAST, self.state.zone.offset_of(z)),
            Held::Home(home) => (home.tier, geo.block_at(home, look.block)),
            Held::Shadow(_, slot) => (SLOW, geo.block_at(Home { tier: SLOW, slot }, look.block)),
            Held::Copy(_, at) => (FAST, self.copy_at(at)),
        }
    }

    fn pin_look(&mut self, look: &Look) {
        match look.held {
            Held::Landed(z) => {
                let place = self.state.zone.place_of(z);
                self.state.zone.get_mut(place).pins += 1;
            }
            Held::Home(home) => self.space.slots[home.tier].pin(home.slot),
            Held::Shadow(_, slot) => self.space.slots[SLOW].pin(slot),
            Held::Copy(_, at) => {
                let slot = self.mover.copies.place(at).0;
                self.space.slots[FAST].pin(slot);
            }
        }
    }

    fn unpin_look(&mut self, look: &Look) {
        match look.held {
            Held::Landed(z) => self.unpin_landed(z),
            Held::Home(home) => self.unpin_slot(home),
            Held::Shadow(_, slot) => self.unpin_slot(Home { tier: SLOW, slot }),
            Held::Copy(_, at) => {
                let slot = self.mover.copies.place(at).0;
                self.unpin_slot(Home { tier: FAST, slot });
            }
        }
    }

    /// Goes one step further. False: something has to happen first.
    pub(super) fn step_exam(&mut self) -> bool {
        let Some(exam) = &self.mover.scrub.exam else { return false };
        if exam.mending.is_some() {
            return self.mend_goes_on();
        }
        if !exam.waits_for_time() || self.io.now < self.mover.scrub.next_at {
            return false;
        }
        if exam.gathered < self.state.geo.blocks_per_chunk() {
            return self.gather_looks();
        }
        if exam.next < exam.looks.len() {
            return self.read_run();
        }
        if !exam.doubts.is_empty() {
            return self.read_doubt();
        }
        self.judge_next()
    }

    /// Whether somebody is moving the chunk: what becomes its home may be held nowhere meanwhile, and is only looked at after
    /// that.
    fn is_on_the_move(&self, exam: &Exam) -> bool {
        self.state.map.is_moving(exam.chunk) && !exam.holds && !planted(Bug::ScrubPassesMoving)
    }

    /// Something is in the way: it is tried again in a while. False, as nothing was done.
    fn wait_with(&mut self, exam: Box<Exam>) -> bool {
        self.mover.scrub.next_at = self.io.now.after(WAIT_NS);
        self.mover.scrub.exam = Some(exam);
        false
    }

    /// Looks up what is held of the chunk, and which checksums it must have.
    fn gather_looks(&mut self) -> bool {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return false };
        if self.is_on_the_move(&exam) {
            return self.wait_with(exam);
        }
        let mut missing = None;
        while missing.is_none() && exam.gathered < self.state.geo.blocks_per_chunk() {
            missing = self.gather_block(&mut exam);
            exam.gathered += u32::from(missing.is_none());
        }
        exam.awaits_page = missing.is_some();
        if missing.is_none() {
            exam.looks.sort_by_key(|look| self.device_place(look));
        }
        self.mover.scrub.exam = Some(exam);
        missing.is_none_or(|page| self.want_scrub_page(page))
    }

    /// The page of checksums that has to be read before the looks of the next block are known, if there is one.
    fn gather_block(&mut self, exam: &mut Exam) -> Option<u32> {
        let block = exam.gathered;
        for held in self.places_of(exam.chunk, block) {
            if exam.looked_up.contains(&held) {
                continue;
            }
            match self.sum_of(block, held) {
                Some(Lookup::Known(sum)) => exam.looks.push(Look { block, held, sum }),
                // On the fast tier what has no checksum that can be read is good as far as anybody knows.
                Some(Lookup::InPage(page)) if exam.lost_page == Some(page) && self.is_of_fast(page) => {}
                Some(Lookup::InPage(page)) if exam.lost_page == Some(page) => exam.lost.set(block),
                Some(Lookup::InPage(page)) => return Some(page),
                // A landed block of which the rest, or all, is known to be lost.
                None if matches!(held, Held::Landed(_)) => exam.lost.set(block),
                None if self.may_learn(held) => exam.looks.push(Look::to_learn(block, held)),
                None => {}
            }
            exam.looked_up.push(held);
        }
        exam.looked_up.clear();
        None
    }

    fn is_of_fast(&self, page: u32) -> bool {
        self.state.sums.regions.of_page(page).is_some()
    }

    /// Asks for a page of checksums; whether it is there already.
    pub(super) fn want_scrub_page(&mut self, page: u32) -> bool {
        self.want_sum_page(page, SumWaiter::Scrub(page));
        self.mover.scrub.exam.as_ref().is_some_and(|exam| !exam.awaits_page)
    }

    /// A page of checksums has come, or cannot be read.
    pub(crate) fn scrub_sums_arrived(&mut self, page: u32, ok: bool) {
        let Some(exam) = &mut self.mover.scrub.exam else { return };
        exam.awaits_page = false;
        exam.page_tries = if ok { 0 } else { exam.page_tries + 1 };
        if !ok {
            if exam.page_tries >= PAGE_TRIES {
                exam.lost_page = Some(page);
            }
            self.mover.scrub.next_at = self.io.now.after(Nanos::SECOND);
        }
    }

    /// Whether a value is held where it was found: else somebody else may have the place.
    fn is_held(&self, chunk: Chunk, look: &Look) -> bool {
        self.places_of(chunk, look.block).any(|held| held == look.held)
    }

    /// A block is elsewhere by now: wherever it is held that has not been seen yet is looked at as well.
    fn look_again(&mut self, exam: &mut Exam, block: u32) {
        if exam.moved >= MOST_CHANGES * self.state.geo.blocks_per_chunk() {
            return;
        }
        exam.moved += 1;
        for held in self.places_of(exam.chunk, block) {
            let is_known = exam.looks.iter().any(|look| look.block == block && look.held == held);
            let is_doubted =
                exam.doubts.iter().any(|doubt| doubt.look.block == block && doubt.look.held == held);
            if !is_known && !is_doubted {
                // Its checksum is looked up when it is its turn.
                let look = Look { block, held, sum: 0 };
                exam.doubts.push_back(Doubt { look, failed: None, failures: 0, changes: 0 });
            }
        }
    }

    /// Reads the next looks that lie side by side. True: there were none left.
    fn read_run(&mut self) -> bool {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return false };
        while exam.next < exam.looks.len() && !self.is_held(exam.chunk, &exam.looks[exam.next]) {
            if self.is_on_the_move(&exam) {
                return self.wait_with(exam);
            }
            let block = exam.looks[exam.next].block;
            exam.next += 1;
            self.look_again(&mut exam, block);
        }
        let first = exam.next;
        if first == exam.looks.len() {
            self.mover.scrub.exam = Some(exam);
            return true;
        }
        let (tier, offset) = self.device_place(&exam.looks[first]);
        if self.scrub_may_read(tier) {
            let follows = |n: &usize| {
                self.is_held(exam.chunk, &exam.looks[*n])
                    && self.device_place(&exam.looks[*n])
                        == (tier, offset + (*n - first) as u64 * u64::from(BLOCK_BYTES))
            };
            let most = exam.looks.len().min(first + RUN_BLOCKS as usize);
            let count = (first..most).take_while(follows).count();
            let all = self.io.arena.alloc(Pool::Background, count as u32 * BLOCK_BYTES);
            let buf = all.or_else(|| self.io.arena.alloc(Pool::Background, BLOCK_BYTES));
            if let Some(buf) = buf {
                let run = first..first + (buf.len / BLOCK_BYTES) as usize;
                exam.next = run.end;
                for n in run.clone() {
                    self.pin_look(&exam.looks[n]);
                }
                if let Some(slot) = exam.looks[run.clone()].iter().find_map(Look::unsummed) {
                    self.begin_learning(exam.chunk, slot);
                }
                self.issue_exam(&mut exam, What::Run(run), buf, (tier, offset));
            } else {
                self.mover.scrub.next_at = self.io.now.after(WAIT_NS);
            }
        }
        self.mover.scrub.exam = Some(exam);
        false
    }

    fn issue_exam(&mut self, exam: &mut Exam, what: What, buf: Buf, (device, offset): (Tier, u64)) {
        exam.reading = Some(Reading { what, buf, since: self.io.now });
        self.mover.scrub.pause = None;
        self.io.read(Command { device, offset, owner: Owner::Scrub, class: Class::Background }, buf);
    }

    /// Reads one block by itself. False: not now.
    pub(super) fn read_alone(&mut self, exam: &mut Exam, what: What, look: &Look) -> bool {
        let place = self.device_place(look);
        let may = self.scrub_may_read(place.0);
        let buf = if may { self.io.arena.alloc(Pool::Background, BLOCK_BYTES) } else { None };
        let Some(buf) = buf else {
            // That may take long, and others need the chunk.
            self.let_chunk_go(exam);
            let next_at = self.io.now.after(if may { WAIT_NS } else { 0 });
            self.mover.scrub.next_at = self.mover.scrub.next_at.max(next_at);
            return false;
        };
        self.pin_look(look);
        self.issue_exam(exam, what, buf, place);
        true
    }

    /// What was wrong is read again, if it is still what counts.
    fn read_doubt(&mut self) -> bool {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return false };
        let Some(mut doubt) = exam.doubts.pop_front() else { return false };
        let chunk = exam.chunk;
        let is_there = self.is_held(chunk, &doubt.look);
        if self.may_be_written(&exam, &doubt.look) || !is_there && self.is_on_the_move(&exam) {
            exam.doubts.push_front(doubt);
            return self.wait_with(exam);
        }
        let look = doubt.look;
        match self.sum_of(look.block, look.held).filter(|_| is_there) {
            Some(Lookup::Known(sum)) => {
                // Overwritten in its place, perhaps.
                if sum != look.sum {
                    doubt = Doubt { look: Look { sum, ..look }, failed: None, failures: 0, ..doubt };
                    doubt.changes += 1;
                }
                if doubt.changes <= MOST_CHANGES
                    && !self.read_alone(&mut exam, What::Again(doubt), &doubt.look)
                {
                    exam.doubts.push_front(doubt);
                }
                self.mover.scrub.exam = Some(exam);
                false
            }
            Some(Lookup::InPage(page)) if exam.lost_page == Some(page) => {
                // It did not match what was known before.
                exam.lost.set(look.block);
                self.mover.scrub.exam = Some(exam);
                true
            }
            Some(Lookup::InPage(page)) => {
                exam.doubts.push_front(doubt);
                exam.awaits_page = true;
                self.mover.scrub.exam = Some(exam);
                self.want_scrub_page(page)
            }
            None => {
                // It is elsewhere by now, and was written there by somebody who held it against its checksum; or given up.
                let newest = self.state.landed.get(self.state.map.join(chunk, look.block));
                if newest.is_some_and(|z| self.state.landed.is_bad(z)) {
                    exam.lost.set(look.block);
                } else {
                    self.look_again(&mut exam, look.block);
                }
                self.mover.scrub.exam = Some(exam);
                true
            }
        }
    }

    /// What was asked for has been read, or not.
    pub(crate) fn scrub_io_done(&mut self, result: Result<(), DeviceError>) {
        let Some(mut exam) = self.mover.scrub.exam.take() else { return };
        let Some(Reading { what, buf, since }) = exam.reading.take() else { return };
        let hurries = exam.holds || !exam.doubts.is_empty();
        self.scrub_has_read(if hurries { 0 } else { self.io.now.since(since) });
        match what {
            What::Run(run) => self.run_was_read(&mut exam, run, buf, result),
            What::Again(doubt) => self.doubt_was_read(&mut exam, doubt, buf, result),
            What::StandIn(wrong, look) => {
                self.unpin_look(&look);
                self.mover.scrub.exam = Some(exam);
                return self.stand_in_was_read(wrong, look, buf, result);
            }
        }
        self.io.arena.free(buf);
        self.wanted.wake = true;
        self.mover.scrub.exam = Some(exam);
    }

    /// Whether somebody may be writing there: a batch merges over homes.
    fn may_be_written(&self, exam: &Exam, look: &Look) -> bool {
        matches!(look.held, Held::Home(_)) && self.state.map.is_moving(exam.chunk) && !exam.holds
    }

    /// Keeps others from moving the chunk, and from writing it in place, if nobody is about to. False: somebody is.
    pub(super) fn hold_chunk(&mut self, exam: &mut Exam) -> bool {
        if !exam.holds && !self.state.map.is_busy(exam.chunk) && !planted(Bug::MendBesideWrite) {
            self.state.map.set_moving(exam.chunk, true);
            exam.holds = true;
        }
        exam.holds || planted(Bug::MendBesideWrite)
    }

    pub(super) fn let_chunk_go(&mut self, exam: &mut Exam) {
        if std::mem::take(&mut exam.holds) {
            self.state.map.set_moving(exam.chunk, false);
            self.drop_empty_home(exam.chunk);
            self.wanted.wake = true;
        }
    }

    fn run_was_read(
        &mut self,
        exam: &mut Exam,
        run: Range<usize>,
        buf: Buf,
        result: Result<(), DeviceError>,
    ) {
        for (n, look) in exam.looks[run].iter().enumerate() {
            let here = buf.slice(n as u32 * BLOCK_BYTES, BLOCK_BYTES);
            let tier = self.device_place(look).0;
            if let Some(slot) = look.unsummed() {
                if result.is_ok() {
                    self.learn_sum(exam, look, slot, here);
                }
            } else if result.is_ok() && self.is_as_it_should_be(exam.chunk, look, here) {
                self.read_well(tier);
            } else {
                let failed = result.is_err().then_some(self.io.good_reads[tier]);
                exam.doubts.push_back(Doubt { look: *look, failed, failures: 0, changes: 0 });
                self.want_probe(tier);
            }
            self.unpin_look(look);
        }
    }

    /// Whether what was read is what its checksum says, or, of a home beneath a part, what overwriting it has left.
    fn is_as_it_should_be(&self, chunk: Chunk, look: &Look, here: Buf) -> bool {
        if self.io.arena.crc32c(here) == look.sum {
            return true;
        }
        let block = self.state.map.join(chunk, look.block);
        matches!(look.held, Held::Home(_))
            && self
                .state
                .landed
                .get(block)
                .is_some_and(|z| self.is_torn(block, self.state.landed.sectors(z), here))
    }

    fn doubt_was_read(
        &mut self,
        exam: &mut Exam,
        mut doubt: Doubt,
        buf: Buf,
        result: Result<(), DeviceError>,
    ) {
        let look = doubt.look;
        let tier = self.device_place(&look).0;
        self.unpin_look(&look);
        if result.is_ok() && self.is_as_it_should_be(exam.chunk, &look, buf) {
            return self.read_well(tier);
        }
        if self.may_be_written(exam, &look) {
            return exam.doubts.push_back(doubt);
        }
        if self.has_changed(exam.chunk, &look) {
            doubt.changes += 1;
            return exam.doubts.push_back(doubt);
        }
        // What was read and is wrong is evidence by itself; a failure is none before the device has read something else.
        let good = self.io.good_reads[tier];
        if result.is_ok() || doubt.failed.is_some_and(|before| good > before) {
            let wrong = Wrong { look, was_read: result.is_ok() };
            exam.wrong.push(wrong);
            self.hold_chunk(exam);
            // What may stand in for others is dropped after them.
            return match wrong.look.held {
                Held::Landed(_) | Held::Home(_) => exam.to_judge.push_front(wrong),
                Held::Shadow(..) | Held::Copy(..) => exam.to_judge.push_back(wrong),
            };
        }
        doubt.failed = doubt.failed.or(Some(good));
        doubt.failures += 1;
        self.want_probe(tier);
        let silent = doubt.failures >= SILENT_FAILURES;
        if silent {
            self.let_chunk_go(exam);
        }
        self.mover.scrub.next_at = self.io.now.after(if silent { PAUSE_NS } else { WAIT_NS });
        exam.doubts.push_front(doubt);
        if silent {
            self.mover.scrub.pause = Some(ScrubPause::DeviceFails);
        }
    }

    /// Nothing is looked at any more; what is being read ends first.
    pub(super) fn drop_exam(&mut self) {
        if let Some(exam) = &mut self.mover.scrub.exam
            && self.front.mends.is_idle()
        {
            exam.mending = None;
        }
        if let Some(mut exam) = self.mover.scrub.exam.take_if(|exam| exam.waits_for_time()) {
            self.let_chunk_go(&mut exam);
        }
    }
}
