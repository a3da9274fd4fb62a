//! A device whose times are known in advance: to test those who use models, and to measure what they cost themselves.

use crate::device::{Command, Done, Kind, Model, Usage};
use bimetal_engine::units::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
    pub units: usize,
}

/// Each command takes the unit that is free first, for a time that depends on its length alone.
#[derive(Debug)]
pub struct Constant {
    params: ConstantParams,
    /// When each unit is free.
    free_at: BinaryHeap<Reverse<u64>>,
    /// (end, order of coming, tag).
    ends: BinaryHeap<Reverse<(u64, u64, u64)>>,
    taken: u64,
    busy_until: u64,
    usage: Usage,
}

impl Constant {
    /// An idle device.
    pub fn new(params: ConstantParams) -> Constant {
        let free_at = std::iter::repeat_n(Reverse(0), params.units.max(1)).collect();
        Constant {
            params,
            free_at,
            ends: BinaryHeap::new(),
            taken: 0,
            busy_until: 0,
            usage: Usage::default(),
        }
    }
}

impl Model for Constant {
    fn size_bytes(&self) -> u64 {
        self.params.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        let Reverse(free) = self.free_at.pop().unwrap_or(Reverse(0));
        let mut service = self.params.latency_ns;
        if matches!(command.kind, Kind::Read | Kind::Write { .. }) {
            service += (command.len >> 10) * self.params.ns_per_kib;
        }
        self.usage.count(command.kind, command.len);
        let begin = free.max(now.0);
        let end = begin + service;
        self.usage.busy_ns += end.saturating_sub(self.busy_until.max(now.0));
        self.busy_until = self.busy_until.max(end);
        self.free_at.push(Reverse(end));
        self.taken += 1;
        self.ends.push(Reverse((end, self.taken, tag)));
    }

    fn deadline(&self) -> Option<Nanos> {
        self.ends.peek().map(|Reverse((end, ..))| Nanos(*end))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(&Reverse((end, _, tag))) = self.ends.peek()
            && end <= now.0
        {
            self.ends.pop();
            done.push(Done::ok(Nanos(end), tag));
        }
    }

    fn usage(&self) -> Usage {
        self.usage
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
