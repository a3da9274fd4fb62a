//! What is told to whoever asks: events, counters, decisions.

use crate::api::action::DeviceError;
use crate::api::options::{Event, Level};
use crate::api::stats::Stats;
use crate::api::why::Decisions;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Events kept until they are taken; older ones give way.
const MAX_EVENTS: usize = 256;

/// What is told.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    /// What the devices are called.
    pub(crate) names: ByTier<String>,
    pub(crate) stats: Stats,
    /// What was decided lately.
    pub(crate) decisions: Decisions,
    events: VecDeque<Event>,
}

impl Told {
    /// Nothing but how the opening went.
    pub(crate) fn new(names: ByTier<String>, events: VecDeque<Event>, now: Nanos) -> Told {
        Told { names, stats: Stats::default(), decisions: Decisions::new(now), events }
    }

    /// Tells of something, until it is taken.
    pub(crate) fn event(&mut self, level: Level, message: String, error: Option<DeviceError>) {
        if self.events.len() == MAX_EVENTS {
            // What is lost is not pushed out by a flood of failures.
            let place = self.events.iter().position(|e| e.level < Level::Error).unwrap_or(0);
            self.events.remove(place);
        }
        self.events.push_back(Event { level, message, error });
    }

    /// What was told since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }
}
