//! What is pinned and lies elsewhere is moved, ahead of what heat asks for.

use super::Pins;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Pause after a pass over all pins that left some where they were, ns: they were busy, or could not be moved.
const PAUSE_NS: u64 = Nanos::SECOND;

/// How far the pass over all pinned chunks has come.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Placing {
    /// Some pinned chunk may lie elsewhere.
    pub(crate) astray: bool,
    /// Such a one was seen in this pass, or made behind it.
    pub(crate) again: bool,
    /// The range that is looked at, and the chunk in it.
    pub(crate) range: usize,
    pub(crate) within: u32,
    /// No pass begins before this.
    pub(crate) not_before: Nanos,
}

impl Placing {
    /// A pass over all pins, if there are any.
    pub(crate) fn begin(astray: bool) -> Placing {
        Placing { astray, ..Placing::default() }
    }
}

impl Pins {
    /// Whether a pinned chunk may lie on another tier.
    pub(crate) fn are_astray(&self) -> bool {
        self.placing.astray
    }

    /// A chunk has a home on this tier from here on.
    pub(crate) fn placed(&mut self, chunk: Chunk, tier: Tier) {
        if !self.list.allows(chunk, tier) {
            (self.placing.astray, self.placing.again) = (true, true);
        }
    }

    /// The next pinned chunk of the pass.
    pub(crate) fn next(&mut self) -> Option<(Chunk, Tier)> {
        let range = self.list.ranges().get(self.placing.range)?;
        let chunk = Chunk(range.first.0 + self.placing.within);
        self.placing.within += 1;
        if self.placing.within == range.count {
            (self.placing.range, self.placing.within) = (self.placing.range + 1, 0);
        }
        Some((chunk, range.tier))
    }

    pub(crate) fn end_pass(&mut self, now: Nanos) {
        let placing = &mut self.placing;
        (placing.range, placing.within) = (0, 0);
        placing.astray = std::mem::take(&mut placing.again);
        placing.not_before = now.after(PAUSE_NS);
    }
}
