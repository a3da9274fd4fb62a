//! Another device takes the place of one while the volume is in use. Whoever drives the engine copies it; what the engine writes of
//! devices beside their data are superblocks, and these name both.

use crate::api::options::Level;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::format::Id;
use crate::format::superblock::Superblock;
use bimetal_units::*;

impl<A: Arena> Engine<A> {
    /// The superblocks of both devices as they are; none while that is not certain: the volume is being closed, is read-only, or
    /// lacks one.
    pub fn superblocks(&self) -> Option<[Superblock; 2]> {
        let certain = !self.life.shutdown.began() && !self.life.is_read_only() && !self.lacks_slow();
        certain.then(|| [FAST, SLOW].map(|tier| Superblock { tier, ..self.life.superblock.clone() }))
    }

    /// From now on this device has the place of the one before it: both hold the same, and the superblocks say so.
    pub fn device_replaced(&mut self, tier: Tier, id: Id, name: String) {
        let message = format!("{name} has taken the place of {}", self.told.names[tier]);
        self.life.superblock.devices[usize::from(tier.0)] = id;
        self.told.names[tier] = name;
        self.io.read_elsewhere[tier] = false;
        self.told.event(Level::Info, message, None);
    }
}
