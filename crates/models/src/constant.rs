//! A device whose times are known in advance: to test those who use models, and to measure what they cost themselves.

use crate::device::{Command, Done, Kind, Model, Usage};
use crate::queue::{Queue, Queued};
use bimetal_units::Nanos;

/// What a constant device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantParams {
    /// Bytes that it holds.
    pub size_bytes: u64,
    /// Of each command, nanoseconds.
    pub latency_ns: u64,
    /// More for each KiB of a read or write, nanoseconds.
    pub ns_per_kib: u64,
    /// Commands served at the same time: one at least.
    pub units: u32,
}

/// Each command takes the unit that is free first, for a time that depends on its length alone.
#[derive(Debug)]
pub struct Constant {
    params: ConstantParams,
    queue: Queue,
}

impl Constant {
    /// An idle device.
    pub fn new(params: ConstantParams) -> Constant {
        Constant { params, queue: Queue::new(params.units.max(1)) }
    }
}

impl Queued for Constant {
    fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn start(&mut self, now: u64, tag: u64, command: Command) {
        let mut end = now + self.params.latency_ns;
        if matches!(command.kind, Kind::Read | Kind::Write { .. }) {
            end += (command.len >> 10) * self.params.ns_per_kib;
        }
        self.queue.start(now, end, tag, command, None);
    }
}

impl Model for Constant {
    fn size_bytes(&self) -> u64 {
        self.params.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        self.take(now, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.deadline()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.end(now, done);
    }

    fn usage(&self) -> Usage {
        self.queue.usage()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_work_side_by_side() {
        let params = ConstantParams { size_bytes: 1 << 30, latency_ns: 100, ns_per_kib: 10, units: 2 };
        let mut device = Constant::new(params);
        for tag in 0..3 {
            device.submit(Nanos(0), tag, Command { kind: Kind::Read, offset: 0, len: 4096 });
        }
        let mut done = Vec::new();
        device.advance(Nanos(139), &mut done);
        assert!(done.is_empty() && device.deadline() == Some(Nanos(140)));
        device.advance(Nanos(280), &mut done);
        assert_eq!(done.iter().map(|d| (d.at.0, d.tag)).collect::<Vec<_>>(), [(140, 0), (140, 1), (280, 2)]);
        assert_eq!(device.usage().busy_ns, 280);
    }
}
