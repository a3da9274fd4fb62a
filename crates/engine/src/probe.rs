//! Something is read of a device for no other reason than to hear whether it reads at all: what tells a block that cannot
//! be read from a device that reads nothing.
//!
//! Superblocks are read: they are known to be good, each device has two of them, far apart, and nobody needs them while the
//! volume is open.

use crate::action::{Action, Class, DeviceError};
use crate::arena::{Arena, Buf, Pool};
use crate::engine::{Engine, Owner};
use crate::format::superblock::{Found, Superblock};
use crate::units::*;

/// A question to one device.
#[derive(Default)]
pub struct Probe {
    wanted: bool,
    /// Where what is being read is read to, and where from.
    asked: Option<(Buf, u64)>,
}

impl<A: Arena> Engine<A> {
    /// Something of this device could not be read, or was wrong.
    pub(crate) fn want_probe(&mut self, tier: Tier) {
        self.probes[usize::from(tier.0)].wanted = true;
    }

    /// The device read something well.
    pub(crate) fn read_well(&mut self, tier: Tier) {
        self.good_reads[usize::from(tier.0)] += 1;
    }

    pub(crate) fn pump_probes(&mut self) {
        for tier in [FAST, SLOW] {
            let probe = &mut self.probes[usize::from(tier.0)];
            if probe.asked.is_none() && std::mem::take(&mut probe.wanted) && !self.moves_are_over() {
                self.ask_for(tier, 0);
            }
        }
    }

    fn ask_for(&mut self, tier: Tier, offset: u64) {
        let Some(buf) = self.arena.alloc(Pool::Meta, BLOCK_BYTES) else { return };
        self.probes[usize::from(tier.0)].asked = Some((buf, offset));
        let token = self.tokens.issue(tier, Owner::Probe(tier), self.now);
        let class = Class::Background;
        self.out.push_back(Action::Read { device: tier, offset, buf, token, class });
    }

    /// A superblock was read, or not. Where the one is not good, the other is asked for.
    pub(crate) fn probe_done(&mut self, tier: Tier, result: Result<(), DeviceError>) {
        let asked = self.probes[usize::from(tier.0)].asked.take();
        let (buf, offset) = asked.expect("what was read was asked for");
        let found = Superblock::decode(self.arena.bytes(buf), offset);
        let is_ours =
            matches!(found, Found::Valid(s) if s.volume == self.superblock.volume && s.tier == tier);
        self.arena.free(buf);
        if result.is_ok() && is_ours {
            self.read_well(tier);
        } else if offset == 0 && !self.moves_are_over() {
            self.ask_for(tier, self.state.geo.second_superblock_at(tier));
        }
    }
}
