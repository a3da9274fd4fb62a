//! Measured drives against the model: replays a trace of service times and says how far the two are apart.

mod circumstances;
mod fit;
mod trace;

pub use fit::fit;
pub use trace::{Trace, TraceRequest};

use crate::device::{Command, Kind, Model};
use crate::disk::Disk;
use crate::disk::params::DiskParams;
use crate::disksim::{FormatError, Sources, convert};
use crate::spec::SpecError;
use bimetal_units::Nanos;
use std::ops::Range;

/// Why a drive could not be compared.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A file of the drive is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The parameters that came of it are out of their bounds.
    #[error(transparent)]
    Params(#[from] SpecError),
}

/// A measured drive and its model.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The parameters, with what was fitted.
    pub params: DiskParams,
    /// Requests of the trace.
    pub requests: usize,
    /// Requests that lie beyond what the description says the drive holds, and were moved to its end.
    pub beyond_end: usize,
    /// Mean measured service time, in microseconds.
    pub measured_us: f64,
    /// Mean modelled service time, in microseconds.
    pub modelled_us: f64,
    /// The demerit figure over the whole trace, in percent of the mean measured service time.
    pub demerit_percent: f64,
    /// The same over the first half, to which it was fitted.
    pub fitted_demerit_percent: f64,
    /// The same over the second half, which the fit has not seen.
    pub unseen_demerit_percent: f64,
    /// The same over the whole trace without the fit.
    pub described_demerit_percent: f64,
    /// What of buffer and cache is read otherwise than described: a field, its value, and what was described.
    pub changed: Vec<Changed>,
}

/// A field of the buffer or the write cache that the fit has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The field, as parameter files name it: `buffer.read_ahead`.
    pub field: String,
    /// What the description says.
    pub described: String,
    /// What the drive does.
    pub fitted: String,
}

impl Calibration {
    /// Converts a drive's description, fits what it leaves open to the first half of the drive's trace, and replays
    /// all of it. `trace` is the name of the trace's file, and its text.
    ///
    /// # Errors
    /// A file that is not what it should be.
    pub fn of(sources: &Sources<'_>, trace: (&str, &str)) -> Result<Calibration, CalibrateError> {
        let described = convert(sources)?;
        let mut trace = Trace::parse(trace.0, trace.1)?;
        let beyond_end = trace.keep_within(Disk::new(&described)?.size_bytes() / 512);
        let requests = &trace.requests;
        let half = requests.len() / 2;
        let params = fit(&described, &requests[..half.max(1)])?;
        let measured: Vec<u64> = requests.iter().map(|request| request.service_ns).collect();
        let modelled = replay(&params, requests)?;
        let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len().max(1) as f64;
        let percent = |modelled: &[u64], of: Range<usize>| {
            let (measured, modelled) = (&measured[of.clone()], &modelled[of]);
            100.0 * demerit_ns(measured, modelled) / mean(measured).max(1.0)
        };
        let all = 0..requests.len();
        Ok(Calibration {
            requests: requests.len(),
            beyond_end,
            measured_us: mean(&measured) / 1000.0,
            modelled_us: mean(&modelled) / 1000.0,
            demerit_percent: percent(&modelled, all.clone()),
            fitted_demerit_percent: percent(&modelled, 0..half.max(1)),
            unseen_demerit_percent: percent(&modelled, half..requests.len()),
            described_demerit_percent: percent(&replay(&described, requests)?, all),
            changed: changes(&described, &params),
            params,
        })
    }

    /// How far the modelled mean is from the measured one, in percent of that.
    pub fn mean_error_percent(&self) -> f64 {
        100.0 * (self.modelled_us - self.measured_us) / self.measured_us.max(1e-9)
    }
}

/// What of buffer and cache differs.
fn changes(described: &DiskParams, fitted: &DiskParams) -> Vec<Changed> {
    let mut found = Vec::new();
    let tables = |params: &DiskParams| {
        [
            ("buffer", toml::Table::try_from(params.buffer)),
            ("write_cache", toml::Table::try_from(params.write_cache)),
        ]
    };
    for ((name, described), (_, fitted)) in tables(described).into_iter().zip(tables(fitted)) {
        let (Ok(described), Ok(fitted)) = (described, fitted) else { continue };
        for (field, value) in &fitted {
            let before = described.get(field);
            if before != Some(value) {
                let text = |value: &toml::Value| value.to_string().trim_matches('"').to_owned();
                found.push(Changed {
                    field: format!("{name}.{field}"),
                    described: before.map(text).unwrap_or_default(),
                    fitted: text(value),
                });
            }
        }
    }
    found
}

/// Service times in nanoseconds that the model gives the requests of a trace, one at a time: each is issued the
/// measured gap after the one before it was complete.
///
/// # Errors
/// Parameters out of their bounds.
pub fn replay(params: &DiskParams, requests: &[TraceRequest]) -> Result<Vec<u64>, SpecError> {
    let mut disk = Disk::new(params)?;
    let mut done = Vec::with_capacity(4);
    let mut times = Vec::with_capacity(requests.len());
    let mut now = 0;
    for (tag, request) in requests.iter().enumerate() {
        let kind = if request.write { Kind::Write { fua: false } } else { Kind::Read };
        let (offset, len) = (request.sector * 512, u64::from(request.sectors) * 512);
        disk.submit(Nanos(now), tag as u64, Command { kind, offset, len });
        while done.is_empty() {
            let Some(at) = disk.deadline() else { break };
            disk.advance(at, &mut done);
        }
        let end = done.pop().map_or(now, |done| done.at.0);
        times.push(end - now);
        now = end + request.gap_ns;
        disk.advance(Nanos(now), &mut done);
    }
    Ok(times)
}

/// Root mean square of the horizontal distance between two distributions of as many times each, in nanoseconds: the
/// demerit figure of Ruemmler and Wilkes (An introduction to disk drive modeling, 1994).
pub fn demerit_ns(measured: &[u64], modelled: &[u64]) -> f64 {
    let sorted = |times: &[u64]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times
    };
    let pairs = sorted(measured).into_iter().zip(sorted(modelled));
    let squares: f64 = pairs.map(|(a, b)| (a.abs_diff(b) as f64).powi(2)).sum();
    (squares / measured.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests;
