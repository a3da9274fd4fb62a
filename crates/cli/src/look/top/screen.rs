//! One screen of `top`. Whoever sees no colour sees all there is in letters.

use super::sample::{DeviceRates, Hits, MoveRates};
use super::watch::Watched;
use super::words;
use crate::size;
use bimetal_serve::StatusDoc;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{RenderDirection, Sparkline, Widget as _};

/// Columns of a device's row before its sparkline.
const DEVICE_COLUMNS: u16 = 75;
/// Columns of a sparkline beside a bar.
const NARROW: u16 = 16;
/// A bar that says how full something is.
const BAR: usize = 30;
/// A device that answers nothing for less than this is busy, or spins up, seconds.
const WORTH_SAYING: u64 = 3;
/// A device that is busy for so much of the time is at its limit.
const BUSY: f64 = 0.9;
/// Decisions that are listed, on a low screen and on a high one.
const FEW_DECISIONS: usize = 2;
const MANY_DECISIONS: usize = 8;
const HIGH: u16 = 36;

/// In which order devices are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// As they are given, the fast one first.
    #[default]
    Given,
    /// The busiest first.
    Busy,
    /// Those that move most bytes first.
    Bytes,
}

impl Sort {
    /// The one after it.
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Given => Sort::Busy,
            Sort::Busy => Sort::Bytes,
            Sort::Bytes => Sort::Given,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Given => "volume",
            Sort::Busy => "busy",
            Sort::Bytes => "bytes",
        }
    }
}

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) volumes: Vec<Watched>,
    /// The volume of which more is told.
    pub(super) chosen: usize,
    /// The hot range that is marked.
    pub(super) picked: usize,
    pub(super) sort: Sort,
    /// What was asked why, in sentences.
    pub(super) why: Option<Vec<String>>,
    /// Whether there is colour.
    pub(super) colour: bool,
    /// Whether keys do something.
    pub(super) keys: bool,
}

impl View {
    /// The volume of which more is told.
    pub(super) fn volume(&self) -> Option<&Watched> {
        self.volumes.get(self.chosen)
    }

    /// Whether the moves of that volume are paused.
    fn is_paused(&self) -> bool {
        let status = self.volume().and_then(|volume| volume.looks.status());
        status.is_some_and(|status| status.moves.paused)
    }

    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

/// Writes lines from the top to the bottom of an area, as far as there is room.
struct Page<'b> {
    area: Rect,
    y: u16,
    buffer: &'b mut Buffer,
}

impl Page<'_> {
    fn line(&mut self, text: &str, style: Style) {
        if self.y < self.area.bottom() {
            self.buffer.set_stringn(self.area.x, self.y, text, self.area.width.into(), style);
        }
        self.y += 1;
    }

    fn left(&self) -> u16 {
        self.area.bottom().saturating_sub(self.y)
    }
}

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const MARKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub(super) fn draw(area: Rect, buffer: &mut Buffer, view: &View) {
    let rest = Rect { height: area.height.saturating_sub(u16::from(view.keys)), ..area };
    let mut page = Page { area: rest, y: area.y, buffer };
    title(&mut page, view);
    devices(&mut page, view);
    if let Some(volume) = view.volume() {
        page.y += 1;
        match (volume.looks.status(), &volume.silent) {
            (Some(status), None) => {
                fill(&mut page, volume, status, view);
                hits(&mut page, volume);
                moves(&mut page, volume, status, view);
                match &view.why {
                    Some(sentences) => why(&mut page, sentences),
                    None => hot(&mut page, volume, view),
                }
            }
            (_, silent) => {
                let why = silent.as_deref().unwrap_or("nothing is known yet");
                page.line(&format!("{}: {why}; it is asked again each second", volume.name), BOLD);
            }
        }
    }
    if view.keys && area.height > 0 {
        let keys = format!(
            "q quit  tab next  s sort ({})  p {}  up/down range  enter why  esc back",
            view.sort.name(),
            if view.is_paused() { "resume" } else { "pause" }
        );
        page.buffer.set_stringn(area.x, area.bottom() - 1, keys, area.width.into(), view.style(Color::Cyan));
    }
}

fn title(page: &mut Page<'_>, view: &View) {
    let Some(volume) = view.volume() else {
        return page
            .line("bimetal top: this user serves no volume; `bimetal serve` one, and it shows here", BOLD);
    };
    let text = match volume.looks.status().filter(|_| volume.silent.is_none()) {
        Some(status) => {
            let of = if view.volumes.len() > 1 {
                format!("  ({} of {})", view.chosen + 1, view.volumes.len())
            } else {
                String::new()
            };
            format!(
                "bimetal top   {}: {}, {}, {} clients{of}",
                volume.name,
                status.state,
                size::show(status.size_bytes),
                status.clients
            )
        }
        None => format!("bimetal top   {}: not served", volume.name),
    };
    page.line(&text, BOLD);
}

/// A row of a device.
struct Row<'v> {
    volume: &'v Watched,
    tier: usize,
    rates: DeviceRates,
}

fn devices(page: &mut Page<'_>, view: &View) {
    let head = format!(
        "{:<16} {:>9} {:>9} {:>7} {:>7} {:>9} {:>5} {:>6}",
        "device", "read/s", "write/s", "reads", "writes", "latency", "busy", "queue"
    );
    let wide = is_wide(page.area);
    page.line(&if wide { format!("{head}   last minute") } else { head }, BOLD);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for volume in view.volumes.iter().filter(|volume| volume.silent.is_none()) {
        let tiers = volume.looks.status().map_or(0, |status| status.tiers.len());
        rows.extend((0..tiers).map(|tier| Row {
            volume,
            tier,
            rates: volume.looks.rates(tier).unwrap_or_default(),
        }));
    }
    match view.sort {
        Sort::Given => {}
        Sort::Busy => rows.sort_by(|a, b| b.rates.busy_share.total_cmp(&a.rates.busy_share)),
        Sort::Bytes => rows.sort_by(|a, b| b.rates.bytes_per_s().total_cmp(&a.rates.bytes_per_s())),
    }
    // Half of a low screen is for more than devices.
    let most = (page.left() / 2).max(2) as usize;
    for row in rows.iter().take(most) {
        device(page, row, view);
    }
    if rows.len() > most {
        page.line(&format!("  and {} more devices", rows.len() - most), PLAIN);
    }
}

fn device(page: &mut Page<'_>, row: &Row<'_>, view: &View) {
    let Row { volume, tier, rates } = row;
    let tier_name = bimetal_serve::status::tier_name(*tier);
    let mut name = volume.name.clone();
    name.truncate((0..=10).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0));
    let text = format!(
        "{:<16} {:>9} {:>9} {:>7.0} {:>7.0} {:>9} {:>4.0}% {:>6.1}",
        format!("{name} {tier_name}"),
        words::bytes(rates.read_bytes_per_s),
        words::bytes(rates.written_bytes_per_s),
        rates.reads_per_s,
        rates.writes_per_s,
        rates.latency_us.map_or_else(|| "-".to_owned(), words::micros),
        rates.busy_share * 100.0,
        rates.queue
    );
    let style = if rates.busy_share >= BUSY { view.style(Color::Yellow) } else { PLAIN };
    let y = page.y;
    page.line(&text, style);
    if is_wide(page.area) {
        sparkline(page, (page.area.x + DEVICE_COLUMNS + 3, y), row.volume, row.tier, view);
    }
}

/// Whether there is room for a sparkline behind a device's row; else it has a narrow one beside its bar.
fn is_wide(area: Rect) -> bool {
    area.width > DEVICE_COLUMNS + 10
}

/// Draws what a device did in the last minute, as far as there is room to the right of a place.
fn sparkline(page: &mut Page<'_>, (x, y): (u16, u16), volume: &Watched, tier: usize, view: &View) {
    if y >= page.area.bottom() || x >= page.area.right() {
        return;
    }
    let points = volume.looks.points(tier);
    let width = (page.area.right() - x).min(super::sample::POINTS as u16);
    let from = points.len().saturating_sub(width.into());
    let newest_first: Vec<u64> = points[from..].iter().rev().copied().collect();
    page.buffer.set_stringn(x, y, " ".repeat(width.into()), width.into(), PLAIN);
    Sparkline::default()
        .data(newest_first)
        .direction(RenderDirection::RightToLeft)
        .style(view.style(Color::Cyan))
        .render(Rect { x, y, width, height: 1 }, page.buffer);
}

fn fill(page: &mut Page<'_>, volume: &Watched, status: &StatusDoc, view: &View) {
    for (nth, tier) in status.tiers.iter().enumerate() {
        let silent =
            tier.silent_since_unix_s.map_or(0, |since| words::seconds_of(status).saturating_sub(since));
        let more = if silent >= WORTH_SAYING { format!("   silent for {silent} s") } else { String::new() };
        let y = page.y;
        // Where there is little room, what it does says more than its name.
        let device = if is_wide(page.area) { tier.device.as_str() } else { "" };
        bar(page, &tier.name, tier.used_bytes, tier.size_bytes, &format!("{device}{more}"), PLAIN);
        if !is_wide(page.area) {
            sparkline(page, (page.area.right().saturating_sub(NARROW), y), volume, nth, view);
        }
    }
    let zone = &status.landing;
    let (more, style) = match zone.short {
        true => ("SHORT: clients wait", view.style(Color::Red)),
        false => ("", PLAIN),
    };
    let landed = format!("{} landed   {more}", size::show(zone.landed_bytes));
    bar(page, "zone", zone.used_bytes, zone.size_bytes, &landed, style);
}

fn bar(page: &mut Page<'_>, name: &str, used: u64, all: u64, more: &str, style: Style) {
    let share = used as f64 / all.max(1) as f64;
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
    let text = format!("{name:<5} [{bar}] {:>3.0}% of {:<10} {more}", share * 100.0, size::show(all));
    page.line(&text, style);
}

/// A span, and what was seen in it.
type Span = (&'static str, Option<Hits>);

fn hits(page: &mut Page<'_>, volume: &Watched) {
    let spans: Vec<Span> = volume.hits();
    let line = |name: &str, of: &dyn Fn(&Span) -> String| {
        let cells: String = spans.iter().map(|span| format!("{:>8}", of(span))).collect();
        format!("{name:<18}{cells}")
    };
    let share =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 100.0));
    page.line(&line("from the fast tier", &|(name, _)| (*name).to_owned()), BOLD);
    page.line(&line("  reads", &|(_, hits)| share(hits.and_then(|hits| hits.reads))), PLAIN);
    page.line(&line("  writes", &|(_, hits)| share(hits.and_then(|hits| hits.writes))), PLAIN);
}

fn moves(page: &mut Page<'_>, volume: &Watched, status: &StatusDoc, view: &View) {
    let MoveRates { up_bytes_per_s, down_bytes_per_s, merged_bytes_per_s, copied_bytes_per_s } =
        volume.looks.moves().unwrap_or_default();
    page.line(
        &format!(
            "moves: up {}/s, down {}/s, merged {}/s, copied {}/s",
            words::bytes(up_bytes_per_s),
            words::bytes(down_bytes_per_s),
            words::bytes(merged_bytes_per_s),
            words::bytes(copied_bytes_per_s)
        ),
        BOLD,
    );
    if status.moves.paused {
        page.line("  PAUSED: only the landing zone is emptied; p resumes", view.style(Color::Yellow));
    } else {
        page.line(&format!("  {}", words::last_minute(&volume.decisions, words::seconds_of(status))), PLAIN);
    }
    let most = if page.area.height >= HIGH { MANY_DECISIONS } else { FEW_DECISIONS };
    for decision in volume.decisions.iter().take(most) {
        page.line(&format!("  {}", words::decision(decision, words::seconds_of(status))), PLAIN);
    }
}

fn hot(page: &mut Page<'_>, volume: &Watched, view: &View) {
    page.line(&format!("{:<20} {:>5}   {:<12} {}", "hottest, around", "heat", "where", "hot and slow"), BOLD);
    let room = page.left() as usize;
    let first = view.picked.saturating_sub(room.saturating_sub(1));
    for (nth, cell) in volume.hot.iter().enumerate().skip(first).take(room) {
        let mark = if view.keys && nth == view.picked { ">" } else { " " };
        let text = format!(
            "{mark} {:<18} {:>5}   {:<12} {}",
            size::show(cell.hottest_offset),
            cell.hottest,
            words::place(cell),
            if cell.hot_slow_bytes > 0 { size::show(cell.hot_slow_bytes) } else { String::new() }
        );
        page.line(&text, if mark == ">" { MARKED } else { PLAIN });
    }
    if volume.hot.is_empty() {
        page.line("  nothing is hot, or it has not been found yet", PLAIN);
    }
}

fn why(page: &mut Page<'_>, sentences: &[String]) {
    let width = usize::from(page.area.width.saturating_sub(2)).max(10);
    for (nth, sentence) in sentences.iter().enumerate() {
        for line in words::wrapped(sentence, width) {
            page.line(
                &format!("{}{line}", if nth == 0 { "" } else { "  " }),
                if nth == 0 { BOLD } else { PLAIN },
            );
        }
    }
}
