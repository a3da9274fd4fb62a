//! A replay that keeps the recorded queue: each request begins as soon as fewer are in flight than it found.
//!
//! What a program does between two requests is told from what the target does by this: a request that found nothing in
//! flight waited for a program, as long after the end of all before it as it was recorded, or as much of that as is
//! kept. All others waited for the device only, and wait for the one that is replayed on.

use super::replay::{Pace, Replay, Rest};
use bimetal_load::{Ask, Next, Source};
use bimetal_trace::DepthFound;
use bimetal_units::rng::Rng;

/// What begins next.
struct Waiting {
    /// Requests in flight that it found, itself included.
    depth: usize,
    /// How long after the end of all before it it began, where it found none.
    gap_ns: u64,
    rest: Rest,
}

/// A replay with the recorded queue.
pub struct Queued<'s> {
    replay: Replay<'s>,
    pace: Pace,
    found: DepthFound,
    /// When the last of those that were recorded so far ended.
    recorded_end_ns: u64,
    waiting: Option<Waiting>,
    /// What is left of a request that was begun.
    begun: Option<Rest>,
    in_flight: usize,
    /// When the last one ended that was in flight here.
    ended_ns: u64,
}

impl<'s> Queued<'s> {
    /// Of a replay that has not begun.
    pub(super) fn new(replay: Replay<'s>, pace: Pace) -> Queued<'s> {
        Queued {
            replay,
            pace,
            found: DepthFound::default(),
            recorded_end_ns: 0,
            waiting: None,
            begun: None,
            in_flight: 0,
            ended_ns: 0,
        }
    }

    /// The replay itself.
    pub fn replay(&self) -> &Replay<'s> {
        &self.replay
    }

    /// Reads on to the next request that can be asked for.
    fn read(&mut self) -> Option<Waiting> {
        let mut gap_ns = 0u64;
        loop {
            let (record, request) = self.replay.next_record()?;
            let begin = record.time.unwrap_or_default();
            let response = record.response.unwrap_or_default();
            let depth = self.found.begin(begin, response).max(1);
            // Of what is left out, the pause before it remains.
            gap_ns = gap_ns.saturating_add(self.pace.gap(begin.0.saturating_sub(self.recorded_end_ns)));
            self.recorded_end_ns = self.recorded_end_ns.max(begin.0.saturating_add(response.0));
            if let Some(rest) = request {
                return Some(Waiting { depth, gap_ns, rest });
            }
        }
    }

    fn ask(&mut self, at: Option<u64>, rest: Rest) -> Next {
        let (command, left) = self.replay.part(rest);
        self.begun = left;
        self.in_flight += 1;
        Next::Ask(Ask { at, command })
    }
}

impl Source for Queued<'_> {
    fn next(&mut self, now: u64, _: &mut Rng) -> Next {
        if let Some(rest) = self.begun.take() {
            return self.ask(None, rest);
        }
        let Some(waiting) = self.waiting.take().or_else(|| self.read()) else { return Next::End };
        if self.in_flight >= waiting.depth {
            self.waiting = Some(waiting);
            return Next::Hold;
        }
        let at = self.ended_ns.saturating_add(waiting.gap_ns);
        if self.in_flight == 0 && at > now {
            self.waiting = Some(waiting);
            return Next::Later(at);
        }
        let meant = (waiting.depth == 1).then_some(at);
        self.ask(meant, waiting.rest)
    }

    fn ended(&mut self, _number: u64, now: u64, _done: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ended_ns = self.ended_ns.max(now);
    }
}
