//! Bounds of the parameters: whatever passes here cannot overflow or run for long.

use super::{DiskParams, Spares, ZoneParams};
use crate::spec::SpecError;
use std::ops::RangeInclusive;

/// Zones at most.
pub(crate) const MAX_ZONES: usize = 4096;
/// Points of a seek curve at most.
pub(crate) const MAX_SEEK_POINTS: usize = 100_000;
/// Slipped sectors of a zone at most.
pub(crate) const MAX_SLIPS: usize = 100_000;
/// Cylinders at most.
pub(crate) const MAX_CYLINDERS: u32 = 4_000_000;
/// A second: nothing that a drive does by itself takes longer.
const SECOND: u64 = 1_000_000_000;

fn within<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), SpecError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(SpecError::Disk(format!("{what} is {value}, not {} to {}", range.start(), range.end())))
}

fn refuse(text: String) -> Result<(), SpecError> {
    Err(SpecError::Disk(text))
}

impl DiskParams {
    /// Whether all values are within their bounds and fit each other.
    ///
    /// # Errors
    /// One sentence that names the value.
    pub(crate) fn validate(&self) -> Result<(), SpecError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 100 || !self.name.chars().all(plain) {
            return refuse(format!("name {:?} is not 1 to 100 of a-z, 0-9, -, _ and .", self.name));
        }
        if !matches!(self.sector_bytes, 512 | 4096) {
            return refuse(format!("sector_bytes is {}, not 512 or 4096", self.sector_bytes));
        }
        within("surfaces", self.surfaces, 1..=64)?;
        within("rotation_period_ns", self.rotation_period_ns, 1_000_000..=100_000_000)?;
        within("spindle_phase_ns", self.spindle_phase_ns, 0..=self.rotation_period_ns - 1)?;
        self.check_arm()?;
        self.check_overheads()?;
        self.check_queue()?;
        self.check_zones()
    }

    fn check_arm(&self) -> Result<(), SpecError> {
        within("the number of points in seek_ns", self.arm.seek_ns.len(), 1..=MAX_SEEK_POINTS)?;
        let mut last = 0;
        for &(distance, time) in &self.arm.seek_ns {
            if distance <= last {
                return refuse(format!("seek_ns: distance {distance} does not come after {last}"));
            }
            within("seek_ns: a distance", distance, 1..=MAX_CYLINDERS)?;
            within("seek_ns: a time", time, 0..=SECOND as u32)?;
            last = distance;
        }
        within("head_switch_ns", self.arm.head_switch_ns, 0..=SECOND as u32)?;
        within("write_settle_ns", self.arm.write_settle_ns, -(SECOND as i32)..=SECOND as i32)?;
        within("least_read_seek_ns", self.arm.least_read_seek_ns, 0..=SECOND as u32)?;
        within("least_write_seek_ns", self.arm.least_write_seek_ns, 0..=SECOND as u32)
    }

    fn check_overheads(&self) -> Result<(), SpecError> {
        let costs = &self.overheads;
        within("bus_ns_per_sector", costs.bus_ns_per_sector, 0..=100_000_000)?;
        for (name, cost) in [
            ("read_hit_ns", costs.read_hit_ns),
            ("read_miss_ns", costs.read_miss_ns),
            ("cached_write_ns", costs.cached_write_ns),
            ("write_ns", costs.write_ns),
        ] {
            within(name, cost.after_read, 0..=SECOND as u32)?;
            within(name, cost.after_write, 0..=SECOND as u32)?;
        }
        within("read_completion_ns", costs.read_completion_ns, 0..=SECOND as u32)?;
        within("write_completion_ns", costs.write_completion_ns, 0..=SECOND as u32)?;
        within("transfer_preparation_ns", costs.transfer_preparation_ns, 0..=SECOND as u32)?;
        within("reconnection_ns", costs.reconnection_ns, 0..=SECOND as u32)?;
        within("scattered_write_ns", costs.scattered_write_ns, 0..=SECOND as u32)?;
        within("read_watermark_permille", costs.read_watermark_permille, 0..=1000)
    }

    fn check_queue(&self) -> Result<(), SpecError> {
        within("queue depth", self.queue.depth, 1..=256)?;
        within("queue window", self.queue.window, 1..=256)?;
        within("margin_ns", self.queue.margin_ns, 0..=self.rotation_period_ns)?;
        within("oldest_first_after_ns", self.queue.oldest_first_after_ns, 0..=1000 * SECOND)?;
        within("buffer segments", self.buffer.segments, 0..=256)?;
        within("segment_sectors", self.buffer.segment_sectors, 1..=1 << 22)?;
        within("read_ahead_sectors", self.buffer.read_ahead_sectors, 0..=1 << 22)?;
        within("write cache entries", self.write_cache.entries, 0..=512)?;
        within("entry_sectors", self.write_cache.entry_sectors, 1..=1 << 22)?;
        within("delay_ns", self.write_cache.delay_ns, 0..=1000 * SECOND)
    }

    fn check_zones(&self) -> Result<(), SpecError> {
        within("the number of zones", self.zones.len(), 1..=MAX_ZONES)?;
        let mut next_cylinder = 0;
        for (number, zone) in self.zones.iter().enumerate() {
            if let Err(SpecError::Disk(text)) = zone.validate(self.surfaces, next_cylinder) {
                return refuse(format!("zone {number}: {text}"));
            }
            next_cylinder = zone.first_cylinder + zone.cylinders;
        }
        let bytes = self.zoned_bytes();
        if self.size_bytes > bytes || !self.size_bytes.is_multiple_of(u64::from(self.sector_bytes)) {
            return refuse(format!("size_bytes is {}, not whole sectors of {bytes}", self.size_bytes));
        }
        Ok(())
    }
}

impl ZoneParams {
    fn validate(&self, surfaces: u32, next_cylinder: u32) -> Result<(), SpecError> {
        within("first_cylinder", self.first_cylinder, next_cylinder..=MAX_CYLINDERS - 1)?;
        within("cylinders", self.cylinders, 1..=MAX_CYLINDERS - self.first_cylinder)?;
        within("sectors_per_track", self.sectors_per_track, 1..=100_000)?;
        let skew = 0.0..=1_000_000.0;
        within("track_skew_sectors", self.track_skew_sectors, skew.clone())?;
        within("cylinder_skew_sectors", self.cylinder_skew_sectors, skew.clone())?;
        within("first_sector_angle_sectors", self.first_sector_angle_sectors, skew)?;
        within("spare_group_cylinders", self.spare_group_cylinders, 1..=self.cylinders)?;
        let track = u64::from(self.sectors_per_track);
        let total = self.total_sectors(surfaces);
        let group = match self.spares {
            Spares::None | Spares::Zone => total,
            Spares::Track => track,
            Spares::Cylinders => track * u64::from(surfaces) * u64::from(self.spare_group_cylinders),
        };
        if u64::from(self.spare_sectors) >= group {
            return refuse(format!("spare_sectors is {}, not below {group}", self.spare_sectors));
        }
        self.check_slips(total)?;
        if self.addresses(surfaces) == 0 {
            return refuse("it has no addresses left".to_owned());
        }
        Ok(())
    }

    fn check_slips(&self, total: u64) -> Result<(), SpecError> {
        within("the number of slips", self.slips.len(), 0..=MAX_SLIPS)?;
        let mut next = 0;
        for &(first, count) in &self.slips {
            if first < next {
                return refuse(format!("slips: sector {first} does not come after the one before it"));
            }
            within("slips: a sector", first, 0..=total - 1)?;
            // Bounded, so that listing them costs little.
            within("slips: a count", count, 1..=100_000)?;
            next = first + u64::from(count);
        }
        let slipped: u64 = self.slips.iter().map(|&(_, count)| u64::from(count)).sum();
        within("the number of slipped sectors", slipped, 0..=(total / 2).min(10_000_000))
    }
}
