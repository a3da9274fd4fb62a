//! Slots that are left, and not free yet: somebody still reads there, or what took their place is not durable.

use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// A slot on its way to being free.
#[derive(Serialize, Deserialize)]
pub(crate) struct Leaving {
    pub(crate) home: Home,
    /// Free when this group is durable.
    pub(crate) after: Seq,
    /// Whether to give its space back to the device first.
    pub(crate) trim: bool,
}

/// Slots on their way to being free.
#[derive(Default, Serialize, Deserialize)]
pub struct Gate {
    leaving: VecDeque<Leaving>,
    /// Of them, those of the slow tier.
    slow: u32,
    /// Since when there has been one that waits.
    pub(crate) leaving_since: Option<Nanos>,
    /// Discards in flight.
    pub(crate) trims: u32,
}

impl Gate {
    /// Slots that wait for a flush or a read.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// The same of the slow tier alone.
    pub(crate) fn leaving_slow(&self) -> u32 {
        self.slow
    }

    /// One more waits, behind all others.
    pub(crate) fn push(&mut self, leaving: Leaving) {
        self.slow += u32::from(leaving.home.tier == SLOW);
        self.leaving.push_back(leaving);
    }

    /// The one that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<Leaving> {
        let first = self.leaving.pop_front()?;
        self.slow -= u32::from(first.home.tier == SLOW);
        Some(first)
    }

    /// The groups that they wait for.
    pub(crate) fn groups(&mut self) -> impl Iterator<Item = &mut Seq> {
        self.leaving.iter_mut().map(|leaving| &mut leaving.after)
    }
}
