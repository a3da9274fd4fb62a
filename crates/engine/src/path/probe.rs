//! Something is read of a device for no other reason than to hear whether it reads at all: what tells a block that cannot
//! be read from a device that reads nothing.
//!
//! Superblocks are read: they are known to be good, each device has two of them, far apart, and nobody needs them while the
//! volume is open. Should a device fail to read both, one is written again, until that has succeeded once: sectors that went
//! bad are good then, and who waits to hear whether the device reads at all does not wait for ever.

use crate::api::action::{Class, DeviceError};
use crate::base::arena::{Arena, Buf, Pool};
use crate::engine::Engine;
use crate::format::superblock::{Found, Superblock};
use crate::io::issue::Command;
use crate::io::tokens::Owner;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// A question to one device.
#[derive(Default, Serialize, Deserialize)]
pub struct Probe {
    wanted: bool,
    asked: Option<Asked>,
    /// Its superblock was written again in this opening.
    mended: bool,
}

/// A superblock that is being read or written.
#[derive(Serialize, Deserialize)]
struct Asked {
    buf: Buf,
    offset: u64,
    is_write: bool,
}

impl<A: Arena> Engine<A> {
    /// Something of this device could not be read, or was wrong.
    pub(crate) fn want_probe(&mut self, tier: Tier) {
        self.front.probes[tier].wanted = true;
    }

    /// The device read something well.
    pub(crate) fn read_well(&mut self, tier: Tier) {
        self.io.good_reads[tier] += u64::from(!self.io.read_elsewhere[tier]);
    }

    pub(crate) fn pump_probes(&mut self) {
        for tier in [FAST, SLOW] {
            let probe = &mut self.front.probes[tier];
            if probe.asked.is_none() && std::mem::take(&mut probe.wanted) && !self.moves_are_over() {
                self.ask_for(tier, 0);
            }
        }
    }

    fn ask_for(&mut self, tier: Tier, offset: u64) {
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
        self.front.probes[tier].asked = Some(Asked { buf, offset, is_write: false });
        let owner = Owner::Probe(tier);
        self.io.read(Command { device: tier, offset, owner, class: Class::Background }, buf);
    }

    /// Both superblocks could not be read, so the bytes that are there already are written to one of them.
    fn mend(&mut self, tier: Tier, offset: u64) {
        let Some(buf) = self.io.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
        Superblock { tier, ..self.life.superblock.clone() }.encode(self.io.arena.bytes_mut(buf), offset);
        self.front.probes[tier].asked = Some(Asked { buf, offset, is_write: true });
        let owner = Owner::Probe(tier);
        self.io.write(Command { device: tier, offset, owner, class: Class::Background }, buf);
    }

    /// A superblock was read, or not. Where the one is not good, the other is asked for.
    pub(crate) fn probe_done(&mut self, tier: Tier, result: Result<(), DeviceError>) {
        let probe = &mut self.front.probes[tier];
        let Asked { buf, offset, is_write } = probe.asked.take().expect("what was read was asked for");
        probe.mended |= is_write && result.is_ok();
        let may_mend = !probe.mended;
        let found = Superblock::decode(self.io.arena.bytes(buf), offset);
        let is_ours =
            matches!(found, Found::Valid(s) if s.volume == self.life.superblock.volume && s.tier == tier);
        self.io.arena.free(buf);
        if is_write || self.moves_are_over() {
            // Whoever fails to read something asks again.
        } else if result.is_ok() && is_ours {
            self.read_well(tier);
        } else if offset == 0 {
            self.ask_for(tier, self.state.geo.second_superblock_at(tier));
        } else if result.is_err() && may_mend {
            // What can be read and is not ours is another's, and left alone.
            self.mend(tier, offset);
        }
    }
}
