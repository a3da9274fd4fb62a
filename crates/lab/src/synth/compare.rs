//! What was asked for, beside what a reader finds in the trace.

use super::profile::{Profile, size_class};
use bimetal_trace::Summary;
use serde::Serialize;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What it is, with its unit.
    pub what: String,
    /// What was published, or follows from it; none where only an assumption says so.
    pub asked: Option<f64>,
    /// What the trace has.
    pub got: f64,
}

impl Compared {
    /// How far what was got lies from what was asked for, as a share of that; 0 where nothing was asked for.
    pub fn error(&self) -> f64 {
        match self.asked {
            Some(asked) if asked != 0.0 => self.got / asked - 1.0,
            _ => 0.0,
        }
    }
}

/// Holds a summary of a trace against the profile it was made from.
pub fn compare(profile: &Profile, summary: &Summary) -> Vec<Compared> {
    let mut rows = Vec::new();
    let mut row = |what: &str, asked: Option<f64>, got: f64| {
        rows.push(Compared { what: what.to_owned(), asked, got });
    };
    row("reads", Some(profile.reads as f64), summary.reads as f64);
    row("writes", Some(profile.writes as f64), summary.writes as f64);
    let gb = |bytes: u64| bytes as f64 / 1e9;
    row("read, GB", profile.read_bytes.map(gb), gb(summary.read_bytes));
    row("written, GB", profile.written_bytes.map(gb), gb(summary.written_bytes));
    let operations = (summary.reads + summary.writes).max(1) as f64;
    for size in &profile.sizes {
        let all = summary.sizes.iter().find(|class| class.up_to_bytes == size_class(size.bytes));
        let got = all.map_or(0.0, |class| (class.reads + class.writes) as f64);
        row(&format!("{} KiB, %", size.bytes / 1024), Some(size.percent), got / operations * 100.0);
    }
    row("sequential, %", Some(profile.sequential_percent), summary.sequential_share * 100.0);
    if let Some(queue) = &summary.queue_depth {
        row("mean queue depth", Some(profile.queue.mean), queue.found_mean);
        row("in a queue of 1, %", profile.queue.alone_percent, queue.alone_share * 100.0);
        row("deepest queue", None, queue.max as f64);
    }
    row("lies within, GB", None, gb(summary.end_bytes));
    row("touched, GB", None, gb(summary.footprint_bytes));
    row("recorded for, s", None, summary.duration_seconds.unwrap_or(0.0));
    rows
}
