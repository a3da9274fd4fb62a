//! A plan as a picture: SVG that any browser shows, light or dark, with words for who does not see it.

use super::time;
use crate::size;
use bimetal_sim::plan::{PlanDoc, PlanRow};
use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 150.0;
const BAR: f64 = 440.0;
const ROW: f64 = 26.0;
const TOP: f64 = 66.0;
/// Between the charts.
const GAP: f64 = 40.0;

const STYLE: &str = "
    svg { background: #fff; font: 14px system-ui, sans-serif; fill: #1b1f24 }
    .bar { fill: #0072b2 } .late { fill: #d55e00 } .faint { fill: #5b6470; font-size: 12px }
    @media (prefers-color-scheme: dark) {
      svg { background: #14171b; fill: #e4e7eb }
      .bar { fill: #56b4e9 } .late { fill: #f0883e } .faint { fill: #9aa4b0 }
    }
";

/// A figure of a row, and how it is said.
type Figure = (&'static str, fn(&PlanRow) -> Option<f64>, fn(f64) -> String);

const FIGURES: [Figure; 4] = [
    ("mean response", |row| Some(row.mean_us), time),
    ("served by the fast tier", |row| Some(row.fast_share), |share| format!("{:.1} %", share * 100.0)),
    ("written to it in a day", |row| row.wear_bytes_per_day, |bytes| size::show((bytes as u64) >> 20 << 20)),
    ("the disk is woken in a day", |row| row.wakeups_per_day, |times| format!("{times:.0} times")),
];

/// The picture: a chart of bars for each figure that is known.
pub(super) fn svg(doc: &PlanDoc) -> String {
    let known: Vec<&Figure> =
        FIGURES.iter().filter(|figure| doc.rows.iter().any(|row| figure.1(row).is_some())).collect();
    let of_one = GAP + doc.rows.len() as f64 * ROW;
    let height = TOP + known.len() as f64 * of_one + 16.0;
    let (name, sentence) = (escaped(&doc.source), escaped(&doc.sentence));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{sentence}\">\n\
         <title>{sentence}</title>\n<style>{STYLE}</style>\n\
         <text x=\"24\" y=\"30\" font-size=\"20\" font-weight=\"600\">{name}</text>\n\
         <text x=\"24\" y=\"52\" class=\"faint\">{sentence}</text>\n"
    );
    for (number, figure) in known.into_iter().enumerate() {
        chart(&mut text, doc, figure, TOP + number as f64 * of_one);
    }
    text + "</svg>\n"
}

fn chart(text: &mut String, doc: &PlanDoc, (what, of, said): &Figure, top: f64) {
    let most = doc.rows.iter().filter_map(of).fold(0.0, f64::max);
    let _ = writeln!(text, "<text x=\"24\" y=\"{}\" font-weight=\"600\">{what}</text>", top + 24.0);
    for (number, row) in doc.rows.iter().enumerate() {
        let y = top + GAP - 8.0 + number as f64 * ROW;
        let Some(value) = of(row) else { continue };
        let width = if most > 0.0 { value / most * BAR } else { 0.0 };
        let class = if row.keeps_up { "bar" } else { "late" };
        let label = size::show(row.fast_bytes);
        let title = format!("{label} of {} above {}", row.fast_model, row.slow_model);
        let _ = writeln!(
            text,
            "<g><title>{}</title><text x=\"24\" y=\"{:.1}\">{label}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"18\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
            escaped(&title),
            y + 14.0,
            LEFT + width + 8.0,
            y + 14.0,
            said(value)
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
