//! What is asked for, and when.

use bimetal_models::device::{Command, Kind};
use bimetal_units::rng::{Rng, mix};
use rand::TryRng;
use rand_distr::{Distribution as _, Zipf};
use std::convert::Infallible;

/// In which order a job asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Anywhere in the span, at multiples of the block size.
    Random,
    /// The same, but some blocks more often than others: the n-th most frequent in proportion to n to the power of
    /// minus theta, which is not negative. They lie scattered over the span, hashed, so that a few share a place.
    Zipf {
        /// How uneven it is: 0 not at all.
        theta: f64,
    },
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

/// A command that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// When it is meant to start, nanoseconds since the run began; `None` as soon as there is room.
    pub at: Option<u64>,
    /// What to do.
    pub command: Command,
}

/// What a source says when there is room for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This; its time is not before that of the one before.
    Ask(Ask),
    /// Nothing until another one of its commands has ended: only while one is in flight.
    Hold,
    /// Nothing until this time, nanoseconds since the run began, or until another one of its commands has ended.
    Later(u64),
    /// No more.
    End,
}

/// Says what is asked for next.
pub trait Source {
    /// The next command; `now` is nanoseconds since the run began. It is not asked again after an end.
    fn next(&mut self, now: u64, rng: &mut Rng) -> Next;

    /// One of its commands has ended: by its number, the first is 0; and whether it was done.
    fn ended(&mut self, _number: u64, _now: u64, _done: bool) {}

    /// Fills what is going to be written, where streams have payload.
    fn fill(&mut self, _number: u64, _command: &Command, _bytes: &mut [u8]) {}

    /// Whether what ends now was asked for to look at what the source itself has written.
    fn reads_back(&self) -> bool {
        false
    }

    /// Whether what was read is what it should be, where streams have payload.
    fn check(&mut self, _number: u64, _command: &Command, _bytes: &[u8]) -> bool {
        true
    }
}

/// The commands of a job, without end. It starts at the beginning of its span.
#[derive(Clone, Debug)]
pub struct Looped {
    job: Job,
    blocks: u64,
    position: u64,
    zipf: Option<Ranks>,
}

impl Looped {
    /// From the beginning.
    pub fn new(job: Job) -> Looped {
        let blocks = job.span_bytes / job.block_bytes;
        let zipf = match job.pattern {
            Pattern::Zipf { theta } => Ranks::new(blocks, theta),
            Pattern::Random | Pattern::Sequential => None,
        };
        Looped { job, blocks, position: 0, zipf }
    }

    fn zipf(&self, rng: &mut Rng) -> u64 {
        let Some(zipf) = &self.zipf else { return rng.below(self.blocks) };
        mix(zipf.draw(rng)) % self.blocks
    }
}

/// Zipf's law: the n-th is drawn in proportion to n to the power of minus theta.
#[derive(Clone, Debug)]
pub struct Ranks(Zipf<f64>);

impl Ranks {
    /// Of so many; `None` for none, and where theta is negative or no number.
    pub fn new(count: u64, theta: f64) -> Option<Ranks> {
        Zipf::new(count as f64, theta).ok().map(Ranks)
    }

    /// A rank: the first, and most frequent, is 1.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        self.0.sample(&mut Words(rng)) as u64
    }
}

/// Our generator, as the crate of distributions wants one.
struct Words<'r>(&'r mut Rng);

impl TryRng for Words<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill(bytes);
        Ok(())
    }
}

impl Source for Looped {
    #[inline]
    fn next(&mut self, _now: u64, rng: &mut Rng) -> Next {
        let block = match self.job.pattern {
            Pattern::Random => rng.below(self.blocks),
            Pattern::Zipf { .. } => self.zipf(rng),
            Pattern::Sequential => {
                let block = self.position;
                self.position = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        let read = match self.job.read_percent {
            0 => false,
            100 => true,
            percent => rng.below(100) < percent,
        };
        let kind = if read { Kind::Read } else { Kind::Write { fua: false } };
        let len = self.job.block_bytes;
        let command = Command { kind, offset: self.job.from_byte + block * len, len };
        Next::Ask(Ask { at: None, command })
    }
}

/// What another source asks for, at even distances.
#[derive(Clone, Debug)]
pub struct Paced<S> {
    inner: S,
    every_ns: f64,
    asked: u64,
}

impl<S> Paced<S> {
    /// So many a second: more than none. The first is meant for the beginning.
    pub fn new(inner: S, per_second: f64) -> Paced<S> {
        Paced { inner, every_ns: 1e9 / per_second, asked: 0 }
    }
}

impl<S: Source> Source for Paced<S> {
    fn next(&mut self, now: u64, rng: &mut Rng) -> Next {
        let Next::Ask(ask) = self.inner.next(now, rng) else { return Next::End };
        let at = self.asked as f64 * self.every_ns;
        self.asked += 1;
        Next::Ask(Ask { at: Some(at as u64), ..ask })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The most frequent of a thousand blocks is as frequent as the law says, and none is left out of the span.
    #[test]
    fn zipf_keeps_its_law() {
        let pattern = Pattern::Zipf { theta: 1.0 };
        let mut looped = Looped::new(Job {
            pattern,
            read_percent: 100,
            block_bytes: 4096,
            depth: 1,
            from_byte: 8192,
            span_bytes: 4096 * 1000,
        });
        let mut rng = Rng::new(1, 1);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..100_000 {
            let Next::Ask(ask) = looped.next(0, &mut rng) else { panic!("it is without end") };
            assert!((8192..8192 + 4096 * 1000).contains(&ask.command.offset));
            *counts.entry(ask.command.offset).or_default() += 1;
        }
        // One part in the sum of 1/n up to 1000, which is 7.485.
        let most = counts.values().max().copied().unwrap_or(0);
        assert!((12_500..15_500).contains(&most), "{most}");
        assert!(counts.len() > 500, "{}", counts.len());
    }
}
