//! Jobs that share a flow: none goes ahead of its part of what all of them have done, as fio's `flow` has it.

use bimetal_load::Next;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How soon a job that is ahead looks again, if it does not say.
const LOOK_NS: u64 = 100_000;

/// The part of a job in a flow.
#[derive(Clone, Debug)]
pub struct Flow {
    weight: u64,
    sleep_ns: u64,
    all: Arc<All>,
}

/// What the jobs of a flow have done together, and their weights.
#[derive(Debug, Default)]
struct All {
    ios: AtomicU64,
    weight: AtomicU64,
}

impl Flow {
    /// A job of another flow than any there is.
    pub fn new(weight: u64, sleep_ns: u64) -> Flow {
        let flow = Flow { weight: 0, sleep_ns, all: Arc::default() };
        flow.with(weight, sleep_ns)
    }

    /// Another job of the same flow.
    pub fn with(&self, weight: u64, sleep_ns: u64) -> Flow {
        self.all.weight.fetch_add(weight, Ordering::Relaxed);
        Flow { weight, sleep_ns, all: self.all.clone() }
    }
}

/// How far a job has come in its flow.
pub(super) struct Flowing {
    flow: Flow,
    ios: u64,
    left: bool,
}

impl Flowing {
    pub(super) fn new(flow: &Flow) -> Flowing {
        Flowing { flow: flow.clone(), ios: 0, left: false }
    }

    /// When to look again, if the job is ahead of the others now.
    pub(super) fn waits(&self, now: u64) -> Option<u64> {
        let all = &self.flow.all;
        let (ios, weight) = (all.ios.load(Ordering::Relaxed), all.weight.load(Ordering::Relaxed));
        let ahead =
            u128::from(self.ios) * u128::from(weight) > u128::from(ios) * u128::from(self.flow.weight);
        (ahead && !self.left).then(|| now + self.flow.sleep_ns.max(LOOK_NS))
    }

    /// What the job does next: it counts, and who ends leaves the flow to the others.
    pub(super) fn does(&mut self, next: &Next) {
        match next {
            Next::Ask(_) => {
                self.ios += 1;
                self.flow.all.ios.fetch_add(1, Ordering::Relaxed);
            }
            Next::End if !self.left => {
                self.left = true;
                self.flow.all.ios.fetch_sub(self.ios, Ordering::Relaxed);
                self.flow.all.weight.fetch_sub(self.flow.weight, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_load::Ask;
    use bimetal_models::{Command, Kind};

    #[test]
    fn nobody_goes_ahead_and_who_ends_keeps_nobody() {
        let one = Flow::new(1, 0);
        let mut jobs = [Flowing::new(&one), Flowing::new(&one.with(3, 0))];
        let ask = Next::Ask(Ask { at: None, command: Command { kind: Kind::Read, offset: 0, len: 1 } });
        for turn in 0..4000 {
            let job = &mut jobs[turn % 2];
            if job.waits(0).is_none() {
                job.does(&ask);
            }
        }
        let (few, many) = (jobs[0].ios, jobs[1].ios);
        assert!(many > 1000 && many.abs_diff(3 * few) <= 4, "{few} and {many}");
        while jobs[0].waits(0).is_none() {
            jobs[0].does(&ask);
        }
        jobs[1].does(&Next::End);
        assert_eq!(jobs[0].waits(0), None);
    }
}
