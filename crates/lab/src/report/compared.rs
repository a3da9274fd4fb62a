//! How two targets that ran in turn compare, on a page.

use super::Named;
use super::extra::{Bar, Bars, Extra, Interval, Intervals, Origin, Table};
use super::page::html_with;
use super::units::{three, times};
use crate::record::Run;
use crate::stats::{Finding, Metric, mean_interval};

/// What the ends on a bar are.
const NOTE: &str = "Each bar is the mean of all rounds. The ends on it are where that mean lies 95 of 100 times, by the \
                    spread between rounds (Student's t).";

/// The page of two targets of these names: what was found of them, the figures of all their runs as bars, and the last run
/// of each side by side.
pub fn comparison_html(
    found: &[Finding],
    sentence: Option<&str>,
    names: [&str; 2],
    runs: [&[Run]; 2],
) -> String {
    let mut extra = comparison(found, names, runs);
    extra.findings.extend(sentence.map(str::to_owned));
    let last = |at: usize| Some(Named { name: names[at].to_owned(), run: runs[at].last()?.clone() });
    let last: Vec<Named> = (0..2).filter_map(last).collect();
    html_with(&last, &extra)
}

fn comparison(found: &[Finding], names: [&str; 2], runs: [&[Run]; 2]) -> Extra {
    let [a, b] = names;
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
    let rows: Vec<Interval> = found.iter().filter_map(interval).collect();
    let intervals = Intervals { title: title.clone(), unit: title.clone(), rows };
    Extra {
        title,
        tables: vec![Table {
            caption: "Means of all rounds: MB/s, I/Os a second, microseconds".to_owned(),
            head: ["figure", a, b, "ratio", "95 of 100 times between"].map(str::to_owned).into(),
            rows: found.iter().map(row).collect(),
        }],
        bars: found
            .iter()
            .map(|finding| chart(finding, names, runs))
            .filter(|bars| !bars.bars.is_empty())
            .collect(),
        intervals: if intervals.rows.is_empty() { Vec::new() } else { vec![intervals] },
        ..Extra::default()
    }
}

/// Both targets' means of a figure, and how sure these are.
fn chart(finding: &Finding, names: [&str; 2], runs: [&[Run]; 2]) -> Bars {
    let job = |run: &'_ Run| run.jobs.iter().position(|job| job.name == finding.job);
    let bar = |at: usize| {
        let of = |run: &Run| finding.metric.of(&run.jobs[job(run)?]);
        let values: Vec<f64> =
            runs[at].iter().filter_map(of).map(|value| finding.metric.shown(value)).collect();
        let first = runs[at].iter().find_map(|run| Some(Origin::of(run, &run.jobs[job(run)?])))?;
        let value = values.iter().sum::<f64>() / values.len() as f64;
        let interval = mean_interval(&values);
        let text = match interval {
            Some((low, high)) => format!("{} ({} to {})", three(value), three(low), three(high)),
            None => three(value),
        };
        let label = names[at].to_owned();
        value.is_finite().then_some(Bar { label, value, text, origin: first, interval })
    };
    let unit = match finding.metric {
        Metric::Iops => "I/Os a second",
        Metric::Bandwidth => "MB/s",
        Metric::MeanResponse | Metric::P99Response => "µs; less is better",
    };
    let title = format!("{}, {}: {unit}", finding.job, finding.metric.name());
    Bars { title, bars: (0..2).filter_map(bar).collect(), note: NOTE }
}
