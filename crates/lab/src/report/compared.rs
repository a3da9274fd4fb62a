//! How two targets that ran in turn compare, on a page.

use super::Named;
use super::extra::{Extra, Interval, Intervals, Table};
use super::page::html_with;
use super::units::{three, times};
use crate::record::Run;
use crate::stats::Finding;

/// The page of two targets of these names: what was found of them, and the last run of each side by side.
pub fn comparison_html(
    found: &[Finding],
    sentence: Option<&str>,
    names: [&str; 2],
    last: [&Run; 2],
) -> String {
    let mut extra = comparison(found, names);
    extra.findings.extend(sentence.map(str::to_owned));
    let named = |at: usize| Named { name: names[at].to_owned(), run: last[at].clone() };
    html_with(&[named(0), named(1)], &extra)
}

fn comparison(found: &[Finding], [a, b]: [&str; 2]) -> Extra {
    let name = |finding: &Finding| format!("{}, {}", finding.job, finding.metric.name());
    let row = |finding: &Finding| {
        let mean = |at: usize| {
            finding.means.map_or("–".to_owned(), |means| three(finding.metric.shown(means[at])))
        };
        let (ratio, interval) = match &finding.ratio {
            Ok(ratio) => (times(ratio.ratio), format!("{:.3} to {:.3}", ratio.low, ratio.high)),
            Err(why) => ("–".to_owned(), why.to_string()),
        };
        vec![name(finding), mean(0), mean(1), ratio, interval]
    };
    let interval = |finding: &Finding| {
        let ratio = finding.ratio.as_ref().ok()?;
        let text = format!("{} ({} to {})", three(ratio.ratio), three(ratio.low), three(ratio.high));
        Some(Interval { label: name(finding), low: ratio.low, at: ratio.ratio, high: ratio.high, text })
    };
    let title = format!("{b} by {a}");
    Extra {
        title: title.clone(),
        tables: vec![Table {
            caption: "Means of all rounds: MB/s, I/Os a second, microseconds".to_owned(),
            head: ["figure", a, b, "ratio", "95 of 100 times between"].map(str::to_owned).into(),
            rows: found.iter().map(row).collect(),
        }],
        intervals: vec![Intervals { title, rows: found.iter().filter_map(interval).collect() }],
        ..Extra::default()
    }
}
