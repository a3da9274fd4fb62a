//! The arm, the heads and the rotation: when a range of sectors has passed the head.
//!
//! The angle of the disk is the time of day, modulo a revolution. All angles are nanoseconds of rotation.

use super::layout::{Layout, Place, Track};
use super::params::DiskParams;
use super::seek::SeekTable;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Write,
}

/// An access to the medium, as it will take place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// When the head has reached the first track.
    pub(crate) arrival: u64,
    /// When the first of its sectors, by address, begins to pass the head.
    pub(crate) first: u64,
    /// When the last one has passed.
    pub(crate) end: u64,
    /// The first sector of the track that has passed the head since the arrival without a break up to the range.
    pub(crate) passed_from: u64,
}

/// Reading ahead: where it has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The next sector.
    pub(crate) lbn: u64,
    /// When it begins to pass the head.
    pub(crate) at: u64,
    /// Where to stop.
    pub(crate) limit: u64,
}

/// A place that an access begins at, worked out once for all choices that it takes part in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) track: Track,
    pub(crate) angle: u32,
}

/// The moving parts.
#[derive(Clone, Debug)]
pub(crate) struct Mechanism {
    pub(crate) layout: Layout,
    seek: SeekTable,
    pub(crate) period: u32,
    phase: u32,
    head_switch: u32,
    write_settle: i32,
    /// Where the arm is.
    pub(crate) track: Track,
}

/// Nanoseconds from the beginning of a track to its sector `sector`.
fn offset(place: &Place, sector: u32, period: u32) -> u64 {
    u64::from(sector) * u64::from(period) / u64::from(place.sectors)
}

impl Mechanism {
    /// The mechanism of validated parameters, its arm at cylinder 0.
    pub(crate) fn new(params: &DiskParams) -> Mechanism {
        let layout = Layout::new(params);
        Mechanism {
            seek: SeekTable::new(&params.arm.seek_ns, layout.cylinders()),
            layout,
            period: params.rotation_period_ns,
            phase: params.spindle_phase_ns,
            head_switch: params.arm.head_switch_ns,
            write_settle: params.arm.write_settle_ns,
            track: Track::default(),
        }
    }

    /// The angle under the heads at a time.
    pub(crate) fn angle(&self, at: u64) -> u32 {
        ((at + u64::from(self.phase)) % u64::from(self.period)) as u32
    }

    /// Nanoseconds from one track to another.
    fn travel(&self, from: Track, to: Track, way: Way) -> u32 {
        if from == to {
            return 0;
        }
        let switch = if from.head == to.head { 0 } else { self.head_switch };
        let arm = self.seek.time(from.cylinder.abs_diff(to.cylinder)).max(switch);
        arm.saturating_add_signed(if way == Way::Write { self.write_settle } else { 0 })
    }

    /// Nanoseconds from one angle on to another.
    fn turn(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.period - from }
    }

    /// The angle at which a place begins.
    fn place_angle(&self, place: &Place) -> u32 {
        let angle = u64::from(place.track_angle) + offset(place, place.sector, self.period);
        (angle % u64::from(self.period)) as u32
    }

    /// What is to be known of a range's beginning for [`Mechanism::positioning`].
    pub(crate) fn target(&self, lbn: u64) -> Target {
        let place = self.layout.place(lbn);
        Target { track: place.track, angle: self.place_angle(&place) }
    }

    /// Nanoseconds from `angle`, where the disk stands, until the head is at the target; a revolution more when
    /// there would be less than `margin` to spare.
    pub(crate) fn positioning(&self, angle: u32, target: &Target, way: Way, margin: u32) -> u32 {
        let travel = self.travel(self.track, target.track, way);
        let mut there = angle + travel % self.period;
        if there >= self.period {
            there -= self.period;
        }
        let latency = self.turn(there, target.angle);
        // The head that stands right before the next sector of the same track misses nothing.
        let late = travel > 0 && latency < margin;
        travel + latency + if late { self.period } else { 0 }
    }

    /// Moves the arm and lets the range pass, from `at` on. With `any_order` a track's part of the range begins with
    /// whichever of its sectors passes first; a write reaches the medium not before `least`.
    pub(crate) fn access(
        &mut self,
        at: u64,
        range: (u64, u64),
        way: Way,
        any_order: bool,
        least: u64,
    ) -> Access {
        let (mut lbn, end) = range;
        let mut access = Access { arrival: at, first: 0, end: at, passed_from: lbn };
        let mut now = at;
        let mut begun = false;
        while lbn < end {
            let place = self.layout.place(lbn);
            let count = u64::from(place.run).min(end - lbn);
            now += u64::from(self.travel(self.track, place.track, way));
            self.track = place.track;
            if !begun {
                access.arrival = now;
                now = now.max(least);
            }
            let latency = u64::from(self.turn(self.angle(now), self.place_angle(&place)));
            let pass = offset(&place, place.sector + count as u32, self.period)
                - offset(&place, place.sector, self.period);
            // Within the range on arrival: the rest of it now, its beginning at the end of the revolution.
            let inside = any_order && latency + pass > u64::from(self.period);
            if !begun {
                begun = true;
                access.first = now + latency;
                // Slipped sectors have no address, so there may be fewer before it.
                access.passed_from = lbn.saturating_sub(self.passed(&place, latency));
            }
            now += if inside { u64::from(self.period) } else { latency + pass };
            lbn += count;
        }
        access.end = now;
        access
    }

    /// Sectors of the same track that pass the head before the place does, in the time until then.
    fn passed(&self, place: &Place, latency: u64) -> u64 {
        let sectors = latency * u64::from(place.sectors) / u64::from(self.period);
        sectors.min(u64::from(place.sector))
    }

    /// Reads ahead until `until`, and moves the arm where that leads.
    pub(crate) fn read_ahead(&mut self, cursor: &mut Cursor, until: u64) {
        while cursor.lbn < cursor.limit && cursor.at < until {
            let place = self.layout.place(cursor.lbn);
            if place.track != self.track {
                let there = cursor.at + u64::from(self.travel(self.track, place.track, Way::Read));
                if there > until {
                    return;
                }
                self.track = place.track;
                cursor.at = there;
            }
            let latency = self.turn(self.angle(cursor.at), self.place_angle(&place));
            let from = cursor.at + u64::from(latency);
            if from >= until {
                return;
            }
            let count = u64::from(place.run).min(cursor.limit - cursor.lbn) as u32;
            let begin = offset(&place, place.sector, self.period);
            let time = |count: u32| offset(&place, place.sector + count, self.period) - begin;
            if from + time(count) <= until {
                cursor.at = from + time(count);
                cursor.lbn += u64::from(count);
                continue;
            }
            let whole = (until - from) * u64::from(place.sectors) / u64::from(self.period);
            let mut whole = whole.min(u64::from(count)) as u32;
            while whole > 0 && from + time(whole) > until {
                whole -= 1;
            }
            cursor.at = from + time(whole);
            cursor.lbn += u64::from(whole);
            return;
        }
    }

    /// When reading ahead will have read the sectors before `lbn`, which it will come to.
    pub(crate) fn read_ahead_reaches(&self, cursor: &Cursor, lbn: u64) -> u64 {
        let mut cursor = *cursor;
        let mut track = self.track;
        while cursor.lbn < lbn {
            let place = self.layout.place(cursor.lbn);
            cursor.at += u64::from(self.travel(track, place.track, Way::Read));
            track = place.track;
            cursor.at += u64::from(self.turn(self.angle(cursor.at), self.place_angle(&place)));
            let count = u64::from(place.run).min(lbn - cursor.lbn);
            cursor.at += offset(&place, place.sector + count as u32, self.period)
                - offset(&place, place.sector, self.period);
            cursor.lbn += count;
        }
        cursor.at
    }

    /// Nanoseconds that a sector takes to pass, where `lbn` lies.
    pub(crate) fn sector_time(&self, lbn: u64) -> u64 {
        u64::from(self.period) / u64::from(self.layout.place(lbn).sectors)
    }

    /// The first address behind the track, or behind the cylinder, that `lbn` lies on.
    pub(crate) fn end_of(&self, lbn: u64, whole_cylinder: bool) -> u64 {
        let first = self.layout.place(lbn).track;
        let mut next = lbn;
        while next < self.layout.sectors() {
            let place = self.layout.place(next);
            let same = place.track.cylinder == first.cylinder && (whole_cylinder || place.track == first);
            if !same {
                break;
            }
            next += u64::from(place.run);
        }
        next.min(self.layout.sectors())
    }
}
