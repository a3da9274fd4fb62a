//! The tables, and the bars that Storage Bench's readers know.

use super::figures::{Figures, SideFigures};
use crate::report::units::three;
use crate::report::{Bar, Bars, Extra, Origin, Table};

const PARTS: [&str; 3] = ["reads and writes", "reads", "writes"];
const HEAD: [&str; 8] =
    ["MB/s", "busy s", "mean us", "99 % us", "max us", "> 10 ms %", "> 100 ms %", "operations"];

fn parts(figures: &Figures) -> [&SideFigures; 3] {
    [&figures.all, &figures.read, &figures.write]
}

fn cells(side: &SideFigures) -> [String; 8] {
    let us = |value: Option<f64>| value.map_or("-".to_owned(), |us| format!("{us:.0}"));
    let percent = |share: f64| format!("{:.3}", share * 100.0);
    [
        format!("{:.1}", side.mb_per_s),
        format!("{:.1}", side.busy_seconds),
        us(side.mean_us),
        us(side.p99_us),
        us(side.max_us),
        percent(side.above_10_ms),
        percent(side.above_100_ms),
        side.ios.to_string(),
    ]
}

/// The tables: reads and writes together, reads, writes; one line for each target.
pub fn text(all: &[Figures]) -> String {
    let width = all.iter().map(|figures| figures.name.chars().count()).max().unwrap_or(0).max(PARTS[0].len());
    let mut out = String::new();
    for (part, title) in PARTS.iter().enumerate() {
        let head = HEAD.map(|cell| format!("{cell:>11}")).concat();
        out += &format!("\n{title:<width$}{head}\n");
        for figures in all {
            let cells = cells(parts(figures)[part]).map(|cell| format!("{cell:>11}")).concat();
            out += &format!("{:<width$}{cells}\n", figures.name);
        }
    }
    out += "\nMB/s of 10^6 bytes by the time in which anything of the kind was in flight: idle time is not in it. Times are \
            service times.\n";
    for figures in all {
        if let Some(share) = figures.fast_share {
            out += &format!("{}: the fast tier served {:.1} % of the bytes\n", figures.name, share * 100.0);
        }
    }
    out
}

/// The page's tables and bars.
pub fn extra(title: &str, all: &[Figures]) -> Extra {
    let table = |(part, title): (usize, &&str)| Table {
        caption: format!("Service of {title}"),
        head: std::iter::once("target").chain(HEAD).map(str::to_owned).collect(),
        rows: all
            .iter()
            .map(|figures| std::iter::once(figures.name.clone()).chain(cells(parts(figures)[part])).collect())
            .collect(),
    };
    Extra {
        title: title.to_owned(),
        tables: PARTS.iter().enumerate().map(table).collect(),
        bars: charts(all),
        ..Extra::default()
    }
}

/// A chart, whether more is better, and what it shows of a run.
type Chart = (&'static str, bool, fn(&Figures) -> Option<f64>);

const CHARTS: [Chart; 9] = [
    ("Average data rate, MB/s", true, |of| Some(of.all.mb_per_s)),
    ("Average read rate, MB/s", true, |of| (of.read.ios > 0).then_some(of.read.mb_per_s)),
    ("Average write rate, MB/s", true, |of| (of.write.ios > 0).then_some(of.write.mb_per_s)),
    ("Busy time without idle, s", false, |of| Some(of.all.busy_seconds)),
    ("Busy time with reads, s", false, |of| (of.read.ios > 0).then_some(of.read.busy_seconds)),
    ("Busy time with writes, s", false, |of| (of.write.ios > 0).then_some(of.write.busy_seconds)),
    ("Mean service time, us", false, |of| of.all.mean_us),
    ("99th percentile of service times, us", false, |of| of.all.p99_us),
    ("Above 10 ms, %", false, |of| Some(of.all.above_10_ms * 100.0)),
];

/// Charts with the best target first.
fn charts(all: &[Figures]) -> Vec<Bars> {
    let chart = |&(title, more_is_better, of): &Chart| {
        let bar = |figures: &Figures| {
            let value = of(figures)?;
            let origin = if figures.simulated { Origin::Modelled } else { Origin::Measured };
            Some(Bar { label: figures.name.clone(), value, text: three(value), origin, interval: None })
        };
        let mut bars: Vec<Bar> = all.iter().filter_map(bar).collect();
        bars.sort_by(|a, b| a.value.total_cmp(&b.value));
        if more_is_better {
            bars.reverse();
        }
        let better = if more_is_better { "more is better" } else { "less is better" };
        Bars { title: format!("{title} ({better})"), bars, note: "" }
    };
    CHARTS.iter().map(chart).filter(|chart| !chart.bars.is_empty()).collect()
}
