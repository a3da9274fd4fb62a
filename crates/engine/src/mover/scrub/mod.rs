//! Scrub: every block that has a checksum is read and held against it, chunk by chunk, wherever a value of it is held: in the
//! log, in its home, in the home's shadow, in a clean copy. What is wrong is repaired where something else holds the same, or
//! noted. It is begun when somebody asks, and goes on after a restart where it was.
//!
//! It takes a part of the devices' time while clients are about, wakes no slow device that is at rest, and keeps none awake for
//! long. What a client's read found wrong is looked after in the same way, whether a scrub is under way or not.

mod exam;
mod judge;
mod keep;
mod learn;

use crate::api::coverage::Stage;
use crate::api::scrub::{ScrubPause, ScrubState, ScrubStatus};
use crate::base::arena::Arena;
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::format::scrub::{MAX_RANGE_BLOCKS, MAX_SCRUB_RANGES, ScrubMark, ScrubPage};
use crate::placement::policy::Pace;
use bimetal_units::*;
use exam::Exam;
use keep::Keep;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Chunks in which clients' reads found something wrong that wait to be looked at, at most: others are found again.
const MAX_DOUBTS: usize = 64;
/// Chunks that hold nothing that are passed in one call at most, so that calls stay short.
const CHUNKS_PER_CALL: u32 = 4096;
/// Steps of one call at most.
const STEPS_PER_CALL: u32 = 64;
/// How soon it is tried again what something was in the way of, ns.
const WAIT_NS: u64 = 100 * Nanos::MS;
/// How soon it is tried again where the zone is short, or a device fails whatever it is asked for, ns.
const PAUSE_NS: u64 = 5 * Nanos::SECOND;

/// Bytes in one range of what is lost at most.
const MAX_RANGE_BYTES: u64 = MAX_RANGE_BLOCKS * BLOCK_BYTES as u64;

/// A scrub, and what is looked at.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Scrub {
    /// What is known of the last one.
    page: ScrubPage,
    keep: Keep,
    /// Chunks in which clients' reads found something wrong.
    doubts: VecDeque<Chunk>,
    exam: Option<Box<Exam>>,
    /// Nothing is read before this.
    next_at: Nanos,
    pause: Option<ScrubPause>,
    /// Since when it is under way in this opening, and from which chunk on.
    since: Option<(Nanos, Chunk)>,
    /// Blocks that were repaired since open, by whomever they were found.
    pub(crate) repaired: u64,
}

/// Drivers count from 1970.
fn unix_s(now: Nanos) -> u64 {
    now.0 / Nanos::SECOND
}

impl Scrub {
    /// As an opening found it.
    pub(crate) fn found(page: ScrubPage) -> Scrub {
        Scrub { page, ..Scrub::default() }
    }

    /// Whether nothing is looked at, and nothing is written of it.
    pub(crate) fn is_still(&self) -> bool {
        self.exam.is_none() && self.keep.is_still()
    }

    fn is_running(&self) -> bool {
        self.page.mark == ScrubMark::Running
    }

    /// These bytes of the volume are lost.
    fn lose(&mut self, range: std::ops::Range<u64>) {
        let has_room = self.page.lost.len() < MAX_SCRUB_RANGES;
        match self.page.lost.last_mut() {
            Some(last) if last.end == range.start && range.end - last.start <= MAX_RANGE_BYTES => {
                last.end = range.end;
            }
            _ if has_room => self.page.lost.push(range),
            _ => self.page.unlisted_bytes += range.end - range.start,
        }
    }

    /// What is under way, for coverage.
    pub(crate) fn coverage(&self, f: &mut dyn FnMut(Stage)) {
        if self.exam.as_ref().is_some_and(|exam| exam.reading.is_some()) {
            f(Stage::ScrubRead);
        }
        if !self.keep.is_still() {
            f(Stage::ScrubKeep);
        }
    }

    /// Something was found in this chunk.
    pub(crate) fn doubt(&mut self, chunk: Chunk) {
        if self.doubts.len() < MAX_DOUBTS && !self.doubts.contains(&chunk) {
            self.doubts.push_back(chunk);
        }
    }
}

impl<A: Arena> Engine<A> {
    /// Begins a scrub from the first chunk on, or goes on with the one that is under way.
    pub(crate) fn start_scrub(&mut self) {
        if self.mover.scrub.is_running() {
            return;
        }
        let (now, whole_unix_s) = (self.io.now, self.mover.scrub.page.whole_unix_s);
        let scrub = &mut self.mover.scrub;
        let begun_unix_s = unix_s(now);
        scrub.page =
            ScrubPage { mark: ScrubMark::Running, begun_unix_s, whole_unix_s, ..ScrubPage::default() };
        scrub.since = None;
        // What the one before has seen of a chunk may have gone bad since.
        if let Some(exam) = &mut scrub.exam {
            exam.scrubs = planted(Bug::ScrubTrustsEarlier);
        }
        scrub.keep.want(now);
    }

    /// Stops it. False: there is none.
    pub(crate) fn end_scrub(&mut self) -> bool {
        let now = self.io.now;
        let scrub = &mut self.mover.scrub;
        let running = scrub.is_running();
        if running {
            scrub.page.mark = ScrubMark::Stopped;
            scrub.keep.want(now);
        }
        running
    }

    pub(crate) fn scrub_status(&self) -> ScrubStatus {
        let (scrub, chunks) = (&self.mover.scrub, self.state.geo.chunks);
        let page = &scrub.page;
        let state = match page.mark {
            ScrubMark::Never => ScrubState::Never,
            ScrubMark::Running if self.life.is_read_only() => ScrubState::Paused(ScrubPause::ReadOnly),
            ScrubMark::Running => scrub.pause.map_or(ScrubState::Running, ScrubState::Paused),
            ScrubMark::Stopped => ScrubState::Stopped,
            ScrubMark::Whole => ScrubState::Whole,
        };
        let known = |unix_s: u64| (unix_s > 0).then_some(unix_s);
        let rate = scrub.since.filter(|_| scrub.is_running()).and_then(|(since, from)| {
            let took_s = self.io.now.since(since) / Nanos::SECOND;
            let bytes = u64::from(page.next.0 - from.0) * u64::from(self.state.geo.chunk_bytes);
            bytes.checked_div(took_s).filter(|rate| *rate > 0)
        });
        ScrubStatus {
            state,
            done_chunks: page.next.0,
            chunks,
            begun_unix_s: known(page.begun_unix_s),
            whole_unix_s: known(page.whole_unix_s),
            wrong_blocks: page.wrong,
            repaired_blocks: page.repaired,
            lost: page.lost.clone(),
            unlisted_bytes: page.unlisted_bytes,
            bytes_per_s: rate,
        }
    }

    /// Whether nothing is looked at any more until the volume is opened again.
    fn scrub_is_over(&self) -> bool {
        self.moves_are_over() || self.life.shutdown.began() || self.lacks_slow()
    }

    pub(crate) fn pump_scrub(&mut self) {
        self.pump_scrub_keep();
        if self.scrub_is_over() {
            return self.drop_exam();
        }
        for _ in 0..STEPS_PER_CALL {
            if self.mover.scrub.exam.is_none() && !self.begin_exam() || !self.step_exam() {
                return;
            }
        }
        // Others have their turn.
        self.mover.scrub.next_at = Nanos(self.io.now.0 + 1);
    }

    /// Chooses what is looked at next. False: there is nothing, or not in this call.
    fn begin_exam(&mut self) -> bool {
        if let Some(chunk) = self.mover.scrub.doubts.pop_front() {
            self.mover.scrub.exam = Some(Box::new(Exam::of(chunk, false)));
            return true;
        }
        if !self.mover.scrub.is_running() {
            return false;
        }
        let (now, chunks) = (self.io.now, self.state.geo.chunks);
        let next = self.mover.scrub.page.next;
        self.mover.scrub.since.get_or_insert((now, next));
        for _ in 0..CHUNKS_PER_CALL {
            let next = self.mover.scrub.page.next;
            if next.0 >= chunks {
                self.scrub_is_whole();
                return false;
            }
            if !self.state.map.is_blank(next) {
                self.mover.scrub.exam = Some(Box::new(Exam::of(next, true)));
                return true;
            }
            self.mover.scrub.page.next.0 += 1;
        }
        self.mover.scrub.next_at = Nanos(now.0 + 1);
        false
    }

    fn scrub_is_whole(&mut self) {
        let now = self.io.now;
        let scrub = &mut self.mover.scrub;
        scrub.page.mark = ScrubMark::Whole;
        scrub.page.whole_unix_s = unix_s(now);
        scrub.keep.want(now);
    }

    /// Whether something may be read of a device now; where not, and that is not over by itself soon, it is noted why.
    fn scrub_may_read(&mut self, tier: Tier) -> bool {
        if self.io.now < self.mover.scrub.next_at {
            return false;
        }
        if self.pace() == Pace::Short {
            self.mover.scrub.pause = Some(ScrubPause::ZoneShort);
            self.mover.scrub.next_at = self.io.now.after(PAUSE_NS);
            return false;
        }
        if tier == SLOW && !self.scrub_may_use_slow() {
            self.mover.scrub.pause = Some(ScrubPause::SlowAtRest);
            return false;
        }
        true
    }

    /// Whether the slow device is awake, and clients have used it of late: a scrub neither wakes it nor keeps it awake for long.
    fn scrub_may_use_slow(&self) -> bool {
        let used = self.io.tokens.used_by_clients(SLOW);
        !self.io.tokens.rests(SLOW, self.io.now) && self.io.now.since(used) < self.tuning.scrub_awake_ns
    }

    /// A device has worked for so long: others have it for some time, unless there is nobody.
    fn scrub_has_read(&mut self, took_ns: u64) {
        let share = if self.is_idle() { 1 } else { u64::from(self.tuning.scrub_share.max(1)) };
        self.mover.scrub.next_at = self.io.now.after(took_ns.saturating_mul(share - 1).min(PAUSE_NS));
    }

    /// When it wants to be called again.
    pub(crate) fn scrub_deadline(&self) -> Option<Nanos> {
        let scrub = &self.mover.scrub;
        if self.scrub_is_over() {
            return None;
        }
        let waits = scrub
            .exam
            .as_ref()
            .map_or(scrub.is_running() || !scrub.doubts.is_empty(), |exam| exam.waits_for_time());
        let next = Some(scrub.next_at).filter(|at| waits && *at > self.io.now);
        let kept = scrub.keep_deadline().filter(|at| *at > self.io.now);
        next.into_iter().chain(kept).min()
    }
}
