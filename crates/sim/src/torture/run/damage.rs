//! What happens to devices while nobody looks.

use super::Run;
use crate::disk::PAGE_BYTES;

/// The beginning of every page of map, checksums, directory and root.
const PAGE_MAGIC: &[u8] = b"BMTLpage";

impl Run<'_> {
    /// Damages what was written: sectors go bad anywhere; bits rot on the slow tier, whose data has checksums; on the
    /// fast one writes of metadata were lost, although they were acknowledged and flushed.
    pub(super) fn spoil(&mut self, count: u32) {
        for _ in 0..count {
            let device = self.rng.below(2) as usize;
            if device == 0 && self.rng.one_in(2) && self.lose_write() {
                continue;
            }
            let disk = &mut self.world.disks[device];
            let Some(page) = disk.written_page(&mut self.rng) else { continue };
            self.damaged = true;
            if device == 1 && self.rng.one_in(2) {
                disk.rot(page, &mut self.rng);
                self.stats.count("bit-rot");
            } else {
                disk.add_bad_sector(page * 8 + self.rng.below(8));
                self.stats.count("bad-sector");
            }
        }
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
