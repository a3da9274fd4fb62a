//! Marks are kept: before what is flushed makes something stale that the slow device alone would call good, it says that it may
//! be stale; and when nobody has written there for a while, that it is good again.
//!
//! A round writes pages (`round.rs`), flushes, writes a header that names them, flushes. One that only opens regions is the
//! header alone. While one is under way others wait, and the next serves all of them.

mod round;

use crate::api::coverage::Stage;
use crate::api::options::{Marking, MarksStatus};
use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::engine::Engine;
use crate::format::page::PageRef;
use crate::path::piece::PieceKind;
use crate::volume::marks::MarkTable;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// Pages that one round writes at most, beside those of the directory: some tenths of a second of a disk.
const ROUND_PAGES: usize = 256;
/// Pause before regions are looked at again that something is under way with, ns.
const LOOK_AGAIN_NS: u64 = Nanos::SECOND / 2;
/// Pause after a write of marks that failed, ns: clients may wait for it.
const RETRY_NS: u64 = Nanos::SECOND;
/// Writes of marks that fail in a row before the volume goes read-only: no flush can be answered without them.
const MAX_FAILURES: u32 = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
enum MarkStage {
    #[default]
    Idle,
    Pages,
    Directory,
    FlushPages,
    Header,
    FlushHeader,
}

/// The marks of a volume that has them, and the round that is under way.
#[derive(Serialize, Deserialize)]
pub(crate) struct Marks {
    pub(crate) table: MarkTable,
    strict: bool,
    stage: MarkStage,
    /// Number of the last header that was made, ...
    made: u64,
    /// ... of the last one that is durable, ...
    durable: u64,
    /// ... and of the one that must be before a flush is answered.
    needed: u64,
    /// The place (0 or 1) of the header in force.
    place: u8,
    /// References to the pages of the directory in force.
    directory: Vec<PageRef>,
    /// Pages of the round that are to be written, ascending.
    todo: VecDeque<u32>,
    /// Versions that the round has written, in the order of their pages.
    moved: Vec<(u32, PageRef)>,
    /// Slots that these name, by chunk.
    named: Vec<(Chunk, Option<Slot>)>,
    bufs: IndexMap<u32, Buf>,
    flushing: bool,
    failed: bool,
    /// What failed was not answered in time.
    late: bool,
    failures: u32,
    retry_at: Option<Nanos>,
    /// When some region may be quiet, so that they are looked at; none where all are closed. And where that goes on.
    look_at: Option<Nanos>,
    look_from: u32,
    /// When the slow device was last used by others than the marks.
    used_at: Nanos,
    /// When it was last heard of at the end of a round.
    own_heard: Nanos,
}

/// A commit's wait for the marks: the header that must be durable before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MarkNeed(u64);

impl Marks {
    /// What is told of them.
    pub(crate) fn status(&self, chunk_bytes: u32) -> MarksStatus {
        let suspect_bytes = self.table.open_chunks() * u64::from(chunk_bytes);
        MarksStatus { strict: self.strict, suspect_bytes }
    }

    /// Of a volume that has just been opened: the header with this number, in this place, says that all may be stale.
    pub(crate) fn opened(
        table: MarkTable,
        marking: Marking,
        (number, place): (u64, u8),
        directory: Vec<PageRef>,
        now: Nanos,
    ) -> Marks {
        Marks {
            table,
            strict: marking == Marking::Strict,
            stage: MarkStage::Idle,
            made: number,
            durable: number,
            needed: number,
            place,
            directory,
            todo: VecDeque::new(),
            moved: Vec::new(),
            named: Vec::new(),
            bufs: IndexMap::default(),
            flushing: false,
            failed: false,
            late: false,
            failures: 0,
            retry_at: None,
            look_at: Some(now),
            look_from: 0,
            used_at: now,
            own_heard: now,
        }
    }

    /// Whether no round is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.stage == MarkStage::Idle && self.bufs.is_empty() && !self.flushing
    }

    /// Changes with every step.
    pub(crate) fn step(&self) -> impl PartialEq + use<> {
        (self.stage, self.todo.len(), self.bufs.len(), self.made, self.durable)
    }

    pub(crate) fn coverage(&self) -> Option<Stage> {
        match self.stage {
            MarkStage::Idle => None,
            MarkStage::Pages | MarkStage::Directory => Some(Stage::MarkPages),
            MarkStage::FlushPages => Some(Stage::MarkFlushPages),
            MarkStage::Header => Some(Stage::MarkHeader),
            MarkStage::FlushHeader => Some(Stage::MarkFlushHeader),
        }
    }

    /// Some region may be quiet then.
    fn look_by(&mut self, at: Nanos) {
        self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
    }

    /// What must be durable before a flush of what has changed so far is answered.
    fn need(&self) -> MarkNeed {
        MarkNeed(self.needed)
    }

    fn has(&self, need: MarkNeed) -> bool {
        self.durable >= need.0 || planted(Bug::FlushBeforeMark)
    }

    /// When the slow device counts as asleep, if others do not use it before, of the time after which it rests: before that marks
    /// say that all may be stale. Never for strict ones, which wake it, to call good what is good as well.
    fn falls_asleep_at(&self, rest_after_ns: u64) -> Option<Nanos> {
        (!self.strict).then(|| self.used_at.after(rest_after_ns / 2))
    }
}

impl<A: Arena> Engine<A> {
    /// A client's piece changes what its chunk holds from here on.
    pub(crate) fn mark_change(&mut self, kind: PieceKind, chunk: Chunk) {
        let (now, quiet_ns) = (self.io.now, self.tuning.marks_quiet_ns);
        let Some(marks) = self.marks.as_mut().filter(|_| kind != PieceKind::Read) else { return };
        if kind == PieceKind::Discard && planted(Bug::DiscardUnmarked) {
            return;
        }
        if marks.table.changes(chunk, now) {
            marks.needed = marks.made + 1;
        }
        marks.look_by(now.after(quiet_ns));
    }

    /// What must be durable before whoever flushes now is answered.
    pub(crate) fn mark_need(&self) -> MarkNeed {
        self.marks.as_ref().map_or(MarkNeed::default(), Marks::need)
    }

    /// Whether that is durable.
    pub(crate) fn has_marked(&self, need: MarkNeed) -> bool {
        self.marks.as_ref().is_none_or(|marks| marks.has(need))
    }

    /// A chunk has left this home: marks may name its slot.
    pub(crate) fn mark_left(&mut self, chunk: Chunk, home: Home) {
        if let Some(marks) = self.marks.as_mut().filter(|_| home.tier == SLOW) {
            marks.table.left(chunk, home.slot);
        }
    }

    /// Whether the marks hold back so many slots of the slow tier that they are to name them no longer.
    fn slots_are_short(&self) -> bool {
        let slots = &self.space.slots[SLOW];
        slots.held_by_marks() > slots.free() / 2
    }

    pub(crate) fn pump_marks(&mut self) {
        if self.marks.is_none() {
            return;
        }
        if self.life.is_read_only() {
            return self.give_up_round();
        }
        self.note_slow_use();
        let now = self.io.now;
        let Some(marks) = self.marks.as_mut() else { return };
        if marks.retry_at.is_some_and(|at| at > now) {
            return;
        }
        marks.retry_at = None;
        if marks.stage == MarkStage::Idle && !self.begin_round() {
            return;
        }
        self.step_round();
    }

    /// Sees whether others than the marks have used the slow device.
    fn note_slow_use(&mut self) {
        let heard = self.io.tokens.heard(SLOW);
        if let Some(marks) = self.marks.as_mut().filter(|marks| marks.is_idle() && heard > marks.own_heard) {
            (marks.used_at, marks.own_heard) = (heard, heard);
        }
    }

    /// Begins a round if one is due.
    fn begin_round(&mut self) -> bool {
        let (now, rest_after_ns) = (self.io.now, self.tuning.rest_after_ns);
        let short = self.slots_are_short();
        let ending = self.life.shutdown.began();
        let awaited = self.slow_is_busy();
        let Some(marks) = self.marks.as_mut() else { return false };
        let asleep = marks.falls_asleep_at(rest_after_ns).is_some_and(|at| now >= at);
        if marks.needed > marks.made {
            // A header alone.
        } else if !ending && !awaited && asleep && !marks.table.all_open() {
            // Who changes something there from here on waits for that header like who opens a region.
            marks.table.open_all();
            marks.needed = marks.made + 1;
            marks.look_by(now);
        } else if short && marks.table.stale().count() > 0 {
            // At the end, too: what is still to be written may need the slots.
            marks.todo = marks.table.stale().iter().take(ROUND_PAGES).collect();
        } else if !ending && !awaited && marks.look_at.is_some_and(|at| at <= now) && !asleep {
            if !self.choose_regions() {
                return false;
            }
        } else {
            return false;
        }
        let Some(marks) = self.marks.as_mut() else { return false };
        marks.failed = false;
        marks.stage = if marks.todo.is_empty() { MarkStage::Header } else { MarkStage::Pages };
        true
    }

    /// Whether the slow device has something to do.
    fn slow_is_busy(&self) -> bool {
        self.io.tokens.silent_since(SLOW).is_some()
    }

    /// Chooses regions that were quiet for long enough, and the pages that say what they hold.
    fn choose_regions(&mut self) -> bool {
        let changing: Vec<Chunk> = self
            .front
            .pieces
            .iter()
            .filter(|(_, piece)| piece.kind != PieceKind::Read)
            .map(|(_, piece)| piece.chunk)
            .collect();
        let (now, quiet) = (self.io.now, self.tuning.marks_quiet_ns);
        let map = &self.state.map;
        let Some(marks) = self.marks.as_mut() else { return false };
        let layout = marks.table.layout;
        let is_quiet = |table: &MarkTable, region: u32| {
            now.since(table.written(region)) >= quiet
                && !changing.iter().any(|chunk| layout.region_of(*chunk) == region)
                && !layout.chunks_in(region).any(|chunk| map.is_pending(Chunk(chunk)))
                || planted(Bug::ClosedAmidWrites)
        };
        let mut from = std::mem::take(&mut marks.look_from);
        // Of those that were passed before, it is not known when.
        marks.look_at = (from > 0).then(|| now.after(LOOK_AGAIN_NS));
        let mut pages = BTreeSet::new();
        while let Some(region) = marks.table.open().next(from) {
            from = region + 1;
            if !is_quiet(&marks.table, region) {
                let quiet_at = marks.table.written(region).after(quiet);
                marks.look_by(if quiet_at > now { quiet_at } else { now.after(LOOK_AGAIN_NS) });
                continue;
            }
            if pages.len() >= ROUND_PAGES {
                // There is more to do: at once.
                (marks.look_from, marks.look_at) = (region, Some(now));
                break;
            }
            let chunks = layout.chunks_in(region);
            pages.extend(layout.page_of(Chunk(chunks.start))..=layout.page_of(Chunk(chunks.end - 1)));
            marks.table.begin_closing(region);
        }
        if !marks.table.is_closing() {
            return false;
        }
        pages.extend(marks.table.stale().iter().take(ROUND_PAGES));
        marks.todo = pages.into_iter().collect();
        true
    }

    /// When a round is due, if nothing happens before.
    pub(crate) fn marks_deadline(&self) -> Option<Nanos> {
        let marks = self.marks.as_ref().filter(|_| !self.life.is_read_only())?;
        if marks.retry_at.is_some() || marks.stage != MarkStage::Idle || self.life.shutdown.began() {
            return marks.retry_at;
        }
        let falls_asleep_at = marks.falls_asleep_at(self.tuning.rest_after_ns);
        let sleeps = falls_asleep_at.filter(|_| !marks.table.all_open());
        let closes =
            marks.look_at.filter(|at| falls_asleep_at.is_none_or(|rest| self.io.now.max(*at) < rest));
        // While the device is at work its next answer comes first.
        let due = [sleeps, closes].into_iter().flatten().min();
        due.filter(|_| !self.slow_is_busy())
    }
}
