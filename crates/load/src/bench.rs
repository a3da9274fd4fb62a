//! Runs streams against a model, in virtual time.

use super::engine::{self, Io, Sample, Stream, Until, Witness};
use super::seconds::Seconds;
use super::target::{Ended, Fault, Target};
use super::{Job, Looped, Seen, Source};
use bimetal_models::device::{Command, Done, Kind, Model};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;

/// Whoever wants to know how a run goes: how often, in nanoseconds, and who.
pub type Observer<'o, M> = (u64, &'o mut dyn FnMut(&M, Sample));

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What each stream saw.
    pub seen: Vec<Seen>,
    /// Bytes that were done in the worst whole second, of those in which something was always in flight; none if there
    /// was no such second.
    pub worst_second_bytes: Option<u64>,
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
        let sources = sources.iter_mut().map(|source| source as &mut dyn Source);
        let streams = sources.zip(jobs).map(|(source, job)| Stream::new(source, job.depth)).collect();
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
        let seen = vec![Seen::default(); streams.len()];
        let mut notes = Notes { seen, seconds: Seconds::new(began), observe };
        let mut rng = self.rng.clone();
        engine::run(self, streams, until, every, &mut rng, &mut notes);
        self.rng = rng;
        if let Until::Elapsed(ns) = until {
            // Nothing is due before; work that nobody waits for goes on until then.
            self.now = began + ns;
            self.model.advance(Nanos(self.now), &mut self.done);
        }
        let elapsed_ns = self.now - began;
        let seen = notes.seen.into_iter().map(|seen| Seen { elapsed_ns, ..seen }).collect();
        let ran = Ran { seen, worst_second_bytes: notes.seconds.worst(self.now) };
        self.drain();
        ran
    }

    /// Lets end what is in flight.
    fn drain(&mut self) {
        while let Some(next) = self.model.deadline() {
            self.now = self.now.max(next.0);
            self.model.advance(Nanos(self.now), &mut self.done);
        }
        self.done.clear();
    }
}

impl<M: Model> Target for Bench<M> {
    fn now_ns(&mut self) -> u64 {
        self.now
    }

    #[inline]
    fn submit(&mut self, slot: u32, _place: u32, command: Command) {
        self.model.submit(Nanos(self.now), u64::from(slot), command);
    }

    #[inline]
    fn wait(&mut self, until: Option<u64>, ended: &mut Vec<Ended>) -> u64 {
        let deadline = self.model.deadline().map(|deadline| deadline.0);
        let Some(next) = deadline.into_iter().chain(until).min() else { return self.now };
        self.now = self.now.max(next);
        self.model.advance(Nanos(self.now), &mut self.done);
        ended.extend(self.done.drain(..).map(|done| Ended {
            slot: done.tag as u32,
            handed_ns: None,
            at_ns: done.at.0,
            fault: done.failure.map(Fault::Failed),
            served: done.served,
        }));
        self.now
    }
}

/// Puts down what the streams of a run see.
struct Notes<'o, M> {
    seen: Vec<Seen>,
    seconds: Seconds,
    observe: &'o mut dyn FnMut(&M, Sample),
}

impl<M: Model> Witness<Bench<M>> for Notes<'_, M> {
    #[inline]
    fn begun(&mut self, stream: usize, _kind: Kind, _now_ns: u64, late_ns: Option<u64>) {
        if let Some(late_ns) = late_ns {
            self.seen[stream].submitted(late_ns);
        }
    }

    #[inline]
    fn ended(&mut self, io: &Io) {
        let seen = &mut self.seen[io.stream];
        if io.fault.is_some() {
            seen.failures += 1;
            return;
        }
        let Command { kind, len, .. } = io.command;
        seen.ended(kind, len, io.at_ns - io.meant_ns.unwrap_or(io.begun_ns));
        let moved = matches!(kind, Kind::Read | Kind::Write { .. });
        self.seconds.done(io.at_ns, if moved { len } else { 0 });
    }

    #[inline]
    fn idle(&mut self, now_ns: u64, idle: bool) {
        self.seconds.set_idle(now_ns, idle);
    }

    fn sample(&mut self, bench: &mut Bench<M>, sample: Sample) -> bool {
        (self.observe)(&bench.model, sample);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, Next, Paced, Pattern};
    use bimetal_models::constant::{Constant, ConstantParams};

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
        let stream = Stream::new(&mut source, depth);
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
        fn next(&mut self, _: u64, _: &mut Rng) -> Next {
            let Some(&at) = [0, 2500 * MS, 2500 * MS].get(self.0 as usize) else { return Next::End };
            self.0 += 1;
            let kind = if self.0 == 3 { Kind::Flush } else { Kind::Read };
            Next::Ask(Ask {
                at: Some(at),
                command: Command { kind, offset: 0, len: if self.0 == 3 { 0 } else { 4096 } },
            })
        }
    }

    #[test]
    fn a_run_ends_when_there_is_no_more_to_ask_for() {
        let mut bench = bench(2);
        let mut source = Three(0);
        let stream = Stream::new(&mut source, 4);
        let ran = bench.run_streams(vec![stream], Until::Dry, (u64::MAX, &mut |_, _| {}));
        let seen = &ran.seen[0];
        assert_eq!((seen.reads.len(), seen.flushes, seen.elapsed_ns), (2, 1, 2510 * MS));
        assert_eq!(ran.worst_second_bytes, None);
    }
}
