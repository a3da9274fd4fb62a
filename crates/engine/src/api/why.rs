//! Why a chunk is where it is: what is known of it now, and what the mover last decided about it.
//!
//! What is remembered is bounded and of this opening only; what is not known is not claimed.

use crate::base::hash::IndexMap;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Decisions remembered, each of another chunk.
const MAX_DECISIONS: usize = 2048;

/// What they take at most, bytes: an entry of the table with its spare room, and its place in the queue.
pub(crate) const RAM_BYTES: u64 = MAX_DECISIONS as u64 * 256;

/// Why the mover moves a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// It goes on.
    UnderWay,
    /// The chunk is there.
    Moved,
    /// It stayed: something else was under way with it, there was no room, the wear budget was spent, or a device failed.
    NotMoved,
}

/// What the mover decided about a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Serialize, Deserialize)]
pub(crate) struct Decisions {
    pub(crate) opened: Nanos,
    number: u64,
    order: VecDeque<(Chunk, u64)>,
    pub(crate) newest: IndexMap<Chunk, (u64, Decision)>,
}

impl Decisions {
    /// None yet, of a volume opened now.
    pub(crate) fn new(opened: Nanos) -> Decisions {
        Decisions { opened, number: 0, order: VecDeque::new(), newest: IndexMap::default() }
    }

    /// The newest first, so many at most.
    pub(crate) fn recent(&self, most: usize) -> Vec<(Chunk, Decision)> {
        let newest = self.order.iter().rev().filter_map(|(chunk, number)| {
            let (of_newest, decision) = self.newest.get(chunk)?;
            (of_newest == number).then_some((*chunk, *decision))
        });
        newest.take(most).collect()
    }

    pub(crate) fn remember(&mut self, chunk: Chunk, decision: Decision) {
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
    /// When the volume was opened; after a crash, heat counts from there.
    pub opened: Nanos,
    /// The mover's last decision about it, where it is remembered.
    pub last: Option<Decision>,
    /// The volume takes no writes: nothing moves.
    pub read_only: bool,
    /// Clients are being served: chunks are moved only in a part of the time.
    pub busy: bool,
    /// More lands than is brought home: nothing else is moved while clients are being served.
    pub zone_runs_short: bool,
    /// Whether somebody has paused moves.
    pub moves_paused: bool,
    /// The wear budget is spent: nothing rises but what is pinned.
    pub wear_budget_spent: bool,
    /// When it will last for something again; none where it is not spent, or never will.
    pub rises_again: Option<Nanos>,
}
