//! `bimetal map`

mod picture;
mod text;

use super::args::MapArgs;
use super::source::Source;
use crate::volume::{self, Volume};
use crate::{Outcome, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_serve::map::{CellDoc, KeptBytes};
use serde::Serialize;

/// Cells, where nothing else is said: a line of text, and what a picture shows well.
const CELLS: u64 = text::COLUMNS as u64;
const CELLS_OF_PICTURE: u64 = 720;

/// What `map --json` prints.
#[derive(Debug, Serialize)]
struct MapReport {
    volume: String,
    /// Without a server there is no heat.
    served: bool,
    size_bytes: u64,
    chunk_bytes: u32,
    /// The range that is shown.
    from: u64,
    to: u64,
    cell_bytes: u64,
    /// The heat from which on a chunk on the slow tier may rise.
    rises_at_heat: u32,
    total: KeptBytes,
    cells: Vec<CellDoc>,
}

impl MapReport {
    /// Bytes of a cell, the last of which ends with the range.
    fn bytes(&self, cell: &CellDoc) -> u64 {
        self.cell_bytes.min(self.to.saturating_sub(cell.offset))
    }
}

pub(crate) fn run(args: &MapArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    let mut source = Source::of(&volume, args.json)?;
    let (size_bytes, served) = (source.size_bytes(), source.is_served());
    let (from, to) = (args.from, args.to.unwrap_or(size_bytes).min(size_bytes));
    if from >= to {
        bail!("bytes {from} to {to} are no part of {}, which has {size_bytes}", volume.called());
    }
    let cells = args.cells.unwrap_or(if args.picture.is_some() { CELLS_OF_PICTURE } else { CELLS });
    let map = source.map(from, to, (to - from).div_ceil(cells))?;
    let mut total = KeptBytes::default();
    map.cells.iter().for_each(|cell| total.merge(&cell.kept));
    let report = MapReport {
        volume: volume.name().0,
        served,
        size_bytes,
        chunk_bytes: map.chunk_bytes,
        // Cells begin where chunks do.
        from: map.cells.first().map_or(from, |cell| cell.offset),
        to,
        cell_bytes: map.cell_bytes,
        rises_at_heat: map.rises_at_heat,
        total,
        cells: map.cells,
    };
    if let Some(file) = &args.picture {
        volume::spare(file)?;
        std::fs::write(file, picture::svg(&report))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    match args.json {
        true => say_json(&report)?,
        false => say(&text::describe(&report)),
    }
    Ok(Outcome::Good)
}

/// What is where, in a line.
fn sums(report: &MapReport) -> String {
    let KeptBytes { fast_bytes, slow_bytes, landed_bytes, hole_bytes, lost_bytes } = report.total;
    let mut text = format!(
        "{} fast, {} slow, {} landed on the fast tier, {} blank",
        size::show(fast_bytes),
        size::show(slow_bytes),
        size::show(landed_bytes),
        size::show(hole_bytes)
    );
    if lost_bytes > 0 {
        text += &format!(", {} LOST", size::show(lost_bytes));
    }
    text
}
