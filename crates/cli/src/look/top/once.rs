//! One screen as plain text, or one document.

use super::sample::{DeviceRates, Hits, MoveRates};
use super::screen::{self, View};
use super::watch::{self, Watched};
use crate::{Outcome, say, say_json};
use bimetal_serve::ask::MoveDoc;
use bimetal_serve::map::CellDoc;
use bimetal_serve::status::tier_name;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde::Serialize;
use std::collections::BTreeMap;

/// The screen, where there is no terminal.
const COLUMNS: u16 = 80;
const LINES: u16 = 24;
/// Hot ranges in the document.
const HOT_RANGES: usize = 20;

/// What `top --once --json` prints.
#[derive(Debug, Serialize)]
struct TopDoc {
    volumes: Vec<VolumeDoc>,
}

#[derive(Debug, Serialize)]
struct VolumeDoc {
    volume: String,
    /// `open` and so on; `not served`.
    state: String,
    /// Why nothing is told; null where something is.
    silent: Option<String>,
    /// Seconds over which was counted.
    seconds: Option<f64>,
    devices: Vec<DeviceDoc>,
    landing_used_bytes: u64,
    landing_size_bytes: u64,
    landing_short: bool,
    /// The fast tier's part, by span: only those that were watched, or are in the history.
    hits: BTreeMap<&'static str, Hits>,
    moves: Option<MoveRates>,
    /// Somebody has paused them.
    moves_paused: bool,
    decisions: Vec<MoveDoc>,
    hottest: Vec<CellDoc>,
}

#[derive(Debug, Serialize)]
struct DeviceDoc {
    name: String,
    device: String,
    used_bytes: u64,
    size_bytes: u64,
    /// Who has counted: `kernel` of a block device, `server` of a file.
    counted_by: &'static str,
    #[serde(flatten)]
    rates: Option<DeviceRates>,
}

/// Looks twice, a second apart, and prints what was seen.
pub(super) fn run(mut view: View, json: bool) -> anyhow::Result<Outcome> {
    view.keys = false;
    view.volumes.iter_mut().for_each(Watched::look);
    std::thread::sleep(watch::EVERY);
    for volume in &mut view.volumes {
        volume.look();
        volume.map_all();
    }
    if json {
        say_json(&TopDoc { volumes: view.volumes.iter().map(document).collect() })?;
        return Ok(Outcome::Good);
    }
    let (width, height) = ratatui::crossterm::terminal::size().unwrap_or((COLUMNS, LINES));
    let mut pages = Vec::new();
    for volume in 0..view.volumes.len().max(1) {
        view.chosen = volume;
        pages.push(text(&view, width, height));
    }
    say(&pages.join("\n\n"));
    Ok(Outcome::Good)
}

/// A screen of this size, as text.
pub(super) fn text(view: &View, width: u16, height: u16) -> String {
    let area = Rect { x: 0, y: 0, width, height };
    let mut buffer = Buffer::empty(area);
    screen::draw(area, &mut buffer, view);
    let line = |y: u16| {
        let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
        cells.map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn document(volume: &Watched) -> VolumeDoc {
    let looks = &volume.looks;
    let status = looks.status().filter(|_| volume.silent.is_none());
    let devices =
        status.iter().flat_map(|status| status.tiers.iter().enumerate()).map(|(tier, doc)| DeviceDoc {
            name: tier_name(tier),
            device: doc.device.clone(),
            used_bytes: doc.used_bytes,
            size_bytes: doc.size_bytes,
            counted_by: if looks.kernels_rates(tier).is_some() { "kernel" } else { "server" },
            rates: looks.rates(tier),
        });
    VolumeDoc {
        volume: volume.name.clone(),
        state: status.map_or_else(|| "not served".to_owned(), |status| status.state.clone()),
        silent: volume.silent.clone(),
        seconds: looks.seconds(),
        devices: devices.collect(),
        landing_used_bytes: status.map_or(0, |status| status.landing.used_bytes),
        landing_size_bytes: status.map_or(0, |status| status.landing.size_bytes),
        landing_short: status.is_some_and(|status| status.landing.short),
        hits: volume.hits().into_iter().filter_map(|(name, hits)| Some((name, hits?))).collect(),
        moves: looks.moves(),
        moves_paused: status.is_some_and(|status| status.moves.paused),
        decisions: volume.decisions.clone(),
        hottest: volume.hot.iter().take(HOT_RANGES).copied().collect(),
    }
}
