//! A whole run: jobs in phases, one phase after the other, on one target.

use crate::job::Job;
use crate::load::{self, Going, LoadTarget, RunError};
use crate::record::{Environment, FORMAT, JobRun, Run, VERSION};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of which the first reports of a run are; longer where it lasts longer.
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;
/// Of a session's jobs: as long as fio's samples.
const SAMPLE_INTERVAL_NS: u64 = 500_000_000;
/// A run in virtual time, or of a moment, is looked at more closely than by the second.
const SHORT_INTERVAL_NS: u64 = 100_000_000;
/// A run that is known to be shorter than this is a short one.
const SHORT_NS: u64 = 30_000_000_000;

/// What a run is called, and where it runs.
pub struct Session {
    /// In a line.
    pub title: String,
    /// The machine and the targets; those by the names that [`Session::places`] has.
    pub environment: Environment,
    /// The names of the target's places.
    pub places: Vec<String>,
    /// Where its randomness came from.
    pub seed: u64,
    /// Whether the target's clock is a simulation's.
    pub virtual_time: bool,
    /// What else is to be said.
    pub notes: Vec<String>,
}

/// How far a session has come.
pub struct Progress<'p> {
    /// The phase that is going on; the first is 0.
    pub phase: usize,
    /// Phases in all.
    pub phases: usize,
    /// Its jobs.
    pub jobs: &'p [Job],
    /// What they have done.
    pub going: &'p Going,
}

/// Runs the phases; `watch` is told how it goes four times a second, and ends the run with `false`.
///
/// # Errors
/// When a phase cannot begin.
pub fn run<T: LoadTarget>(
    target: &mut T,
    mut session: Session,
    phases: &[Vec<Job>],
    watch: &mut dyn FnMut(&Progress<'_>) -> bool,
) -> Result<Run, RunError> {
    let began_unix_ms = now_unix_ms();
    let began_ns = target.now_ns();
    let (mut ran, mut interrupted) = (Vec::new(), false);
    if phases.iter().any(|jobs| jobs.len() > 1) {
        session.notes.extend(target.shared_because());
    }
    for (phase, jobs) in phases.iter().enumerate() {
        let mut watch = |going: &Going| {
            let go_on = watch(&Progress { phase, phases: phases.len(), jobs, going });
            interrupted |= !go_on;
            go_on
        };
        ran.extend(load::run(target, jobs, &session.places, began_ns, interval_ns(jobs), &mut watch)?);
        if interrupted {
            break;
        }
    }
    Ok(finish(session, began_unix_ms, interrupted, ran))
}

/// The record of a session.
pub(crate) fn finish(session: Session, began_unix_ms: u64, interrupted: bool, jobs: Vec<JobRun>) -> Run {
    let mut notes = session.notes;
    notes.extend(jobs.iter().filter(|job| job.unanswered > 0).map(|job| {
        let seconds = load::PATIENCE_NS / 1_000_000_000;
        format!(
            "{}: {} I/Os were not answered within {seconds} s after the run was to end",
            job.name, job.unanswered
        )
    }));
    Run {
        format: FORMAT.to_owned(),
        version: VERSION,
        title: session.title,
        began_unix_ms,
        seed: session.seed,
        virtual_time: session.virtual_time,
        interrupted,
        cpu: None,
        global_options: Default::default(),
        disks: Vec::new(),
        environment: session.environment,
        jobs,
        notes,
    }
}

/// The wall clock, milliseconds since 1970.
pub(crate) fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How long intervals are to begin with.
fn interval_ns(jobs: &[Job]) -> u64 {
    let lasts = jobs.iter().map(|job| job.runtime_ns.unwrap_or(u64::MAX)).max().unwrap_or(u64::MAX);
    if lasts <= SHORT_NS { SHORT_INTERVAL_NS } else { SAMPLE_INTERVAL_NS }
}
