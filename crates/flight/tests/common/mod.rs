//! A volume on two devices in memory, in virtual time, whose slow device can stand still.

use bimetal_driver::{PoolSizes, RealArena};
use bimetal_engine::action::{
    Action, DeviceError, Machine, Request, RequestError, RequestId, RequestKind, Token,
};
use bimetal_engine::arena::{Arena as _, Pool};
use bimetal_engine::options::{CreateOptions, DeviceInfo, OpenOptions, Tuning};
use bimetal_engine::{Engine, create, open};
use bimetal_flight::Flight;
use bimetal_units::rng::Rng;
use bimetal_units::{BLOCK_BYTES, Nanos, SLOW};
use std::collections::BTreeMap;

/// What clients write everywhere: nothing of it may be in a recording.
pub const SECRET: &[u8; 16] = b"not to be told. ";

/// Bytes of the two devices.
const DEVICES: [usize; 2] = [48 << 20, 128 << 20];
/// Blocks that are written and read.
const BLOCKS: u64 = 20_000;
/// A client thinks so long about an answer that came at once.
const THINKS_NS: u64 = 50_000;
/// Requests of the client at once.
const DEPTH: usize = 8;

/// The world of one engine.
pub struct World {
    pub now: Nanos,
    pub rng: Rng,
    disks: [Vec<u8>; 2],
    /// Commands by when they end.
    flying: BTreeMap<(Nanos, u64), Action>,
    begun: u64,
    asked: BTreeMap<RequestId, Request>,
    /// Until when the slow device answers nothing.
    pub stalled_until: Nanos,
    /// From now on each flush of the slow device fails.
    pub breaks: bool,
    /// Answers that clients got, in order.
    pub answers: Vec<(Nanos, RequestId, Result<(), RequestError>)>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Nanos(1_000 * Nanos::SECOND),
            rng: Rng::new(seed, 0),
            disks: DEVICES.map(|bytes| vec![0; bytes]),
            flying: BTreeMap::new(),
            begun: 0,
            asked: BTreeMap::new(),
            stalled_until: Nanos(0),
            breaks: false,
            answers: Vec::new(),
        }
    }

    /// A new volume, open.
    pub fn volume(&mut self) -> Engine<RealArena> {
        let device =
            |(name, bytes): (&str, usize)| DeviceInfo { name: name.to_owned(), size_bytes: bytes as u64 };
        let devices: Vec<_> = ["fast", "slow"].into_iter().zip(DEVICES).map(device).collect();
        let least = PoolSizes::least(128 << 10, 4 << 20);
        let arena = || RealArena::new(least).expect("there is memory");
        let mut options = CreateOptions::new([7; 16]);
        options.landing_bytes = Some(8 << 20);
        let mut task = create(arena(), devices.clone(), options);
        self.run(&mut task);
        task.take_result().expect("it ends").expect("it is made");
        self.open(devices, arena())
    }

    fn open(&mut self, devices: Vec<DeviceInfo>, arena: RealArena) -> Engine<RealArena> {
        let mut task = open(arena, devices, OpenOptions { volume_id: None, tuning: Tuning::default() });
        self.run(&mut task);
        task.take_result().expect("it ends").expect("it opens")
    }

    /// Does what a machine wants until it wants nothing and nothing is in flight.
    fn run(&mut self, machine: &mut impl Machine<Arena = RealArena>) {
        self.pump(machine);
        while let Some((&(at, _), _)) = self.flying.first_key_value() {
            self.now = self.now.max(at);
            self.complete(machine);
            self.pump(machine);
        }
    }

    fn pump(&mut self, machine: &mut impl Machine<Arena = RealArena>) {
        while let Some(action) = machine.next_action(self.now) {
            let took = match &action {
                Action::Reply { id, result, .. } => {
                    self.answers.push((self.now, *id, *result));
                    if let Some(buf) = self.asked.remove(id).and_then(|request| request.buf) {
                        machine.with_arena(|arena| arena.free(buf));
                    }
                    continue;
                }
                action if device(action) == SLOW => 3_000_000 + self.rng.below(9_000_000),
                _ => 40_000 + self.rng.below(60_000),
            };
            let mut end = self.now.after(took);
            if device(&action) == SLOW {
                end = end.max(self.stalled_until.after(took));
            }
            self.begun += 1;
            self.flying.insert((end, self.begun), action);
        }
    }

    /// Ends what has come to its end by now.
    fn complete(&mut self, machine: &mut impl Machine<Arena = RealArena>) {
        while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let action = entry.remove();
            let (token, result) = self.perform(action, machine);
            machine.on_completion(self.now, token, result);
        }
    }

    fn perform(
        &mut self,
        action: Action,
        machine: &mut impl Machine<Arena = RealArena>,
    ) -> (Token, Result<(), DeviceError>) {
        let disk = &mut self.disks[usize::from(device(&action).0)];
        match action {
            Action::Read { offset, buf, token, .. } => {
                let from = &disk[offset as usize..][..buf.len as usize];
                machine.with_arena(|arena| arena.payload_mut(buf).copy_from_slice(from));
                (token, Ok(()))
            }
            Action::Write { offset, bufs, token, .. } => {
                let mut at = offset as usize;
                for buf in bufs {
                    let to = &mut disk[at..at + buf.len as usize];
                    machine.with_arena(|arena| to.copy_from_slice(arena.payload(buf)));
                    at += buf.len as usize;
                }
                (token, Ok(()))
            }
            Action::Flush { token, device } if self.breaks && device == SLOW => {
                (token, Err(DeviceError { errno: 5 }))
            }
            Action::Flush { token, .. } => (token, Ok(())),
            Action::Discard { offset, len, token, .. } => {
                disk[offset as usize..(offset + len) as usize].fill(0);
                (token, Ok(()))
            }
            Action::Reply { .. } => unreachable!("it is for no device"),
        }
    }

    /// Clients ask for this and that until that time; what they are told is noted.
    pub fn load(&mut self, flight: &mut Flight, until: Nanos) {
        while self.now < until {
            while self.asked.len() < DEPTH && flight.engine().has_room() {
                self.ask(flight);
            }
            self.pump(flight);
            // What was answered at once is followed by the next thing, a little later.
            let soon = if self.asked.len() < DEPTH { self.now.after(THINKS_NS) } else { until };
            self.step(flight, soon.min(until));
        }
        let _ = flight.take_events();
    }

    /// Time passes, and clients ask for nothing.
    pub fn rest(&mut self, flight: &mut Flight, until: Nanos) {
        while self.now < until {
            self.step(flight, until);
        }
        let _ = flight.take_events();
    }

    fn step(&mut self, flight: &mut Flight, until: Nanos) {
        self.pump(flight);
        let next = self.flying.first_key_value().map(|(&(at, _), _)| at);
        let times = [next, flight.deadline(), Some(until)];
        // A deadline may be now: then time passes all the same.
        let at = times.into_iter().flatten().min().unwrap_or(until);
        self.now = at.max(self.now.after(1));
        self.complete(flight);
        if flight.deadline().is_some_and(|deadline| deadline <= self.now) {
            flight.on_timer(self.now);
        }
    }

    fn ask(&mut self, flight: &mut Flight) {
        let block = u64::from(BLOCK_BYTES);
        // Some blocks are far hotter than others.
        let hot = self.rng.below(4) > 0;
        let at = self.rng.below(if hot { BLOCKS / 16 } else { BLOCKS });
        let most = if self.rng.below(8) == 0 { 64 } else { 2 };
        let count = 1 + self.rng.below(most);
        let part = self.rng.below(5) == 0;
        let (offset, len) = if part { (at * block + 512, 1024) } else { (at * block, count * block) };
        let kind = match self.rng.below(20) {
            0 => RequestKind::Flush,
            1 => RequestKind::Discard { fua: false },
            2 => RequestKind::WriteZeroes { fua: false },
            3..12 => RequestKind::Read,
            n => RequestKind::Write { fua: n == 19 },
        };
        self.begun += 1;
        let id = RequestId(self.begun);
        let payload = matches!(kind, RequestKind::Read | RequestKind::Write { .. });
        let cover = (offset + len).next_multiple_of(block) - offset / block * block;
        let fill = self.begun.to_le_bytes();
        let buf = payload.then(|| flight.with_arena(|arena| arena.alloc(Pool::Client, cover as u32)));
        let buf = buf.map(|buf| buf.expect("there is room"));
        if let Some(buf) = buf {
            flight.with_arena(|arena| {
                for part in arena.payload_mut(buf).chunks_exact_mut(32) {
                    part[..16].copy_from_slice(SECRET);
                    part[16..24].copy_from_slice(&fill);
                }
            });
        }
        let (offset, len) = if kind == RequestKind::Flush { (0, 0) } else { (offset, len) };
        let request = Request { id, kind, offset, len, buf };
        self.asked.insert(id, request);
        flight.on_request(self.now, request);
    }
}

fn device(action: &Action) -> bimetal_units::Tier {
    match *action {
        Action::Read { device, .. }
        | Action::Write { device, .. }
        | Action::Flush { device, .. }
        | Action::Discard { device, .. } => device,
        Action::Reply { .. } => unreachable!("it is for no device"),
    }
}
