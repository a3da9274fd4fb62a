//! A device that is to take another's place stands behind the others until it has.

use super::Driver;
use crate::device::BlockFile;
use bimetal_engine::format::superblock::Superblock;
use bimetal_replace::{Progress, Replacement, SUCCESSOR, Standing};

impl Driver {
    /// From now on this device is made one that can take another's place. All devices of the volume are there.
    ///
    /// # Panics
    /// When another one is being made such a device.
    pub fn begin_replacement(&mut self, device: BlockFile, mut replacement: Replacement) {
        assert_eq!(self.devices.len(), usize::from(SUCCESSOR.0), "both devices are there, and no other");
        assert!(device.export().is_none(), "an export's session begins with the driver");
        self.ops.all().for_each(|(device, token, before)| replacement.is_under_way(device, token, before));
        let now = self.clock.now();
        self.models.push(device.timing().map(|timing| timing.start(now)));
        self.remotes.push(None);
        self.devices.push(device);
        (self.between.replacement, self.between.forgets) = (Some(replacement), None);
    }

    /// Where a replacement fails this lets the volume file forget it, for that reason, and says whether it has: nothing more is written
    /// to the old device before. Whoever serves the volume may do so himself.
    pub fn forget_successor_with(&mut self, forgets: impl FnMut(&str) -> bool + Send + 'static) {
        self.between.forgets = Some(Box::new(forgets));
    }

    /// Whether a device is to take another's place, and how far that has come.
    pub fn replacement(&self) -> Option<Progress> {
        self.between.replacement.as_ref().map(Replacement::progress)
    }

    /// What it is called.
    pub fn successor(&self) -> Option<&BlockFile> {
        self.devices.get(usize::from(SUCCESSOR.0))
    }

    /// The replacement itself, to be told what is wished.
    pub fn replacement_mut(&mut self) -> Option<&mut Replacement> {
        self.between.replacement.as_mut()
    }

    /// Lets the successor take over, now that all is copied. These are the superblocks of both devices.
    pub fn begin_takeover(&mut self, superblocks: [Superblock; 2]) {
        let now = self.clock.now();
        if let Some(replacement) = &mut self.between.replacement {
            replacement.begin_takeover(superblocks, now);
        }
    }

    /// The successor has taken over: it has the place of the old device from now on, which is given back. The devices are to be
    /// watched anew.
    pub fn take_over(&mut self) -> Option<BlockFile> {
        let progress = self.replacement().filter(|progress| progress.standing == Standing::TakenOver)?;
        let new = self.replacement_mut().map(|replacement| replacement.plan().new);
        if let Some((protection, new)) = self.between.protection.as_mut().zip(new) {
            protection.device_replaced(progress.tier, new);
        }
        let place = usize::from(progress.tier.0);
        self.between.replacement = None;
        self.watch = None;
        self.models.swap_remove(place);
        self.remotes.swap_remove(place);
        Some(self.devices.swap_remove(place))
    }

    /// The successor that nobody waits for any more, after a failure.
    pub fn drop_successor(&mut self) -> Option<BlockFile> {
        self.between.replacement.as_ref().filter(|replacement| replacement.is_over())?;
        self.between.replacement = None;
        self.models.pop();
        self.remotes.pop();
        self.devices.pop()
    }
}
