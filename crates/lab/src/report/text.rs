//! The comparison, and the figures of a single run, as text.

use super::Named;
use super::page::MAX_TABLE_ROWS;
use super::summary::{Row, TierRow, ratios, rows, tier_rows};
use super::units::{count, name, percent, prose, rate, three, time, times};
use crate::stats::Finding;
use std::fmt::Write;

/// A table of the runs' jobs; of several runs also the ratios of each later run to the first.
pub fn text(runs: &[Named]) -> String {
    let rows = rows(runs, MAX_TABLE_ROWS);
    let mut out = String::new();
    for named in runs {
        let ended = if named.run.interrupted { ", interrupted" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}: {}{ended}", name(&named.name), name(&named.run.title));
    }
    for (named, cpu) in runs.iter().filter_map(|named| Some((named, named.run.cpu?))) {
        let (user, system) = (three(cpu.user_percent), three(cpu.system_percent));
        let _ = writeln!(
            out,
            "{}: the lab took {user} % user, {system} % system of a processor",
            name(&named.name)
        );
    }
    out.push_str("\nMean to max are responses, from when an I/O was meant to begin; service is the mean from its hand-over.\n");
    let several = runs.len() > 1;
    let head =
        ["run", "job", "", "IOPS", "MB/s", "mean", "p50", "p99", "p99.9", "max", "service", "failed", "late"];
    let lines: Vec<Vec<String>> = rows.iter().map(|row| line(runs, row)).collect();
    out.push('\n');
    table(&mut out, &head, lines, !several);
    let told: usize = runs.iter().map(|named| named.run.jobs.len()).sum();
    let shown = (MAX_TABLE_ROWS / 4 / runs.len().max(1)).max(1);
    if runs.iter().any(|named| named.run.jobs.len() > shown) {
        let _ = writeln!(out, "\nOf each run the first {shown} jobs; there are {told}.");
    }
    by_tier(&mut out, runs, &rows);
    let compared = ratios(&rows);
    if !compared.is_empty() {
        let _ = writeln!(out, "\nBy {}:\n", name(&runs[0].name));
        let lines = compared.iter().map(|ratio| {
            let mut line = first(runs, &ratio.row);
            line.extend(ratio.ratios.iter().map(|ratio| ratio.map_or("–".into(), times)));
            line
        });
        table(&mut out, &head[..10], lines.collect(), false);
        out.push_str("\nOne run of each says nothing of chance; runs in alternation would.\n");
    }
    for named in runs {
        for note in &named.run.notes {
            let _ = writeln!(out, "\n{}: {}", name(&named.name), prose(note));
        }
    }
    out
}

fn first(runs: &[Named], row: &Row<'_>) -> Vec<String> {
    let run = runs.get(row.run).map_or(String::new(), |named| name(&named.name));
    vec![run, name(&row.job.name), row.kind.into()]
}

fn line(runs: &[Named], row: &Row<'_>) -> Vec<String> {
    let mut line = first(runs, row);
    line.extend([rate(row.iops), three(row.bytes_per_s / 1e6)]);
    let columns = row.response.map_or([None; 5], |times| times.columns());
    line.extend(columns.map(|ns| ns.map_or("–".into(), time)));
    line.push(row.service.map_or("–".into(), |times| time(times.mean)));
    line.push(count(row.side.failed.saturating_add(row.side.mismatched)));
    line.push(if row.job.late.timed > 0 {
        percent(row.job.late.count, row.job.late.timed)
    } else {
        "–".into()
    });
    line
}

/// Which I/Os which tiers had a part in, and how long these took; of targets that tell.
fn by_tier(out: &mut String, runs: &[Named], rows: &[Row<'_>]) {
    let lines: Vec<Vec<String>> = tier_rows(rows).map(|tier| tier_line(runs, &tier)).collect();
    if !lines.is_empty() {
        out.push_str("\nService times by the tiers that had a part:\n\n");
        let head = ["run", "job", "", "by", "share", "IOPS", "mean", "p50", "p99", "p99.9", "max"];
        table(out, &head, lines, runs.len() < 2);
    }
}

fn tier_line(runs: &[Named], tier: &TierRow<'_>) -> Vec<String> {
    let mut line = first(runs, tier.row);
    line.extend([tier.by.into(), percent(tier.side.ios, tier.row.side.ios), rate(tier.iops)]);
    line.extend(tier.service.columns().map(|ns| ns.map_or("–".into(), time)));
    line
}

/// Aligned columns: names to the left, figures to the right.
fn table(out: &mut String, head: &[&str], lines: Vec<Vec<String>>, without_first: bool) {
    let from = usize::from(without_first);
    let head: Vec<String> = head.iter().map(|text| text.to_string()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(lines).collect();
    let width = |column: usize| all.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..all[0].len()).map(width).collect();
    for line in &all {
        let mut text = String::new();
        for (column, cell) in line.iter().enumerate().skip(from) {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let (left, right) =
                if column < 3 { (cell.as_str(), pad.as_str()) } else { (pad.as_str(), cell.as_str()) };
            let _ = write!(text, "{left}{right}  ");
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
}

/// The verdicts of [`crate::stats::findings`], a line each.
pub fn findings_text(found: &[Finding], a: &str, b: &str) -> String {
    let (a, b) = (name(a), name(b));
    let lines = found.iter().map(|finding| {
        let verdict = match &finding.ratio {
            Ok(ratio) => ratio.words(&a, &b),
            Err(why) => match finding.means {
                Some([of_a, of_b]) => {
                    let ratio = of_b / of_a;
                    let digits = if ratio < 0.1 { 4 } else { 2 };
                    format!("{b} is {ratio:.digits$} times {a} on average, but {why}")
                }
                None => why.to_string(),
            },
        };
        format!("{}, {}: {verdict}\n", name(&finding.job), finding.metric.name())
    });
    lines.collect()
}
