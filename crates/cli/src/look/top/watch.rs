//! The volumes that are watched: what each told last, what moved on it, and where it is hot.

use super::sample::{Hits, Looks, SPANS};
use crate::list;
use crate::volume::{self, Volume};
use bimetal_serve::ask::MoveDoc;
use bimetal_serve::map::{CellDoc, MapDoc};
use bimetal_serve::{Answer, Question, WhyDoc, unix_ms};
use bimetal_watch::shares;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a volume is looked at.
pub(super) const EVERY: Duration = Duration::from_secs(1);
/// Parts into which a volume is divided to find where it is hot, and parts of that map that are asked for at a look: so the
/// map of a large volume takes some looks, and costs its server a few milliseconds a second at most.
const CELLS: u64 = 2048;
const PARTS_PER_LOOK: usize = 8;
/// When a map that is whole, and on which something is hot, is asked for anew.
const MAP_EVERY: Duration = Duration::from_secs(10);
/// How often its history is read.
const LOOK_BACK_EVERY: Duration = Duration::from_secs(60);
/// Hot ranges that are kept.
const HOT_RANGES: usize = 100;

/// Where a map that is being asked for has come to.
#[derive(Debug)]
struct Mapping {
    map: MapDoc,
    next: u64,
}

/// A volume that is watched.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) name: String,
    control: PathBuf,
    /// The file of its history.
    history: Option<PathBuf>,
    /// The fast tier's part over [`SPANS`] and ever, by the history; and when it was read.
    kept: [Option<Hits>; SPANS.len() + 1],
    kept_at: Option<Instant>,
    pub(super) looks: Looks,
    /// Why nothing is told now; none while its server answers.
    pub(super) silent: Option<String>,
    /// What the mover decided of late, the newest first.
    pub(super) decisions: Vec<MoveDoc>,
    /// The hottest parts of the volume.
    pub(super) hot: Vec<CellDoc>,
    mapping: Option<Mapping>,
    mapped: Option<Instant>,
}

impl Watched {
    /// Whether both are one volume.
    pub(super) fn is_same(&self, other: &Watched) -> bool {
        self.control == other.control
    }

    /// The volume behind a control socket, which was not looked at yet, and its history.
    pub(super) fn new(name: String, control: PathBuf, history: Option<PathBuf>) -> Watched {
        Watched {
            name,
            control,
            history,
            kept: [None; SPANS.len() + 1],
            kept_at: None,
            looks: Looks::default(),
            silent: Some("not looked at yet".to_owned()),
            decisions: Vec::new(),
            hot: Vec::new(),
            mapping: None,
            mapped: None,
        }
    }

    /// Looks at it. What does not answer is told as such, and asked again at the next look.
    pub(super) fn look(&mut self) {
        match bimetal_serve::live_status(&self.control) {
            Ok(Some(status)) => {
                let size_bytes = status.size_bytes;
                let kernel = [0, 1].map(|tier| {
                    let device = &status.tiers.get(tier)?.device;
                    super::kernel::load(device.as_ref()).map(|load| (Instant::now(), load))
                });
                self.looks.add(Instant::now(), status, kernel);
                self.silent = None;
                self.look_back();
                if let Some(Answer::Decisions(decisions)) = self.ask(&Question::Decisions {}) {
                    self.decisions = decisions;
                }
                self.map(size_bytes, PARTS_PER_LOOK);
            }
            Ok(None) => {
                let silent = "nobody serves it".to_owned();
                let anew = Watched::new(self.name.clone(), self.control.clone(), self.history.clone());
                *self = Watched { silent: Some(silent), ..anew };
            }
            Err(error) => self.silent = Some(error.to_string()),
        }
    }

    /// Reads in the history what was before somebody watched, now and then. Where there is none, less is told.
    fn look_back(&mut self) {
        let Some(history) =
            self.history.as_ref().filter(|_| self.kept_at.is_none_or(|at| at.elapsed() >= LOOK_BACK_EVERY))
        else {
            return;
        };
        self.kept_at = Some(Instant::now());
        let now = unix_ms() / 1000;
        let seconds = SPANS.iter().map(|(_, span)| Some(span.as_secs())).chain([None]);
        for (kept, seconds) in self.kept.iter_mut().zip(seconds) {
            // By the next time that would be long ago.
            if seconds.is_some_and(|seconds| seconds < LOOK_BACK_EVERY.as_secs()) {
                continue;
            }
            *kept = shares(history, seconds, now).ok().flatten().map(Hits::from);
        }
    }

    /// The fast tier's part over spans, and ever: as it was watched, or else by the history, which may lack the last minute.
    pub(super) fn hits(&self) -> Vec<(&'static str, Option<Hits>)> {
        let watched = SPANS.iter().map(|(name, span)| (*name, self.looks.hits(*span)));
        let mut all: Vec<_> =
            watched.zip(&self.kept).map(|((name, seen), kept)| (name, seen.or(*kept))).collect();
        // What is not known of a year is known of this opening.
        let ever = self.kept[SPANS.len()].filter(|kept| *kept != Hits::default());
        all.push(("ever", ever.or_else(|| self.looks.hits_ever())));
        all
    }

    /// Pauses moves, or resumes them; why not, if that is so.
    pub(super) fn pause(&mut self) -> Result<(), String> {
        let pause = !self.looks.status().is_some_and(|status| status.moves.paused);
        match bimetal_serve::live_answer(&self.control, &Question::Moves { pause }) {
            Ok(Some(Answer::Moves { .. })) => Ok(()),
            Ok(Some(Answer::Refused(what))) => Err(what),
            Ok(Some(_)) => Err("the server gave another answer than asked for".to_owned()),
            Ok(None) => Err("nobody serves it".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is not answered now may be at the next look.
    fn ask(&self, question: &Question) -> Option<Answer> {
        bimetal_serve::live_answer(&self.control, question).ok().flatten()
    }

    /// Goes on with the map, by so many parts.
    fn map(&mut self, to: u64, parts: usize) {
        // Where nothing was hot, something may be by the next look.
        let is_fresh = !self.hot.is_empty() && self.mapped.is_some_and(|at| at.elapsed() < MAP_EVERY);
        if self.mapping.is_none() && is_fresh {
            return;
        }
        for _ in 0..parts {
            let at = self.mapping.as_ref().map_or(0, |mapping| mapping.next);
            let question = Question::Map { from: 0, to, at, cell_bytes: to.div_ceil(CELLS) };
            let Some(Answer::Map(part)) = self.ask(&question) else { return };
            let next = part.next;
            let map = match self.mapping.take() {
                None => part,
                Some(Mapping { mut map, .. }) => {
                    map.append(part);
                    map
                }
            };
            let Some(next) = next else {
                self.hot = hottest(map.cells);
                self.mapped = Some(Instant::now());
                return;
            };
            self.mapping = Some(Mapping { map, next });
        }
    }

    /// Finds where it is hot, however long that takes.
    pub(super) fn map_all(&mut self) {
        if let Some(size_bytes) = self.looks.status().map(|status| status.size_bytes) {
            self.map(size_bytes, usize::MAX);
        }
    }

    /// Why a chunk is where it is.
    pub(super) fn why(&self, offset: u64) -> Result<WhyDoc, String> {
        match bimetal_serve::live_answer(&self.control, &Question::Why { offset }) {
            Ok(Some(Answer::Why(doc))) => Ok(*doc),
            Ok(Some(Answer::Refused(what))) => Err(what),
            Ok(Some(_)) => Err("the server gave another answer than asked for".to_owned()),
            Ok(None) => Err("nobody serves it".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn hottest(mut cells: Vec<CellDoc>) -> Vec<CellDoc> {
    cells.retain(|cell| cell.hottest > 0);
    cells.sort_by_key(|cell| (std::cmp::Reverse(cell.hottest), cell.offset));
    cells.truncate(HOT_RANGES);
    cells
}

/// The volumes of these names; all that this user serves where none is named.
pub(super) fn volumes(names: &[String]) -> anyhow::Result<Vec<Watched>> {
    if names.is_empty() {
        let of = |served: list::Served| {
            let volume = Volume::load(served.status.file.as_ref());
            let history = volume.ok().map(|volume| volume.history_file());
            Watched::new(served.status.volume, served.control, history)
        };
        return Ok(list::served().into_iter().map(of).collect());
    }
    let one = |name: &String| {
        let volume = Volume::load(&volume::locate(name)?)?;
        Ok(Watched::new(volume.name().0, volume.socket("control")?, Some(volume.history_file())))
    };
    names.iter().map(one).collect()
}
