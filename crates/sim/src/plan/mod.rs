//! What another fast tier would bring: the engine itself, in virtual time, on what was asked of a volume.
//!
//! Of a large trace a spatial sample is taken: whole regions, on devices that are as much smaller. What is asked of the
//! other regions takes the slow device's time all the same, when it was asked for.

mod measured;
mod row;
mod sample;
mod shared;
mod words;

pub use measured::{Calibration, LEAST_ANSWERED, Measured};
pub use row::PlanRow;
pub use sample::{MAX_REGIONS, REGION_BYTES, Regions};
pub use shared::{Arrivals, Crowd};
pub use words::LIFE_IN_FILLS;

pub(crate) use shared::Shared;

use crate::scenario::ScenarioError;
use crate::side_by_side;
use bimetal_models::spec::{self, SpecError};
use bimetal_trace::{OpenError, ReuseSummary, Stat, Trace};
use row::{Case, LEAST_FAST_BYTES};
use serde::Serialize;
use std::io::{self, BufWriter};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Sizes of the fast tier that are tried, in quarters of the one that is asked about.
const QUARTERS: [u64; 5] = [1, 2, 4, 8, 16];
/// The fast tier that is asked about, where nobody says: one part in so many of what the trace touches.
const FAST_SHARE: u64 = 10;
/// Regions that a sample has at least: with fewer, hit shares were more than two points off.
const LEAST_REGIONS: f64 = 2048.0;
/// A sample of more than this saves too little to be taken.
const MOST_SAMPLED: f64 = 0.5;
/// The least that is sampled, however large a trace is.
const LEAST_SAMPLED: f64 = 0.001;

/// What is asked.
#[derive(Clone, Debug)]
pub struct PlanSpec {
    /// What it is called in the answer.
    pub source: String,
    /// The files of the trace.
    pub files: Vec<PathBuf>,
    /// Bytes of the fast tier that is asked about; a tenth of what is touched if not said.
    pub fast_bytes: Option<u64>,
    /// Models of the fast device; the first one is asked about, and the others beside it.
    pub fast_models: Vec<String>,
    /// Models of the slow device, likewise.
    pub slow_models: Vec<String>,
    /// The share of the trace that is taken; as much as is needed if not said.
    pub share: Option<f64>,
    /// What is to be known of the rest, where the files are a sample already.
    pub sampled: Option<Sampled>,
    /// What was measured in the time of that sample.
    pub measured: Option<Measured>,
}

/// What is known of a sample that somebody else has taken, and of what it was taken from.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// Its part of all regions of [`REGION_BYTES`]; 1 where it is all that was asked for.
    pub space_share: f64,
    /// Parts of requests, by region, that are in it, and that were left out.
    pub seen: u64,
    /// Those that were left out.
    pub others: u64,
    /// Who came when.
    pub arrivals: Vec<Arrivals>,
    /// How long it was listened.
    pub lasts_ns: u64,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct PlanDoc {
    /// The trace.
    pub source: String,
    /// Reads and writes in it.
    pub requests: u64,
    /// Lines of it that are no records.
    pub malformed: u64,
    /// Bytes that it touches.
    pub touched_bytes: u64,
    /// How long it is; null where it has no times.
    pub seconds: Option<f64>,
    /// The share of what it touches that was run; 1 where all of it was.
    pub sampled_share: f64,
    /// Whether means are scaled to what a served volume was measured to take.
    pub calibrated: bool,
    /// How they stand to that; null where nothing was measured.
    pub measured: Option<Calibration>,
    /// One for each size, then one for each further pair of devices.
    pub rows: Vec<PlanRow>,
    /// What that comes to.
    pub sentence: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The trace cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It cannot be read to its end, or makes no sense.
    #[error("{0}")]
    Trace(String),
    /// The sample cannot be written.
    #[error("cannot write a sample of the trace to a temporary file: {0}")]
    Write(#[from] io::Error),
    /// There is no such device.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The sample of somebody else says too little.
    #[error("{0}")]
    Sample(String),
    /// A volume cannot be made, or the trace not be replayed on it.
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
}

/// What is run, and what of it is whose part.
struct Taken {
    files: Vec<PathBuf>,
    /// Of what is touched, and of the requests.
    space_share: f64,
    request_share: f64,
    arrivals: Vec<Arrivals>,
    /// While it is there, so is the sample.
    _file: Option<tempfile::TempPath>,
}

/// Answers what other fast tiers would bring. So many threads share the runs; `progress` is told how many of how many are left.
///
/// # Errors
/// When the trace cannot be read, or no volume can be made of the devices.
pub fn plan(
    spec: &PlanSpec,
    threads: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<PlanDoc, PlanError> {
    for model in spec.fast_models.iter().chain(&spec.slow_models) {
        spec::named(model)?;
    }
    progress("reading the trace");
    let mut regions = Regions::read(spec.files.clone())?;
    let (mut touched_bytes, mut requests) = (regions.touched_bytes(), regions.requests());
    if let Some(sampled) = &spec.sampled {
        regions.lasts_at_least(sampled.lasts_ns);
        touched_bytes = (touched_bytes as f64 / sampled.space_share) as u64;
        requests = sampled.seen + sampled.others;
    }
    let fast_bytes = spec
        .fast_bytes
        .unwrap_or((touched_bytes / FAST_SHARE).max(LEAST_FAST_BYTES * 4))
        .next_multiple_of(1 << 20);
    let taken = match spec.sampled.as_ref().filter(|sampled| sampled.space_share < 1.0) {
        Some(sampled) => as_it_is(&regions, sampled, fast_bytes)?,
        None => take(&regions, spec.share, fast_bytes)?,
    };
    let reuse = reuse(&taken.files)?;
    let mut cases = cases(spec, fast_bytes);
    let asked = cases.len();
    let present = spec.measured.map(|measured| {
        let fits = measured.fit(requests, taken.space_share);
        fits.map(|()| place_of(measured.fast_bytes, &mut cases))
    });
    let shown =
        |case: &Case| format!("{} of {}", bimetal_models::size::show(case.fast_bytes), case.fast_model);
    let run = |case: &Case| row::run(case, &regions, &taken, reuse.as_ref());
    let mut rows = side_by_side(&cases, threads, |case| progress(&shown(case)), run)?;
    let present = present.map(|place| place.map(|place| rows[place].clone()));
    rows.truncate(asked);
    let measured = spec
        .measured
        .zip(present)
        .map(|(measured, present)| measured.scale(&mut rows, QUARTERS.len(), present));
    let sentence = words::sentence(&rows[..QUARTERS.len()]);
    Ok(PlanDoc {
        source: spec.source.clone(),
        requests,
        malformed: regions.malformed(),
        touched_bytes,
        seconds: regions.lasts_ns().map(|ns| ns as f64 / 1e9),
        sampled_share: taken.space_share,
        calibrated: measured.as_ref().is_some_and(|measured| measured.factor.is_some()),
        measured,
        rows,
        sentence,
    })
}

/// All sizes with the first devices, then the size that is asked about with each other pair.
fn cases(spec: &PlanSpec, fast_bytes: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, slow_model) in spec.slow_models.iter().enumerate() {
        for (other, fast_model) in spec.fast_models.iter().enumerate() {
            let case = |fast_bytes: u64| Case {
                fast_bytes,
                fast_model: fast_model.clone(),
                slow_model: slow_model.clone(),
            };
            match number + other {
                0 => cases.extend(QUARTERS.map(|quarters| case(fast_bytes / 4 * quarters))),
                _ => cases.push(case(fast_bytes)),
            }
        }
    }
    cases
}

/// The place of the case with the first devices and this size, which is added where nobody asked about it.
fn place_of(fast_bytes: u64, cases: &mut Vec<Case>) -> usize {
    let case = Case { fast_bytes: fast_bytes.next_multiple_of(1 << 20), ..cases[0].clone() };
    cases.iter().position(|other| *other == case).unwrap_or_else(|| {
        cases.push(case);
        cases.len() - 1
    })
}

/// The whole trace, or a sample of it.
fn take(regions: &Regions, asked: Option<f64>, fast_bytes: u64) -> Result<Taken, PlanError> {
    let needed = LEAST_REGIONS / regions.count() as f64;
    let needed = needed.max((LEAST_FAST_BYTES * 4) as f64 / fast_bytes as f64).max(LEAST_SAMPLED);
    let share = asked.unwrap_or(if needed > MOST_SAMPLED { 1.0 } else { needed });
    if share >= 1.0 {
        let files = regions.files().to_vec();
        return Ok(Taken { files, space_share: 1.0, request_share: 1.0, arrivals: Vec::new(), _file: None });
    }
    let choice = regions.choose(share);
    if choice.request_share == 0.0 {
        return Err(PlanError::Trace(format!(
            "a share of {share} of {} regions leaves nothing; take a larger one",
            regions.count()
        )));
    }
    let file = tempfile::NamedTempFile::new()?;
    let arrivals = regions.write(&choice, BufWriter::new(file.as_file()))?;
    let path = file.into_temp_path();
    Ok(Taken {
        files: vec![path.to_path_buf()],
        space_share: choice.space_share,
        request_share: choice.request_share,
        arrivals,
        _file: Some(path),
    })
}

/// A sample that somebody else has taken.
fn as_it_is(regions: &Regions, sampled: &Sampled, fast_bytes: u64) -> Result<Taken, PlanError> {
    let least = (LEAST_FAST_BYTES * 4) as f64 / sampled.space_share;
    if (fast_bytes as f64) < least {
        let show = |bytes: f64| bimetal_models::size::show((bytes as u64).next_multiple_of(1 << 20));
        return Err(PlanError::Sample(format!(
            "one part in {:.0} was noted of what it is asked for, which says too little of a fast tier of {}; ask about {} or more",
            1.0 / sampled.space_share,
            show(fast_bytes as f64),
            show(least)
        )));
    }
    Ok(Taken {
        files: regions.files().to_vec(),
        space_share: sampled.space_share,
        request_share: sampled.seen as f64 / (sampled.seen + sampled.others).max(1) as f64,
        arrivals: sampled.arrivals.clone(),
        _file: None,
    })
}

/// How soon blocks are used again.
fn reuse(files: &[PathBuf]) -> Result<Option<ReuseSummary>, PlanError> {
    let (mut trace, mut stat) = (Trace::open(files)?, Stat::default());
    trace.by_ref().for_each(|found| stat.add(&found));
    Ok(stat.summary(&trace).reuse)
}

#[cfg(test)]
mod tests;
