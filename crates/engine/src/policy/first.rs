//! The first policy: fast first; what is touched again and again rises; the coldest are pushed down.

use super::{FirstWrite, Policy, Touch, View};
use crate::hash::IndexMap;
use crate::moves::{Destination, Move};
use crate::options::Tuning;
use crate::units::*;
use std::collections::VecDeque;

/// Chunks that may rise, at most; the oldest give way.
const MAX_CANDIDATES: usize = 4096;
/// Slots looked at to find a cold one: enough that the coldest of them is in the coldest few per cent.
const SAMPLE: u32 = 64;
/// Heat halves when a chunk is left alone for this many touch intervals (an hour at the default).
const HALF_LIFE_TOUCHES: u32 = 3600;
/// A chunk rises only over one that is colder by this much, or the two would change places for ever.
const MARGIN: u32 = 1;

/// Heat of a chunk in four bytes: reads, writes, and when it was last touched.
#[derive(Clone, Copy, Default)]
struct Heat {
    reads: u8,
    writes: u8,
    last: u16,
}

impl Heat {
    fn faded(self, tick: u16) -> Heat {
        let halvings = (u32::from(tick.wrapping_sub(self.last)) / HALF_LIFE_TOUCHES).min(7);
        Heat { reads: self.reads >> halvings, writes: self.writes >> halvings, last: self.last }
    }
    fn total(self) -> u32 {
        u32::from(self.reads) + u32::from(self.writes)
    }
}

/// Fast first, then by heat.
pub struct FirstPolicy {
    heat: Vec<Heat>,
    candidates: VecDeque<Chunk>,
    queued: IndexMap<Chunk, ()>,
    hand: u32,
    touches: u32,
    touch_ns: u64,
    /// Fast slots kept free for what rises and what is written first.
    free_target: u32,
}

/// What the policy of a volume of so many chunks takes.
pub(crate) fn ram_bytes(chunks: u64) -> u64 {
    chunks * size_of::<Heat>() as u64 + MAX_CANDIDATES as u64 * 12
}

impl FirstPolicy {
    /// For a volume of `chunks` with `fast_slots`.
    pub fn new(chunks: u32, fast_slots: u32, tuning: &Tuning) -> FirstPolicy {
        FirstPolicy {
            heat: vec![Heat::default(); chunks as usize],
            candidates: VecDeque::new(),
            queued: IndexMap::default(),
            hand: 0,
            touches: tuning.promote_touches.max(1),
            touch_ns: tuning.touch_ns.max(1),
            free_target: (fast_slots / 64).max(1),
        }
    }

    fn tick(&self, now: Nanos) -> u16 {
        (now.0 / self.touch_ns) as u16
    }

    fn queue(&mut self, chunk: Chunk) {
        self.candidates.push_back(chunk);
        self.queued.insert(chunk, ());
    }

    /// The coldest owner among a sample of fast slots.
    fn victim(&mut self, view: &View<'_>, tick: u16, taken: &[Move]) -> Option<(Chunk, u32)> {
        let count = view.slots[0].count();
        let mut coldest: Option<(Chunk, u32)> = None;
        for _ in 0..SAMPLE.min(count) {
            self.hand = (self.hand + 1) % count;
            let Some(chunk) = view.slots[0].owner(Slot(self.hand)) else { continue };
            let busy = view.map.is_moving(chunk) || view.map.is_pending(chunk);
            let on_fast = view.map.home(chunk).is_some_and(|h| h.tier == FAST);
            if busy || !on_fast || taken.iter().any(|m| m.chunk == chunk) {
                continue;
            }
            let heat = self.heat[chunk.0 as usize].faded(tick).total();
            if coldest.is_none_or(|(_, c)| heat < c) {
                coldest = Some((chunk, heat));
            }
        }
        coldest
    }
}

impl Policy for FirstPolicy {
    fn touch(&mut self, touch: Touch, now: Nanos) {
        let tick = self.tick(now);
        let heat = &mut self.heat[touch.chunk.0 as usize];
        let fresh = heat.total() == 0;
        if touch.stream || !fresh && heat.last == tick {
            return;
        }
        *heat = heat.faded(tick);
        heat.last = tick;
        let counter = if touch.write { &mut heat.writes } else { &mut heat.reads };
        *counter = counter.saturating_add(1);
        if touch.on_fast || heat.total() < self.touches || self.queued.contains_key(&touch.chunk) {
            return;
        }
        if self.candidates.len() == MAX_CANDIDATES
            && let Some(oldest) = self.candidates.pop_front()
        {
            self.queued.remove(&oldest);
        }
        self.queue(touch.chunk);
    }

    fn wish(&mut self, chunk: Chunk, now: Nanos) -> bool {
        let tick = self.tick(now);
        let heat = &mut self.heat[chunk.0 as usize];
        *heat = heat.faded(tick);
        heat.last = tick;
        let missing = self.touches.saturating_sub(heat.total()).min(u32::from(u8::MAX));
        heat.reads = heat.reads.saturating_add(missing as u8);
        if self.queued.contains_key(&chunk) {
            return true;
        }
        if self.candidates.len() == MAX_CANDIDATES {
            return false;
        }
        self.queue(chunk);
        true
    }

    fn first_write(&self, _bytes: u32, fast_free: u32) -> FirstWrite {
        // The last free slot is for moves.
        if fast_free > 1 { FirstWrite::Fast } else { FirstWrite::Elsewhere }
    }

    fn settles_fast(&self, fast_free: u32) -> bool {
        fast_free > self.free_target
    }

    fn plan(&mut self, now: Nanos, view: &View<'_>, budget: usize, idle: bool) -> Vec<Move> {
        let tick = self.tick(now);
        let mut moves = Vec::new();
        let (mut free, mut down) = (view.slots[0].free(), 0);
        while moves.len() < budget
            && let Some(chunk) = self.candidates.front().copied()
        {
            let on_slow = view.map.home(chunk).is_some_and(|h| h.tier == SLOW);
            let heat = self.heat[chunk.0 as usize].faded(tick).total();
            if on_slow && heat >= self.touches && free == 0 {
                break;
            }
            self.candidates.pop_front();
            self.queued.remove(&chunk);
            if on_slow && heat >= self.touches {
                moves.push(Move { chunk, to: Destination::Tier(FAST) });
                free -= 1;
            }
        }
        let hottest = self.candidates.front().map(|c| self.heat[c.0 as usize].faded(tick).total());
        let slow_free = view.slots[1].free();
        while moves.len() < budget && free + down < self.free_target && down + 1 < slow_free {
            let Some((chunk, heat)) = self.victim(view, tick, &moves) else { break };
            let colder = hottest.is_some_and(|h| heat + MARGIN <= h);
            if !(colder || idle && hottest.is_none()) {
                if hottest.is_some()
                    && let Some(c) = self.candidates.pop_front()
                {
                    // Everything here is hotter: it may try again when it is touched again.
                    self.queued.remove(&c);
                }
                break;
            }
            moves.push(Move { chunk, to: Destination::Tier(SLOW) });
            down += 1;
        }
        moves
    }

    fn has_work(&self, fast_free: u32) -> bool {
        !self.candidates.is_empty() || fast_free < self.free_target
    }

    fn ram_bytes(&self) -> u64 {
        ram_bytes(self.heat.len() as u64)
    }
}
