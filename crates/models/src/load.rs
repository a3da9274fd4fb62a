//! Small loads in virtual time, to measure what a model does against what is claimed of the device.

use crate::device::{Command, Kind, Model};
use bimetal_engine::units::Nanos;

/// Where the next command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One behind the other, from the beginning of the range and again.
    Sequential,
    /// Anywhere in the range, aligned to the size of a command; from a fixed seed.
    Random,
}

/// Commands of one kind and size, always as many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What each does.
    pub kind: Kind,
    /// Where.
    pub pattern: Pattern,
    /// Bytes of each.
    pub bytes: u64,
    /// How many are in flight.
    pub queue_depth: u32,
    /// Bytes of the device that are touched: from, to.
    pub range: (u64, u64),
    /// Commands that are not counted at first: caches fill up.
    pub warm_up: u64,
    /// Commands that are counted.
    pub commands: u64,
}

/// What came of a load.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Commands per second.
    pub per_second: f64,
    /// Bytes per second, in millions.
    pub mb_per_second: f64,
    /// Mean time from submission to completion, in microseconds.
    pub mean_us: f64,
}

/// Runs a load on a device whose time has come to `start`; returns the time at its end as well.
pub fn run(device: &mut dyn Model, start: Nanos, load: &Load) -> (Measured, Nanos) {
    let slots = ((load.range.1 - load.range.0) / load.bytes).max(1);
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut issued = 0;
    let mut next = || {
        let slot = match load.pattern {
            Pattern::Sequential => issued % slots,
            Pattern::Random => {
                // Splitmix64.
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                ((u128::from(z ^ (z >> 31)) * u128::from(slots)) >> 64) as u64
            }
        };
        issued += 1;
        Command { kind: load.kind, offset: load.range.0 + slot * load.bytes, len: load.bytes }
    };
    let mut submitted = vec![0_u64; load.queue_depth as usize];
    let mut done = Vec::with_capacity(load.queue_depth as usize);
    for (tag, at) in submitted.iter_mut().enumerate() {
        *at = start.0;
        device.submit(start, tag as u64, next());
    }
    let (mut now, mut begun) = (start, start);
    let (mut ended, mut waited) = (0, 0);
    let total = load.warm_up + load.commands;
    while let Some(due) = device.deadline() {
        now = due;
        device.advance(now, &mut done);
        for end in done.drain(..) {
            ended += 1;
            if ended == load.warm_up {
                begun = now;
            } else if ended > load.warm_up && ended <= total {
                waited += end.at.0 - submitted[end.tag as usize];
            }
            if ended + u64::from(load.queue_depth) <= total {
                submitted[end.tag as usize] = now.0;
                device.submit(now, end.tag, next());
            }
        }
    }
    let seconds = now.since(begun).max(1) as f64 / 1e9;
    let per_second = load.commands as f64 / seconds;
    let mean_us = waited as f64 / load.commands.max(1) as f64 / 1000.0;
    (Measured { per_second, mb_per_second: per_second * load.bytes as f64 / 1e6, mean_us }, now)
}
