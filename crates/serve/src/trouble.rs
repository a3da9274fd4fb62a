//! A device is not what it was while its volume is served ([`bimetal_driver::Change`]).
//!
//! One that is lost (cut, detached, taken by another server) ends the server: whoever waits gets an error, nothing more
//! is written. One whose file was deleted or replaced is kept open, since it goes with the server: the volume only takes
//! no more changes, and can be copied away.

use crate::served::Served;
use crate::server::{ServeError, Server};
use crate::watched::{EventKind, EventLevel};
use bimetal_driver::Change;
use bimetal_engine::action::RequestError;
use bimetal_engine::extents::Extents;
use bimetal_engine::options::Level;
use std::time::{Duration, Instant};

/// How long clients may take to read that their requests have failed.
const FAREWELL: Duration = Duration::from_secs(2);

/// What has happened to the devices so far.
#[derive(Debug, Default)]
pub(crate) struct Trouble {
    /// What is lost, and since when.
    lost: Option<(String, Instant)>,
    orphaned: Option<String>,
}

impl Trouble {
    /// What the server ends with.
    pub(crate) fn result(self) -> Result<(), ServeError> {
        match (self.lost, self.orphaned) {
            (Some((why, _)), _) => Err(ServeError::Lost(why)),
            (None, Some(why)) => Err(ServeError::Orphaned(why)),
            (None, None) => Ok(()),
        }
    }

    /// Whether there is nothing to be served any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}

impl<V: Served> Server<V> {
    /// Hears what has changed about the devices; whether anything has.
    pub(crate) fn look_after_devices(&mut self) -> bool {
        let changes = self.driver.take_changes();
        let changed = !changes.is_empty();
        for change in changes {
            match change {
                Change::Moved(what) | Change::Away(what) => {
                    self.say_happened(EventKind::DeviceChanged, Level::Warning, what);
                }
                Change::Back(what) => {
                    self.say_happened(EventKind::DeviceChanged, Level::Info, what);
                }
                Change::Orphaned(what) => {
                    self.happened(EventKind::DeviceChanged, EventLevel::Error, what.clone());
                    self.engine.refuse_changes(format!(
                        "{what}; the volume takes no more changes: copy it away while this server runs"
                    ));
                    self.trouble.orphaned.get_or_insert(what);
                }
                Change::Lost(what) if !self.trouble.is_lost() => self.give_up(what),
                Change::Lost(_) => {}
            }
        }
        changed
    }

    /// Answers everybody with an error, and ends.
    fn give_up(&mut self, why: String) {
        let what = format!("{why}; nothing more is written to {}, and its server stops", self.volume.0);
        self.say_happened(EventKind::DeviceChanged, Level::Error, what);
        self.trouble.lost = Some((why, Instant::now()));
        for pending in self.requests.remove_all() {
            // A device of the machine hears nothing: it waits for a server that has its devices again.
            let conn = self.conns.get_mut(pending.conn.place).and_then(Option::as_mut);
            if let Some(conn) = conn.filter(|conn| conn.id == pending.conn && !conn.dead && !conn.machine) {
                // Its buffer stays the engine's, which may have it on its way to a device.
                conn.reply(&pending, Err(RequestError::Io), &Extents::new());
                self.touched.push(pending.conn.place);
            }
        }
        self.tenant.stop_all();
        self.stop();
    }

    /// Whether clients have heard that all is lost, or had the time to.
    pub(crate) fn has_given_up(&self) -> bool {
        let Some((_, since)) = &self.trouble.lost else { return false };
        let told = |conn: &crate::connection::Connection| {
            conn.dead || conn.sending.is_none() && conn.out.is_empty() && conn.out_bytes.is_empty()
        };
        self.conns.iter().flatten().all(told) || since.elapsed() > FAREWELL
    }
}
