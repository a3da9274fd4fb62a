//! The devices of a peer, and who waits for which of their commands.

use super::Tally;
use bimetal_engine::slab::Slab;
use bimetal_models::device::Failure;
use bimetal_models::{Command, Done, Kind, Model, Usage};
use bimetal_units::{Nanos, ServedBy};
use std::collections::VecDeque;

/// The fast device.
pub(super) const FAST: usize = 0;
/// The slow device.
pub(super) const SLOW: usize = 1;

/// A client's command that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// Who waits for a device command.
enum Owner {
    Client(Ticket),
    Job(u64),
}

struct Served {
    tag: u64,
    kind: Kind,
    len: u64,
    /// Device commands and holds that have not ended.
    left: u32,
    failure: Option<Failure>,
    by: ServedBy,
}

/// The devices and the clock of a peer.
pub(super) struct Rig {
    devices: [Box<dyn Model>; 2],
    /// The virtual time.
    pub(super) now: Nanos,
    /// What has been done so far; whoever copies counts it here.
    pub(super) tally: Tally,
    /// What clients were served so far.
    pub(super) served: Usage,
    /// By tag: whose device commands are in flight.
    owners: Slab<Owner>,
    tickets: Slab<Served>,
    ended: Vec<Done>,
    quiet_since: Nanos,
}

impl Rig {
    pub(super) fn new(devices: [Box<dyn Model>; 2]) -> Rig {
        Rig {
            devices,
            now: Nanos(0),
            tally: Tally::default(),
            served: Usage::default(),
            // Clients and rules bound what is in flight.
            owners: Slab::new(usize::MAX),
            tickets: Slab::new(usize::MAX),
            ended: Vec::new(),
            quiet_since: Nanos(0),
        }
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        self.devices.iter().map(|device| device.usage()).collect()
    }

    /// Whether no client waits for anything.
    pub(super) fn is_quiet(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Since when no client has waited for anything.
    pub(super) fn quiet_since(&self) -> Option<Nanos> {
        self.is_quiet().then_some(self.quiet_since)
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(super) fn take_ended(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ended);
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.devices.iter().filter_map(|device| device.deadline()).min()
    }

    /// A client's command comes; whoever opens a ticket releases it once.
    pub(super) fn open(&mut self, tag: u64, command: Command) -> Ticket {
        let served = Served {
            tag,
            kind: command.kind,
            len: command.len,
            left: 1,
            failure: None,
            by: ServedBy::default(),
        };
        Ticket(self.tickets.insert(served))
    }

    /// The client's command does not end before this is released.
    pub(super) fn hold(&mut self, ticket: Ticket) {
        self.tickets[ticket.0].left += 1;
    }

    /// Gives back what [`Rig::open`] or [`Rig::hold`] gave.
    pub(super) fn release(&mut self, ticket: Ticket) {
        let left = &mut self.tickets[ticket.0].left;
        *left -= 1;
        if *left > 0 {
            return;
        }
        let served = self.tickets.remove(ticket.0);
        if served.failure.is_none() {
            self.served.count(served.kind, served.len);
        }
        self.ended.push(Done {
            at: self.now,
            tag: served.tag,
            failure: served.failure,
            served: Some(served.by),
        });
        self.quiet_since = self.now;
    }

    /// Counts a client's bytes as served by this device.
    pub(super) fn count(&mut self, device: usize, bytes: u64) {
        self.tally.all_bytes += bytes;
        if device == FAST {
            self.tally.fast_bytes += bytes;
        }
    }

    /// A device command that a client waits for, and that serves it.
    pub(super) fn client(&mut self, ticket: Ticket, device: usize, command: Command) {
        if matches!(command.kind, Kind::Read | Kind::Write { .. }) {
            self.count(device, command.len);
            let by = &mut self.tickets[ticket.0].by;
            by.fast |= device == FAST;
            by.slow |= device != FAST;
        }
        self.beside(ticket, device, command);
    }

    /// A device command that a client waits for beside the one that serves it.
    pub(super) fn beside(&mut self, ticket: Ticket, device: usize, command: Command) {
        self.hold(ticket);
        self.submit(device, Owner::Client(ticket), command);
    }

    /// A flush of both devices.
    pub(super) fn flush(&mut self, ticket: Ticket) {
        for device in [FAST, SLOW] {
            self.client(ticket, device, Command { kind: Kind::Flush, offset: 0, len: 0 });
        }
    }

    /// A device command in the background; the rules hear of its end under this number.
    pub(super) fn background(&mut self, job: u64, device: usize, command: Command) {
        self.submit(device, Owner::Job(job), command);
    }

    fn submit(&mut self, device: usize, owner: Owner, command: Command) {
        let tag = u64::from(self.owners.insert(owner));
        self.devices[device].submit(self.now, tag, command);
    }

    /// Brings the devices to now. What has ended in the background is handed to the caller; a failed copy counts as
    /// done, as no data is kept that could be wrong.
    pub(super) fn advance(&mut self, done: &mut Vec<Done>, finished: &mut VecDeque<u64>) {
        for number in 0..self.devices.len() {
            let device = &mut self.devices[number];
            if device.deadline().is_none_or(|deadline| deadline > self.now) {
                continue;
            }
            device.advance(self.now, done);
            for end in done.drain(..) {
                match self.owners.remove(end.tag as u32) {
                    Owner::Job(job) => finished.push_back(job),
                    Owner::Client(ticket) => {
                        let served = &mut self.tickets[ticket.0];
                        served.failure = served.failure.or(end.failure);
                        self.release(ticket);
                    }
                }
            }
        }
    }
}
