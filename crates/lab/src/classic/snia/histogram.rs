//! The latency test's last part: how long each of many responses takes, once the device is steady.

use super::loads::{MIXES_OF_LATENCY, RANDOM_WRITE, name};
use super::run::SniaPlan;
use crate::classic::cell::Cell;
use crate::classic::disktester::{Tester, TesterError};
use crate::load::LoadTarget;
use crate::record::{JobRun, Latency};
use crate::stats::{merged_side, quantile};
use serde::Serialize;
use std::time::Duration;

/// One kind of load, so long.
const TIME: Duration = Duration::from_secs(20 * 60);
/// What the specification's table has, of a hundred responses.
const PERCENTS: [f64; 8] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999, 99.9999];
/// Bins to a doubling of the time: fine enough to tell two ways of being served apart, wide enough to be seen.
const BINS_TO_A_DOUBLING: f64 = 8.0;

/// Responses of one kind of load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// In words.
    pub name: String,
    /// Reads of a hundred.
    pub read_percent: u32,
    /// Responses.
    pub ios: u64,
    /// Their mean, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
    /// How many of a hundred took no longer, and how long that is, microseconds. Only those that so many responses can
    /// tell from the longest.
    pub percentiles: Vec<(f64, f64)>,
    /// Ends of bins, microseconds, ascending, and the responses in each.
    pub bins: Vec<(f64, u64)>,
}

/// Runs each kind of load for its time.
pub(super) fn histograms<T: LoadTarget>(
    tester: &mut Tester<'_, T>,
    plan: &SniaPlan,
) -> Result<Vec<Histogram>, TesterError> {
    let mut out = Vec::new();
    for read_percent in MIXES_OF_LATENCY {
        if tester.is_over() {
            break;
        }
        let cell = Cell { read_percent, depth: 1, ..RANDOM_WRITE };
        let title = format!("responses: {}", name(&cell));
        let ran = tester.job(&cell.job(&title, plan.span_bytes, plan.seed, plan.time_ns(TIME)))?;
        out.push(histogram(&cell, ran));
    }
    Ok(out)
}

fn histogram(cell: &Cell, ran: &JobRun) -> Histogram {
    let response = merged_side(&ran.read, &ran.write).response;
    let told = |percent: &&f64| response.count as f64 * (100.0 - **percent) >= 100.0;
    let at = |percent: &f64| Some((*percent, quantile(&response, percent / 100.0)? as f64 / 1e3));
    Histogram {
        name: name(cell),
        read_percent: cell.read_percent,
        ios: response.count,
        mean_us: response.mean_ns / 1e3,
        max_us: response.max_ns as f64 / 1e3,
        percentiles: PERCENTS.iter().filter(told).filter_map(at).collect(),
        bins: bins(&response),
    }
}

/// Bins that are alike on a logarithmic axis, from the first with a response to the last: those between are there, too.
fn bins(response: &Latency) -> Vec<(f64, u64)> {
    let place = |ns: u64| ((ns.max(1) as f64).log2() * BINS_TO_A_DOUBLING).floor() as i32;
    let end_us = |place: i32| (f64::from(place + 1) / BINS_TO_A_DOUBLING).exp2() / 1e3;
    let mut out: Vec<(i32, u64)> = Vec::new();
    for &(ns, ios) in &response.bins {
        let at = place(ns);
        let next = out.last().map_or(at, |last| last.0 + 1);
        out.extend((next..=at).map(|empty| (empty, 0)));
        if let Some(last) = out.last_mut() {
            last.1 += ios;
        }
    }
    out.into_iter().map(|(place, ios)| (end_us(place), ios)).collect()
}
