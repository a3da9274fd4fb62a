//! The jobs that a point is made of.

use super::spec::{LargeOrder, Point, Spec};
use crate::job::{Job, Ops, Order, Sizes};
use crate::load::RunError;
use bimetal_units::rng::mix;

/// What Orion reads before a sequential point where it does not know how large the cache is.
const WARMING_NS: u64 = 120 * SECOND_NS;
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// Makes jobs of a test on a space of so many bytes.
#[derive(Clone, Copy)]
pub(super) struct Jobs<'s> {
    pub(super) spec: &'s Spec,
    pub(super) span_bytes: u64,
}

impl Jobs<'_> {
    /// Before large sequential I/O, Orion reads at random what is not measured, so that no cache holds the stream.
    pub(super) fn warming(&self, point: Point, nth: usize) -> Option<Job> {
        let Spec { large_bytes, cache_bytes, .. } = *self.spec;
        let is_sequential = self.spec.large_order == LargeOrder::Sequential;
        if !is_sequential || point.large == 0 || cache_bytes == Some(0) {
            return None;
        }
        let mut job = self.job("warming", large_bytes, self.spec.large_ios(point.large));
        job.span = 0..self.span_bytes / large_bytes * large_bytes;
        job.ops = Ops::ReadWrite { read_percent: 100 };
        (job.time_based, job.bytes) = (cache_bytes.is_none(), cache_bytes);
        job.runtime_ns = cache_bytes.is_none().then_some(WARMING_NS);
        job.seed = mix(self.spec.seed ^ mix(nth as u64) ^ 1);
        Some(job)
    }

    /// The jobs of a point, small ones first, and how many these are; the point's number makes their randomness.
    pub(super) fn of(&self, point: Point, nth: usize) -> Result<(Vec<Job>, usize), RunError> {
        let Point { small, large } = point;
        let mut jobs = Vec::new();
        let whole = |bytes: u64| 0..self.span_bytes / bytes * bytes;
        let name = |what: &str| format!("small={small} large={large}: {what}");
        if small > 0 {
            let mut job = self.job(&name("small"), self.spec.small_bytes, small);
            job.span = whole(self.spec.small_bytes);
            jobs.push(job);
        }
        let smalls = jobs.len();
        match self.spec.large_order {
            _ if large == 0 => {}
            LargeOrder::Random => {
                let mut job = self.job(&name("large"), self.spec.large_bytes, large);
                job.span = whole(self.spec.large_bytes);
                jobs.push(job);
            }
            LargeOrder::Sequential => jobs.extend((0..large).map(|stream| self.stream(point, stream))),
        }
        for (at, job) in jobs.iter_mut().enumerate() {
            self.check(job)?;
            job.group = nth as u32;
            job.seed = mix(self.spec.seed ^ mix((nth * 4096 + at) as u64 ^ 2));
        }
        Ok((jobs, smalls))
    }

    /// One of the streams of a point: each has a part of the span.
    fn stream(&self, point: Point, stream: u32) -> Job {
        let bytes = self.spec.large_bytes;
        let name = format!("small={} large={}: stream {}", point.small, point.large, stream + 1);
        let mut job = self.job(&name, bytes, self.spec.stream_ios);
        let part = self.span_bytes / u64::from(point.large) / bytes * bytes;
        job.span = u64::from(stream) * part..(u64::from(stream) + 1) * part;
        job.order = [Order::SEQUENTIAL; 3];
        // A stream reads or writes: so many of a hundred streams, to the nearest.
        let writers = (u64::from(point.large) * u64::from(self.spec.write_percent) + 50) / 100;
        let read_percent = if u64::from(stream) < writers { 0 } else { 100 };
        job.ops = Ops::ReadWrite { read_percent };
        job
    }

    /// I/O at random places, for as long as a point lasts.
    fn job(&self, name: &str, bytes: u64, depth: u32) -> Job {
        let mut job = Job::new(name, 0..self.span_bytes);
        (job.sizes, job.align_bytes) = (std::array::from_fn(|_| Sizes::one(bytes)), [bytes; 3]);
        job.ops = Ops::ReadWrite { read_percent: 100 - self.spec.write_percent };
        (job.depth, job.each_once) = (depth, false);
        (job.time_based, job.runtime_ns) = (true, Some(u64::from(self.spec.seconds) * SECOND_NS));
        job
    }

    fn check(&self, job: &Job) -> Result<(), RunError> {
        if job.span.is_empty() {
            let (span, bytes) = (self.span_bytes, job.align_bytes[0]);
            return Err(RunError::Target(format!(
                "the targets have {span} bytes together, too few for I/Os of {bytes} bytes ({}); name larger ones",
                job.name
            )));
        }
        Ok(())
    }
}
