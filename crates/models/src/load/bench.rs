//! Runs streams against a device.

use super::seconds::Seconds;
use super::{Ask, Job, Looped, Seen, Source};
use crate::device::{Command, Done, Kind, Model};
use crate::rng::Rng;
use bimetal_engine::units::Nanos;

/// When a run ends; in any case when no stream has more to ask for, and all was done. What is in flight when time or
/// bytes are up is waited for, but not counted.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many nanoseconds.
    Elapsed(u64),
    /// When the streams together have transferred so much.
    Bytes(u64),
    /// When no stream has more to ask for.
    Dry,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since it began.
    pub at_ns: u64,
    /// Commands that were done since then.
    pub commands: u64,
    /// Bytes of the reads and writes among them.
    pub bytes: u64,
}

/// Whoever wants to know how a run goes: how often, in nanoseconds, and who.
pub type Observer<'o, M> = (u64, &'o mut dyn FnMut(&M, Sample));

/// A source, and how many of its commands are in flight at most: at least one.
pub struct Stream<'s> {
    /// What is asked for.
    pub source: &'s mut dyn Source,
    /// Commands in flight at most; those whose time comes meanwhile wait, and the wait is part of their response.
    pub depth: u32,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What each stream saw.
    pub seen: Vec<Seen>,
    /// Bytes that were done in the worst whole second, of those in which something was always in flight; none if there
    /// was no such second.
    pub worst_second_bytes: Option<u64>,
}

/// A command that is in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    lane: u32,
    since: u64,
    kind: Kind,
    bytes: u64,
}

/// A stream that is running.
struct Lane<'s> {
    source: &'s mut dyn Source,
    /// Slots in which nothing is in flight; the last is taken first.
    free: Vec<u32>,
    /// What waits for its time, or for a slot.
    next: Option<Ask>,
    seen: Seen,
}

/// What is running.
struct Run<'s> {
    began: u64,
    lanes: Vec<Lane<'s>>,
    slots: Vec<Slot>,
    in_flight: usize,
    seconds: Seconds,
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
        let mut sources: Vec<Looped> = jobs.iter().map(|&job| Looped::new(job)).collect();
        let stream = |(source, job): (_, &Job)| Stream { source, depth: job.depth };
        let sources = sources.iter_mut().map(|source| source as &mut dyn Source);
        let streams = sources.zip(jobs).map(stream).collect();
        self.run_streams(streams, until, (u64::MAX, &mut |_, _| {})).seen
    }

    /// Runs streams side by side, and tells how it goes.
    pub fn run_streams(
        &mut self,
        streams: Vec<Stream<'_>>,
        until: Until,
        (every, observe): Observer<'_, M>,
    ) -> Ran {
        let began = self.now;
        let (mut sample, mut next_sample) = (Sample::default(), began.saturating_add(every));
        let (last, mut bytes_left) = match until {
            Until::Elapsed(ns) => (began + ns, u64::MAX),
            Until::Bytes(bytes) => (u64::MAX, bytes),
            Until::Dry => (u64::MAX, u64::MAX),
        };
        let mut run = Run::new(began, streams);
        (0..run.lanes.len()).for_each(|lane| self.feed(&mut run, lane));
        let mut ended = std::mem::take(&mut self.done);
        let mut arrival = run.arrival(last);
        while let Some(next) = self.next(arrival).filter(|&next| next <= last && bytes_left > 0) {
            while next >= next_sample {
                sample.at_ns = next_sample - began;
                observe(&self.model, sample);
                next_sample += every;
            }
            self.now = next;
            self.model.advance(Nanos(next), &mut ended);
            for done in ended.drain(..) {
                let (lane, bytes) = run.ended(next, done);
                (sample.commands, sample.bytes) = (sample.commands + 1, sample.bytes + bytes);
                bytes_left = bytes_left.saturating_sub(bytes);
                self.feed(&mut run, lane);
            }
            if arrival.is_some_and(|arrival| arrival <= next) {
                (0..run.lanes.len()).for_each(|lane| self.feed(&mut run, lane));
            }
            run.seconds.set_idle(next, run.in_flight == 0);
            arrival = run.arrival(last);
        }
        self.done = ended;
        if last != u64::MAX {
            // Nothing is due before; work that nobody waits for goes on until then.
            self.now = last;
            self.model.advance(Nanos(last), &mut self.done);
        }
        let ran = run.end(self.now);
        self.drain();
        ran
    }

    /// When the next thing happens: the device's, or the time of a command.
    #[inline]
    fn next(&self, arrival: Option<u64>) -> Option<u64> {
        let device = self.model.deadline().map(|device| device.0);
        match (device, arrival) {
            (Some(device), Some(arrival)) => Some(device.min(arrival.max(self.now))),
            (device, arrival) => device.or(arrival),
        }
    }

    /// Submits what a lane has to ask for by now, as far as there are slots.
    #[inline]
    fn feed(&mut self, run: &mut Run<'_>, index: usize) {
        let lane = &mut run.lanes[index];
        while let Some(&place) = lane.free.last() {
            let Some(ask) = lane.next.take().or_else(|| lane.source.next(&mut self.rng)) else { return };
            let mut since = self.now;
            if let Some(at) = ask.at {
                since = run.began.saturating_add(at);
                if since > self.now {
                    lane.next = Some(ask);
                    return;
                }
                lane.seen.submitted(self.now - since);
            }
            let Command { kind, len, .. } = ask.command;
            lane.free.pop();
            run.slots[place as usize] = Slot { lane: index as u32, since, kind, bytes: len };
            run.in_flight += 1;
            self.model.submit(Nanos(self.now), u64::from(place), ask.command);
        }
    }

    fn drain(&mut self) {
        while let Some(next) = self.model.deadline() {
            self.now = self.now.max(next.0);
            self.model.advance(Nanos(self.now), &mut self.done);
        }
        self.done.clear();
    }
}

impl<'s> Run<'s> {
    fn new(began: u64, streams: Vec<Stream<'s>>) -> Run<'s> {
        let nothing = Slot { lane: 0, since: began, kind: Kind::Flush, bytes: 0 };
        let mut slots = 0;
        let lane = |stream: Stream<'s>| {
            let first = slots;
            slots += stream.depth;
            Lane {
                source: stream.source,
                free: (first..slots).rev().collect(),
                next: None,
                seen: Seen::default(),
            }
        };
        let lanes = streams.into_iter().map(lane).collect();
        Run { began, lanes, slots: vec![nothing; slots as usize], in_flight: 0, seconds: Seconds::new(began) }
    }

    /// When the next command is due that waits for its time only; none that is due when the run is over.
    #[inline]
    fn arrival(&self, last: u64) -> Option<u64> {
        let due = |lane: &Lane<'_>| {
            let at = lane.next.filter(|_| !lane.free.is_empty())?.at?;
            Some(self.began.saturating_add(at))
        };
        self.lanes.iter().filter_map(due).min().filter(|&at| at < last)
    }

    /// A command has ended: its lane, and the bytes of a read or write. Failed ones count to the end of a run, too.
    #[inline]
    fn ended(&mut self, now: u64, done: Done) -> (usize, u64) {
        let slot = self.slots[done.tag as usize];
        let lane = &mut self.lanes[slot.lane as usize];
        lane.free.push(done.tag as u32);
        self.in_flight -= 1;
        let moved = matches!(slot.kind, Kind::Read | Kind::Write { .. });
        let bytes = if moved { slot.bytes } else { 0 };
        if done.failure.is_some() {
            lane.seen.failures += 1;
        } else {
            lane.seen.ended(slot.kind, slot.bytes, done.at.0 - slot.since);
            self.seconds.done(now, bytes);
        }
        (slot.lane as usize, bytes)
    }

    fn end(self, now: u64) -> Ran {
        let elapsed_ns = now - self.began;
        let seen = self.lanes.into_iter().map(|lane| Seen { elapsed_ns, ..lane.seen }).collect();
        Ran { seen, worst_second_bytes: self.seconds.worst(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::{Constant, ConstantParams};
    use crate::load::{Paced, Pattern};

    const MS: u64 = 1_000_000;

    fn bench(units: u32) -> Bench<Constant> {
        let params = ConstantParams { size_bytes: 1 << 30, latency_ns: 10 * MS, ns_per_kib: 0, units };
        Bench::new(Constant::new(params), 1)
    }

    fn looped() -> Looped {
        let pattern = Pattern::Random;
        Looped::new(Job {
            pattern,
            read_percent: 100,
            block_bytes: 4096,
            depth: 1,
            from_byte: 0,
            span_bytes: 1 << 30,
        })
    }

    fn paced(bench: &mut Bench<Constant>, per_second: f64, depth: u32) -> Seen {
        let mut source = Paced::new(looped(), per_second);
        let stream = Stream { source: &mut source, depth };
        bench.run_streams(vec![stream], Until::Elapsed(1000 * MS), (u64::MAX, &mut |_, _| {})).seen.remove(0)
    }

    /// A command every 5 ms for a device that takes 10: half a second behind after a second, wherever they wait.
    #[test]
    fn a_response_counts_from_the_time_that_was_meant() {
        for (depth, late) in [(1000, false), (1, true)] {
            let seen = paced(&mut bench(1), 200.0, depth);
            assert_eq!(seen.reads.len(), 100, "depth {depth}");
            assert!(seen.reads.max().abs_diff(505 * MS) < MS, "depth {depth}: {}", seen.reads.max());
            assert_eq!((seen.late > 90, seen.latest_ns > 480 * MS), (late, late), "depth {depth}: {seen:?}");
        }
    }

    #[test]
    fn a_rate_below_what_the_device_can_is_kept() {
        let mut bench = bench(1);
        let seen = paced(&mut bench, 20.0, 10);
        assert_eq!((seen.reads.len(), seen.late), (20, 0));
        assert!(seen.reads.max().abs_diff(10 * MS) < MS / 50, "{}", seen.reads.max());
        assert_eq!(bench.now(), Nanos(1000 * MS));
    }

    /// Three commands: at once, and two at a later time.
    struct Three(u64);

    impl Source for Three {
        fn next(&mut self, _: &mut Rng) -> Option<Ask> {
            let at = *[0, 2500 * MS, 2500 * MS].get(self.0 as usize)?;
            self.0 += 1;
            let kind = if self.0 == 3 { Kind::Flush } else { Kind::Read };
            Some(Ask {
                at: Some(at),
                command: Command { kind, offset: 0, len: if self.0 == 3 { 0 } else { 4096 } },
            })
        }
    }

    #[test]
    fn a_run_ends_when_there_is_no_more_to_ask_for() {
        let mut bench = bench(2);
        let mut source = Three(0);
        let stream = Stream { source: &mut source, depth: 4 };
        let ran = bench.run_streams(vec![stream], Until::Dry, (u64::MAX, &mut |_, _| {}));
        let seen = &ran.seen[0];
        assert_eq!((seen.reads.len(), seen.flushes, seen.elapsed_ns), (2, 1, 2510 * MS));
        assert_eq!(ran.worst_second_bytes, None);
    }
}
