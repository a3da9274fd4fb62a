//! Files of one size in a folder of a mounted file system, as one span of bytes: one file behind the other.
//!
//! They lie in a folder of their own, [`FOLDER`], beside a listing that says whose they are. Only what the listing
//! names is ever replaced or removed.

use crate::load::{Inside, LoadTarget, RunError, SlotSpec};
use crate::target::{FileError, Files, OpenFile, OpenHow};
use bimetal_load::{Ended, Fault, Target};
use bimetal_models::{Command, Kind};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The folder that the lab makes for its files, in the directory that it is given.
pub const FOLDER: &str = "bimetal-lab-files";
const LISTING: &str = "listing.json";
const FORMAT: &str = "bimetal-lab-files";
const VERSION: u32 = 1;
/// Bytes of a listing at most: a few numbers.
const MAX_LISTING_BYTES: u64 = 4096;
/// Files in a folder at most; their names have as many digits.
pub const MAX_FILES: u64 = 1_000_000;
/// The system counts a device's sectors so (Documentation/block/stat.rst of Linux).
const STAT_SECTOR_BYTES: u64 = 512;

/// What the files of a folder are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    format: String,
    version: u32,
    /// How many there are, or were to be.
    pub count: u64,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Of the stamps.
    pub seed: u64,
    /// Whether each sector says where it belongs, so that reading can be verified.
    pub stamped: bool,
}

impl Listing {
    /// Of files that are going to be made.
    pub fn new(count: u64, file_bytes: u64, seed: u64, stamped: bool) -> Listing {
        Listing { format: FORMAT.to_owned(), version: VERSION, count, file_bytes, seed, stamped }
    }
}

/// Why files cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system says no.
    #[error(transparent)]
    System(#[from] FileError),
    /// Something is there that the lab did not make.
    #[error("{0} is there, and the lab did not make it; move it away, or name another directory")]
    Others(PathBuf),
    /// There is nothing to be read.
    #[error("{0} has no files of the lab; `bimetal lab create-files` makes them")]
    None(PathBuf),
    /// Damaged, or of a newer version.
    #[error(
        "{0} is not a listing that this program can read ({1}); remove its folder, if it is yours to remove"
    )]
    Listing(PathBuf, String),
    /// The file system has too little room.
    #[error(
        "{folder} has room for {free_bytes} bytes, and the files need {needed_bytes}; ask for fewer or smaller ones"
    )]
    Room {
        /// The directory.
        folder: PathBuf,
        /// What can be used.
        free_bytes: u64,
        /// What is needed.
        needed_bytes: u64,
    },
}

/// A folder of files under load. A write makes its file anew; so a file is written once, from its beginning on.
pub struct Folder {
    files: Files,
    folder: PathBuf,
    listing: Listing,
    direct: bool,
    /// Which file is open in which place, and what is in flight for it.
    open: Vec<Option<(u64, bool)>>,
    in_flight: Vec<u32>,
    place_of: Vec<usize>,
    /// What could not be begun.
    failed: Vec<Ended>,
    full: bool,
    stat: Option<PathBuf>,
}

/// Bytes of a file system that can still be used.
///
/// # Errors
/// When it does not say.
pub fn free_bytes(directory: &Path) -> Result<u64, FileError> {
    let stat = rustix::fs::statvfs(directory).map_err(|errno| system("examine", directory)(errno.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |error| FileError::System { what, path: path.to_owned(), error }
}

impl Folder {
    /// Makes the folder, without files yet, in a directory. Files that the lab left there are removed.
    ///
    /// # Errors
    /// When something else is there, there is too little room, or the system says no.
    pub fn create(directory: &Path, listing: Listing, direct: bool) -> Result<Folder, FolderError> {
        let folder = directory.join(FOLDER);
        let old = match Folder::open(directory, direct) {
            Ok(old) => Some(old),
            Err(FolderError::None(_)) => None,
            Err(other) => return Err(other),
        };
        let freed_bytes = old.as_ref().map_or(0, Folder::stored_bytes);
        let free_bytes = free_bytes(directory)?.saturating_add(freed_bytes);
        let needed_bytes = listing.count.saturating_mul(listing.file_bytes);
        if needed_bytes > free_bytes {
            return Err(FolderError::Room { folder: directory.to_owned(), free_bytes, needed_bytes });
        }
        if let Some(old) = old {
            old.remove()?;
        }
        DirBuilder::new().mode(0o700).create(&folder).map_err(system("make", &folder))?;
        write_listing(&folder, &listing)?;
        Ok(Folder::new(folder, listing, direct)?)
    }

    /// The files that the lab has made in a directory.
    ///
    /// # Errors
    /// When there are none, or the system says no.
    pub fn open(directory: &Path, direct: bool) -> Result<Folder, FolderError> {
        let folder = directory.join(FOLDER);
        let path = folder.join(LISTING);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Whoever else calls a folder so.
                return Err(match folder.symlink_metadata() {
                    Ok(_) => FolderError::Others(folder),
                    Err(_) => FolderError::None(directory.to_owned()),
                });
            }
            Err(error) => return Err(system("open", &path)(error).into()),
        };
        let mut text = Vec::new();
        file.take(MAX_LISTING_BYTES).read_to_end(&mut text).map_err(system("read", &path))?;
        let listing: Listing = serde_json::from_slice(&text)
            .map_err(|error| FolderError::Listing(path.clone(), error.to_string()))?;
        let sound = listing.format == FORMAT
            && listing.version == VERSION
            && listing.count <= MAX_FILES
            && listing.file_bytes > 0
            && listing.count.checked_mul(listing.file_bytes).is_some();
        if !sound {
            return Err(FolderError::Listing(
                path,
                "another format, or figures beyond all measure".to_owned(),
            ));
        }
        Ok(Folder::new(folder, listing, direct)?)
    }

    fn new(folder: PathBuf, listing: Listing, direct: bool) -> Result<Folder, FileError> {
        let files = no_files(&folder)?;
        Ok(Folder {
            files,
            stat: stat_of(&folder),
            folder,
            listing,
            direct,
            open: Vec::new(),
            in_flight: Vec::new(),
            place_of: Vec::new(),
            failed: Vec::new(),
            full: false,
        })
    }

    /// What the files are.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Whether the file system had no more room.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Only so many files stay, from the first; others, of which a part may have been written, are removed.
    ///
    /// # Errors
    /// When the system says no.
    pub fn keep(&mut self, count: u64) -> Result<(), FileError> {
        (self.open, self.files) = (Vec::new(), no_files(&self.folder)?);
        let all = self.listing.count;
        self.listing.count = count.min(all);
        (self.listing.count..all).try_for_each(|n| remove_file(&self.name(n)))?;
        write_listing(&self.folder, &self.listing)
    }

    /// Removes the files and their folder; what somebody else has put into it stays, and so does the folder.
    ///
    /// # Errors
    /// When the system says no.
    pub fn remove(self) -> Result<(), FileError> {
        (0..self.listing.count).try_for_each(|n| remove_file(&self.name(n)))?;
        remove_file(&self.folder.join(LISTING))?;
        std::fs::remove_dir(&self.folder).map_err(system("remove", &self.folder))
    }

    /// Bytes that the file system keeps for the files.
    fn stored_bytes(&self) -> u64 {
        let stored =
            |n| self.name(n).symlink_metadata().map_or(0, |found| found.blocks() * STAT_SECTOR_BYTES);
        (0..self.listing.count).map(stored).sum()
    }

    fn name(&self, file: u64) -> PathBuf {
        self.folder.join(format!("file-{file:06}"))
    }

    /// The place where a file is open, or is opened now: a free one, as each has something in flight but the last.
    fn place(&mut self, file: u64, write: bool) -> Result<usize, i32> {
        if let Some(place) = self.open.iter().position(|&open| open == Some((file, write))) {
            return Ok(place);
        }
        let place = self.in_flight.iter().position(|&count| count == 0).ok_or(Errno::MFILE.raw_os_error())?;
        let path = self.name(file);
        let code = |error: &io::Error| error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        if write {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            made.map_err(|error| code(&error))?;
        }
        let how = OpenHow { direct: self.direct, write };
        let opened = OpenFile::open(&path, how).map_err(|error| match error {
            FileError::System { error, .. } => code(&error),
            FileError::Busy(_) => Errno::BUSY.raw_os_error(),
            FileError::Direct(_) | FileError::Kind(_) => Errno::INVAL.raw_os_error(),
        })?;
        self.files.put(place as u32, opened);
        self.open[place] = Some((file, write));
        Ok(place)
    }
}

fn no_files(folder: &Path) -> Result<Files, FileError> {
    Files::new(Vec::new()).map_err(|error| system("measure", folder)(io::Error::other(error.to_string())))
}

fn remove_file(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system("remove", path)(error)),
        _ => Ok(()),
    }
}

fn write_listing(folder: &Path, listing: &Listing) -> Result<(), FileError> {
    let path = folder.join(LISTING);
    let text = serde_json::to_vec(listing).map_err(io::Error::other);
    let write = |text: Vec<u8>| {
        let mut file = File::create(&path)?;
        file.write_all(&text)?;
        file.sync_all()
    };
    text.and_then(write).map_err(system("write", &path))
}

/// Where the kernel counts what the device below a path does.
fn stat_of(path: &Path) -> Option<PathBuf> {
    let stat = rustix::fs::stat(path).ok()?;
    let mode = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    let device = if mode == rustix::fs::FileType::BlockDevice { stat.st_rdev } else { stat.st_dev };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"))).filter(|path| path.exists())
}

/// What the device below a file, a folder or a block device has read and written since the system began, bytes; where
/// the kernel counts it.
pub fn device_bytes(path: &Path) -> Option<u64> {
    counted(&stat_of(path)?)
}

/// Sectors read are the third figure, sectors written the seventh (Documentation/block/stat.rst of Linux).
fn counted(stat: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(stat).ok()?;
    let mut figures = text.split_whitespace().map(|figure| figure.parse::<u64>().ok());
    let (read, written) = (figures.nth(2)??, figures.nth(3)??);
    read.checked_add(written)?.checked_mul(STAT_SECTOR_BYTES)
}

impl Target for Folder {
    fn now_ns(&mut self) -> u64 {
        self.files.now_ns()
    }

    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        let file = command.offset / self.listing.file_bytes;
        match self.place(file, matches!(command.kind, Kind::Write { .. })) {
            Ok(place) => {
                self.place_of[slot as usize] = place;
                self.in_flight[place] += 1;
                let offset = command.offset % self.listing.file_bytes;
                self.files.submit(slot, place as u32, Command { offset, ..command });
            }
            Err(errno) => {
                let at_ns = self.now_ns();
                self.full |= errno == Errno::NOSPC.raw_os_error();
                let fault = Some(Fault::Errno(errno));
                self.failed.push(Ended { slot, handed_ns: None, at_ns, fault, served: None });
            }
        }
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        if !self.failed.is_empty() {
            ended.append(&mut self.failed);
            return self.now_ns();
        }
        let before = ended.len();
        let now = self.files.wait(until, ended);
        for end in &ended[before..] {
            self.in_flight[self.place_of[end.slot as usize]] -= 1;
            self.full |= end.fault == Some(Fault::Errno(Errno::NOSPC.raw_os_error()));
        }
        now
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        self.files.payload(slot, len)
    }
}

impl LoadTarget for Folder {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        self.open = vec![None; slots.len()];
        self.in_flight = vec![0; slots.len()];
        self.place_of = vec![0; slots.len()];
        self.files.prepare(slots)
    }

    fn inside(&mut self) -> Option<Inside> {
        let device_bytes = counted(self.stat.as_deref()?)?;
        Some(Inside { device_bytes, ..Inside::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody else has put there is neither replaced nor removed.
    #[test]
    fn only_what_the_lab_made_is_removed() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let listing = || Listing::new(3, 4096, 1, true);
        let folder = dir.path().join(FOLDER);
        std::fs::create_dir(&folder).expect("make");
        assert!(matches!(Folder::create(dir.path(), listing(), false), Err(FolderError::Others(_))));
        std::fs::remove_dir(&folder).expect("remove");
        let made = Folder::create(dir.path(), listing(), false).expect("made");
        std::fs::write(made.name(0), [0; 4096]).expect("write");
        // What cannot be made takes nothing away.
        let large = Listing::new(MAX_FILES, 1 << 40, 1, true);
        assert!(matches!(Folder::create(dir.path(), large, false), Err(FolderError::Room { .. })));
        assert!(made.name(0).exists());
        std::fs::write(made.name(7), "not listed").expect("write");
        assert!(made.remove().is_err());
        assert!(!folder.join("file-000000").exists() && folder.join("file-000007").exists());
    }

    #[test]
    fn a_listing_of_others_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        Folder::create(dir.path(), Listing::new(3, 4096, 1, true), false).expect("made");
        let path = dir.path().join(FOLDER).join(LISTING);
        let good = std::fs::read_to_string(&path).expect("read");
        for bad in [
            String::new(),
            good[..good.len() - 2].to_owned(),
            good.replace("\"version\":1", "\"version\":2"),
            good.replace("\"count\":3", "\"count\":3000000"),
            good.replace("\"file_bytes\":4096", "\"file_bytes\":0"),
            good.replace("\"count\":3", "\"count\":300").replace("4096", "18446744073709551615"),
        ] {
            std::fs::write(&path, &bad).expect("write");
            assert!(matches!(Folder::open(dir.path(), false), Err(FolderError::Listing(..))), "{bad}");
            assert!(Folder::create(dir.path(), Listing::new(1, 4096, 1, true), false).is_err());
        }
    }

    #[test]
    fn a_directory_without_room_is_named() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let listing = Listing::new(MAX_FILES, 1 << 40, 1, true);
        assert!(matches!(Folder::create(dir.path(), listing, false), Err(FolderError::Room { .. })));
        assert!(!dir.path().join(FOLDER).exists());
    }
}
