//! Decisions are remembered, and why a chunk is where it is.

use crate::api::why::{Coldest, Decision, Outcome, Reason, Why};
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::placement::policy::{Destination, Move, Policy as _};
use crate::volume::sums::Lookup;
use bimetal_units::*;

/// Fast slots looked at for the coldest chunk: a fraction of a millisecond.
const SLOTS_LOOKED_AT: u32 = 16 << 10;

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

    /// What the mover decided of late, the newest first: of so many chunks at most.
    pub fn decisions(&self, most: usize) -> Vec<(Chunk, Decision)> {
        self.told.decisions.recent(most)
    }

    /// Whether what a home on the fast tier holds of the block with this byte is held against a checksum when it is read now.
    pub fn has_fast_checksum(&mut self, offset: u64) -> bool {
        let (chunk, block) = self.state.map.split(Block(offset / u64::from(BLOCK_BYTES)));
        let home = self.state.map.home(chunk).filter(|home| home.tier == FAST);
        let known = home.and_then(|home| self.state.sums.of_fast(home.slot, block));
        matches!(known, Some(Lookup::Known(_)))
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
            rises_at: self.rises_at(),
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
            moves_paused: self.mover.planner.is_paused(),
            wear_budget_spent: !self.mover.planner.is_paused() && self.may_rise() == 0,
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
