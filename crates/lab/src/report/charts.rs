//! Charts that need no script: bars, and ratios with their intervals.

use super::extra::{Bars, Intervals, Origin};
use super::page::{MAX_DETAILS, Page};
use super::units::prose;
use std::collections::BTreeSet;
use std::fmt::Write;

/// An axis of ratios reaches at least so far to either side.
const LEAST_REACH: f64 = 1.25;
/// Ticks above 1, the finest first: the coarsest are taken of which the axis has room for two at least.
const TICKS: [&[f64]; 5] =
    [&[1.1, 1.2], &[1.25, 1.5, 2.0], &[2.0, 5.0, 10.0], &[10.0, 100.0, 1000.0], &[1e3, 1e6, 1e9]];

/// A row of a chart: what it is of, its drawing, and what that says.
struct Row<'c> {
    label: &'c str,
    origin: Option<Origin>,
    drawn: String,
    text: &'c str,
}

impl Page {
    /// What each kind of bar, line and row is.
    pub(super) fn legend(&mut self, origins: &BTreeSet<Origin>) {
        if origins.is_empty() {
            return;
        }
        self.raw("<ul class=\"legend\">");
        for origin in origins {
            let _ = write!(self.0, "<li><span class=\"swatch {}\"></span>", origin.class());
            self.text(origin.words());
            self.raw("</li>");
        }
        self.raw("</ul>\n");
    }

    /// Charts of bars; what is to be said of several stands behind the last of them, once.
    pub(super) fn all_bars(&mut self, all: &[Bars]) {
        let line = format!("{} charts of bars", all.len());
        self.folded(all.len(), &line, |page| all.iter().for_each(|bars| page.bars(bars)));
        let notes: BTreeSet<&str> =
            all.iter().map(|bars| bars.note).filter(|note| !note.is_empty()).collect();
        notes.into_iter().for_each(|note| self.element("p class=\"note\"", note));
    }

    /// Rectangles as long as their values are large; the longest takes all of the width.
    fn bars(&mut self, bars: &Bars) {
        let ends =
            bars.bars.iter().map(|bar| bar.interval.map_or(bar.value, |(_, high)| high.max(bar.value)));
        let most = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
        let part = |value: f64| {
            let part = if most > 0.0 { value / most * 100.0 } else { 0.0 };
            if part.is_finite() { part.clamp(0.0, 100.0) } else { 0.0 }
        };
        let mixed = bars.bars.windows(2).any(|two| two[0].origin != two[1].origin);
        let rows = bars.bars.iter().map(|bar| {
            let (width, class) = (part(bar.value), bar.origin.class());
            let mut drawn = format!("<rect width=\"{width:.2}%\" y=\"1\" height=\"12\" class=\"{class}\"/>");
            if let Some((low, high)) = bar.interval {
                let (low, high) = (part(low), part(high));
                let _ = write!(
                    drawn,
                    "<g class=\"spread\"><line x1=\"{low:.2}%\" x2=\"{high:.2}%\" y1=\"7\" y2=\"7\"/>\
                     <line x1=\"{low:.2}%\" x2=\"{low:.2}%\" y1=\"3\" y2=\"11\"/>\
                     <line x1=\"{high:.2}%\" x2=\"{high:.2}%\" y1=\"3\" y2=\"11\"/></g>"
                );
            }
            Row { label: &bar.label, origin: mixed.then_some(bar.origin), drawn, text: &bar.text }
        });
        self.chart("bars", &bars.title, "", rows);
    }

    /// Each ratio is a dot on the line of its interval; above all is the axis, with the line of no difference.
    pub(super) fn intervals(&mut self, intervals: &Intervals) {
        let ends = intervals.rows.iter().flat_map(|row| [row.low, row.high]).map(f64::ln);
        let reach = ends.filter(|end| end.is_finite()).map(f64::abs).fold(LEAST_REACH.ln(), f64::max);
        let at = |ratio: f64| match ratio.ln() {
            log if log.is_nan() => 50.0,
            log => (50.0 + 46.0 * (log / reach).clamp(-1.0, 1.0)).clamp(0.0, 100.0),
        };
        let ticks = ticks(reach);
        let grid: String = ticks
            .iter()
            .map(|&tick| {
                let class = if tick == 1.0 { "same" } else { "grid" };
                let at = at(tick);
                format!("<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"14\" class=\"{class}\"/>")
            })
            .collect();
        let rows = intervals.rows.iter().map(|row| {
            let drawn = format!(
                "{grid}<line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"7\" y2=\"7\"/><circle cx=\"{:.2}%\" cy=\"7\" r=\"3.5\"/>",
                at(row.low),
                at(row.high),
                at(row.at)
            );
            Row { label: &row.label, origin: None, drawn, text: &row.text }
        });
        let mut axis =
            String::from("<tr class=\"axis\"><th></th><td class=\"rail\"><svg width=\"100%\" height=\"46\">");
        axis.push_str("<text x=\"50%\" y=\"11\" class=\"same\">no difference</text>");
        for &tick in &ticks {
            let at = at(tick);
            let _ = write!(
                axis,
                "<line x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"40\" y2=\"46\" class=\"tick\"/>\
                 <text x=\"{at:.2}%\" y=\"34\">{}</text>",
                told(tick)
            );
        }
        axis.push_str("</svg></td><td></td></tr>\n");
        self.chart("bars intervals", &intervals.title, &axis, rows);
        let note = format!("{}, as a number of times, on a logarithmic axis.", prose(&intervals.unit));
        self.element("p class=\"note\"", &note);
    }

    /// A row for each label, with a drawing beside it and what that says; `head` is a row before these.
    fn chart<'c>(&mut self, class: &str, title: &str, head: &str, rows: impl Iterator<Item = Row<'c>>) {
        self.raw("<section>\n");
        self.element("h2", &prose(title));
        let _ = writeln!(self.0, "<table class=\"{class}\">{head}");
        let (mut shown, mut all) = (0, 0);
        for row in rows {
            all += 1;
            if all > MAX_DETAILS {
                continue;
            }
            shown = all;
            self.raw("<tr><th dir=\"auto\">");
            self.text(&prose(row.label));
            if let Some(origin) = row.origin {
                let _ = write!(self.0, " <span class=\"tag\">{}</span>", origin.class());
            }
            let _ = write!(
                self.0,
                "</th><td class=\"rail\"><svg width=\"100%\" height=\"14\" aria-hidden=\"true\">{}</svg></td>",
                row.drawn
            );
            self.element("td", &prose(row.text));
            self.raw("</tr>\n");
        }
        self.raw("</table>\n");
        self.more_than(shown, all, "rows");
        self.raw("</section>\n");
    }
}

/// Ratios that an axis of such a reach, a logarithm, has ticks at: 1, and as many below as above.
fn ticks(reach: f64) -> Vec<f64> {
    let fits = |tick: &&f64| tick.ln() <= reach * 1.0001;
    let fine = TICKS.iter().rev().map(|ticks| ticks.iter().filter(fits).copied().collect::<Vec<f64>>());
    let above = fine.into_iter().find(|ticks| ticks.len() > 1).unwrap_or_default();
    let below = above.iter().rev().map(|tick| 1.0 / tick);
    below.chain([1.0]).chain(above.iter().copied()).collect()
}

/// A ratio in few digits.
fn told(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 0.1 => format!("1/{}", told(1.0 / ratio)),
        ratio if ratio >= 9999.0 => format!("{ratio:.0e}"),
        ratio => format!("{ratio:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_ticks_on_both_sides_of_no_difference() {
        for reach in [1.25f64, 1.4, 2.0, 3.0, 11.0, 65.0, 4000.0, 1e12] {
            let ticks = ticks(reach.ln());
            assert!(ticks.len() >= 3 && ticks.len() <= 7, "{reach}: {ticks:?}");
            assert!(ticks.is_sorted() && ticks.contains(&1.0), "{ticks:?}");
            assert!(ticks.iter().all(|tick| tick.ln().abs() <= reach.ln() * 1.001), "{reach}: {ticks:?}");
        }
        let ratios = [0.5, 1.0 / 1.5, 1.0, 1.25, 10.0, 1e-3, 1e6, 1e-6];
        assert_eq!(ratios.map(told), ["0.5", "0.67", "1", "1.25", "10", "1/1000", "1e6", "1/1e6"]);
    }
}
