//! A target is written from its start to its end: how fast it is at which fill level, where it falls, and how much it
//! takes at the old speed after that.

use super::idle::IdleRule;
use super::pass::Deed;
use super::table::{mb_per_s, quantity, speed};
use super::tester::{Tester, TesterError};
use crate::load::LoadTarget;
use serde::Serialize;
use std::ops::Range;

/// A fall to this share of the speed before is a cliff; an inner track of a disk has more than half of the outer one's.
const CLIFF_SHARE: f64 = 0.7;
/// Parts on each side of a cliff that are compared: one in so many, and no fewer than so few. Fewer are no burst, either:
/// what a device takes into its buffers goes as fast, part by part.
const SIDE_SHARE: usize = 50;
const SIDE_LEAST: usize = 3;

/// How a target is filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillPlan {
    /// It is left alone once it has fallen, so that it can show what it takes at its old speed then.
    pub rest: Option<IdleRule>,
    /// And read afterwards, in the same order.
    pub read: bool,
}

/// A fall in speed that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cliff {
    /// What had been written before it.
    pub at_bytes: u64,
    /// The median up to there.
    pub before_mb_per_s: f64,
    /// The median from there on.
    pub after_mb_per_s: f64,
}

/// A stretch behind the cliff that went as before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Burst {
    /// What had been written before it.
    pub at_bytes: u64,
    /// How long it was.
    pub bytes: u64,
    /// Its speed.
    pub mb_per_s: f64,
}

/// What came of a fill.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fill {
    /// Bytes of each part.
    pub part_bytes: u64,
    /// The speed of writing each, in order.
    pub written_mb_per_s: Vec<f64>,
    /// And of reading it.
    pub read_mb_per_s: Vec<f64>,
    /// Where writing falls, if it does.
    pub cliff: Option<Cliff>,
    /// What went as before, behind that.
    pub bursts: Vec<Burst>,
    /// When it was left alone: what had been written by then.
    pub rested_at_bytes: Option<u64>,
}

/// Fills a target, from the first file of its layout to the last.
///
/// # Errors
/// When it cannot be loaded.
pub fn fill<T: LoadTarget>(tester: &mut Tester<'_, T>, plan: &FillPlan) -> Result<Fill, TesterError> {
    let (count, part_bytes) = (tester.layout().count, tester.layout().file_bytes);
    let mut found = Fill { part_bytes, ..Fill::default() };
    let side = side(count as usize);
    let mut fallen = |files_ns: &[u64]| plan.rest.is_some() && has_fallen(files_ns, side);
    let mut files_ns = tester.pass_until("fill", Deed::Write, 0..count, &mut fallen)?.files_ns.clone();
    // Behind a rest comes a burst, if anything does: it is not to be taken for what was before the cliff.
    let searched = files_ns.len();
    if let Some(rule) = plan.rest.filter(|_| (files_ns.len() as u64) < count && !tester.is_over()) {
        tester.idle(&rule)?;
        found.rested_at_bytes = Some(files_ns.len() as u64 * part_bytes);
        if !tester.is_over() {
            let rest = files_ns.len() as u64..count;
            files_ns.extend(&tester.pass("fill on", Deed::Write, rest)?.files_ns);
        }
    }
    (found.cliff, found.bursts) = shape(&files_ns, searched, part_bytes);
    found.written_mb_per_s = speeds(&files_ns, part_bytes);
    if plan.read && !tester.is_over() {
        let read = &tester.pass("read back", Deed::Read, 0..files_ns.len() as u64)?.files_ns;
        found.read_mb_per_s = speeds(read, part_bytes);
    }
    tester.say("");
    tester.say(&found.sentence());
    Ok(found)
}

fn speeds(files_ns: &[u64], part_bytes: u64) -> Vec<f64> {
    files_ns.iter().map(|&ns| mb_per_s(part_bytes, ns)).collect()
}

fn side(parts: usize) -> usize {
    (parts / SIDE_SHARE).max(SIDE_LEAST)
}

/// The median of some times, one nanosecond at least; there is one.
fn median(files_ns: &[u64]) -> u64 {
    let mut sorted = files_ns.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2].max(1)
}

/// Nanoseconds of some parts together.
fn time(files_ns: &[u64], parts: Range<usize>) -> u64 {
    files_ns[parts].iter().sum::<u64>().max(1)
}

/// Whether the last parts were much slower than all before them, while it goes on. Between both lie as many that
/// do not count: a part in which it falls is neither.
pub(super) fn has_fallen(files_ns: &[u64], side: usize) -> bool {
    let all = files_ns.len();
    if all < 3 * side {
        return false;
    }
    let before = (all - 2 * side) as f64 / time(files_ns, 0..all - 2 * side) as f64;
    files_ns[all - side..].iter().all(|&ns| 1.0 / (ns.max(1) as f64) <= CLIFF_SHARE * before)
}

/// The cliff, which lies within the first so many parts, and the bursts behind it.
pub(super) fn shape(files_ns: &[u64], parts: usize, part_bytes: u64) -> (Option<Cliff>, Vec<Burst>) {
    let side = side(parts);
    if parts < 2 * side {
        return (None, Vec::new());
    }
    // Where times before and behind differ most, for their number: the best of all steps.
    let (all, mut before) = (time(files_ns, 0..parts) as f64, 0.0);
    let mut best = (0.0, 0);
    for at in 1..parts {
        before += files_ns[at - 1] as f64;
        let (first, rest) = (before / at as f64, (all - before) / (parts - at) as f64);
        let weight = at as f64 * (parts - at) as f64 * (rest - first) * (rest - first).abs();
        if at >= side && parts - at >= side && weight > best.0 {
            best = (weight, at);
        }
    }
    let at = best.1;
    // A step, not a slope, nor a single slow part: just behind it most are as much slower than just before.
    let near = |range: Range<usize>| 1.0 / median(&files_ns[range]) as f64;
    if at == 0 || near(at..at + side) > CLIFF_SHARE * near(at - side..at) {
        return (None, Vec::new());
    }
    let before_mb_per_s = mb_per_s(part_bytes, median(&files_ns[..at]));
    let after_mb_per_s = mb_per_s(part_bytes, median(&files_ns[at..]));
    let cliff = Cliff { at_bytes: at as u64 * part_bytes, before_mb_per_s, after_mb_per_s };
    (Some(cliff), bursts(files_ns, at, part_bytes, (before_mb_per_s + after_mb_per_s) / 2.0))
}

fn bursts(files_ns: &[u64], from: usize, part_bytes: u64, above_mb_per_s: f64) -> Vec<Burst> {
    let is_fast = |ns: &u64| mb_per_s(part_bytes, *ns) >= above_mb_per_s;
    let mut found = Vec::new();
    let mut at = from;
    for run in files_ns[from..].chunk_by(|one, other| is_fast(one) == is_fast(other)) {
        if run.len() >= SIDE_LEAST && is_fast(&run[0]) {
            let bytes = run.len() as u64 * part_bytes;
            let mb_per_s = mb_per_s(bytes, run.iter().sum());
            found.push(Burst { at_bytes: at as u64 * part_bytes, bytes, mb_per_s });
        }
        at += run.len();
    }
    found
}

impl Fill {
    /// What was found, in a sentence.
    pub fn sentence(&self) -> String {
        let Some(Cliff { at_bytes, before_mb_per_s, after_mb_per_s }) = self.cliff else {
            return format!(
                "no cliff in {} that were written",
                quantity(self.written_mb_per_s.len() as u64 * self.part_bytes)
            );
        };
        let mut text = format!(
            "a cliff at {}: {} MB/s before, {} behind, {:.0} % less",
            quantity(at_bytes),
            speed(before_mb_per_s),
            speed(after_mb_per_s),
            (1.0 - after_mb_per_s / before_mb_per_s) * 100.0
        );
        match self.bursts.iter().max_by_key(|burst| burst.bytes) {
            Some(most) => {
                let count = self.bursts.len();
                let which =
                    if count == 1 { "one burst".to_owned() } else { format!("{count} bursts, the longest") };
                text += &format!(
                    "; {which} of {} at {} MB/s from {} on",
                    quantity(most.bytes),
                    speed(most.mb_per_s),
                    quantity(most.at_bytes)
                );
            }
            None => text += "; no burst at the old speed after that",
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// Parts of 1 MB, at these speeds.
    fn at(mb_per_s: impl Iterator<Item = f64>) -> Vec<u64> {
        mb_per_s.map(|speed| (1e9 / speed) as u64).collect()
    }

    #[test]
    fn a_cliff_and_the_burst_behind_it() {
        let speeds = (0..1000).map(|n| match n {
            0..113 => 322.0 + f64::from(n % 7),
            400..408 => 300.0,
            _ => 150.0 - f64::from(n) / 20.0 + f64::from(n % 5),
        });
        let (cliff, bursts) = shape(&at(speeds.clone()), 1000, MB);
        // The same, where it was left alone before the burst.
        assert_eq!(shape(&at(speeds), 400, MB), (cliff, bursts.clone()));
        let cliff = cliff.expect("there is one");
        assert_eq!(cliff.at_bytes, 113 * MB);
        assert!(
            (cliff.before_mb_per_s - 325.0).abs() < 2.0 && (cliff.after_mb_per_s - 124.0).abs() < 5.0,
            "{cliff:?}"
        );
        assert_eq!(
            bursts.iter().map(|burst| (burst.at_bytes, burst.bytes)).collect::<Vec<_>>(),
            [(400 * MB, 8 * MB)]
        );
    }

    /// A disk is slower inside; that is no cliff, and neither is noise, a single slow part, or a rise.
    #[test]
    fn a_slope_is_no_cliff() {
        let slope = |n: i32| 180.0 - 90.0 * f64::from(n) / 1000.0;
        for (what, speeds) in [
            ("a slope", at((0..1000).map(slope))),
            ("noise", at((0..1000).map(|n| 100.0 + f64::from(n * 7919 % 37)))),
            ("one slow part", at((0..1000).map(|n| if n == 500 { 5.0 } else { 100.0 }))),
            ("a rise", at((0..1000).map(|n| if n > 500 { 300.0 } else { 100.0 }))),
            ("few", at((0..5).map(|_| 100.0))),
            ("none", Vec::new()),
        ] {
            assert_eq!(shape(&speeds, speeds.len(), MB), (None, Vec::new()), "{what}");
        }
    }

    #[test]
    fn a_fall_is_seen_as_soon_as_it_lasts() {
        let speeds = at((0..100).map(|n| if n < 50 || n == 20 { 300.0 } else { 100.0 }));
        let first = (0..=100).find(|&n| has_fallen(&speeds[..n], 3));
        assert_eq!(first, Some(53));
    }
}
