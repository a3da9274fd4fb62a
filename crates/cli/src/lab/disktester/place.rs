//! Where files are: in a directory, or as parts of any other target.

use super::args::TransferArgs;
use crate::create::random_seed;
use crate::lab::args::{OutputArgs, TargetArgs};
use crate::lab::stop::Stop;
use crate::lab::target::{self, Opening, Wanted};
use crate::lab::tested::session;
use crate::progress::Progress;
use crate::say;
use anyhow::{Context as _, ensure};
use bimetal_lab::classic::disktester::{Audience, Layout, Tester};
use bimetal_lab::environment::describe;
use bimetal_lab::load::LoadTarget;
use bimetal_lab::record::{Run, TargetFacts};
use bimetal_lab::session::Session;
use bimetal_lab::target::{FileKind, Folder, Listing, OpenHow, TargetName, free_bytes};
use std::path::Path;

/// Files are multiples of it.
const GRANULE_BYTES: u64 = 4096;
/// Of the free bytes of somebody's file system, how many a test takes where nobody said how many it may.
const FREE_PERCENT: u64 = 95;
/// Of what is written to a target that keeps no listing: so it can be compared later.
const SEED: u64 = 1;

/// What becomes of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    /// They are made, and stay.
    Keep,
    /// They are made for the test only.
    Remove,
    /// They are there.
    Nothing,
}

/// What a target has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes that may be used.
    pub(super) bytes: u64,
    /// What is read can be compared.
    pub(super) has_data: bool,
    /// In a directory that has files: how many, bytes of each, their seed, and whether they are stamped.
    pub(super) listed: Option<(u64, u64, u64, bool)>,
}

/// A test that has ended.
pub(super) struct Ended<F> {
    /// What it found.
    pub(super) found: F,
    /// Its record.
    pub(super) run: Run,
    /// What went wrong, if anything did, in a sentence.
    pub(super) problem: Option<String>,
}

/// Prints what is told, and listens for Ctrl-C.
pub(crate) struct Listener<'s> {
    quiet: bool,
    stop: &'s Stop,
    progress: Option<Progress>,
}

impl<'s> Listener<'s> {
    pub(crate) fn new(quiet: bool, stop: &'s Stop) -> Listener<'s> {
        Listener { quiet, stop, progress: None }
    }
}

impl Audience for Listener<'_> {
    fn line(&mut self, text: &str) {
        self.progress = None;
        if !self.quiet {
            say(text);
        }
    }

    fn going(&mut self, what: &str, share: f64) {
        let quiet = self.quiet;
        let progress = self.progress.get_or_insert_with(|| Progress::new(what.to_owned(), quiet));
        progress.at(&format!("{:.0} %", share * 100.0));
    }

    fn goes_on(&mut self) -> bool {
        !self.stop.is_asked_for()
    }
}

/// A target, and how files are gone through on it.
pub(super) struct Place<'a> {
    target: &'a TargetName,
    transfer: &'a TransferArgs,
    opening: &'a TargetArgs,
    quiet: bool,
    stop: &'a Stop,
}

impl<'a> Place<'a> {
    pub(super) fn new(
        target: &'a TargetName,
        transfer: &'a TransferArgs,
        opening: &'a TargetArgs,
        output: &OutputArgs,
        stop: &'a Stop,
    ) -> Place<'a> {
        Place { target, transfer, opening, quiet: output.json, stop }
    }

    fn directory(&self) -> Option<&'a Path> {
        match self.target {
            TargetName::Path(path) if path.is_dir() => Some(path),
            _ => None,
        }
    }

    /// Whether the files are files.
    pub(super) fn is_directory(&self) -> bool {
        self.directory().is_some()
    }

    /// Whether it is new each time.
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self.target, TargetName::Model { .. } | TargetName::Scenario(_))
    }

    /// About so many bytes, as a file may have them.
    pub(super) fn part(&self, bytes: u64) -> u64 {
        let granule = if bytes >= self.transfer.transfer { self.transfer.transfer } else { GRANULE_BYTES };
        bytes / granule * granule
    }

    /// So many files of a size.
    pub(super) fn layout(&self, room: Room, count: u64, file_bytes: u64) -> Layout {
        Layout {
            count,
            file_bytes,
            transfer_bytes: self.transfer.transfer.min(file_bytes),
            depth: self.transfer.depth,
            seed: room.listed.map_or(SEED, |listed| listed.2),
            stamped: false,
        }
    }

    /// Opens the target, does something with the files on it, and closes it.
    pub(super) fn with<F>(
        &self,
        title: &str,
        making: Making,
        layout: impl Fn(Room) -> anyhow::Result<Layout>,
        work: impl FnOnce(&mut Tester<'_, Box<dyn LoadTarget + '_>>, Room) -> anyhow::Result<F>,
    ) -> anyhow::Result<Ended<F>> {
        if let Some(directory) = self.directory() {
            return self.with_folder(directory, title, making, layout, work);
        }
        if let TargetName::Path(path) = self.target {
            ensure!(
                path.exists(),
                "there is no {}; name a directory, file or device that is",
                path.display()
            );
        }
        // What is written is read again by some.
        let how = OpenHow { direct: !self.transfer.buffered, write: making != Making::Nothing };
        let wanted = Wanted { name: self.target.clone(), how, lay_out_bytes: None, read: false };
        let opening = Opening {
            connections: self.opening.connections,
            destroy: self.opening.destroy_data,
            quiet: self.quiet,
            seed: SEED,
            stop: self.stop,
        };
        target::with(&[wanted], opening, |mut open| {
            let facts = open.facts[0].clone();
            let room = Room { bytes: facts.size_bytes, has_data: !open.virtual_time, listed: None };
            let layout = layout(room)?;
            layout.check()?;
            ensure!(
                layout.bytes() <= room.bytes,
                "{} files of {} bytes need {} bytes, and {} has {}; ask for fewer or smaller ones",
                layout.count,
                layout.file_bytes,
                layout.bytes(),
                self.target,
                room.bytes
            );
            self.stop.listen()?;
            let mut listener = Listener::new(self.quiet, self.stop);
            let name = self.target.to_string();
            let session = self.session(title, facts, open.virtual_time, layout.seed);
            let mut tester = Tester::new(&mut open.target, &name, layout, &mut listener);
            let found = work(&mut tester, room)?;
            Ok(Ended { found, run: tester.finish(session), problem: None })
        })
    }

    fn with_folder<F>(
        &self,
        directory: &Path,
        title: &str,
        making: Making,
        layout: impl Fn(Room) -> anyhow::Result<Layout>,
        work: impl FnOnce(&mut Tester<'_, Box<dyn LoadTarget + '_>>, Room) -> anyhow::Result<F>,
    ) -> anyhow::Result<Ended<F>> {
        let direct = !self.transfer.buffered;
        let (mut folder, room, layout) = match making {
            Making::Nothing => {
                let folder = Folder::open(directory, direct)?;
                let Listing { count, file_bytes, seed, stamped, .. } = *folder.listing();
                let room = Room {
                    bytes: count * file_bytes,
                    has_data: true,
                    listed: Some((count, file_bytes, seed, stamped)),
                };
                let layout = layout(room)?;
                (folder, room, layout)
            }
            Making::Keep | Making::Remove => {
                let free = free_bytes(directory)?;
                let room = Room { bytes: free / 100 * FREE_PERCENT, has_data: true, listed: None };
                let layout = Layout { seed: random_seed()?, ..layout(room)? };
                layout.check()?;
                let listing = Listing::new(layout.count, layout.file_bytes, layout.seed, layout.stamped);
                (Folder::create(directory, listing, direct)?, room, layout)
            }
        };
        self.stop.listen()?;
        let mut listener = Listener::new(self.quiet, self.stop);
        let name = self.target.to_string();
        let session =
            self.session(title, describe(directory, FileKind::Regular, room.bytes), false, layout.seed);
        let asked = layout.count;
        let ran = {
            let mut boxed: Box<dyn LoadTarget + '_> = Box::new(&mut folder);
            let mut tester = Tester::new(&mut boxed, &name, layout, &mut listener);
            work(&mut tester, room).map(|found| (found, tester.finish(session)))
        };
        let made = ran
            .as_ref()
            .ok()
            .and_then(|(_, run)| run.jobs.first())
            .map_or(0, |job| job.files_ns.len() as u64);
        let full = folder.is_full();
        let where_ = folder.path().display().to_string();
        match making {
            Making::Nothing => {}
            Making::Keep if made > 0 => folder.keep(made)?,
            Making::Keep | Making::Remove => folder.remove().with_context(|| format!("{where_} is left"))?,
        }
        let (found, run) = ran?;
        let problem = full.then(|| match making {
            Making::Keep => format!(
                "the file system of {} is full: {made} of {asked} files were made, and stay in {where_}",
                directory.display()
            ),
            _ => format!(
                "the file system of {} became full; the files of the test were removed",
                directory.display()
            ),
        });
        Ok(Ended { found, run, problem })
    }

    fn session(&self, title: &str, facts: TargetFacts, virtual_time: bool, seed: u64) -> Session {
        let target = self.target.to_string();
        session(format!("{title} {target}"), &target, facts, virtual_time, seed)
    }
}
