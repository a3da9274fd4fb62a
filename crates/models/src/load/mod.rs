//! A small load generator in virtual time: closed loops, each with so many commands in flight.

use crate::device::{Command, Done, Kind, Model};
use crate::rng::Rng;
use bimetal_engine::units::Nanos;

pub use hdrhistogram::Histogram;

/// In which order a job asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere in the span, at multiples of the block size.
    Random,
    /// One block after another, round and round the span.
    Sequential,
}

/// A closed loop: it always has `depth` commands in flight.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// In which order.
    pub pattern: Pattern,
    /// How many of a hundred commands are reads.
    pub read_percent: u64,
    /// Bytes of a command.
    pub block_bytes: u64,
    /// Commands in flight.
    pub depth: u32,
    /// First byte of the range that is asked for.
    pub from_byte: u64,
    /// Bytes of that range: at least a block.
    pub span_bytes: u64,
}

/// When a run ends. What is in flight then is waited for, but not counted.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many nanoseconds.
    Elapsed(u64),
    /// When the jobs together have transferred so much.
    Bytes(u64),
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since it began.
    pub at_ns: u64,
    /// Commands that were done since then.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Whoever wants to know how a run goes: how often, in nanoseconds, and who.
pub type Observer<'o, M> = (u64, &'o mut dyn FnMut(&M, Sample));

/// The longest latency that is told from longer ones: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits that latencies are counted to.
const DIGITS: u8 = 3;

/// What one job saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How long the run was.
    pub elapsed_ns: u64,
    /// Bytes of commands that were done.
    pub bytes: u64,
    /// Commands that failed.
    pub failures: u64,
    /// Latencies of reads that were done, in nanoseconds.
    pub reads: Histogram<u64>,
    /// The same of writes.
    pub writes: Histogram<u64>,
}

impl Default for Seen {
    fn default() -> Seen {
        let none = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds of a histogram");
        Seen { elapsed_ns: 0, bytes: 0, failures: 0, reads: none.clone(), writes: none }
    }
}

impl Seen {
    /// Commands done in a second.
    pub fn iops(&self) -> f64 {
        self.per_second(self.reads.len() + self.writes.len())
    }

    /// Millions of bytes in a second.
    pub fn mb_per_s(&self) -> f64 {
        self.per_second(self.bytes) / 1e6
    }

    /// Mean latency of reads and writes.
    pub fn mean_ns(&self) -> f64 {
        let (reads, writes) = (self.reads.len() as f64, self.writes.len() as f64);
        (self.reads.mean() * reads + self.writes.mean() * writes) / (reads + writes).max(1.0)
    }

    /// So many of something, in a second of the run.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// A command of a job that is in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    job: u32,
    since: u64,
    read: bool,
}

/// A device under load, and its clock.
#[derive(Debug)]
pub struct Bench<M> {
    /// The device.
    pub model: M,
    now: u64,
    rng: Rng,
    done: Vec<Done>,
}

impl<M: Model> Bench<M> {
    /// The device at the beginning of time.
    pub fn new(model: M, seed: u64) -> Bench<M> {
        Bench::since(model, Nanos(0), seed)
    }

    /// A device whose time has come to `now`.
    pub fn since(model: M, now: Nanos, seed: u64) -> Bench<M> {
        Bench { model, now: now.0, rng: Rng::new(seed, 1), done: Vec::new() }
    }

    /// Its time.
    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Asks for nothing for so long.
    pub fn rest(&mut self, ns: u64) {
        self.now += ns;
        self.model.advance(Nanos(self.now), &mut self.done);
        assert!(self.done.is_empty(), "nothing is in flight between runs");
    }

    /// Discards a range, and waits.
    pub fn discard(&mut self, offset: u64, len: u64) {
        self.model.submit(Nanos(self.now), 0, Command { kind: Kind::Discard, offset, len });
        self.drain();
    }

    /// Runs the jobs side by side; what each has seen. Each starts at the beginning of its span.
    pub fn run(&mut self, jobs: &[Job], until: Until) -> Vec<Seen> {
        self.run_observed(jobs, until, (u64::MAX, &mut |_, _| {}))
    }

    /// As [`Bench::run`], and tells how it goes.
    pub fn run_observed(&mut self, jobs: &[Job], until: Until, observer: Observer<'_, M>) -> Vec<Seen> {
        let began = self.now;
        let (every, observe) = observer;
        let (mut sample, mut next_sample) = (Sample::default(), began.saturating_add(every));
        let (last, mut bytes_left) = match until {
            Until::Elapsed(ns) => (began + ns, u64::MAX),
            Until::Bytes(bytes) => (u64::MAX, bytes),
        };
        let mut seen = vec![Seen::default(); jobs.len()];
        let mut positions = vec![0; jobs.len()];
        let mut slots = Vec::new();
        for (index, job) in (0..).zip(jobs) {
            slots.extend((0..job.depth).map(|_| Slot { job: index, since: began, read: false }));
        }
        for tag in 0..slots.len() {
            self.submit(jobs, &mut positions, &mut slots, tag);
        }
        let mut ended = std::mem::take(&mut self.done);
        while let Some(next) = self.model.deadline().filter(|next| next.0 <= last && bytes_left > 0) {
            while next.0 >= next_sample {
                sample.at_ns = next_sample - began;
                observe(&self.model, sample);
                next_sample += every;
            }
            self.now = next.0;
            self.model.advance(next, &mut ended);
            for done in ended.drain(..) {
                let slot = slots[done.tag as usize];
                let bytes = jobs[slot.job as usize].block_bytes;
                (sample.commands, sample.bytes) = (sample.commands + 1, sample.bytes + bytes);
                seen[slot.job as usize].count(slot, done, bytes);
                bytes_left = bytes_left.saturating_sub(bytes);
                self.submit(jobs, &mut positions, &mut slots, done.tag as usize);
            }
        }
        self.done = ended;
        if last != u64::MAX {
            self.now = last;
        }
        seen.iter_mut().for_each(|seen| seen.elapsed_ns = self.now - began);
        self.drain();
        seen
    }

    fn submit(&mut self, jobs: &[Job], positions: &mut [u64], slots: &mut [Slot], tag: usize) {
        let slot = &mut slots[tag];
        let job = &jobs[slot.job as usize];
        let blocks = job.span_bytes / job.block_bytes;
        let block = match job.pattern {
            Pattern::Random => self.rng.below(blocks),
            Pattern::Sequential => {
                let position = &mut positions[slot.job as usize];
                let block = *position;
                *position = if block + 1 == blocks { 0 } else { block + 1 };
                block
            }
        };
        slot.read = match job.read_percent {
            0 => false,
            100 => true,
            percent => self.rng.below(100) < percent,
        };
        slot.since = self.now;
        let kind = if slot.read { Kind::Read } else { Kind::Write { fua: false } };
        let offset = job.from_byte + block * job.block_bytes;
        self.model.submit(Nanos(self.now), tag as u64, Command { kind, offset, len: job.block_bytes });
    }

    fn drain(&mut self) {
        while let Some(next) = self.model.deadline() {
            self.now = self.now.max(next.0);
            self.model.advance(Nanos(self.now), &mut self.done);
        }
        self.done.clear();
    }
}

impl Seen {
    fn count(&mut self, slot: Slot, done: Done, bytes: u64) {
        if done.failure.is_some() {
            self.failures += 1;
            return;
        }
        self.bytes += bytes;
        let latency = done.at.0 - slot.since;
        let latencies = if slot.read { &mut self.reads } else { &mut self.writes };
        latencies.saturating_record(latency);
    }
}
