//! Devices with a fault, and what is noted of them.

use super::minutes;
use bimetal_models::device::Failure;
use bimetal_models::{Command, Done, Kind, Model, Usage};
use bimetal_units::Nanos;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// What a file system gives to a file at a time, about.
const EXTENT_BYTES: u64 = 64 << 10;

/// What is noted of a device.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Commands that failed.
    pub(super) errors: u64,
    /// Parts that were ever written.
    written: Vec<bool>,
}

impl Noted {
    fn writes(&mut self, offset: u64, len: u64) {
        let (first, end) = (offset / EXTENT_BYTES, (offset + len).div_ceil(EXTENT_BYTES));
        self.written.resize(self.written.len().max(end as usize), false);
        self.written[first as usize..end as usize].fill(true);
    }

    /// What a file that is the device occupies.
    pub(super) fn occupied_bytes(&self) -> u64 {
        self.written.iter().filter(|written| **written).count() as u64 * EXTENT_BYTES
    }
}

/// What becomes of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    /// This many reads fail from a minute on.
    Reads {
        at: u64,
        count: u64,
    },
    /// Reads of a range fail from a minute on.
    Rots {
        at: u64,
        from: u64,
        bytes: u64,
    },
    /// Writes and flushes fail from a minute on.
    Writes {
        at: u64,
    },
    /// It answers nothing from a minute on, for so many seconds.
    Stall {
        at: u64,
        seconds: u64,
    },
    /// From a minute on it takes so many times as long.
    Slower {
        at: u64,
        times: u64,
    },
}

/// A device with a fault.
pub(super) struct Faulty {
    inner: Box<dyn Model>,
    fault: Fault,
    commands: HashMap<u64, Command>,
    /// While it answers nothing.
    held: Vec<(u64, Command)>,
    left: u64,
    noted: Rc<RefCell<Noted>>,
}

impl Faulty {
    pub(super) fn new(inner: Box<dyn Model>, fault: Fault, noted: &Rc<RefCell<Noted>>) -> Faulty {
        let left = if let Fault::Reads { count, .. } = fault { count } else { u64::MAX };
        Faulty { inner, fault, commands: HashMap::new(), held: Vec::new(), left, noted: noted.clone() }
    }

    /// When it answers again, while it does not.
    fn silent_until(&self, now: Nanos) -> Option<Nanos> {
        let Fault::Stall { at, seconds } = self.fault else { return None };
        let end = minutes(at).after(seconds * Nanos::SECOND);
        (minutes(at) <= now && now < end).then_some(end)
    }

    /// Its own time, which goes slower once it is slower.
    fn own(&self, now: Nanos) -> Nanos {
        match self.fault {
            Fault::Slower { at, times } => {
                let at = minutes(at);
                Nanos(now.0.min(at.0) + now.since(at) / times)
            }
            _ => now,
        }
    }

    fn real(&self, own: Nanos) -> Nanos {
        match self.fault {
            Fault::Slower { at, times } => {
                let at = minutes(at);
                Nanos(own.0.min(at.0) + own.since(at) * times)
            }
            _ => own,
        }
    }

    fn fails(&mut self, now: Nanos, command: Command) -> bool {
        let fails = match (self.fault, command.kind) {
            (Fault::Reads { at, .. }, Kind::Read) => now >= minutes(at),
            (Fault::Rots { at, from, bytes }, Kind::Read) => {
                now >= minutes(at) && command.offset < from + bytes && from < command.offset + command.len
            }
            (Fault::Writes { at }, Kind::Write { .. } | Kind::Flush | Kind::Sync) => now >= minutes(at),
            _ => false,
        } && self.left > 0;
        self.left -= u64::from(fails);
        fails
    }
}

impl Model for Faulty {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        self.commands.insert(tag, command);
        if matches!(command.kind, Kind::Write { .. }) {
            self.noted.borrow_mut().writes(command.offset, command.len);
        }
        match self.silent_until(now) {
            Some(_) => self.held.push((tag, command)),
            None => self.inner.submit(self.own(now), tag, command),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        let own = self.inner.deadline().map(|own| self.real(own));
        let Fault::Stall { at, seconds } = self.fault else { return own };
        let (begin, end) = (minutes(at), minutes(at).after(seconds * Nanos::SECOND));
        let own = own.map(|own| if (begin..end).contains(&own) { end } else { own });
        if self.held.is_empty() { own } else { Some(own.unwrap_or(end).min(end)) }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        if self.silent_until(now).is_some() {
            return;
        }
        let (own, before) = (self.own(now), done.len());
        self.inner.advance(own, done);
        for (tag, command) in std::mem::take(&mut self.held) {
            self.inner.submit(own, tag, command);
        }
        for ended in &mut done[before..] {
            ended.at = self.real(ended.at).min(now);
            let command = self.commands.remove(&ended.tag).expect("it was handed in");
            if self.fails(ended.at, command) {
                ended.failure = Some(Failure::Error);
                self.noted.borrow_mut().errors += 1;
            }
        }
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
