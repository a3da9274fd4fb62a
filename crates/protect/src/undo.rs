//! What the slow device held at the last freeze: a block is written over only when that is durable in the ring.

use crate::bugs::{Bug, planted};
use crate::extents::Ranges;
use bimetal_engine::unused::Unused;
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
    /// What nobody needed at the last freeze, ...
    unused: Unused,
    /// ... and at that of the image that counts, if one does: until there is a newer one, that is to stay what it is.
    unused_of_image: Option<Unused>,
    /// What was being kept at a freeze, and may not be in the ring to its end yet.
    unfinished: Ranges,
    /// What is to be read next.
    wanted: VecDeque<Range<u64>>,
    /// Written to the ring and not flushed: the number of the group, the freeze, and what it keeps.
    written: VecDeque<(u64, u64, Vec<Range<u64>>)>,
    /// Where a power cut may bring back what was there before the freeze. What is read of it may then be nowhere.
    unsettled: Vec<Unsettled>,
}

/// Blocks that a write was on its way to at a freeze.
struct Unsettled {
    blocks: Range<u64>,
    how: Settling,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// The write with this token is on its way still.
    Written(u64),
    /// It has ended, and a flush is needed.
    Ended,
    /// That is on its way.
    Flushed,
}

impl Undo {
    pub(crate) fn new(freeze: u64) -> Undo {
        Undo {
            freeze,
            kept: Ranges::default(),
            claimed: Ranges::default(),
            unused: Unused::default(),
            unused_of_image: None,
            unfinished: Ranges::default(),
            wanted: VecDeque::new(),
            written: VecDeque::new(),
            unsettled: Vec::new(),
        }
    }

    /// As an opening begins: what it reads of the slow device may be in a cache alone.
    pub(crate) fn resumed(freeze: u64, blocks: Range<u64>) -> Undo {
        let unsettled = vec![Unsettled { blocks, how: Settling::Ended }];
        Undo { unsettled, unused_of_image: Some(Unused::default()), ..Undo::new(freeze) }
    }

    /// A write to these blocks is on its way at a freeze.
    pub(crate) fn is_under_way(&mut self, token: u64, blocks: Range<u64>) {
        self.unsettled.push(Unsettled { blocks, how: Settling::Written(token) });
    }

    /// A write has ended, however it did.
    pub(crate) fn has_ended(&mut self, token: u64) {
        self.change(Settling::Written(token), Settling::Ended);
    }

    /// A flush begins.
    pub(crate) fn flush_begins(&mut self) {
        self.change(Settling::Ended, Settling::Flushed);
    }

    fn change(&mut self, from: Settling, to: Settling) {
        self.unsettled.iter_mut().filter(|range| range.how == from).for_each(|range| range.how = to);
    }

    /// Whether something of a range is in a state.
    fn is_in(&self, how: impl Fn(Settling) -> bool, blocks: &Range<u64>) -> bool {
        let mut all = self.unsettled.iter();
        all.any(|other| how(other.how) && other.blocks.start < blocks.end && blocks.start < other.blocks.end)
    }

    /// The last freeze.
    pub(crate) fn freeze(&self) -> u64 {
        self.freeze
    }

    /// From now on what the device holds now is to be kept, but for what nobody needs.
    pub(crate) fn begin(&mut self, freeze: u64, unused: Unused) {
        self.freeze = freeze;
        self.unused = unused;
        self.wanted.drain(..).for_each(|range| self.claimed.remove(&range));
        self.kept.iter().for_each(|range| self.claimed.remove(&range));
        self.claimed.iter().for_each(|range| self.unfinished.insert(range));
        if !planted(Bug::KeptForever) {
            self.kept.clear();
            self.claimed.clear();
        }
    }

    /// The image of the last freeze counts.
    pub(crate) fn committed(&mut self) {
        self.unused_of_image = Some(self.unused.clone());
    }

    /// The parts of a range that an image needs: the one that counts, or that of the last freeze. What is being kept is to be whole
    /// in the ring, though nobody may need it by then.
    fn needed(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut needed = Ranges::default();
        let of_image = self.unused_of_image.as_ref().filter(|_| !planted(Bug::ImageForgotten));
        let parts = of_image.into_iter().chain([&self.unused]).flat_map(|unused| unused.needed(range));
        let begun = [&self.claimed, &self.unfinished].into_iter().flat_map(|begun| begun.present(range));
        parts.chain(begun.filter(|_| !planted(Bug::ClaimDropped))).for_each(|part| needed.insert(part));
        needed.iter().collect()
    }

    /// Nothing is kept any more.
    pub(crate) fn forget(&mut self) {
        *self = Undo::new(self.freeze);
    }

    /// Whether a range may be written over. If not, what it holds is wanted.
    pub(crate) fn admits(&mut self, range: &Range<u64>) -> bool {
        let needed = self.needed(range);
        let is_part = needed.first() != Some(range) && planted(Bug::NeededInPart);
        if planted(Bug::NothingKept) || is_part || needed.iter().all(|part| self.kept.contains(part)) {
            return true;
        }
        for missing in needed.iter().flat_map(|part| self.claimed.missing(part)).collect::<Vec<_>>() {
            self.claimed.insert(missing.clone());
            self.wanted.push_back(missing);
        }
        let is_claimed = needed.iter().all(|part| self.claimed.contains(part));
        planted(Bug::KeptUnflushed) && self.wanted.is_empty() && is_claimed
    }

    /// The next range to read, of so many blocks at most. Where a write was on its way at the freeze, either is what a crash at the
    /// freeze may have left; what is read is what a crash from now on leaves.
    pub(crate) fn choose(&mut self, most: u64) -> Option<Range<u64>> {
        let place = self
            .wanted
            .iter()
            .position(|range| planted(Bug::UnsettledKept) || !self.is_in(|_| true, range))?;
        let range = self.wanted.remove(place)?;
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
        let is_unsettled = |range| self.is_in(|how| how == Settling::Ended, range);
        self.written.iter().any(|(seq, ..)| *seq < written_below) || self.wanted.iter().any(is_unsettled)
    }

    /// Whether some of what the last freeze needs is in the ring, and not durable.
    pub(crate) fn is_awaited(&self) -> bool {
        self.written.iter().any(|(_, freeze, _)| *freeze == self.freeze)
    }

    /// Groups have become durable.
    pub(crate) fn flushed(&mut self, is_durable: impl Fn(u64) -> bool) {
        self.unsettled.retain(|range| range.how != Settling::Flushed);
        for (seq, freeze, ranges) in std::mem::take(&mut self.written) {
            if !is_durable(seq) {
                self.written.push_back((seq, freeze, ranges));
            } else if freeze == self.freeze {
                ranges.into_iter().for_each(|range| self.kept.insert(range));
            } else {
                ranges.iter().for_each(|range| self.unfinished.remove(range));
            }
        }
    }
}
