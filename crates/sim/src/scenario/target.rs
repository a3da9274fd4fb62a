//! What a scenario loads: a volume, what others make of the same devices, or a device.

use super::report::WrittenBy;
use super::{DeviceSpec, Reopen, Scenario, ScenarioError, Size, VolumeSpec, Whole};
use crate::peers::{MAX_BYTES, Peer, PeerSpec, Policy};
use crate::plan::Shared;
use crate::timed::volume::VolumeError;
use crate::timed::{TimedDevice, TimedVolume, TimedWorld};
use bimetal_engine::format::geometry::Geometry;
use bimetal_engine::options::{CreateOptions, DeviceInfo, Tuning, WakeUps};
use bimetal_models::{Command, Done, Model, Usage};
use bimetal_units::event_hash::EventHash;
use bimetal_units::rng::mix;
use bimetal_units::{BLOCK_BYTES, Chunk, FAST, Nanos};

/// What is loaded.
pub struct Target {
    kind: Kind,
    /// How a volume of ours is opened.
    tuning: Tuning,
}

enum Kind {
    Volume(Box<TimedVolume>),
    /// Other rules on the same devices, for a volume of the same size.
    Peer(Box<Peer>),
    /// With the hash of its answers; a volume keeps its own.
    Device(Box<dyn Model>, EventHash),
}

/// What a target counts, since it was opened.
#[derive(Clone, Default)]
pub(super) struct Counts {
    pub(super) fast_bytes: u64,
    pub(super) all_bytes: u64,
    pub(super) promoted_bytes: u64,
    pub(super) demoted_bytes: u64,
    pub(super) shadow_demoted_bytes: u64,
    pub(super) destaged_bytes: u64,
    /// Of a volume of ours.
    pub(super) written_by: Option<WrittenBy>,
    /// Of a volume of ours, in tier order.
    pub(super) wakeups: Vec<WakeUps>,
    /// Of a protected volume that has an image.
    pub(super) exposed_seconds: Option<f64>,
    pub(super) usage: Vec<Usage>,
}

/// What a volume has copied between its devices of its own accord since it was opened, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// To the fast device.
    pub promoted: u64,
    /// Down from it.
    pub demoted: u64,
    /// To the fast device, and left where it was as well.
    pub copied: u64,
    /// To the slow device, of what had been written to the fast one first.
    pub merged: u64,
}

impl Target {
    pub(super) fn new(scenario: &Scenario, whole: Whole) -> Result<Target, ScenarioError> {
        let wear_budget = scenario.volume.as_ref().and_then(|volume| volume.wear_budget);
        let tuning = Tuning { wear_bytes_per_day: wear_budget.map(|Size(bytes)| bytes), ..Tuning::default() };
        let tuning = scenario.tuning.applied(tuning);
        match (&scenario.volume, &scenario.device) {
            (Some(volume), _) => {
                if let Some(phase) = scenario.phases.iter().find(|phase| phase.reopen.is_some())
                    && !volume.policy.is_ours()
                {
                    let (name, policy) = (&phase.name, volume.policy.name());
                    return Err(ScenarioError::Sense(format!(
                        "phase {name:?}: a volume under {policy} cannot be opened again"
                    )));
                }
                Target::of_volume(volume, whole, scenario.seed, tuning)
            }
            (_, Some(device)) => {
                let kind = Kind::Device(device.build(whole, scenario.seed)?, EventHash::default());
                Ok(Target { kind, tuning })
            }
            _ => Err(ScenarioError::Sense("there is nothing to load".into())),
        }
    }

    fn of_volume(
        volume: &VolumeSpec,
        whole: Whole,
        seed: u64,
        tuning: Tuning,
    ) -> Result<Target, ScenarioError> {
        if volume.protect_seconds == Some(0) || volume.protect_seconds.is_some() && !volume.policy.is_ours() {
            let what = "protect_seconds is at least 1, of a volume of ours";
            return Err(ScenarioError::Sense(what.into()));
        }
        let kind = match volume.policy {
            policy if policy.is_ours() => Kind::Volume(Box::new(create(volume, whole, seed, &tuning)?)),
            Policy::AllFast => Kind::Device(all_fast(volume, whole, seed)?, EventHash::default()),
            _ => Kind::Peer(Box::new(peer(volume, whole, seed)?)),
        };
        Ok(Target { kind, tuning })
    }

    /// A new volume, whose sizes are no shares of a trace.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn volume(spec: &VolumeSpec, seed: u64, tuning: Tuning) -> Result<Target, ScenarioError> {
        Target::of_volume(spec, Whole::default(), seed, tuning)
    }

    /// What a scenario loads, before its first phase; one whose sizes are no shares of a trace.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn fresh(scenario: &Scenario) -> Result<Target, ScenarioError> {
        Target::new(scenario, Whole { target_bytes: 0, trace_bytes: 0 })
    }

    /// Bytes that a volume's fast tier has served, and all; none of a device.
    pub fn served_bytes(&self) -> Option<(u64, u64)> {
        let counts = self.counts();
        (!matches!(self.kind, Kind::Device(..))).then_some((counts.fast_bytes, counts.all_bytes))
    }

    /// What a volume has copied between its devices of its own accord; nothing of a device.
    pub fn moved_bytes(&self) -> Option<Moved> {
        let counts = self.counts();
        let copied = counts.written_by.as_ref().map_or(0, |written| written.copies_bytes);
        (!matches!(self.kind, Kind::Device(..))).then_some(Moved {
            promoted: counts.promoted_bytes,
            demoted: counts.demoted_bytes,
            copied,
            merged: counts.destaged_bytes,
        })
    }

    /// How long each of its devices has been busy so far, nanoseconds, in tier order.
    pub fn busy_ns(&self) -> Vec<u64> {
        self.counts().usage.iter().map(|usage| usage.busy_ns).collect()
    }

    /// Its virtual time.
    pub fn now(&self) -> Nanos {
        match &self.kind {
            Kind::Volume(volume) => volume.now(),
            Kind::Peer(_) | Kind::Device(..) => Nanos(0),
        }
    }

    /// The hash of all that happened.
    pub(super) fn hash(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.hash(),
            Kind::Peer(peer) => peer.hash(),
            Kind::Device(_, hash) => hash.value(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        match &self.kind {
            Kind::Device(device, _) => Counts { usage: vec![device.usage()], ..Counts::default() },
            Kind::Peer(peer) => {
                let tally = peer.tally();
                Counts {
                    fast_bytes: tally.fast_bytes,
                    all_bytes: tally.all_bytes,
                    promoted_bytes: tally.promoted_bytes,
                    demoted_bytes: tally.demoted_bytes,
                    shadow_demoted_bytes: 0,
                    destaged_bytes: tally.destaged_bytes,
                    written_by: None,
                    wakeups: Vec::new(),
                    exposed_seconds: None,
                    usage: peer.device_usage(),
                }
            }
            Kind::Volume(volume) => {
                let status = volume.status();
                let bytes = |tier: &bimetal_engine::options::TierStatus| tier.read_bytes + tier.written_bytes;
                let chunk = u64::from(status.chunk_bytes);
                Counts {
                    fast_bytes: status.tiers.first().map_or(0, bytes),
                    all_bytes: status.tiers.iter().map(bytes).sum(),
                    promoted_bytes: status.promoted_chunks * chunk,
                    demoted_bytes: status.demoted_chunks * chunk,
                    shadow_demoted_bytes: status.shadow_demoted_chunks * chunk,
                    destaged_bytes: status.destaged_blocks * u64::from(BLOCK_BYTES),
                    written_by: Some(WrittenBy {
                        log_bytes: status.log_written_bytes,
                        moves_bytes: status.wear.moved_bytes,
                        copies_bytes: status.wear.copied_bytes,
                    }),
                    wakeups: status.tiers.iter().map(|tier| tier.wakeups).collect(),
                    exposed_seconds: volume
                        .image()
                        .filter(|progress| progress.image.is_some())
                        .map(|progress| progress.exposed_ms as f64 / 1e3),
                    usage: volume.device_usage(),
                }
            }
        }
    }

    /// From now on a volume of ours knows what a replay will touch; so much of it at a time.
    pub(super) fn foresee(&mut self, touched: &[(u64, u64)], share: f64) {
        let Kind::Volume(volume) = &mut self.kind else { return };
        let chunk = volume.chunk_bytes();
        let chunks = |(offset, len): &(u64, u64)| {
            (offset / chunk..=(offset + len - 1) / chunk).map(|chunk| Chunk(chunk as u32))
        };
        let uses: Vec<Chunk> = touched.iter().flat_map(chunks).collect();
        let window = (uses.len() as f64 * share).ceil() as usize;
        volume.foresee(uses, window.max(1));
    }

    /// Ends what serves the volume and opens it again. How long opening took, nanoseconds.
    ///
    /// # Errors
    /// When it is no volume of ours, or does not open.
    pub fn reopen(self, how: Reopen) -> Result<(Target, u64), ScenarioError> {
        let Kind::Volume(volume) = self.kind else {
            return Err(ScenarioError::Sense("only a volume of ours can be opened again".into()));
        };
        let world = match how {
            Reopen::Close => volume.close()?,
            Reopen::Kill => volume.kill(),
        };
        let before = world.now();
        let volume = TimedVolume::open(world, self.tuning.clone())?;
        let took = volume.now().since(before);
        Ok((Target { kind: Kind::Volume(Box::new(volume)), tuning: self.tuning }, took))
    }
}

impl Model for Target {
    fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.size_bytes(),
            Kind::Peer(peer) => peer.size_bytes(),
            Kind::Device(device, _) => device.size_bytes(),
        }
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.submit(now, tag, command),
            Kind::Peer(peer) => peer.submit(now, tag, command),
            Kind::Device(device, _) => device.submit(now, tag, command),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Volume(volume) => volume.deadline(),
            Kind::Peer(peer) => peer.deadline(),
            Kind::Device(device, _) => device.deadline(),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.advance(now, done),
            Kind::Peer(peer) => peer.advance(now, done),
            Kind::Device(device, hash) => {
                let before = done.len();
                device.advance(now, done);
                done[before..].iter().for_each(|end| hash.add([end.at.0, end.tag]));
            }
        }
    }

    fn usage(&self) -> Usage {
        match &self.kind {
            Kind::Volume(volume) => volume.usage(),
            Kind::Peer(peer) => peer.usage(),
            Kind::Device(device, _) => device.usage(),
        }
    }
}

/// A device of the volume, by its tier.
fn device(spec: &DeviceSpec, whole: Whole, seed: u64, tier: u64) -> Result<Box<dyn Model>, ScenarioError> {
    spec.build(whole, mix(seed ^ tier))
}

fn options(spec: &VolumeSpec, whole: Whole) -> Result<CreateOptions, ScenarioError> {
    let mut options = CreateOptions::new(*b"simulated volume");
    if let Some(Size(chunk)) = spec.chunk {
        options.chunk_bytes = u32::try_from(chunk)
            .map_err(|_| ScenarioError::Sense(format!("a chunk of {chunk} bytes is too large")))?;
    }
    options.landing_bytes = spec.landing.map(|size| size.of(whole));
    Ok(options)
}

fn create(spec: &VolumeSpec, whole: Whole, seed: u64, tuning: &Tuning) -> Result<TimedVolume, ScenarioError> {
    let fast = TimedDevice::new(device(&spec.fast, whole, seed, 0)?);
    let slow = TimedDevice::new(Shared::of(device(&spec.slow, whole, seed, 1)?, spec.crowd.as_ref()));
    let world = TimedWorld::new(vec![fast, slow]).protected(spec.protect_seconds);
    Ok(TimedVolume::create_on(world, options(spec, whole)?, tuning.clone())?)
}

/// How ours would be laid out on a fast and a slow device of these sizes.
fn layout(spec: &VolumeSpec, whole: Whole, sizes: [u64; 2]) -> Result<Geometry, ScenarioError> {
    let info = |name: &str, size_bytes| DeviceInfo { name: name.into(), size_bytes };
    let devices = [info("fast", sizes[0]), info("slow", sizes[1])];
    Ok(Geometry::plan(&devices, &options(spec, whole)?).map_err(VolumeError::from)?)
}

/// A device like the fast one, as large as the volume would be.
fn all_fast(spec: &VolumeSpec, whole: Whole, seed: u64) -> Result<Box<dyn Model>, ScenarioError> {
    let [fast, slow] = [(&spec.fast, 0), (&spec.slow, 1)].map(|(spec, tier)| device(spec, whole, seed, tier));
    let size_bytes = layout(spec, whole, [fast?.size_bytes(), slow?.size_bytes()])?.volume_bytes();
    spec.fast.build_with(size_bytes.next_multiple_of(1 << 20), mix(seed))
}

/// The volume that others would make. It is as large as ours on the same devices, so that the same phases mean the
/// same; a cache, whose volume is as large as its slow device, gets one that is so much larger, of the same kind.
fn peer(spec: &VolumeSpec, whole: Whole, seed: u64) -> Result<Peer, ScenarioError> {
    let fast = device(&spec.fast, whole, seed, 0)?;
    let mut slow = device(&spec.slow, whole, seed, 1)?;
    let ours = layout(spec, whole, [fast.size_bytes(), slow.size_bytes()])?;
    let size_bytes = ours.volume_bytes();
    if spec.policy.is_cache() && slow.size_bytes() < size_bytes {
        slow = spec.slow.build_with(size_bytes.next_multiple_of(1 << 20), mix(seed ^ 1))?;
    }
    let slots_bytes = u64::from(ours.slots(FAST)) * u64::from(ours.chunk_bytes);
    let spec_of_peer =
        PeerSpec { size_bytes, landing_bytes: fast.size_bytes() - slots_bytes, seed: mix(seed ^ 2) };
    Peer::new(spec.policy, [fast, slow], spec_of_peer).ok_or_else(|| {
        ScenarioError::Sense(format!("{} takes no devices above {MAX_BYTES} bytes", spec.policy.name()))
    })
}
