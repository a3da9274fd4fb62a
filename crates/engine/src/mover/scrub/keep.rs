//! How far a scrub has come is written now and then. It is written in one place, without a flush of its own: where a crash tears
//! it, or takes it, the scrub is as if it had come less far, or had never been begun.

use super::*;
use crate::api::action::DeviceError;
use crate::api::options::Level;
use crate::base::arena::{Buf, Pool};
use crate::format::geometry::SCRUB_AT;
use crate::format::page::{self, PageKind};
use crate::format::scrub::put_scrub;
use crate::io::tokens::Owner;
use serde::{Deserialize, Serialize};

/// How often it is written while a scrub is under way, ns.
const KEEP_EVERY_NS: u64 = 300 * Nanos::SECOND;

/// What is to be written, or is.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Keep {
    /// From when on it is to be written.
    due: Option<Nanos>,
    buf: Option<Buf>,
    /// What was written last in this opening.
    kept: Option<ScrubPage>,
    /// The last word before the volume is closed has been said.
    closed: bool,
}

impl Keep {
    pub(super) fn want(&mut self, now: Nanos) {
        self.due = Some(now);
    }

    pub(super) fn is_still(&self) -> bool {
        self.buf.is_none()
    }
}

impl Scrub {
    pub(super) fn keep_deadline(&self) -> Option<Nanos> {
        self.keep.due.filter(|_| self.keep.buf.is_none())
    }
}

impl<A: Arena> Engine<A> {
    pub(super) fn pump_scrub_keep(&mut self) {
        let scrub = &mut self.mover.scrub;
        if self.life.shutdown.began()
            && scrub.is_running()
            && !std::mem::replace(&mut scrub.keep.closed, true)
        {
            scrub.keep.want(self.io.now);
        }
        if scrub.keep.due.is_some_and(|due| due <= self.io.now)
            && scrub.keep.kept.as_ref() == Some(&scrub.page)
        {
            // It waits, and there is nothing new to say.
            scrub.keep.due = scrub.is_running().then(|| self.io.now.after(KEEP_EVERY_NS));
        }
        let due = scrub.keep.due.is_some_and(|due| due <= self.io.now);
        if !due || !scrub.keep.is_still() || self.life.is_read_only() || self.life.shutdown.is_marking() {
            return;
        }
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
        let scrub = &mut self.mover.scrub;
        scrub.keep.buf = Some(buf);
        scrub.keep.due = scrub.is_running().then(|| self.io.now.after(KEEP_EVERY_NS));
        let mut payload = Vec::new();
        put_scrub(&mut payload, &scrub.page);
        scrub.keep.kept = Some(scrub.page.clone());
        let volume = &self.life.superblock.volume;
        page::encode(
            self.io.arena.bytes_mut(buf),
            PageKind::Scrub,
            volume,
            0,
            self.checkpoint.number,
            &payload,
        );
        self.write_metadata(Owner::ScrubPage, SCRUB_AT, buf);
    }

    /// It was written, or not.
    pub(crate) fn scrub_kept(&mut self, result: Result<(), DeviceError>) {
        self.io.flushers[FAST].dirty = true;
        if let Some(buf) = self.mover.scrub.keep.buf.take() {
            self.io.arena.free(buf);
        }
        if let Err(error) = result {
            self.mover.scrub.keep.kept = None;
            let name = &self.told.names[FAST];
            let what = format!("{name}: how far the scrub has come cannot be written at byte {SCRUB_AT}");
            self.told.event(Level::Warning, what, Some(error));
        }
    }
}
