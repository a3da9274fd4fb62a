//! The records of a trace that is made up.

use super::law::{Deck, apportioned};
use super::profile::{BLOCK_BYTES, Profile, ProfileError};
use crate::job::Distribution;
use crate::load::pick::{Pick, Shuffle, gauss};
use bimetal_trace::{Marks, Op, Record};
use bimetal_units::Nanos;
use bimetal_units::rng::{Rng, mix};

/// Streams of random numbers: what one draws does not move the others.
const ORDER: u64 = 1;
const PLACES: u64 = 2;
const TIMES: u64 = 3;

/// Kinds of places.
const SEQUENTIAL: usize = 0;
const ELSEWHERE: usize = 1;

/// Draws the records of a trace, one after the other: the same seed gives the same trace. Memory is a few kilobytes,
/// however long it is.
///
/// Operations come in bursts: all of a burst begin at once, and are done one after the other; a pause, and the next
/// burst. An operation finds as many in flight as its burst had before it, so that the depths of all are met when as
/// many bursts are at least so long. Operations that follow each other on the device are of one kind, as long as there
/// are any.
pub struct Synth {
    sizes: [Vec<u64>; 2],
    size_decks: [Deck; 2],
    kinds: Deck,
    orders: Deck,
    /// Bursts that are left, by their length less one.
    bursts: Deck,
    extents: Pick,
    scatter: Shuffle,
    extent_bytes: u64,
    span_bytes: u64,
    device: Device,
    rngs: [Rng; 3],
    /// Operations that are left of the present burst, and when it began.
    burst_left: u64,
    now_ns: u64,
    /// When the last operation ends that was begun.
    end_ns: u64,
    /// Where it ends on the device, and its kind.
    last: Option<(u64, usize)>,
}

/// What it is recorded on.
struct Device {
    first_byte_ns: f64,
    ns_per_byte: f64,
    think_median_ns: f64,
    think_sigma: f64,
}

impl Synth {
    /// The trace of a profile.
    ///
    /// # Errors
    /// When the profile makes no sense.
    pub fn new(profile: &Profile, seed: u64) -> Result<Synth, ProfileError> {
        let (counts, means) = ([profile.reads, profile.writes], profile.means());
        let (mut sizes, mut size_decks) =
            ([Vec::new(), Vec::new()], [Deck::new(vec![0]), Deck::new(vec![0])]);
        for kind in (0..2).filter(|&kind| counts[kind] > 0) {
            let law = profile.size_law(means[kind])?;
            let shares: Vec<f64> = law.iter().map(|size| size.1).collect();
            size_decks[kind] = Deck::new(apportioned(counts[kind], &shares));
            sizes[kind] = law.into_iter().map(|size| size.0).collect();
        }
        let operations = profile.operations();
        let sequential = profile.sequential_percent / 100.0;
        let locality = &profile.locality;
        let extents = (locality.span_bytes / locality.extent_bytes).max(1);
        let zones = locality.zones.iter();
        let zones = zones.map(|zone| (zone.operations_percent / 100.0, zone.span_percent / 100.0)).collect();
        let key = mix(seed ^ mix(PLACES));
        Ok(Synth {
            sizes,
            size_decks,
            kinds: Deck::new(counts.to_vec()),
            orders: Deck::new(apportioned(operations, &[sequential, 1.0 - sequential])),
            bursts: Deck::new(bursts(operations, &profile.queue_law()?)),
            extents: Pick::new(&Distribution::Zoned(zones), extents, key),
            scatter: Shuffle::new(extents, key),
            extent_bytes: locality.extent_bytes,
            span_bytes: locality.span_bytes / BLOCK_BYTES * BLOCK_BYTES,
            device: Device {
                first_byte_ns: profile.device.first_byte_us * 1e3,
                ns_per_byte: 1e3 / profile.device.mb_per_s,
                think_median_ns: profile.device.think_median_us * 1e3,
                think_sigma: profile.device.think_sigma,
            },
            rngs: [ORDER, PLACES, TIMES].map(|stream| Rng::new(seed, stream)),
            burst_left: 0,
            now_ns: 0,
            end_ns: 0,
            last: None,
        })
    }

    /// Begins the next burst.
    fn burst(&mut self) -> Option<()> {
        let length = self.bursts.draw(&mut self.rngs[0])?;
        self.burst_left = length as u64 + 1;
        let Device { think_median_ns, think_sigma, .. } = self.device;
        let think_ns = think_median_ns * (think_sigma * gauss(&mut self.rngs[2])).exp();
        self.now_ns = self.end_ns.saturating_add(think_ns as u64);
        self.end_ns = self.now_ns;
        Some(())
    }

    /// Read or write, and whether it follows the one before.
    fn kind(&mut self) -> Option<(usize, usize)> {
        let order = self.orders.draw(&mut self.rngs[0])?;
        let Some((_, before)) = self.last.filter(|_| order == SEQUENTIAL) else {
            return Some((self.kinds.draw(&mut self.rngs[0])?, order));
        };
        let kind = if self.kinds.left(before) > 0 { before } else { 1 - before };
        self.kinds.take(kind);
        Some((kind, order))
    }

    /// Where an operation of so many bytes begins.
    fn offset(&mut self, order: usize, bytes: u64) -> u64 {
        if order == SEQUENTIAL {
            match self.last {
                Some((end, _)) if end + bytes <= self.span_bytes => return end,
                // The span ends, or the trace begins: another one follows instead, if any is left.
                _ if self.orders.left(ELSEWHERE) > 0 => {
                    self.orders.take(ELSEWHERE);
                    self.orders.put_back(SEQUENTIAL);
                }
                _ => {}
            }
        }
        let extent = self.scatter.at(self.extents.draw(&mut self.rngs[1]));
        let block = self.rngs[1].below(self.extent_bytes / BLOCK_BYTES);
        (extent * self.extent_bytes + block * BLOCK_BYTES).min(self.span_bytes - bytes)
    }
}

/// How many bursts have 1, 2, ... operations, so that the operations of all find these depths.
fn bursts(operations: u64, queue_law: &[f64]) -> Vec<u64> {
    let mut deep = apportioned(operations, queue_law);
    // Rounding may leave one more at a depth than at the one before it.
    for depth in (1..deep.len()).rev() {
        let over = deep[depth].saturating_sub(deep[depth - 1]);
        deep[depth] -= over;
        deep[0] += over;
    }
    let next = deep[1..].iter().chain(std::iter::once(&0));
    deep.iter().zip(next).map(|(own, deeper)| own.saturating_sub(*deeper)).collect()
}

impl Iterator for Synth {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if self.burst_left == 0 {
            self.burst()?;
        }
        self.burst_left -= 1;
        let (kind, order) = self.kind()?;
        let size = self.size_decks[kind].draw(&mut self.rngs[0])?;
        let bytes = self.sizes[kind][size];
        let offset = self.offset(order, bytes);
        self.last = Some((offset + bytes, kind));
        let took = self.device.first_byte_ns + self.device.ns_per_byte * bytes as f64;
        self.end_ns = self.end_ns.saturating_add(took as u64);
        Some(Record {
            time: Some(Nanos(self.now_ns)),
            op: if kind == 0 { Op::Read } else { Op::Write },
            offset,
            bytes,
            device: 0,
            response: Some(Nanos(self.end_ns - self.now_ns)),
            marks: Marks::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_hold_all_operations() {
        for operations in [1, 2, 3, 10, 1001, 3_952_340] {
            for law in [vec![1.0], vec![0.59, 0.3, 0.11], vec![0.26, 0.25, 0.25, 0.24]] {
                let bursts = bursts(operations, &law);
                let held: u64 = bursts.iter().zip(1..).map(|(count, length)| count * length).sum();
                assert_eq!(held, operations, "{law:?}: {bursts:?}");
            }
        }
    }
}
