//! Bad times that a life may have beside plain errors: devices that stall, slow down, vanish and come back, or
//! acknowledge writes and do something else with them.

use crate::disk::{CutStyle, PAGE_BYTES};
use bimetal_engine::coverage::Stage;
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::format::log::GroupHeader;
use bimetal_units::SLOW;
use bimetal_units::rng::Rng;
use std::ops::Range;

const PAGE: u64 = PAGE_BYTES as u64;
/// A command that takes so much more, ns, counts as one that met a stall.
const LONG_NS: u64 = 500_000_000;
/// Places tried for a write that goes astray.
const TRIES: u32 = 32;

/// A device that gets slower step by step, and quick again in the same steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ramp {
    /// How long each step lasts, ns.
    pub step_ns: u64,
    /// Steps up.
    pub steps: u32,
    /// What each command takes more at the top, ns; half of it a step below.
    pub peak_ns: u64,
}

impl Ramp {
    /// What a command takes more so long after the beginning.
    fn more(&self, elapsed_ns: u64) -> u64 {
        let last = u64::from(2 * self.steps - 1);
        let step = elapsed_ns / self.step_ns;
        if step >= last {
            return 0;
        }
        let height = (step + 1).min(last - step);
        self.peak_ns >> (u64::from(self.steps) - height)
    }

    /// How long it takes in all.
    pub fn lasts_ns(&self) -> u64 {
        u64::from(2 * self.steps - 1) * self.step_ns
    }
}

/// A device that does nothing for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stall {
    /// Commands before it.
    pub after: u32,
    /// How long it lasts, ns.
    pub ns: u64,
    /// Whether the commands that come meanwhile wait as well, or only the one that it hits.
    pub whole: bool,
}

/// How a device feels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// It slows down.
    pub ramp: Option<Ramp>,
    /// It stalls.
    pub stall: Option<Stall>,
}

/// A device that vanishes and comes back. Commands in flight and those that come meanwhile fail. It vanishes when a
/// command of its would complete: whoever uses it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vanish {
    /// Which one.
    pub device: usize,
    /// Commands of its that complete before.
    pub after: u32,
    /// Not before an operation is in this stage.
    pub stage: Option<Stage>,
    /// How long it is away, ns.
    pub ns: u64,
    /// What becomes of its cache; `None` keeps it.
    pub cache: Option<CutStyle>,
    /// The error that its commands fail with.
    pub errno: i32,
}

/// A device that reads nothing for a while, and does all else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blind {
    /// Which one.
    pub device: usize,
    /// Reads of its before.
    pub after: u32,
    /// How long, ns.
    pub ns: u64,
}

/// What becomes of a write that is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// It never happens.
    Lost,
    /// Only some of its sectors are written.
    Shorn,
    /// It lands in another place.
    Misdirected,
    /// A bit of it flips later.
    Rot,
    /// A sector of it goes bad later.
    BadSector,
}

impl Harm {
    /// All of them.
    pub const ALL: [Harm; 5] = [Harm::Lost, Harm::Shorn, Harm::Misdirected, Harm::Rot, Harm::BadSector];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Harm::Lost => "lost-write",
            Harm::Shorn => "shorn-write",
            Harm::Misdirected => "misdirected-write",
            Harm::Rot => "bit-rot",
            Harm::BadSector => "bad-sector",
        }
    }
}

/// Harm to one write of an operation in this stage: of those to places that have checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aim {
    /// The stage.
    pub stage: Stage,
    /// Such writes before it.
    pub after: u32,
    /// What becomes of it.
    pub harm: Harm,
}

/// The connections to an export break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Break {
    /// Requests that were answered since the last break.
    pub after: u32,
    /// How long nobody can connect, ns.
    pub down_ns: u64,
    /// The server has died, and so much of what was not flushed is gone.
    pub dies: Option<CutStyle>,
    /// Answers that did not come are brought on the next connection.
    pub late: bool,
}

/// All the bad times of a life.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Storm {
    /// By tier.
    pub weather: [Weather; 2],
    /// A device vanishes.
    pub vanish: Option<Vanish>,
    /// A device reads nothing.
    pub blind: Option<Blind>,
    /// Writes are harmed.
    pub aims: Vec<Aim>,
    /// Where the slow device is an export: its connections break, one time after the other.
    pub breaks: Vec<Break>,
}

impl Storm {
    /// Whether devices take longer than they do otherwise.
    pub fn is_slow(&self) -> bool {
        let is_stormy = self.weather.iter().any(|w| *w != Weather::default());
        is_stormy || self.blind.is_some() || !self.breaks.is_empty()
    }
}

/// Which pages have checksums: harm elsewhere could not be told from good data, and is not done.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// By tier. On the fast one all but the slots.
    summed: [Vec<Range<u64>>; 2],
    /// The landing zone, on the fast device.
    zone: Range<u64>,
    volume: [u8; 16],
}

impl Layout {
    /// Of a volume.
    pub fn new(volume: [u8; 16], geo: &Geometry) -> Layout {
        let zone = geo.area_at(geo.zone_first);
        let end = zone + u64::from(geo.zone_areas()) * u64::from(geo.area_bytes);
        let zone = zone / PAGE..end / PAGE;
        let slow = 0..geo.device_bytes[usize::from(SLOW.0)] / PAGE;
        let mut fast = vec![0..geo.areas_at / PAGE, zone.clone()];
        fast.extend(geo.mirror_at.map(|at| at / PAGE..(at + geo.mirror_bytes()) / PAGE));
        Layout { summed: [fast, vec![slow]], zone, volume }
    }

    /// The landing zone.
    pub fn zone(&self) -> Range<u64> {
        self.zone.clone()
    }

    /// Whether all of these pages have checksums.
    pub fn is_summed(&self, device: usize, pages: &Range<u64>) -> bool {
        self.summed[device].iter().any(|r| r.start <= pages.start && pages.end <= r.end)
    }

    /// Whether some of these pages belong to the log.
    pub fn is_log(&self, device: usize, pages: &Range<u64>) -> bool {
        device == 0 && pages.start < self.zone.end && self.zone.start < pages.end
    }

    /// Another place with checksums for a write; rather one that was written before.
    pub fn astray(
        &self,
        device: usize,
        own: &Range<u64>,
        written: impl Fn(u64) -> bool,
        rng: &mut Rng,
    ) -> Option<Range<u64>> {
        let len = own.end - own.start;
        let mut found = None;
        for _ in 0..TRIES {
            let within = &self.summed[device][rng.below(self.summed[device].len() as u64) as usize];
            let start = within.start + rng.below(within.end - within.start);
            let pages = start..start + len;
            if pages.end > within.end || pages.start < own.end && own.start < pages.end {
                continue;
            }
            if written(start) {
                return Some(pages);
            }
            found = Some(pages);
        }
        found
    }

    /// The number of the group that is written to the log with these bytes.
    pub fn group(&self, data: &[u8]) -> Option<u64> {
        let group = if data.starts_with(b"BMTLsegm") { data.get(PAGE_BYTES..)? } else { data };
        GroupHeader::decode(group, &self.volume).map(|(header, ..)| header.seq.0)
    }
}

/// How far the bad times have come.
#[derive(Default)]
pub(super) struct Sky {
    pub(super) storm: Storm,
    began: u64,
    /// By tier: commands so far, ...
    commands: [u32; 2],
    /// ... until when it does nothing, ...
    silent_until: [u64; 2],
    /// ... and until when it is away, and what its commands fail with meanwhile.
    pub(super) gone: [Option<(u64, i32)>; 2],
    /// Which device reads nothing, and until when.
    blind_until: Option<(usize, u64)>,
    ramped: [bool; 2],
    /// Counted since: stalls and slow ramps.
    pub(super) stalls: u64,
    pub(super) ramps: u64,
}

impl Sky {
    pub(super) fn new(storm: Storm, now: u64) -> Sky {
        Sky { storm, began: now, ..Sky::default() }
    }

    /// What a command takes more that is handed over now, and whether it met a stall.
    pub(super) fn delay(&mut self, device: usize, now: u64) -> (u64, bool) {
        let Weather { ramp, stall } = self.storm.weather[device];
        let mut more = ramp.map_or(0, |r| r.more(now - self.began));
        if more > 0 && !std::mem::replace(&mut self.ramped[device], true) {
            self.ramps += 1;
        }
        let Some(stall) = stall else { return (more, more >= LONG_NS) };
        let nth = self.commands[device];
        self.commands[device] = nth.saturating_add(1);
        let mut stalled = nth == stall.after;
        if stalled {
            self.stalls += 1;
            more += stall.ns;
            if stall.whole {
                self.silent_until[device] = now + stall.ns;
            }
        } else if now < self.silent_until[device] {
            more += self.silent_until[device] - now;
            stalled = true;
        }
        (more, stalled || more >= LONG_NS)
    }

    /// Whether a device is to vanish yet.
    pub(super) fn may_vanish(&self) -> bool {
        self.storm.vanish.is_some()
    }

    /// Whether the device vanishes when a command of its completes in one of these stages.
    pub(super) fn vanishes(&mut self, device: usize, is_in: impl FnOnce(Stage) -> bool) -> Option<Vanish> {
        let vanish = self.storm.vanish.as_mut().filter(|v| v.device == device)?;
        if vanish.after > 0 {
            vanish.after -= 1;
            return None;
        }
        if vanish.stage.is_some_and(|s| !is_in(s)) {
            return None;
        }
        self.storm.vanish.take()
    }

    /// Whether a read of the device fails that is handed over now.
    pub(super) fn is_blind(&mut self, device: usize, now: u64) -> bool {
        if let Some(blind) = self.storm.blind.as_mut().filter(|blind| blind.device == device) {
            if blind.after > 0 {
                blind.after -= 1;
            } else {
                self.blind_until = Some((device, now + blind.ns));
                self.storm.blind = None;
            }
        }
        self.blind_until.is_some_and(|(blind, until)| blind == device && now < until)
    }

    /// The error of a device that is away.
    pub(super) fn absence(&mut self, device: usize, now: u64) -> Option<i32> {
        self.gone[device] = self.gone[device].filter(|(until, _)| now < *until);
        self.gone[device].map(|(_, errno)| errno)
    }

    /// What is to become of a write of an operation in this stage.
    pub(super) fn aimed(&mut self, stage: Stage) -> Option<Harm> {
        let place = self.storm.aims.iter_mut().position(|aim| {
            let hit = aim.stage == stage && aim.after == 0;
            aim.after = aim.after.saturating_sub(u32::from(aim.stage == stage));
            hit
        })?;
        Some(self.storm.aims.remove(place).harm)
    }
}
