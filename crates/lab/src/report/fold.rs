//! What is long stands folded behind a line that says what is in it.

use super::page::Page;
use super::summary::Row;
use super::units::{count, rate, three, time};
use std::collections::BTreeSet;

/// Rows, notes and jobs that stand open; where there are more, they are folded.
pub(super) const MAX_OPEN: usize = 24;

impl Page {
    /// The body, behind a line if it is of more rows than stand open.
    pub(super) fn folded(&mut self, rows: usize, line: &str, body: impl FnOnce(&mut Page)) {
        if rows <= MAX_OPEN {
            return body(self);
        }
        self.raw("<details class=\"fold\"><summary>");
        self.text(line);
        self.raw("</summary>\n");
        body(self);
        self.raw("</details>\n");
    }
}

/// Of the rows of a summary: how many they are, and from where to where their figures go.
pub(super) fn of_rows(rows: &[Row<'_>]) -> String {
    let jobs: BTreeSet<(usize, usize, &str)> =
        rows.iter().map(|row| (row.run, row.nth, row.job.name.as_str())).collect();
    let mut out = format!("{} rows of {} jobs", count(rows.len() as u64), count(jobs.len() as u64));
    let kinds: BTreeSet<&str> = rows.iter().map(|row| row.kind).collect();
    for kind in kinds {
        let of = || rows.iter().filter(|row| row.kind == kind);
        let spread = |value: fn(&Row<'_>) -> f64, told: fn(f64) -> String| {
            let least = of().map(value).fold(f64::INFINITY, f64::min);
            let most = of().map(value).fold(0.0, f64::max);
            format!("{} to {}", told(least), told(most))
        };
        let longest = of().filter_map(|row| row.response).map(|times| times.max).max();
        out += &format!(
            "; {kind}: {} IOPS, {} MB/s, the longest response {}",
            spread(|row| row.iops, rate),
            spread(|row| row.bytes_per_s / 1e6, three),
            longest.map_or("–".to_owned(), |ns| time(ns as f64))
        );
    }
    let failed = rows.iter().map(|row| row.side.failed.saturating_add(row.side.mismatched));
    out + &format!("; errors: {}", count(failed.fold(0, u64::saturating_add)))
}
