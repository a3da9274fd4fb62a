//! Where what is shown comes from: the control socket of a server, and the files beside its volume. All of it may wait,
//! so it runs on threads for that.

use crate::keeper::watches;
use crate::metrics::{Below, Seen};
use crate::sample::{FIELDS, Sample, Step};
use crate::{events, history};
use bimetal_serve::map::MapDoc;
use bimetal_serve::{Answer, EventDoc, Question, StatusDoc, WhyDoc, live_answer, live_status, unix_ms};
use serde::Serialize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer is given again for so long, so that many who ask cost the server no more than one.
const FRESH_FOR: Duration = Duration::from_millis(200);
/// Cells of a map at most.
const MAX_CELLS: u64 = 4096;
/// Cells where nothing else is asked for.
const CELLS: u64 = 512;
/// Parts in which a map is asked for, at most: enough for 64 TiB in chunks of 128 KiB.
const MAX_PARTS: usize = 65_536;

/// A volume that is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// The control socket of its server.
    pub control: PathBuf,
    /// The file of its history.
    pub history: PathBuf,
    /// The file of its events.
    pub events: PathBuf,
    /// How its keeper is told that somebody watches.
    pub watched: Arc<AtomicU64>,
}

/// It, and what was asked last.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) shown: Shown,
    fresh: Mutex<Option<(Instant, StatusDoc)>>,
}

/// A history as it is told: columns, and a row for each sample.
#[derive(Debug, Serialize)]
pub(super) struct HistoryDoc<'v> {
    volume: &'v str,
    step_s: u64,
    now_unix_s: u64,
    /// What stands in a row behind its time, how much time it is of in milliseconds, and whether nothing happened between the one
    /// before it and it.
    fields: Vec<&'static str>,
    rows: Vec<Row>,
}

/// A sample as it is told.
#[derive(Debug)]
pub(super) struct Row(Sample);

impl Serialize for Row {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Sample { at, span_ms, quiet_before, values } = &self.0;
        serializer.collect_seq([*at, *span_ms, u64::from(*quiet_before)].iter().chain(values))
    }
}

/// A map as it is told.
#[derive(Debug, Serialize)]
pub(super) struct WholeMapDoc {
    volume: String,
    from: u64,
    to: u64,
    #[serde(flatten)]
    map: MapDoc,
}

/// What of the files was seen last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The second of the last sample.
    pub(super) second: u64,
    /// How far the events were read.
    pub(super) events: u64,
}

impl Source {
    pub(super) fn new(shown: Shown) -> Source {
        Source { shown, fresh: Mutex::new(None) }
    }

    /// The status, as the control socket tells it.
    pub(super) fn status(&self) -> Result<StatusDoc, String> {
        // Who waits here for another who asks is given the same.
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, doc)) = fresh.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR) {
            return Ok(doc.clone());
        }
        let doc = told(&self.shown, live_status(&self.shown.control))?;
        *fresh = Some((Instant::now(), doc.clone()));
        Ok(doc)
    }

    /// It, for metrics.
    pub(super) fn seen(&self) -> Seen {
        let status = self.status().ok();
        let tiers = status.iter().flat_map(|status| &status.tiers);
        let below = tiers.map(|tier| below(Path::new(&tier.device))).collect();
        Seen { name: self.shown.name.clone(), status, below }
    }

    /// The history by this step.
    pub(super) fn history(&self, step: Step) -> Result<HistoryDoc<'_>, String> {
        self.watches();
        let now = unix_ms() / 1000;
        let rows = history::read(&self.shown.history, step, now)
            .map_err(|error| format!("{}: {error}", self.shown.history.display()))?;
        let rows = rows.into_iter().map(Row).collect();
        let fields = FIELDS.iter().map(|field| field.name).collect();
        Ok(HistoryDoc { volume: &self.shown.name, step_s: step.seconds(), now_unix_s: now, fields, rows })
    }

    /// What came since; a file that cannot be read has nothing new.
    pub(super) fn news(&self, place: &mut Place) -> (Vec<Row>, Vec<EventDoc>) {
        self.watches();
        let now = unix_ms() / 1000;
        let rows = history::read_since(&self.shown.history, place.second, now).unwrap_or_default();
        place.second = rows.last().map_or(place.second, |last| last.at);
        let found = events::read_from(&self.shown.events, place.events).unwrap_or_default();
        if found.end > 0 {
            place.events = found.end;
        }
        (rows.into_iter().map(Row).collect(), found.events)
    }

    fn watches(&self) {
        watches(&self.shown.watched);
    }

    /// Why the chunk with this byte is where it is.
    pub(super) fn why(&self, offset: u64) -> Result<Box<WhyDoc>, String> {
        match self.ask(&Question::Why { offset })? {
            Answer::Why(why) => Ok(why),
            other => Err(unexpected(&other)),
        }
    }

    /// A map of a range; the whole volume where none is given.
    pub(super) fn map(
        &self,
        from: Option<u64>,
        to: Option<u64>,
        cells: Option<u64>,
    ) -> Result<WholeMapDoc, String> {
        let size_bytes = self.status()?.size_bytes;
        let (from, to) = (from.unwrap_or(0), to.unwrap_or(size_bytes).min(size_bytes));
        if from >= to {
            return Err(format!("from {from} to {to} is no range of {size_bytes} bytes"));
        }
        let cells = cells.unwrap_or(CELLS).clamp(1, MAX_CELLS);
        let cell_bytes = (to - from).div_ceil(cells);
        let (mut map, mut at) = (None::<MapDoc>, Some(from));
        for _ in 0..MAX_PARTS {
            let Some(next) = at else { break };
            let part = match self.ask(&Question::Map { from, to, at: next, cell_bytes })? {
                Answer::Map(part) => part,
                other => return Err(unexpected(&other)),
            };
            at = part.next;
            match &mut map {
                Some(map) => map.append(part),
                None => map = Some(part),
            }
        }
        let map = map.unwrap_or_default();
        let from = map.cells.first().map_or(from, |cell| cell.offset);
        Ok(WholeMapDoc { volume: self.shown.name.clone(), from, to, map })
    }

    fn ask(&self, question: &Question) -> Result<Answer, String> {
        match told(&self.shown, live_answer(&self.shown.control, question))? {
            Answer::Refused(why) => Err(why),
            answer => Ok(answer),
        }
    }
}

fn told<T>(shown: &Shown, answer: std::io::Result<Option<T>>) -> Result<T, String> {
    match answer {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(format!("{}: its server is gone", shown.name)),
        Err(error) => Err(format!("{}: its server does not answer: {error}", shown.name)),
    }
}

fn unexpected(answer: &Answer) -> String {
    format!("the server gave another answer than asked for: {answer:?}")
}

/// The room below a device, where that is a file.
fn below(device: &Path) -> Option<Below> {
    let meta = std::fs::metadata(device).ok().filter(std::fs::Metadata::is_file)?;
    let system = rustix::fs::statvfs(device).ok()?;
    let missing_bytes = meta.len().saturating_sub(meta.blocks().saturating_mul(512));
    Some(Below { free_bytes: system.f_bavail.saturating_mul(system.f_frsize), missing_bytes })
}
