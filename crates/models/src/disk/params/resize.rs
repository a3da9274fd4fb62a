//! The same drive with more or fewer cylinders.

use super::{DiskParams, Spares};
use crate::disk::params::check::MAX_CYLINDERS;

impl DiskParams {
    /// The same drive with another size, in whole sectors: each zone has cylinders in proportion, and a seek over the
    /// same share of the disk takes as long. So the rates at both edges and random accesses over the whole disk stay
    /// what they are; what is so many bytes away is farther on a smaller disk. The buffer stays as it is. A size that
    /// takes more cylinders than a disk may have is refused when it is built.
    #[must_use]
    pub(crate) fn resized(&self, size_bytes: u64) -> DiskParams {
        let sector = u64::from(self.sector_bytes);
        let size_bytes = (size_bytes / sector).max(1) * sector;
        let ratio = size_bytes as f64 / self.bytes().max(1) as f64;
        let mut other = DiskParams { size_bytes, ..self.clone() };
        other.stretch_zones(ratio);
        other.stretch_seeks(ratio);
        other
    }

    fn stretch_zones(&mut self, ratio: f64) {
        let (mut next, mut sum) = (0, 0.0);
        for zone in &mut self.zones {
            // Of the running sum, so that what is rounded does not add up.
            sum += f64::from(zone.cylinders) * ratio;
            let end = (sum.round() as u32).clamp(next + 1, (2 * MAX_CYLINDERS).max(next + 1));
            let cylinders = end - next;
            zone.first_cylinder = next;
            zone.spare_group_cylinders = zone.spare_group_cylinders.min(cylinders);
            if zone.spares == Spares::Zone {
                zone.spare_sectors = scaled(zone.spare_sectors, ratio);
            }
            zone.gap_sectors = scaled(zone.gap_sectors, ratio);
            zone.cylinders = cylinders;
            // Defects as dense as before: those that lie on the cylinders that are left.
            let total = zone.total_sectors(self.surfaces);
            zone.slips.retain(|&(first, count)| first + u64::from(count) <= total);
            next = end;
        }
        // What rounding has taken is put at the inner edge.
        while let Some(missing) =
            self.size_bytes.checked_sub(self.zoned_bytes()).filter(|&missing| missing > 0)
            && let surfaces = self.surfaces
            && let Some(last) = self.zones.last_mut()
            && last.cylinders < MAX_CYLINDERS
        {
            let cylinder = u64::from(surfaces * last.sectors_per_track) * u64::from(self.sector_bytes);
            last.cylinders +=
                u32::try_from(missing.div_ceil(cylinder)).unwrap_or(MAX_CYLINDERS).min(MAX_CYLINDERS);
        }
    }

    fn stretch_seeks(&mut self, ratio: f64) {
        let mut last = 0;
        self.arm.seek_ns.retain_mut(|(distance, _)| {
            // A seek to the next cylinder stays one.
            let stretched = if last == 0 && *distance == 1 { 1 } else { scaled(*distance, ratio).max(1) };
            *distance = stretched;
            let kept = stretched > last;
            last = stretched.max(last);
            kept
        });
    }
}

fn scaled(value: u32, ratio: f64) -> u32 {
    (f64::from(value) * ratio).round() as u32
}
