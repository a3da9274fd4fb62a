//! Time for the engine: it starts at the wall clock and then follows the monotonic one.

use bimetal_units::Nanos;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970 when the process started, plus monotonic time since.
///
/// So instants that the engine reports can be shown as dates, they go on rising over restarts, and within
/// a process a stepped wall clock cannot make time run backwards.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_unix_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

impl Clock {
    /// Starts at the wall clock.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), start_unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(0) }
    }

    /// The present instant.
    pub fn now(&self) -> Nanos {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Nanos(self.start_unix_ns.saturating_add(elapsed))
    }

    /// An instant of this clock as seconds since 1970.
    pub fn unix_s(at: Nanos) -> u64 {
        at.0 / Nanos::SECOND
    }
}
