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
        let physical =
            group * self.group_sectors + (self.front + within + shift).min(self.group_sectors - 1);
        (physical.min(self.total - 1), to_jump.min(self.group_lbns - within))
    }
}

/// Sectors in thousandths; bounded by validation.
fn thousandths(sectors: f64) -> u64 {
    (sectors * 1000.0).round() as u64
}
