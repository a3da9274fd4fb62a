//! A map in letters.

use super::{MapReport, sums};
use crate::size;
use bimetal_serve::map::{CellDoc, KeptBytes};

/// Cells in a line.
pub(super) const COLUMNS: usize = 72;
/// Nine tenths of one kind are taken for all of it.
const NEARLY_ALL: (u64, u64) = (9, 10);

const LEGEND: &str =
    "  # fast   + more fast than slow   - more slow than fast   . slow   z more landed than either
  ! something is lost   blank: nothing is there";
const HEAT_LEGEND: &str = "  the line below each: heat of the hottest chunk, 1 to 9; each step is twice as hot, 1 is 1, 9 is 256 and more";

/// A bar, line by line, and what its letters mean.
pub(super) fn describe(report: &MapReport) -> String {
    let mut text = format!(
        "{}: bytes {} to {} of {}, in {} cells of {}\n",
        report.volume,
        report.from,
        report.to,
        report.size_bytes,
        report.cells.len(),
        size::show(report.cell_bytes)
    );
    for line in report.cells.chunks(COLUMNS) {
        let kinds: String = line.iter().map(kind).collect();
        text += &format!("  |{kinds:<COLUMNS$}|\n");
        let heats: String = line.iter().map(|cell| heat(cell.hottest)).collect();
        if report.served && line.iter().any(|cell| cell.hottest > 0) {
            text += &format!("  |{heats:<COLUMNS$}|\n");
        }
    }
    text += LEGEND;
    if report.served {
        text += &format!("\n{HEAT_LEGEND}");
    }
    text + &format!("\n  {}", sums(report))
}

/// The letter of a cell.
fn kind(cell: &CellDoc) -> char {
    let KeptBytes { fast_bytes, slow_bytes, landed_bytes, lost_bytes, .. } = cell.kept;
    let there = fast_bytes + slow_bytes + landed_bytes;
    let nearly_all = |bytes: u64| bytes * NEARLY_ALL.1 >= there * NEARLY_ALL.0;
    match cell.kept {
        _ if lost_bytes > 0 => '!',
        _ if there == 0 => ' ',
        _ if nearly_all(fast_bytes) => '#',
        _ if nearly_all(slow_bytes) => '.',
        _ if landed_bytes > fast_bytes && landed_bytes > slow_bytes => 'z',
        _ if fast_bytes + landed_bytes >= slow_bytes => '+',
        _ => '-',
    }
}

/// A digit that goes up by one where heat doubles.
fn heat(heat: u32) -> char {
    match heat {
        0 => ' ',
        _ => char::from_digit((u32::BITS - heat.leading_zeros()).min(9), 10).unwrap_or('9'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(fast_bytes: u64, slow_bytes: u64, landed_bytes: u64, lost_bytes: u64) -> CellDoc {
        let kept = KeptBytes { fast_bytes, slow_bytes, landed_bytes, lost_bytes, hole_bytes: 1 };
        CellDoc { kept, ..CellDoc::default() }
    }

    #[test]
    fn letters_tell_cells_apart_without_colour() {
        let letters: String = [
            cell(0, 0, 0, 0),
            cell(10, 0, 0, 0),
            cell(9, 1, 0, 0),
            cell(8, 2, 0, 0),
            cell(2, 8, 0, 0),
            cell(0, 10, 0, 0),
            cell(1, 2, 9, 0),
            cell(9, 9, 9, 1),
        ]
        .iter()
        .map(kind)
        .collect();
        assert_eq!(letters, " ##+-.z!");
        assert_eq!([0, 1, 2, 3, 4, 255, 256, 510].map(heat), [' ', '1', '2', '2', '3', '8', '9', '9']);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let report = MapReport {
            volume: "films".into(),
            served: true,
            size_bytes: u64::MAX,
            chunk_bytes: 1 << 17,
            from: 1 << 62,
            to: u64::MAX,
            cell_bytes: 1 << 50,
            rises_at_heat: 2,
            total: KeptBytes::default(),
            cells: vec![CellDoc { hottest: 7, ..CellDoc::default() }; 200],
        };
        let text = describe(&report);
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("  |")).count(), 6);
    }
}
