//! The working set over time: how much is touched in each stretch of a trace.

use crate::footprint::{BLOCK, key_hash};
use crate::slots::{Join, Slots};
use crate::{Op, Record};
use serde::Serialize;

/// Windows at most; a longer trace has wider ones.
const MAX_WINDOWS: usize = 64;
/// The width of the first windows, where a trace has times and where it has none.
const FIRST_NS: u64 = 1_000_000;
const FIRST_REQUESTS: u64 = 64;
/// Registers of a sketch: 16 KiB, and a standard error of 0.8 %.
const REGISTER_BITS: u32 = 14;
const REGISTERS: usize = 1 << REGISTER_BITS;

/// One stretch of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Requests that begin in it.
    pub requests: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they write.
    pub written_bytes: u64,
    /// Bytes of blocks of 4 KiB that are read or written in it, each counted once: to within one or two per cent.
    pub working_set_bytes: u64,
    /// Bytes of blocks touched from the first record until its end: likewise.
    pub footprint_bytes: u64,
}

/// The working set over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkingSet {
    /// How long a window is; none where the trace has no times.
    pub window_seconds: Option<f64>,
    /// How many requests a window has; none where the trace has times.
    pub window_requests: Option<u64>,
    /// In their order.
    pub windows: Vec<Window>,
}

/// Counts what is distinct, roughly: HyperLogLog (Flajolet and others, 2007), with linear counting while it is sparse.
#[derive(Clone, Debug, Default)]
struct Sketch(Vec<u8>);

impl Sketch {
    fn add(&mut self, hash: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; REGISTERS];
        }
        let register = &mut self.0[(hash >> (64 - REGISTER_BITS)) as usize];
        let rank = (hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1)).leading_zeros() as u8 + 1;
        *register = (*register).max(rank);
    }

    fn count(&self) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let (m, mut sum, mut zeros) = (REGISTERS as f64, 0.0, 0u32);
        for &rank in &self.0 {
            sum += 1.0 / (1u64 << rank) as f64;
            zeros += u32::from(rank == 0);
        }
        let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        if raw <= 2.5 * m && zeros > 0 { m * (m / f64::from(zeros)).ln() } else { raw }
    }
}

impl Join for Sketch {
    fn join(&mut self, other: Sketch) {
        if self.0.is_empty() {
            *self = other;
        } else {
            self.0.iter_mut().zip(other.0).for_each(|(rank, other)| *rank = (*rank).max(other));
        }
    }
}

#[derive(Debug, Default)]
struct Stretch {
    window: Window,
    touched: Sketch,
}

impl Join for Stretch {
    fn join(&mut self, other: Stretch) {
        self.window.requests += other.window.requests;
        self.window.read_bytes = self.window.read_bytes.saturating_add(other.window.read_bytes);
        self.window.written_bytes = self.window.written_bytes.saturating_add(other.window.written_bytes);
        self.touched.join(other.touched);
    }
}

/// Takes records in their order.
#[derive(Default)]
pub(crate) struct Worksets {
    /// Made with the first record, which says whether there are times.
    slots: Option<(bool, Slots<Stretch>)>,
    requests: u64,
}

impl Worksets {
    pub(crate) fn add(&mut self, record: &Record) {
        let (timed, slots) = self.slots.get_or_insert_with(|| {
            let timed = record.time.is_some();
            (timed, Slots::new(if timed { FIRST_NS } else { FIRST_REQUESTS }, MAX_WINDOWS))
        });
        let position = if *timed { record.time.map_or(0, |time| time.0) } else { self.requests };
        self.requests += 1;
        let stretch = slots.at(position);
        stretch.window.requests += 1;
        let bytes = match record.op {
            Op::Read => &mut stretch.window.read_bytes,
            Op::Write => &mut stretch.window.written_bytes,
            Op::Flush | Op::Discard => return,
        };
        *bytes = bytes.saturating_add(record.bytes);
        let end = (record.offset + record.bytes).div_ceil(BLOCK);
        for block in record.offset / BLOCK..end {
            stretch.touched.add(key_hash(record.device, block));
        }
    }

    pub(crate) fn summary(self) -> Option<WorkingSet> {
        let (timed, slots) = self.slots?;
        let (width, mut all) = (slots.width(), Sketch::default());
        let bytes = |sketch: &Sketch| sketch.count().round() as u64 * BLOCK;
        let windows = slots.iter().map(|stretch| {
            if !stretch.touched.0.is_empty() {
                all.join(stretch.touched.clone());
            }
            let (working_set_bytes, footprint_bytes) = (bytes(&stretch.touched), bytes(&all));
            Window { working_set_bytes, footprint_bytes, ..stretch.window.clone() }
        });
        let windows = windows.collect();
        Some(WorkingSet {
            window_seconds: timed.then_some(width as f64 / 1e9),
            window_requests: (!timed).then_some(width),
            windows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Marks;
    use bimetal_units::Nanos;

    fn read(time: Option<u64>, block: u64, blocks: u64) -> Record {
        Record {
            time: time.map(Nanos),
            op: Op::Read,
            offset: block * BLOCK,
            bytes: blocks * BLOCK,
            device: 0,
            response: None,
            marks: Marks::default(),
        }
    }

    #[test]
    fn a_sketch_counts_what_is_distinct() {
        for distinct in [1u64, 100, 10_000, 100_000, 3_000_000] {
            let mut sketch = Sketch::default();
            for block in (0..distinct).chain(0..distinct / 2) {
                sketch.add(key_hash(3, block));
            }
            let error = sketch.count() / distinct as f64 - 1.0;
            assert!(error.abs() < 0.03, "{distinct}: {error}");
        }
    }

    #[test]
    fn a_working_set_that_moves_is_seen_to_move() {
        let mut worksets = Worksets::default();
        // Every second another 1000 blocks, each of them ten times.
        for second in 0..60u64 {
            for request in 0..10_000 {
                let time = second * 1_000_000_000 + request * 100_000;
                worksets.add(&read(Some(time), second * 1000 + request % 1000, 1));
            }
        }
        let found = worksets.summary().expect("records");
        let seconds = found.window_seconds.expect("times");
        assert!(found.windows.len() <= MAX_WINDOWS && found.windows.len() > 30, "{}", found.windows.len());
        for window in &found.windows[..found.windows.len() - 1] {
            let blocks = window.working_set_bytes as f64 / BLOCK as f64;
            let least = 1000.0 * seconds.floor();
            assert!(blocks > least * 0.97 && blocks < least + 2100.0, "{blocks} in {seconds} s");
        }
        let all = found.windows.last().map_or(0, |window| window.footprint_bytes) as f64;
        assert!((all / (60_000 * BLOCK) as f64 - 1.0).abs() < 0.03);
        assert_eq!(found.windows.iter().map(|window| window.requests).sum::<u64>(), 600_000);
    }

    #[test]
    fn without_times_requests_are_counted() {
        let mut worksets = Worksets::default();
        (0..1000).for_each(|number| worksets.add(&read(None, number % 10, 2)));
        let found = worksets.summary().expect("records");
        assert_eq!((found.window_seconds, found.window_requests), (None, Some(64)));
        assert_eq!(found.windows[0].working_set_bytes, 11 * BLOCK);
        assert_eq!(found.windows[3].footprint_bytes, 11 * BLOCK);
        assert!(Worksets::default().summary().is_none());
    }
}
