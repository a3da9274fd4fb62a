//! The engine of load: keeps streams of commands in flight on a target, and tells a witness what came of each.

use super::source::{Ask, Next, Source};
use super::target::{Ended, Fault, Target};
use bimetal_models::device::{Command, Kind};
use bimetal_units::ServedBy;
use bimetal_units::rng::Rng;

/// When a run ends; in any case when no stream has more to ask for, and all was done. What is in flight when time or
/// bytes are up is not counted.
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

/// A source, and how many of its commands are in flight at most: at least one.
pub struct Stream<'s> {
    /// What is asked for.
    pub source: &'s mut dyn Source,
    /// Commands in flight at most; those whose time comes meanwhile wait, and the wait is part of their response.
    pub depth: u32,
    /// Which of the target's places it is for.
    pub place: u32,
    /// Whether the source fills what is written and checks what is read.
    pub payload: bool,
}

impl<'s> Stream<'s> {
    /// On a target with one place; whatever is written will do.
    pub fn new(source: &'s mut dyn Source, depth: u32) -> Stream<'s> {
        Stream { source, depth, place: 0, payload: false }
    }
}

/// A command that has ended. Times are the target's.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// The stream that asked for it, by its place among them.
    pub stream: usize,
    /// What was asked for.
    pub command: Command,
    /// When it was meant to begin, if a time was meant.
    pub meant_ns: Option<u64>,
    /// When it was begun.
    pub begun_ns: u64,
    /// When it was handed over.
    pub handed_ns: u64,
    /// When it ended.
    pub at_ns: u64,
    /// Why it was not done.
    pub fault: Option<Fault>,
    /// The tiers that had a part in it, where the target tells.
    pub served: Option<ServedBy>,
    /// It was done, but its payload is not what the source expects.
    pub mismatched: bool,
    /// It reads what the source has written before.
    pub reads_back: bool,
}

/// Who looks on.
pub trait Witness<T> {
    /// A command is begun; so much after its time, if it had one.
    fn begun(&mut self, _stream: usize, _kind: Kind, _now_ns: u64, _late_ns: Option<u64>) {}

    /// A command has ended.
    fn ended(&mut self, io: &Io);

    /// From now on nothing is in flight, or something is; told after each event.
    fn idle(&mut self, _now_ns: u64, _idle: bool) {}

    /// It is time to look how it goes. On `false` nothing more is asked for.
    fn sample(&mut self, _target: &mut T, _sample: Sample) -> bool {
        true
    }

    /// After nothing more was asked for, because [`Witness::sample`] said so: whether to leave alone what is still in
    /// flight, and end.
    fn gives_up(&mut self, _now_ns: u64) -> bool {
        false
    }
}

/// A command that is in flight.
#[derive(Clone, Copy)]
struct Slot {
    lane: u32,
    number: u64,
    command: Command,
    meant_ns: Option<u64>,
    begun_ns: u64,
}

/// A stream that is running.
struct Lane<'s> {
    stream: Stream<'s>,
    /// Slots in which nothing is in flight; the last is taken first.
    free: Vec<u32>,
    /// What waits for its time, or for a slot.
    next: Option<Ask>,
    /// When the source wants to be asked again.
    later: Option<u64>,
    /// How many were begun.
    begun: u64,
    /// How many are in flight.
    in_flight: u32,
    /// It has nothing more to ask for.
    over: bool,
}

/// What is running.
struct Run<'s> {
    began_ns: u64,
    lanes: Vec<Lane<'s>>,
    slots: Vec<Slot>,
    in_flight: usize,
}

/// Runs streams side by side on a target until an end; `every_ns` the witness looks how it goes. What time it is then,
/// on the target's clock. Commands may still be in flight when time or bytes were up.
pub fn run<T: Target, W: Witness<T>>(
    target: &mut T,
    streams: Vec<Stream<'_>>,
    until: Until,
    every_ns: u64,
    rng: &mut Rng,
    witness: &mut W,
) -> u64 {
    let began_ns = target.now_ns();
    let (mut sample, mut next_sample) = (Sample::default(), began_ns.saturating_add(every_ns));
    let (last, mut bytes_left) = match until {
        Until::Elapsed(ns) => (began_ns.saturating_add(ns), u64::MAX),
        Until::Bytes(bytes) => (u64::MAX, bytes),
        Until::Dry => (u64::MAX, u64::MAX),
    };
    let mut run = Run::new(began_ns, streams);
    let mut now = began_ns;
    (0..run.lanes.len()).for_each(|lane| run.feed(lane, now, target, rng, witness));
    let mut ended = Vec::new();
    while bytes_left > 0 {
        let arrival = run.arrival(last);
        if run.in_flight == 0 && arrival.is_none() {
            break;
        }
        let bound = last.min(next_sample).min(arrival.unwrap_or(u64::MAX));
        now = target.wait((bound != u64::MAX).then_some(bound), &mut ended);
        while now >= next_sample {
            sample.at_ns = next_sample - began_ns;
            next_sample += every_ns;
            if !witness.sample(target, sample) {
                run.stop();
                if ended.is_empty() && witness.gives_up(now) {
                    return now;
                }
            }
        }
        if now >= last && ended.is_empty() {
            break;
        }
        for end in ended.drain(..).filter(|end| end.at_ns <= last) {
            let (lane, bytes) = run.ended(&end, target, witness);
            (sample.commands, sample.bytes) = (sample.commands + 1, sample.bytes + bytes);
            bytes_left = bytes_left.saturating_sub(bytes);
            run.feed(lane, now, target, rng, witness);
        }
        if arrival.is_some_and(|arrival| arrival <= now) {
            (0..run.lanes.len()).for_each(|lane| run.feed(lane, now, target, rng, witness));
        }
        witness.idle(now, run.in_flight == 0);
    }
    now
}

impl<'s> Run<'s> {
    fn new(began_ns: u64, streams: Vec<Stream<'s>>) -> Run<'s> {
        let nothing = Command { kind: Kind::Flush, offset: 0, len: 0 };
        let nothing = Slot { lane: 0, number: 0, command: nothing, meant_ns: None, begun_ns: 0 };
        let mut slots = 0;
        let lane = |stream: Stream<'s>| {
            let first = slots;
            slots += stream.depth;
            let free = (first..slots).rev().collect();
            Lane { stream, free, next: None, later: None, begun: 0, in_flight: 0, over: false }
        };
        let lanes = streams.into_iter().map(lane).collect();
        Run { began_ns, lanes, slots: vec![nothing; slots as usize], in_flight: 0 }
    }

    /// Nothing more is asked for.
    fn stop(&mut self) {
        for lane in &mut self.lanes {
            (lane.next, lane.later, lane.over) = (None, None, true);
        }
    }

    /// When the next command is due that waits for its time only; none that is due when the run is over.
    #[inline]
    fn arrival(&self, last: u64) -> Option<u64> {
        let due = |lane: &Lane<'_>| {
            let next = lane.next.and_then(|ask| ask.at).or(lane.later);
            let at = next.filter(|_| !lane.free.is_empty())?;
            Some(self.began_ns.saturating_add(at))
        };
        self.lanes.iter().filter_map(due).min().filter(|&at| at < last)
    }

    /// Submits what a lane has to ask for by now, as far as there are slots.
    #[inline]
    fn feed<T: Target, W: Witness<T>>(
        &mut self,
        index: usize,
        now: u64,
        target: &mut T,
        rng: &mut Rng,
        witness: &mut W,
    ) {
        let lane = &mut self.lanes[index];
        lane.later = None;
        while let (Some(&slot), false) = (lane.free.last(), lane.over) {
            let ask = match lane.next.take() {
                Some(ask) => ask,
                None => match lane.stream.source.next(now - self.began_ns, rng) {
                    Next::Ask(ask) => ask,
                    Next::Hold => {
                        assert!(lane.in_flight > 0, "a source holds back while nothing of it is in flight");
                        return;
                    }
                    Next::Later(at) => {
                        lane.later = Some(at);
                        return;
                    }
                    Next::End => {
                        lane.over = true;
                        return;
                    }
                },
            };
            let meant_ns = ask.at.map(|at| self.began_ns.saturating_add(at));
            if meant_ns.is_some_and(|meant| meant > now) {
                lane.next = Some(ask);
                return;
            }
            let command = ask.command;
            witness.begun(index, command.kind, now, meant_ns.map(|meant| now - meant));
            lane.free.pop();
            self.slots[slot as usize] =
                Slot { lane: index as u32, number: lane.begun, command, meant_ns, begun_ns: now };
            if lane.stream.payload
                && matches!(command.kind, Kind::Write { .. })
                && let Some(bytes) = target.payload(slot, command.len)
            {
                lane.stream.source.fill(lane.begun, &command, bytes);
            }
            lane.begun += 1;
            lane.in_flight += 1;
            self.in_flight += 1;
            target.submit(slot, lane.stream.place, command);
        }
    }

    /// A command has ended: its lane, and the bytes of a read or write. Failed ones count to the end of a run, too.
    #[inline]
    fn ended<T: Target, W: Witness<T>>(
        &mut self,
        end: &Ended,
        target: &mut T,
        witness: &mut W,
    ) -> (usize, u64) {
        let Slot { lane: index, number, command, meant_ns, begun_ns } = self.slots[end.slot as usize];
        let index = index as usize;
        let lane = &mut self.lanes[index];
        lane.free.push(end.slot);
        lane.in_flight -= 1;
        self.in_flight -= 1;
        let mut mismatched = false;
        if lane.stream.payload
            && command.kind == Kind::Read
            && end.fault.is_none()
            && let Some(bytes) = target.payload(end.slot, command.len)
        {
            mismatched = !lane.stream.source.check(number, &command, bytes);
        }
        let since = end.at_ns.saturating_sub(self.began_ns);
        let reads_back = lane.stream.source.reads_back();
        lane.stream.source.ended(number, since, end.fault.is_none());
        witness.ended(&Io {
            stream: index,
            command,
            meant_ns,
            begun_ns,
            handed_ns: end.handed_ns.unwrap_or(begun_ns),
            at_ns: end.at_ns,
            fault: end.fault,
            served: end.served,
            mismatched,
            reads_back,
        });
        let moved = matches!(command.kind, Kind::Read | Kind::Write { .. });
        (index, if moved { command.len } else { 0 })
    }
}
