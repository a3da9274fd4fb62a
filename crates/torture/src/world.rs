//! The simulation driver: serves a machine's actions from simulated devices in virtual time.
//!
//! One queue of events, ordered by time and then by the order of making; nothing else decides
//! what comes next, so that a seed always tells the same story.

mod export;
mod image;
mod injected;
mod service;
pub mod storm;
mod successor;
mod trouble;
pub mod truth;

pub use export::Export;
pub use injected::Injected;
pub use service::{FaultRates, Service};

use crate::arena::SimArena;
use crate::coverage::{Coverage, Fault, LOG_WAITERS, StageSet};
use crate::disk::{CutStyle, DiscardEffect, Disk, IoId};
use bimetal_engine::action::{
    Action, BufList, Class, DeviceError, MAX_BUFS, Machine, RequestError, RequestId, Token,
};
use bimetal_engine::arena::Buf;
use bimetal_engine::coverage::Stage;
use bimetal_engine::slab::Slab;
use bimetal_engine::{Engine, Task};
use bimetal_protect::Protection;
use bimetal_replace::Replacement;
use bimetal_units::event_hash::EventHash;
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, Nanos, SLOW, Tier};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Actions and completions without a reply or a lull beyond which the machine runs away.
const RUNAWAY: u64 = 1_000_000;
/// A machine that asks to be woken so often in a row and does nothing, ...
const VAIN_WAKINGS: u32 = 1000;
/// ... all within so long a time, burns a processor for nothing. A commit that must wait is tried again at its interval, and plans
/// draw that as short as 100 us.
const VAIN_NS: u64 = 50 * Nanos::MS;
/// Devices of a volume: those behind them are to take the place of one.
const DEVICES: usize = 2;
/// The error number of models: EIO.
const EIO: i32 = 5;

/// A machine that says where it stands.
pub trait Staged: Machine<Arena = SimArena> {
    /// The stage of the operation that waits for this token.
    fn stage_of(&self, token: Token) -> Option<Stage>;
    /// The stages in flight.
    fn stages(&self) -> StageSet;
    /// Where all stood when nothing moved any more although somebody waited, if that has happened.
    fn stalled(&self) -> Option<&str> {
        None
    }
}

impl Staged for Engine<SimArena> {
    fn stage_of(&self, token: Token) -> Option<Stage> {
        Engine::stage_of(self, token)
    }
    fn stages(&self) -> StageSet {
        let mut set = StageSet::default();
        self.stages_in_flight(&mut |s| set.insert(s));
        set
    }
    fn stalled(&self) -> Option<&str> {
        Engine::stalled(self)
    }
}

impl<T> Staged for Task<SimArena, T> {
    fn stage_of(&self, _: Token) -> Option<Stage> {
        self.stage()
    }
    fn stages(&self) -> StageSet {
        let mut set = StageSet::default();
        if let Some(stage) = self.stage() {
            set.insert(stage);
        }
        set
    }
}

/// How serving ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Nothing is left to do at this instant.
    Quiet,
    /// The fuse blew: the machine dies here.
    Crash,
}

/// How a machine dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// Power is cut.
    PowerCut(CutStyle),
    /// The process dies.
    Kill,
}

enum Work {
    Read {
        offset: u64,
        buf: Buf,
    },
    Write {
        bufs: BufList,
        fua: bool,
    },
    Flush,
    Discard,
    /// A request of the session's that the server does.
    Served(export::Served),
    /// One that it has done, or given up.
    Gone,
}

struct Io {
    id: IoId,
    device: usize,
    token: Token,
    /// What it fails with.
    error: Option<i32>,
    /// The device is away: it does nothing at all.
    absent: bool,
    stalled: bool,
    /// What becomes of a page of it as soon as it is written.
    decay: Option<(storm::Harm, u64)>,
    log: bool,
    work: Work,
}

/// The devices, the clock and the events to come.
pub struct World {
    /// By tier.
    pub disks: Vec<Disk>,
    /// By tier: how long I/O takes.
    pub services: Vec<Service>,
    /// How often I/O fails now.
    pub rates: FaultRates,
    /// Steps (actions and completions) until the machine dies; `None` is never.
    pub fuse: Option<u32>,
    /// By tier: every read fails, and nothing else does.
    pub blind: [bool; 2],
    /// The number that an error comes with.
    pub errno: i32,
    /// Answers since they were last taken.
    pub replies: Vec<(RequestId, Result<(), RequestError>)>,
    /// Stages crossed with faults.
    pub coverage: Coverage,
    /// Errors since the machine started.
    pub injected: Injected,
    /// Where checksums are; without it no write is harmed.
    pub layout: Option<storm::Layout>,
    /// The newest group of the log that was handed over, where a layout is known.
    pub newest_group: u64,
    /// A group up to this one was harmed.
    pub hurt_group: Option<u64>,
    /// What damaged pages should hold.
    pub truth: truth::Truth,
    /// Whether the machine may only look.
    pub read_only: bool,
    /// A device that is not there: nothing may be asked of it.
    pub missing: Option<usize>,
    /// A stall is no violation: for stories of what becomes of it.
    pub forgives_stalls: bool,
    /// Tells each step on standard error.
    pub trace: bool,
    /// An export that loses what it is known by is no violation: for volumes that are damaged.
    pub forgives_lost: bool,
    sky: storm::Sky,
    between: image::Between,
    remote: Option<Box<export::Remote>>,
    now: Nanos,
    rng: Rng,
    hash: EventHash,
    steps: u64,
    /// Wakings since anything was done or came about, and when the first was.
    vain: (u32, Nanos),
    next_io: u64,
    next_request: u64,
    queue: BinaryHeap<Reverse<(u64, u64, u32)>>,
    ios: Slab<Io>,
}

impl World {
    /// A world with these devices.
    pub fn new(disks: Vec<Disk>, seed: u64) -> World {
        World {
            services: vec![Service::default(); disks.len()],
            disks,
            rates: FaultRates::default(),
            blind: [false; 2],
            errno: EIO,
            fuse: None,
            replies: Vec::new(),
            coverage: Coverage::default(),
            injected: Injected::default(),
            layout: None,
            newest_group: 0,
            hurt_group: None,
            truth: truth::Truth::default(),
            read_only: false,
            missing: None,
            forgives_stalls: false,
            trace: false,
            forgives_lost: false,
            between: image::Between::default(),
            remote: None,
            sky: storm::Sky::default(),
            now: Nanos(1),
            rng: Rng::new(seed, 0x776f_726c),
            hash: EventHash::default(),
            steps: 0,
            vain: (0, Nanos(0)),
            next_io: 1,
            next_request: 1,
            queue: BinaryHeap::new(),
            ios: Slab::new(usize::MAX),
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A name for a request.
    pub fn request_id(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    /// The hash of all that happened so far, in order.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// Takes something that happened into the hash.
    pub fn note(&mut self, words: [u64; 3]) {
        self.hash.add(words);
    }

    /// Whether a step is the machine's last.
    fn burn(&mut self) -> bool {
        match &mut self.fuse {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Does all that the machine wants at this instant.
    pub fn pump<M: Staged>(&mut self, machine: &mut M) -> Result<Flow, String> {
        while let Some(action) = self.between.next_action(machine, self.now) {
            self.steps += 1;
            if self.steps > RUNAWAY {
                return Err(format!("runaway: {RUNAWAY} steps without an answer; the last is {action:?}"));
            }
            if self.burn() {
                if self.trace {
                    eprintln!("{:>12} crash before {action:?}", self.now.0);
                }
                return Ok(Flow::Crash);
            }
            self.take(machine, action)?;
        }
        self.drive_export(machine)?;
        match machine.stalled().filter(|_| !self.forgives_stalls) {
            Some(what) => Err(format!("stalled: {what}")),
            None => Ok(Flow::Quiet),
        }
    }

    /// When the next thing happens, if anything does.
    pub fn next_event<M: Staged>(&self, machine: &M) -> Option<Nanos> {
        let io = self.queue.peek().map(|Reverse((at, ..))| Nanos(*at));
        let export = self.remote.as_ref().and_then(|remote| remote.next(self.now));
        let timer = self.between.deadline(machine).map(|at| at.max(self.now));
        [io, export, timer].into_iter().flatten().min()
    }

    /// Goes to the next event, or to `until` when that comes first.
    pub fn advance<M: Staged>(&mut self, machine: &mut M, until: Nanos) -> Result<Flow, String> {
        let Some(at) = self.next_event(machine).filter(|&at| at <= until) else {
            self.now = self.now.max(until);
            return Ok(Flow::Quiet);
        };
        self.steps += 1;
        if self.steps > RUNAWAY {
            return Err(format!(
                "runaway: {RUNAWAY} steps without an answer; deadline {:?}",
                machine.deadline()
            ));
        }
        self.now = self.now.max(at);
        let io_due = self.queue.peek().is_some_and(|Reverse((due, ..))| *due <= self.now.0);
        if io_due {
            if self.burn() {
                return Ok(Flow::Crash);
            }
            self.vain.0 = 0;
            self.complete_next(machine)?;
        } else if self.remote.is_some() {
            if self.burn() {
                return Ok(Flow::Crash);
            }
            if !self.export_goes_on(machine)? {
                machine.on_timer(self.now);
            }
        } else {
            machine.on_timer(self.now);
            self.count_waking(machine)?;
        }
        Ok(Flow::Quiet)
    }

    /// Wakings that bring nothing are few, or far apart.
    fn count_waking<M: Staged>(&mut self, machine: &M) -> Result<(), String> {
        if self.vain.0 == 0 {
            self.vain.1 = self.now;
        }
        self.vain.0 += 1;
        if self.vain.0 < VAIN_WAKINGS {
            return Ok(());
        }
        self.vain.0 = 0;
        match self.now.since(self.vain.1) {
            VAIN_NS.. => Ok(()),
            ns => Err(format!(
                "spins: woken {VAIN_WAKINGS} times within {} us for nothing; deadline {:?}, of all {:?}",
                ns / 1000,
                machine.deadline(),
                self.between.deadline(machine)
            )),
        }
    }

    /// Allows another stretch of steps: there was progress, or a lull was meant.
    pub fn progress(&mut self) {
        self.steps = 0;
    }

    /// How long I/O of a device takes: one that is to take another's place is as the slow one is.
    fn service(&self, device: usize) -> Service {
        self.services[device.min(self.services.len() - 1)]
    }

    fn check_range(&self, device: Tier, offset: u64, len: u64, what: &str) -> Result<usize, String> {
        let index = usize::from(device.0);
        let block = u64::from(BLOCK_BYTES);
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block) && len > 0;
        match self.disks.get(index) {
            Some(_) if self.missing == Some(index) => Err(format!("a {what} of a device that is missing")),
            Some(d) if whole && offset + len <= d.size_bytes() => Ok(index),
            _ => Err(format!(
                "a {what} outside the device or not of whole blocks: {device:?}, {offset} + {len}"
            )),
        }
    }

    fn take<M: Staged>(&mut self, machine: &mut M, action: Action) -> Result<(), String> {
        if self.trace {
            eprintln!("{:>12} {action:?}", self.now.0);
        }
        self.vain.0 = 0;
        match action {
            Action::Read { device: SLOW, .. }
            | Action::Write { device: SLOW, .. }
            | Action::Flush { device: SLOW, .. }
            | Action::Discard { device: SLOW, .. }
                if self.remote.is_some() =>
            {
                self.ask_export(machine, action)
            }
            Action::Reply { id, result, .. } => {
                self.steps = 0;
                self.note([1, id.0, u64::from(result.is_ok())]);
                self.replies.push((id, result));
                Ok(())
            }
            Action::Read { device, offset, buf, token, class } => {
                let device = self.check_range(device, offset, buf.len.into(), "read")?;
                self.note([2 + device as u64 * 8, offset, buf.len.into()]);
                let blind = self.blind.get(device) == Some(&true) || self.sky.is_blind(device, self.now.0);
                let fails = self.rng.one_in(self.rates.reads) || blind;
                let service = self.service(device).time(&mut self.rng, buf.len.into());
                let work = Work::Read { offset, buf };
                self.submit(device, token, fails, class == Class::Log, work, service);
                Ok(())
            }
            Action::Write { device, offset, bufs, fua, token, class } => {
                self.take_write(machine, device, offset, bufs, fua, token, class)
            }
            Action::Flush { device, token } => {
                let device = self.check_range(device, 0, BLOCK_BYTES.into(), "flush")?;
                self.note([3 + device as u64 * 8, token.0, 0]);
                let fails = self.rng.one_in(self.rates.flushes);
                let service = self.service(device).flush_time(&mut self.rng);
                let (id, _) = self.submit(device, token, fails, false, Work::Flush, service);
                self.disks[device].submit_flush(id);
                Ok(())
            }
            Action::Discard { device, offset, len, token, .. } => {
                self.take_discard(device, offset, len, token)
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "these are the fields of one action")]
    fn take_write<M: Staged>(
        &mut self,
        machine: &mut M,
        device: Tier,
        offset: u64,
        bufs: BufList,
        fua: bool,
        token: Token,
        class: Class,
    ) -> Result<(), String> {
        let len = bufs.iter().map(|b| u64::from(b.len)).sum();
        let device = self.check_range(device, offset, len, "write")?;
        if self.read_only {
            return Err(format!("a write in a check, at {offset}"));
        }
        if bufs.len() > MAX_BUFS {
            return Err(format!("a write of {} buffers", bufs.len()));
        }
        self.note([4 + device as u64 * 8 + u64::from(fua) * 128, offset, len]);
        let mut data = self.disks[device].buffer();
        machine.with_arena(|arena| bufs.iter().for_each(|&b| data.extend_from_slice(arena.payload(b))));
        let fails = self.rng.one_in(self.rates.writes);
        let service = self.service(device).time(&mut self.rng, len);
        let (id, place) =
            self.submit(device, token, fails, class == Class::Log, Work::Write { bufs, fua }, service);
        match device < DEVICES {
            true => self.truth.written(device, offset / u64::from(BLOCK_BYTES), &data),
            false => self.note_left_out(offset, &data),
        }
        self.disks[device].submit_write(id, offset, data, fua);
        let block = u64::from(BLOCK_BYTES);
        if device < DEVICES {
            self.may_harm(machine, id, place, token, offset / block..(offset + len) / block);
        }
        Ok(())
    }

    fn take_discard(&mut self, device: Tier, offset: u64, len: u64, token: Token) -> Result<(), String> {
        let device = self.check_range(device, offset, len, "discard")?;
        if self.read_only {
            return Err(format!("a discard in a check, at {offset}"));
        }
        self.note([5 + device as u64 * 8, offset, len]);
        let block = u64::from(BLOCK_BYTES);
        self.truth.discarded(device, offset / block..(offset + len) / block);
        let fails = self.rng.one_in(self.rates.discards);
        let service = self.service(device).time(&mut self.rng, BLOCK_BYTES.into());
        let (id, _) = self.submit(device, token, fails, false, Work::Discard, service);
        let effect = self.rng.pick(&[DiscardEffect::Old, DiscardEffect::Zeros, DiscardEffect::Garbage]);
        self.disks[device].submit_discard(id, offset, len, effect);
        Ok(())
    }

    fn submit(
        &mut self,
        device: usize,
        token: Token,
        fails: bool,
        log: bool,
        work: Work,
        service: u64,
    ) -> (IoId, u32) {
        let id = IoId(self.next_io);
        self.next_io += 1;
        let is_part = device < DEVICES;
        let absence = if is_part { self.sky.absence(device, self.now.0) } else { None };
        let error = absence.or(fails.then_some(self.errno));
        // A device that is away answers at once.
        let (more, stalled) = match absence {
            None if is_part => self.sky.delay(device, self.now.0),
            _ => (0, false),
        };
        let absent = absence.is_some();
        let service = service + more;
        let io = Io { id, device, token, error, absent, stalled, decay: None, log, work };
        let place = self.ios.insert(io);
        self.queue.push(Reverse((self.now.0 + service, id.0, place)));
        (id, place)
    }

    fn complete_next<M: Staged>(&mut self, machine: &mut M) -> Result<(), String> {
        let Reverse((_, _, place)) = self.queue.pop().expect("an event is due");
        let mut io = self.ios.remove(place);
        match io.work {
            Work::Served(_) => return self.complete_served(machine, &io),
            Work::Gone => return Ok(()),
            _ => {}
        }
        self.may_vanish(machine, &mut io);
        let result = self.finish(machine, &io)?;
        self.note([6, io.token.0, u64::from(result.is_ok()) + self.now.0 * 2]);
        if self.trace {
            eprintln!("{:>12} completed {:?} {result:?}", self.now.0, io.token);
        }
        if result.is_err() {
            self.cross(machine, &io, Fault::IoError);
        }
        if io.stalled {
            self.cross(machine, &io, Fault::Stalled);
        }
        self.between.tell(machine, self.now, io.token, result);
        Ok(())
    }

    /// Notes which stages a fault of an I/O hits.
    fn cross<M: Staged>(&mut self, machine: &M, io: &Io, fault: Fault) {
        let mut hit = StageSet::default();
        hit.extend(machine.stage_of(io.token).map_or(StageSet::default(), |s| {
            let mut one = StageSet::default();
            one.insert(s);
            one
        }));
        if io.log && matches!(io.work, Work::Write { .. }) {
            machine.stages().iter().filter(|s| LOG_WAITERS.contains(s)).for_each(|s| hit.insert(s));
        }
        hit.iter().for_each(|s| self.coverage.hit(s, fault));
    }

    /// Does to the device what the I/O does, and says how it ended.
    fn finish<M: Staged>(&mut self, machine: &mut M, io: &Io) -> Result<Result<(), DeviceError>, String> {
        let disk = &mut self.disks[io.device];
        let error = io.error.map(|errno| DeviceError { errno });
        let injected = &mut self.injected;
        if let Work::Read { offset, buf } = &io.work {
            if io.absent {
                injected.reads += 1;
                return Ok(error.map_or(Ok(()), Err));
            }
            // A read that fails may have brought its data all the same.
            let read = machine.with_arena(|arena| disk.read(*offset, arena.payload_mut(*buf)));
            injected.bad_sectors += u64::from(read.is_err());
            injected.reads += u64::from(error.is_some());
            return Ok(error.map_or(read.map_err(|_| DeviceError { errno: self.errno }), Err));
        }
        if let Work::Write { bufs, .. } = &io.work {
            // One that hangs is done without, and what it still writes is nobody's.
            let is_part = io.device < DEVICES;
            let same =
                !is_part || machine.with_arena(|arena| unchanged(arena, bufs, disk.data_in_flight(io.id)));
            if !same {
                return Err("a buffer was changed or freed while it was being written".into());
            }
        }
        let Some(error) = error else {
            disk.complete(io.id);
            if let Some((harm, page)) = io.decay {
                self.decay(io.device, harm, page);
            }
            return Ok(Ok(()));
        };
        *match &io.work {
            Work::Write { .. } => &mut injected.writes,
            Work::Flush => &mut injected.flushes,
            _ => &mut injected.discards,
        } += 1;
        if io.absent {
            disk.forget(io.id);
        } else if !matches!(io.work, Work::Flush) {
            disk.fail_change(io.id, &mut self.rng);
        } else if self.sky.gone.get(io.device).is_some_and(Option::is_some) {
            disk.fail_flush(io.id, false, &mut self.rng);
        } else {
            let lost = self.rng.one_in(2);
            injected.lost_caches += u64::from(lost && io.device < DEVICES);
            disk.fail_flush(io.id, lost, &mut self.rng);
        }
        Ok(Err(error))
    }

    /// The machine dies: devices settle what was in flight, and all events are forgotten.
    pub fn die(&mut self, death: Death) {
        if self.trace {
            eprintln!("{:>12} {death:?}", self.now.0);
        }
        // A server may live on where the power of this machine is cut.
        let lives_on = self.remote.is_some() && (death == Death::Kill || self.rng.one_in(2));
        self.forget_session(lives_on);
        for (device, disk) in self.disks.iter_mut().enumerate() {
            match death {
                Death::PowerCut(style) if !(lives_on && device == export::DEVICE) => {
                    disk.power_cut(style, &mut self.rng);
                }
                _ => disk.kill(&mut self.rng),
            }
        }
        self.note([7, u64::from(death == Death::Kill), self.now.0]);
        self.calm();
        self.between = image::Between::default();
        self.queue.clear();
        self.ios = Slab::new(usize::MAX);
        self.replies.clear();
        self.fuse = None;
        self.steps = 0;
        (self.read_only, self.missing, self.forgives_lost) = (false, None, false);
        // A restart takes a while; and the clock never runs backwards.
        self.now = self.now.after(Nanos::MS);
    }

    /// Whether a device may fail so that nobody knows what it holds.
    pub fn may_lose_writes(&self) -> bool {
        self.rates.writes > 0 || self.rates.flushes > 0 || self.sky.may_vanish()
    }

    /// Whether I/O of the machine's is in flight.
    pub fn busy(&self) -> bool {
        let is_own = |io: &Io| {
            !matches!(io.work, Work::Served(_) | Work::Gone)
                && !Protection::is_own(io.token)
                && !Replacement::is_own(io.token)
        };
        self.ios.iter().any(|(_, io)| is_own(io))
            || self.remote.as_ref().is_some_and(|remote| remote.is_busy())
    }
}

fn unchanged(arena: &SimArena, bufs: &[Buf], data: &[u8]) -> bool {
    let mut rest = data;
    bufs.iter().all(|&buf| {
        let (head, tail) = rest.split_at(buf.len as usize);
        rest = tail;
        arena.payload(buf) == head
    })
}
