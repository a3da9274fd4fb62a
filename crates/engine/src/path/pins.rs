//! The list of pins on its way to the fast device.

use crate::api::action::DeviceError;
use crate::api::options::Level;
use crate::base::arena::{Arena, Pool};
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::format::geometry::pins_at;
use crate::format::page::{self, PageKind};
use crate::format::pins::put_pins;
use crate::io::flush::Waiter;
use crate::io::tokens::Owner;
use crate::placement::pins::keep::KeepStage;
use crate::placement::pins::{PinError, PinList, Pins};
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// Begins to make a list durable.
    pub(crate) fn keep_pins(&mut self, list: PinList) {
        let Pins { keeping, list: in_force, unknown, .. } = &mut self.placement.pins;
        if list == *in_force && keeping.twice && !*unknown {
            keeping.answer = Some(Ok(()));
            return;
        }
        // A version that failed may be on the device all the same, so its number is not used again.
        keeping.version += 1;
        keeping.next = list;
        keeping.place = keeping.newest.map_or(0, |newest| 1 - newest);
        (keeping.stage, keeping.second, keeping.twice) = (KeepStage::Wanted, false, false);
    }

    pub(crate) fn pump_pins(&mut self) {
        if self.placement.pins.keeping.stage != KeepStage::Wanted {
            return;
        }
        if self.life.is_read_only() {
            return self.end_keeping(false, PinError::ReadOnly);
        }
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
        let keeping = &mut self.placement.pins.keeping;
        let mut payload = Vec::new();
        put_pins(&mut payload, keeping.next.ranges());
        let (volume, number) = (&self.life.superblock.volume, u64::from(keeping.place));
        page::encode(self.io.arena.bytes_mut(buf), PageKind::Pins, volume, number, keeping.version, &payload);
        (keeping.buf, keeping.stage) = (Some(buf), KeepStage::Write);
        let at = pins_at(keeping.place);
        self.write_metadata(Owner::Pins, at, buf);
    }

    /// One of the places is written.
    pub(crate) fn pins_written(&mut self, result: Result<(), DeviceError>) {
        self.io.flushers[FAST].dirty = true;
        if let Some(buf) = self.placement.pins.keeping.buf.take() {
            self.io.arena.free(buf);
        }
        match result {
            Ok(()) => {
                self.placement.pins.keeping.stage = KeepStage::Flush;
                if planted(Bug::PinsNotFlushed) {
                    return self.pins_flushed(true);
                }
                self.request_flush(FAST, Waiter::Pins);
            }
            Err(error) => {
                let (name, at) = (&self.told.names[FAST], pins_at(self.placement.pins.keeping.place));
                let what = format!("{name}: the list of pins at byte {at} cannot be written");
                self.told.event(Level::Warning, what, Some(error));
                self.end_keeping(false, PinError::Io);
            }
        }
    }

    /// What was written is durable, or may not be.
    pub(crate) fn pins_flushed(&mut self, ok: bool) {
        let keeping = &mut self.placement.pins.keeping;
        if !ok || keeping.second {
            return self.end_keeping(ok, PinError::Io);
        }
        keeping.newest = Some(keeping.place);
        keeping.place = 1 - keeping.place;
        (keeping.stage, keeping.second) = (KeepStage::Wanted, true);
    }

    /// The change ends. From the first place on it is durable, whatever became of the second one.
    fn end_keeping(&mut self, ok: bool, error: PinError) {
        let keeping = &mut self.placement.pins.keeping;
        keeping.stage = KeepStage::Idle;
        keeping.twice = ok;
        if !keeping.second {
            keeping.answer = Some(Err(error));
            return;
        }
        self.placement.pins.list = std::mem::take(&mut keeping.next);
        keeping.answer = Some(Ok(()));
        self.placement.pins.unknown = false;
        self.obey_pins();
    }
}
