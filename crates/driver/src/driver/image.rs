//! Who stands between a machine and its devices: the protection of the one, and the replacement of the other.

use super::Driver;
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, DeviceError, Token};
use bimetal_protect::{Progress, Protected, Protection, Salvage};
use bimetal_replace::{Replacement, Standing};
use bimetal_units::Nanos;

/// Lets what says whose place is to be taken forget it, for this reason; whether it has.
pub(super) type Forgets = Box<dyn FnMut(&str) -> bool + Send>;

/// Who stands between a machine and its devices, the nearest to the machine first.
#[derive(Default)]
pub(super) struct Between {
    pub(super) salvage: Option<Salvage>,
    pub(super) protection: Option<Protection>,
    pub(super) replacement: Option<Replacement>,
    pub(super) forgets: Option<Forgets>,
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

    /// A replacement that has failed is done without, once nobody will go on with it.
    pub(super) fn settle(&mut self) {
        let Some((replacement, forgets)) = self.replacement.as_mut().zip(self.forgets.as_mut()) else {
            return;
        };
        if let Standing::Failed(why) = replacement.progress().standing
            && !replacement.is_settled()
            && forgets(&why)
        {
            replacement.settle();
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

    /// When one of them, or the machine, is to be asked again at the latest. Not those whom nobody would ask.
    pub(super) fn deadline<M: Machine>(&self, machine: &M) -> Option<Nanos> {
        let protection = self.protection.as_ref().and_then(Protection::deadline);
        let others = [machine.deadline(), protection].into_iter().flatten().min();
        self.replacement.as_ref().map_or(others, |replacement| replacement.deadline_with(others))
    }
}

impl Driver {
    /// When a machine, or who stands between it and its devices, is to be asked again at the latest.
    pub fn deadline<M: Machine>(&self, machine: &M) -> Option<Nanos> {
        self.between.deadline(machine)
    }

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
