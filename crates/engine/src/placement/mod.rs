//! What is decided: heat, benefit, worth, admission, borrowing, rest, wear, streams, pins.

pub(crate) mod admission;
pub mod avoided;
pub(crate) mod elastic;
pub mod pins;
pub mod policy;
pub(crate) mod rest;
pub(crate) mod streams;
pub(crate) mod wear;
pub(crate) mod worth;

use crate::api::options::Tuning;
use crate::format::geometry::Geometry;
use crate::placement::admission::Kept;
use crate::placement::avoided::Avoided;
use crate::placement::pins::{Pins, PinsRead};
use crate::placement::policy::{Benefit, HeatPolicy};
use crate::placement::streams::Neighbours;
use crate::placement::wear::Wear;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// What decisions rest on.
#[derive(Serialize, Deserialize)]
pub(crate) struct Placement {
    pub(crate) policy: HeatPolicy,
    pub(crate) benefit: Benefit,
    pub(crate) wear: Wear,
    /// What the log keeps of its room.
    pub(crate) kept: Kept,
    /// Whether clients read neighbours on the slow tier.
    pub(crate) neighbours: Neighbours,
    pub(crate) pins: Pins,
    /// What could not be moved of late.
    pub(crate) avoided: Avoided,
}

impl Placement {
    /// Of a volume opened now: nothing is known but what its user wishes, and what was learnt before.
    pub(crate) fn new(
        geo: &Geometry,
        tuning: &Tuning,
        policy: HeatPolicy,
        pins: PinsRead,
        now: Nanos,
    ) -> Placement {
        Placement {
            policy,
            benefit: Benefit::new(geo.slots(FAST), &tuning.economy),
            wear: Wear::new(tuning.wear_bytes_per_day, now, &tuning.economy),
            kept: Kept::default(),
            neighbours: Neighbours::default(),
            pins: Pins::new(pins),
            avoided: Avoided::default(),
        }
    }
}
