//! Where a sector lies: zones, tracks, skews, spares and slipped sectors.

use super::params::{DiskParams, Serpentine, Spares, ZoneParams};

/// A track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
}

/// Where a sector lies, and how far the same track goes on without a break.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) track: Track,
    /// Sector's number on the track.
    pub(crate) sector: u32,
    /// Sectors on the track, defects and spares too.
    pub(crate) sectors: u32,
    /// Addresses from here on that lie one behind the other on this track; at least 1.
    pub(crate) run: u32,
    /// Angle of the track's sector 0, in nanoseconds of rotation.
    pub(crate) track_angle: u32,
}

/// A place where addresses jump over defects.
#[derive(Clone, Copy, Debug)]
struct Slip {
    /// First address in the zone (its gap included) that is moved by it.
    from: u64,
    /// The group of spares that it uses; moves only addresses of this group, unless slips move all to the zone's end.
    group: u64,
    /// By how many sectors.
    by: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    first_lbn: u64,
    end_lbn: u64,
    first_cylinder: u32,
    sectors: u32,
    /// Sectors, those without an address too.
    total: u64,
    /// Sectors without an address before the first.
    gap: u64,
    /// Sectors in a group of tracks that shares spares, and addresses in it.
    group_sectors: u64,
    group_lbns: u64,
    /// Spares before the addresses of a group.
    front: u64,
    slips: Box<[Slip]>,
    slips_to_end: bool,
    /// Where slipped sectors push the skew on: the first, how many, and how many before; else empty.
    pushing: Box<[(u64, u64, u64)]>,
    pushing_by_cylinder: bool,
    /// In thousandths of a sector.
    origin: u64,
    track_skew: u64,
    cylinder_skew: u64,
}

/// Maps sectors to places.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    zones: Box<[Zone]>,
    surfaces: u32,
    serpentine: Serpentine,
    period: u32,
    cylinders: u32,
}

impl Layout {
    /// The layout of validated parameters.
    pub(crate) fn new(params: &DiskParams) -> Layout {
        let mut first_lbn = 0;
        let mut zones = Vec::with_capacity(params.zones.len());
        for zone in &params.zones {
            let zone = Zone::new(zone, params, first_lbn);
            first_lbn = zone.end_lbn;
            zones.push(zone);
        }
        let cylinders = params.zones.iter().map(|zone| zone.first_cylinder + zone.cylinders).max();
        Layout {
            zones: zones.into(),
            surfaces: params.surfaces,
            serpentine: params.serpentine,
            period: params.rotation_period_ns,
            cylinders: cylinders.unwrap_or(1),
        }
    }

    /// Sectors that have an address.
    pub(crate) fn sectors(&self) -> u64 {
        self.zones.last().map_or(0, |zone| zone.end_lbn)
    }

    /// One more than the highest cylinder.
    pub(crate) fn cylinders(&self) -> u32 {
        self.cylinders
    }

    /// Where a sector of the disk lies.
    pub(crate) fn place(&self, lbn: u64) -> Place {
        let number = self.zones.partition_point(|zone| zone.end_lbn <= lbn);
        let zone = &self.zones[number];
        let (physical, group_run) = zone.physical(lbn);
        let per_track = u64::from(zone.sectors);
        let (track_number, sector) = (physical / per_track, (physical % per_track) as u32);
        let cylinder = (track_number / u64::from(self.surfaces)) as u32;
        let mut head = (track_number % u64::from(self.surfaces)) as u32;
        // Skews count heads in the order of the addresses, whichever way the arm goes through them.
        let skew = self.skew(zone, cylinder, head, track_number);
        let backwards = match self.serpentine {
            Serpentine::None => false,
            Serpentine::ByZone => cylinder % 2 == 1,
            Serpentine::ByCylinder => (zone.first_cylinder + cylinder) % 2 == 1,
        };
        if backwards {
            head = self.surfaces - 1 - head;
        }
        let run = group_run.min(per_track - u64::from(sector)).min(zone.end_lbn - lbn);
        Place {
            track: Track { cylinder: zone.first_cylinder + cylinder, head },
            sector,
            sectors: zone.sectors,
            run: run as u32,
            track_angle: skew,
        }
    }

    /// Angle of sector 0 of a track, in nanoseconds of rotation.
    fn skew(&self, zone: &Zone, cylinder: u32, head: u32, track: u64) -> u32 {
        let switches = u64::from(head) + u64::from(self.surfaces - 1) * u64::from(cylinder);
        let mut thousandths =
            zone.origin + switches * zone.track_skew + u64::from(cylinder) * zone.cylinder_skew;
        if !zone.pushing.is_empty() {
            let unit =
                if zone.pushing_by_cylinder { track - track % u64::from(self.surfaces) } else { track };
            let before = unit * u64::from(zone.sectors);
            let known = zone.pushing.partition_point(|&(first, _, _)| first < before);
            if let Some(&(first, count, earlier)) = known.checked_sub(1).map(|last| &zone.pushing[last]) {
                thousandths += 1000 * (earlier + count.min(before - first));
            }
        }
        let turn = 1000 * u64::from(zone.sectors);
        ((thousandths % turn) * u64::from(self.period) / turn) as u32
    }
}

impl Zone {
    fn new(zone: &ZoneParams, params: &DiskParams, first_lbn: u64) -> Zone {
        let per_track = u64::from(zone.sectors_per_track);
        let total = zone.total_sectors(params.surfaces);
        let spares = u64::from(zone.spare_sectors);
        let group_sectors = match zone.spares {
            Spares::None | Spares::Zone => total,
            Spares::Track => per_track,
            Spares::Cylinders => {
                per_track * u64::from(params.surfaces) * u64::from(zone.spare_group_cylinders)
            }
        };
        let grouped = matches!(zone.spares, Spares::Track | Spares::Cylinders);
        let group_lbns = if grouped { group_sectors - spares } else { total };
        let front = if grouped && zone.spares_at_front { spares } else { 0 };
        let mut built = Zone {
            first_lbn,
            end_lbn: first_lbn + zone.addresses(params.surfaces),
            first_cylinder: zone.first_cylinder,
            sectors: zone.sectors_per_track,
            total,
            gap: u64::from(zone.gap_sectors),
            group_sectors,
            group_lbns,
            front,
            slips: Box::default(),
            slips_to_end: zone.slips_to_end || !grouped,
            pushing: Box::default(),
            pushing_by_cylinder: zone.spares != Spares::Track,
            origin: thousandths(zone.first_sector_angle_sectors),
            track_skew: thousandths(zone.track_skew_sectors),
            cylinder_skew: thousandths(zone.cylinder_skew_sectors),
        };
        built.slips = built.slip_table(&zone.slips);
        if zone.slips_push_skew {
            let mut earlier = 0;
            let push = |&(first, count): &(u64, u32)| {
                earlier += u64::from(count);
                (first, u64::from(count), earlier - u64::from(count))
            };
            built.pushing = zone.slips.iter().map(push).collect();
        }
        built
    }

    /// At which addresses the jumps over the slipped sectors (first, count; sorted) take place.
    fn slip_table(&self, slips: &[(u64, u32)]) -> Box<[Slip]> {
        let mut table: Vec<Slip> = Vec::with_capacity(slips.len());
        for &(first, count) in slips {
            let group = first / self.group_sectors;
            let within = (first % self.group_sectors).saturating_sub(self.front);
            let before = match table.last() {
                Some(last) if self.slips_to_end || last.group == group => last.by,
                _ => 0,
            };
            // A slip among the spares moves no address of its group.
            let end = (group + 1) * self.group_lbns;
            let place = if self.slips_to_end { within.min(self.group_lbns) } else { within };
            let from = (group * self.group_lbns + place).saturating_sub(before).min(end);
            table.push(Slip { from, group, by: before + u64::from(count) });
        }
        table.into()
    }

    /// The sector's number in the zone, counting everything, and addresses from it on without a jump.
    fn physical(&self, lbn: u64) -> (u64, u64) {
        let mut address = lbn - self.first_lbn + self.gap;
        let next = self.slips.partition_point(|slip| slip.from <= address);
        let to_jump = self.slips.get(next).map_or(u64::MAX, |slip| slip.from - address);
        let by = match next.checked_sub(1).map(|last| self.slips[last]) {
            Some(last) if self.slips_to_end || last.group == address / self.group_lbns => last.by,
            _ => 0,
        };
        if self.slips_to_end {
            address += by;
        }
        let (group, within) = (address / self.group_lbns, address % self.group_lbns);
        let shift = if self.slips_to_end { 0 } else { by };
        let physical = group * self.group_sectors + (self.front + within + shift).min(self.group_sectors - 1);
        (physical.min(self.total - 1), to_jump.min(self.group_lbns - within))
    }
}

/// Sectors in thousandths; bounded by validation.
fn thousandths(sectors: f64) -> u64 {
    (sectors * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::{Layout, Place};
    use crate::disk::params::{DiskParams, Serpentine, Spares, ZoneParams};
    use crate::disk::tests::small;
    use std::collections::BTreeSet;

    fn layout(change: impl Fn(&mut ZoneParams)) -> (DiskParams, Layout) {
        let mut params = small();
        params.zones.iter_mut().for_each(change);
        params.validate().expect("good parameters");
        let layout = Layout::new(&params);
        (params, layout)
    }

    /// Every address has a place of its own, within its zone; runs lead to the places that follow.
    fn is_sound(params: &DiskParams, layout: &Layout) {
        let mut seen = BTreeSet::new();
        let mut previous: Option<Place> = None;
        for lbn in 0..layout.sectors() {
            let place = layout.place(lbn);
            assert!(place.track.cylinder < layout.cylinders() && place.track.head < params.surfaces);
            assert!(place.sector + place.run <= place.sectors);
            assert!(seen.insert((place.track.cylinder, place.track.head, place.sector)), "{lbn}: {place:?}");
            if let Some(before) = previous.filter(|before| before.run > 1) {
                assert_eq!((place.track, place.sector), (before.track, before.sector + 1), "{lbn}");
                assert_eq!(place.run, before.run - 1, "{lbn}");
            }
            previous = Some(place);
        }
    }

    #[test]
    fn every_way_of_sparing_gives_every_address_a_place_of_its_own() {
        let slips = vec![(3, 1), (17, 2), (40, 1), (41, 1), (130, 1)];
        for spares in [Spares::None, Spares::Track, Spares::Cylinders, Spares::Zone] {
            for flags in 0..8 {
                let (params, layout) = layout(|zone| {
                    zone.spares = spares;
                    zone.spare_sectors = if spares == Spares::None { 0 } else { 8 };
                    // Slips are counted upwards; spares before them are of no use to them.
                    zone.slips = if flags & 2 > 0 { Vec::new() } else { slips.clone() };
                    zone.slips_to_end = flags & 1 > 0 || spares == Spares::None;
                    zone.spares_at_front = flags & 2 > 0;
                    zone.gap_sectors = if flags & 4 > 0 { 5 } else { 0 };
                });
                is_sound(&params, &layout);
            }
        }
    }

    #[test]
    fn heads_go_back_and_forth_where_the_layout_says_so() {
        let mut params = small();
        params.serpentine = Serpentine::ByZone;
        let layout = Layout::new(&params);
        is_sound(&params, &layout);
        let heads: Vec<u32> = (0..8).map(|track| layout.place(track * 20).track.head).collect();
        assert_eq!(heads, [0, 1, 2, 2, 1, 0, 0, 1]);
    }

    #[test]
    fn tracks_and_cylinders_begin_later_by_their_skews() {
        let (params, layout) = layout(|zone| {
            zone.track_skew_sectors = 3.0;
            zone.cylinder_skew_sectors = 5.5;
        });
        let sector = u64::from(params.rotation_period_ns) / 20;
        let angle = |track: u64| u64::from(layout.place(track * 20).track_angle);
        assert_eq!(angle(0), 0);
        assert_eq!(angle(1), 3 * sector);
        assert_eq!(angle(2), 6 * sector);
        assert_eq!(angle(3), 6 * sector + sector * 11 / 2);
        // Six cylinders on it has come round.
        let turned = (36 * 1000 + 33 * 1000) % 20_000;
        assert_eq!(angle(18), sector * turned / 1000);
    }

    #[test]
    fn a_slip_moves_what_follows() {
        let (_, layout) = layout(|zone| {
            zone.spares = Spares::Zone;
            zone.spare_sectors = 4;
            zone.slips = vec![(10, 1)];
        });
        assert_eq!((layout.place(9).sector, layout.place(9).run), (9, 1));
        assert_eq!((layout.place(10).sector, layout.place(10).run), (11, 9));
        assert_eq!(layout.place(19).sector, 0);
    }
}
