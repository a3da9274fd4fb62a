//! Proof of what was touched: which blocks were asked for, how often, and whether those that were asked for again came
//! back sooner, as they do from a cache.

use crate::job::Job;
use crate::load::JobSource;
use bimetal_load::{Ask, Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_units::rng::Rng;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Blocks that are told apart, at most: a bit each, 64 MiB of memory. Of more, neighbours count as one.
const MAX_BLOCKS: u64 = 1 << 29;
/// A mean of fewer reads says nothing.
const MIN_READS: u64 = 30;
/// Reads of known blocks are quicker by a cache when first ones take so many times as long ...
const CACHED: f64 = 1.25;
/// ... and the difference is so many times its standard error.
const SURE: f64 = 4.0;

/// What was touched.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// I/Os that were asked for.
    pub ios: u64,
    /// Bytes of these.
    pub asked_bytes: u64,
    /// Blocks of an I/O's size that were asked for at least once.
    pub distinct_blocks: u64,
    /// Bytes of these: how much data was touched.
    pub distinct_bytes: u64,
    /// Bytes that could have been asked for.
    pub span_bytes: u64,
    /// How many times longer a block took that was read for the first time in the run, at the same load; none where too
    /// few were read again.
    pub first_by_again: Option<f64>,
    /// Whether that is more than chance and much: a cache served what it knew.
    pub cached: bool,
}

impl Coverage {
    /// The share of the span that was touched.
    pub fn share(&self) -> f64 {
        self.distinct_bytes as f64 / self.span_bytes.max(1) as f64
    }
}

/// Latencies of a kind, within a point.
#[derive(Clone, Copy, Default)]
struct Sum {
    count: u64,
    ns: f64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, ns: f64) {
        self.count += 1;
        self.ns += ns;
        self.squares += ns * ns;
    }

    fn mean(&self) -> f64 {
        self.ns / self.count.max(1) as f64
    }

    /// The square of the mean's standard error.
    fn error2(&self) -> f64 {
        let count = self.count.max(2) as f64;
        (self.squares / count - self.mean().powi(2)).max(0.0) / (count - 1.0)
    }
}

/// Counts the blocks of small or of large I/Os.
pub(super) struct Cover {
    block_bytes: u64,
    io_bytes: u64,
    span_bytes: u64,
    touched: Vec<u64>,
    distinct: u64,
    ios: u64,
    /// Of the present point: blocks that are read for the first time, and again.
    present: [Sum; 2],
    /// Of all points: what the reads of known blocks took, what they would have as first ones, and the square of the
    /// difference's standard error.
    took_ns: f64,
    expected_ns: f64,
    error2: f64,
}

impl Cover {
    /// Of I/Os of one size, which are aligned to it.
    pub(super) fn new(span_bytes: u64, io_bytes: u64) -> Cover {
        let mut block_bytes = io_bytes.max(1);
        while span_bytes.div_ceil(block_bytes) > MAX_BLOCKS {
            block_bytes *= 2;
        }
        let words = span_bytes.div_ceil(block_bytes).div_ceil(64);
        Cover {
            block_bytes,
            io_bytes,
            span_bytes,
            touched: vec![0; words as usize],
            distinct: 0,
            ios: 0,
            present: [Sum::default(); 2],
            took_ns: 0.0,
            expected_ns: 0.0,
            error2: 0.0,
        }
    }

    /// An I/O is asked for; whether its block was before.
    fn touch(&mut self, offset: u64) -> bool {
        let block = offset / self.block_bytes;
        let (word, bit) = (&mut self.touched[(block / 64) as usize], 1u64 << (block % 64));
        let again = *word & bit != 0;
        *word |= bit;
        self.distinct += u64::from(!again);
        self.ios += 1;
        again
    }

    /// A point is over: loads are not compared with each other.
    pub(super) fn end_point(&mut self) {
        let [first, again] = std::mem::take(&mut self.present);
        if first.count < MIN_READS || again.count < MIN_READS {
            return;
        }
        let count = again.count as f64;
        self.took_ns += again.ns;
        self.expected_ns += count * first.mean();
        self.error2 += count * count * (first.error2() + again.error2());
    }

    pub(super) fn coverage(&self) -> Coverage {
        let first_by_again = (self.took_ns > 0.0).then(|| self.expected_ns / self.took_ns);
        let sure = self.expected_ns - self.took_ns > SURE * self.error2.sqrt();
        Coverage {
            ios: self.ios,
            asked_bytes: self.ios * self.io_bytes,
            distinct_blocks: self.distinct,
            distinct_bytes: (self.distinct * self.io_bytes).min(self.span_bytes),
            span_bytes: self.span_bytes,
            first_by_again,
            cached: sure && first_by_again.is_some_and(|ratio| ratio >= CACHED),
        }
    }
}

/// A job whose blocks are counted, and which begins elsewhere in its span each time, so that no point reads again what
/// the one before has left in a cache.
pub(super) struct Counted<'c> {
    source: JobSource,
    span: std::ops::Range<u64>,
    shift_bytes: u64,
    cover: &'c RefCell<Cover>,
    /// What is in flight, and none for what has ended between; the first has this number.
    asked: VecDeque<Option<Asked>>,
    first: u64,
}

/// An I/O in flight.
#[derive(Clone, Copy)]
struct Asked {
    at_ns: u64,
    is_read: bool,
    /// Its block was asked for before.
    again: bool,
}

impl<'c> Counted<'c> {
    pub(super) fn new(job: &Job, shift_bytes: u64, cover: &'c RefCell<Cover>) -> Counted<'c> {
        let (source, span) = (JobSource::new(job), job.span.clone());
        Counted { source, span, shift_bytes, cover, asked: VecDeque::new(), first: 0 }
    }
}

impl Source for Counted<'_> {
    fn next(&mut self, now: u64, rng: &mut Rng) -> Next {
        let mut next = self.source.next(now, rng);
        let Next::Ask(Ask { command, .. }) = &mut next else { return next };
        let len = self.span.end - self.span.start;
        command.offset = self.span.start + (command.offset - self.span.start + self.shift_bytes) % len;
        let again = self.cover.borrow_mut().touch(command.offset);
        self.asked.push_back(Some(Asked { at_ns: now, is_read: command.kind == Kind::Read, again }));
        next
    }

    fn ended(&mut self, number: u64, now: u64, done: bool) {
        let asked = self.asked.get_mut((number - self.first) as usize).and_then(Option::take);
        if let Some(Asked { at_ns, again, .. }) = asked.filter(|asked| done && asked.is_read) {
            self.cover.borrow_mut().present[usize::from(again)].add((now - at_ns) as f64);
        }
        while let Some(None) = self.asked.front() {
            self.asked.pop_front();
            self.first += 1;
        }
        self.source.ended(number, now, done);
    }

    fn fill(&mut self, number: u64, command: &Command, bytes: &mut [u8]) {
        self.source.fill(number, command, bytes);
    }
}
