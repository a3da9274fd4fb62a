//! Recognises sequential streams among interleaved requests, and whether they outnumber what is written alone.

use bimetal_units::Nanos;
use serde::{Deserialize, Serialize};

/// Streams followed at once: a single detector fails as soon as two clients write.
const TRACKERS: usize = 64;

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Tracker {
    next: u64,
    bytes: u64,
    seen: Nanos,
}

/// Follows streams by where each would go on.
#[derive(Serialize, Deserialize)]
pub struct Streams {
    trackers: Box<[Tracker]>,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { trackers: [Tracker { next: u64::MAX, ..Tracker::default() }; TRACKERS].into() }
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

/// Whether what lies side by side on the slow tier is read so, beside whole chunks that are written here and there.
#[derive(Default, Serialize, Deserialize)]
pub struct Neighbours {
    read: u32,
    written_alone: u32,
}

impl Neighbours {
    /// The slow tier was read where another read ended.
    pub fn read(&mut self, memory: u32) {
        self.read += 1;
        self.forget(memory);
    }

    /// A whole chunk of no stream was written to it.
    pub fn written_alone(&mut self, memory: u32) {
        self.written_alone += 1;
        self.forget(memory);
    }

    /// After so many they count half.
    fn forget(&mut self, memory: u32) {
        if self.read + self.written_alone >= memory {
            (self.read, self.written_alone) = (self.read / 2, self.written_alone / 2);
        }
    }

    /// Whether that is more than is written alone, of late.
    pub fn are_read(&self) -> bool {
        self.read > self.written_alone
    }
}
