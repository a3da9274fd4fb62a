//! A device that is to take another's place stands behind the others until it has.

use super::truth::Wound;
use super::{Work, World};
use crate::disk::{Disk, PAGE_BYTES};
use bimetal_engine::format::left_out;
use bimetal_replace::{Before, Replacement, SUCCESSOR, Standing};
use bimetal_units::Tier;

/// Where it stands among the devices.
const PLACE: usize = SUCCESSOR.0 as usize;

impl World {
    /// From now on, until the machine dies, the device behind the others is made one that can take another's place.
    pub fn begin_replacement(&mut self, mut replacement: Replacement) {
        for (_, io) in self.ios.iter() {
            let before = match io.work {
                Work::Read { .. } => Before::Reads,
                Work::Flush => Before::Flushes,
                _ => Before::Changes,
            };
            replacement.is_under_way(Tier(io.device as u8), io.token, before);
        }
        self.between.replacement = Some(replacement);
    }

    /// The one that is under way.
    pub fn replacement(&mut self) -> Option<&mut Replacement> {
        self.between.replacement.as_mut()
    }

    /// It has taken over: it has the place of the old device from now on, which is given.
    pub fn take_over(&mut self) -> Result<Option<Disk>, String> {
        let Some(replacement) = self.between.replacement.take() else { return Ok(None) };
        let (tier, new) = (replacement.plan().tier, replacement.plan().new);
        assert!(replacement.progress().standing == Standing::TakenOver, "it has taken over");
        self.between.is_replaced(tier, new);
        let place = usize::from(tier.0);
        if self.ios.iter().any(|(_, io)| io.device == place || io.device == PLACE) {
            return Err("taken over while something is on its way to either device".into());
        }
        let mut old = self.disks.swap_remove(place);
        old.kill(&mut self.rng);
        Ok(Some(old))
    }

    /// The successor is to hold this: where it is what stands for a block that could not be read, that is lost.
    pub(super) fn note_left_out(&mut self, offset: u64, data: &[u8]) {
        let Some(replacement) = self.between.replacement.as_ref().filter(|_| data == left_out::block())
        else {
            return;
        };
        let (device, page) = (usize::from(replacement.plan().tier.0), offset / PAGE_BYTES as u64);
        let mut bytes = vec![0; PAGE_BYTES];
        self.disks[device].peek(page, &mut bytes);
        self.truth.hurt(device, page, &bytes, Wound::Decayed);
    }

    /// Nobody waits for it any more: it goes.
    pub fn drop_successor(&mut self) {
        self.between.replacement = None;
        self.disks.truncate(PLACE);
    }
}
