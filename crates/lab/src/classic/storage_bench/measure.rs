//! Puts a target into a state, and replays the trace on it.

use super::figures::Figures;
use crate::job::Job;
use crate::load::{self, Going, LoadTarget, RunError};
use crate::record::Run;
use crate::replay::{self, Fidelity, ReplayError};
use crate::session::{INTERVAL_NS, Session};
use bimetal_sim::scenario::{Extent, Map, Mode, ReplaySpec, Survey};
use serde::Serialize;
use std::fmt;

/// What Storage Bench keeps of idle time between two operations.
pub const IDLE_AT_MOST_NS: u64 = 25_000_000;
/// What a target is filled with at a time, and how many of these are in flight: as files are copied.
const WRITE_BYTES: u64 = 1 << 20;
const WRITE_DEPTH: u32 = 2;

/// What a target holds when the trace begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Only what the trace is going to touch.
    Empty,
    /// It was written from its start to its end.
    Full,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Empty => "empty",
            State::Full => "full",
        })
    }
}

/// How it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the target holds.
    pub state: State,
    /// What is kept of idle time between two operations, nanoseconds; none: all of it.
    pub idle_at_most_ns: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The record.
    pub run: Run,
    /// How true the replay was.
    pub fidelity: Fidelity,
    /// What Storage Bench says of it.
    pub figures: Figures,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The trace does not fit.
    #[error(
        "the trace touches {needed} bytes, and the target has {room}; take a larger target, or a part of the trace \
         with --scale"
    )]
    Room {
        /// Bytes that the trace touches.
        needed: u64,
        /// Bytes that the target has.
        room: u64,
    },
    /// The target cannot be put into its state.
    #[error("the target cannot be {0}: {1}")]
    Prepare(&'static str, String),
    /// Somebody had it end before the trace began.
    #[error("ended before the trace began; nothing was measured on it")]
    Stopped,
    /// The target.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The replay.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Who is told how it goes: what is being done, and how much of that is done. On `false` it ends.
pub type Watch<'w> = &'w mut dyn FnMut(&str, f64) -> bool;

/// Gives a target's space back, writes what its state is to be, and replays the trace in the middle of it: of a disk the
/// middle is neither its fast nor its slow end, and of a hybrid that was filled in order it is not what came first to the
/// fast tier.
///
/// # Errors
/// When the trace does not fit, the target fails before it begins, or it was ended by then.
pub fn measure<T: LoadTarget>(
    target: &mut T,
    mut session: Session,
    survey: &Survey,
    plan: Plan,
    target_bytes: u64,
    watch: Watch<'_>,
) -> Result<Measured, BenchError> {
    let room = target_bytes / WRITE_BYTES * WRITE_BYTES;
    let needed = survey.bytes();
    if needed > room {
        return Err(BenchError::Room { needed, room });
    }
    let from = (room - needed) / 2 / WRITE_BYTES * WRITE_BYTES;
    match prepare(target, "emptied", Job::give_back("discard", room), &session, watch) {
        Err(BenchError::Prepare(what, why)) => {
            session
                .notes
                .push(format!("{}: it cannot be {what} ({why}): it keeps what it held", session.title));
        }
        done => done?,
    }
    let (what, span) = match plan.state {
        State::Empty => {
            ("given the trace's data", from..(from + needed).next_multiple_of(WRITE_BYTES).min(room))
        }
        State::Full => ("filled", 0..room),
    };
    let fill = Job { depth: WRITE_DEPTH, ..Job::writes_in_order("fill", span, WRITE_BYTES) };
    prepare(target, what, fill, &session, watch)?;
    let spec = ReplaySpec {
        mode: Mode::Queued,
        depth: None,
        speed: None,
        idle_at_most_seconds: plan.idle_at_most_ns.map(|ns| ns as f64 / 1e9),
        map: Map::Compact,
        from: Extent::Bytes(from),
    };
    let (run, fidelity) =
        replay::run(target, session, survey, &spec, target_bytes, &mut |share| watch("replaying", share))?;
    let figures = run.jobs.first().map(|ran| Figures::new(ran, run.virtual_time)).unwrap_or_default();
    Ok(Measured { run, fidelity, figures })
}

/// Runs a job that does not count.
fn prepare<T: LoadTarget>(
    target: &mut T,
    what: &'static str,
    job: Job,
    session: &Session,
    watch: Watch<'_>,
) -> Result<(), BenchError> {
    let mut goes_on = true;
    let began_ns = target.now_ns();
    let ran = load::run(target, &[job], &session.places, began_ns, INTERVAL_NS, &mut |going: &Going| {
        goes_on &= watch(what, going.share);
        goes_on
    })?;
    if !goes_on {
        return Err(BenchError::Stopped);
    }
    match ran.iter().flat_map(|ran| &ran.errors).next() {
        Some((error, _)) => Err(BenchError::Prepare(what, error.clone())),
        None => Ok(()),
    }
}
