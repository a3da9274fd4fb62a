//! Ranges of blocks: sets of them, and where each is held.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where blocks are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// From this byte of the slow device on.
    At(u64),
    /// Nowhere: they could not be read.
    Lost,
}

impl Held {
    /// Where they are, if they are anywhere.
    pub(crate) fn at(self) -> Option<u64> {
        if let Held::At(at) = self { Some(at) } else { None }
    }

    /// Where the block is that is so many bytes behind the first.
    fn behind(self, bytes: u64) -> Held {
        match self {
            Held::At(at) => Held::At(at + bytes),
            Held::Lost => Held::Lost,
        }
    }
}

/// Where blocks are held that are held anywhere. Ranges do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    map: BTreeMap<u64, (u64, Held)>,
}

const BLOCK: u64 = bimetal_units::BLOCK_BYTES as u64;

impl Extents {
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.map.clear();
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, Held)> {
        self.map.iter().map(|(start, (end, held))| (*start..*end, *held))
    }

    /// Cuts at a block, so that no range goes across it.
    fn cut(&mut self, at: u64) {
        let Some((&start, &(end, held))) = self.map.range(..at).next_back() else { return };
        if end > at {
            self.map.insert(start, (at, held));
            self.map.insert(at, (end, held.behind((at - start) * BLOCK)));
        }
    }

    /// Takes a range out.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        self.cut(range.start);
        self.cut(range.end);
        let starts: Vec<u64> = self.map.range(range.clone()).map(|(start, _)| *start).collect();
        for start in starts {
            self.map.remove(&start);
        }
    }

    /// A range is held there from now on, whatever was known of it.
    pub(crate) fn insert(&mut self, range: Range<u64>, held: Held) {
        if !range.is_empty() {
            self.remove(&range);
            self.map.insert(range.start, (range.end, held));
        }
    }

    /// A range in parts, and where each is held.
    pub(crate) fn parts(&self, range: &Range<u64>) -> Vec<(Range<u64>, Option<Held>)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        let before = self.map.range(..at).next_back().filter(|(_, (end, _))| *end > at);
        for (&start, &(end, held)) in before.into_iter().chain(self.map.range(range.clone())) {
            if start > at {
                parts.push((at..start, None));
                at = start;
            }
            let to = end.min(range.end);
            parts.push((at..to, Some(held.behind((at - start) * BLOCK))));
            at = to;
        }
        if at < range.end {
            parts.push((at..range.end, None));
        }
        parts
    }
}

/// A set of ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Extents);

impl Ranges {
    pub(crate) fn of(ranges: &[Range<u64>]) -> Ranges {
        let mut all = Ranges::default();
        ranges.iter().for_each(|range| all.insert(range.clone()));
        all
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn insert(&mut self, range: Range<u64>) {
        self.0.insert(range, Held::Lost);
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        self.0.remove(range);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(range, _)| range)
    }

    /// What of a range is not in it.
    pub(crate) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let missing = |(part, held): (Range<u64>, Option<Held>)| held.is_none().then_some(part);
        self.0.parts(range).into_iter().filter_map(missing).collect()
    }

    /// What of a range is in it.
    pub(crate) fn present(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let present = |(part, held): (Range<u64>, Option<Held>)| held.map(|_| part);
        self.0.parts(range).into_iter().filter_map(present).collect()
    }

    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        self.missing(range).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    #[test]
    fn each_block_is_where_it_was_said_to_be_last() {
        let mut rng = Rng::new(1, 1);
        for _ in 0..300 {
            let (mut extents, mut blocks) = (Extents::default(), [None; 60]);
            for place in 0..rng.below(40) {
                let start = rng.below(60);
                let range = start..start + rng.below(60 - start + 1);
                let held = if rng.one_in(5) { Held::Lost } else { Held::At(place << 20) };
                let kind = rng.below(2);
                match kind {
                    0 => extents.insert(range.clone(), held),
                    _ => extents.remove(&range),
                }
                for block in range.clone() {
                    let known = &mut blocks[block as usize];
                    match kind {
                        0 => *known = Some(held.behind((block - start) * BLOCK)),
                        _ => *known = None,
                    }
                }
                let mut told = [None; 60];
                for (part, held) in extents.parts(&(0..60)) {
                    for block in part.clone() {
                        told[block as usize] = held.map(|held| held.behind((block - part.start) * BLOCK));
                    }
                }
                assert_eq!(told, blocks);
            }
        }
    }
}
