//! How often each chunk was touched of late, and how much of that is to be expected again.

use crate::format::hints::ChunkHeat;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Parts of a touch in which chunks are compared.
pub(super) const FINE: u32 = 256;

/// Heat of a chunk in four bytes: reads, writes, and when it was last touched; 0 is never.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Heat {
    pub(super) reads: u8,
    pub(super) writes: u8,
    pub(super) last: u16,
}

impl Heat {
    #[inline]
    fn faded(self, tick: u16, half_life: u32) -> Heat {
        // Mostly a chunk was touched later than that, and planning asks it of many.
        if u32::from(tick.wrapping_sub(self.last)) < half_life {
            return self;
        }
        let halvings = self.halvings(tick, half_life).min(7);
        Heat { reads: self.reads >> halvings, writes: self.writes >> halvings, last: self.last }
    }

    /// How often it was halved, once in so many intervals.
    fn halvings(self, tick: u16, half_life: u32) -> u32 {
        u32::from(tick.wrapping_sub(self.last)) / half_life
    }

    /// Reads and writes in [`FINE`] parts of one, faded evenly: what was halved a moment ago is not half as hot as what is
    /// halved in a moment, or the two would change places though nobody touched either.
    fn fine(self, tick: u16, half_life: u32) -> Fine {
        let age = u32::from(tick.wrapping_sub(self.last));
        let halvings = (age / half_life).min(u16::BITS);
        let of = |count: u8| {
            let fine = u64::from((u32::from(count) * FINE) >> halvings);
            (fine * u64::from(2 * half_life - age % half_life) / u64::from(2 * half_life)) as u32
        };
        Fine { reads: of(self.reads), writes: of(self.writes) }
    }

    pub(super) fn total(self) -> u32 {
        u32::from(self.reads) + u32::from(self.writes)
    }
}

/// Touches of a chunk in [`FINE`] parts of one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Fine {
    pub(super) reads: u32,
    pub(super) writes: u32,
}

impl Fine {
    pub(super) fn total(self) -> u32 {
        self.reads + self.writes
    }
}

/// The heat of all chunks.
#[derive(Serialize, Deserialize)]
pub(super) struct Heats {
    heat: Vec<Heat>,
    /// Touch intervals without a touch after which heat is halved.
    half_life: u32,
    /// Chunks that were ever touched, the sum of their heat, of its squares, and of its products with the next chunk's. What
    /// nobody touches fades here only when its turn comes.
    touched: u64,
    sum: u64,
    squares: u64,
    products: u64,
    /// The chunk whose turn comes next.
    fading: u32,
}

impl Heats {
    pub(super) fn new(chunks: u32, half_life: u32) -> Heats {
        Heats {
            heat: vec![Heat::default(); chunks as usize],
            half_life,
            touched: 0,
            sum: 0,
            squares: 0,
            products: 0,
            fading: 0,
        }
    }

    pub(super) fn chunks(&self) -> u32 {
        self.heat.len() as u32
    }

    pub(super) fn ram_bytes(chunks: u64) -> u64 {
        chunks * size_of::<Heat>() as u64
    }

    /// As it was when the chunk was last touched.
    #[inline]
    pub(super) fn get(&self, chunk: Chunk) -> Heat {
        self.heat[chunk.0 as usize]
    }

    /// As it is now.
    #[inline]
    pub(super) fn faded(&self, chunk: Chunk, tick: u16) -> Heat {
        self.get(chunk).faded(tick, self.half_life)
    }

    /// As it is now, in parts of a touch.
    pub(super) fn fine(&self, chunk: Chunk, tick: u16) -> Fine {
        self.get(chunk).fine(tick, self.half_life)
    }

    pub(super) fn set(&mut self, chunk: Chunk, new: Heat) {
        let old = std::mem::replace(&mut self.heat[chunk.0 as usize], new);
        let index = chunk.0 as usize;
        let beside = [index.wrapping_sub(1), index + 1].map(|other| self.heat.get(other));
        let beside: u64 = beside.into_iter().flatten().map(|heat| u64::from(heat.total())).sum();
        let of = |heat: Heat| (u64::from(heat.last != 0), u64::from(heat.total()));
        let ((had, old), (has, new)) = (of(old), of(new));
        self.touched = self.touched - had + has;
        self.sum = self.sum - old + new;
        self.squares = self.squares - old * old + new * new;
        self.products = self.products - old * beside + new * beside;
    }

    /// The heat of up to so many chunks, from the first on that was ever touched, of those from this one on.
    pub(super) fn hints(&self, from: Chunk, tick: u16, most: usize) -> Option<(Chunk, Vec<ChunkHeat>)> {
        let rest = self.heat.get(from.0 as usize..)?;
        let first = rest.iter().position(|heat| heat.last != 0)?;
        let hint = |heat: &Heat| ChunkHeat {
            reads: heat.reads,
            writes: heat.writes,
            age: (heat.last != 0).then(|| tick.wrapping_sub(heat.last)),
        };
        Some((Chunk(from.0 + first as u32), rest[first..].iter().take(most).map(hint).collect()))
    }

    /// A chunk is as hot as it was said to be.
    pub(super) fn recall(&mut self, chunk: Chunk, hint: ChunkHeat, tick: u16) {
        let Some(age) = hint.age else { return };
        // 0 is never.
        let last = Some(tick.wrapping_sub(age)).filter(|last| *last != 0).unwrap_or(u16::MAX);
        self.set(chunk, Heat { reads: hint.reads, writes: hint.writes, last });
    }

    /// Has the next chunk fade, whether anybody touched it or not. With one for each touch, all have their turn.
    pub(super) fn fade_another(&mut self, tick: u16) {
        let chunk = Chunk(self.fading);
        self.fading = (self.fading + 1) % self.chunks();
        let heat = self.get(chunk);
        let halvings = heat.halvings(tick, self.half_life);
        if heat.last != 0 && halvings > 0 {
            let last = heat.last.wrapping_add((halvings * self.half_life) as u16).max(1);
            self.set(chunk, Heat { last, ..heat.faded(tick, self.half_life) });
        }
    }

    /// How many of how many parts of the difference between two chunks are to be expected again, where the volume has
    /// so many chunks: as many as the variance is more than chance makes of it where all are touched alike, which is
    /// the mean (H. Buehlmann, "Experience rating and credibility", 1967, for counts of Poisson). Or as much as
    /// neighbours have in common, which chance does not give them: what is read through in order a few times is touched
    /// as often, all of it, and its counts differ by less than chance.
    pub(super) fn credibility(&self, chunks: u32) -> (u64, u64) {
        let chunks = u128::from(chunks).max(u128::from(self.touched));
        let (sum, squares) = (u128::from(self.sum), u128::from(self.squares));
        // Both times the square of the number of chunks.
        let variance = chunks * squares - sum * sum;
        let in_common = (chunks * u128::from(self.products)).saturating_sub(sum * sum).min(variance);
        let beyond_chance = variance.saturating_sub(chunks * sum).max(in_common);
        let shift = (u128::BITS - variance.leading_zeros()).saturating_sub(u64::BITS);
        ((beyond_chance >> shift) as u64, (variance >> shift) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::mix;

    /// So many chunks, each touched so many times in ticks that follow each other.
    fn touched(times: impl Fn(u32) -> u8) -> Heats {
        let mut heats = Heats::new(10_000, 3600);
        for chunk in 0..heats.chunks() {
            heats.set(Chunk(chunk), Heat { reads: times(chunk), writes: 0, last: 9 });
        }
        heats
    }

    fn share((parts, of): (u64, u64)) -> f64 {
        parts as f64 / (of as f64).max(1.0)
    }

    #[test]
    fn of_what_chance_did_nothing_is_expected_again() {
        // Each chunk has its touches from so many throws of a die.
        let mut counts = vec![0u8; 10_000];
        (0..3_000).for_each(|throw| counts[mix(throw) as usize % 10_000] += 1);
        assert!(counts.iter().any(|count| *count >= 3), "some were touched three times");
        assert!(share(touched(|chunk| counts[chunk as usize]).credibility(10_000)) < 0.05);
    }

    #[test]
    fn of_what_some_are_touched_more_nearly_all_is() {
        assert!(share(touched(|chunk| if chunk < 100 { 30 } else { 0 }).credibility(10_000)) > 0.95);
        let here_and_there = touched(|chunk| if chunk % 2 == 0 { 4 } else { 2 });
        assert_eq!(share(here_and_there.credibility(10_000)), 0.0);
        let read_again = touched(|chunk| if chunk < 500 { 3 } else { 1 });
        assert!(share(read_again.credibility(10_000)) > 0.95, "neighbours, as often as each other");
        let alike = touched(|_| 30);
        assert_eq!(alike.credibility(0), (0, 0), "all that there are");
        assert!(share(alike.credibility(1_000_000)) > 0.95, "and many that nobody touched");
    }

    /// Two chunks were touched 60 and 40 times, five minutes apart: for hours, the second is never nearly as hot.
    #[test]
    fn what_is_hotter_is_so_at_every_moment_of_a_rest() {
        let hot = Heat { reads: 60, writes: 0, last: 100 };
        let warm = Heat { reads: 30, writes: 10, last: 400 };
        let mut before = hot.fine(399, 3600).reads;
        for tick in 400..10_000 {
            let (hot, warm) = (hot.fine(tick, 3600), warm.fine(tick, 3600));
            assert!(hot.total() * 4 >= warm.total() * 5, "{tick}: {hot:?} {warm:?}");
            assert!(hot.reads <= before && before - hot.reads < 30, "evenly, at {tick}");
            before = hot.reads;
        }
        assert_eq!(hot.fine(100, 3600), Fine { reads: 60 * FINE, writes: 0 });
        assert_eq!(hot.fine(3700, 3600).reads, 30 * FINE);
    }

    #[test]
    fn sums_follow_what_changes_and_fades() {
        let mut heats = touched(|chunk| (chunk % 7) as u8);
        for step in 0..30_000u32 {
            let tick = (10 + step / 4) as u16;
            heats.fade_another(tick);
            let chunk = Chunk(step * 7919 % 10_000);
            let heat = heats.faded(chunk, tick);
            heats.set(chunk, Heat { writes: heat.writes.saturating_add(1), last: tick, ..heat });
        }
        let all = || heats.heat.iter().map(|heat| u64::from(heat.total()));
        assert_eq!((heats.touched, heats.sum), (10_000, all().sum()));
        assert_eq!(heats.squares, all().map(|heat| heat * heat).sum());
        assert_eq!(heats.products, all().zip(all().skip(1)).map(|(one, next)| one * next).sum());
        let fresh = heats.heat.iter().all(|heat| heat.halvings(7_509, 3600) == 0);
        assert!(fresh, "each had its turn");
    }

    #[test]
    fn sums_of_the_largest_volume_fit() {
        let mut heats = Heats::new(1, 3600);
        (heats.touched, heats.sum, heats.squares) = (u64::from(u32::MAX), 510 << 31, (510 * 510) << 31);
        let (parts, of) = heats.credibility(u32::MAX);
        assert!(parts > 0 && parts < of);
    }
}
