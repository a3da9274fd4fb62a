//! `bimetal export`

use super::args::ExportArgs;
use super::journal::Journal;
use super::lanes::Lanes;
use super::{Copied, PIECE_BYTES, Sum, pieces, refuse_served, report, runs, show_progress, windows};
use crate::lab::Stop;
use crate::progress::Progress;
use crate::volume::{self, Volume};
use crate::{Outcome, inspect, offline};
use anyhow::{Context as _, bail};
use bimetal_driver::{BlockFile, Driver, RealArena};
use bimetal_engine::Engine;
use bimetal_engine::extents::Placement;
use bimetal_engine::format::id_text;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What the journal says.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    volume_id: String,
    target: String,
    /// The opening of the volume in which that was read.
    generation: u64,
    /// So much, from the beginning on, is in the target, verified and durable.
    done_bytes: u64,
    /// Zeros have to be written: the target was not blank.
    writes_zeros: bool,
}

/// What `export --json` prints.
#[derive(Debug, Serialize)]
struct ExportDoc {
    volume: String,
    target: String,
    #[serde(flatten)]
    copied: Copied,
}

/// What is copied to. Nobody else has it meanwhile.
struct Target {
    path: PathBuf,
    locked: BlockFile,
    file: File,
}

/// An export under way.
struct Export<'a> {
    args: &'a ExportArgs,
    volume: &'a Volume,
    journal: Journal,
    stop: Stop,
    start: Instant,
}

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let volume = Volume::load(&volume::locate(&args.volume)?)?;
    refuse_served(&volume)?;
    volume::spare(&args.target)?;
    let journal = Journal::of(&volume, "export");
    let export = Export { args, volume: &volume, journal, stop: Stop::new(), start: Instant::now() };
    // Before the engine has threads.
    export.stop.listen()?;
    let doc = offline::with_closed(&volume, args.json, |driver, engine| export.run(driver, engine))?;
    // Last of all: who is killed while the volume is closed finds it complete.
    if doc.copied.complete {
        export.journal.remove()?;
    }
    let what = format!("exported {} to {}", doc.volume, doc.target);
    report(args.json, &doc, &doc.copied, &what)
}

impl Export<'_> {
    fn run(&self, driver: &mut Driver, engine: &mut Engine<RealArena>) -> anyhow::Result<ExportDoc> {
        let (size_bytes, generation) = (engine.size_bytes(), engine.status().generation);
        let target = Target::open(&self.args.target, size_bytes)?;
        let volume_id = id_text(&self.volume.id);
        let mark = target.mark()?;
        let earlier = self.journal.load::<Begun>();
        let earlier = earlier.filter(|begun| begun.volume_id == volume_id && begun.target == mark);
        let begun = match earlier {
            // What it wrote may be written over in any case; what the volume held then counts only if nobody opened it.
            Some(begun) => Begun {
                done_bytes: if generation == begun.generation + 1 {
                    begun.done_bytes.min(size_bytes)
                } else {
                    0
                },
                writes_zeros: begun.writes_zeros || generation != begun.generation + 1,
                generation,
                ..begun
            },
            None => {
                let writes_zeros = target.make_room(self.args, size_bytes)?;
                Begun { volume_id, target: mark, generation, done_bytes: 0, writes_zeros }
            }
        };
        self.journal.save(&begun)?;
        let data = data(engine);
        self.copy(&target, &data, &mut Lanes::new(driver, engine)?, begun, size_bytes)
    }

    fn copy(
        &self,
        target: &Target,
        data: &[Range<u64>],
        lanes: &mut Lanes<'_>,
        mut begun: Begun,
        all: u64,
    ) -> anyhow::Result<ExportDoc> {
        let resumed_at_bytes = begun.done_bytes;
        let mut written_bytes = 0;
        let mut progress = Progress::new(format!("exporting {}", self.volume.name().0), self.args.json);
        for window in windows(begun.done_bytes, all) {
            if self.stop.is_asked_for() {
                break;
            }
            if begun.writes_zeros {
                target.zero(&window)?;
            }
            let sums = write(target, data, lanes, window.clone())?;
            target.verify(&window, &sums)?;
            written_bytes += sums.iter().map(|sum| sum.length).sum::<u64>();
            begun.done_bytes = window.end;
            self.journal.save(&begun)?;
            show_progress(&mut progress, window.end, all);
        }
        let complete = begun.done_bytes == all;
        if complete {
            target.file.sync_all().with_context(|| format!("cannot flush {}", target.path.display()))?;
        }
        Ok(ExportDoc {
            volume: self.volume.name().0,
            target: target.path.display().to_string(),
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
}

/// Where a volume has data. Holes smaller than a piece are taken for data: they are zeros all the same.
fn data(engine: &Engine<RealArena>) -> Vec<Range<u64>> {
    let (mut ranges, mut at): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    while let Some(extent) = engine.extents(at, engine.size_bytes() - at, 1).first() {
        let range = at..at + extent.len;
        at = range.end;
        if extent.place == Placement::Hole {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if range.start - last.end < PIECE_BYTES => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Writes what a window of the volume holds besides zeros, and says what that was.
fn write(
    target: &Target,
    data: &[Range<u64>],
    lanes: &mut Lanes<'_>,
    window: Range<u64>,
) -> anyhow::Result<Vec<Sum>> {
    let mut sums = Vec::new();
    let mut take = |at: u64, bytes: &[u8]| {
        for run in runs(bytes) {
            let at = at + run.start as u64;
            target.write(at, &bytes[run.clone()])?;
            sums.push(Sum::of(at, &bytes[run]));
        }
        Ok(())
    };
    for piece in pieces(window) {
        let first = data.partition_point(|range| range.end <= piece.start);
        if data.get(first).is_some_and(|range| range.start < piece.end) {
            lanes.read(piece.start, piece.end - piece.start, &mut take)?;
        }
    }
    lanes.settle(&mut take)?;
    Ok(sums)
}

impl Target {
    /// Makes the file if there is none, and locks it.
    fn open(path: &Path, size_bytes: u64) -> anyhow::Result<Target> {
        if !path.exists() {
            // A slip of the fingers in a device's name would fill memory instead.
            if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
                bail!("there is no device {}; name one that is there", path.display());
            }
            BlockFile::create_sparse(path, 0)?;
        }
        let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        let locked = BlockFile::open(&path)?;
        if locked.facts().block_device && locked.size_bytes() < size_bytes {
            bail!(
                "{} has {} bytes, {} fewer than the volume; name a larger device, or a file",
                path.display(),
                locked.size_bytes(),
                size_bytes - locked.size_bytes()
            );
        }
        let opened = File::options().read(true).write(true).open(&path);
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Target { path, locked, file })
    }

    /// By what it is known whether this is the same target.
    fn mark(&self) -> anyhow::Result<String> {
        let meta = self.file.metadata().with_context(|| format!("cannot examine {}", self.path.display()))?;
        let (dev, ino, device) = (meta.dev(), meta.ino(), meta.rdev());
        Ok(format!("{} {dev} {ino} {device}", self.path.display()))
    }

    /// Refuses what holds something, unless it is to be overwritten, and makes a file as large as the volume. Whether
    /// zeros have to be written.
    fn make_room(&self, args: &ExportArgs, size_bytes: u64) -> anyhow::Result<bool> {
        let path = self.path.display();
        let look = inspect::contents(&self.locked, args.json)?;
        if let Some(found) = look.found.as_ref().filter(|_| !args.force) {
            bail!("{path} holds {found}; name another target, or overwrite it with --force");
        }
        if self.locked.facts().block_device {
            if look.found.is_some() {
                inspect::wipe(&self.locked)?;
            }
            return Ok(look.found.is_some() || look.seen_only.is_some());
        }
        let cannot = || format!("cannot set the size of {path}");
        if look.found.is_some() {
            self.file.set_len(0).with_context(cannot)?;
        }
        self.file.set_len(size_bytes).with_context(cannot)?;
        Ok(false)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all_at(bytes, at).with_context(|| {
            format!("cannot write the {} bytes from byte {at} of {}", bytes.len(), self.path.display())
        })
    }

    /// Lets a range read zeros, without space where that can be.
    fn zero(&self, range: &Range<u64>) -> anyhow::Result<()> {
        let length = range.end - range.start;
        let how = match self.locked.facts().block_device {
            true => FallocateFlags::ZERO_RANGE,
            false => FallocateFlags::PUNCH_HOLE,
        };
        if fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, range.start, length).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; PIECE_BYTES as usize];
        for piece in pieces(range.clone()) {
            self.write(piece.start, &zeros[..(piece.end - piece.start) as usize])?;
        }
        Ok(())
    }

    /// Reads back what was written, from the device and not from memory.
    fn verify(&self, window: &Range<u64>, sums: &[Sum]) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| format!("cannot flush {}", self.path.display()))?;
        self.forget(window);
        let mut bytes = vec![0; PIECE_BYTES as usize];
        for sum in sums {
            let bytes = &mut bytes[..sum.length as usize];
            self.file.read_exact_at(bytes, sum.at).with_context(|| {
                format!(
                    "cannot read back the {} bytes from byte {} of {}",
                    sum.length,
                    sum.at,
                    self.path.display()
                )
            })?;
            sum.compare(bytes, &self.path.display().to_string())?;
        }
        self.forget(window);
        Ok(())
    }

    fn forget(&self, range: &Range<u64>) {
        let _ = fadvise(&self.file, range.start, NonZeroU64::new(range.end - range.start), Advice::DontNeed);
    }
}
