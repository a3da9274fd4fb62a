//! Runs beside each other, as bars: each kind of I/O of each job that several of them have.

use super::Named;
use super::extra::{Bar, Bars, Origin};
use super::summary::Row;
use super::units::{name, rate, three};
use crate::record::{Interval, IntervalSide, JobRun};
use crate::stats::mean_interval;

/// Charts of a page.
const MAX_CHARTS: usize = 40;
/// Parts of a run whose spread says how sure its mean is, and the fewest that can.
const PARTS: (usize, usize) = (4, 20);
/// What the ends on a bar are.
const NOTE: &str = "Each bar is the mean of one run. The ends on it are where that mean lies 95 of 100 times, by the \
                    spread of 4 to 20 parts of the same run (Student's t): how runs differ from each other is not in \
                    them, `lab compare` and `--against` measure that.";

/// A chart for each kind of I/O of each job that at least two runs have, and how many there would be.
pub(super) fn bars(runs: &[Named], rows: &[Row<'_>]) -> (Vec<Bars>, usize) {
    let groups: Vec<&[Row<'_>]> = rows.chunk_by(Row::matches).filter(|group| group.len() > 1).collect();
    (groups.iter().take(MAX_CHARTS).map(|group| chart(runs, group)).collect(), groups.len())
}

fn chart(runs: &[Named], group: &[Row<'_>]) -> Bars {
    let bytes = group.iter().any(|row| row.bytes_per_s > 0.0);
    let bar = |row: &Row<'_>| {
        let value = if bytes { row.bytes_per_s / 1e6 } else { row.iops };
        let interval = parts(row, bytes).and_then(|parts| mean_interval(&parts));
        let text = match bytes {
            true => format!("{} MB/s, {} IOPS", three(value), rate(row.iops)),
            false => format!("{} IOPS", rate(row.iops)),
        };
        let run = runs.get(row.run);
        Bar {
            label: run.map_or(String::new(), |named| named.name.clone()),
            value,
            text,
            origin: run.map_or(Origin::Measured, |named| Origin::of(&named.run, row.job)),
            interval,
        }
    };
    let first = &group[0];
    let nth = if first.nth > 0 { format!(" ({})", first.nth + 1) } else { String::new() };
    // A part of the quick test has its kind in its name.
    let kind = if first.job.name.contains(first.kind) { String::new() } else { format!(", {}", first.kind) };
    let unit = if bytes { "MB/s" } else { "IOPS" };
    Bars {
        title: format!("{}{nth}{kind}: {unit}", name(&first.job.name)),
        bars: group.iter().map(bar).collect(),
        note: NOTE,
    }
}

/// What was done in a second, or MB/s, in parts of the run that are as long as each other; none where it is too short.
fn parts(row: &Row<'_>, bytes: bool) -> Option<Vec<f64>> {
    let of: fn(&Interval) -> &IntervalSide = match row.kind {
        "read" => |interval| &interval.read,
        "write" => |interval| &interval.write,
        _ => return None,
    };
    let JobRun { intervals, interval_ns, elapsed_ns, .. } = row.job;
    let whole = usize::try_from(elapsed_ns.checked_div(*interval_ns)?).ok()?;
    let parts = whole.min(PARTS.1);
    if parts < PARTS.0 {
        return None;
    }
    let in_part = whole / parts;
    let mut sums = vec![0.0; parts];
    for interval in intervals {
        let part = usize::try_from(interval.n).ok().map(|n| n / in_part);
        if let Some(sum) = part.and_then(|part| sums.get_mut(part)) {
            let side = of(interval);
            *sum += if bytes { side.bytes as f64 / 1e6 } else { side.ios as f64 };
        }
    }
    let seconds = in_part as f64 * *interval_ns as f64 / 1e9;
    Some(sums.into_iter().map(|sum| sum / seconds).collect())
}
