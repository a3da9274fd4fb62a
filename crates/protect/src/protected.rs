//! A machine whose image is kept, or has the place of its devices, for a driver that does not want to know.

use crate::{Protection, Salvage};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, DeviceError, Token};
use bimetal_engine::unused::Unused;
use bimetal_units::{Nanos, Tier};
use std::ops::Range;

/// A machine, and whoever stands between it and its devices for its image, if anybody does.
pub struct Protected<'a, M> {
    protection: Option<&'a mut Protection>,
    salvage: Option<&'a mut Salvage>,
    machine: &'a mut M,
}

impl<'a, M: Machine> Protected<'a, M> {
    /// Both together.
    #[inline]
    pub fn new(protection: Option<&'a mut Protection>, machine: &'a mut M) -> Protected<'a, M> {
        Protected { protection, salvage: None, machine }
    }

    /// The same where the image may have the place of the devices instead.
    #[inline]
    pub fn or_salvage(self, salvage: Option<&'a mut Salvage>) -> Protected<'a, M> {
        Protected { salvage, ..self }
    }
}

impl<M: Machine> Machine for Protected<'_, M> {
    type Arena = M::Arena;

    #[inline]
    fn next_action(&mut self, now: Nanos) -> Option<Action> {
        match (&mut self.salvage, &mut self.protection) {
            // A task that has ended has no memory for anybody.
            _ if !self.machine.has_arena() => self.machine.next_action(now),
            (Some(salvage), _) => salvage.next_action(self.machine, now),
            (_, Some(protection)) => protection.next_action(self.machine, now),
            _ => self.machine.next_action(now),
        }
    }
    #[inline]
    fn on_completion(&mut self, now: Nanos, token: Token, result: Result<(), DeviceError>) {
        match (&mut self.salvage, &mut self.protection) {
            (Some(salvage), _) => salvage.on_completion(self.machine, now, token, result),
            (_, Some(protection)) => protection.on_completion(self.machine, now, token, result),
            _ => self.machine.on_completion(now, token, result),
        }
    }
    #[inline]
    fn deadline(&self) -> Option<Nanos> {
        let protection = self.protection.as_ref().and_then(|protection| protection.deadline());
        [self.machine.deadline(), protection].into_iter().flatten().min()
    }
    #[inline]
    fn on_timer(&mut self, now: Nanos) {
        self.machine.on_timer(now);
    }
    fn unused(&self, device: Tier) -> Unused {
        self.machine.unused(device)
    }
    fn next_needed(&self, device: Tier, range: Range<u64>, most_bytes: u64) -> Option<Range<u64>> {
        self.machine.next_needed(device, range, most_bytes)
    }
    fn has_arena(&self) -> bool {
        self.machine.has_arena()
    }
    fn is_read_elsewhere(&mut self, device: Tier, is: bool) {
        self.machine.is_read_elsewhere(device, is);
    }
    #[inline]
    fn with_arena<R>(&mut self, f: impl FnOnce(&mut Self::Arena) -> R) -> R {
        self.machine.with_arena(f)
    }
}
