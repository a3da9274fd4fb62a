//! How the quick test prints.

use super::figures::{Figure, MEASURED_ONCE, ORDER};
use super::marks::Mark;
use super::run::Quick;
use super::verdict::{Peer, Verdict};
use crate::report::units::three;
use crate::report::{Bar, Bars, Extra, Origin, Table};

/// What figures are beside: the drives measured once, then models.
fn beside<'p>(figure: &Figure, peers: &'p [Peer]) -> Vec<(&'p str, f64, Origin)> {
    let once = ORDER.iter().position(|name| *name == figure.name);
    let once = once.into_iter().flat_map(|at| {
        MEASURED_ONCE.iter().map(move |(name, values)| (*name, values[at], Origin::Published))
    });
    let models = peers.iter().filter_map(|peer| {
        let same = peer.figures.iter().find(|other| other.name == figure.name)?;
        Some((peer.name.as_str(), same.value, Origin::Modelled))
    });
    once.chain(models).collect()
}

/// The figures, in lines, with the drive that is next below and above each.
pub fn text(figures: &[Figure], peers: &[Peer]) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for figure in figures {
        let times = |value: f64| figure.unit.times(figure.value, value);
        let near = beside(figure, peers);
        let worse = near.iter().filter(|(_, value, _)| times(*value) >= 1.0);
        let better = near.iter().filter(|(_, value, _)| times(*value) < 1.0);
        let next_worse = worse.min_by(|a, b| times(a.1).total_cmp(&times(b.1)));
        let next_better = better.max_by(|a, b| times(a.1).total_cmp(&times(b.1)));
        let of = |what: &str, found: Option<&(&str, f64, Origin)>| {
            found.map(|(name, value, _)| format!("{what} {name} ({})", three(*value)))
        };
        let same = near.iter().find(|(_, value, _)| three(*value) == three(figure.value));
        let said: Vec<String> = match same {
            Some((name, ..)) => vec![format!("as {name}")],
            None => {
                [of("better than", next_worse), of("worse than", next_better)].into_iter().flatten().collect()
            }
        };
        let (name, value, unit) = (&figure.name, three(figure.value), figure.unit.name());
        out += format!("{name:width$}  {value:>8} {unit:4}  {}", said.join(", ")).trim_end();
        out.push('\n');
    }
    out
}

/// CrystalDiskMark's rows: nothing where none was measured.
pub fn marks_text(marks: &[Mark]) -> String {
    let table = marks_table(marks);
    if table.rows.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", table.caption);
    for row in std::iter::once(&table.head).chain(&table.rows) {
        let cells = row[1..].iter().map(|cell| format!("{cell:>14}")).collect::<String>();
        out += &format!("{:<12}{cells}\n", row[0]);
    }
    out
}

fn marks_table(marks: &[Mark]) -> Table {
    let row = |mark: &Mark| {
        let cells = [mark.read, mark.write].into_iter().flat_map(|side| match side {
            Some(side) => [format!("{:.2}", side.mb_per_s), format!("{:.2}", side.iops)],
            None => ["-", "-"].map(str::to_owned),
        });
        std::iter::once(mark.name.to_owned()).chain(cells).collect()
    };
    Table {
        caption: "CrystalDiskMark's rows, MB/s of 10^6 bytes".to_owned(),
        head: ["", "read MB/s", "read IOPS", "write MB/s", "write IOPS"].map(str::to_owned).into(),
        rows: marks.iter().filter(|mark| mark.read.or(mark.write).is_some()).map(row).collect(),
    }
}

/// What the page of a run shows beside its plots: each figure's bars, the target's first.
pub fn page(target: &str, origin: Origin, found: &Quick, peers: &[Peer], verdict: &Verdict) -> Extra {
    let bars = found.figures.iter().map(|figure| {
        let bar = |label: &str, value: f64, origin: Origin| {
            let (label, text) = (label.to_owned(), three(value));
            Bar { label, value, text, origin, interval: None }
        };
        let others = beside(figure, peers).into_iter().map(|(name, value, origin)| bar(name, value, origin));
        let unit = figure.unit;
        let direction = if unit.more_is_better() { "" } else { "; less is better" };
        Bars {
            title: format!("{}, {}{direction}", figure.name, unit.name()),
            bars: std::iter::once(bar(target, figure.value, origin)).chain(others).collect(),
            note: "",
        }
    });
    let row = |(name, times): &(String, f64)| vec![name.clone(), three(*times)];
    let times = Table {
        caption: "How many times as fast as the modelled drives".to_owned(),
        head: ["model", "times"].map(str::to_owned).into(),
        rows: verdict.times.iter().map(row).collect(),
    };
    let tables = [marks_table(&found.marks), times];
    Extra {
        title: "Quick test".to_owned(),
        findings: verdict.sentences.clone(),
        tables: tables.into_iter().filter(|table| !table.rows.is_empty()).collect(),
        bars: bars.collect(),
        ..Extra::default()
    }
}
