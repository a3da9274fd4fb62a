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

mod claim;
mod dependent;
mod extent;
mod figures;
mod files;
mod matrix;
mod phase;
mod queued;
mod replay;
mod report;
mod run;
mod series;
mod summary;
mod survey;
pub mod sweep;
mod table;
mod target;
pub mod tuning;

pub use claim::{Against, ClaimSpec, ExpectSpec, Rival, SummarySpec};
pub use dependent::Dependent;
pub use extent::{Extent, Size, Whole};
pub use files::Files;
pub use matrix::{Combination, MAX_AXES};
pub use phase::{FilesSpec, LoadSpec, Map, Mode, Order, PhaseSpec, Reopen, ReplaySpec};
pub use queued::Queued;
pub use replay::Replay;
pub use report::{
    Device, Expectation, FastWritten, Late, Load, Phase, Replayed, Report, Responses, SetTo, Wakes, WrittenBy,
};
pub use run::{Progress, run};
pub use summary::{MOST_TIMES, Summary, Worst, summaries};
pub use survey::{MAX_GRAINS, Survey};
pub use table::{FORESIGHTS, Row, TableProgress, needed, rows};
pub use target::{Moved, Target};
pub use tuning::TuningSpec;

pub use crate::peers::Policy;
use crate::plan::Crowd;
use bimetal_models::Model;
use bimetal_models::spec::{self, SpecError};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of a scenario file at most: far more than people write.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Phases, expectations, and loads of a phase at most.
pub const MAX_ENTRIES: usize = 1000;
/// Commands in flight of all loads of a phase at most; what the engine does not take at once waits before it.
pub const MAX_DEPTH: u32 = 4096;
/// Files of a phase at most.
pub const MAX_FILES: u64 = 1_000_000;
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
    /// A trace that phases replay, and that sizes may be shares of.
    pub trace: Option<TraceSpec>,
    /// What placement of our engine weighs otherwise than by default. The other policies know nothing of it.
    #[serde(default)]
    pub tuning: TuningSpec,
    /// What is done, in order.
    #[serde(rename = "phase")]
    pub phases: Vec<PhaseSpec>,
    /// What is expected.
    #[serde(default, rename = "expect")]
    pub expectations: Vec<ExpectSpec>,
    /// What is compared with other policies, and with what was measured elsewhere.
    #[serde(default, rename = "claim")]
    pub claims: Vec<ClaimSpec>,
    /// What claims come to over all values of an axis.
    #[serde(default, rename = "summary")]
    pub summaries: Vec<SummarySpec>,
    /// Which one of its file it is, where that has axes.
    #[serde(skip)]
    pub combination: Combination,
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
    pub landing: Option<Extent>,
    /// Bytes in a day that our engine may write to the fast tier of its own accord; no limit if not given. The other
    /// policies know none.
    pub wear_budget: Option<Size>,
    /// Our volume has an image on its slow device that is so many seconds old at most; none if not given. The other policies
    /// have none.
    pub protect_seconds: Option<u32>,
    /// What decides where data lies: our engine, or what else can be had.
    #[serde(default)]
    pub policy: Policy,
    /// Under [`Policy::Clairvoyant`], the share of a replay that is known ahead: above 0, up to 1.
    #[serde(default = "foresight")]
    pub foresight: f64,
    /// Who else uses the devices while a sample of a trace is replayed.
    #[serde(skip)]
    pub crowd: Option<Arc<Crowd>>,
}

impl VolumeSpec {
    /// The share of a replay that placement knows ahead, if any.
    fn in_sight(&self) -> Option<f64> {
        (self.policy == Policy::Clairvoyant).then_some(self.foresight)
    }
}

/// A block trace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// Its files, merged by time. A relative path begins at the scenario's folder; one that begins with `$NAME/` at the
    /// folder that this environment variable names.
    pub files: Vec<String>,
    /// So many records, from the beginning; all if not given.
    pub first: Option<u64>,
    /// What the trace touches is counted, and mapped, in pieces of so many bytes: a power of two from 4 KiB to 1 GiB.
    #[serde(default = "grain")]
    pub grain: Size,
}

/// A modelled device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// The name of a model.
    pub model: String,
    /// Bytes that it holds, everything else in proportion; as the model has by itself if not given. A share of the
    /// trace is rounded up to whole MiB.
    pub size: Option<Extent>,
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
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] bimetal_trace::OpenError),
}

impl Scenario {
    /// Reads the one scenario of a file and checks what can be checked before it runs.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let mut all = Scenario::parse_all(text)?;
        match (all.pop(), all.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => Err(ScenarioError::Sense(format!("{} scenarios are in one file with axes", all.len() + 1))),
        }
    }

    /// Reads all scenarios of a file: one, or one for each combination of the values of its axes.
    pub fn parse_all(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
        let syntax = |error: toml::de::Error| ScenarioError::Syntax(error.to_string().trim().to_owned());
        let file: toml::Table = toml::from_str(text).map_err(syntax)?;
        if !matrix::has_axes(&file) {
            // From the text, so that an error can show the line.
            let scenario: Scenario = toml::from_str(text).map_err(syntax)?;
            scenario.check()?;
            return Ok(vec![scenario]);
        }
        let mut all = Vec::new();
        let mut names = BTreeSet::new();
        for (combination, table) in matrix::expand(file).map_err(ScenarioError::Sense)? {
            let of = |what: String| ScenarioError::Sense(format!("{}: {what}", matrix::show(&combination)));
            let mut scenario: Scenario = table.try_into().map_err(|error| of(syntax(error).to_string()))?;
            scenario.combination = combination.clone();
            scenario.check().map_err(|error| of(error.to_string()))?;
            if !names.insert(scenario.name.clone()) {
                return Err(of(format!(
                    "another one is called {:?}, too; put all axes into the name",
                    scenario.name
                )));
            }
            all.push(scenario);
        }
        let nowhere = |summary: &&SummarySpec| {
            summary.at_least.is_some() && !all.iter().any(|one| summary.claims_at(&one.combination))
        };
        match all.iter().flat_map(|one| &one.summaries).find(nowhere) {
            Some(summary) => Err(ScenarioError::Sense(format!(
                "summary {:?}: no combination of the axes is where it is claimed",
                summary.id
            ))),
            None => Ok(all),
        }
    }

    /// The environment variable that names the folder of a file of the trace, but is not set.
    pub fn missing_variable(&self) -> Option<&str> {
        self.trace.iter().flat_map(|trace| &trace.files).find_map(|file| survey::missing_variable(file))
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |what: String| Err(ScenarioError::Sense(what));
        if self.volume.is_some() == self.device.is_some() {
            return wrong("a scenario has either a [volume] or a [device]".into());
        }
        if self.volume.as_ref().is_some_and(|volume| !(volume.foresight > 0.0 && volume.foresight <= 1.0)) {
            return wrong("foresight is a share above 0 and up to 1".into());
        }
        if self.device.is_some() && !self.tuning.is_empty() {
            return wrong("[tuning] is for a [volume]: a device alone places nothing".into());
        }
        self.tuning.check().map_err(ScenarioError::Sense)?;
        if self.phases.len() > MAX_ENTRIES || self.expectations.len() > MAX_ENTRIES {
            return wrong(format!("more than {MAX_ENTRIES} phases or expectations"));
        }
        claim::check_ids("claims", self.claims.iter().map(|claim| claim.id.as_str()))
            .and_then(|()| {
                claim::check_ids("summaries", self.summaries.iter().map(|summary| summary.id.as_str()))
            })
            .map_err(ScenarioError::Sense)?;
        let mut rows = BTreeSet::new();
        for phase in &self.phases {
            if let Err(what) = phase.check(self.volume.is_some()) {
                return wrong(format!("phase {:?}: {what}", phase.name));
            }
            if let Some(row) = phase.rows().find(|row| !rows.insert(row.clone())) {
                return wrong(format!("two phases are called {row:?}"));
            }
            if rows.len() > MAX_ENTRIES {
                return wrong(format!("all passes of all phases are more than {MAX_ENTRIES}"));
            }
        }
        self.check_trace().map_err(ScenarioError::Sense)?;
        self.expectations.iter().try_for_each(|expect| expect.check(&rows)).map_err(ScenarioError::Sense)?;
        self.claims.iter().try_for_each(|claim| claim.check(&rows)).map_err(ScenarioError::Sense)?;
        self.summaries
            .iter()
            .try_for_each(|summary| summary.check(&self.claims, &self.combination))
            .map_err(ScenarioError::Sense)
    }

    fn check_trace(&self) -> Result<(), String> {
        let volume =
            self.volume.iter().flat_map(|volume| [volume.fast.size, volume.slow.size, volume.landing]);
        let sizes = volume.chain(self.device.iter().map(|device| device.size)).flatten();
        if sizes.clone().any(|size| matches!(size, Extent::Percent(_))) {
            return Err(
                "a device or a landing zone is no share of the target; write a size, or a share of the trace"
                    .into(),
            );
        }
        if let Some(trace) = &self.trace {
            return trace.check();
        }
        if sizes
            .chain(self.phases.iter().flat_map(PhaseSpec::extents))
            .any(|size| matches!(size, Extent::OfTrace(_)))
        {
            return Err("a size is a share of the trace, but there is no [trace]".into());
        }
        match self.phases.iter().find(|phase| phase.replay.is_some()) {
            Some(phase) => Err(format!("phase {:?} replays a trace, but there is no [trace]", phase.name)),
            None => Ok(()),
        }
    }
}

impl TraceSpec {
    /// All records of these files, in pieces of the usual size.
    pub fn new(files: Vec<String>) -> TraceSpec {
        TraceSpec { files, first: None, grain: grain() }
    }

    fn check(&self) -> Result<(), String> {
        let grain = self.grain.0;
        if !grain.is_power_of_two() || !(4 << 10..=1 << 30).contains(&grain) {
            return Err(format!("a grain of {grain} bytes is not a power of two from 4K to 1G"));
        }
        if self.first == Some(0) {
            return Err("[trace] first = 0 leaves nothing of the trace".into());
        }
        match self.files.len() {
            0 => Err("[trace] names no files".into()),
            files if files > bimetal_trace::MAX_FILES => {
                Err(format!("[trace] names more than {} files", bimetal_trace::MAX_FILES))
            }
            _ => Ok(()),
        }
    }
}

impl DeviceSpec {
    /// A fresh device of this model and size.
    fn build(&self, whole: Whole, seed: u64) -> Result<Box<dyn Model>, ScenarioError> {
        let spec = spec::named(&self.model)?;
        let Some(size) = self.size else { return Ok(spec.build(seed)?) };
        let bytes = match size {
            Extent::OfTrace(_) => size.of(whole).next_multiple_of(1 << 20),
            _ => size.of(whole),
        };
        self.build_with(bytes, seed)
    }

    /// A fresh device of this model, of so many bytes.
    fn build_with(&self, bytes: u64, seed: u64) -> Result<Box<dyn Model>, ScenarioError> {
        spec::named(&self.model)?.resized(bytes).build(seed).map_err(|error| {
            ScenarioError::Sense(format!("no {:?} can be made of {bytes} bytes: {error}", self.model))
        })
    }
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn foresight() -> f64 {
    1.0 / 16.0
}

fn grain() -> Size {
    Size(128 << 10)
}
