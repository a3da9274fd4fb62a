//! Where the history and the events of a volume are, and who writes them while it is served.

use crate::volume::Volume;
use crate::{logs, paths};
use bimetal_serve::Watcher;
use bimetal_watch::{JOURNAL_SOCKET, Keeper, KeeperPlan};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Volume {
    /// A file that is kept for this volume: beside the volume file, or, for root's volumes in the system's configuration,
    /// among the system's state, since a service may not write there.
    fn kept(&self, ending: &str) -> PathBuf {
        let mut name = self.file.file_stem().unwrap_or_default().to_owned();
        name.push(ending);
        let dir = self.file.parent().unwrap_or(Path::new("/"));
        paths::state_for(dir).join(name)
    }

    /// The file of its history.
    pub(crate) fn history_file(&self) -> PathBuf {
        self.kept(".history")
    }

    /// The file of its events.
    pub(crate) fn events_file(&self) -> PathBuf {
        self.kept(".events")
    }

    /// The file of its flight recorder, when something went wrong.
    pub(crate) fn flight_file(&self) -> PathBuf {
        self.kept(".flight")
    }

    /// Which of its files are to be on a tier.
    pub(crate) fn pinned_file(&self) -> PathBuf {
        self.kept(".pinned")
    }

    /// Removes what was kept of it.
    pub(crate) fn forget(&self) {
        for file in [self.history_file(), self.events_file(), self.flight_file(), self.pinned_file()] {
            let mut bad = file.clone().into_os_string();
            bad.push(".bad");
            for path in [file, bad.into()] {
                if let Err(error) = std::fs::remove_file(&path)
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!("{} is left: it cannot be removed: {error}", path.display());
                }
            }
        }
    }
}

/// Begins to keep what happens to a volume that is about to be served: who keeps it, and who is to be told of it. Without a
/// thread for it, it is served all the same.
pub(crate) fn keep(volume: &Volume, watched: Arc<AtomicU64>) -> (Option<Keeper>, Option<Box<dyn Watcher>>) {
    let plan = KeeperPlan {
        history: volume.history_file(),
        events: volume.events_file(),
        volume: volume.id,
        on_event: volume.on_event.clone(),
        watched,
        journal: JOURNAL_SOCKET.into(),
        instead_of_lines: logs::is_journal(),
    };
    match Keeper::start(plan) {
        Ok((keeper, reporter)) => (Some(keeper), Some(Box::new(reporter))),
        Err(error) => {
            let name = volume.name().0;
            tracing::warn!("{name} is served without history and events: there can be no thread: {error}");
            (None, None)
        }
    }
}
