//! What a request waited for: inferred from when requests began and ended, as hfplayer does (Haghdoost and others, *On
//! the Accuracy and Scalability of Intensive I/O Workload Replay*, FAST '17). A replay that keeps to it drives a faster
//! device faster, and no faster than the programs that were recorded would have.
//!
//! The rule: a program that waits for a request goes on soon after its end. So a request depends on the completion of
//! one that ended shortly before it began, at most the *think limit*, and keeps its distance to that end. Of several it
//! is, in this order,
//!
//! 1. the last one, of those that nothing depends on yet, which it continues (it begins where that one's bytes end),
//! 2. the last one that nothing depends on yet,
//! 3. the last one.
//!
//! A request that nothing ended shortly before depends on none, and keeps its time since the first record. What this
//! cannot tell: streams whose requests take turns by chance may be taken for one another (there are as many chains, but
//! they cross), and a program that thinks for longer than the limit looks like one that waits for nothing.

use crate::Record;
use bimetal_units::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The think limit where nobody asks for another. What a program does between two requests takes microseconds; what
/// takes longer than this waits for a clock, a network or a person.
pub const THINK_LIMIT: Nanos = Nanos(1_000_000);
/// Requests in flight that are remembered, and as many that ended and nothing depends on yet. Of those beyond, the first
/// are not remembered at all, and the others not for long: nothing depends on them.
pub const MAX_WINDOW: usize = 65_536;
/// So many of the last that ended are looked through for one that is continued.
const LOOK_BACK: usize = 64;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The number of the request whose completion it waits for; the first of a trace is 0.
    pub after: Option<u64>,
    /// How long after that completion it begins; where it waits for none, how long after the first record's begin.
    pub gap: Nanos,
}

/// How many requests of a trace wait for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub requests: u64,
    /// Those that depend on a completion.
    pub dependent: u64,
    /// Those of which it is not known when they ended: nothing can depend on them.
    pub endless: u64,
    /// Those that were in flight together with [`MAX_WINDOW`] others, and were not remembered.
    pub forgotten: u64,
}

/// A request whose end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ended {
    at: u64,
    number: u64,
    device: u32,
    /// Behind its last byte; none of a flush.
    next_byte: Option<u64>,
}

/// Infers dependencies, record by record, in bounded memory ([`MAX_WINDOW`]).
#[derive(Debug)]
pub struct Dependencies {
    think_limit: u64,
    now: u64,
    in_flight: BinaryHeap<Reverse<Ended>>,
    /// Those that ended and that nothing depends on yet, in the order in which they ended.
    free: VecDeque<Ended>,
    /// The one that ended last.
    last: Option<Ended>,
    tally: Tally,
}

impl Default for Dependencies {
    fn default() -> Dependencies {
        Dependencies::new(THINK_LIMIT)
    }
}

impl Dependencies {
    /// Begins a trace. A think limit of zero finds only what began in the nanosecond of another's end.
    pub fn new(think_limit: Nanos) -> Dependencies {
        Dependencies {
            think_limit: think_limit.0,
            now: 0,
            in_flight: BinaryHeap::new(),
            free: VecDeque::new(),
            last: None,
            tally: Tally::default(),
        }
    }

    /// What the next record waited for. Records come in the order in which they began; one that lies before its
    /// predecessor is taken to have begun with it. Without times nothing depends on anything, and all gaps are zero.
    pub fn next(&mut self, record: &Record) -> Dependency {
        let number = self.tally.requests;
        self.tally.requests += 1;
        let Some(time) = record.time else {
            self.tally.endless += 1;
            return Dependency { after: None, gap: Nanos(0) };
        };
        self.now = self.now.max(time.0);
        self.pass_ends();
        let found = self.choose(record);
        self.remember(record, number);
        match found {
            Some(ended) => {
                self.tally.dependent += 1;
                Dependency { after: Some(ended.number), gap: Nanos(self.now - ended.at) }
            }
            None => Dependency { after: None, gap: Nanos(self.now) },
        }
    }

    /// How many waited for what, so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Moves on to now: who has ended, and who did so too long ago.
    fn pass_ends(&mut self) {
        while let Some(Reverse(ended)) = self.in_flight.peek()
            && ended.at <= self.now
        {
            self.free.push_back(*ended);
            self.last = Some(*ended);
            self.in_flight.pop();
        }
        let oldest = self.now.saturating_sub(self.think_limit);
        while self.free.len() > MAX_WINDOW || self.free.front().is_some_and(|ended| ended.at < oldest) {
            self.free.pop_front();
        }
        self.last = self.last.filter(|ended| ended.at >= oldest);
    }

    fn choose(&mut self, record: &Record) -> Option<Ended> {
        let begins = (record.bytes > 0).then_some(record.offset);
        let continues =
            |ended: &&Ended| begins.is_some() && ended.next_byte == begins && ended.device == record.device;
        let back = self.free.iter().rev().take(LOOK_BACK).position(|ended| continues(&ended));
        match back {
            Some(back) => self.free.remove(self.free.len() - 1 - back),
            None => self.free.pop_back().or(self.last),
        }
    }

    fn remember(&mut self, record: &Record, number: u64) {
        let Some(response) = record.response else {
            self.tally.endless += 1;
            return;
        };
        if self.in_flight.len() >= MAX_WINDOW {
            self.tally.forgotten += 1;
            return;
        }
        self.in_flight.push(Reverse(Ended {
            at: self.now.saturating_add(response.0),
            number,
            device: record.device,
            next_byte: (record.bytes > 0).then(|| record.offset.saturating_add(record.bytes)),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Marks, Op};
    use bimetal_units::rng::Rng;

    const US: u64 = 1000;

    fn read(time: u64, offset: u64, response: u64) -> Record {
        Record {
            time: Some(Nanos(time)),
            op: Op::Read,
            offset,
            bytes: 4096,
            device: 0,
            response: Some(Nanos(response)),
            marks: Marks::default(),
        }
    }

    fn infer(records: &[Record]) -> (Vec<Dependency>, Tally) {
        let mut dependencies = Dependencies::default();
        let found = records.iter().map(|record| dependencies.next(record)).collect();
        (found, dependencies.tally())
    }

    fn scattered(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 30 << 12
    }

    #[test]
    fn a_closed_loop_of_one_is_a_chain() {
        let (mut time, mut records, mut thought) = (0, Vec::new(), vec![0]);
        for number in 0..1000 {
            let (response, think) = (100 * US + number % 7 * US, 5 * US + number % 3 * US);
            records.push(read(time, scattered(number), response));
            time += response + think;
            thought.push(think);
        }
        let (found, tally) = infer(&records);
        assert_eq!(found[0], Dependency { after: None, gap: Nanos(0) });
        for (number, dependency) in found.iter().enumerate().skip(1) {
            assert_eq!(dependency.after, Some(number as u64 - 1));
            assert_eq!(dependency.gap, Nanos(thought[number]));
        }
        assert_eq!((tally.requests, tally.dependent), (1000, 999));
    }

    /// Streams that each wait for their own requests, merged by time: which stream each record is of, too.
    fn streams(of: &[(u64, u64)], sequential: bool) -> (Vec<Record>, Vec<usize>) {
        let mut next: Vec<(u64, u64)> = of.iter().map(|_| (0, 0)).collect();
        let (mut records, mut owners) = (Vec::new(), Vec::new());
        for _ in 0..2000 {
            let (owner, &(time, count)) =
                next.iter().enumerate().min_by_key(|(_, (time, _))| *time).expect("some");
            let (response, think) = of[owner];
            let place = if sequential { count * 4096 } else { scattered(count) };
            records.push(read(time, place + ((owner as u64) << 40), response));
            owners.push(owner);
            next[owner] = (time + response + think, count + 1);
        }
        (records, owners)
    }

    #[test]
    fn independent_streams_are_as_many_chains() {
        for sequential in [false, true] {
            let (records, owners) = streams(&[(90 * US, 3 * US), (137 * US, 2 * US)], sequential);
            let (found, tally) = infer(&records);
            assert_eq!(tally.dependent, records.len() as u64 - 2, "all but the first of each");
            let crossed = found.iter().enumerate().filter(|(number, dependency)| {
                dependency.after.is_some_and(|after| owners[after as usize] != owners[*number])
            });
            let crossed = crossed.count();
            // By chance one ends while the other thinks; where bytes follow one another, that is no matter.
            assert!(crossed <= if sequential { 0 } else { records.len() / 10 }, "{crossed}");
            let mut named: Vec<u64> = found.iter().filter_map(|dependency| dependency.after).collect();
            named.sort_unstable();
            assert!(named.windows(2).all(|pair| pair[0] != pair[1]), "nobody is waited for twice");
        }
    }

    #[test]
    fn a_depth_is_kept() {
        let (records, _) = streams(&[(100 * US, US); 8], false);
        let (found, tally) = infer(&records);
        assert_eq!(tally.dependent, records.len() as u64 - 8);
        assert!(found[8..].iter().all(|dependency| dependency.gap == Nanos(US)));
    }

    #[test]
    fn arrivals_that_wait_for_nothing_hardly_depend_on_anything() {
        let mut rng = Rng::new(7, 7);
        let (mut time, mut records) = (0, Vec::new());
        for number in 0..5000 {
            records.push(read(time, scattered(number), 200 * US));
            let uniform = (rng.below(1 << 30) + 1) as f64 / (1u64 << 30) as f64;
            time += (-uniform.ln() * 20_000_000.0) as u64;
        }
        let (found, tally) = infer(&records);
        // Of arrivals 20 ms apart, one in twenty falls by chance into the millisecond behind an end.
        assert!(tally.dependent < tally.requests / 10, "{tally:?}");
        let free = found.iter().zip(&records).filter(|(dependency, _)| dependency.after.is_none());
        free.for_each(|(dependency, record)| assert_eq!(Some(dependency.gap), record.time));
    }

    #[test]
    fn one_completion_may_begin_several() {
        let mut records = vec![read(0, 0, 50 * US)];
        records.extend((0..4).map(|number| read(51 * US + number, scattered(number), 500 * US)));
        let (found, _) = infer(&records);
        assert!(found[1..].iter().all(|dependency| dependency.after == Some(0)));
        assert_eq!(found[4].gap, Nanos(US + 3));
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_times_depends_on_nothing() {
        let mut dependencies = Dependencies::default();
        for number in 0..3 * MAX_WINDOW as u64 {
            dependencies.next(&read(number, scattered(number), 1 << 40));
            assert!(dependencies.in_flight.len() <= MAX_WINDOW);
        }
        assert_eq!(dependencies.tally().forgotten, 2 * MAX_WINDOW as u64);
        // They end within a few moments, and nothing follows them.
        dependencies.next(&read((1 << 40) + 3 * MAX_WINDOW as u64, 0, 1));
        assert!(dependencies.free.len() <= MAX_WINDOW);
        let timeless = Record { time: None, response: None, ..read(0, 0, 0) };
        assert_eq!(infer(&[timeless; 3]).0[2], Dependency { after: None, gap: Nanos(0) });
        let early = [read(1000, 0, 10), read(10, 0, 10)];
        assert_eq!(infer(&early).0[1], Dependency { after: None, gap: Nanos(1000) });
    }
}
