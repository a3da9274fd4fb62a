//! How far a copy has come, beside the volume file: for whoever gives the command again.

use crate::volume::Volume;
use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Longest journal; what is longer is none.
const MAX_BYTES: u64 = 64 << 10;

/// The journal of one kind of copy of one volume.
pub(super) struct Journal {
    file: PathBuf,
}

impl Journal {
    /// `films.toml` has `films.import` and `films.export` beside it, while these are under way.
    pub(super) fn of(volume: &Volume, kind: &str) -> Journal {
        Journal { file: volume.file.with_extension(kind) }
    }

    /// What it says, if it is there and can be read: otherwise the copy begins at the beginning.
    pub(super) fn load<T: DeserializeOwned>(&self) -> Option<T> {
        let mut text = String::new();
        File::open(&self.file).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes it, whole or not at all, so that it is there after a crash.
    pub(super) fn save(&self, state: &impl Serialize) -> anyhow::Result<()> {
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        let write = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(dir)?;
            file.write_all(&serde_json::to_vec_pretty(state)?)?;
            file.as_file().sync_all()?;
            file.persist(&self.file)?;
            File::open(dir)?.sync_all()
        };
        write()
            .with_context(|| format!("cannot write {}, which says how far the copy is", self.file.display()))
    }

    /// The copy is complete, or there is nothing left of it.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.file.display()))
            }
            _ => Ok(()),
        }
    }
}
