//! How long answers took in the time that a tape is of: totals, and what they had been now and then.

use bimetal_units::Nanos;
use std::collections::VecDeque;

/// Totals are noted so often at most ...
const STEP: Nanos = Nanos(Nanos::SECOND);
/// ... and otherwise so many times in the time that the tape is of. What is before its first entry is known to that part of it.
const STEPS: u64 = 128;

/// Reads and writes that were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// How many.
    pub count: u64,
    /// How long they took, added up, nanoseconds.
    pub took_ns: u64,
}

/// Those since the server began, and how many they had been when.
#[derive(Debug, Default)]
pub(super) struct Responses {
    all: Answered,
    marks: VecDeque<(Nanos, Answered)>,
}

impl Responses {
    /// A request has its answer. The tape begins at `first`.
    pub(super) fn answered(&mut self, now: Nanos, took_ns: u64, first: Nanos) {
        self.all.count += 1;
        self.all.took_ns += took_ns;
        let last = self.marks.back().map_or(Nanos(0), |mark| mark.0);
        if now.since(last) < (now.since(first) / STEPS).max(STEP.0) {
            return;
        }
        self.marks.push_back((now, self.all));
        while self.marks.get(1).is_some_and(|mark| mark.0 <= first) {
            self.marks.pop_front();
        }
    }

    /// Those since this time, and some that were answered a little before it.
    pub(super) fn since(&self, first: Nanos) -> Answered {
        let before = self.marks.iter().rev().find(|mark| mark.0 <= first);
        let before = before.map_or(Answered::default(), |mark| mark.1);
        Answered { count: self.all.count - before.count, took_ns: self.all.took_ns - before.took_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While nothing is forgotten all is counted; then what was answered since, and little more.
    #[test]
    fn answers_are_those_since_the_tape_begins() {
        let (mut responses, begin) = (Responses::default(), Nanos(1 << 60));
        let mut now = begin;
        for number in 0..200_000u64 {
            now.0 += Nanos::SECOND / 2;
            responses.answered(now, number, begin);
        }
        let sum = |from: u64, to: u64| (from..to).sum::<u64>();
        assert_eq!(responses.since(begin), Answered { count: 200_000, took_ns: sum(0, 200_000) });
        assert!(responses.marks.len() < 2000, "{}", responses.marks.len());
        let first = Nanos(now.0 - 20_000 * Nanos::SECOND);
        let late = responses.since(first);
        assert!((40_000..42_000).contains(&late.count), "{late:?}");
        assert_eq!(late.took_ns, sum(200_000 - late.count, 200_000));
        now.0 += 10 * Nanos::SECOND * 3600;
        responses.answered(now, 5, first);
        assert_eq!(responses.since(first).count, late.count + 1);
        assert!(responses.marks[0].0 <= first && responses.marks[1].0 > first);
        assert_eq!(Responses::default().since(now), Answered::default());
    }
}
