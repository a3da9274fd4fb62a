//! A trace on any target, and how true the replay was.

use crate::job::{Job, Sizes};
use crate::load::{self, Going, Granule, LoadTarget, RunError};
use crate::record::{JobRun, Side};
use crate::session::{Session, finish, now_unix_ms};
use bimetal_load::Source;
use bimetal_sim::scenario::{Mode, Replay, ReplaySpec, Replayed, ScenarioError, Survey, Whole};
use serde::Serialize;

/// The largest I/O of a replay: longer requests are split, as the simulator does.
const MOST_BYTES: u64 = 32 << 20;

/// Why a trace is not replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace, or how it is to be replayed.
    #[error(transparent)]
    Trace(#[from] ScenarioError),
    /// The target.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It asks for what the target cannot do.
    #[error(
        "{count} of {records} records are no multiples of {} bytes (the first: {} bytes at byte {}), and the target takes \
         nothing else, as {}; {}",
        granule.bytes, first.1, first.0, granule.why, granule.cure
    )]
    Odd {
        /// Records that are not.
        count: u64,
        /// Of so many.
        records: u64,
        /// Offset and length of the first.
        first: (u64, u64),
        /// What they should be multiples of.
        granule: Granule,
    },
}

/// How true a replay was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fidelity {
    /// As the command line says it.
    pub mode: String,
    /// What became of the records.
    pub records: u64,
    /// Lines that are none.
    pub malformed: u64,
    /// Records that were not done: beyond the target, or discards of what nothing touches.
    pub left_out: u64,
    /// Records that became several I/Os.
    pub split: u64,
    /// Records that stood behind one of a later time, and were put where they belong, ...
    pub out_of_order: u64,
    /// ... but for these, which stood too far behind: they are begun where they stand.
    pub unsorted: u64,
    /// How long it took when it was recorded, and now.
    pub recorded_seconds: Option<f64>,
    /// How long the replay took.
    pub seconds: f64,
    /// I/Os that had a time.
    pub timed: u64,
    /// How much later these were begun than they were meant to be, on average.
    pub late_mean_us: f64,
    /// And at most.
    pub late_max_us: f64,
    /// The share of timed I/Os that were late at all.
    pub late_share: f64,
    /// Requests in flight, on average, when it was recorded; where the trace tells.
    pub recorded_mean_depth: Option<f64>,
    /// And now.
    pub mean_depth: f64,
    /// The share of requests that waited for another one: in dependency order only.
    pub dependent_share: Option<f64>,
}

/// Replays a trace that was surveyed on one place of a target; what came of it, and how true it was.
///
/// # Errors
/// When it does not fit, or cannot be replayed so.
pub fn run<T: LoadTarget>(
    target: &mut T,
    session: Session,
    survey: &Survey,
    spec: &ReplaySpec,
    target_bytes: u64,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<(crate::record::Run, Fidelity), ReplayError> {
    let whole = Whole { target_bytes, trace_bytes: survey.bytes() };
    if let Some(granule) = target.granule(0)
        && let Some((count, first)) = survey.odd(granule.bytes)
    {
        return Err(ReplayError::Odd { count, records: survey.records(), first, granule });
    }
    let job = job(&session.title, spec, survey, target_bytes);
    let began = (now_unix_ms(), target.now_ns());
    let records = survey.records().max(1) as f64;
    let mut interrupted = false;
    let mut go = |target: &mut T, source: &mut dyn Source| {
        let mut watch = |going: &Going| {
            let done: u64 = going.done.iter().flatten().map(|side| side.0).sum();
            let go_on = watch((done as f64 / records).min(1.0));
            interrupted |= !go_on;
            go_on
        };
        let times = (began.1, crate::session::INTERVAL_NS);
        load::run_sources(
            target,
            std::slice::from_ref(&job),
            vec![source],
            &session.places,
            times,
            &mut watch,
        )
    };
    let (ran, counts, dependent_share) = match spec.mode {
        Mode::Dependent => {
            let mut source = Replay::dependent(spec, survey, whole)?;
            let ran = go(target, &mut source)?;
            let tally = source.tally();
            let share = tally.dependent as f64 / tally.requests.max(1) as f64;
            (ran, source.replay().counts(), Some(share))
        }
        Mode::Queued => {
            let mut source = Replay::queued(spec, survey, whole)?;
            let ran = go(target, &mut source)?;
            (ran, source.replay().counts(), None)
        }
        Mode::Timed | Mode::Closed => {
            let mut source = Replay::new(spec, survey, whole)?;
            let ran = go(target, &mut source)?;
            (ran, source.counts(), None)
        }
    };
    let fidelity = fidelity(&ran[0], spec, survey, counts, dependent_share);
    Ok((finish(session, began.0, interrupted, ran), fidelity))
}

/// What the meter and the target are told of a replay.
fn job(title: &str, spec: &ReplaySpec, survey: &Survey, target_bytes: u64) -> Job {
    let mut job = Job::new(title, 0..target_bytes);
    job.depth = spec.depth();
    job.sizes = std::array::from_fn(|_| Sizes::one(survey.longest_bytes().clamp(512, MOST_BYTES)));
    job.ops = crate::job::Ops::ReadWrite { read_percent: 50 };
    // Lateness is of interest: the source has times.
    job.is_paced = spec.mode != Mode::Closed;
    job
}

fn fidelity(
    ran: &JobRun,
    spec: &ReplaySpec,
    survey: &Survey,
    counts: Replayed,
    dependent_share: Option<f64>,
) -> Fidelity {
    let seconds = ran.elapsed_ns as f64 / 1e9;
    let busy = |side: &Side| side.service.mean_ns * side.service.count as f64;
    let busy: f64 = [&ran.read, &ran.write, &ran.discard, &ran.flush].into_iter().map(busy).sum();
    let timed = ran.late.timed.max(1) as f64;
    Fidelity {
        mode: match spec.mode {
            Mode::Timed => "timed",
            Mode::Closed => "closed",
            Mode::Dependent => "dependent",
            Mode::Queued => "queued",
        }
        .to_owned(),
        records: counts.records,
        malformed: counts.malformed,
        left_out: counts.left_out,
        split: counts.split,
        out_of_order: survey.out_of_order(),
        unsorted: survey.unsorted(),
        recorded_seconds: survey.timed().then(|| survey.lasts_ns() as f64 / 1e9),
        seconds,
        timed: ran.late.timed,
        late_mean_us: ran.late.total_ns as f64 / 1e3 / timed,
        late_max_us: ran.late.max_ns as f64 / 1e3,
        late_share: ran.late.count as f64 / timed,
        recorded_mean_depth: survey.mean_depth(),
        mean_depth: busy / ran.elapsed_ns.max(1) as f64,
        dependent_share,
    }
}
