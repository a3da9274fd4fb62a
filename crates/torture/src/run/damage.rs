//! What happens to devices while nobody looks.

use super::*;
use crate::anatomy::{Anatomy, Part};
use crate::world::truth::Wound;
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::{FAST, Tier};

/// Pages tried for one that the check holds against a checksum.
const ROT_TRIES: u32 = 6;
/// The beginning of every page of map, checksums, directory and root.
const PAGE_MAGIC: &[u8] = b"BMTLpage";

impl Run<'_> {
    /// Damages what was written: sectors go bad anywhere; bits rot on the slow tier, whose data has checksums; on the
    /// fast one writes of metadata were lost, although they were acknowledged and flushed.
    pub(super) fn spoil(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            self.fresh.clear();
            let device = self.rng.below(2) as usize;
            // What rots may be another's place by the time that it is looked for.
            let may_rot = !self.plan.replaces;
            if may_rot && device == 0 && self.rng.one_in(2) && self.lose_write() {
                continue;
            }
            if may_rot && device == 0 && self.rng.one_in(2) && self.rot_fast()? {
                continue;
            }
            let disk = &mut self.world.disks[device];
            let Some(page) = disk.written_page(&mut self.rng) else { continue };
            self.damaged = true;
            let mut bytes = vec![0; PAGE_BYTES];
            disk.peek(page, &mut bytes);
            self.world.truth.hurt(device, page, &bytes, Wound::Decayed);
            if may_rot && device == 1 && self.rng.one_in(2) {
                disk.rot(page, &mut self.rng);
                self.stats.count("bit-rot");
            } else {
                disk.add_bad_sector(page * 8 + self.rng.below(8));
                self.stats.count("bad-sector");
            }
        }
        Ok(())
    }

    /// Bits rot on the fast device, where there is a checksum, of which the check knows: elsewhere nothing tells, and to excuse
    /// what is read there would make the model blunt. Rather in a slot, as what lies there may go down as it is. False: there
    /// was none to be found.
    fn rot_fast(&mut self) -> Result<bool, String> {
        let summed = self.summed_slots()?;
        if !summed.is_empty() {
            let page = self.rng.pick(&summed);
            let mut before = vec![0; PAGE_BYTES];
            self.world.disks[0].peek(page, &mut before);
            self.world.disks[0].rot(page, &mut self.rng);
            self.has_rotted(page, &before);
            return Ok(true);
        }
        for _ in 0..ROT_TRIES {
            let disk = &mut self.world.disks[0];
            let Some(page) = disk.written_page(&mut self.rng) else { break };
            let mut before = vec![0; PAGE_BYTES];
            disk.peek(page, &mut before);
            if [PAGE_MAGIC, b"BMTLsegm", b"BMTLgrup", b"BMTLsupr", b"BMTLckpt", b"BMTLindx"]
                .iter()
                .any(|magic| before.starts_with(magic))
            {
                continue;
            }
            disk.rot(page, &mut self.rng);
            if self.findings()?.contains(&(FAST, page * PAGE_BYTES as u64)) {
                self.has_rotted(page, &before);
                return Ok(true);
            }
            self.world.disks[0].put_back(page, &before);
        }
        Ok(false)
    }

    fn has_rotted(&mut self, page: u64, before: &[u8]) {
        self.damaged = true;
        self.world.truth.hurt(0, page, before, Wound::Decayed);
        self.fast_has_rotted(page, before);
        self.stats.count("fast-bit-rot");
    }

    /// The pages of slots of which there are checksums: what the check finds where all of them have rotted.
    fn summed_slots(&mut self) -> Result<Vec<u64>, String> {
        let Some(anatomy) = self.anatomy() else { return Ok(Vec::new()) };
        let known = self.findings()?;
        let whole = self.world.disks[0].clone();
        let slots = anatomy.pages_of(&whole, Part::Slot);
        let mut bytes = vec![0; PAGE_BYTES];
        for page in &slots {
            whole.peek(*page, &mut bytes);
            bytes[0] ^= 1;
            self.world.disks[0].put_back(*page, &bytes);
        }
        let found = self.findings();
        self.world.disks[0] = whole;
        let found = found?;
        let is_summed = |page: &u64| {
            let place = (FAST, page * PAGE_BYTES as u64);
            found.contains(&place) && !known.contains(&place)
        };
        Ok(slots.into_iter().filter(is_summed).collect())
    }

    /// Where the offline check finds something.
    pub(super) fn findings(&mut self) -> Result<Vec<(Tier, u64)>, String> {
        let mut task = bimetal_engine::check(self.arena(), self.devices(), self.options());
        self.world.read_only = true;
        let result = self.task("check", &mut task);
        self.world.read_only = false;
        Ok(match result? {
            Stretch::Done(Ok(report)) => report.findings.iter().map(|f| (f.device, f.offset)).collect(),
            Stretch::Done(Err(_)) | Stretch::Crashed => Vec::new(),
        })
    }

    /// Power is cut; of the sectors that were being written, so many cannot be read any more.
    pub(super) fn cut_power(&mut self, style: CutStyle, torn_sectors: u32) {
        let volatile: Vec<(usize, u64)> = if torn_sectors == 0 {
            Vec::new()
        } else {
            let pages = |device: usize| self.world.disks[device].volatile_pages().into_iter();
            (0..2).flat_map(|device| pages(device).map(move |page| (device, page))).collect()
        };
        self.world.die(Death::PowerCut(style));
        for _ in 0..torn_sectors.min(volatile.len() as u32) {
            let (device, page) = self.rng.pick(&volatile);
            self.stats.count("torn-sector");
            self.make_bad(device, page);
        }
    }

    fn make_bad(&mut self, device: usize, page: u64) {
        self.fresh.clear();
        let mut bytes = [0; PAGE_BYTES];
        self.world.disks[device].peek(page, &mut bytes);
        self.world.truth.hurt(device, page, &bytes, Wound::Decayed);
        self.world.disks[device].add_bad_sector(page * 8 + self.rng.below(8));
        self.damaged = true;
    }

    /// Parts of the volume decay on the devices, while nobody looks: a bit flips, or a sector cannot be read.
    pub(super) fn decay(&mut self, count: u32, rather_payload: bool) {
        for _ in 0..count {
            let Some(anatomy) = self.anatomy() else { return };
            let Some((part, device, page)) = self.aim_decay(&anatomy, rather_payload) else { continue };
            if self.rng.one_in(2) {
                self.make_bad(device, page);
            } else if !self.flip_bit(part, device, page) {
                continue;
            }
            self.stats.count(part.name());
        }
    }

    /// The newer copy of a superblock, where an interrupted raise left two that differ: what the other one has to do without.
    fn newer_superblock(&self, anatomy: &Anatomy) -> Option<(usize, u64)> {
        let copies = self.superblocks(anatomy);
        let pair = copies.chunks(2).find(|pair| pair[0].2 != pair[1].2)?;
        pair.iter().max_by_key(|copy| copy.2).map(|(device, page, _)| (*device, *page))
    }

    /// After a crash while the generation was raised.
    pub(super) fn hurt_newer_superblock(&mut self) {
        let Some(anatomy) = self.anatomy() else { return };
        if let Some((device, page)) = self.newer_superblock(&anatomy).filter(|_| self.rng.one_in(3)) {
            self.stats.count("superblocks differ");
            self.make_bad(device, page);
        }
    }

    fn aim_decay(&mut self, anatomy: &Anatomy, rather_payload: bool) -> Option<(Part, usize, u64)> {
        if let Some((device, page)) = self.newer_superblock(anatomy).filter(|_| self.rng.one_in(2)) {
            self.stats.count("superblocks differ");
            return Some((Part::Superblock, device, page));
        }
        if let Some(page) = self.claimed_elsewhere(anatomy).filter(|_| self.rng.one_in(2)) {
            self.stats.count("payload claimed elsewhere");
            return Some((Part::Payload, 0, page));
        }
        let weights = Part::TARGETS.map(|(_, weight)| weight);
        let drawn = Part::TARGETS[self.rng.weighted(&weights)].0;
        let part = if rather_payload && !self.rng.one_in(4) { Part::Payload } else { drawn };
        if part == Part::Superblock {
            let (device, page, _) = self.rng.pick(&self.superblocks(anatomy));
            return Some((part, device, page));
        }
        let pages = anatomy.pages_of(&self.world.disks[0], part);
        (!pages.is_empty()).then(|| (part, 0, self.rng.pick(&pages)))
    }

    /// Payload of a group that is durable, which only segments behind the next one say.
    fn claimed_elsewhere(&mut self, anatomy: &Anatomy) -> Option<u64> {
        let known = self.known_durable(anatomy);
        let groups: Vec<_> =
            anatomy.groups.iter().filter(|g| g.seq <= known && g.seq > g.claimed_near).collect();
        let pages = (!groups.is_empty()).then(|| self.rng.pick(&groups))?.payload.clone();
        (pages.start < pages.end).then(|| pages.start + self.rng.below(pages.end - pages.start))
    }

    /// Where the superblocks are, in pairs: device, page, and the generation that each names.
    fn superblocks(&self, anatomy: &Anatomy) -> Vec<(usize, u64, u64)> {
        let mut bytes = [0; PAGE_BYTES];
        let mut copies = Vec::new();
        for (device, pages) in [anatomy.superblocks(0), anatomy.superblocks(1)].into_iter().enumerate() {
            for page in pages {
                self.world.disks[device].peek(page, &mut bytes);
                let generation = match Superblock::decode(&bytes, page * PAGE) {
                    Found::Valid(superblock) => superblock.generation.0,
                    Found::Newer(_) | Found::Nothing => 0,
                };
                copies.push((device, page, generation));
            }
        }
        copies
    }

    /// In a fast slot nothing tells: what the block reads from then on is what the model is told. False: it cannot be told
    /// which block of the volume that would be, and nothing is done.
    fn flip_bit(&mut self, part: Part, device: usize, page: u64) -> bool {
        let mut bytes = [0; PAGE_BYTES];
        let disk = &mut self.world.disks[device];
        disk.peek(page, &mut bytes);
        let at = self.rng.below(PAGE_BYTES as u64) as usize;
        let mut rotten = bytes;
        rotten[at] ^= 1 << self.rng.below(8);
        if part == Part::Slot {
            let start = at / SECTOR * SECTOR;
            let Some(sector) = self.model.sector_of(&bytes[start..start + SECTOR]) else { return false };
            if sector % 8 != (start / SECTOR) as u64 {
                return false;
            }
            self.model.decayed(sector, rotten[start..start + SECTOR].try_into().expect("a sector"));
            self.unverified[(sector * SECTOR as u64 / UNIT) as usize] = true;
        }
        self.world.truth.hurt(device, page, &bytes, Wound::Decayed);
        disk.put_back(page, &rotten);
        self.fresh.clear();
        self.damaged = true;
        true
    }

    /// Some page of metadata is as it was when the life before ended. False: none was written since.
    fn lose_write(&mut self) -> bool {
        let disk = &mut self.world.disks[0];
        let mut now = vec![0; PAGE_BYTES];
        self.earlier.retain(|(page, old)| disk.peek(*page, &mut now) && now != *old);
        if self.earlier.is_empty() {
            return false;
        }
        let (page, old) = &self.earlier[self.rng.below(self.earlier.len() as u64) as usize];
        disk.peek(*page, &mut now);
        self.world.truth.hurt(0, *page, &now, Wound::Lost);
        disk.put_back(*page, old);
        self.damaged = true;
        self.stats.count("lost-write");
        true
    }

    /// Notes what pages of metadata hold.
    pub(super) fn remember_metadata(&mut self) {
        self.earlier.clear();
        if !self.plan.latent {
            return;
        }
        let disk = &self.world.disks[0];
        let mut bytes = vec![0; PAGE_BYTES];
        for page in 0..disk.size_bytes() / PAGE_BYTES as u64 {
            if disk.peek(page, &mut bytes) && bytes.starts_with(PAGE_MAGIC) {
                self.earlier.push((page, bytes.clone()));
            }
        }
    }
}
