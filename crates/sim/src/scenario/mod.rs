//! Scenarios: a volume or a device, what is done to it, and what is expected of it, in one TOML file.
//!
//! ```toml
//! name = "a first look"
//!
//! [volume]
//! fast = { model = "ssd-128gb-2012", size = "8G" }
//! slow = { model = "disk-1tb-2012" }
//!
//! [[phase]]
//! name = "fill"
//! load = [{ pattern = "sequential", block = "1M", span = "50%" }]
//! for = "50%"
//!
//! [[phase]]
//! name = "rest"
//! pause_seconds = 60
//!
//! [[expect]]
//! phase = "fill"
//! metric = "mb_per_s"
//! at_least = 100
//! ```

mod report;
mod run;

pub use report::{Device, Expectation, Phase, Report};
pub use run::{Progress, run};

use bimetal_models::load::Pattern;
use bimetal_models::size;
use bimetal_models::spec::{self, Spec, SpecError};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// Bytes of a scenario file at most: far more than people write.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Phases, expectations, and loads of a phase at most.
pub const MAX_ENTRIES: usize = 1000;
/// Commands in flight of all loads of a phase at most; what the engine does not take at once waits before it.
pub const MAX_DEPTH: u32 = 4096;
/// The longest phase, seconds: ten years.
pub const MAX_SECONDS: f64 = 315_360_000.0;
/// The largest block of a load: the largest request of the engine.
const MAX_BLOCK_BYTES: u64 = bimetal_engine::action::MAX_PAYLOAD_BYTES;

/// A scenario, as its file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is about, for people.
    #[serde(default)]
    pub about: String,
    /// Where random choices begin.
    #[serde(default = "one")]
    pub seed: u64,
    /// A volume to load ...
    pub volume: Option<VolumeSpec>,
    /// ... or one device alone.
    pub device: Option<DeviceSpec>,
    /// What is done, in order.
    #[serde(rename = "phase")]
    pub phases: Vec<PhaseSpec>,
    /// What is expected.
    #[serde(default, rename = "expect")]
    pub expectations: Vec<ExpectSpec>,
}

/// The devices and the layout of a volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// The fast tier.
    pub fast: DeviceSpec,
    /// The slow tier.
    pub slow: DeviceSpec,
    /// Bytes of a chunk.
    pub chunk: Option<Size>,
    /// Bytes of the landing zone.
    pub landing: Option<Size>,
}

/// A modelled device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// The name of a model.
    pub model: String,
    /// Bytes that it holds, everything else in proportion; as the model has by itself if not given.
    pub size: Option<Size>,
}

/// One phase: loads side by side, or a pause, or an end of the process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Its name; each is told from the others by it.
    pub name: String,
    /// What is asked for, side by side.
    #[serde(default)]
    pub load: Vec<LoadSpec>,
    /// How many bytes the loads transfer together: a size, or a share of the target such as "50%".
    #[serde(rename = "for")]
    pub bytes: Option<Extent>,
    /// Or how long they go on.
    pub seconds: Option<f64>,
    /// Asks for nothing for so long.
    pub pause_seconds: Option<f64>,
    /// Gives a range back: all that a load with this span would reach.
    pub discard: Option<Extent>,
    /// The process ends and the volume is opened again.
    pub reopen: Option<Reopen>,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reopen {
    /// The volume is closed.
    Close,
    /// The process is killed: the devices keep what they were given.
    Kill,
}

/// A closed loop.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// In which order.
    #[serde(deserialize_with = "pattern")]
    pub pattern: Pattern,
    /// How many of a hundred commands are reads.
    #[serde(default)]
    pub read_percent: u64,
    /// Bytes of a command.
    pub block: Size,
    /// Commands in flight.
    #[serde(default = "one")]
    pub depth: u32,
    /// Where the span begins.
    #[serde(default)]
    pub from: Extent,
    /// What is asked for; to the end of the target if not given.
    pub span: Option<Extent>,
}

/// What is expected of a phase.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectSpec {
    /// The phase.
    pub phase: String,
    /// A figure of it, as the report names it.
    pub metric: String,
    /// The least that is expected.
    pub at_least: Option<f64>,
    /// The most.
    pub at_most: Option<f64>,
}

/// Bytes: a number, or as people write it ("128K").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Bytes, or a share of the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many parts of a hundred.
    Percent(f64),
}

impl Default for Extent {
    fn default() -> Extent {
        Extent::Bytes(0)
    }
}

impl Extent {
    /// Bytes of a target of this size.
    pub fn of(self, size_bytes: u64) -> u64 {
        match self {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => (size_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file is not what a scenario is.
    #[error("not a scenario: {0}")]
    Syntax(String),
    /// Something in it makes no sense.
    #[error("{0}")]
    Sense(String),
    /// A device cannot be made.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The volume cannot be made.
    #[error(transparent)]
    Volume(#[from] crate::timed::volume::VolumeError),
}

impl Scenario {
    /// Reads a scenario and checks what can be checked before it runs.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text)
            .map_err(|error| ScenarioError::Syntax(error.to_string().trim().to_owned()))?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |what: String| Err(ScenarioError::Sense(what));
        if self.volume.is_some() == self.device.is_some() {
            return wrong("a scenario has either a [volume] or a [device]".into());
        }
        if self.phases.len() > MAX_ENTRIES || self.expectations.len() > MAX_ENTRIES {
            return wrong(format!("more than {MAX_ENTRIES} phases or expectations"));
        }
        for (place, phase) in self.phases.iter().enumerate() {
            if self.phases[..place].iter().any(|other| other.name == phase.name) {
                return wrong(format!("two phases are called {:?}", phase.name));
            }
            if let Err(what) = phase.check(self.volume.is_some()) {
                return wrong(format!("phase {:?}: {what}", phase.name));
            }
        }
        for expect in &self.expectations {
            if !self.phases.iter().any(|phase| phase.name == expect.phase) {
                return wrong(format!(
                    "no phase is called {:?}, of which something is expected",
                    expect.phase
                ));
            }
            if !report::METRICS.contains(&expect.metric.as_str()) {
                return wrong(format!(
                    "no figure is called {:?}; there are {}",
                    expect.metric,
                    report::METRICS.join(", ")
                ));
            }
            if expect.at_least.is_none() && expect.at_most.is_none() {
                return wrong(format!("of {:?}, neither at_least nor at_most is said", expect.phase));
            }
        }
        Ok(())
    }
}

impl PhaseSpec {
    fn check(&self, on_volume: bool) -> Result<(), String> {
        let kinds = [
            !self.load.is_empty(),
            self.pause_seconds.is_some(),
            self.discard.is_some(),
            self.reopen.is_some(),
        ];
        if kinds.iter().filter(|&&kind| kind).count() != 1 {
            return Err("it has one of load, pause_seconds, discard and reopen".into());
        }
        let ends = [self.bytes.is_some(), self.seconds.is_some()].iter().filter(|&&end| end).count();
        if ends != usize::from(!self.load.is_empty()) {
            return Err("a load ends with either `for` or `seconds`, and nothing else has one".into());
        }
        for seconds in [self.seconds, self.pause_seconds].into_iter().flatten() {
            if !(seconds > 0.0 && seconds <= MAX_SECONDS) {
                return Err(format!("{seconds} is not a number of seconds from above 0 to {MAX_SECONDS}"));
            }
        }
        if self.reopen.is_some() && !on_volume {
            return Err("only a volume can be opened again".into());
        }
        if self.load.len() > MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} loads"));
        }
        let depth: u64 = self.load.iter().map(|load| u64::from(load.depth)).sum();
        if depth > u64::from(MAX_DEPTH) || self.load.iter().any(|load| load.depth == 0) {
            return Err(format!("its loads have from 1 to {MAX_DEPTH} commands in flight together"));
        }
        for load in &self.load {
            let block = load.block.0;
            if !(512..=MAX_BLOCK_BYTES).contains(&block) || !block.is_multiple_of(512) {
                return Err(format!(
                    "a block of {block} bytes is not whole sectors of 512 up to {MAX_BLOCK_BYTES}"
                ));
            }
            if load.read_percent > 100 {
                return Err(format!("{} of a hundred commands cannot be reads", load.read_percent));
            }
        }
        Ok(())
    }
}

impl DeviceSpec {
    /// The model's parameters.
    pub fn spec(&self) -> Result<Spec, SpecError> {
        let spec = spec::named(&self.model)?;
        Ok(match self.size {
            Some(size) => spec.resized(size.0),
            None => spec,
        })
    }
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn pattern<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pattern, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "random" => Ok(Pattern::Random),
        "sequential" => Ok(Pattern::Sequential),
        other => Err(de::Error::unknown_variant(other, &["random", "sequential"])),
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        match deserializer.deserialize_any(ExtentVisitor)? {
            Extent::Bytes(bytes) => Ok(Size(bytes)),
            Extent::Percent(_) => Err(de::Error::custom("a share has no meaning here; write a size")),
        }
    }
}

impl<'de> Deserialize<'de> for Extent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Extent, D::Error> {
        deserializer.deserialize_any(ExtentVisitor)
    }
}

struct ExtentVisitor;

impl Visitor<'_> for ExtentVisitor {
    type Value = Extent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes, a size such as \"128K\", or a share such as \"50%\"")
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Extent, E> {
        u64::try_from(bytes)
            .map(Extent::Bytes)
            .map_err(|_| E::custom(format!("{bytes} bytes are fewer than none")))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Extent, E> {
        let Some(percent) = text.strip_suffix('%') else {
            return size::parse(text).map(Extent::Bytes).map_err(E::custom);
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Extent::Percent(percent)),
            _ => Err(E::custom(format!("{text:?} is not a share from 0% to 100%"))),
        }
    }
}
