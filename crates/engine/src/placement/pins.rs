//! Pins: chunks that a user wants on a tier, whatever their heat.
//!
//! The list is small and stands in memory as a whole. It is kept in two places on the fast device (`pins/keep.rs`) and
//! is in force once it is durable in one of them. Placement obeys it (`pins/place.rs`): what is pinned and lies elsewhere
//! is moved ahead of what heat asks for, and nothing takes it away again. It changes no data and no size.

pub(crate) mod keep;
pub(crate) mod place;

use crate::api::coverage::Stage;
use crate::format::pins::MAX_PIN_RANGES;
pub use crate::format::pins::PinRange;
use bimetal_units::*;
pub use keep::PinsRead;
use serde::{Deserialize, Serialize};

/// Why pins stay as they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum PinError {
    /// The range is empty or leaves the volume.
    #[error("bytes {offset} to {} are not in the volume, which has {size_bytes} bytes; give a range inside it", offset.saturating_add(*len))]
    Range {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the volume, bytes.
        size_bytes: u64,
    },
    /// The tier cannot hold so much beside what it must do.
    #[error(
        "{wanted_bytes} bytes would be pinned to the {} tier, which can hold {room_bytes} bytes of pins; pin less, or \
         unpin something first", if *tier == FAST { "fast" } else { "slow" }
    )]
    NoRoom {
        /// The tier.
        tier: Tier,
        /// What would be pinned to it in all, bytes.
        wanted_bytes: u64,
        /// What may be, bytes.
        room_bytes: u64,
    },
    /// The list is full.
    #[error(
        "there would be more than {MAX_PIN_RANGES} ranges of pins; pin longer ranges, or unpin some first"
    )]
    TooMany,
    /// Another change is under way: it is being written, or its answer has not been taken.
    #[error("another change of the pins is under way; try again")]
    Busy,
    /// The list could not be read when the volume was opened.
    #[error(
        "the list of pins could not be read when the volume was opened, and stays as it is; open the volume again, or \
         unpin all of it to begin a new list"
    )]
    Unknown,
    /// The volume takes no changes.
    #[error("the volume is read-only until it is opened again")]
    ReadOnly,
    /// The volume is being closed.
    #[error("the volume is being closed")]
    ShuttingDown,
    /// A device failed before the change was durable.
    #[error(
        "the fast device failed while the pins were written; which ones hold is known when the volume is opened again"
    )]
    Io,
}

/// What is pinned: ranges in order, apart from each other.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PinList {
    pub(crate) ranges: Vec<PinRange>,
}

impl PinList {
    /// The ranges, in order.
    pub fn ranges(&self) -> &[PinRange] {
        &self.ranges
    }

    /// The tier that a chunk is pinned to.
    pub fn tier_of(&self, chunk: Chunk) -> Option<Tier> {
        let behind = self.ranges.partition_point(|range| range.first <= chunk);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        (u64::from(chunk.0) < range.end()).then_some(range.tier)
    }

    /// Whether a chunk may be moved to a tier: it is not pinned to another one.
    pub fn allows(&self, chunk: Chunk, to: Tier) -> bool {
        self.tier_of(chunk).is_none_or(|tier| tier == to)
    }

    /// Chunks pinned to a tier.
    pub fn chunks_on(&self, tier: Tier) -> u64 {
        self.ranges.iter().filter(|range| range.tier == tier).map(|range| u64::from(range.count)).sum()
    }

    /// The same list with these chunks pinned to a tier, or to none.
    pub fn with(&self, first: Chunk, count: u32, tier: Option<Tier>) -> PinList {
        let (from, to) = (u64::from(first.0), u64::from(first.0) + u64::from(count));
        let mut cut: Vec<PinRange> = Vec::with_capacity(self.ranges.len() + 2);
        let mut add = |from: u64, to: u64, tier: Tier| {
            if from < to {
                cut.push(PinRange { first: Chunk(from as u32), count: (to - from) as u32, tier });
            }
        };
        for range in &self.ranges {
            let begin = u64::from(range.first.0);
            add(begin, range.end().min(from), range.tier);
            add(begin.max(to), range.end(), range.tier);
        }
        if let Some(tier) = tier {
            add(from, to, tier);
        }
        cut.sort_by_key(|range| range.first);
        let mut ranges: Vec<PinRange> = Vec::with_capacity(cut.len());
        for range in cut {
            match ranges.last_mut() {
                Some(last) if last.end() == u64::from(range.first.0) && last.tier == range.tier => {
                    last.count += range.count;
                }
                _ => ranges.push(range),
            }
        }
        PinList { ranges }
    }
}

/// The pins of a volume, and what is under way with them.
#[derive(Serialize, Deserialize)]
pub struct Pins {
    /// What is in force, and durable.
    pub(crate) list: PinList,
    /// The list that was on the device is not known.
    pub(crate) unknown: bool,
    pub(crate) keeping: keep::Keeping,
    pub(crate) placing: place::Placing,
}

impl Pins {
    pub(crate) fn new(read: PinsRead) -> Pins {
        Pins {
            placing: place::Placing::begin(!read.list.ranges.is_empty()),
            unknown: !read.known,
            keeping: keep::Keeping::new(&read),
            list: read.list,
        }
    }

    pub(crate) fn list(&self) -> &PinList {
        &self.list
    }

    /// Whether no change is being written; the answer to the last one may still be there.
    pub(crate) fn is_idle(&self) -> bool {
        self.keeping.is_idle()
    }

    /// Changes with every step of a change.
    pub(crate) fn step(&self) -> impl PartialEq + use<> {
        self.keeping.step()
    }

    /// Its stage, for coverage.
    pub(crate) fn coverage(&self) -> Option<Stage> {
        self.keeping.coverage()
    }
}

/// One range of pins, and how far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedRange {
    /// First byte in the volume.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Where it belongs.
    pub tier: Tier,
    /// Bytes of its chunks that have a home on that tier; none where there are too many to look at.
    pub settled_bytes: Option<u64>,
    /// Bytes of its chunks that have a home elsewhere; none likewise.
    pub astray_bytes: Option<u64>,
}

/// All pins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PinReport {
    /// In order.
    pub ranges: Vec<PinnedRange>,
    /// By tier: bytes that may be pinned to it.
    pub room_bytes: [u64; 2],
    /// By tier: bytes that are.
    pub pinned_bytes: [u64; 2],
    /// Whether the list could be read when the volume was opened.
    pub known: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[(u32, u32, Tier)]) -> PinList {
        let ranges = ranges.iter().map(|&(first, count, tier)| PinRange { first: Chunk(first), count, tier });
        PinList { ranges: ranges.collect() }
    }

    #[test]
    fn ranges_are_cut_and_joined() {
        let pins = PinList::default().with(Chunk(10), 10, Some(FAST));
        assert_eq!(pins, list(&[(10, 10, FAST)]));
        assert_eq!(pins.with(Chunk(20), 5, Some(FAST)), list(&[(10, 15, FAST)]));
        let cut = pins.with(Chunk(12), 3, Some(SLOW));
        assert_eq!(cut, list(&[(10, 2, FAST), (12, 3, SLOW), (15, 5, FAST)]));
        assert_eq!(cut.with(Chunk(12), 3, Some(FAST)), pins);
        assert_eq!(cut.with(Chunk(0), 13, None), list(&[(13, 2, SLOW), (15, 5, FAST)]));
        assert_eq!(cut.with(Chunk(0), u32::MAX, None), PinList::default());
    }

    #[test]
    fn any_series_of_changes_says_the_same_as_one_mark_for_each_chunk() {
        let (mut pins, mut marks, mut seed) = (PinList::default(), [None; 40], 1u64);
        for round in 0..2000 {
            seed = crate::base::hash::mix(seed + round);
            let (first, count) = (seed % 40, 1 + seed / 64 % 12);
            let count = count.min(40 - first);
            let tier = [None, Some(FAST), Some(SLOW)][(seed / 4096 % 3) as usize];
            pins = pins.with(Chunk(first as u32), count as u32, tier);
            marks[first as usize..(first + count) as usize].fill(tier);
            for (chunk, mark) in marks.iter().enumerate() {
                assert_eq!(pins.tier_of(Chunk(chunk as u32)), *mark, "chunk {chunk} in round {round}");
            }
            let mut payload = Vec::new();
            crate::format::pins::put_pins(&mut payload, pins.ranges());
            assert_eq!(crate::format::pins::get_pins(&payload, 40).as_deref(), Some(pins.ranges()));
            for tier in [FAST, SLOW] {
                let marked = marks.iter().filter(|mark| **mark == Some(tier)).count();
                assert_eq!(pins.chunks_on(tier), marked as u64);
            }
        }
        assert_eq!(crate::format::pins::get_pins(&[1, 0, 0, 0], 40), None);
    }
}
