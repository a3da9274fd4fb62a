//! Who keeps a history of a volume while it is served: he hears once a second how it is, and what happens. What he does
//! with it is his own affair, and must not take long: the thread that tells him serves clients.

use crate::events;
use crate::served::Served;
use crate::server::Server;
use crate::status::{StatusDoc, tier_name};
use bimetal_engine::options::Level;
use bimetal_units::size;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happened to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// It was opened.
    Opened,
    /// It had not been closed, and was recovered when it was opened.
    Recovered,
    /// It was closed.
    Closed,
    /// A device failed a command.
    DeviceError,
    /// A device is not what it was: cut, detached, replaced, renamed.
    DeviceChanged,
    /// It takes no more writes until it is opened again.
    ReadOnly,
    /// Something is lost, or was found wrong.
    Damage,
    /// Something was found wrong and is right again, or is worth a look.
    Notice,
    /// Its landing zone has run short: clients are metered.
    ZoneShort,
    /// Its landing zone has room again.
    ZoneFree,
    /// Much was moved up in a short time.
    Promotions,
    /// A scrub found blocks that were not as they should be.
    ScrubFinding,
    /// A scrub has seen everything.
    ScrubWhole,
    /// A range was pinned.
    Pin,
    /// A range was unpinned.
    Unpin,
    /// Somebody has paused moves.
    MovesPaused,
    /// Somebody has resumed them.
    MovesResumed,
}

impl EventKind {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Opened => "opened",
            EventKind::Recovered => "recovered",
            EventKind::Closed => "closed",
            EventKind::DeviceError => "device-error",
            EventKind::DeviceChanged => "device-changed",
            EventKind::ReadOnly => "read-only",
            EventKind::Damage => "damage",
            EventKind::Notice => "notice",
            EventKind::ZoneShort => "zone-short",
            EventKind::ZoneFree => "zone-free",
            EventKind::Promotions => "promotions",
            EventKind::ScrubFinding => "scrub-finding",
            EventKind::ScrubWhole => "scrub-whole",
            EventKind::Pin => "pin",
            EventKind::Unpin => "unpin",
            EventKind::MovesPaused => "moves-paused",
            EventKind::MovesResumed => "moves-resumed",
        }
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    /// All is well.
    Info,
    /// Somebody should look.
    Warning,
    /// Data is lost, or the volume does not do what it is for.
    Error,
}

impl From<Level> for EventLevel {
    fn from(level: Level) -> EventLevel {
        match level {
            Level::Info => EventLevel::Info,
            Level::Warning => EventLevel::Warning,
            Level::Error => EventLevel::Error,
        }
    }
}

/// One thing that happened to a volume, as scripts and hooks read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDoc {
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
    /// The volume's name.
    pub volume: String,
    /// What happened.
    pub kind: EventKind,
    /// How much it matters.
    pub level: EventLevel,
    /// One sentence.
    pub message: String,
}

impl EventDoc {
    /// Something that happens now.
    pub fn now(volume: &str, kind: EventKind, level: EventLevel, message: String) -> EventDoc {
        EventDoc { unix_ms: unix_ms(), volume: volume.to_owned(), kind, level, message }
    }
}

/// Milliseconds since 1970 by the wall clock.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// Who hears how a volume is and what happens to it. Neither call may wait for anything.
pub trait Watcher {
    /// How it is now; once in each second in which the server is awake.
    fn status(&mut self, status: &StatusDoc);
    /// What happened.
    fn event(&mut self, event: EventDoc);
}

/// What a line of the log is among events.
pub(crate) fn said_as(level: Level, is_device: bool) -> (EventKind, EventLevel) {
    match level {
        Level::Info => (EventKind::Notice, EventLevel::Info),
        Level::Warning if is_device => (EventKind::DeviceError, EventLevel::Warning),
        Level::Warning => (EventKind::Notice, EventLevel::Warning),
        Level::Error if is_device => (EventKind::DeviceError, EventLevel::Error),
        Level::Error => (EventKind::Damage, EventLevel::Error),
    }
}

impl<V: Served> Server<V> {
    /// Lets somebody hear of this volume.
    pub fn watched_by(&mut self, watcher: Option<Box<dyn Watcher>>) {
        self.watcher = watcher;
    }

    /// Tells of something that happened.
    pub(crate) fn happened(&mut self, kind: EventKind, level: EventLevel, message: String) {
        if let Some(watcher) = &mut self.watcher {
            watcher.event(EventDoc::now(&self.volume.0, kind, level, message));
        }
    }

    /// Says something that happened, and tells of it.
    pub(crate) fn say_happened(&mut self, kind: EventKind, level: Level, message: String) {
        events::say(level, &message, self.watcher.is_some());
        self.happened(kind, EventLevel::from(level), message);
    }

    /// Tells that the volume is open.
    pub(crate) fn opening_happened(&mut self) {
        let status = self.engine.status();
        let opened = format!(
            "opened: {}, generation {}, {} landed",
            size::show(status.size_bytes),
            status.generation,
            size::show(status.landed_bytes)
        );
        self.happened(EventKind::Opened, EventLevel::Info, opened);
        if status.recovered {
            let what = "it had not been closed, and was recovered".to_owned();
            self.happened(EventKind::Recovered, EventLevel::Warning, what);
        }
        if let Some(loss) = status.loss {
            let missing = tier_name(usize::from(loss.missing.0));
            let what = format!("the {missing} device is missing: {} are lost", size::show(loss.lost_bytes));
            self.happened(EventKind::Damage, EventLevel::Error, what);
        }
        self.tell_watcher(true);
    }

    /// Tells that the volume is closed, or why it is not.
    pub(crate) fn closing_happened(&mut self) {
        self.tell_watcher(true);
        if !self.trouble.is_lost() {
            self.happened(EventKind::Closed, EventLevel::Info, "closed".to_owned());
        }
    }

    /// Tells how the volume is, unless that was told in this second. It wakes nobody: whoever looks after the devices does
    /// so each second anyway.
    pub(crate) fn tell_watcher(&mut self, at_once: bool) {
        if self.watcher.is_none() {
            return;
        }
        let second = self.now().0 / bimetal_units::Nanos::SECOND;
        if second == self.told_second && !at_once {
            return;
        }
        self.told_second = second;
        let status = self.status();
        if let Some(watcher) = &mut self.watcher {
            watcher.status(&status);
        }
    }
}
