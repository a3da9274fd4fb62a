//! Data stays where it was first written.
//!
//! **Sources.** `spill-only`: the self-built volume of claims B1 to B5, which only looked fused: the SSD's speed until
//! it was full, the disk's from then on, and no re-reading, however often, ever moved anything. `static`: the first
//! placement of our own volumes, without all that comes after it.
//!
//! **What it optimises.** Nothing is copied, ever; what is written first is quick for ever.
//!
//! **Rules.** A chunk of 128 KiB takes a slot when it is first written: on the fast device while that has any, then on
//! the slow one. It is read and overwritten there. `static` leaves as much of the fast device alone as our own volume
//! takes for its log, so that both have the same data on the same device to begin with.
//!
//! **Simplified.** Our volumes also send long streams to the slow device when the fast one is nearly full; here they
//! go where there is room.

use super::rig::{FAST, Rig, SLOW, Ticket};
use super::rules::Rules;
use super::tiers::Tiers;
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;

/// The rules of `spill-only` and `static`.
pub(super) struct Spill {
    tiers: Tiers,
    /// Bytes of the fast device that are left alone while the slow one has room.
    kept_bytes: u64,
}

impl Spill {
    pub(super) fn new(sizes: [u64; 2], size_bytes: u64, kept_bytes: u64) -> Spill {
        Spill { tiers: Tiers::new(sizes, size_bytes), kept_bytes }
    }
}

impl Rules for Spill {
    fn serve(&mut self, rig: &mut Rig, ticket: Ticket, command: Command) {
        let kept = self.kept_bytes;
        match command.kind {
            Kind::Flush | Kind::Sync => rig.flush(ticket),
            Kind::Discard => self.tiers.discard(rig, ticket, command),
            Kind::Read | Kind::Write { .. } => {
                let first = |tiers: &Tiers| if tiers.free_bytes(FAST) > kept { FAST } else { SLOW };
                self.tiers.transfer(rig, ticket, command, first);
            }
        }
    }

    fn finished(&mut self, _: &mut Rig, _: u64) {}

    fn wake_at(&self, _: &Rig) -> Option<Nanos> {
        None
    }

    fn wake(&mut self, _: &mut Rig) {}
}
