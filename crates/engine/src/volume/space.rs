//! What is in use beside what is recorded: slots, what waits in them to be recorded or to be free, shadows.

use crate::volume::leaving::Gate;
use crate::volume::pending::Pending;
use crate::volume::shadows::Shadows;
use crate::volume::slots::Slots;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// The space of both tiers, in this opening.
#[derive(Serialize, Deserialize)]
pub(crate) struct Space {
    pub(crate) slots: ByTier<Slots>,
    /// Written, and shown by no record yet.
    pub(crate) pending: Pending,
    /// Left, and free once that is durable.
    pub(crate) gate: Gate,
    pub(crate) shadows: Shadows,
    /// A flush of the fast device failed: slots that no record shows may hold what was there before.
    pub(crate) unshown_lost: bool,
}

impl Space {
    /// Only what is recorded is in use.
    pub(crate) fn new(slots: ByTier<Slots>) -> Space {
        let shadows = Shadows::new(slots[FAST].count());
        Space { slots, pending: Pending::default(), gate: Gate::default(), shadows, unshown_lost: false }
    }
}
