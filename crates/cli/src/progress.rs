//! Where people wait for more than a second: one line on their terminal that says for what.

use crate::size;
use bimetal_driver::Change;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Nothing is said before.
const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(200);

/// A line that is written over and over, and erased in the end. Without a terminal there is none.
pub(crate) struct Progress {
    what: String,
    start: Instant,
    next: Option<Instant>,
    drawn: bool,
}

impl Progress {
    /// Work begins. `quiet` where a program reads along.
    pub(crate) fn new(what: String, quiet: bool) -> Progress {
        let start = Instant::now();
        let next = (!quiet && std::io::stderr().is_terminal()).then_some(start + PATIENCE);
        Progress { what, start, next, drawn: false }
    }

    /// So much has been read and written.
    pub(crate) fn bytes(&mut self, bytes: u64) {
        self.draw(|| size::show(bytes));
    }

    /// The same of a task on devices; what has happened to them is said, too.
    pub(crate) fn of_task(&mut self, bytes: u64, changes: Vec<Change>) {
        for change in changes {
            self.erase();
            match change {
                Change::Lost(what) | Change::Orphaned(what) => tracing::error!("{what}"),
                Change::Away(what) | Change::Moved(what) => tracing::warn!("{what}"),
                Change::Back(what) => tracing::info!("{what}"),
            }
        }
        self.bytes(bytes);
    }

    /// The work came so far.
    pub(crate) fn at(&mut self, how_far: &str) {
        self.draw(|| how_far.to_owned());
    }

    fn draw(&mut self, how_far: impl FnOnce() -> String) {
        let now = Instant::now();
        let Some(next) = self.next.as_mut().filter(|next| **next <= now) else { return };
        *next = now + BETWEEN;
        self.drawn = true;
        let seconds = self.start.elapsed().as_secs();
        write(&format!("\r\x1b[K{}: {}, {seconds} s", self.what, how_far()));
    }
}

impl Progress {
    fn erase(&mut self) {
        if std::mem::take(&mut self.drawn) {
            write("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

/// A terminal that has gone away is no reason to fail.
fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
