//! One kind of load, for a time.

use crate::job::{Job, Ops, Order, Sizes};

/// I/Os of one size, so many reads of a hundred, so many in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) read_percent: u32,
    pub(super) bytes: u64,
    pub(super) random: bool,
    pub(super) depth: u32,
}

impl Cell {
    /// It, for so long, on the first so many bytes of a target.
    pub(super) fn job(&self, name: &str, span_bytes: u64, seed: u64, ns: u64) -> Job {
        let mut job = Job::new(name, 0..span_bytes);
        job.ops = Ops::ReadWrite { read_percent: self.read_percent };
        if !self.random {
            job.order = [Order::SEQUENTIAL; 3];
        }
        job.sizes = std::array::from_fn(|_| Sizes::one(self.bytes));
        job.align_bytes = [self.bytes; 3];
        (job.depth, job.seed, job.each_once) = (self.depth, seed, false);
        (job.time_based, job.runtime_ns) = (true, Some(ns));
        job
    }
}
