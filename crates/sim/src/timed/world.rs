//! The driver in virtual time: actions to modelled devices, their answers back, one event after the other.

use crate::timed::{NoDataArena, TimedDevice, image};
use bimetal_engine::action::{Action, Machine, RequestError, RequestId};
use bimetal_engine::options::DeviceInfo;
use bimetal_engine::{Engine, Task};
use bimetal_models::Usage;
use bimetal_protect::{Layout, Protected, Protection};
use bimetal_units::event_hash::EventHash;
use bimetal_units::{Nanos, ServedBy};

/// A volume that is served in virtual time.
pub type TimedEngine = Engine<NoDataArena>;

/// Answers to requests, and who had a part in them.
pub type Replies = Vec<(RequestId, Result<(), RequestError>, ServedBy)>;

/// Why a task did not come to an end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// The task waits for nothing: a bug, said rather than hung on.
    #[error("the operation stopped without a result")]
    Stalled,
}

/// The devices and the clock. Nothing else decides what comes next, so the same calls always tell the same story.
pub struct TimedWorld {
    devices: Vec<TimedDevice>,
    /// The volume on them has an image that is so old at most.
    protect_seconds: Option<u32>,
    now: Nanos,
    /// What happened so far, in order.
    hash: EventHash,
}

impl TimedWorld {
    /// A world with these devices, in tier order.
    pub fn new(devices: Vec<TimedDevice>) -> TimedWorld {
        TimedWorld { devices, protect_seconds: None, now: Nanos(1), hash: EventHash::default() }
    }

    /// The volume that is made on the devices has an image on its slow one, which is so many seconds old at most, if any.
    pub fn protected(self, protect_seconds: Option<u32>) -> TimedWorld {
        TimedWorld { protect_seconds, ..self }
    }

    /// What stands between the volume and its devices, if it is protected.
    pub(crate) fn protection(&self) -> Option<Protection> {
        self.protect_seconds.map(|seconds| image::protection(seconds, &self.devices))
    }

    /// The virtual time.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The hash of all answers and their times so far.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// The devices as the engine wants to hear of them.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        let info = |(tier, device): (usize, &TimedDevice)| DeviceInfo {
            name: ["fast", "slow"].get(tier).unwrap_or(&"further").to_string(),
            size_bytes: device.size_bytes(),
        };
        self.devices.iter().enumerate().map(info).collect()
    }

    /// What of them a new volume may use.
    pub(crate) fn room(&self) -> Vec<DeviceInfo> {
        let mut infos = self.device_infos();
        if self.protect_seconds.is_some() {
            let left = Layout::left_of(infos[0].size_bytes, infos[1].size_bytes);
            infos.iter_mut().zip(left).for_each(|(info, left)| info.size_bytes = left);
        }
        infos
    }

    /// What each device has done so far, in tier order.
    pub fn usage(&self) -> Vec<Usage> {
        self.devices.iter().map(TimedDevice::usage).collect()
    }

    /// Does all that the machine wants at this instant.
    pub fn pump<M: Machine<Arena = NoDataArena>>(&mut self, machine: &mut M, replies: &mut Replies) {
        while let Some(action) = machine.next_action(self.now) {
            let device = match &action {
                Action::Reply { id, result, served } => {
                    self.hash.add([id.0 << 1 | u64::from(result.is_ok()), self.now.0]);
                    replies.push((*id, *result, *served));
                    continue;
                }
                Action::Read { device, .. }
                | Action::Write { device, .. }
                | Action::Flush { device, .. }
                | Action::Discard { device, .. } => *device,
            };
            self.devices[usize::from(device.0)].submit(self.now, action);
        }
    }

    /// When the next thing happens by itself, if anything does.
    #[inline]
    pub fn next_event<M: Machine<Arena = NoDataArena>>(&self, machine: &M) -> Option<Nanos> {
        let devices = self.devices.iter().filter_map(TimedDevice::deadline).min();
        let machine = machine.deadline().map(|deadline| deadline.max(self.now));
        match (devices, machine) {
            (Some(devices), Some(machine)) => Some(devices.min(machine)),
            (devices, machine) => devices.or(machine),
        }
    }

    /// Moves the clock to `at`, which is not beyond [`TimedWorld::next_event`], and tells the machine what has come by
    /// then.
    pub fn advance_to<M: Machine<Arena = NoDataArena>>(&mut self, machine: &mut M, at: Nanos) {
        self.now = self.now.max(at);
        for device in &mut self.devices {
            if device.deadline().is_some_and(|deadline| deadline <= self.now) {
                device.advance(self.now, machine);
            }
        }
        if machine.deadline().is_some_and(|deadline| deadline <= self.now) {
            machine.on_timer(self.now);
        }
    }

    /// Moves the clock to `now`, by which nothing happens.
    #[inline]
    pub fn rest_until(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }

    /// Serves a task until it has a result.
    pub fn run_task<T>(&mut self, task: Task<NoDataArena, T>) -> Result<T, WorldError> {
        self.run_protected(task, None)
    }

    /// Serves the task that opens a volume; what protects that goes on after it.
    pub(crate) fn run_protected<T>(
        &mut self,
        mut task: Task<NoDataArena, T>,
        mut protection: Option<&mut Protection>,
    ) -> Result<T, WorldError> {
        let mut replies = Vec::new();
        loop {
            let is_protected = protection.is_some();
            let mut both = Protected::new(protection.as_deref_mut(), &mut task);
            self.pump(&mut both, &mut replies);
            let next = self.next_event(&both);
            match next.filter(|_| !is_protected || both.has_arena()) {
                Some(at) => self.advance_to(&mut both, at),
                None => return task.take_result().ok_or(WorldError::Stalled),
            }
        }
    }

    /// Closes a volume, and leaves an image of its end.
    pub(crate) fn close(
        &mut self,
        mut engine: TimedEngine,
        mut protection: Option<Protection>,
    ) -> Result<(), WorldError> {
        engine.begin_shutdown(self.now);
        let mut replies = Vec::new();
        loop {
            self.pump(&mut Protected::new(protection.as_mut(), &mut engine), &mut replies);
            let now = self.now;
            if engine.is_stopped() && protection.as_mut().is_none_or(|image| image.finish(now)) {
                return Ok(());
            }
            let mut both = Protected::new(protection.as_mut(), &mut engine);
            let at = self.next_event(&both).ok_or(WorldError::Stalled)?;
            self.advance_to(&mut both, at);
        }
    }

    /// Kills the process that serves a volume: the devices keep what they were given.
    pub fn kill(&mut self, mut engine: TimedEngine) {
        let now = self.now;
        for device in &mut self.devices {
            self.now = self.now.max(device.outlive(now, &mut engine));
        }
    }
}
