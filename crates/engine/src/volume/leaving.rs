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
    pub(crate) leaving: VecDeque<Leaving>,
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
}
