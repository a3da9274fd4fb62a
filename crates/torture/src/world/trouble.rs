//! How the storm reaches the machine's commands.

use super::storm::{Harm, Sky, Storm, Vanish};
use super::truth::Wound;
use super::{Io, Staged, World};
use crate::coverage::Fault;
use crate::disk::{IoId, PAGE_BYTES};
use bimetal_engine::action::Token;
use bimetal_engine::coverage::Stage;
use std::ops::Range;

impl World {
    /// Bad times begin.
    pub fn begin(&mut self, storm: Storm) {
        self.calm();
        self.break_as(&storm.breaks);
        self.sky = Sky::new(storm, self.now.0);
    }

    /// The bad times are over: whoever was away is back, and nothing takes longer than it must. What was handed
    /// over before takes as long as it was going to.
    pub fn calm(&mut self) {
        self.injected.stalls += std::mem::take(&mut self.sky.stalls);
        self.injected.ramps += std::mem::take(&mut self.sky.ramps);
        self.mend_lines();
        self.sky = Sky::default();
    }

    /// Writes that were to be harmed and are not yet.
    pub fn aims_left(&self) -> usize {
        self.sky.storm.aims.len()
    }

    /// A command would complete: the device may vanish instead.
    pub(super) fn may_vanish<M: Staged>(&mut self, machine: &M, io: &mut Io) {
        if self.sky.storm.vanish.is_none() {
            return;
        }
        let stages = || machine.stages();
        let Some(vanish) = self.sky.vanishes(io.device, |stage| stages().iter().any(|s| s == stage)) else {
            return;
        };
        let Vanish { device, ns, cache, errno, .. } = vanish;
        if self.trace {
            eprintln!("{:>12} {vanish:?}", self.now.0);
        }
        stages().iter().for_each(|s| self.coverage.hit(s, Fault::Vanished));
        self.injected.vanished += 1;
        self.note([9, device as u64, ns]);
        self.sky.gone[device] = Some((self.now.0 + ns, errno));
        io.error = Some(errno);
        self.ios.iter_mut().filter(|io| io.device == device).for_each(|io| io.error = Some(errno));
        if let Some(style) = cache {
            let lost = self.disks[device].lose_cache(style, &mut self.rng);
            self.injected.lost_caches += u64::from(lost);
        }
    }

    /// A write was handed over: it may be one that the device acknowledges and does something else with.
    pub(super) fn may_harm<M: Staged>(
        &mut self,
        machine: &M,
        id: IoId,
        place: u32,
        token: Token,
        pages: Range<u64>,
    ) {
        let io = &self.ios[place];
        let device = io.device;
        let Some(layout) = self.layout.as_ref() else { return };
        let is_log = layout.is_log(device, &pages);
        if is_log && let Some(group) = layout.group(self.disks[device].data_in_flight(id)) {
            self.newest_group = self.newest_group.max(group);
        }
        if self.sky.storm.aims.is_empty() || io.error.is_some() {
            return;
        }
        let Some(stage) = machine.stage_of(token) else { return };
        // Of what is on the fast device, copies are held against the checksums of what they are copies of.
        if stage != Stage::CopyWrite && !layout.is_summed(device, &pages) {
            return;
        }
        let Some(harm) = self.sky.aimed(stage) else { return };
        let disk = &mut self.disks[device];
        let mut hits_log = is_log;
        if matches!(harm, Harm::Lost | Harm::Shorn | Harm::Misdirected) {
            let data = disk.data_in_flight(id).chunks_exact(PAGE_BYTES);
            pages.clone().zip(data).for_each(|(page, data)| self.truth.hurt(device, page, data, Wound::Lost));
        }
        match harm {
            Harm::Lost => disk.lose(id),
            Harm::Shorn => disk.shear(id, &mut self.rng),
            Harm::Misdirected => {
                let written = |page| disk.peek(page, &mut [0; PAGE_BYTES]);
                let Some(astray) = layout.astray(device, &pages, written, &mut self.rng) else { return };
                hits_log |= layout.is_log(device, &astray);
                let mut bytes = [0; PAGE_BYTES];
                for page in astray.clone() {
                    disk.intended(page, &mut bytes);
                    self.truth.overwritten(device, page, &bytes);
                }
                disk.misdirect(id, astray.start);
                if self.trace {
                    eprintln!("{:>12} {id:?} goes to page {}", self.now.0, astray.start);
                }
            }
            Harm::Rot | Harm::BadSector => {
                let io = &mut self.ios[place];
                io.decay = Some((harm, pages.start + self.rng.below(pages.end - pages.start)));
            }
        }
        if self.trace {
            eprintln!("{:>12} {harm:?} {id:?}, {stage:?}, pages {pages:?} of device {device}", self.now.0);
        }
        if hits_log {
            self.hurt_group = Some(self.newest_group);
        }
        self.note([10, pages.start, harm as u64]);
        self.injected.harms[harm as usize] += 1;
        match harm {
            Harm::Misdirected => self.coverage.hit(stage, Fault::Misdirected),
            Harm::Rot | Harm::BadSector => {}
            Harm::Lost | Harm::Shorn => self.coverage.hit(stage, Fault::LostWrite),
        }
    }

    /// What was written decays at once.
    pub(super) fn decay(&mut self, device: usize, harm: Harm, page: u64) {
        let mut bytes = [0; PAGE_BYTES];
        self.disks[device].peek(page, &mut bytes);
        self.truth.hurt(device, page, &bytes, Wound::Decayed);
        match harm {
            Harm::BadSector => self.disks[device].add_bad_sector(page * 8 + self.rng.below(8)),
            _ => self.disks[device].rot(page, &mut self.rng),
        }
    }
}
