//! A scrub is begun and stopped, and says how far it has come.

use crate::api::scrub::{ScrubError, ScrubStatus};
use crate::base::arena::Arena;
use crate::engine::Engine;
use bimetal_units::Nanos;

impl<A: Arena> Engine<A> {
    /// Begins a scrub from the first chunk on, or goes on with the one that is under way.
    ///
    /// # Errors
    /// Where nothing could be repaired.
    pub fn begin_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        self.io.tick(now);
        self.may_change_scrub()?;
        if self.life.shutdown.began() {
            return Err(ScrubError::ShuttingDown);
        }
        self.start_scrub();
        Ok(())
    }

    /// Stops the scrub that is under way; another one begins from the first chunk on.
    ///
    /// # Errors
    /// Where none is under way, or nobody could note that it was stopped.
    pub fn stop_scrub(&mut self, now: Nanos) -> Result<(), ScrubError> {
        self.io.tick(now);
        self.may_change_scrub()?;
        if self.end_scrub() { Ok(()) } else { Err(ScrubError::NotRunning) }
    }

    fn may_change_scrub(&self) -> Result<(), ScrubError> {
        match (self.loss().is_some(), self.life.is_read_only()) {
            (true, _) => Err(ScrubError::Degraded),
            (false, true) => Err(ScrubError::ReadOnly),
            (false, false) => Ok(()),
        }
    }

    /// What is known of the last scrub.
    pub fn scrub(&self) -> ScrubStatus {
        self.scrub_status()
    }
}
