//! Recognises sequential streams among interleaved requests.

use crate::units::Nanos;

/// Streams followed at once: a single detector fails as soon as two clients write.
const TRACKERS: usize = 64;

#[derive(Clone, Copy, Default)]
struct Tracker {
    next: u64,
    bytes: u64,
    seen: Nanos,
}

/// Follows streams by where each would go on.
pub struct Streams {
    trackers: [Tracker; TRACKERS],
}

impl Default for Streams {
    fn default() -> Self {
        Streams { trackers: [Tracker { next: u64::MAX, ..Tracker::default() }; TRACKERS] }
    }
}

impl Streams {
    /// Notes a request; gives the length of the stream that it ends, itself included, bytes.
    pub fn observe(&mut self, offset: u64, len: u64, now: Nanos) -> u64 {
        let tracker = match self.trackers.iter().position(|t| t.next == offset) {
            Some(i) => &mut self.trackers[i],
            None => {
                let oldest = self.trackers.iter_mut().min_by_key(|t| t.seen).expect("there are trackers");
                *oldest = Tracker::default();
                oldest
            }
        };
        tracker.bytes += len;
        tracker.next = offset + len;
        tracker.seen = now;
        tracker.bytes
    }
}
