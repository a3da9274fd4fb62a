//! Serving a machine: its actions to the ring, the ring's completions to it.

mod image;
mod successor;

use crate::clock::Clock;
use crate::device::{BlockFile, IoFacts, RemoteFacts};
use crate::load::DeviceLoad;
use crate::modelled::{Lateness, Modelled};
use crate::ops::{DeviceOps, Outcome};
use crate::remote::{self, Remote};
use crate::ring::{Completion, Ring};
use crate::watch::{self, Change, Watch};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, RequestError, RequestId};
use bimetal_engine::options::DeviceInfo;
use bimetal_models::Done;
use bimetal_units::{FAST, Generation, Nanos, ServedBy, Tier};
use image::Between;
use std::io;
use std::iter::repeat_n;
use std::time::Duration;

/// Device operations in flight at most; beyond it actions wait in the machine.
const MAX_DEVICE_OPS: usize = 4096;
/// One part in this many of what is in flight is waited for together.
const GATHER_PART: usize = 4;
/// Completions waited for together at most.
const MAX_GATHER: usize = 16;
/// How late the kernel wakes up whoever sleeps for a time: a long sleep for a model ends so much early, and the rest is
/// looked out.
const LEAD: Duration = Duration::from_micros(60);
/// Only a sleep of so many times that is worth it. This bounds the share of time that goes into looking.
const LEADS: u32 = 10;
/// How soon it is looked again whether what was held back may go on, if no answer comes before.
const HOLD_STEP: Duration = Duration::from_millis(20);
/// Tags from here on are free for whoever owns the sockets; smaller ones are the driver's.
pub const FIRST_FREE_TAG: u64 = 1 << 32;

/// The ring, the devices, and what is in flight to them.
pub struct Driver {
    /// For the sockets' submissions. Their tags begin at [`FIRST_FREE_TAG`].
    pub ring: Ring,
    /// The clock the machine sees.
    pub clock: Clock,
    devices: Vec<BlockFile>,
    /// The tier of the first of them: those before it are missing.
    first: Tier,
    /// Of the devices that are timed; in tier order.
    models: Vec<Option<Modelled>>,
    /// The sessions of those that are exports; in tier order.
    remotes: Vec<Option<Remote>>,
    ops: DeviceOps,
    harvested: Vec<Completion>,
    ended: Vec<Done>,
    moved_bytes: u64,
    /// Commands handed to the devices.
    commands: u64,
    watch: Option<Watch>,
    /// Who stands between the machine and the devices. One that is to take another's place is the last of them.
    between: Between,
    /// What has happened to exports, and was not asked for yet.
    changes: Vec<Change>,
    /// A device is lost: nothing more is asked of any of them.
    is_lost: bool,
    /// Slept until shortly before a model's time.
    is_near: bool,
}

impl Driver {
    /// A driver for these devices, in tier order. Those that have a model begin to be timed by it. Where only the first ones
    /// of a volume are there, what is asked of the others fails.
    pub fn new(ring: Ring, devices: Vec<BlockFile>) -> Driver {
        let clock = Clock::new();
        let now = clock.now();
        let remote = |(place, device): (usize, &BlockFile)| {
            let name = device.path().display().to_string();
            device.export().map(|export| Remote::new(export, name, place, &ring, now))
        };
        Driver {
            remotes: devices.iter().enumerate().map(remote).collect(),
            ring,
            clock,
            models: devices.iter().map(|device| device.timing().map(|timing| timing.start(now))).collect(),
            devices,
            first: FAST,
            ops: DeviceOps::default(),
            harvested: Vec::with_capacity(1024),
            ended: Vec::new(),
            moved_bytes: 0,
            commands: 0,
            watch: None,
            between: Between::default(),
            changes: Vec::new(),
            is_lost: false,
            is_near: false,
        }
    }

    /// The same where the devices begin with that of this tier, and those before it are missing: what is asked of them fails.
    pub fn beginning_with(self, first: Tier) -> Driver {
        Driver { first, ..self }
    }

    /// From now on every device answers as soon as it can, also where it has a model: for work on the data that nobody
    /// times. Only while nothing is in flight.
    pub fn ignore_models(&mut self) {
        assert_eq!(self.ops.len(), 0, "operations are in flight");
        self.models.fill_with(|| None);
    }

    /// From now on looks each second whether the devices still are those of this volume, opened under this generation
    /// and by nobody else since. Whoever has the driver asks for [`Driver::take_changes`].
    pub fn watch(&mut self, volume: [u8; 16], generation: u64) -> io::Result<()> {
        let now = self.clock.now();
        // Of a device that is to take another's place, what fails it says.
        let members = self.members().len();
        let devices = (&self.devices[..members], self.first);
        let (watch, second_at) = Watch::new(devices, (volume, generation), &mut self.ring, now)?;
        self.watch = Some(watch);
        if let Some(replacement) = &mut self.between.replacement {
            replacement.opened(Generation(generation));
        }
        for remote in self.remotes.iter_mut().flatten() {
            remote.seal(volume, generation, second_at);
        }
        Ok(())
    }

    /// What has changed about the devices since it was asked last.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = self.watch.as_mut().map(Watch::take_changes).unwrap_or_default();
        changes.append(&mut self.changes);
        changes
    }

    /// The volume's devices, without one that is to take another's place.
    fn members(&self) -> &[BlockFile] {
        &self.devices[..self.devices.len() - usize::from(self.between.replacement.is_some())]
    }

    /// How exactly the modelled devices kept their times.
    pub fn lateness(&self) -> Lateness {
        self.ops.lateness()
    }

    /// What each device was asked for since the driver was made, in tier order.
    pub fn loads(&self) -> Vec<DeviceLoad> {
        let now = self.clock.now();
        let loads = (0..self.members().len()).map(|device| self.ops.loads().of(device, now));
        repeat_n(DeviceLoad::default(), usize::from(self.first.0)).chain(loads).collect()
    }

    /// The devices that are there, as the engine wants to hear of them.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        self.members()
            .iter()
            .map(|device| DeviceInfo { name: device.name(), size_bytes: device.size_bytes() })
            .collect()
    }

    /// How I/O reaches each device, in tier order.
    pub fn io_facts(&self) -> Vec<IoFacts> {
        let facts = |(device, remote): (&BlockFile, &Option<Remote>)| {
            let standing = remote.as_ref().map(Remote::standing);
            let remote =
                device.export().zip(standing).map(|(export, standing)| RemoteFacts::new(export, standing));
            IoFacts { remote, ..device.facts() }
        };
        let missing = repeat_n(IoFacts::default(), usize::from(self.first.0));
        missing.chain(self.members().iter().zip(&self.remotes).map(facts)).collect()
    }

    /// The devices themselves, for what is not the engine's business. Only while nothing is in flight.
    pub fn devices(&self) -> &[BlockFile] {
        assert_eq!(self.ops.len(), 0, "operations are in flight");
        &self.devices
    }

    /// Gives the devices up, still locked, to be used with another ring.
    pub fn into_devices(self) -> Vec<BlockFile> {
        assert_eq!(self.ops.len(), 0, "operations are in flight");
        self.devices
    }

    /// Bytes of all reads and writes handed to the devices.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Device operations in flight.
    pub fn device_ops(&self) -> usize {
        self.ops.len()
    }

    /// Fires a deadline that has come, then queues all that the machine wants done. Nothing is submitted yet.
    ///
    /// What was in flight may have ended with that, as its model's time has come: before a [`Driver::wait`] without a
    /// limit, look whether there is anything left to wait for.
    pub fn pump<M: Machine>(
        &mut self,
        machine: &mut M,
        mut reply: impl FnMut(RequestId, Result<(), RequestError>, ServedBy),
    ) {
        let now = self.clock.now();
        self.advance_models(now, machine);
        self.look(now);
        self.between.settle();
        if machine.deadline().is_some_and(|deadline| deadline <= now) {
            machine.on_timer(now);
        }
        let holds = self.watch.as_ref().is_some_and(|watch| watch.holds(now));
        while self.ops.len() < MAX_DEVICE_OPS && !holds {
            match self.between.next_action(machine, now) {
                None => break,
                Some(Action::Reply { id, result, served }) => reply(id, result, served),
                Some(action) if self.is_lost || self.is_absent(&action) || self.is_cut_before(&action) => {
                    self.ops.refuse(action, &mut self.ring);
                }
                Some(mut action) => {
                    if let Some(device) = device_of(&mut action) {
                        device.0 -= self.first.0;
                    }
                    self.moved_bytes += payload_bytes(&action);
                    self.commands += 1;
                    let Driver { ring, devices, models, remotes, .. } = self;
                    self.ops.start(now, action, ring, devices, models, remotes);
                }
            }
        }
        self.drive_remotes(now);
    }

    /// Lets exports send and receive; what they have answered is heard with the other completions.
    fn drive_remotes(&mut self, now: Nanos) {
        for (remote, device) in self.remotes.iter_mut().zip(&self.devices) {
            let Some((remote, export)) = remote.as_mut().zip(device.export()) else { continue };
            remote.drive(now, &mut self.ring, export);
            while let Some((tag, result)) = remote.take_done() {
                self.ring.done(tag, result);
            }
            let before = self.changes.len();
            self.changes.extend(remote.take_changes());
            self.is_lost |= self.changes[before..].iter().any(|change| matches!(change, Change::Lost(_)));
        }
    }

    /// Looks after the devices, if that is asked for and due.
    fn look(&mut self, now: Nanos) {
        if let Some(watch) = self.watch.as_mut().filter(|_| !self.is_lost) {
            watch.look(now, &self.devices, self.commands, &mut self.ring);
            self.is_lost = watch.has_lost();
        }
    }

    /// Whether an action is for a device that is not there.
    fn is_absent(&self, action: &Action) -> bool {
        let there = self.first.0..self.first.0 + self.devices.len() as u8;
        match action {
            Action::Read { device, .. }
            | Action::Write { device, .. }
            | Action::Flush { device, .. }
            | Action::Discard { device, .. } => !there.contains(&device.0),
            Action::Reply { .. } => false,
        }
    }

    /// Whether a device has become too short, as is found before this: a promise that something is kept.
    fn is_cut_before(&mut self, action: &Action) -> bool {
        let Some(watch) = &mut self.watch else { return false };
        if matches!(action, Action::Flush { .. } | Action::Write { fua: true, .. }) {
            watch.look_at_sizes(&self.devices);
            self.is_lost = watch.has_lost();
        }
        self.is_lost
    }

    /// Brings the models to `now`, and tells the machine what has ended with that.
    fn advance_models<M: Machine>(&mut self, now: Nanos, machine: &mut M) {
        for model in self.models.iter_mut().flatten() {
            model.advance(now, &mut self.ended);
            for done in self.ended.drain(..) {
                if let Outcome::Done(token, result) = self.ops.model_ended(now, done, model) {
                    self.between.tell(machine, now, token, result);
                }
            }
        }
    }

    /// Submits everything queued and waits: for a completion, for a model's time, for the machine's deadline, or for
    /// `limit`.
    pub fn wait<M: Machine>(&mut self, machine: &M, limit: Option<Duration>) -> io::Result<()> {
        let now = self.clock.now();
        let until = |at: Nanos| Duration::from_nanos(at.since(now));
        let model = self.models.iter().flatten().filter_map(Modelled::deadline).min().map(until);
        let watch = self.watch.as_ref().filter(|_| !self.is_lost);
        // What the machine wants done at once waits, too.
        let holds = watch.is_some_and(|watch| watch.holds(now));
        let watch = watch.map(|watch| if holds { HOLD_STEP } else { until(watch.deadline()) });
        let remote = self.remotes.iter().flatten().filter_map(Remote::deadline).min().map(until);
        let machine = self.between.deadline(machine).map(until);
        let other = [machine, watch, remote, limit].into_iter().flatten().min();
        let mut timeout = [model, other].into_iter().flatten().min();
        if let Some(left) = model.filter(|_| timeout == model) {
            if left >= LEAD * LEADS {
                self.is_near = true;
                timeout = Some(left - LEAD);
            } else if left <= LEAD && std::mem::take(&mut self.is_near) && !self.ring.has_ready() {
                return self.ring.look(left).map(drop);
            }
        }
        // Where many operations are in flight, their completions trickle in; take them a few at a time.
        let answering = self.ops.in_ring();
        let batch = (answering / GATHER_PART).min(MAX_GATHER) as u32;
        self.ring.submit_and_wait(timeout, batch, answering > 0)
    }

    /// Gives the devices' completions to the machine and the others to `other`.
    pub fn harvest<M: Machine>(&mut self, machine: &mut M, mut other: impl FnMut(Completion)) {
        let mut harvested = std::mem::take(&mut self.harvested);
        self.ring.completions(&mut harvested);
        let now = self.clock.now();
        for completion in harvested.drain(..) {
            if completion.tag >= FIRST_FREE_TAG {
                other(completion);
                continue;
            }
            if completion.tag >= watch::FIRST_TAG {
                if let Some(watch) = &mut self.watch {
                    watch.was_read(now, completion.tag, completion.result, &self.devices[0]);
                    self.is_lost |= watch.has_lost();
                }
                continue;
            }
            if completion.tag >= remote::FIRST_TAG {
                let device = remote::device_of(completion.tag);
                if let Some(remote) = self.remotes.get_mut(device).and_then(Option::as_mut) {
                    remote.completed(now, completion.tag, completion.result);
                }
                continue;
            }
            let place = completion.tag as u32;
            // What a lost device still answers cannot be believed, and what is left of it is not asked for.
            let result = if self.is_lost { -libc::EIO } else { completion.result };
            let Driver { ring, devices, remotes, .. } = self;
            match self.ops.complete(now, place, result, ring, devices, remotes) {
                Outcome::Pending => {}
                Outcome::Done(token, result) => self.between.tell(machine, now, token, result),
            }
        }
        self.harvested = harvested;
        self.drive_remotes(now);
        self.advance_models(now, machine);
    }
}

/// The device that an action is for.
fn device_of(action: &mut Action) -> Option<&mut Tier> {
    match action {
        Action::Read { device, .. }
        | Action::Write { device, .. }
        | Action::Flush { device, .. }
        | Action::Discard { device, .. } => Some(device),
        Action::Reply { .. } => None,
    }
}

fn payload_bytes(action: &Action) -> u64 {
    match action {
        Action::Read { buf, .. } => u64::from(buf.len),
        Action::Write { bufs, .. } => bufs.iter().map(|buf| u64::from(buf.len)).sum(),
        _ => 0,
    }
}
