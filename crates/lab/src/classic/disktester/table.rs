//! The live table: how fast it goes now, over windows of up to an hour, and all in all.

use crate::load::Going;
use std::collections::VecDeque;

/// A row is shown so often.
const ROW_NS: u64 = 5 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// DiskTester's MB: its published rows agree with themselves only where MB and GB are powers of two.
pub(super) const MB: f64 = (1u64 << 20) as f64;
/// The windows of DiskTester, seconds.
const WINDOWS_S: [u64; 9] = [2, 5, 15, 60, 120, 300, 900, 1800, 3600];

/// What has been done by a time.
#[derive(Clone, Copy, Default)]
struct Point {
    at_ns: u64,
    bytes: u64,
}

/// What goes on, row by row.
pub(super) struct Table {
    file_bytes: u64,
    /// As far back as the longest window, and one more.
    past: VecDeque<Point>,
    shown_ns: u64,
}

impl Table {
    pub(super) fn new(file_bytes: u64) -> Table {
        Table { file_bytes, past: VecDeque::from([Point::default()]), shown_ns: 0 }
    }

    /// The names of the columns.
    pub(super) fn head() -> String {
        let windows = ["2sec", "5sec", "15sec", "1min", "2min", "5min", "15min", "30min", "60min"];
        let mut text = format!("{:>9} {:>7} {:>9}", "Elapsed", "File#", "Qty");
        windows.iter().for_each(|window| text += &format!(" {window:>6}"));
        text + &format!(" {:>6} {:>6} {:>8}", "2s:15s", "1m:5m", "ClockAvg")
    }

    /// What is told four times a second; a row, where it is time for one.
    pub(super) fn look(&mut self, going: &Going) -> Option<String> {
        let bytes = going.done.iter().flatten().map(|side| side.1).sum();
        self.add(going.at_ns, bytes);
        (going.at_ns >= self.shown_ns + ROW_NS).then(|| {
            self.shown_ns = going.at_ns;
            self.row()
        })
    }

    /// The last row.
    pub(super) fn end(&mut self, at_ns: u64, bytes: u64) -> String {
        self.add(at_ns, bytes);
        self.row()
    }

    fn add(&mut self, at_ns: u64, bytes: u64) {
        if self.past.back().is_some_and(|last| at_ns <= last.at_ns) {
            return;
        }
        self.past.push_back(Point { at_ns, bytes });
        let first = at_ns.saturating_sub(WINDOWS_S[WINDOWS_S.len() - 1] * SECOND_NS);
        while self.past.get(1).is_some_and(|second| second.at_ns <= first) {
            self.past.pop_front();
        }
    }

    /// The mean of the last so many seconds, or of all that there were, MB/s.
    fn mean(&self, window_s: u64) -> f64 {
        let Some(&now) = self.past.back() else { return 0.0 };
        let from = now.at_ns.saturating_sub(window_s * SECOND_NS);
        let before = self.past.partition_point(|point| point.at_ns <= from);
        let then = self.past.get(before.saturating_sub(1)).copied().unwrap_or_default();
        mb_per_s(now.bytes - then.bytes, now.at_ns - then.at_ns)
    }

    fn row(&self) -> String {
        let Some(&now) = self.past.back() else { return String::new() };
        let means = WINDOWS_S.map(|window| self.mean(window));
        let file = now.bytes / self.file_bytes.max(1);
        let mut text = format!("{:>9} {file:>7} {:>9}", elapsed(now.at_ns), quantity(now.bytes));
        means.iter().for_each(|mean| text += &format!(" {:>6}", speed(*mean)));
        let ratio = |one: f64, other: f64| if other > 0.0 { one / other } else { 0.0 };
        let ratios = [ratio(means[0], means[2]), ratio(means[3], means[5])];
        ratios.iter().for_each(|ratio| text += &format!(" {ratio:>6.2}"));
        text + &format!(" {:>8}", speed(mb_per_s(now.bytes, now.at_ns)))
    }
}

/// Bytes in a time, ns, as MB/s; 0 in no time.
pub fn mb_per_s(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / MB * 1e9 / ns as f64 }
}

/// A speed in MB/s, with three digits at least.
pub(super) fn speed(mb_per_s: f64) -> String {
    match mb_per_s {
        slow if slow < 9.995 => format!("{slow:.2}"),
        slow if slow < 99.95 => format!("{slow:.1}"),
        fast => format!("{fast:.0}"),
    }
}

/// Bytes in units of powers of two, by DiskTester's names.
pub(super) fn quantity(bytes: u64) -> String {
    match bytes as f64 / MB {
        few if few < 1024.0 => format!("{few:.1}MB"),
        more if more < 1024.0 * 1024.0 => format!("{:.2}GB", more / 1024.0),
        most => format!("{:.3}TB", most / (1024.0 * 1024.0)),
    }
}

/// A time since the beginning.
pub(super) fn elapsed(ns: u64) -> String {
    let seconds = ns / SECOND_NS;
    match seconds {
        0..10 => format!("{:.1}s", ns as f64 / 1e9),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 MB/s for a minute, then 50: each window has its own mean, and the ratios show which way it goes.
    #[test]
    fn windows_look_back_as_far_as_they_are_long() {
        let mut table = Table::new(10 << 20);
        let mut rows = 0;
        let mut bytes = 0;
        for quarter in 1..=280 {
            bytes += if quarter <= 240 { 25 << 20 } else { 25 << 19 };
            let done = vec![[(0, 0), (1, bytes)]];
            let going = Going { at_ns: quarter * 250_000_000, share: 0.0, done, inside: None };
            rows += u32::from(table.look(&going).is_some());
        }
        assert_eq!(rows, 14);
        let means = [2, 5, 15, 60, 300].map(|window| table.mean(window).round());
        assert_eq!(means, [50.0, 50.0, 67.0, 92.0, 93.0]);
        let row = table.end(70 * SECOND_NS + 1, bytes);
        let fields: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(fields.len(), Table::head().split_whitespace().count());
        assert_eq!(fields[..4], ["1m10s", "650", "6.35GB", "50.0"]);
        assert_eq!(fields[12..], ["0.75", "0.99", "92.9"]);
    }

    #[test]
    fn an_hour_is_all_that_is_kept() {
        let mut table = Table::new(1);
        (1..=40_000u64).for_each(|n| table.add(n * 250_000_000, n));
        assert_eq!(table.past.len(), 4 * 3600 + 1);
    }
}
