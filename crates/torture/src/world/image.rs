//! Who stands between a machine and its devices: the image of a protected volume, which is kept, or has their place.

use super::World;
use bimetal_engine::action::Machine;
use bimetal_protect::{Protected, Protection, Salvage};
use bimetal_units::Nanos;

/// Whoever does, if anybody.
#[derive(Default)]
pub(super) struct Between {
    protection: Option<Protection>,
    salvage: Option<Salvage>,
    /// The newest freeze that was asked for.
    freeze: u64,
}

impl Between {
    /// The machine, behind it.
    pub(super) fn before<'a, M: Machine>(&'a mut self, machine: &'a mut M) -> Protected<'a, M> {
        Protected::new(self.protection.as_mut(), machine).or_salvage(self.salvage.as_mut())
    }

    /// When it is to be asked again at the latest.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.protection.as_ref().and_then(Protection::deadline)
    }
}

impl World {
    /// From now on, until the machine dies, an image is kept. Nothing was asked of the devices yet.
    pub fn protect(&mut self, protection: Protection) {
        self.between = Between { freeze: protection.newest_freeze(), ..Between::default() };
        self.between.protection = Some(protection);
    }

    /// From now on the image has the place of the devices.
    pub fn salvage(&mut self, salvage: Salvage) {
        self.between.salvage = Some(salvage);
    }

    /// Who keeps an image.
    pub fn protection(&self) -> Option<&Protection> {
        self.between.protection.as_ref()
    }

    /// The number of the newest freeze, if there was one since this was last asked.
    pub fn new_freeze(&mut self) -> Option<u64> {
        let newest = self.protection()?.newest_freeze();
        (std::mem::replace(&mut self.between.freeze, newest) != newest).then_some(newest)
    }

    /// The machine has ended: whether the image is as it is to be left.
    pub fn image_is_finished(&mut self) -> bool {
        let now = self.now;
        self.between.protection.as_mut().is_none_or(|protection| protection.finish(now))
    }
}
