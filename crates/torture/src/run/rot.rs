//! Something goes bad for a scrub to find, while the volume is served; and after one that saw all, with nobody writing, it has
//! listed whatever of a slow home cannot be read, and nothing that can be.

use super::*;
use crate::world::truth::Wound;
use bimetal_engine::scrub::{ScrubState, ScrubStatus};
use bimetal_units::{BLOCK_BYTES, FAST, SLOW, Tier};
use std::collections::BTreeSet;

/// For so long a scrub is waited for that has nothing to wait for but a disk that clients keep awake.
const SCRUB_NS: u64 = 300 * Nanos::SECOND;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A sector of the fast device that rotted. Whoever opens the volume after a crash may have no checksum of it, and would not
/// notice: so it does not outlive one.
pub(super) struct FastRot {
    page: u64,
    sector: usize,
    good: [u8; SECTOR],
    bad: [u8; SECTOR],
}

impl Run<'_> {
    /// Where a look says so, a block in a slot goes bad: a home, or a shadow. Bits rot where data has checksums: on
    /// the fast tier that is to stay so until the life ends.
    pub(super) fn rot_amid(&mut self, engine: &mut Engine<SimArena>) {
        let blocks = self.plan.size_bytes / BLOCK;
        let Some(rng) = self.scrubs.rot_now() else { return };
        let (at, of_shadow, rots, sector) =
            (rng.below(blocks) * BLOCK, rng.one_in(3), rng.one_in(2), rng.below(8));
        let Some(why) = engine.why(self.world.now(), at) else { return };
        let (Some(home), Some(home_offset), false) = (why.home, why.home_offset, why.moving) else { return };
        let (tier, slot) = match why.shadow_offset.filter(|_| of_shadow) {
            Some(shadow) => (SLOW, shadow),
            None => (home.tier, home_offset),
        };
        let (device, page) = (usize::from(tier == SLOW), (slot + at - why.offset) / PAGE);
        let mut bytes = [0; PAGE_BYTES];
        if tier == SLOW && self.world.owes_export() {
            return;
        }
        let disk = &mut self.world.disks[device];
        // What was written of late may have been answered after it went bad, and counts as written since.
        if !disk.peek(page, &mut bytes) || disk.volatile_pages().contains(&page) {
            return;
        }
        self.world.truth.hurt(device, page, &bytes, Wound::Decayed);
        let is_noticed = self.memory_has_all_sums() && !self.world.may_lose_writes();
        let rots = rots && (tier == SLOW || is_noticed && engine.has_fast_checksum(at));
        if rots {
            let within = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
            let good: [u8; SECTOR] = bytes[within.clone()].try_into().expect("a sector");
            bytes[within.start + 100] ^= 4;
            let bad = bytes[within].try_into().expect("a sector");
            self.world.disks[device].put_back(page, &bytes);
            if tier == FAST {
                self.stats.count("fast block rotted amid");
                self.fast_rots.push(FastRot { page, sector: sector as usize, good, bad });
            }
        } else {
            let disk = &mut self.world.disks[device];
            disk.add_bad_sector(page * 8 + sector);
        }
        self.stats.count(if tier == FAST { "fast block went bad amid" } else { "slow block went bad amid" });
        self.fresh.hurt(self.world.now());
        self.damaged = true;
    }

    /// Whether there is room in memory for all checksums of the fast tier: what is known once stays so until the volume is closed.
    pub(super) fn memory_has_all_sums(&self) -> bool {
        self.limits.tuning.fast_checksum_bytes >= 64 << 20
    }

    /// A page of the fast device, which was this before, has rotted.
    pub(super) fn fast_has_rotted(&mut self, page: u64, before: &[u8]) {
        let mut now = [0; PAGE_BYTES];
        self.world.disks[0].peek(page, &mut now);
        let sectors = before.chunks_exact(SECTOR).zip(now.chunks_exact(SECTOR)).enumerate();
        for (sector, (good, bad)) in sectors.filter(|(_, (good, bad))| good != bad) {
            let [good, bad] = [good, bad].map(|bytes| bytes.try_into().expect("a sector"));
            self.fast_rots.push(FastRot { page, sector, good, bad });
        }
    }

    /// What rotted is noticed whenever it is read, or as it was: a page that says its checksum may have become bad as well.
    pub(super) fn heal_unnoticed_rots(&mut self) -> Result<(), String> {
        if !self.fast_rots.is_empty() {
            let found = self.findings()?;
            let is_found = |rot: &FastRot| found.contains(&(FAST, rot.page * PAGE));
            let (kept, lost): (Vec<_>, Vec<_>) = self.fast_rots.drain(..).partition(is_found);
            self.fast_rots = lost;
            self.heal_fast_rots();
            self.fast_rots = kept;
        }
        Ok(())
    }

    /// What rotted on the fast device, and was not overwritten, is as it was.
    pub(super) fn heal_fast_rots(&mut self) {
        let mut bytes = [0; PAGE_BYTES];
        // The newest first: one bit may have flipped there and back.
        for rot in self.fast_rots.drain(..).rev() {
            let (disk, within) = (&mut self.world.disks[0], rot.sector * SECTOR..(rot.sector + 1) * SECTOR);
            if disk.peek(rot.page, &mut bytes) && bytes[within.clone()] == rot.bad {
                bytes[within].copy_from_slice(&rot.good);
                disk.put_back(rot.page, &bytes);
            }
        }
    }

    /// Nothing fails and nobody writes: what a scrub lists then is what cannot be read, of all that has checksums.
    pub(super) fn scrub_finds_all(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        if !self.scrubs.rots()
            || !self.damaged
            || !self.only_damage()
            || engine.begin_scrub(self.world.now()).is_err()
        {
            return Ok(());
        }
        engine.stop_scrub(self.world.now()).map_err(|error| format!("a scrub does not stop: {error}"))?;
        engine.begin_scrub(self.world.now()).map_err(|error| format!("a scrub does not begin: {error}"))?;
        self.scrubs.rest(true);
        let result = self.compare_with_reads(engine);
        self.scrubs.rest(false);
        result
    }

    fn compare_with_reads(&mut self, engine: &mut Engine<SimArena>) -> Result<(), String> {
        let end = self.world.now().after(SCRUB_NS);
        while engine.scrub().state != ScrubState::Whole {
            if self.world.now() >= end || engine.status().state == "read-only" {
                self.stats.count("scrub was not whole");
                return Ok(());
            }
            // Clients keep the disk awake.
            self.failing_reads(engine)?;
            let mut nobody = Client::new(&[], 1);
            self.lull(engine, &mut nobody, Nanos::SECOND)?;
        }
        self.stats.count("scrub was whole");
        let scrub = engine.scrub();
        let failing = self.failing_reads(engine)?;
        let listed = listed(&scrub);
        for at in listed.iter().filter(|at| !failing.contains(at)) {
            // A log that has no room for what is repaired, as it holds nothing but what is lost: the home stays bad, whatever a
            // copy in memory answers until the volume is closed.
            let why = engine.why(self.world.now(), *at).ok_or("a chunk is not known")?;
            if why.home.is_none_or(|home| home.tier != SLOW) || why.copied_blocks == 0 {
                return Err(format!("byte {at} is listed as lost, and can be read: {scrub:?}"));
            }
            self.stats.count("lost below a copy");
        }
        for at in failing.iter().filter(|at| scrub.unlisted_bytes == 0 && !listed.contains(at)) {
            let why = engine.why(self.world.now(), *at).ok_or("a chunk is not known")?;
            let tier: Option<Tier> = why.home.map(|home| home.tier);
            if tier == Some(SLOW) && why.landed_blocks == 0 {
                return Err(format!("byte {at} cannot be read, and a scrub has not listed it: {scrub:?}"));
            }
        }
        Ok(())
    }

    /// The blocks that cannot be read.
    fn failing_reads(&mut self, engine: &mut Engine<SimArena>) -> Result<BTreeSet<u64>, String> {
        let mut failing = BTreeSet::new();
        let read =
            |offset, len| Op { kind: OpKind::Read, offset, len, fua: false, pause_ns: 0, drain: false };
        let before = std::mem::take(&mut self.unreadable);
        let units: Vec<Op> = (0..self.plan.size_bytes)
            .step_by(UNIT as usize)
            .map(|offset| read(offset, UNIT.min(self.plan.size_bytes - offset)))
            .collect();
        self.drive(engine, &mut Client::new(&units, 8), None)?;
        let units = std::mem::take(&mut self.unreadable);
        let blocks: Vec<Op> = units
            .iter()
            .flat_map(|(offset, len)| (*offset..offset + len).step_by(BLOCK as usize))
            .map(|offset| read(offset, BLOCK))
            .collect();
        self.drive(engine, &mut Client::new(&blocks, 8), None)?;
        failing.extend(self.unreadable.iter().map(|(offset, _)| *offset));
        self.unreadable = before;
        Ok(failing)
    }
}

/// The blocks that are listed.
fn listed(scrub: &ScrubStatus) -> BTreeSet<u64> {
    scrub.lost.iter().flat_map(|range| range.clone().step_by(BLOCK as usize)).collect()
}
