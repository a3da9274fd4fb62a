//! What a scenario loads: a volume or a device.

use super::{DeviceSpec, Reopen, Scenario, ScenarioError, VolumeSpec, Whole};
use crate::event_hash::EventHash;
use crate::timed::{TimedDevice, TimedVolume};
use bimetal_engine::options::CreateOptions;
use bimetal_engine::units::{BLOCK_BYTES, Nanos};
use bimetal_models::rng::mix;
use bimetal_models::{Command, Done, Model, Usage};

/// What is loaded.
pub(super) struct Target {
    kind: Kind,
}

enum Kind {
    Volume(Box<TimedVolume>),
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
    pub(super) destaged_bytes: u64,
    pub(super) usage: Vec<Usage>,
}

impl Target {
    pub(super) fn new(scenario: &Scenario, whole: Whole) -> Result<Target, ScenarioError> {
        let kind = match (&scenario.volume, &scenario.device) {
            (Some(volume), _) => Kind::Volume(Box::new(create(volume, whole, scenario.seed)?)),
            (_, Some(device)) => Kind::Device(device.build(whole, scenario.seed)?, EventHash::new()),
            _ => return Err(ScenarioError::Sense("there is nothing to load".into())),
        };
        Ok(Target { kind })
    }

    pub(super) fn now(&self) -> Nanos {
        match &self.kind {
            Kind::Volume(volume) => volume.now(),
            Kind::Device(..) => Nanos(0),
        }
    }

    /// The hash of all that happened.
    pub(super) fn hash(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.hash(),
            Kind::Device(_, hash) => hash.value(),
        }
    }

    pub(super) fn counts(&self) -> Counts {
        match &self.kind {
            Kind::Device(device, _) => Counts { usage: vec![device.usage()], ..Counts::default() },
            Kind::Volume(volume) => {
                let status = volume.status();
                let bytes = |tier: &bimetal_engine::options::TierStatus| tier.read_bytes + tier.written_bytes;
                let chunk = u64::from(status.chunk_bytes);
                Counts {
                    fast_bytes: status.tiers.first().map_or(0, bytes),
                    all_bytes: status.tiers.iter().map(bytes).sum(),
                    promoted_bytes: status.promoted_chunks * chunk,
                    demoted_bytes: status.demoted_chunks * chunk,
                    destaged_bytes: status.destaged_blocks * u64::from(BLOCK_BYTES),
                    usage: volume.device_usage(),
                }
            }
        }
    }

    /// Ends what serves the volume and opens it again. How long opening took, nanoseconds.
    pub(super) fn reopen(self, how: Reopen) -> Result<(Target, u64), ScenarioError> {
        let Kind::Volume(volume) = self.kind else {
            return Err(ScenarioError::Sense("only a volume can be opened again".into()));
        };
        let world = match how {
            Reopen::Close => volume.close()?,
            Reopen::Kill => volume.kill(),
        };
        let before = world.now();
        let volume = TimedVolume::open(world)?;
        let took = volume.now().since(before);
        Ok((Target { kind: Kind::Volume(Box::new(volume)) }, took))
    }
}

impl Model for Target {
    fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Volume(volume) => volume.size_bytes(),
            Kind::Device(device, _) => device.size_bytes(),
        }
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.submit(now, tag, command),
            Kind::Device(device, _) => device.submit(now, tag, command),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Volume(volume) => volume.deadline(),
            Kind::Device(device, _) => device.deadline(),
        }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        match &mut self.kind {
            Kind::Volume(volume) => volume.advance(now, done),
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
            Kind::Device(device, _) => device.usage(),
        }
    }
}

fn create(spec: &VolumeSpec, whole: Whole, seed: u64) -> Result<TimedVolume, ScenarioError> {
    let device = |device: &DeviceSpec, tier: u64| -> Result<TimedDevice, ScenarioError> {
        Ok(TimedDevice::new(device.build(whole, mix(seed ^ tier))?))
    };
    let devices = vec![device(&spec.fast, 0)?, device(&spec.slow, 1)?];
    let chunk = spec.chunk.map_or(128 << 10, |size| size.0);
    let options = CreateOptions {
        volume_id: *b"simulated volume",
        chunk_bytes: u32::try_from(chunk)
            .map_err(|_| ScenarioError::Sense(format!("a chunk of {chunk} bytes is too large")))?,
        landing_bytes: spec.landing.map(|size| size.of(whole)),
        area_bytes: None,
        created_unix_s: 0,
    };
    Ok(TimedVolume::create(devices, options)?)
}
