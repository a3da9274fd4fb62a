//! Counters, and the status made of them.

use crate::api::options::{Status, TierStatus, Tuning};
use crate::api::why;
use crate::base::arena::Arena;
use crate::engine::Engine;
use crate::format::geometry::Geometry;
use crate::placement::policy;
use crate::volume::cells;
use crate::volume::landed;
use crate::volume::pages;
use crate::volume::shadows;
use crate::volume::sums::RECENT_BYTES;
use bimetal_units::*;

/// Counters since open.
#[derive(Default)]
pub struct Stats {
    /// Client bytes read, by the tier that served them.
    pub read_bytes: ByTier<u64>,
    /// Client bytes written, by the tier that took them.
    pub written_bytes: ByTier<u64>,
    /// Bytes appended to the log.
    pub log_bytes: u64,
    /// Client payload among them.
    pub log_payload: u64,
    /// Chunks moved up.
    pub promoted: u64,
    /// Chunks moved down.
    pub demoted: u64,
    /// Landed blocks merged into homes.
    pub destaged: u64,
    /// When the last promotion ended.
    pub last_promotion: Option<Nanos>,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Client flushes answered.
    pub client_flushes: u64,
    /// Whether the volume was recovered when it was opened.
    pub recovered: bool,
}

/// The most that the tables and caches of a volume take once it is open: what [`Status::ram_bytes`] can come to.
pub fn ram_bytes_at_most(geo: &Geometry, tuning: &Tuning) -> u64 {
    let caches = tuning.recent_checksums as u64 * RECENT_BYTES
        + tuning.checksum_cache_pages as u64 * u64::from(BLOCK_BYTES);
    tables_bytes(geo, tuning)
        + caches
        + cells::ram_bytes_at_most(u64::from(geo.slots_of_areas()), geo.blocks_per_chunk())
        + why::RAM_BYTES
}

/// What the tables of the landing zone's own areas take at most: the least of [`Tuning::landing_ram_bytes`] that counts.
pub fn landing_ram_bytes_least(geo: &Geometry) -> u64 {
    landed::ram_bytes(u64::from(geo.zone_areas()) * u64::from(geo.area_blocks()))
}

/// Areas that the landing zone may have with as much RAM as its tables may take; its own are those at least.
pub(crate) fn most_zone_areas(geo: &Geometry, tuning: &Tuning) -> u32 {
    let area_bytes = landed::ram_bytes(u64::from(geo.area_blocks()) << 10) >> 10;
    let areas = u32::try_from(tuning.landing_ram_bytes / area_bytes).unwrap_or(u32::MAX);
    areas.clamp(geo.zone_areas(), geo.most_zone_areas())
}

/// Whether parts of two blocks may share one of the log: where the zone has as many areas as it may ever have, and there is
/// memory left for that.
pub(crate) fn parts_may_share(geo: &Geometry, tuning: &Tuning) -> bool {
    let blocks = u64::from(geo.most_zone_areas()) * u64::from(geo.area_blocks());
    landed::ram_bytes(blocks) + landed::sharing_ram_bytes(blocks) <= tuning.landing_ram_bytes
}

/// What is allocated when a volume is opened, and stays.
fn tables_bytes(geo: &Geometry, tuning: &Tuning) -> u64 {
    let chunks = u64::from(geo.chunks);
    let map = chunks * (8 + 4 * geo.mask_words() as u64) + u64::from(geo.map_pages.div_ceil(64)) * 8;
    let zone_blocks = u64::from(most_zone_areas(geo, tuning)) * u64::from(geo.area_blocks());
    let sharing = if parts_may_share(geo, tuning) { landed::sharing_ram_bytes(zone_blocks) } else { 0 };
    let landed = landed::ram_bytes(zone_blocks) + sharing;
    let (fast, slow) = (u64::from(geo.slots(FAST)), u64::from(geo.slots(SLOW)));
    let slots = (fast.div_ceil(64) + slow.div_ceil(64)) * 8 + fast * 4;
    map + landed
        + slots
        + shadows::ram_bytes(fast)
        + policy::benefit::ram_bytes(fast)
        + policy::ram_bytes(chunks)
        + pages::ram_bytes(geo.pages())
}

impl<A: Arena> Engine<A> {
    /// The volume at a glance.
    pub fn status(&self) -> Status {
        let geo = &self.state.geo;
        let s = &self.told.stats;
        let chunk = u64::from(geo.chunk_bytes);
        let tiers = [FAST, SLOW].map(|tier| {
            let slots = &self.space.slots[tier];
            TierStatus {
                device: self.told.names[tier].clone(),
                size_bytes: u64::from(slots.count()) * chunk,
                used_bytes: u64::from(slots.count() - slots.free()) * chunk,
                read_bytes: s.read_bytes[tier],
                written_bytes: s.written_bytes[tier],
                device_written_bytes: self.io.written_bytes(tier),
                flushes: self.io.flushers[tier].count,
                silent_since: self.io.tokens.silent_since(tier),
                wakeups: self.io.tokens.wakeups(tier),
                pinned_bytes: self.placement.pins.list().chunks_on(tier) * chunk,
            }
        });
        let stopping = self.life.shutdown.began();
        Status {
            volume_id: self.life.superblock.volume,
            state: if self.life.is_read_only() {
                "read-only"
            } else if stopping {
                "stopping"
            } else {
                "open"
            },
            generation: self.life.superblock.generation.0,
            recovered: s.recovered,
            size_bytes: self.size_bytes(),
            chunk_bytes: geo.chunk_bytes,
            tiers: tiers.into(),
            landing_size_bytes: u64::from(self.state.zone.len()) * u64::from(geo.area_bytes),
            landing_used_bytes: self.state.zone.used_bytes(),
            landed_bytes: u64::from(self.state.landed.len()) * u64::from(BLOCK_BYTES),
            log_written_bytes: s.log_bytes,
            log_payload_bytes: s.log_payload,
            promoted_chunks: s.promoted,
            demoted_chunks: s.demoted,
            destaged_blocks: s.destaged,
            last_promotion: s.last_promotion,
            checkpoints: s.checkpoints,
            client_flushes: s.client_flushes,
            shadowed_bytes: self.space.shadows.len() as u64 * chunk,
            shadow_demoted_chunks: self.space.shadows.used,
            copied_bytes: self.mover.copies.bytes(),
            copy_read_bytes: self.mover.copies.read_bytes,
            wear: self.wear_status(),
            audit: self.placement.benefit.audit(self.yields().write_ns),
            timed_wakeups_per_day: self.tuning.timed_wakeups_per_day(),
            ram_bytes: self.ram_bytes(),
        }
    }

    fn ram_bytes(&self) -> u64 {
        let st = &self.state;
        st.map.ram_bytes()
            + st.landed.ram_bytes()
            + st.sums.ram_bytes()
            + self.space.slots.0.iter().map(|s| s.ram_bytes()).sum::<u64>()
            + self.placement.policy.ram_bytes()
            + why::RAM_BYTES
            + self.checkpoint.ram_bytes()
            + self.mover.copies.ram_bytes()
            + self.space.shadows.ram_bytes()
            + self.placement.benefit.ram_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::economy::Economy;
    use crate::api::options::{CreateOptions, DeviceInfo};
    use crate::placement::policy::{Benefit, HeatPolicy, Policy as _};
    use crate::volume::map::Map;
    use crate::volume::pages::Pages;
    use crate::volume::shadows::Shadows;
    use crate::volume::slots::Slots;

    #[test]
    fn what_the_tables_will_take_is_known_before_they_are_made() {
        for (chunk_bytes, landing, fast, slow) in [
            (64 << 10, 8 << 20, 64 << 20, 256 << 20),
            (128 << 10, 1 << 30, 10 << 30, 100 << 30),
            (4 << 20, 1 << 30, 50 << 30, 4 << 40),
        ] {
            let device = |size_bytes: u64| DeviceInfo { name: String::new(), size_bytes };
            let landing_bytes = Some(landing);
            let options = CreateOptions { chunk_bytes, landing_bytes, ..CreateOptions::new([1; 16]) };
            let geo = Geometry::plan(&[device(fast), device(slow)], &options).expect("a plan");
            let policy = HeatPolicy::new(geo.chunks, geo.slots(FAST), &Tuning::default());
            let made = Map::new(&geo).ram_bytes()
                + landed::ram_bytes(u64::from(geo.most_zone_areas()) * u64::from(geo.area_blocks()))
                + landed::sharing_ram_bytes(u64::from(geo.most_zone_areas()) * u64::from(geo.area_blocks()))
                + Slots::new(geo.slots(FAST), true).ram_bytes()
                + Slots::new(geo.slots(SLOW), false).ram_bytes()
                + Shadows::new(geo.slots(FAST)).ram_bytes()
                + Benefit::new(geo.slots(FAST), &Economy::default()).ram_bytes()
                + policy.ram_bytes()
                + Pages::new(geo.pages()).ram_bytes();
            assert_eq!(tables_bytes(&geo, &Tuning::default()), made);
            let small = Tuning { landing_ram_bytes: 0, ..Tuning::default() };
            assert_eq!(most_zone_areas(&geo, &small), geo.zone_areas());
            assert!(tables_bytes(&geo, &small) < made);
        }
    }
}
