//! How the quick test prints.

use super::figures::{Figure, MEASURED_ONCE, ORDER};
use super::verdict::{Peer, Verdict};
use crate::report::units::three;
use crate::report::{Bar, Bars, Extra, Table};

/// What figures are beside: the drives measured once, then models.
fn beside<'p>(figure: &Figure, peers: &'p [Peer]) -> Vec<(&'p str, f64)> {
    let once = ORDER.iter().position(|name| *name == figure.name);
    let once =
        once.into_iter().flat_map(|at| MEASURED_ONCE.iter().map(move |(name, values)| (*name, values[at])));
    let models = peers.iter().filter_map(|peer| {
        let same = peer.figures.iter().find(|other| other.name == figure.name)?;
        Some((peer.name.as_str(), same.value))
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
        let worse = near.iter().filter(|(_, value)| times(*value) >= 1.0);
        let better = near.iter().filter(|(_, value)| times(*value) < 1.0);
        let next_worse = worse.min_by(|a, b| times(a.1).total_cmp(&times(b.1)));
        let next_better = better.max_by(|a, b| times(a.1).total_cmp(&times(b.1)));
        let of = |what: &str, found: Option<&(&str, f64)>| {
            found.map(|(name, value)| format!("{what} {name} ({})", three(*value)))
        };
        let same = near.iter().find(|(_, value)| three(*value) == three(figure.value));
        let said: Vec<String> = match same {
            Some((name, _)) => vec![format!("as {name}")],
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

/// What the page of a run shows beside its plots: each figure's bars, the target's first.
pub fn page(target: &str, figures: &[Figure], peers: &[Peer], verdict: &Verdict) -> Extra {
    let bars = figures.iter().map(|figure| {
        let bar = |label: &str, value: f64| Bar { label: label.to_owned(), value, text: three(value) };
        let others = beside(figure, peers).into_iter().map(|(name, value)| bar(name, value));
        let unit = figure.unit;
        let direction = if unit.more_is_better() { "" } else { "; less is better" };
        Bars {
            title: format!("{}, {}{direction}", figure.name, unit.name()),
            bars: std::iter::once(bar(target, figure.value)).chain(others).collect(),
        }
    });
    let row = |(name, times): &(String, f64)| vec![name.clone(), three(*times)];
    Extra {
        title: "Quick test".to_owned(),
        findings: verdict.sentences.clone(),
        tables: vec![Table {
            caption: "How many times as fast as the modelled drives".to_owned(),
            head: ["model", "times"].map(str::to_owned).into(),
            rows: verdict.times.iter().map(row).collect(),
        }],
        bars: bars.collect(),
        ..Extra::default()
    }
}
