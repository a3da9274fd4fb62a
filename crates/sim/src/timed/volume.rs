//! A whole volume as a device in virtual time, so that whatever loads a modelled device loads a volume.

use crate::timed::world::{Replies, TimedEngine};
use crate::timed::{NoDataArena, TimedDevice, TimedWorld, WorldError};
use bimetal_engine::action::{Machine as _, Request, RequestId, RequestKind};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_engine::loss::Suspects;
use bimetal_engine::options::{CheckReport, CreateOptions, OpenError, OpenOptions, Status, Tuning};
use bimetal_engine::scrub::ScrubError;
use bimetal_engine::slab::Slab;
use bimetal_models::device::Failure;
use bimetal_models::{Command, Done, Kind, Model, Usage};
use bimetal_protect::{Progress, Protected, Protection};
use bimetal_units::{BLOCK_BYTES, Chunk, Nanos, Tier};
use std::collections::VecDeque;

/// Why there is no volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// It cannot be made or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A bug.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// A request that the engine has.
struct InFlight {
    tag: u64,
    kind: Kind,
    len: u64,
    buf: Option<Buf>,
}

/// An open volume on modelled devices.
pub struct TimedVolume {
    world: TimedWorld,
    engine: TimedEngine,
    protection: Option<Protection>,
    /// By what they are called in the engine, which bounds how many there are.
    requests: Slab<InFlight>,
    /// Commands that wait for room in the engine.
    waiting: VecDeque<(u64, Command)>,
    replies: Replies,
    ended: Vec<Done>,
    usage: Usage,
    /// When the next thing happens by itself: known since the last one happened, as only what happens changes it.
    next: Option<Nanos>,
}

impl TimedVolume {
    /// Makes a volume on these devices, in tier order, and opens it.
    pub fn create(
        devices: Vec<TimedDevice>,
        options: CreateOptions,
        tuning: Tuning,
    ) -> Result<TimedVolume, VolumeError> {
        TimedVolume::create_on(TimedWorld::new(devices), options, tuning)
    }

    /// Makes a volume on the devices of a world, and opens it.
    pub fn create_on(
        mut world: TimedWorld,
        options: CreateOptions,
        tuning: Tuning,
    ) -> Result<TimedVolume, VolumeError> {
        let task = bimetal_engine::create(NoDataArena::default(), world.room(), options);
        world.run_task(task)??;
        TimedVolume::open(world, tuning)
    }

    /// Opens the volume that is on the devices of a world.
    pub fn open(mut world: TimedWorld, tuning: Tuning) -> Result<TimedVolume, VolumeError> {
        let options = OpenOptions { volume_id: None, tuning };
        let task = bimetal_engine::open(NoDataArena::default(), world.device_infos(), options);
        let mut protection = world.protection();
        let engine = world.run_protected(task, protection.as_mut())??;
        Ok(TimedVolume::of(world, engine, protection))
    }

    /// Opens it without one of its devices, to be read only.
    pub fn open_degraded(
        mut world: TimedWorld,
        missing: Tier,
        tuning: Tuning,
    ) -> Result<TimedVolume, VolumeError> {
        let options = OpenOptions { volume_id: None, tuning };
        let (arena, devices) = (NoDataArena::default(), world.device_infos());
        let task = bimetal_engine::open_degraded(arena, devices, missing, options, Suspects::Refused);
        let engine = world.run_task(task)??;
        Ok(TimedVolume::of(world, engine, None))
    }

    fn of(world: TimedWorld, engine: TimedEngine, protection: Option<Protection>) -> TimedVolume {
        let mut volume = TimedVolume {
            world,
            engine,
            protection,
            next: None,
            requests: Slab::new(usize::MAX),
            waiting: VecDeque::new(),
            replies: Vec::new(),
            ended: Vec::new(),
            usage: Usage::default(),
        };
        volume.next = volume.next_event();
        volume
    }

    fn next_event(&mut self) -> Option<Nanos> {
        self.world.next_event(&Protected::new(self.protection.as_mut(), &mut self.engine))
    }

    fn advance_to(&mut self, at: Nanos) {
        self.world.advance_to(&mut Protected::new(self.protection.as_mut(), &mut self.engine), at);
    }

    /// How the image stands; none where the volume has none.
    pub fn image(&self) -> Option<Progress> {
        self.protection.as_ref().map(Protection::progress)
    }

    /// Begins a scrub.
    pub fn begin_scrub(&mut self) -> Result<(), ScrubError> {
        self.engine.begin_scrub(self.world.now())?;
        self.pump();
        Ok(())
    }

    /// The virtual time.
    pub fn now(&self) -> Nanos {
        self.world.now()
    }

    /// How the volume is.
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.engine.status().chunk_bytes)
    }

    /// From now on the engine knows which chunks will be touched, and sees so many touches ahead.
    pub fn foresee(&mut self, uses: Vec<Chunk>, window: usize) {
        self.engine.foresee(uses, window);
        self.pump();
    }

    /// What its devices have done so far, in tier order.
    pub fn device_usage(&self) -> Vec<Usage> {
        self.world.usage()
    }

    /// The hash of all answers and their times so far.
    pub fn hash(&self) -> u64 {
        self.world.hash()
    }

    /// Closes the volume. Only while no command is in flight.
    pub fn close(mut self) -> Result<TimedWorld, VolumeError> {
        assert!(self.requests.is_empty(), "commands are in flight");
        self.world.close(self.engine, self.protection)?;
        Ok(self.world)
    }

    /// Kills what serves the volume: the devices keep what they were given.
    pub fn kill(mut self) -> TimedWorld {
        self.world.kill(self.engine);
        self.world
    }

    fn pump(&mut self) {
        loop {
            let mut both = Protected::new(self.protection.as_mut(), &mut self.engine);
            self.world.pump(&mut both, &mut self.replies);
            if self.replies.is_empty() {
                self.next = self.next_event();
                return;
            }
            for i in 0..self.replies.len() {
                let (id, result, served) = self.replies[i];
                let request = self.requests.remove(id.0 as u32);
                if let Some(buf) = request.buf {
                    self.engine.with_arena(|arena| arena.free(buf));
                }
                let failure = result.err().map(|_| Failure::Error);
                if failure.is_none() {
                    self.usage.count(request.kind, request.len);
                }
                self.ended.push(Done {
                    at: self.world.now(),
                    tag: request.tag,
                    failure,
                    served: Some(served),
                });
            }
            self.replies.clear();
            self.admit_waiting();
        }
    }

    /// Moves the clock to `now` and lets happen what happens by then.
    fn run_to(&mut self, now: Nanos) {
        while let Some(at) = self.next.filter(|&at| at <= now) {
            self.advance_to(at);
            self.pump();
        }
        self.world.rest_until(now);
    }

    fn admit_waiting(&mut self) {
        while let Some(&(tag, command)) = self.waiting.front() {
            if !self.admit(tag, command) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Hands a command to the engine; false where there is no room for it now.
    fn admit(&mut self, tag: u64, command: Command) -> bool {
        if !self.engine.has_room() {
            return false;
        }
        let kind = match command.kind {
            Kind::Read => RequestKind::Read,
            Kind::Write { fua } => RequestKind::Write { fua },
            Kind::Flush | Kind::Sync => RequestKind::Flush,
            Kind::Discard => RequestKind::Discard { fua: false },
        };
        let mut buf = None;
        if matches!(command.kind, Kind::Read | Kind::Write { .. }) {
            let block = u64::from(BLOCK_BYTES);
            let cover =
                (command.offset + command.len).next_multiple_of(block) - command.offset / block * block;
            buf = self.engine.with_arena(|arena| arena.alloc(Pool::Client, cover as u32));
            if buf.is_none() {
                return false;
            }
        }
        let request = InFlight { tag, kind: command.kind, len: command.len, buf };
        let id = RequestId(u64::from(self.requests.insert(request)));
        let (offset, len) = (command.offset, command.len);
        self.engine.on_request(self.world.now(), Request { id, kind, offset, len, buf });
        true
    }
}

impl Model for TimedVolume {
    fn size_bytes(&self) -> u64 {
        self.engine.size_bytes()
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        if self.next.is_some_and(|next| next <= now) {
            self.advance_to(now);
        }
        self.world.rest_until(now);
        if !self.waiting.is_empty() || !self.admit(tag, command) {
            self.waiting.push_back((tag, command));
        }
        self.pump();
    }

    fn deadline(&self) -> Option<Nanos> {
        if !self.ended.is_empty() {
            return Some(self.world.now());
        }
        if self.requests.is_empty() && self.waiting.is_empty() {
            return None;
        }
        self.next
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.run_to(now);
        done.append(&mut self.ended);
    }

    fn usage(&self) -> Usage {
        let busy = self.world.usage().iter().map(|usage| usage.busy_ns).max();
        Usage { busy_ns: busy.unwrap_or(0), ..self.usage }
    }
}

/// Verifies the closed volume that is on the devices of a world.
pub fn check(world: &mut TimedWorld) -> Result<CheckReport, VolumeError> {
    let options = OpenOptions { volume_id: None, tuning: Tuning::default() };
    let task = bimetal_engine::check(NoDataArena::default(), world.device_infos(), options);
    Ok(world.run_task(task)??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_models::constant::{Constant, ConstantParams};

    fn device(size_bytes: u64, latency_ns: u64) -> TimedDevice {
        let params = ConstantParams { size_bytes, latency_ns, ns_per_kib: 10, units: 8 };
        TimedDevice::new(Box::new(Constant::new(params)))
    }

    fn create() -> TimedVolume {
        let devices = vec![device(1 << 30, 20_000), device(8 << 30, 5_000_000)];
        TimedVolume::create(devices, CreateOptions::new([7; 16]), Tuning::default()).expect("it is made")
    }

    fn write(volume: &mut TimedVolume, offset: u64, len: u64) {
        volume.submit(volume.now(), 1, Command { kind: Kind::Write { fua: false }, offset, len });
        let mut done = Vec::new();
        while let Some(at) = volume.deadline() {
            volume.advance(at, &mut done);
        }
        assert!(done.len() == 1 && done[0].failure.is_none(), "{done:?}");
    }

    fn rest(volume: &mut TimedVolume, ns: u64) {
        let mut done = Vec::new();
        volume.advance(volume.now().after(ns), &mut done);
        assert!(done.is_empty());
    }

    fn used(volume: &TimedVolume) -> Vec<u64> {
        volume.status().tiers.iter().map(|tier| tier.used_bytes).collect()
    }

    /// A volume lives through writes, a kill and a close, twice the same.
    #[test]
    fn a_volume_without_payload_keeps_its_metadata() {
        let story = || {
            let mut volume = create();
            (0..1600).for_each(|n| write(&mut volume, n << 20, 1 << 20));
            (0..1000).for_each(|n| write(&mut volume, (n * 7919 % 1600) << 20 | 8192, 4096));
            assert!(used(&volume)[1] > 500 << 20, "{:?}", used(&volume));
            // Long enough for a commit, and for all that moves in quiet times.
            rest(&mut volume, 60 * Nanos::SECOND);
            let before = used(&volume);
            let volume = TimedVolume::open(volume.kill(), Tuning::default()).expect("it opens");
            assert!(volume.status().recovered);
            assert_eq!(used(&volume), before);
            let mut world = volume.close().expect("it closes");
            let report = check(&mut world).expect("it can be checked");
            assert_eq!(report.findings, []);
            (world.hash(), world.now(), report.chunks)
        };
        assert_eq!(story(), story());
    }

    /// Work that nobody waits for goes on while the clock does; where the slow device rested, within an hour.
    #[test]
    fn an_idle_volume_empties_its_landing_zone() {
        let mut volume = create();
        (0..1600).for_each(|n| write(&mut volume, n << 20, 1 << 20));
        rest(&mut volume, 60 * Nanos::SECOND);
        (0..4000).for_each(|n| write(&mut volume, (n * 7919 % 700 + 900) << 20 | 8192, 4096));
        assert!(volume.status().landed_bytes > 1 << 20, "{}", volume.status().landed_bytes);
        rest(&mut volume, 3900 * Nanos::SECOND);
        assert_eq!(volume.status().landed_bytes, 0);
    }

    /// A burst is larger than the landing zone: it borrows areas of slots, which a kill does not lose, and gives them
    /// back when it is quiet.
    #[test]
    fn the_landing_zone_grows_with_a_burst_and_shrinks_after_it() {
        let mut volume = create();
        (0..1600).for_each(|n| write(&mut volume, n << 20, 1 << 20));
        rest(&mut volume, 60 * Nanos::SECOND);
        let own = volume.status().landing_size_bytes;
        (0..30_000).for_each(|n| write(&mut volume, (n * 7919 % 700 + 900) << 20 | (n % 256) << 12, 4096));
        let grown = volume.status().landing_size_bytes;
        assert!(grown > own, "{grown} bytes");
        let mut volume = TimedVolume::open(volume.kill(), Tuning::default()).expect("it opens");
        let recovered = volume.status();
        assert!(recovered.landing_size_bytes > own && recovered.landed_bytes > 0, "{recovered:?}");
        rest(&mut volume, 900 * Nanos::SECOND);
        let quiet = volume.status();
        assert_eq!(quiet.landed_bytes, 0);
        // What the log is in, and what it goes on in, stays with it until it has gone on.
        let borrowed = quiet.landing_size_bytes - own;
        assert_eq!(quiet.landing_used_bytes, 4 << 20, "one segment");
        assert!(borrowed <= 8 << 20 && borrowed < grown - own, "{borrowed} bytes are borrowed");
        let mut world = volume.close().expect("it closes");
        assert_eq!(check(&mut world).expect("it can be checked").findings, []);
    }
}
