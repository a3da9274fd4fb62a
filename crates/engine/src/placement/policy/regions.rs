//! Which regions have chunks that may rise, by how hot those are: the hottest can be found first without looking at all.

use serde::{Deserialize, Serialize};

/// Chunks of a region: neighbours rise together, so that the slow device reads runs (8 MiB at the default chunk size).
pub(super) const REGION_CHUNKS: u32 = 64;
/// Bands of heat, each twice as hot as the one before; the last has no end.
pub(super) const BANDS: usize = 8;

/// How hot, roughly.
pub(super) type Band = usize;

/// The band of a heat.
pub(super) fn band_of(heat: u32) -> Band {
    (heat.max(1).ilog2() as usize).min(BANDS - 1)
}

/// A bit for each band and region: some chunk there was as hot when it was marked. Heat fades, so a mark may be too hot.
#[derive(Serialize, Deserialize)]
pub(super) struct HotRegions {
    bands: [Vec<u64>; BANDS],
    /// Marks by band.
    marks: [u32; BANDS],
}

impl HotRegions {
    /// Of a volume of so many chunks.
    pub(super) fn new(chunks: u32) -> HotRegions {
        let words = chunks.div_ceil(REGION_CHUNKS).div_ceil(64) as usize;
        HotRegions { bands: std::array::from_fn(|_| vec![0; words]), marks: [0; BANDS] }
    }

    /// What they take for so many chunks.
    pub(super) fn ram_bytes(chunks: u64) -> u64 {
        chunks.div_ceil(u64::from(REGION_CHUNKS)).div_ceil(64) * 8 * BANDS as u64
    }

    /// Marks; no less than there are regions with one.
    pub(super) fn marks(&self) -> u32 {
        self.marks.iter().sum()
    }

    /// The highest band with a mark.
    pub(super) fn hottest(&self) -> Option<Band> {
        self.marks.iter().rposition(|marks| *marks > 0)
    }

    pub(super) fn mark(&mut self, region: u32, band: Band) {
        let (word, bit) = (&mut self.bands[band][region as usize / 64], 1 << (region % 64));
        self.marks[band] += u32::from(*word & bit == 0);
        *word |= bit;
    }

    /// In this band and all above it.
    pub(super) fn unmark_from(&mut self, region: u32, least: Band) {
        for band in least..BANDS {
            let (word, bit) = (&mut self.bands[band][region as usize / 64], 1 << (region % 64));
            self.marks[band] -= u32::from(*word & bit != 0);
            *word &= !bit;
        }
    }

    /// The next region with a mark in this band or above it, round and round from there.
    pub(super) fn next(&self, from: u32, least: Band) -> Option<u32> {
        let words = self.bands[0].len();
        let (mut word, mut mask) = (from as usize / 64 % words, !0u64 << (from % 64));
        for _ in 0..=words {
            let bits = self.bands[least..].iter().fold(0, |bits, band| bits | band[word]) & mask;
            if bits != 0 {
                return Some(word as u32 * 64 + bits.trailing_zeros());
            }
            (word, mask) = ((word + 1) % words, !0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_double() {
        assert_eq!([0, 1, 2, 3, 4, 127, 128, 510].map(band_of), [0, 0, 1, 1, 2, 6, 7, 7]);
    }

    #[test]
    fn regions_are_found_in_turn_in_their_band_and_above() {
        let mut regions = HotRegions::new(300 * REGION_CHUNKS);
        assert_eq!((regions.next(0, 0), regions.hottest(), regions.marks()), (None, None, 0));
        for (region, band) in [(7, 1), (7, 1), (70, 1), (130, 5), (299, 3)] {
            regions.mark(region, band);
        }
        assert_eq!((regions.hottest(), regions.marks()), (Some(5), 4));
        let all = |least| [0, 8, 71, 131, 300].map(|from| regions.next(from, least));
        assert_eq!(all(0), [Some(7), Some(70), Some(130), Some(299), Some(7)]);
        assert_eq!(all(3), [Some(130), Some(130), Some(130), Some(299), Some(130)]);
        assert_eq!(all(6), [None; 5]);
        regions.mark(130, 2);
        regions.unmark_from(130, 3);
        assert_eq!((regions.hottest(), regions.next(71, 0), regions.marks()), (Some(3), Some(130), 4));
        regions.unmark_from(130, 0);
        assert_eq!((regions.next(71, 0), regions.marks()), (Some(299), 3));
    }
}
