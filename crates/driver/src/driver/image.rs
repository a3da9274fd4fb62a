//! Who stands between a machine and its devices: the protection of the one, and the replacement of the other.

use super::Driver;
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, DeviceError, Token};
use bimetal_protect::{Progress, Protected, Protection, Salvage};
use bimetal_replace::Replacement;
use bimetal_units::Nanos;

/// Who stands between a machine and its devices, the nearest to the machine first.
#[derive(Default)]
pub(super) struct Between {
    pub(super) salvage: Option<Salvage>,
    pub(super) protection: Option<Protection>,
    pub(super) replacement: Option<Replacement>,
    /// Answers that came when a task had ended, and its result had the memory: whoever has that next is told.
    late: Vec<(Token, Result<(), DeviceError>)>,
}

impl Between {
    /// The next thing that any of them, or the machine, wants done.
    pub(super) fn next_action<M: Machine>(&mut self, machine: &mut M, now: Nanos) -> Option<Action> {
        if !machine.has_arena() {
            return machine.next_action(now);
        }
        for (token, result) in std::mem::take(&mut self.late) {
            self.tell(machine, now, token, result);
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
        if !machine.has_arena() {
            self.late.push((token, result));
            return;
        }
        let mut machine = Protected::new(self.protection.as_mut(), machine).or_salvage(self.salvage.as_mut());
        match &mut self.replacement {
            Some(replacement) => replacement.on_completion(&mut machine, now, token, result),
            None => machine.on_completion(now, token, result),
        }
    }

    /// When one of them is to be asked again at the latest.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let protection = self.protection.as_ref().and_then(Protection::deadline);
        let replacement = self.replacement.as_ref().and_then(Replacement::deadline);
        [protection, replacement].into_iter().flatten().min()
    }
}

impl Driver {
    /// From now on an image of the volume is kept on its slow device. Nothing was asked of the devices yet.
    pub fn protect(&mut self, protection: Protection) {
        self.between.protection = Some(protection);
    }

    /// How the image of the volume stands; none where it is not protected.
    pub fn protection(&self) -> Option<Progress> {
        self.between.protection.as_ref().map(Protection::progress)
    }

    /// What is protected, and how.
    pub fn protection_plan(&self) -> Option<&bimetal_protect::Plan> {
        self.between.protection.as_ref().map(Protection::plan)
    }

    /// The machine has ended: whether the image is as it is to be left. Until then it is asked again.
    pub fn image_is_finished(&mut self) -> bool {
        let now = self.clock.now();
        self.between.protection.as_mut().is_none_or(|protection| protection.finish(now))
    }

    /// From now on the image takes the place of the devices, of which only the slow one is there.
    pub fn salvage(&mut self, salvage: Salvage) {
        self.between.salvage = Some(salvage);
    }
}
