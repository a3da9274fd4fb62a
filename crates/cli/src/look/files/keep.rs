//! `bimetal files --keep-pins`: pins are made right for where the files lie now.

use super::count::Counted;
use super::wishes::{Range, Wish, Wishes, identity, joined, without};
use super::{FilesArgs, pin_ranges, volume_of};
use crate::look::tree::{self, Place, Visitor};
use crate::volume::Volume;
use crate::{Outcome, pins, say, say_json, size};
use anyhow::{Context as _, bail};
use bimetal_driver::fiemap::FileExtent;
use bimetal_driver::signals::StopSignals;
use bimetal_serve::ask::TierName;
use bimetal_serve::{PinsDoc, Question};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// What became of a wish.
#[derive(Debug, Serialize)]
struct KeptDoc {
    path: PathBuf,
    tier: TierName,
    bytes: u64,
    /// What is pinned for it now and was not before.
    pinned_bytes: u64,
    /// The name that it had, where it has another one.
    was: Option<PathBuf>,
    /// It is not there: nothing is pinned for it.
    missing: bool,
}

/// What `files --keep-pins --json` prints.
#[derive(Debug, Serialize)]
struct KeepDoc<'k> {
    volume: &'k str,
    mountpoint: &'k Path,
    kept: Vec<KeptDoc>,
    pins: PinsDoc,
}

/// Keeps pins once, or again and again until somebody wants it to end.
pub(super) fn run(args: &FilesArgs) -> anyhow::Result<Outcome> {
    let Some(every) = args.every else { return once(args) };
    let signals = StopSignals::new().context("cannot catch Ctrl-C")?;
    loop {
        once(args)?;
        let limit = Timespec { tv_sec: every.as_secs() as i64, tv_nsec: 0 };
        let mut watched = [PollFd::new(&signals, PollFlags::IN)];
        match poll(&mut watched, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(Outcome::Good),
            Err(error) => return Err(error).context("cannot wait"),
        }
    }
}

fn once(args: &FilesArgs) -> anyhow::Result<Outcome> {
    let place = Place::of(&args.mountpoint)?;
    let served = volume_of(&place)?;
    let volume = Volume::load(served.status.file.as_ref())?;
    let mut wishes = Wishes::read(&volume)?;
    let before = wishes.ranges();
    let mut kept = Vec::new();
    find_again(&place, &mut wishes.wishes, args.json)?;
    for wish in wishes.wishes.iter_mut().filter(|wish| wish.begins_at == place.begins_at) {
        kept.push(follow(&place, wish, served.status.chunk_bytes, args.json)?);
    }
    let pins = apply(&served.status.file, &before, &wishes)?;
    wishes.write(&volume)?;
    if args.json {
        let (volume, mountpoint) = (served.status.volume.as_str(), place.mount.as_path());
        say_json(&KeepDoc { volume, mountpoint, kept, pins })?;
    } else {
        describe(&kept);
        pins::say_pins(&pins, false)?;
    }
    Ok(Outcome::Good)
}

/// Where a wish's files lie now is what is wished for.
fn follow(place: &Place, wish: &mut Wish, chunk_bytes: u32, quiet: bool) -> anyhow::Result<KeptDoc> {
    let was = std::mem::take(&mut wish.ranges);
    let path = place.mount.join(&wish.path);
    let mut doc = KeptDoc {
        path: wish.path.clone(),
        tier: wish.tier,
        bytes: 0,
        pinned_bytes: 0,
        was: None,
        missing: true,
    };
    let Ok(meta) = std::fs::symlink_metadata(&path) else { return Ok(doc) };
    // A file that was written anew under this name is the one that is meant.
    (wish.inode, wish.made_ns) = identity(&meta);
    let mut counted = Counted::new(place.begins_at);
    tree::walk(&path, quiet, &mut counted)?;
    wish.ranges = counted.ranges(chunk_bytes);
    let sum = |ranges: &[Range]| ranges.iter().map(|range| range.1).sum();
    (doc.missing, doc.bytes) = (false, sum(&wish.ranges));
    doc.pinned_bytes = sum(&without(&wish.ranges, &was));
    Ok(doc)
}

/// Looks for files that are not where they were, by what they are and not by their names.
fn find_again(place: &Place, wishes: &mut [Wish], quiet: bool) -> anyhow::Result<()> {
    let is_lost = |wish: &&mut Wish| {
        wish.begins_at == place.begins_at && std::fs::symlink_metadata(place.mount.join(&wish.path)).is_err()
    };
    let lost: Vec<&mut Wish> = wishes.iter_mut().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let mut finder = Finder { place, found: HashMap::new() };
    tree::walk(&place.mount, quiet, &mut finder)?;
    for wish in lost {
        // Where nobody tells when a file was made, another one may have its number.
        if let Some(path) = finder.found.remove(&(wish.inode, wish.made_ns)).filter(|_| wish.made_ns > 0) {
            wish.path = path;
        }
    }
    Ok(())
}

/// Notes which files and directories there are.
struct Finder<'p> {
    place: &'p Place,
    found: HashMap<(u64, u64), PathBuf>,
}

impl Finder<'_> {
    fn note(&mut self, path: &Path, meta: &Metadata) {
        if let Ok(path) = path.strip_prefix(&self.place.mount) {
            self.found.insert(identity(meta), path.to_owned());
        }
    }
}

impl Visitor for Finder<'_> {
    fn file(&mut self, path: PathBuf, meta: &Metadata, _extents: &[FileExtent]) {
        self.note(&path, meta);
    }

    fn directory(&mut self, path: &Path, _extents: &[FileExtent]) {
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            self.note(path, &meta);
        }
    }

    fn unknowable(&mut self, _path: PathBuf) {}
}

/// Pins what is wished for and is not pinned, after what was pinned for wishes and is not wished for any more is let go.
pub(super) fn apply(volume: &str, before: &[Range], wishes: &Wishes) -> anyhow::Result<PinsDoc> {
    let mut doc = pins::change(volume, Question::Pins {})?;
    let gone = without(before, &wishes.ranges());
    if !gone.is_empty() {
        doc = pin_ranges(volume, &gone, None)?;
    }
    for tier in [TierName::Slow, TierName::Fast] {
        let wanted = wishes.wishes.iter().filter(|wish| wish.tier == tier);
        let wanted = joined(wanted.flat_map(|wish| wish.ranges.iter().copied()).collect());
        let name = if tier == TierName::Fast { "fast" } else { "slow" };
        let there = doc.pins.iter().filter(|pin| pin.tier == name).map(|pin| (pin.offset, pin.length_bytes));
        let missing = without(&wanted, &joined(there.collect()));
        if !missing.is_empty() {
            doc = pin_ranges(volume, &missing, Some(tier))?;
        }
    }
    if !doc.known {
        bail!("{}: the list of pins could not be read when the volume was opened; open it again", doc.volume);
    }
    Ok(doc)
}

fn describe(kept: &[KeptDoc]) {
    if kept.is_empty() {
        say("no file is to be on a tier: files MOUNTPOINT PATH --pin TIER says which");
    }
    for doc in kept {
        let what = match (doc.missing, doc.pinned_bytes) {
            (true, _) => "is not there; nothing is pinned for it until it is again".to_owned(),
            (_, 0) => format!("{}, where it was", size::show(doc.bytes)),
            (_, new) => format!("{}, of which {} were pinned anew", size::show(doc.bytes), size::show(new)),
        };
        say(&format!("{}: {what}", doc.path.display()));
    }
}
