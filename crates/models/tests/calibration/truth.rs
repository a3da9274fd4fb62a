//! Drives that never were: made by chance, and timed by a few lines that share nothing with the model.
//!
//! A drive goes from sector to sector by the clock, so its times are slow to compute and plain to read. What it
//! measures is written as a trace, and what its data sheet would say as a description, in which much is missing or
//! wrong, as in those that people have.

use std::fmt::Write as _;

/// Numbers by chance (SplitMix64).
#[derive(Clone)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

struct Zone {
    cylinders: u64,
    sectors: u64,
    track_skew: u64,
    cylinder_skew: u64,
}

/// How far a drive reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    None,
    Track,
    Segment,
    /// To the end of the segment, behind the second read of a row.
    InOrder,
}

/// Where a sector is: its cylinder and head, the sectors of its track, and where on it it begins, in turns.
struct Place {
    cylinder: u64,
    head: u64,
    sectors: u64,
    turn: f64,
}

/// A drive. Times are milliseconds.
pub struct Truth {
    surfaces: u64,
    zones: Vec<Zone>,
    turn: f64,
    /// Where the spindle is at time zero, in turns.
    phase: f64,
    seek: [f64; 3],
    head_switch: f64,
    settle: f64,
    bus: f64,
    read_hit: f64,
    read_miss: f64,
    write: f64,
    on_track: f64,
    pub segments: usize,
    pub segment_sectors: u64,
    pub ahead: Ahead,
    pub drops_at_write: bool,
    pub caches_writes: bool,
}

/// Sectors that a drive holds in its buffer: from, to, and behind which the host has read.
struct Segment {
    start: u64,
    end: u64,
    asked_to: u64,
}

/// What a drive is doing.
struct State {
    cylinder: u64,
    head: u64,
    /// The one used last comes last.
    segments: Vec<Segment>,
    /// Reading ahead into the last segment: since when, and up to where.
    ahead: Option<(f64, u64)>,
    /// When what was written last into the cache is on the medium.
    busy_until: f64,
    dirty: Option<(u64, u64)>,
}

/// A request, its time and the gap behind it.
pub struct Request {
    pub write: bool,
    pub sector: u64,
    pub sectors: u64,
    pub milliseconds: f64,
    pub gap: f64,
}

impl Truth {
    pub fn by_chance(chance: &mut Chance) -> Truth {
        let mut sectors = 60 + chance.below(300);
        let mut zones = Vec::new();
        for _ in 0..1 + chance.below(6) {
            let skew = sectors as f64 * chance.between(0.05, 0.3);
            zones.push(Zone {
                cylinders: 100 + chance.below(1500),
                sectors,
                track_skew: skew as u64,
                cylinder_skew: (skew * 1.5) as u64,
            });
            sectors = (sectors as f64 * chance.between(0.85, 0.97)) as u64;
        }
        let turn = 60_000.0 / [3600.0, 4500.0, 5400.0, 7200.0, 10_000.0, 15_000.0][chance.below(6) as usize];
        let ahead = [Ahead::None, Ahead::Track, Ahead::Segment, Ahead::InOrder][chance.below(4) as usize];
        Truth {
            surfaces: 1 + chance.below(16),
            zones,
            turn,
            phase: chance.between(0.0, 1.0),
            seek: [chance.between(0.3, 1.8), chance.between(0.05, 0.2), chance.between(0.0002, 0.002)],
            head_switch: chance.between(0.2, 1.2),
            settle: chance.between(-0.6, 0.8),
            bus: chance.between(0.005, 0.18),
            read_hit: chance.between(0.05, 1.2),
            read_miss: chance.between(0.05, 2.5),
            write: chance.between(0.1, 2.5),
            on_track: if chance.one_in(3) { chance.between(0.2, 1.2) } else { 0.0 },
            segments: 1 + chance.below(16) as usize,
            segment_sectors: 32 << chance.below(5),
            ahead,
            drops_at_write: chance.one_in(3),
            caches_writes: chance.one_in(2),
        }
    }

    fn size(&self) -> u64 {
        self.zones.iter().map(|zone| zone.cylinders * self.surfaces * zone.sectors).sum()
    }

    fn place(&self, sector: u64) -> Place {
        let (mut left, mut cylinders) = (sector, 0);
        for zone in &self.zones {
            let size = zone.cylinders * self.surfaces * zone.sectors;
            if left < size {
                let track = left / zone.sectors;
                let (cylinder, head) = (track / self.surfaces, track % self.surfaces);
                let skews = (track - cylinder) * zone.track_skew + cylinder * zone.cylinder_skew;
                let at = (skews + left % zone.sectors) % zone.sectors;
                return Place {
                    cylinder: cylinders + cylinder,
                    head,
                    sectors: zone.sectors,
                    turn: at as f64 / zone.sectors as f64,
                };
            }
            left -= size;
            cylinders += zone.cylinders;
        }
        unreachable!("a sector of the drive")
    }

    fn seek(&self, distance: u64) -> f64 {
        let [base, root, line] = self.seek;
        let distance = distance as f64;
        if distance == 0.0 { 0.0 } else { base + root * (distance - 1.0).sqrt() + line * (distance - 1.0) }
    }

    /// When the sector has passed the head, from `now` on.
    fn pass(&self, state: &mut State, now: f64, sector: u64, write: bool) -> f64 {
        let place = self.place(sector);
        let switch = if place.head == state.head { 0.0 } else { self.head_switch };
        let mut moved = self.seek(place.cylinder.abs_diff(state.cylinder)).max(switch);
        if moved > 0.0 && write {
            moved = (moved + self.settle).max(0.0);
        }
        (state.cylinder, state.head) = (place.cylinder, place.head);
        let there = now + moved;
        let turns = there / self.turn + self.phase;
        let wait = (place.turn - turns).rem_euclid(1.0);
        // A sector that is right there has not gone by for want of the last bit of a number.
        let wait = if wait > 1.0 - 1e-6 { 0.0 } else { wait };
        there + (wait + 1.0 / place.sectors as f64) * self.turn
    }

    /// Reads ahead until `now`.
    fn read_on(&self, state: &mut State, now: f64) {
        let Some((mut at, limit)) = state.ahead else { return };
        while state.segments.last().is_some_and(|segment| segment.end < limit) {
            let next = state.segments.last().map_or(0, |segment| segment.end);
            let (cylinder, head) = (state.cylinder, state.head);
            let passed = self.pass(state, at, next, false);
            if passed > now {
                (state.cylinder, state.head) = (cylinder, head);
                state.ahead = Some((at, limit));
                return;
            }
            at = passed;
            if let Some(segment) = state.segments.last_mut() {
                segment.end = next + 1;
                segment.start = segment.start.max(segment.end.saturating_sub(self.segment_sectors));
            }
        }
        state.ahead = None;
    }

    fn limit(&self, end: u64, start: u64, in_order: bool) -> u64 {
        let track = || {
            let place = self.place(end - 1);
            let same = |sector: u64| {
                let other = self.place(sector);
                (other.cylinder, other.head) == (place.cylinder, place.head)
            };
            (end..self.size()).find(|&sector| !same(sector)).unwrap_or(self.size())
        };
        let whole = (start + self.segment_sectors).max(end);
        let limit = match self.ahead {
            Ahead::None => end,
            Ahead::Track => track().min(whole),
            Ahead::InOrder if !in_order => end,
            Ahead::InOrder | Ahead::Segment => whole,
        };
        limit.min(self.size())
    }

    fn read(&self, state: &mut State, now: f64, start: u64, end: u64) -> f64 {
        self.read_on(state, now);
        let sectors = (end - start) as f64;
        if let Some(hit) = state.segments.iter().position(|held| held.start <= start && end <= held.end) {
            let last = hit + 1 == state.segments.len();
            if !last {
                state.ahead = None;
            }
            let mut segment = state.segments.remove(hit);
            let in_order = segment.asked_to == start;
            segment.asked_to = end;
            state.segments.push(segment);
            if let (true, Some((_, limit))) = (last, &mut state.ahead) {
                *limit = (*limit).max(self.limit(end, start, in_order));
            }
            return now + self.read_hit + sectors * self.bus;
        }
        state.ahead = None;
        let in_order = state.segments.iter().any(|held| held.asked_to == start);
        let mut at = now.max(state.busy_until) + self.read_miss;
        let least = at + self.on_track;
        let mut first = None;
        for sector in start..end {
            if sector == start && at + self.seek_of(state, start) < least {
                at = least - self.seek_of(state, start);
            }
            at = self.pass(state, at, sector, false);
            first.get_or_insert(at);
        }
        if state.segments.len() == self.segments {
            state.segments.remove(0);
        }
        let from = start.max(end.saturating_sub(self.segment_sectors));
        state.segments.push(Segment { start: from, end, asked_to: end });
        state.ahead = Some((at, self.limit(end, start, in_order)));
        (first.unwrap_or(at) + sectors * self.bus).max(at + self.bus)
    }

    fn seek_of(&self, state: &State, sector: u64) -> f64 {
        let place = self.place(sector);
        let switch = if place.head == state.head { 0.0 } else { self.head_switch };
        self.seek(place.cylinder.abs_diff(state.cylinder)).max(switch)
    }

    fn write(&self, state: &mut State, now: f64, start: u64, end: u64) -> f64 {
        self.read_on(state, now);
        state.ahead = None;
        let drops = self.drops_at_write;
        state.segments.retain(|held| !drops && (held.end <= start || end <= held.start));
        let data = now + self.write + (end - start) as f64 * self.bus;
        // One that goes on where the last one ended joins it; any other waits until the cache is empty.
        let joins = state.dirty.is_some_and(|(_, last)| last == start);
        let begin = if self.caches_writes && !joins { data.max(state.busy_until) } else { data };
        let mut at = begin.max(state.busy_until);
        for sector in start..end {
            at = self.pass(state, at, sector, true);
        }
        state.dirty = Some((start, end));
        if self.caches_writes {
            state.busy_until = at;
            begin
        } else {
            at
        }
    }

    /// What a host does, and how long each request takes: a third goes on where the one before ended, a third is near
    /// it, and the rest is anywhere. It rests `rest` times as long as usual between them.
    pub fn measure(&self, chance: &mut Chance, requests: usize, rest: f64) -> Vec<Request> {
        let mut state =
            State { cylinder: 0, head: 0, segments: Vec::new(), ahead: None, busy_until: 0.0, dirty: None };
        let (size, mut now, mut last, mut wrote) = (self.size(), 0.0, 0, false);
        let mut found = Vec::with_capacity(requests);
        for _ in 0..requests {
            let sectors = 4 * (1 + chance.below(4) * chance.below(3));
            let kind = chance.below(3);
            let start = match kind {
                0 => last,
                1 => (last + chance.below(400)).saturating_sub(200),
                _ => chance.below(size),
            };
            let start = start.min(size - sectors);
            let write = if kind == 0 { wrote } else { chance.one_in(3) };
            let done = if write {
                self.write(&mut state, now, start, start + sectors)
            } else {
                self.read(&mut state, now, start, start + sectors)
            };
            let noise = chance.between(0.0, 0.02);
            let gap = rest * chance.between(5.0, 60.0);
            found.push(Request { write, sector: start, sectors, milliseconds: done - now + noise, gap });
            now = done + gap;
            (last, wrote) = (start + sectors, write);
        }
        found
    }

    /// The model, the buffer's description and the seek times, as an author would have them.
    pub fn described(&self, chance: &mut Chance) -> [String; 3] {
        let mut zones = String::new();
        let mut first = 0;
        for zone in &self.zones {
            let last = first + zone.cylinders - 1;
            let _ = write!(
                zones,
                "dm_layout_g1_zone {{ First cylinder number = {first}, Last cylinder number = {last},
                 Blocks per track = {}, Skew for track switch = {}, Skew for cylinder switch = {} }},\n",
                zone.sectors, zone.track_skew, zone.cylinder_skew
            );
            first = last + 1;
        }
        let model = format!(
            "dm_disk TRUTH {{ Number of data surfaces = {}, Number of cylinders = {first},
             Layout Model = dm_layout_g1 {{ LBN-to-PBN mapping scheme = 0, Sparing scheme used = 0,
             Zones = [ {zones} ] }},
             Mechanical Model = dm_mech_g1 {{ Seek type = extracted, Full seek curve = truth.seek,
             Add. write settling delay = {}, Head switch time = {}, Rotation speed (in rpms) = {} }} }}",
            self.surfaces,
            self.settle,
            self.head_switch,
            60_000.0 / self.turn
        );
        let kind = match (chance.one_in(2), self.ahead) {
            (true, _) => chance.below(5),
            (false, Ahead::None) => 0,
            (false, Ahead::Track) => 1,
            (false, _) => 3,
        };
        let segments = if chance.one_in(2) { self.segments as u64 } else { 1 + chance.below(16) };
        let sectors = if chance.one_in(2) { self.segment_sectors } else { 32 << chance.below(5) };
        let bus = if chance.one_in(2) { 0.0 } else { self.bus };
        let caches = if chance.one_in(4) { !self.caches_writes } else { self.caches_writes };
        let mut about = |time: f64| time * chance.between(0.0, 2.0);
        let (hit, miss, write) = (about(self.read_hit), about(self.read_miss), about(self.write));
        let specs = format!(
            "disksim_disk TRUTH {{ Model = source truth.model, Bulk sector transfer time = {bus},
             Number of buffer segments = {segments}, Segment size (in blks) = {sectors},
             Maximum read-ahead (blks) = {sectors}, Buffer continuous read = {kind},
             Fast write level = {}, Read hit over. after read = {hit}, Read hit over. after write = {hit},
             Read miss over. after read = {miss}, Read miss over. after write = {miss},
             Write hit over. after read = {write}, Write hit over. after write = {write},
             Write miss over. after read = {write}, Write miss over. after write = {write} }}",
            u32::from(caches)
        );
        let mut seek = "Seek distances measured\n".to_owned();
        let mut distance = 1;
        while distance < first {
            let _ = writeln!(seek, "{distance}, {}", self.seek(distance) * chance.between(0.97, 1.03));
            distance += 1 + distance / 16;
        }
        [model, specs, seek]
    }
}

/// The requests as a trace.
pub fn trace(requests: &[Request]) -> String {
    let mut text = String::new();
    for request in requests {
        let Request { write, sector, sectors, milliseconds, gap } = request;
        let op = if *write { 'W' } else { 'R' };
        let _ =
            writeln!(text, "{op} Miss {sector} {sectors} {:.3} {:.3}", milliseconds * 1000.0, gap * 1000.0);
    }
    text
}
