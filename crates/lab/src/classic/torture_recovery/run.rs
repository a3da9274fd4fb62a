//! What is done to the drive, in order.

use super::verdict::{Pass, Verdict};
use crate::classic::cell::Cell;
use crate::classic::disktester::{Deed, Layout, Tester, TesterError};
use crate::job::Job;
use crate::load::LoadTarget;
use crate::record::JobRun;
use serde::Serialize;
use std::time::Duration;

/// Parts that a pass is looked at in.
pub const PART_COUNT: u64 = 200;
/// Of a write in order, one at a time.
const TRANSFER_BYTES: u64 = 128 << 10;
/// What tortures it.
const RANDOM_WRITE: Cell = Cell { read_percent: 0, bytes: 4096, random: true, depth: 32 };
/// Of the torture, the first and the last of so many parts are what it begins and ends with.
const TORTURE_PARTS: usize = 20;

/// What is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorturePlan {
    /// How long random writes go on.
    pub torture: Duration,
    /// Where their places are drawn from.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Found {
    /// Bytes of a part of a pass.
    pub part_bytes: u64,
    /// The pass over the fresh target.
    pub fresh: Pass,
    /// Random writes at first, and in the end, MB/s.
    pub torture_mb_per_s: [f64; 2],
    /// The passes after them.
    pub after_torture: Vec<Pass>,
    /// The pass after TRIM; none where the target takes none.
    pub after_trim: Option<Pass>,
    /// What that means; none when it was ended before.
    pub verdict: Option<Verdict>,
}

/// The parts of a target of so many bytes; none if it is too small for them.
pub fn layout(target_bytes: u64) -> Option<Layout> {
    let part = target_bytes / PART_COUNT;
    let granule = if part >= TRANSFER_BYTES { TRANSFER_BYTES } else { RANDOM_WRITE.bytes };
    let file_bytes = part / granule * granule;
    (file_bytes > 0).then_some(Layout {
        count: PART_COUNT,
        file_bytes,
        transfer_bytes: TRANSFER_BYTES.min(file_bytes),
        depth: 1,
        seed: 1,
        stamped: false,
    })
}

/// Gives a target back, writes it in order, tortures it, and sees what brings it back.
///
/// # Errors
/// When it cannot be loaded.
pub fn torture_recovery<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: TorturePlan,
) -> Result<Found, TesterError> {
    let (parts, part_bytes) = (tester.layout().count, tester.layout().file_bytes);
    let all = tester.layout().bytes();
    let mut found = Found { part_bytes, ..Found::default() };
    let trims = trim(tester, "given back, to begin with", all)?;
    let fresh_ns = pass(tester, "fresh, in order", parts)?;
    found.fresh = Pass::new("fresh, in order", part_bytes, &fresh_ns, &fresh_ns);
    if tester.is_over() {
        return Ok(found);
    }
    found.torture_mb_per_s = ends(tester.job(&torture(all, plan))?);
    for name in ["in order, after the torture", "in order, once more"] {
        if tester.is_over() {
            return Ok(found);
        }
        let ns = pass(tester, name, parts)?;
        found.after_torture.push(Pass::new(name, part_bytes, &ns, &fresh_ns));
    }
    if tester.is_over() {
        return Ok(found);
    }
    if trims && trim(tester, "given back", all)? {
        let ns = pass(tester, "in order, after TRIM", parts)?;
        found.after_trim = Some(Pass::new("in order, after TRIM", part_bytes, &ns, &fresh_ns));
    }
    if !tester.is_over() {
        let verdict =
            Verdict::new(found.torture_mb_per_s, &found.after_torture, part_bytes, found.after_trim.as_ref());
        found.verdict = Some(verdict);
    }
    Ok(found)
}

fn pass<T: LoadTarget>(tester: &mut Tester<'_, T>, name: &str, parts: u64) -> Result<Vec<u64>, TesterError> {
    Ok(tester.pass(name, Deed::Write, 0..parts)?.files_ns.clone())
}

/// Gives all back. Whether the target takes that; one that does not is no reason to end.
fn trim<T: LoadTarget>(tester: &mut Tester<'_, T>, name: &str, all: u64) -> Result<bool, TesterError> {
    Ok(tester.attempt(&Job::give_back(name, all))?.is_none())
}

fn torture(all: u64, plan: TorturePlan) -> Job {
    let ns = u64::try_from(plan.torture.as_nanos()).unwrap_or(u64::MAX);
    RANDOM_WRITE.job("torture: random writes", all, plan.seed, ns)
}

/// The speed of the first and of the last part of a job's time, MB/s.
fn ends(ran: &JobRun) -> [f64; 2] {
    let intervals = &ran.intervals;
    let side = (intervals.len() / TORTURE_PARTS).max(1).min(intervals.len());
    let speed = |part: &[crate::record::Interval]| {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { return 0.0 };
        let bytes: u64 = part.iter().map(|interval| interval.write.bytes).sum();
        // The last interval may be cut short by the end.
        let until = ((last.n + 1) * ran.interval_ns).min(ran.elapsed_ns);
        bytes as f64 * 1e3 / until.saturating_sub(first.n * ran.interval_ns).max(1) as f64
    };
    [speed(&intervals[..side]), speed(&intervals[intervals.len() - side..])]
}
