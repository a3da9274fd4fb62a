//! Where old and new may differ after a crash: a region is opened, durably, before something is written to both, and closed
//! some time after the last write to it is durable on both.

use crate::bugs::{Bug, planted};
use crate::header::MOST_REGIONS;
use bimetal_units::Nanos;
use std::ops::Range;

/// One that nobody has written to for so long is closed.
const CLOSED_AFTER_NS: u64 = 10 * Nanos::SECOND;

#[derive(Clone, Copy, Default)]
struct Region {
    /// It is to be open.
    wanted: bool,
    /// The newest header says that it is.
    durable: bool,
    /// Writes on their way to both.
    in_flight: u32,
    written_at: Nanos,
}

/// All regions of a device.
pub(crate) struct Regions {
    bytes: u64,
    each: u64,
    regions: Vec<Region>,
    /// What a header that is being written says.
    being_written: Option<Vec<u8>>,
    /// Some are wanted open that the newest header does not know.
    lacks: bool,
    /// Those that are to be open.
    open: u32,
}

/// Whether the bit of a region is set; behind the end none is.
fn is_set(bits: &[u8], place: usize) -> bool {
    bits.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 1)
}

impl Regions {
    /// None is open; each is a multiple of so many bytes.
    pub(crate) fn new(bytes: u64, unit: u64) -> Regions {
        let each = bytes.div_ceil(u64::from(MOST_REGIONS)).next_multiple_of(unit);
        Regions::of(bytes, each, &[])
    }

    /// As a header says.
    pub(crate) fn of(bytes: u64, each: u64, open: &[u8]) -> Regions {
        let region = |place| {
            let open = is_set(open, place);
            Region { wanted: open, durable: open, ..Region::default() }
        };
        let regions: Vec<Region> = (0..bytes.div_ceil(each) as usize).map(region).collect();
        let open = regions.iter().filter(|region| region.wanted).count() as u32;
        Regions { bytes, each, regions, being_written: None, lacks: false, open }
    }

    pub(crate) fn each(&self) -> u64 {
        self.each
    }

    /// Whether any is open.
    pub(crate) fn any_open(&self) -> bool {
        self.open > 0
    }

    /// The bytes of those that are open.
    pub(crate) fn open(&self) -> impl Iterator<Item = Range<u64>> {
        let range = |place: usize| place as u64 * self.each..((place as u64 + 1) * self.each).min(self.bytes);
        self.regions
            .iter()
            .enumerate()
            .filter(|(_, region)| region.wanted)
            .map(move |(place, _)| range(place))
    }

    fn places(&self, range: &Range<u64>) -> Range<usize> {
        (range.start / self.each) as usize..(range.end.div_ceil(self.each) as usize).min(self.regions.len())
    }

    /// Whether a range may be written to both. If not, the next header says so.
    pub(crate) fn admits(&mut self, range: &Range<u64>) -> bool {
        let mut all = true;
        for place in self.places(range) {
            let said = self.being_written.as_ref().is_none_or(|bits| is_set(bits, place));
            let said = said || planted(Bug::ClosingForgotten);
            let region = &mut self.regions[place];
            self.open += u32::from(!std::mem::replace(&mut region.wanted, true));
            if !region.durable || !said {
                self.lacks = true;
                all = false;
            }
        }
        all
    }

    /// A write to both begins.
    pub(crate) fn begin(&mut self, range: &Range<u64>, now: Nanos) {
        for place in self.places(range) {
            self.regions[place].in_flight += 1;
            self.regions[place].written_at = now;
        }
    }

    /// It has ended on both.
    pub(crate) fn end(&mut self, range: &Range<u64>, now: Nanos) {
        for place in self.places(range) {
            self.regions[place].in_flight -= 1;
            self.regions[place].written_at = now;
        }
    }

    /// Whether somebody waits for a header.
    pub(crate) fn lacks(&self) -> bool {
        self.lacks
    }

    fn may_close(&self, place: usize, now: Nanos) -> bool {
        let region = &self.regions[place];
        region.wanted && region.in_flight == 0 && now.since(region.written_at) >= CLOSED_AFTER_NS
    }

    /// Whether some could be closed, were both devices flushed.
    pub(crate) fn could_close(&self, now: Nanos) -> bool {
        (0..self.regions.len()).any(|place| self.may_close(place, now))
    }

    /// Both have been flushed, and the flush began then: those that nobody has written to for long before it are closed.
    pub(crate) fn close(&mut self, flush_began: Nanos) {
        for place in 0..self.regions.len() {
            if self.may_close(place, flush_began) {
                self.regions[place].wanted = false;
                self.open -= 1;
            }
        }
    }

    /// What the next header says, which is written from now on.
    pub(crate) fn begin_writing(&mut self) -> Vec<u8> {
        let mut bits = vec![0; self.regions.len().div_ceil(8)];
        for (place, region) in self.regions.iter().enumerate() {
            bits[place / 8] |= u8::from(region.wanted) << (place % 8);
        }
        self.being_written = Some(bits.clone());
        self.lacks = false;
        bits
    }

    /// It is durable.
    pub(crate) fn written(&mut self) {
        let Some(bits) = self.being_written.take() else { return };
        for (place, region) in self.regions.iter_mut().enumerate() {
            region.durable = is_set(&bits, place);
            self.lacks |= region.wanted && !region.durable;
        }
    }
}
