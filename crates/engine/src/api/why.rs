//! Why a chunk is where it is: what is known of it now, and what the mover last decided about it.
//!
//! What is remembered is bounded and of this opening only; what is not known is not claimed.

use crate::base::arena::Arena;
use crate::base::hash::IndexMap;
use crate::engine::Engine;
use crate::mover::moves::{Destination, Move};
use bimetal_units::*;
use std::collections::VecDeque;

/// Decisions remembered, each of another chunk.
const MAX_DECISIONS: usize = 2048;
/// What they take at most, bytes: an entry of the table with its spare room, and its place in the queue.
pub(crate) const RAM_BYTES: u64 = MAX_DECISIONS as u64 * 256;
/// Fast slots looked at for the coldest chunk: a fraction of a millisecond.
const SLOTS_LOOKED_AT: u32 = 16 << 10;

/// Why the mover moves a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was touched often enough to rise.
    Hot,
    /// The slow tier was short of free slots, and the fast tier had some.
    Refill,
    /// It was among the coldest when the fast tier was short of free slots, or something hotter rose.
    Cold,
    /// It was pinned to the other tier.
    Pinned,
    /// It was among the coldest when something pinned to the fast tier needed a slot.
    MakesRoom,
    /// It was in a cold run whose place the landing zone borrowed.
    ZoneGrows,
    /// It had landed, and was given a home.
    Landed,
}

/// How far a move has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It goes on.
    UnderWay,
    /// The chunk is there.
    Moved,
    /// It stayed: something else was under way with it, there was no room, the wear budget was spent, or a device failed.
    NotMoved,
}

/// What the mover decided about a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    /// When, on the driver's clock.
    pub at: Nanos,
    /// Where to.
    pub to: Tier,
    /// Why.
    pub reason: Reason,
    /// The chunk's heat then.
    pub heat: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// The home that it brought the chunk to.
    pub home: Option<Home>,
}

/// Decisions of the mover, the newest for each chunk.
pub(crate) struct Decisions {
    opened: Nanos,
    number: u64,
    order: VecDeque<(Chunk, u64)>,
    newest: IndexMap<Chunk, (u64, Decision)>,
}

impl Decisions {
    /// None yet, of a volume opened now.
    pub(crate) fn new(opened: Nanos) -> Decisions {
        Decisions { opened, number: 0, order: VecDeque::new(), newest: IndexMap::default() }
    }

    fn remember(&mut self, chunk: Chunk, decision: Decision) {
        self.number += 1;
        self.order.push_back((chunk, self.number));
        self.newest.insert(chunk, (self.number, decision));
        while self.order.len() > MAX_DECISIONS {
            let Some((chunk, number)) = self.order.pop_front() else { return };
            if self.newest.get(&chunk).is_some_and(|(newest, _)| *newest == number) {
                self.newest.remove(&chunk);
            }
        }
    }
}

/// The coldest chunk on the fast tier that may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coldest {
    /// Its heat.
    pub heat: u32,
    /// Whether all of the tier was looked at, or only a sample.
    pub of_all: bool,
}

/// What is known of a chunk.
#[derive(Clone, PartialEq, Debug)]
pub struct Why {
    /// The chunk's number.
    pub chunk: Chunk,
    /// Its first byte in the volume.
    pub offset: u64,
    /// Bytes per chunk.
    pub chunk_bytes: u32,
    /// Where it is at home.
    pub home: Option<Home>,
    /// Where on that device, bytes.
    pub home_offset: Option<u64>,
    /// Blocks that its home holds.
    pub home_blocks: u32,
    /// Blocks whose newest copy is in the landing zone.
    pub landed_blocks: u32,
    /// Blocks with a clean copy on the fast tier, which serves reads of them.
    pub copied_blocks: u32,
    /// Where on the slow device it has a shadow, bytes: going down costs nothing until it is written.
    pub shadow_offset: Option<u64>,
    /// It was written to this tier, and no record says so yet.
    pub pending: Option<Tier>,
    /// The mover is at work on it.
    pub moving: bool,
    /// Where it is pinned to.
    pub pinned: Option<Tier>,
    /// How hot it is.
    pub heat: u32,
    /// The heat from which on a chunk on the slow tier may rise.
    pub rises_at: u32,
    /// Touches within this long count once, nanoseconds.
    pub touch_ns: u64,
    /// The coldest on the fast tier.
    pub coldest: Option<Coldest>,
    /// Fast slots that are free.
    pub fast_free_slots: u32,
    /// Since when it is at home there, where the mover remembers having brought it.
    pub since: Option<Nanos>,
    /// When the volume was opened; heat counts from there.
    pub opened: Nanos,
    /// The mover's last decision about it, where it is remembered.
    pub last: Option<Decision>,
    /// The volume takes no writes: nothing moves.
    pub read_only: bool,
    /// Clients are being served: chunks are moved only in a part of the time.
    pub busy: bool,
    /// More lands than is brought home: nothing else is moved while clients are being served.
    pub zone_runs_short: bool,
    /// The wear budget is spent: nothing rises but what is pinned.
    pub wear_budget_spent: bool,
    /// When it will last for something again; none where it is not spent, or never will.
    pub rises_again: Option<Nanos>,
}

impl<A: Arena> Engine<A> {
    /// Remembers moves that are about to begin, and why.
    pub(crate) fn decide(&mut self, moves: &[Move], reason: impl Fn(&Move) -> Reason) {
        for m in moves {
            if let Destination::Tier(to) = m.to
                && !self.state.map.is_busy(m.chunk)
            {
                let heat = self.placement.policy.heat(m.chunk, self.io.now);
                let decision = Decision {
                    at: self.io.now,
                    to,
                    reason: reason(m),
                    heat,
                    outcome: Outcome::UnderWay,
                    home: None,
                };
                self.told.decisions.remember(m.chunk, decision);
            }
        }
    }

    /// The same for what the policy chose.
    pub(crate) fn decide_by_heat(&mut self, moves: &[Move]) {
        let hot: Vec<bool> = moves
            .iter()
            .map(|m| self.placement.policy.heat(m.chunk, self.io.now) >= self.tuning.promote_touches.max(1))
            .collect();
        for (m, hot) in moves.iter().zip(hot) {
            let reason = match m.to {
                Destination::Tier(FAST) if hot => Reason::Hot,
                Destination::Tier(FAST) => Reason::Refill,
                _ => Reason::Cold,
            };
            self.decide(std::slice::from_ref(m), |_| reason);
        }
    }

    /// A move has ended.
    pub(crate) fn decided(&mut self, chunk: Chunk, from: Option<Home>, home: Option<Home>, moved: bool) {
        let at = self.io.now;
        if let Some((_, decision)) = self.told.decisions.newest.get_mut(&chunk)
            && decision.outcome == Outcome::UnderWay
        {
            decision.at = at;
            decision.outcome = if moved { Outcome::Moved } else { Outcome::NotMoved };
            decision.home = home.filter(|_| moved);
        } else if let (None, Some(home), true) = (from, home, moved) {
            let heat = self.placement.policy.heat(chunk, at);
            let outcome = Outcome::Moved;
            self.told.decisions.remember(
                chunk,
                Decision { at, to: home.tier, reason: Reason::Landed, heat, outcome, home: Some(home) },
            );
        }
    }

    /// What is known of the chunk with this byte; none behind the volume's end. Looks at a bounded number of slots.
    pub fn why(&mut self, now: Nanos, offset: u64) -> Option<Why> {
        self.io.tick(now);
        if offset >= self.size_bytes() {
            return None;
        }
        let (geo, map) = (&self.state.geo, &self.state.map);
        let chunk = Chunk((offset / u64::from(geo.chunk_bytes)) as u32);
        let home = map.home(chunk);
        let last = self.told.decisions.newest.get(&chunk).map(|(_, decision)| *decision);
        // A chunk that was written anew since has another slot, or none.
        let arrived = |d: &Decision| home.is_some() && d.home == home;
        Some(Why {
            chunk,
            offset: u64::from(chunk.0) * u64::from(geo.chunk_bytes),
            chunk_bytes: geo.chunk_bytes,
            home,
            home_offset: home.map(|home| geo.slot_at(home)),
            home_blocks: map.valid(chunk).count(),
            landed_blocks: self.state.landed_in(chunk).len() as u32,
            copied_blocks: self.mover.copies.blocks_of(chunk),
            shadow_offset: home
                .and_then(|home| self.space.shadows.get(home))
                .map(|slot| geo.slot_at(Home { tier: SLOW, slot })),
            pending: self.space.pending.get(chunk).map(|pending| pending.home.tier),
            moving: map.is_moving(chunk),
            pinned: self.placement.pins.list().tier_of(chunk),
            heat: self.placement.policy.heat(chunk, self.io.now),
            rises_at: self.tuning.promote_touches.max(1),
            touch_ns: self.tuning.touch_ns,
            coldest: self.coldest_on_fast(),
            fast_free_slots: self.space.slots[FAST].free(),
            since: last.filter(arrived).map(|decision| decision.at),
            opened: self.told.decisions.opened,
            last,
            read_only: self.life.is_read_only(),
            // Opening counts as the last request; nobody has asked for anything then.
            busy: !self.is_idle() && self.front.last_client > self.told.decisions.opened,
            zone_runs_short: self.zone_runs_short(),
            wear_budget_spent: self.may_rise() == 0,
            rises_again: self.rises_again(),
        })
    }

    fn coldest_on_fast(&self) -> Option<Coldest> {
        let slots = &self.space.slots[FAST];
        let stride = slots.count().div_ceil(SLOTS_LOOKED_AT).max(1);
        let owners = (0..slots.count()).step_by(stride as usize).filter_map(|slot| slots.owner(Slot(slot)));
        // The owner of a slot may have no more than a copy there.
        let movable = owners.filter(|chunk| {
            self.state.map.is_on(*chunk, FAST) && self.placement.pins.list().allows(*chunk, SLOW)
        });
        let heat = movable.map(|chunk| self.placement.policy.heat(chunk, self.io.now)).min()?;
        Some(Coldest { heat, of_all: stride == 1 })
    }
}
