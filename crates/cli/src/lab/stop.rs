//! Ctrl-C ends a run with the report of what was done, as SIGTERM does and SIGHUP; a second one ends the process.

use crate::complain;
use anyhow::Context as _;
use bimetal_driver::signals::StopSignals;
use rustix::event::{PollFd, PollFlags, poll};
use std::cell::RefCell;
use std::os::fd::AsFd as _;

/// Whether the user has asked for the end.
pub(crate) struct Stop {
    state: RefCell<State>,
}

enum State {
    /// Signals end the process, as ever.
    Idle,
    /// The next signal is for us.
    Listening(StopSignals),
    /// It came. The one after it is for the process.
    Asked,
}

impl Stop {
    /// Nothing is caught before [`Stop::listen`].
    pub(crate) fn new() -> Stop {
        Stop { state: RefCell::new(State::Idle) }
    }

    /// From now on a signal is something to ask for: so call it where one soon does. A thread that was started before
    /// would still be ended by it.
    pub(crate) fn listen(&self) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        if matches!(*state, State::Idle) {
            *state = State::Listening(StopSignals::with_hangup().context("cannot catch signals")?);
        }
        Ok(())
    }

    /// Whether it has been asked for by now.
    pub(crate) fn is_asked_for(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if let State::Listening(signals) = &*state {
            let mut fds = [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            if !poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0) {
                return false;
            }
            signals.acknowledge();
            if let State::Listening(signals) = std::mem::replace(&mut *state, State::Asked) {
                let _ = signals.release();
            }
            complain(
                "bimetal: ending; what is in flight is waited for, for 10 s at most; another Ctrl-C ends at once",
            );
        }
        matches!(*state, State::Asked)
    }
}
