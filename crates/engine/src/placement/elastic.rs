//! The landing zone grows while more lands than the slow device can take, and shrinks when it is quiet.
//!
//! It borrows areas of the fast device that hold slots: their chunks are pushed down in long runs, at the slow device's
//! sequential speed, into what is held back there for that, or what nothing is in; landed blocks could be merged only one
//! by one. So a burst of random writes may be as large as that, and the size of the volume stays what it is.
//!
//! What is held back is there whatever the volume holds. Areas borrowed beyond it are *on call*: each chunk that becomes
//! used takes a slot, and a burst adds an eighth of what is left to such chunks at most. When more than that is used, the zone
//! gives them back as its segments become free; and where it cannot do so soon enough, whoever lands waits for it, for a
//! chunk that lands without a home and finds none later would hold the log's tail for ever.

use crate::api::economy::Economy;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// What batches that free the zone have taken of late.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Cost {
    took_ns: u64,
    pub(crate) blocks: u64,
}

impl Cost {
    /// What was learned in more time than `memory_ns` counts half.
    pub(crate) fn another(&mut self, took_ns: u64, blocks: u64, memory_ns: u64) {
        if self.took_ns > memory_ns {
            (self.took_ns, self.blocks) = (self.took_ns / 2, self.blocks / 2);
        }
        (self.took_ns, self.blocks) = (self.took_ns + took_ns, self.blocks + blocks);
    }

    /// Blocks in so long a time; none where nothing is known.
    pub(crate) fn blocks_in(&self, ns: u64) -> u64 {
        if self.took_ns == 0 {
            return 0;
        }
        self.blocks.saturating_mul(ns) / self.took_ns
    }

    /// Whether a block costs at most one part in so many of what one of the other kind costs. What was never tried may.
    pub(crate) fn is_part_of(&self, other: &Cost, share: u32) -> bool {
        let (mine, others) = (u128::from(self.took_ns), u128::from(other.took_ns));
        mine * u128::from(share) * u128::from(other.blocks) <= others * u128::from(self.blocks)
    }
}

/// What a run of slots holds: the coldest first, then what has the fewest chunks.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) heat: u32,
    pub(crate) chunks: u32,
    pub(crate) number: u32,
}

impl Run {
    /// Whether it was touched by no more than chance makes of two that are as cold (twice the root of both together, which one
    /// of 20 such pairs exceeds), and emptying it takes a quarter more at most.
    pub(crate) fn is_about_as_cold(&self, other: &Run) -> bool {
        self.heat.saturating_sub(other.heat) <= 2 * (self.heat + other.heat).isqrt()
            && self.chunks <= other.chunks + other.chunks / 4
    }
}

/// How far apart the runs are that are looked at, of so many: all have their turn, and those that follow each other are far
/// from each other (by about the golden section).
pub(crate) fn far_step(runs: u32) -> u32 {
    let divisor = |step: u32| {
        let (mut a, mut b) = (runs, step);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (runs / 8 * 5..runs).find(|step| divisor(*step) == 1).unwrap_or(1)
}

/// How far borrowing has come.
#[derive(Default, Serialize, Deserialize)]
pub struct Borrowing {
    pub(crate) merging: Cost,
    /// Of the merging, what was done while clients were busy.
    pressed: Cost,
    pub(crate) pushing: Cost,
    /// The run that was looked at last.
    pub(crate) hand: u32,
    /// The one that was emptied last, and how many of its neighbours were before it.
    pub(crate) emptied: u32,
    pub(crate) in_a_row: u32,
    /// The same, for an area that nobody misses.
    pub(crate) idle_hand: u32,
    pub(crate) attempts: u32,
    /// Not before this is another run looked for.
    pub(crate) not_before: Nanos,
    /// When the zone ran short last.
    pub(crate) short_at: Nanos,
    /// Slots that were on call when clients had not written for a while: what bursts before this one have taken.
    pub(crate) taken_before: u32,
}

impl Borrowing {
    /// How long merging so many blocks takes, as far as experience goes, ns.
    pub(crate) fn merging_takes_ns(&self, blocks: u32) -> Option<u64> {
        let Cost { took_ns, blocks: merged } = self.pressed;
        (merged > 0).then(|| (u128::from(took_ns) * u128::from(blocks) / u128::from(merged)) as u64)
    }

    /// A batch that was to free the zone has merged so many blocks, which makes room for so many, or pushed down slots for so
    /// many.
    pub(crate) fn learn(
        &mut self,
        took_ns: u64,
        (merged, room, pushed): (u64, u64, u64),
        idle: bool,
        economy: &Economy,
    ) {
        let memory_ns = economy.cost_memory_ns;
        if merged > 0 && pushed == 0 && !idle {
            self.pressed.another(took_ns, merged, memory_ns);
        }
        if pushed > 0 {
            self.pushing.another(took_ns, pushed, memory_ns);
        } else if merged > 0 {
            self.merging.another(took_ns, room, memory_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushing_down_is_worth_it_where_merging_costs_several_times_as_much() {
        let mut borrowing = Borrowing::default();
        let learn = |b: &mut Borrowing, what| b.learn(Nanos::SECOND, what, true, &Economy::default());
        let is_worth_it = |b: &Borrowing, share| b.pushing.is_part_of(&b.merging, share);
        assert!(is_worth_it(&borrowing, 4), "nobody knows");
        learn(&mut borrowing, (1000, 1000, 0));
        assert!(is_worth_it(&borrowing, 4), "nobody knows");
        learn(&mut borrowing, (0, 0, 4000));
        assert!(is_worth_it(&borrowing, 4) && !is_worth_it(&borrowing, 5));
        // What was learned long ago counts little beside what was learned since.
        (0..20).for_each(|_| learn(&mut borrowing, (20_000, 20_000, 0)));
        assert!(!is_worth_it(&borrowing, 1) && is_worth_it(&borrowing, 0));
    }

    #[test]
    fn a_neighbour_is_about_as_cold_within_what_chance_does() {
        let run = |heat, chunks| Run { heat, chunks, number: 7 };
        assert!(run(0, 120).is_about_as_cold(&run(0, 100)));
        assert!(run(60, 100).is_about_as_cold(&run(40, 100)), "by the root of 100, twice");
        assert!(!run(61, 100).is_about_as_cold(&run(40, 100)));
        assert!(!run(5, 100).is_about_as_cold(&run(0, 100)));
        assert!(run(10, 100).is_about_as_cold(&run(40, 100)), "or colder");
        assert!(!run(0, 126).is_about_as_cold(&run(0, 100)), "but it holds too much");
    }

    #[test]
    fn all_runs_have_their_turn() {
        for runs in 1..300 {
            let step = far_step(runs);
            let mut seen: Vec<u32> = (1..=runs).map(|n| n * step % runs).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..runs), "{runs} runs, {step} apart");
        }
    }
}
