//! What the tables and caches of a volume take, as far as it is known before it is opened.

use crate::api::options::Tuning;
use crate::api::why;
use crate::base::bits;
use crate::format::geometry::Geometry;
use crate::placement::policy;
use crate::volume::cells;
use crate::volume::landed::{self, most_zone_areas, parts_may_share};
use crate::volume::live_sums;
use crate::volume::marks;
use crate::volume::pages;
use crate::volume::regions;
use crate::volume::shadows;
use crate::volume::sums::RECENT_BYTES;
use bimetal_units::*;

/// The most that the tables and caches of a volume take once it is open: what [`Status::ram_bytes`](crate::options::Status::ram_bytes) can come to.
pub fn ram_bytes_at_most(geo: &Geometry, tuning: &Tuning) -> u64 {
    let caches = tuning.recent_checksums as u64 * RECENT_BYTES
        + tuning.checksum_cache_pages as u64 * u64::from(BLOCK_BYTES);
    tables_bytes(geo, tuning)
        + caches
        + live_sums::ram_bytes_at_most(
            tuning.fast_checksum_bytes,
            u64::from(geo.slots(FAST)),
            geo.blocks_per_chunk(),
        )
        + regions::masks_ram_bytes_at_most(geo.fast_sum_pages)
        + cells::ram_bytes_at_most(u64::from(geo.slots_of_areas()), geo.blocks_per_chunk())
        + why::RAM_BYTES
}

/// What the tables of the landing zone's own areas take at most: the least of [`Tuning::landing_ram_bytes`] that counts.
pub fn landing_ram_bytes_least(geo: &Geometry) -> u64 {
    landed::ram_bytes(u64::from(geo.zone_areas()) * u64::from(geo.area_blocks()))
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
    let marks = geo.marks().map_or(0, |layout| marks::ram_bytes(&layout, chunks) + bits::ram_bytes(slow));
    map + landed
        + marks
        + slots
        + shadows::ram_bytes(fast)
        + policy::benefit::ram_bytes(fast)
        + policy::ram_bytes(chunks)
        + pages::ram_bytes(geo.pages())
        + regions::ram_bytes(geo.fast_sum_pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::economy::Economy;
    use crate::api::options::{CreateOptions, DeviceInfo};
    use crate::placement::policy::{Benefit, HeatPolicy, Policy as _};
    use crate::volume::map::Map;
    use crate::volume::pages::Pages;
    use crate::volume::regions::Regions;
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
                + Pages::new(geo.pages()).ram_bytes()
                + Regions::new(&geo).ram_bytes();
            assert_eq!(tables_bytes(&geo, &Tuning::default()), made);
            let small = Tuning { landing_ram_bytes: 0, ..Tuning::default() };
            assert_eq!(most_zone_areas(&geo, &small), geo.zone_areas());
            assert!(tables_bytes(&geo, &small) < made);
        }
    }
}
