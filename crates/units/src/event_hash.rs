//! The hash of all that happened in a run.

/// Folds words in the order they come: the same events, in the same order, give the same value, on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHash(u64);

impl Default for EventHash {
    /// Of nothing.
    fn default() -> EventHash {
        EventHash(0xcbf2_9ce4_8422_2325)
    }
}

impl EventHash {
    /// Takes words in: FNV's step on whole words, and a rotation so that their upper bits count too.
    #[inline]
    pub fn add<const N: usize>(&mut self, words: [u64; N]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}
