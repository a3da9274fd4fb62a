//! Which commands go on where earlier ones ended.

use bimetal_units::Nanos;
use std::collections::VecDeque;

/// Bytes of a sequence from which on it passes by: bcache's `sequential_cutoff`.
const CUTOFF_BYTES: u64 = 4 << 20;
/// Sequences that are told apart: `RECENT_IO`.
const RECENT: usize = 128;
/// A sequence that has not gone on for so long is over, nanoseconds.
const FORGOTTEN_NS: u64 = 5 * Nanos::SECOND;

struct Sequence {
    end: u64,
    bytes: u64,
    at: Nanos,
}

/// The ends of the last commands, the oldest first.
#[derive(Default)]
pub(super) struct Sequences {
    recent: VecDeque<Sequence>,
}

impl Sequences {
    /// Takes note of a command; whether its sequence is so long with it that it passes by.
    pub(super) fn is_long(&mut self, now: Nanos, offset: u64, len: u64) -> bool {
        let goes_on = |sequence: &Sequence| sequence.end == offset && now.since(sequence.at) < FORGOTTEN_NS;
        // The latest first: that is where it most often is.
        let found = self.recent.iter().rposition(goes_on).and_then(|place| self.recent.remove(place));
        if found.is_none() && self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let bytes = found.map_or(0, |sequence| sequence.bytes) + len;
        self.recent.push_back(Sequence { end: offset + len, bytes, at: now });
        bytes >= CUTOFF_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sequences_beside_each_other_are_both_seen() {
        let mut sequences = Sequences::default();
        let mib = 1 << 20;
        for n in 0..3 {
            assert!(!sequences.is_long(Nanos(n), n * mib, mib));
            assert!(!sequences.is_long(Nanos(n), (100 + n) * mib, mib));
        }
        assert!(sequences.is_long(Nanos(3), 3 * mib, mib));
        assert!(sequences.is_long(Nanos(3), 103 * mib, mib));
        // One that was left for too long begins again.
        assert!(!sequences.is_long(Nanos(6 * Nanos::SECOND), 4 * mib, mib));
    }
}
