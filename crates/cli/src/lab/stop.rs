//! Ctrl-C ends a run with the report of what was done; a second one ends the process.

use anyhow::Context as _;
use bimetal_driver::signals::StopSignals;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::AsFd as _;

/// Whether the user has asked for the end.
pub(crate) struct Stop {
    signals: Option<StopSignals>,
}

impl Stop {
    pub(crate) fn new() -> anyhow::Result<Stop> {
        Ok(Stop { signals: Some(StopSignals::new().context("cannot catch signals")?) })
    }

    /// Whether it has been asked for by now.
    pub(crate) fn is_asked_for(&mut self) -> bool {
        let Some(signals) = &self.signals else { return true };
        let mut fds = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        let came =
            poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0);
        if came {
            signals.acknowledge();
            // The next one is for the process.
            let _ = self.signals.take().map(StopSignals::release);
        }
        came
    }
}
