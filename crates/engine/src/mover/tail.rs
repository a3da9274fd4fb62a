//! The part of the zone that is being emptied: chunks with landed blocks in its oldest segments, in the order of their
//! homes on the slow device.
//!
//! Sorting the whole zone would free no segment until nearly all of it is written. Finding the chunks takes a look at
//! each block of those segments, so it is done a few segments at a time; sorting them is done by stretches of the slow
//! device, each when its turn comes, from both ends.

use crate::base::arena::Arena;
use crate::base::place::Place;
use crate::engine::Engine;
use crate::placement::policy::{Destination, Move, Policy as _};
use crate::volume::landed::ZoneBlock;
use crate::volume::map::Map;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Segments looked at in one step, of at most 1,024 blocks with up to two owners each, so that an engine call stays short.
const SEGMENTS_PER_STEP: usize = 16;
/// Stretches of the slow device by which chunks are sorted: at the default sizes, some hundreds of chunks in each.
const STRETCHES: usize = 1024;

/// The plan for the zone's tail.
#[derive(Default, Serialize, Deserialize)]
pub struct Tail {
    /// Segments that it was to empty.
    segments: u32,
    /// Segments that are still to be looked at, and whether the plan before was to empty them.
    unseen: VecDeque<(Place, bool)>,
    /// Chunks that were found, by stretch of the slow device. Those without a home there come first, and what is left of
    /// the plan before: nothing behind a segment with one block becomes free.
    stretches: Vec<Vec<Chunk>>,
    /// Stretches before this one are done, or in `ready`; ...
    next: usize,
    /// ... and so are so many from the end.
    from_end: usize,
    /// Whether they are taken from the end now, and how many more chunks before it is the other's turn.
    at_end: bool,
    turn: usize,
    /// Chunks of one stretch, sorted, the first one last.
    ready: Vec<Chunk>,
}

impl Tail {
    /// Whether segments are still to be looked at.
    pub fn is_gathering(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// Whether nothing that can be moved was found.
    pub fn is_void(&self) -> bool {
        self.stretches.iter().all(Vec::is_empty) && self.begun() == 0 && self.ready.is_empty()
    }

    /// Whether it is good enough where so many segments are to be emptied. Where the zone has grown since, a plan made now
    /// would have twice as much to sort; where only the oldest one counts, what was sorted is of no use.
    pub fn is_as_large_as(&self, tail_segments: u32) -> bool {
        self.segments * 2 > tail_segments && (tail_segments > 1 || self.segments == 1)
    }

    /// Takes chunks back that were the next ones; how many they are.
    pub(crate) fn put_back(&mut self, chunks: impl DoubleEndedIterator<Item = Chunk>) -> usize {
        let before = self.ready.len();
        self.ready.extend(chunks.rev());
        self.ready.len() - before
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.unseen.is_empty() && self.ready.is_empty() && self.begun() == self.stretches.len()
    }

    fn begun(&self) -> usize {
        self.next + self.from_end
    }

    /// Goes on to the next stretch that is to be sorted, so many chunks from one end before it is the other's turn.
    fn take_stretch(&mut self, turn_chunks: u32) {
        if self.turn == 0 {
            self.turn = turn_chunks as usize;
            self.at_end = self.begun() > 0 && !self.at_end;
        }
        let taken = if self.at_end {
            self.from_end += 1;
            self.stretches.len() - self.from_end
        } else {
            self.next += 1;
            self.next - 1
        };
        self.ready = std::mem::take(&mut self.stretches[taken]);
        self.turn = self.turn.saturating_sub(self.ready.len());
    }
}

impl<A: Arena> Engine<A> {
    /// Chooses the segments that are to be emptied next.
    pub(crate) fn choose_tail_segments(&mut self) {
        self.decide_to_say_losses();
        let zone = &self.state.zone;
        let segments = self.tail_segments() as usize;
        // A segment that only lost blocks are left in must not be all that is looked at.
        let again = self.losses_are_said_again();
        let worth = |place: &&Place| zone.get(**place).live > if again { 0 } else { zone.get(**place).lost };
        let oldest = zone.chain().iter().filter(worth).take(segments).copied();
        let unseen: VecDeque<_> = oldest.map(|place| (place, zone.is_emptying(place))).collect();
        let written = self.log.place;
        unseen
            .iter()
            .filter(|(place, _)| *place != written)
            .for_each(|(place, _)| self.state.zone.begin_emptying(*place));
        self.mover.planner.tail = Tail {
            segments: segments as u32,
            unseen,
            stretches: vec![Vec::new(); STRETCHES + 1],
            ..Tail::default()
        };
    }

    /// Looks at a few segments.
    pub(crate) fn gather_tail(&mut self) {
        let tail = &mut self.mover.planner.tail;
        let count = tail.unseen.len().min(SEGMENTS_PER_STEP);
        let seen: Vec<(Place, bool)> = tail.unseen.drain(..count).collect();
        let blocks = 2..2 * self.state.geo.area_blocks();
        let mut last = None;
        for ((place, is_left), half) in seen.iter().flat_map(|p| blocks.clone().map(|b| (*p, b))) {
            let first = self.state.zone.zone_block(place, half / 2);
            let z: ZoneBlock = if half % 2 == 0 { first } else { first.second() };
            let Some(owner) = self.state.landed.owner(z) else { continue };
            let chunk = self.state.map.split(owner).0;
            if last == Some(chunk) || self.state.landed.is_bad(z) && !self.holds_tail(z) {
                continue;
            }
            last = Some(chunk);
            // It stays where it is, until its home is there.
            if self.lacks_slow() && self.slow_slot(chunk).is_some() {
                continue;
            }
            let slot = self.slow_slot(chunk).filter(|_| !is_left).map(|slot| u64::from(slot.0));
            let slots = u64::from(self.space.slots[SLOW].count());
            let stretch = slot.map_or(0, |slot| 1 + (slot * STRETCHES as u64 / slots) as usize);
            self.mover.planner.tail.stretches[stretch].push(chunk);
        }
    }

    fn slow_slot(&self, chunk: Chunk) -> Option<Slot> {
        self.state.map.home(chunk).filter(|home| home.tier == SLOW).map(|home| home.slot)
    }

    /// Takes up to so many chunks of the tail, and their neighbours with landed blocks, in the order of their homes.
    pub(crate) fn take_tail(&mut self, most: usize) -> Vec<Move> {
        let mut chunks = Vec::new();
        while chunks.len() < most && !self.mover.planner.tail.is_empty() {
            let (tail, economy) = (&mut self.mover.planner.tail, &self.tuning.economy);
            let Some(chunk) = tail.ready.pop() else {
                tail.take_stretch(economy.merge_turn_chunks);
                // By now what comes first is merged: with a checkpoint, what it held up becomes free.
                self.wanted.checkpoint |= tail.begun() == economy.merge_checkpoint_stretches as usize;
                let map = &self.state.map;
                tail.ready.sort_unstable_by_key(|chunk| std::cmp::Reverse(place_of(map, *chunk)));
                tail.ready.dedup();
                continue;
            };
            if self.state.map.may_be_landed(chunk) && !chunks.contains(&chunk) {
                self.add_neighbourhood(chunk, most, &mut chunks);
            }
        }
        chunks.sort_unstable_by_key(|chunk| place_of(&self.state.map, *chunk));
        let (view, mut fast_free) = (self.view(), self.space.slots[FAST].free());
        let mut may_rise = view.may_rise;
        chunks
            .into_iter()
            .map(|chunk| {
                // It costs the disk one long read where merging costs it a short write, and the last of its kind: writes
                // find the chunk on the fast device from then on.
                let rises = may_rise > 0
                    && self.placement.policy.rises_at_destage(chunk, self.io.now, &view, fast_free);
                (fast_free, may_rise) = (fast_free - u32::from(rises), may_rise - usize::from(rises));
                Move { chunk, to: if rises { Destination::Tier(FAST) } else { Destination::Merge } }
            })
            .collect()
    }

    fn add_neighbourhood(&self, chunk: Chunk, most: usize, chunks: &mut Vec<Chunk>) {
        chunks.push(chunk);
        let Some(slot) = self.slow_slot(chunk) else { return };
        let reach = (self.tuning.economy.merge_neighbourhood_bytes / self.state.geo.chunk_bytes).max(1);
        let last = (chunk.0.saturating_add(reach)).min(self.state.geo.chunks - 1);
        for near in (chunk.0.saturating_sub(reach)..=last).map(Chunk) {
            let beside = |other: Slot| other.0.abs_diff(slot.0) <= reach;
            if chunks.len() < most
                && self.state.map.may_be_landed(near)
                && self.slow_slot(near).is_some_and(beside)
                && !chunks.contains(&near)
            {
                chunks.push(near);
            }
        }
    }
}

/// What chunks are sorted by: where their homes lie, those without one first.
fn place_of(map: &Map, chunk: Chunk) -> (Option<(Tier, Slot)>, Chunk) {
    (map.home(chunk).map(|home| (home.tier, home.slot)), chunk)
}
