//! Chunks that could not be moved of late, as a device failed what that took, or what was read was wrong.

use bimetal_units::{Chunk, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// For so long such a chunk is not moved for its heat again.
const AVOIDED_NS: u64 = 600 * Nanos::SECOND;
/// So many are known at most: those that failed last.
const MOST_AVOIDED: usize = 256;

/// Which they are. What cannot be moved stays as cold, or as hot, as it is: it would be chosen again and again, and what is moved beside
/// it would go back and forth.
#[derive(Default, Serialize, Deserialize)]
pub struct Avoided {
    /// Until when, the first to be tried again first.
    until: VecDeque<(Chunk, Nanos)>,
}

impl Avoided {
    /// A chunk could not be moved.
    pub(crate) fn avoid(&mut self, chunk: Chunk, now: Nanos) {
        self.forget(chunk);
        self.until.push_back((chunk, now.after(AVOIDED_NS)));
        if self.until.len() > MOST_AVOIDED {
            self.until.pop_front();
        }
    }

    /// A chunk was written to: what could not be read of it may be good now.
    pub(crate) fn forget(&mut self, chunk: Chunk) {
        self.until.retain(|(avoided, _)| *avoided != chunk);
    }

    /// Forgets those that may be tried again.
    pub(crate) fn expire(&mut self, now: Nanos) {
        while self.until.front().is_some_and(|(_, until)| *until <= now) {
            self.until.pop_front();
        }
    }

    /// Whether it is one of them.
    pub fn has(&self, chunk: Chunk) -> bool {
        self.until.iter().any(|(avoided, _)| *avoided == chunk)
    }
}
