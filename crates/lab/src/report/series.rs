//! What happened over time, in as few points as a plot can show.
//!
//! Nothing here is as long as the run: an interval that is not recorded costs nothing, so that a record that names the
//! first and the billionth is as cheap as one that names two in a row.

use crate::record::{Interval, IntervalSide, JobRun};
use serde::Serialize;
use std::ops::Range;

/// Classes of a heat map or a map of places.
pub(super) const CLASSES: usize = 128;

/// Points of a line; as many of either.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Line {
    /// Which of the page's series.
    pub series: usize,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
}

/// Counts by column of time and class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Cells {
    /// When the first column begins, seconds.
    pub from: f64,
    /// Seconds of a column.
    pub column: f64,
    /// Column, class, count, one after the other.
    pub cells: Vec<u64>,
}

/// A job's time as slots of an interval each.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    count: u64,
    interval_ns: u64,
    /// Of the last one, where it was measured in part.
    last_ns: u64,
    began_ns: u64,
}

impl Slots {
    /// None where nothing was recorded by intervals.
    pub(super) fn of(job: &JobRun) -> Option<Slots> {
        let last = job.intervals.last()?;
        let interval_ns = job.interval_ns;
        let (elapsed, ended) = (job.elapsed_ns.div_ceil(interval_ns.max(1)), last.n.checked_add(1)?);
        let partial = job.elapsed_ns.checked_rem(interval_ns)?;
        let last_ns = if partial > 0 && elapsed >= ended { partial } else { interval_ns };
        Some(Slots { count: elapsed.max(ended), interval_ns, last_ns, began_ns: job.began_ns })
    }

    /// Since the run began, seconds.
    fn end(&self, slot: u64) -> f64 {
        let ns = (u128::from(slot) + 1) * u128::from(self.interval_ns) + u128::from(self.began_ns);
        let short = if slot + 1 == self.count { self.interval_ns - self.last_ns } else { 0 };
        (ns - u128::from(short)) as f64 / 1e9
    }

    fn begin_s(&self) -> f64 {
        self.began_ns as f64 / 1e9
    }

    /// When it ends, in seconds since the run began.
    pub(super) fn end_s(&self) -> f64 {
        self.end(self.count.saturating_sub(1))
    }

    /// Intervals in a window, one at least.
    pub(super) fn in_window(&self, window_ns: u64) -> u64 {
        (window_ns / self.interval_ns).max(1)
    }

    /// A last slot of which less than half was measured says little, and a rate from it would leap.
    fn drawn(&self) -> u64 {
        self.count - u64::from(self.last_ns < self.interval_ns.div_ceil(2))
    }
}

/// Keeps the lowest and the highest of each of so many equal parts of the time, each at its time; where there are no
/// more slots than twice that, all.
struct Thin {
    slots: u64,
    parts: u64,
    kept: Vec<Option<[(f64, u64); 2]>>,
}

impl Thin {
    fn new(slots: u64, parts: usize) -> Thin {
        let parts = if slots <= 2 * parts as u64 { slots } else { parts as u64 };
        Thin { slots, parts, kept: vec![None; parts as usize] }
    }

    fn part(&self, slot: u64) -> u64 {
        (u128::from(slot) * u128::from(self.parts) / u128::from(self.slots)) as u64
    }

    /// The part's first slot.
    fn first(&self, part: u64) -> u64 {
        (u128::from(part) * u128::from(self.slots)).div_ceil(u128::from(self.parts)) as u64
    }

    /// All of these slots have the value.
    fn add(&mut self, slots: Range<u64>, value: f64) {
        if slots.is_empty() || slots.end > self.slots {
            return;
        }
        for part in self.part(slots.start)..=self.part(slots.end - 1) {
            let at = self.first(part).max(slots.start);
            let kept = &mut self.kept[part as usize];
            let [low, high] = kept.unwrap_or([(value, at); 2]);
            *kept = Some([
                if value < low.0 { (value, at) } else { low },
                if value > high.0 { (value, at) } else { high },
            ]);
        }
    }

    fn line(self, series: usize, times: &Slots) -> Line {
        let mut line = Line { series, ..Line::default() };
        for [low, high] in self.kept.into_iter().flatten() {
            let (first, second) = if low.1 <= high.1 { (low, high) } else { (high, low) };
            for (value, slot) in [first, second] {
                let x = digits(times.end(slot), 7);
                if line.x.last() != Some(&x) {
                    line.x.push(x);
                    line.y.push(digits(value, 5));
                }
            }
        }
        line
    }
}

/// A number with so many digits: a plot shows no more, and a page is shorter.
pub(super) fn digits(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// A sum of two figures over a window that moves by one interval at a time, and what is drawn of it (nothing, where it
/// says none). A point stands at its window's end; the first where the window is full.
pub(super) fn moving(
    job: &JobRun,
    window: u64,
    parts: usize,
    of: impl Fn(&Interval) -> [u64; 2],
    drawn: impl Fn([u64; 2], f64) -> Option<f64>,
) -> Line {
    let Some(slots) = Slots::of(job) else { return Line::default() };
    let end = slots.drawn();
    let mut thin = Thin::new(slots.count, parts);
    let mut sum = [0u64; 2];
    let seconds = (u128::from(window) * u128::from(slots.interval_ns)) as f64 / 1e9;
    let short = (slots.interval_ns - slots.last_ns) as f64 / 1e9;
    let mut draw = |sum: [u64; 2], from: u64, to: u64| {
        let (from, to) = (from.max(window - 1), to.min(end));
        // The last slot may have been measured in part, and then its window is shorter.
        let whole = to.min(slots.count - 1);
        for (range, seconds) in [(from..whole, seconds), (from.max(whole)..to, seconds - short)] {
            if let Some(value) = drawn(sum, seconds) {
                thin.add(range, value);
            }
        }
    };
    let mut enter = job.intervals.iter().peekable();
    let mut leave = job.intervals.iter().peekable();
    let mut from = 0;
    while from < end {
        let enters = enter.peek().map_or(u64::MAX, |interval| interval.n);
        let leaves = leave.peek().map_or(u64::MAX, |interval| interval.n.saturating_add(window));
        let at = enters.min(leaves).max(from);
        draw(sum, from, at);
        from = at;
        if at == u64::MAX {
            break;
        }
        if leaves <= at {
            if let Some(interval) = leave.next() {
                let gone = of(interval);
                sum = [0, 1].map(|i| sum[i].saturating_sub(gone[i]));
            }
        } else if let Some(interval) = enter.next() {
            let come = of(interval);
            sum = [0, 1].map(|i| sum[i].saturating_add(come[i]));
        }
    }
    thin.line(0, &slots)
}

/// A figure of each interval that was recorded.
pub(super) fn each(job: &JobRun, parts: usize, of: impl Fn(&Interval) -> Option<f64>) -> Line {
    let Some(slots) = Slots::of(job) else { return Line::default() };
    let mut thin = Thin::new(slots.count, parts);
    for interval in &job.intervals {
        if let Some(value) = of(interval) {
            thin.add(interval.n..interval.n.saturating_add(1), value);
        }
    }
    thin.line(0, &slots)
}

/// Counts by time and class, in so many columns at most.
pub(super) fn cells(
    job: &JobRun,
    columns: usize,
    side: fn(&Interval) -> &IntervalSide,
    of: fn(&IntervalSide) -> &[(u8, u64)],
) -> Cells {
    let Some(slots) = Slots::of(job) else { return Cells::default() };
    let columns = (columns as u64).min(slots.count);
    let mut counts = vec![0u64; columns as usize * CLASSES];
    for interval in job.intervals.iter().filter(|interval| interval.n < slots.count) {
        let column = (u128::from(interval.n) * u128::from(columns) / u128::from(slots.count)) as usize;
        for &(class, count) in of(side(interval)) {
            if let Some(sum) = counts.get_mut(column * CLASSES + usize::from(class)) {
                *sum = sum.saturating_add(count);
            }
        }
    }
    let seconds = slots.count as f64 * slots.interval_ns as f64 / 1e9;
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    Cells {
        from: slots.begin_s(),
        column: seconds / columns as f64,
        cells: used.flat_map(|(at, &count)| [(at / CLASSES) as u64, (at % CLASSES) as u64, count]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ios: &[(u64, u64)], elapsed_ns: u64) -> JobRun {
        let side = |ios| IntervalSide { ios, heat: vec![(40, ios)], ..IntervalSide::default() };
        let intervals = ios.iter().map(|&(n, ios)| Interval { n, read: side(ios), ..Interval::default() });
        JobRun { interval_ns: 500_000_000, elapsed_ns, intervals: intervals.collect(), ..JobRun::default() }
    }

    fn iops(job: &JobRun, window: u64, parts: usize) -> Vec<(f64, f64)> {
        let line = moving(job, window, parts, |i| [i.read.ios, 0], |sum, s| Some(sum[0] as f64 / s));
        line.x.into_iter().zip(line.y).collect()
    }

    #[test]
    fn a_window_moves() {
        let job = job(&[(0, 5), (1, 10), (4, 20)], 3_000_000_000);
        let each = [(0.5, 10.0), (1.0, 20.0), (1.5, 0.0), (2.0, 0.0), (2.5, 40.0), (3.0, 0.0)];
        assert_eq!(iops(&job, 1, 100), each);
        assert_eq!(iops(&job, 2, 100), [(1.0, 15.0), (1.5, 10.0), (2.0, 0.0), (2.5, 20.0), (3.0, 20.0)]);
        assert_eq!(iops(&job, 100, 100), []);
    }

    /// 0.3 of the last 0.5 s were measured: the rate is by 0.3 s. Of 0.2 s none is told.
    #[test]
    fn the_last_interval_may_be_short() {
        assert_eq!(iops(&job(&[(0, 5), (1, 3)], 800_000_000), 1, 100), [(0.5, 10.0), (0.8, 10.0)]);
        assert_eq!(iops(&job(&[(0, 5), (1, 3)], 700_000_000), 1, 100), [(0.5, 10.0)]);
        // What ended after the time was counted is in an interval of its own.
        assert_eq!(iops(&job(&[(0, 5), (2, 1)], 700_000_000), 1, 100), [(0.5, 10.0), (1.0, 0.0), (1.5, 2.0)]);
    }

    #[test]
    fn peaks_and_gaps_survive() {
        let mut ios: Vec<(u64, u64)> = (0..100_000).map(|n| (n, 100)).collect();
        ios[54_321].1 = 7000;
        ios.remove(77_777);
        let line = iops(&job(&ios, 50_000_000_000_000), 1, 300);
        assert!(line.len() <= 600, "{}", line.len());
        let at = |value| line.iter().find(|point| point.1 == value).map(|point| point.0);
        assert_eq!(at(14_000.0), Some(54_322.0 * 0.5));
        assert_eq!(at(0.0), Some(77_778.0 * 0.5));
        assert!(line.is_sorted_by(|a, b| a.0 < b.0));
    }

    /// The billionth billionth interval takes no longer than the second.
    #[test]
    fn far_apart_is_cheap() {
        let job = job(&[(0, 5), (1 << 32, 5)], 1 << 61);
        let line = iops(&job, 2, 100);
        assert!((3..=200).contains(&line.len()), "{line:?}");
        let cells = cells(&job, 50, |i| &i.read, |side| &side.heat);
        assert_eq!(cells.cells[..3], [0, 40, 5]);
        assert_eq!(cells.cells.len(), 6);
        assert_eq!(each(&job, 10, |i| Some(i.read.ios as f64)).y, [5.0, 5.0]);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(iops(&JobRun::default(), 1, 10), []);
        assert_eq!(iops(&job(&[], 5), 1, 10), []);
        assert_eq!(cells(&JobRun::default(), 10, |i| &i.read, |side| &side.places), Cells::default());
    }

    #[test]
    fn digits_are_cut() {
        assert_eq!((digits(123_456.0, 4), digits(0.012_345_6, 4)), (123_500.0, 0.012_35));
        assert_eq!((digits(0.0, 4), digits(f64::NAN, 4)), (0.0, 0.0));
    }
}
