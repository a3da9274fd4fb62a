//! Who stands between a machine and its devices: the image of a protected volume, which is kept, or has their place, and a device
//! that is to take another's place.

use super::World;
use bimetal_engine::action::{Action, DeviceError, Machine, Token};
use bimetal_engine::format::Id;
use bimetal_protect::{Protected, Protection, Salvage};
use bimetal_replace::Replacement;
use bimetal_units::{Nanos, Tier};

/// Whoever does, if anybody.
#[derive(Default)]
pub(super) struct Between {
    protection: Option<Protection>,
    salvage: Option<Salvage>,
    pub(super) replacement: Option<Replacement>,
    /// The newest freeze that was asked for.
    freeze: u64,
}

impl Between {
    /// The next thing that any of them, or the machine, wants done.
    pub(super) fn next_action<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Action> {
        // A task that has ended has no memory for anybody.
        if !machine.has_arena() {
            return machine.next_action(now);
        }
        let mut machine = Protected::new(self.protection.as_mut(), machine).or_salvage(self.salvage.as_mut());
        match &mut self.replacement {
            Some(replacement) => replacement.next_action(&mut machine, now),
            None => machine.next_action(now),
        }
    }

    /// Tells them of an answer.
    pub(super) fn tell<M: Machine>(
        &mut self,
        machine: &mut M,
        now: Nanos,
        token: Token,
        result: Result<(), DeviceError>,
    ) {
        let mut machine = Protected::new(self.protection.as_mut(), machine).or_salvage(self.salvage.as_mut());
        match &mut self.replacement {
            Some(replacement) => replacement.on_completion(&mut machine, now, token, result),
            None => machine.on_completion(now, token, result),
        }
    }

    /// When one of them, or the machine, is to be asked again at the latest. Not those whom nobody would ask.
    pub(super) fn deadline<M: Machine>(&self, machine: &M) -> Option<Nanos> {
        let protection = self.protection.as_ref().and_then(Protection::deadline);
        let others = [machine.deadline(), protection].into_iter().flatten().min();
        self.replacement.as_ref().map_or(others, |replacement| replacement.deadline_with(others))
    }

    /// Another device has the place of one of them.
    pub(super) fn is_replaced(&mut self, tier: Tier, new: Id) {
        self.protection.iter_mut().for_each(|protection| protection.device_replaced(tier, new));
    }
}

impl World {
    /// From now on, until the machine dies, an image is kept. Nothing was asked of the devices yet.
    pub fn protect(&mut self, protection: Protection) {
        self.between.freeze = protection.newest_freeze();
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
