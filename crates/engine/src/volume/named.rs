//! Slots that durable marks name, or may name: what such a slot holds stays its chunk's own until marks that do not name it are
//! durable. So one that would be free is kept until then: nobody gets it, and it is not discarded.

use crate::base::bits::{self, Bits};
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Which slots are named, and what of them would be somebody's else.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Named {
    slots: Bits,
    /// Those that would be free.
    kept: IndexMap<Slot, ()>,
    /// Those that are lent: they hold a shadow, which cannot give way.
    lent: IndexMap<Slot, ()>,
}

/// What became of a slot when no mark named it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unnamed {
    /// Nothing: it is in use, or was not named.
    Nothing,
    /// It was kept, and is free.
    Free,
    /// It was lent, and can be had like any other that is.
    Lent,
}

impl Named {
    /// None of so many slots.
    pub(crate) fn none(slots: u32) -> Named {
        Named { slots: Bits::none(slots), ..Named::default() }
    }

    /// Bytes of RAM.
    pub(crate) fn ram_bytes(&self) -> u64 {
        bits::ram_bytes(u64::from(self.slots.size()))
    }

    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.slots.has(slot.0) && !planted(Bug::NamedSlotReused)
    }

    pub(crate) fn name(&mut self, slot: Slot) {
        self.slots.set(slot.0);
    }

    /// No mark names it any more.
    pub(crate) fn unname(&mut self, slot: Slot) -> Unnamed {
        self.slots.clear(slot.0);
        if self.kept.remove(&slot).is_some() {
            Unnamed::Free
        } else if self.lent.remove(&slot).is_some() {
            Unnamed::Lent
        } else {
            Unnamed::Nothing
        }
    }

    /// Keeps one that would be free; false where no mark names it.
    pub(crate) fn keep(&mut self, slot: Slot) -> bool {
        let named = self.has(slot);
        if named {
            self.kept.insert(slot, ());
        }
        named
    }

    /// One that is named is lent; false where it is not named.
    pub(crate) fn lend(&mut self, slot: Slot) -> bool {
        let named = self.has(slot);
        if named {
            self.lent.insert(slot, ());
        }
        named
    }

    /// One that was lent is somebody's again; false where it was not named.
    pub(crate) fn reclaim(&mut self, slot: Slot) -> bool {
        self.lent.remove(&slot).is_some()
    }

    /// Slots that would be free.
    pub(crate) fn kept(&self) -> u32 {
        self.kept.len() as u32
    }

    /// Slots that are lent.
    pub(crate) fn lent(&self) -> u32 {
        self.lent.len() as u32
    }
}
