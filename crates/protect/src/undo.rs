//! What the slow device held at the last freeze: a block is written over only when that is durable in the ring.

use crate::bugs::{Bug, planted};
use crate::extents::Ranges;
use std::collections::VecDeque;
use std::ops::Range;

/// What was kept of the slow device since the last freeze.
pub(crate) struct Undo {
    /// The last freeze.
    freeze: u64,
    /// Kept, durably.
    kept: Ranges,
    /// The same, and what is about to be.
    claimed: Ranges,
    /// What is to be read next.
    wanted: VecDeque<Range<u64>>,
    /// Written to the ring and not flushed: the number of the group, the freeze, and what it keeps.
    written: VecDeque<(u64, u64, Vec<Range<u64>>)>,
}

impl Undo {
    pub(crate) fn new(freeze: u64) -> Undo {
        Undo {
            freeze,
            kept: Ranges::default(),
            claimed: Ranges::default(),
            wanted: VecDeque::new(),
            written: VecDeque::new(),
        }
    }

    /// The last freeze.
    pub(crate) fn freeze(&self) -> u64 {
        self.freeze
    }

    /// From now on what the device holds now is to be kept.
    pub(crate) fn begin(&mut self, freeze: u64) {
        self.freeze = freeze;
        if !planted(Bug::KeptForever) {
            self.kept.clear();
            self.claimed.clear();
        }
        self.wanted.clear();
    }

    /// Nothing is kept any more.
    pub(crate) fn forget(&mut self) {
        *self = Undo::new(self.freeze);
    }

    /// Whether a range may be written over. If not, what it holds is wanted.
    pub(crate) fn admits(&mut self, range: &Range<u64>) -> bool {
        if planted(Bug::NothingKept) || self.kept.contains(range) {
            return true;
        }
        for missing in self.claimed.missing(range) {
            self.claimed.insert(missing.clone());
            self.wanted.push_back(missing);
        }
        planted(Bug::KeptUnflushed) && self.wanted.is_empty() && self.claimed.contains(range)
    }

    /// The next range to read, of so many blocks at most. A write that was on its way at the freeze may still be: either is what a
    /// crash at the freeze may have left.
    pub(crate) fn choose(&mut self, most: u64) -> Option<Range<u64>> {
        let range = self.wanted.pop_front()?;
        let run = range.start..range.end.min(range.start + most);
        if run.end < range.end {
            self.wanted.push_front(run.end..range.end);
        }
        Some(run)
    }

    /// A range that was chosen is not begun with after all.
    pub(crate) fn put_back(&mut self, range: Range<u64>) {
        self.wanted.push_front(range);
    }

    /// A group is written.
    pub(crate) fn written(&mut self, seq: u64, freeze: u64, ranges: Vec<Range<u64>>) {
        self.written.push_back((seq, freeze, ranges));
    }

    /// Whether a flush is waited for.
    pub(crate) fn wants_flush(&self, written_below: u64) -> bool {
        self.written.iter().any(|(seq, ..)| *seq < written_below)
    }

    /// Whether some of what the last freeze needs is in the ring, and not durable.
    pub(crate) fn is_awaited(&self) -> bool {
        self.written.iter().any(|(_, freeze, _)| *freeze == self.freeze)
    }

    /// Groups have become durable.
    pub(crate) fn flushed(&mut self, is_durable: impl Fn(u64) -> bool) {
        for (seq, freeze, ranges) in std::mem::take(&mut self.written) {
            if !is_durable(seq) {
                self.written.push_back((seq, freeze, ranges));
            } else if freeze == self.freeze {
                ranges.into_iter().for_each(|range| self.kept.insert(range));
            }
        }
    }
}
