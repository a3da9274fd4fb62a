//! Several places of a target as one space: one behind the other, or striped as RAID 0 does it.

use crate::load::{LoadTarget, RunError, SlotSpec};
use bimetal_load::{Ended, Fault, Target};
use bimetal_models::{Command, Kind};

/// Where the bytes of an array lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of each place that are used: multiples of the unit.
    used_bytes: Vec<u64>,
    /// What is aligned to it and no longer than it lies on one place.
    unit_bytes: u64,
    /// Bytes of a stripe; none where the places lie one behind the other.
    stripe_bytes: Option<u64>,
}

impl Layout {
    /// One place behind the other. Of each only multiples of `granule` bytes are used, so that no I/O that is aligned to
    /// it reaches over the end of a place.
    pub fn concat(sizes_bytes: &[u64], granule: u64) -> Layout {
        // One alone has no neighbour to reach into.
        let unit_bytes = if sizes_bytes.len() > 1 { granule.max(1) } else { 1 };
        let used_bytes = sizes_bytes.iter().map(|size| size - size % unit_bytes).collect();
        Layout { used_bytes, unit_bytes, stripe_bytes: None }
    }

    /// Stripe after stripe on the places in turn; all are as large as the smallest. One alone has no stripes.
    pub fn raid0(sizes_bytes: &[u64], stripe_bytes: u64) -> Layout {
        if sizes_bytes.len() == 1 {
            return Layout::concat(sizes_bytes, 1);
        }
        let stripe = stripe_bytes.max(1);
        let least = sizes_bytes.iter().min().map_or(0, |size| size - size % stripe);
        let used_bytes = vec![least; sizes_bytes.len()];
        Layout { used_bytes, unit_bytes: stripe, stripe_bytes: Some(stripe) }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.used_bytes.iter().sum()
    }

    /// The place that a byte lies on, where there, and how many bytes from there on lie together.
    fn at(&self, offset: u64) -> (u32, u64, u64) {
        if let Some(stripe) = self.stripe_bytes {
            let (row, places) = (offset / stripe, self.used_bytes.len() as u64);
            let within = offset % stripe;
            return ((row % places) as u32, row / places * stripe + within, stripe - within);
        }
        let mut from = 0;
        for (place, &used) in self.used_bytes.iter().enumerate() {
            if offset - from < used {
                return (place as u32, offset - from, used - (offset - from));
            }
            from += used;
        }
        // Behind the end: the last place says that it has no such bytes.
        let last = self.used_bytes.len().saturating_sub(1);
        (last as u32, offset - (from - self.used_bytes[last]), u64::MAX)
    }

    /// Parts that an I/O of so many bytes has at most, if it is aligned to its own size.
    pub(crate) fn most_parts(&self, bytes: u64) -> u32 {
        if self.used_bytes.len() == 1 || self.unit_bytes.is_multiple_of(bytes.max(1)) {
            return 1;
        }
        if self.stripe_bytes.is_none() && self.used_bytes.iter().all(|&used| used >= bytes) {
            return 2;
        }
        (bytes.div_ceil(self.unit_bytes) + 1) as u32
    }
}

/// A place that lies on several places of another target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Those places.
    pub places: Vec<u32>,
    /// Where on each it begins.
    pub from_bytes: Vec<u64>,
    /// How it lies on them from there on.
    pub layout: Layout,
}

impl Spread {
    /// All places of a target, from their beginnings on.
    fn whole(layout: Layout) -> Spread {
        let places = layout.used_bytes.len();
        Spread { places: (0..places as u32).collect(), from_bytes: vec![0; places], layout }
    }
}

/// What is in flight in a slot.
#[derive(Clone, Copy, Default)]
struct Flight {
    /// A flush goes to one place after the other: of which place of ours, and how many are still to come.
    flush: Option<(u32, u32)>,
    parts_left: u32,
    handed_ns: Option<u64>,
    fault: Option<Fault>,
}

/// A target whose places are spread over the places of another.
pub struct Array<T> {
    inner: T,
    spreads: Vec<Spread>,
    /// Slots of the inner target for each of ours.
    parts: u32,
    flights: Vec<Flight>,
    ended: Vec<Ended>,
}

impl<T: LoadTarget> Array<T> {
    /// The places of a target, as many as the layout has.
    pub fn new(inner: T, layout: Layout) -> Array<T> {
        Array::spread(inner, vec![Spread::whole(layout)])
    }

    /// Several places, each of which lies on some of a target.
    pub fn spread(inner: T, spreads: Vec<Spread>) -> Array<T> {
        Array { inner, spreads, parts: 1, flights: Vec::new(), ended: Vec::new() }
    }

    /// The target whose places these are.
    pub fn inner(&self) -> &T {
        &self.inner
    }
}

impl<T: LoadTarget> Target for Array<T> {
    fn now_ns(&mut self) -> u64 {
        self.inner.now_ns()
    }

    fn submit(&mut self, slot: u32, place: u32, command: Command) {
        let spread = &self.spreads[place as usize];
        if command.kind == Kind::Flush {
            let left = spread.places.len() as u32 - 1;
            self.flights[slot as usize] =
                Flight { parts_left: 1, flush: Some((place, left)), ..Flight::default() };
            self.inner.submit(slot * self.parts, spread.places[left as usize], command);
            return;
        }
        let (mut offset, mut left, mut nth) = (command.offset, command.len, 0);
        loop {
            let (nth_place, at, together) = spread.layout.at(offset);
            let place = spread.places[nth_place as usize];
            let at = spread.from_bytes[nth_place as usize].saturating_add(at);
            assert!(nth < self.parts, "an I/O has more parts than there is room for");
            let len = if self.parts == 1 { left } else { left.min(together) };
            self.inner.submit(slot * self.parts + nth, place, Command { offset: at, len, ..command });
            (offset, left, nth) = (offset + len, left - len, nth + 1);
            if left == 0 {
                break;
            }
        }
        self.flights[slot as usize] = Flight { parts_left: nth, ..Flight::default() };
    }

    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        loop {
            let now = self.inner.wait(until, &mut self.ended);
            let (had, mut done) = (!self.ended.is_empty(), false);
            for end in self.ended.drain(..) {
                let slot = end.slot / self.parts;
                let flight = &mut self.flights[slot as usize];
                flight.fault = flight.fault.or(end.fault);
                if let Some((place, left)) = flight.flush.filter(|(_, left)| *left > 0) {
                    flight.flush = Some((place, left - 1));
                    let flush = Command { kind: Kind::Flush, offset: 0, len: 0 };
                    let next = self.spreads[place as usize].places[left as usize - 1];
                    self.inner.submit(slot * self.parts, next, flush);
                    continue;
                }
                flight.parts_left -= 1;
                flight.handed_ns = flight.handed_ns.max(end.handed_ns);
                if flight.parts_left == 0 {
                    let Flight { handed_ns, fault, .. } = *flight;
                    // What lies side by side are devices, which have no tiers.
                    ended.push(Ended { slot, handed_ns, at_ns: end.at_ns, fault, served: None });
                    done = true;
                }
            }
            // Parts alone are nothing that anybody waits for.
            if done || !had || until.is_some_and(|until| now >= until) {
                return now;
            }
        }
    }

    fn payload(&mut self, slot: u32, len: u64) -> Option<&mut [u8]> {
        // What is in several parts lies in several buffers.
        if self.parts == 1 { self.inner.payload(slot, len) } else { None }
    }
}

impl<T: LoadTarget> LoadTarget for Array<T> {
    fn prepare(&mut self, slots: &[SlotSpec]) -> Result<(), RunError> {
        let parts = |slot: &SlotSpec| {
            self.spreads.iter().map(|spread| spread.layout.most_parts(slot.longest)).max().unwrap_or(1)
        };
        self.parts = slots.iter().map(parts).max().unwrap_or(1);
        self.flights = vec![Flight::default(); slots.len()];
        // Only where all have stripes is a part no longer than one.
        let stripes = self.spreads.iter().map(|spread| spread.layout.stripe_bytes);
        let stripe = stripes.collect::<Option<Vec<u64>>>().and_then(|stripes| stripes.into_iter().max());
        let bytes = |slot: &SlotSpec| match stripe {
            Some(stripe) if self.parts > 1 => slot.bytes.min(stripe),
            _ => slot.bytes,
        };
        let spread = |slot: &SlotSpec| {
            std::iter::repeat_n(SlotSpec { bytes: bytes(slot), ..*slot }, self.parts as usize)
        };
        let inner: Vec<SlotSpec> = slots.iter().flat_map(spread).collect();
        self.inner.prepare(&inner)
    }

    fn tiers(&mut self) -> Option<(u64, u64)> {
        self.inner.tiers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_one_behind_the_other() {
        let layout = Layout::concat(&[1000, 300, 512], 100);
        assert_eq!(layout.bytes(), 1800);
        assert_eq!((layout.most_parts(100), layout.most_parts(150), layout.most_parts(350)), (1, 2, 5));
        assert_eq!(layout.at(0), (0, 0, 1000));
        assert_eq!(layout.at(999), (0, 999, 1));
        assert_eq!(layout.at(1000), (1, 0, 300));
        assert_eq!(layout.at(1300), (2, 0, 500));
    }

    #[test]
    fn stripes_in_turn() {
        let layout = Layout::raid0(&[1000, 350, 512], 100);
        assert_eq!(layout.bytes(), 900);
        assert_eq!(layout.at(0), (0, 0, 100));
        assert_eq!(layout.at(199), (1, 99, 1));
        assert_eq!(layout.at(250), (2, 50, 50));
        assert_eq!(layout.at(300), (0, 100, 100));
        assert_eq!((layout.most_parts(50), layout.most_parts(100), layout.most_parts(300)), (1, 1, 4));
    }
}
