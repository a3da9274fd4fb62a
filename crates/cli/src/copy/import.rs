//! `bimetal import`

use super::args::ImportArgs;
use super::journal::Journal;
use super::lanes::Lanes;
use super::raw::Source;
use super::{
    Copied, PIECE_BYTES, Sum, WINDOW_BYTES, pieces, refuse_served, report, runs, show_progress, windows,
};
use crate::lab::Stop;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, offline};
use anyhow::{Context as _, bail};
use bimetal_driver::{Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_engine::extents::{Placed, Placement};
use bimetal_engine::format::id_text;
use bimetal_units::{BLOCK_BYTES, SECTOR_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// What the journal says.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    volume_id: String,
    source: String,
    /// The opening of the volume in which that was written.
    generation: u64,
    /// So much, from the beginning on, is in the volume, verified and durable.
    done_bytes: u64,
}

/// What `import --json` prints.
#[derive(Debug, Serialize)]
struct ImportDoc {
    volume: String,
    source: String,
    #[serde(flatten)]
    copied: Copied,
}

/// An import under way.
struct Import<'a> {
    args: &'a ImportArgs,
    volume: &'a Volume,
    source: Source,
    journal: Journal,
    stop: Stop,
    start: Instant,
}

pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    refuse_served(&volume)?;
    let (source, journal) = (Source::open(&args.source)?, Journal::of(&volume, "import"));
    let import = Import { args, volume: &volume, source, journal, stop: Stop::new(), start: Instant::now() };
    // Before the engine has threads.
    import.stop.listen()?;
    let doc = offline::with_closed(&volume, args.json, |driver, engine| import.run(driver, engine))?;
    // Last of all: who is killed while the volume is closed finds it complete.
    if doc.copied.complete {
        import.journal.remove()?;
    }
    let what = format!("imported {} into {}", doc.source, doc.volume);
    report(args.json, &doc, &doc.copied, &what)
}

impl Import<'_> {
    fn run(&self, driver: &mut Driver, engine: &mut Engine<RealArena>) -> anyhow::Result<ImportDoc> {
        let (size_bytes, generation) = (engine.size_bytes(), engine.status().generation);
        self.fits(size_bytes)?;
        let mark = self.source.mark()?;
        let earlier = self.journal.load::<Begun>();
        let earlier =
            earlier.filter(|begun| begun.volume_id == id_text(&self.volume.id) && begun.source == mark);
        let from = earlier.as_ref().map_or(0, |begun| begun.done_bytes.min(self.source.size_bytes()));
        // What an earlier run was writing when it was cut short is written again; behind that it came nowhere.
        let reach = (from + WINDOW_BYTES).min(self.source.size_bytes().next_multiple_of(BLOCK_BYTES.into()));
        let blank = is_blank(engine, if earlier.is_some() { reach } else { 0 }, size_bytes);
        let mut lanes = Lanes::new(driver, engine)?;
        let goes_on = match earlier {
            Some(begun) if blank => generation == begun.generation + 1 || self.is_there(&mut lanes, from)?,
            _ => false,
        };
        let mut begun =
            Begun { volume_id: id_text(&self.volume.id), source: mark, generation, done_bytes: 0 };
        if goes_on {
            begun.done_bytes = from;
            lanes.discard(from..reach)?;
        } else if self.args.force {
            lanes.discard(0..size_bytes)?;
        } else if !blank || from > 0 {
            bail!(
                "{} holds data that is not of {} as it is now; import into a volume that is blank, or discard what it \
                 holds with --force",
                self.volume.file.display(),
                self.args.source.display()
            );
        }
        self.journal.save(&begun)?;
        self.copy(&mut lanes, begun)
    }

    fn fits(&self, size_bytes: u64) -> anyhow::Result<()> {
        let (path, bytes) = (self.source.path().display(), self.source.size_bytes());
        if bytes == 0 {
            bail!("{path} is empty; name a disk, a partition or an image that holds something");
        }
        if bytes > size_bytes {
            bail!(
                "{path} has {bytes} bytes, {} more than {} has; make it and what is on it smaller, or a larger volume",
                bytes - size_bytes,
                self.volume.file.display()
            );
        }
        Ok(())
    }

    /// Whether the volume still holds what the source does, up to here, and behind that nothing else: it has been opened
    /// since.
    fn is_there(&self, lanes: &mut Lanes<'_>, to: u64) -> anyhow::Result<bool> {
        let mut progress = Progress::new("comparing what was imported before".to_owned(), self.args.json);
        let mut bytes = vec![0; PIECE_BYTES as usize];
        let reach = (to + WINDOW_BYTES).min(self.source.size_bytes());
        for piece in windows(0, reach).flat_map(pieces) {
            let bytes = &mut bytes[..(piece.end - piece.start) as usize];
            self.source.read(piece.start, bytes)?;
            let mut same = true;
            let mut compare = |_: u64, there: &[u8]| {
                same = if piece.end <= to { *there == *bytes } else { is_begun(there, bytes) };
                Ok(())
            };
            lanes.read(piece.start, bytes.len() as u64, &mut compare)?;
            lanes.settle(&mut compare)?;
            if !same {
                return Ok(false);
            }
            if self.stop.is_asked_for() {
                bail!("stopped before anything was written; give the command again to go on");
            }
            show_progress(&mut progress, piece.end, reach);
        }
        Ok(true)
    }

    fn copy(&self, lanes: &mut Lanes<'_>, mut begun: Begun) -> anyhow::Result<ImportDoc> {
        let (all, resumed_at_bytes) = (self.source.size_bytes(), begun.done_bytes);
        let mut written_bytes = 0;
        let mut progress =
            Progress::new(format!("importing {}", self.source.path().display()), self.args.json);
        for window in windows(begun.done_bytes, all) {
            if self.stop.is_asked_for() {
                break;
            }
            let sums = write(&self.source, lanes, window.clone(), |done| {
                show_progress(&mut progress, done, all);
            })?;
            lanes.flush()?;
            verify(lanes, &sums)?;
            self.source.forget(&window);
            written_bytes += sums.values().map(|sum| sum.length).sum::<u64>();
            begun.done_bytes = window.end;
            self.journal.save(&begun)?;
        }
        let complete = begun.done_bytes == all;
        if complete {
            self.is_unchanged(&begun)?;
        }
        Ok(ImportDoc {
            volume: self.volume.name().0,
            source: self.source.path().display().to_string(),
            copied: Copied {
                size_bytes: all,
                resumed_at_bytes,
                done_bytes: begun.done_bytes,
                written_bytes,
                complete,
                seconds: self.start.elapsed().as_secs_f64(),
            },
        })
    }

    fn is_unchanged(&self, begun: &Begun) -> anyhow::Result<()> {
        if self.source.mark()? != begun.source {
            bail!(
                "{} was written while it was copied, so the volume holds no moment of it; import it again with --force \
                 while nobody writes to it",
                self.source.path().display()
            );
        }
        Ok(())
    }
}

/// Whether each sector is what it is to become, or was never written.
fn is_begun(there: &[u8], bytes: &[u8]) -> bool {
    let sectors = there.chunks(SECTOR_BYTES as usize).zip(bytes.chunks(SECTOR_BYTES as usize));
    sectors.into_iter().all(|(there, wanted)| there == wanted || there.iter().all(|&byte| byte == 0))
}

/// Whether a range of a volume was never written, or all of it was discarded.
fn is_blank(engine: &Engine<RealArena>, from: u64, to: u64) -> bool {
    let mut at = from;
    while at < to {
        match engine.extents(at, to - at, 1).first() {
            Some(Placed { len, place: Placement::Hole }) => at += len,
            _ => return false,
        }
    }
    true
}

/// Writes what a window of the source holds besides zeros, and says what that was.
fn write(
    source: &Source,
    lanes: &mut Lanes<'_>,
    window: Range<u64>,
    mut done: impl FnMut(u64),
) -> anyhow::Result<BTreeMap<u64, Sum>> {
    let (mut sums, mut bytes) = (BTreeMap::new(), vec![0; PIECE_BYTES as usize]);
    for piece in pieces(window) {
        if source.has_data(&piece) {
            let bytes = &mut bytes[..(piece.end - piece.start) as usize];
            source.read(piece.start, bytes)?;
            for run in runs(bytes) {
                let at = piece.start + run.start as u64;
                sums.insert(at, Sum::of(at, &bytes[run.clone()]));
                lanes.write(at, &bytes[run])?;
            }
        }
        done(piece.end);
    }
    Ok(sums)
}

fn verify(lanes: &mut Lanes<'_>, sums: &BTreeMap<u64, Sum>) -> anyhow::Result<()> {
    let mut compare = |at: u64, bytes: &[u8]| {
        let sum = sums.get(&at).context("what was read was not asked for")?;
        sum.compare(bytes, "the volume")
    };
    for sum in sums.values() {
        lanes.read(sum.at, sum.length, &mut compare)?;
    }
    lanes.settle(&mut compare)
}
