//! Watches a job that is to end when it has become steady.

use super::Meter;
use crate::job::{Job, UntilSteady};
use crate::stats::{Gate, Quantity, Rule, Steadiness, Step};
use std::cell::Cell;
use std::rc::Rc;

/// The rounds of one job.
pub(super) struct SteadyWatch {
    until: UntilSteady,
    gate: Gate,
    /// When the present round began, and what had been done then.
    since_ns: Option<u64>,
    before: Figures,
    stop: Rc<Cell<bool>>,
}

/// What a job has done.
#[derive(Clone, Copy, Default)]
struct Figures {
    ios: u64,
    bytes: u64,
    response_ns: u128,
    responses: u64,
}

impl Figures {
    fn of(meter: &Meter) -> Figures {
        let [reads, writes] = meter.so_far();
        let (response_ns, responses) = meter.responses();
        Figures { ios: reads.0 + writes.0, bytes: reads.1 + writes.1, response_ns, responses }
    }
}

impl SteadyWatch {
    pub(super) fn new(job: &Job, stop: Rc<Cell<bool>>) -> Option<SteadyWatch> {
        let until = job.until_steady?;
        let gate = Gate::new(Rule::Fio(until.rule));
        Some(SteadyWatch { until, gate, since_ns: None, before: Figures::default(), stop })
    }

    /// Looks, so long after the run began.
    pub(super) fn look(&mut self, at_ns: u64, meter: &Meter) {
        let now = Figures::of(meter);
        let Some(since) = self.since_ns else {
            if at_ns >= meter.counts_from_ns() + self.until.ramp_ns {
                (self.since_ns, self.before) = (Some(at_ns), now);
            }
            return;
        };
        if at_ns - since < self.until.interval_ns {
            return;
        }
        let seconds = (at_ns - since) as f64 / 1e9;
        let before = std::mem::replace(&mut self.before, now);
        self.since_ns = Some(at_ns);
        let value = match self.until.rule.quantity {
            Quantity::Iops => (now.ios - before.ios) as f64 / seconds,
            Quantity::Bw => (now.bytes - before.bytes) as f64 / seconds,
            Quantity::Lat => {
                let responses = (now.responses - before.responses).max(1) as f64;
                (now.response_ns - before.response_ns) as f64 / responses
            }
        };
        if matches!(self.gate.push(value), Step::Steady(_)) {
            self.stop.set(true);
        }
    }

    pub(super) fn steadiness(self) -> Steadiness {
        self.gate.steadiness().clone()
    }
}
