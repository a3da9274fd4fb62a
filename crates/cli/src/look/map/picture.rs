//! A map as a picture: SVG that any browser shows, light or dark, with words for who does not see it.

use super::{MapReport, sums};
use crate::size;
use bimetal_serve::map::CellDoc;
use std::fmt::Write as _;

/// Cells in a row, and how large each is.
const COLUMNS: usize = 144;
const CELL: f64 = 8.0;
const ROW: f64 = 64.0;
/// Of a row, so much is for heat, and so much is left between rows.
const HEAT: f64 = 10.0;
const GAP: f64 = 22.0;
const LEFT: f64 = 24.0;
const TOP: f64 = 84.0;
/// The hottest that is told apart from hotter.
const HOTTEST: f64 = 256.0;

const STYLE: &str = "
    svg { background: #fff; font: 14px system-ui, sans-serif; fill: #1b1f24 }
    .fast { fill: #d55e00 } .slow { fill: #0072b2 } .landed { fill: #cc79a7 } .lost { fill: #000 } .blank { fill: #e6e9ee }
    .heat { fill: #2d1450 } .faint { fill: #5b6470; font-size: 12px }
    @media (prefers-color-scheme: dark) {
      svg { background: #14171b; fill: #e4e7eb }
      .fast { fill: #f0883e } .slow { fill: #56b4e9 } .landed { fill: #e39cc4 } .lost { fill: #fff } .blank { fill: #262b33 }
      .heat { fill: #fae65a } .faint { fill: #9aa4b0 }
    }
";
const LEGEND: [(&str, &str); 6] = [
    ("fast", "fast"),
    ("slow", "slow"),
    ("landed", "landed on the fast tier"),
    ("blank", "blank"),
    ("lost", "lost"),
    ("heat", "heat of the hottest chunk"),
];

/// The picture.
pub(super) fn svg(report: &MapReport) -> String {
    let rows = report.cells.len().div_ceil(COLUMNS).max(1);
    let (width, height) = (2.0 * LEFT + COLUMNS as f64 * CELL, TOP + rows as f64 * (ROW + GAP) + 16.0);
    let name = escaped(&report.volume);
    let about = format!("{name}: {}", sums(report));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{about}\">\n\
         <title>{about}</title>\n<style>{STYLE}</style>\n\
         <text x=\"{LEFT}\" y=\"30\" font-size=\"20\" font-weight=\"600\">{name}</text>\n\
         <text x=\"{LEFT}\" y=\"50\">{}; each column is {}</text>\n",
        sums(report),
        size::show(report.cell_bytes)
    );
    let mut x = LEFT;
    for (class, words) in LEGEND {
        let _ = writeln!(text, "<rect class=\"{class}\" x=\"{x}\" y=\"60\" width=\"12\" height=\"12\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"71\" class=\"faint\">{words}</text>", x + 17.0);
        x += 34.0 + 7.0 * words.len() as f64;
    }
    for (nth, row) in report.cells.chunks(COLUMNS).enumerate() {
        let top = TOP + nth as f64 * (ROW + GAP);
        for (column, cell) in row.iter().enumerate() {
            draw(&mut text, report, cell, LEFT + column as f64 * CELL, top);
        }
        let begins_at = row.first().map_or(0, |cell| cell.offset);
        let at = size::show(begins_at);
        let _ =
            writeln!(text, "<text x=\"{LEFT}\" y=\"{}\" class=\"faint\">from {at}</text>", top + ROW + 14.0);
    }
    text + "</svg>\n"
}

/// A column: how much of it is where, from the bottom, and how hot it is, above.
fn draw(text: &mut String, report: &MapReport, cell: &CellDoc, x: f64, top: f64) {
    let bytes = report.bytes(cell).max(1) as f64;
    let kept = &cell.kept;
    let parts = [
        ("fast", kept.fast_bytes),
        ("landed", kept.landed_bytes),
        ("slow", kept.slow_bytes),
        ("lost", kept.lost_bytes),
        ("blank", kept.hole_bytes),
    ];
    let (room, width) = (ROW - HEAT - 2.0, CELL - 1.0);
    let mut bottom = top + ROW;
    for (class, part) in parts.into_iter().filter(|(_, part)| *part > 0) {
        let high = room * part as f64 / bytes;
        bottom -= high;
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{bottom:.2}\" width=\"{width}\" height=\"{high:.2}\"/>"
        );
    }
    if cell.hottest > 0 {
        let high = (HEAT * (f64::from(cell.hottest) + 1.0).log2() / HOTTEST.log2()).min(HEAT);
        let y = top + HEAT - high;
        let _ = writeln!(
            text,
            "<rect class=\"heat\" x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width}\" height=\"{high:.2}\"/>"
        );
    }
}

/// A name as it may stand in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
