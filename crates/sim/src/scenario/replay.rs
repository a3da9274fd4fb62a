//! The requests of a trace, as a stream of commands.

use super::dependent::Dependent;
use super::queued::Queued;
use super::report::Replayed;
use super::survey::{PAUSE_NS, Survey};
use super::{MAX_BLOCK_BYTES, Map, Mode, ReplaySpec, ScenarioError, Whole};
use bimetal_load::{Ask, Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_trace::{Op, Record, Trace};
use bimetal_units::BLOCK_BYTES;
use bimetal_units::rng::Rng;

/// When requests are meant to be submitted.
pub(super) struct Pace {
    speed: f64,
    most_gap_ns: u64,
    /// The latest time in the trace so far.
    recorded: u64,
    /// When that is in the replay.
    at: u64,
}

impl Pace {
    fn new(spec: &ReplaySpec) -> Pace {
        Pace {
            speed: spec.speed.unwrap_or(1.0),
            most_gap_ns: spec.idle_at_most_seconds.map_or(u64::MAX, |seconds| (seconds * 1e9) as u64),
            recorded: 0,
            at: 0,
        }
    }

    /// When a request of this time is meant to be. One that was recorded late comes right behind its predecessor.
    pub(super) fn at(&mut self, recorded: Option<u64>) -> u64 {
        let gap = recorded.unwrap_or(0).saturating_sub(self.recorded);
        self.recorded += gap;
        self.at += self.gap(gap);
        self.at
    }

    /// What a recorded gap becomes.
    pub(super) fn gap(&self, recorded: u64) -> u64 {
        let gap = recorded.min(self.most_gap_ns);
        if self.speed == 1.0 { gap } else { (gap as f64 / self.speed) as u64 }
    }
}

/// What is left of a request.
#[derive(Clone, Copy)]
pub(super) struct Rest {
    at: Option<u64>,
    kind: Kind,
    /// On the target, from the map's beginning on.
    offset: u64,
    len: u64,
    first: bool,
}

/// A replay of a trace that is going on.
pub struct Replay<'s> {
    trace: Trace,
    survey: &'s Survey,
    map: Map,
    /// Where on the target the map begins, and how much lies behind.
    from: u64,
    room: u64,
    pace: Option<Pace>,
    rest: Option<Rest>,
    counts: Replayed,
}

impl<'s> Replay<'s> {
    /// From the beginning of the trace.
    ///
    /// # Errors
    /// When what it touches does not fit on the target, or it cannot be replayed so.
    pub fn new(spec: &ReplaySpec, survey: &'s Survey, whole: Whole) -> Result<Replay<'s>, ScenarioError> {
        let block = u64::from(BLOCK_BYTES);
        let from = spec.from.of(whole) / block * block;
        let room = whole.target_bytes.saturating_sub(from) / block * block;
        if room == 0 || spec.map == Map::Compact && survey.bytes() > room {
            return Err(ScenarioError::Sense(format!(
                "the trace touches {} bytes, but from byte {from} on the target has {room}; make its devices larger, \
                 or wrap the map",
                survey.bytes()
            )));
        }
        if spec.mode != Mode::Closed && !survey.timed {
            return Err(ScenarioError::Sense(
                "the trace has no times; replay it with mode = \"closed\"".into(),
            ));
        }
        if spec.mode != Mode::Closed
            && Pace::new(spec).gap(survey.pause_ns()) >= PAUSE_NS
            && let Some(why) = survey.torn()
        {
            return Err(ScenarioError::Sense(format!(
                "{why}; replay them one by one, in mode closed, or with a limit to what is kept of pauses \
                 (idle_at_most_seconds, --idle-at-most)"
            )));
        }
        let pace = (spec.mode == Mode::Timed).then(|| Pace::new(spec));
        let trace = survey.open()?;
        Ok(Replay { trace, survey, map: spec.map, from, room, pace, rest: None, counts: Replayed::default() })
    }

    /// The same, with each request after what it depended on when it was recorded.
    ///
    /// # Errors
    /// As [`Replay::new`], and when the trace does not say how long requests took.
    pub fn dependent(
        spec: &ReplaySpec,
        survey: &'s Survey,
        whole: Whole,
    ) -> Result<Dependent<'s>, ScenarioError> {
        must_be_answered(survey, "what waited for what")?;
        Ok(Dependent::new(Replay::new(spec, survey, whole)?, Pace::new(spec)))
    }

    /// The same, with as many in flight as each request found when it was recorded.
    ///
    /// # Errors
    /// As [`Replay::dependent`].
    pub fn queued(spec: &ReplaySpec, survey: &'s Survey, whole: Whole) -> Result<Queued<'s>, ScenarioError> {
        must_be_answered(survey, "what was in flight")?;
        Ok(Queued::new(Replay::new(spec, survey, whole)?, Pace::new(spec)))
    }

    /// What has become of the records so far.
    pub fn counts(&self) -> Replayed {
        self.counts
    }

    /// The ranges that are going to be read and written, in order.
    pub(super) fn touched(&mut self) -> Vec<(u64, u64)> {
        let commands = std::iter::from_fn(|| self.next_ask()).map(|ask| ask.command);
        let transfers = commands.filter(|command| matches!(command.kind, Kind::Read | Kind::Write { .. }));
        transfers.map(|command| (command.offset, command.len)).collect()
    }

    /// A record as a request to the target; none if nothing of it can be asked for.
    fn request(&mut self, record: &Record) -> Option<Rest> {
        let at = self.pace.as_mut().map(|pace| pace.at(record.time.map(|time| time.0)));
        let kind = match record.op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write { fua: record.marks.fua },
            Op::Discard => Kind::Discard,
            Op::Flush => return Some(Rest { at, kind: Kind::Flush, offset: 0, len: 0, first: true }),
        };
        let (offset, len) = match self.map {
            Map::Compact => {
                let (offset, len) = self.survey.place(record.device, record.offset, record.bytes)?;
                self.counts.clipped += u64::from(len < record.bytes);
                (offset, len)
            }
            Map::AsIs if record.offset + record.bytes > self.room => return None,
            Map::AsIs => (record.offset, record.bytes),
            Map::Wrap => {
                self.counts.wrapped += u64::from(record.offset + record.bytes > self.room);
                (record.offset % self.room, record.bytes.min(self.room))
            }
        };
        Some(Rest { at, kind, offset, len, first: true })
    }

    /// The next record of the trace, and what is to be asked for; nothing where all of it is left out.
    pub(super) fn next_record(&mut self) -> Option<(Record, Option<Rest>)> {
        while self.counts.records < self.survey.records {
            match self.trace.next()? {
                Ok(record) => {
                    self.counts.records += 1;
                    let request = self.request(&record);
                    self.counts.left_out += u64::from(request.is_none());
                    return Some((record, request));
                }
                Err(_) => self.counts.malformed += 1,
            }
        }
        None
    }

    /// The next command: a request, or a part of one.
    fn next_ask(&mut self) -> Option<Ask> {
        let request = match self.rest.take() {
            Some(rest) => rest,
            None => loop {
                if let (_, Some(request)) = self.next_record()? {
                    break request;
                }
            },
        };
        let (command, rest) = self.part(request);
        self.rest = rest;
        Some(Ask { at: request.at, command })
    }

    /// As much of a request as one command can ask for, and what is left of it.
    pub(super) fn part(&mut self, request: Rest) -> (Command, Option<Rest>) {
        let Rest { kind, offset, .. } = request;
        let transfer = matches!(kind, Kind::Read | Kind::Write { .. });
        let most = if transfer { MAX_BLOCK_BYTES } else { u64::MAX };
        let len = request.len.min(most).min(self.room - offset);
        let rest = (len < request.len).then(|| {
            self.counts.split += u64::from(request.first);
            let next = offset + len;
            let offset = if next == self.room { 0 } else { next };
            Rest { offset, len: request.len - len, first: false, ..request }
        });
        let offset = if kind == Kind::Flush { 0 } else { self.from + offset };
        (Command { kind, offset, len }, rest)
    }
}

fn must_be_answered(survey: &Survey, what: &str) -> Result<(), ScenarioError> {
    match survey.answered {
        true => Ok(()),
        false => Err(ScenarioError::Sense(format!(
            "the trace does not say how long requests took, so it is not known {what}; replay it with mode = \"timed\" \
             or \"closed\""
        ))),
    }
}

impl Source for Replay<'_> {
    fn next(&mut self, _now: u64, _: &mut Rng) -> Next {
        self.next_ask().map_or(Next::End, Next::Ask)
    }
}
