//! How long I/O takes and how often it fails.

use bimetal_units::rng::Rng;

/// Random service times of a device: I/Os overlap and complete out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service {
    /// The shortest, ns.
    pub min_ns: u64,
    /// The longest, ns, stalls aside.
    pub max_ns: u64,
    /// More for each KiB, ns.
    pub per_kib_ns: u64,
    /// A flush takes this many times as long.
    pub flush_factor: u64,
    /// One I/O in so many stalls; zero is none.
    pub stall_one_in: u32,
    /// How long a stall lasts, ns.
    pub stall_ns: u64,
}

impl Default for Service {
    fn default() -> Self {
        Service {
            min_ns: 10_000,
            max_ns: 200_000,
            per_kib_ns: 1_000,
            flush_factor: 2,
            stall_one_in: 0,
            stall_ns: 0,
        }
    }
}

impl Service {
    /// How long a read or write of `len` bytes takes this time.
    pub fn time(&self, rng: &mut Rng, len: u64) -> u64 {
        let stall = if rng.one_in(self.stall_one_in) { self.stall_ns } else { 0 };
        rng.range(self.min_ns, self.max_ns) + (len >> 10) * self.per_kib_ns + stall
    }

    /// How long a flush takes this time.
    pub fn flush_time(&self, rng: &mut Rng) -> u64 {
        self.time(rng, 0) * self.flush_factor
    }
}

/// One I/O in so many fails, by kind; zero is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultRates {
    /// Of reads.
    pub reads: u32,
    /// Of writes.
    pub writes: u32,
    /// Of flushes.
    pub flushes: u32,
    /// Of discards.
    pub discards: u32,
}
