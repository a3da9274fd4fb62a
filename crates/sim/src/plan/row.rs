//! One size, one pair of devices.

use super::shared::Crowd;
use super::words::LIFE_IN_FILLS;
use super::{PlanError, Regions, Taken};
use crate::scenario::{Phase, Scenario, run as run_scenario};
use bimetal_trace::ReuseSummary;
use serde::Serialize;
use std::path::Path;

/// A day, seconds.
const DAY_S: f64 = 86_400.0;
/// A year, days.
const YEAR_DAYS: f64 = 365.25;
/// A replay that lasts so many times as long as the trace has fallen behind it.
const BEHIND: f64 = 1.02;
/// The smallest fast tier that is run: below, what a volume needs for itself is most of it.
pub(super) const LEAST_FAST_BYTES: u64 = 64 << 20;
/// The landing zone of a volume at most, if nobody says otherwise, bytes; and one part in so many of its fast device.
const LANDING: (u64, u64) = (4 << 30, 8);

/// Below so much that is touched, bytes, the slow device is larger than that: a volume needs some of it for itself.
const LEAST_SLOW_BYTES: u64 = 48 << 20;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) fast_bytes: u64,
    pub(super) fast_model: String,
    pub(super) slow_model: String,
}

/// What a fast tier would do.
#[derive(Clone, Debug, Serialize)]
pub struct PlanRow {
    /// Its size.
    pub fast_bytes: u64,
    /// The modelled device that it is on.
    pub fast_model: String,
    /// The modelled device that the slow tier is on.
    pub slow_model: String,
    /// The share of the bytes read and written that it serves.
    pub fast_share: f64,
    /// What it would hold by least recent use, of blocks read or written: a cross-check that knows no devices.
    pub lru_share: Option<f64>,
    /// How long reads and writes take, on average.
    pub mean_us: f64,
    /// 99 of a hundred take no longer.
    pub p99_us: f64,
    /// Whether the volume keeps up with what is asked of it.
    pub keeps_up: bool,
    /// Bytes written to the fast device in a day; null where the trace has no times.
    pub wear_bytes_per_day: Option<f64>,
    /// Years until that has filled it as often as flash lasts; null where the trace has no times.
    pub lasts_years: Option<f64>,
    /// How often the slow device is woken in a day; null where the trace has no times, and of a sample, whose disk rests more.
    pub wakeups_per_day: Option<f64>,
}

/// Runs the engine on what was taken of the trace.
pub(super) fn run(
    case: &Case,
    regions: &Regions,
    taken: &Taken,
    reuse: Option<&ReuseSummary>,
) -> Result<PlanRow, PlanError> {
    let mut scenario = scenario(case, regions, taken)?;
    if !taken.arrivals.is_empty()
        && let Some(volume) = &mut scenario.volume
    {
        volume.crowd = Some(Crowd::new(taken.arrivals.clone(), taken.request_share));
    }
    let report = run_scenario(&scenario, Path::new(""), &mut |_, _| {})?;
    let replay = report.phases.last().expect("the scenario has phases");
    Ok(row(case, regions, taken, reuse, replay))
}

/// What is touched is placed in order and left alone; then the trace is replayed, with its own times where it has some.
fn scenario(case: &Case, regions: &Regions, taken: &Taken) -> Result<Scenario, PlanError> {
    let part = |bytes: u64| (bytes as f64 * taken.space_share) as u64;
    let fast_bytes = part(case.fast_bytes).next_multiple_of(1 << 20);
    let landing_bytes = part(LANDING.0.min(case.fast_bytes / LANDING.1));
    let slow = if part(regions.touched_bytes()) < LEAST_SLOW_BYTES { "64M" } else { "110% of trace" };
    let replay = match regions.lasts_ns() {
        Some(_) => "mode = \"timed\"",
        None => "mode = \"closed\", depth = 4",
    };
    let text = format!(
        r#"
        name = "plan"
        [volume]
        fast = {{ model = "{}", size = {fast_bytes} }}
        slow = {{ model = "{}", size = "{slow}" }}
        landing = {landing_bytes}
        [trace]
        files = ["trace"]
        [[phase]]
        name = "place"
        load = [{{ pattern = "sequential", block = "128K", depth = 2, span = "100% of trace" }}]
        for = "100% of trace"
        [[phase]]
        name = "settle"
        pause_seconds = 600
        [[phase]]
        name = "replay"
        replay = {{ {replay} }}
        "#,
        case.fast_model, case.slow_model
    );
    let mut scenario = Scenario::parse(&text)?;
    let names = taken.files.iter().map(|file| file.to_str().map(str::to_owned));
    let names: Option<Vec<String>> = names.collect();
    let names = names.ok_or_else(|| PlanError::Trace("a file's name is no UTF-8; rename it".to_owned()))?;
    if let Some(trace) = &mut scenario.trace {
        trace.files = names;
    }
    Ok(scenario)
}

fn row(
    case: &Case,
    regions: &Regions,
    taken: &Taken,
    reuse: Option<&ReuseSummary>,
    replay: &Phase,
) -> PlanRow {
    let seconds = regions.lasts_ns().map(|ns| ns as f64 / 1e9).filter(|seconds| *seconds > 0.0);
    let written = replay.fast_written.map_or(0.0, |written| written.bytes as f64) / taken.request_share;
    let wear = seconds.map(|seconds| written / seconds * DAY_S);
    let is_whole = taken.space_share >= 1.0;
    let wakeups = replay.wakeups.get(1).map(|slow| (slow.clients + slow.background) as f64);
    PlanRow {
        fast_bytes: case.fast_bytes,
        fast_model: case.fast_model.clone(),
        slow_model: case.slow_model.clone(),
        fast_share: replay.fast_share.unwrap_or(0.0),
        lru_share: reuse.map(|reuse| held(reuse, case.fast_bytes as f64 * taken.space_share)),
        mean_us: replay.mean_us,
        p99_us: replay.p99_us,
        keeps_up: seconds.is_none_or(|seconds| replay.seconds <= seconds * BEHIND + 1.0),
        wear_bytes_per_day: wear,
        lasts_years: wear
            .filter(|wear| *wear > 0.0)
            .map(|wear| case.fast_bytes as f64 * LIFE_IN_FILLS / wear / YEAR_DAYS),
        wakeups_per_day: wakeups
            .zip(seconds)
            .filter(|_| is_whole)
            .map(|(wakeups, seconds)| wakeups / seconds * DAY_S),
    }
}

/// The hit share of a cache of this size, between those of the sizes around it.
fn held(reuse: &ReuseSummary, bytes: f64) -> f64 {
    let (mut below, mut share) = (0.0, 0.0);
    for point in &reuse.caches {
        let at = point.cache_bytes as f64;
        if at >= bytes {
            return share + (point.hit_share - share) * ((bytes - below) / (at - below)).clamp(0.0, 1.0);
        }
        (below, share) = (at, point.hit_share);
    }
    share
}
