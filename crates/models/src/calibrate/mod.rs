//! Measured drives against the model: replays a trace of service times and says how far the two are apart.

mod fit;
mod trace;

pub use fit::fit;
pub use trace::{Trace, TraceRequest};

use crate::device::{Command, Kind, Model};
use crate::disk::Disk;
use crate::disk::params::{DiskParams, ParamsError};
use bimetal_engine::units::Nanos;

/// Service times in nanoseconds that the model gives the requests of a trace, one at a time: each is issued the
/// measured gap after the one before it was complete.
///
/// # Errors
/// Parameters out of their bounds.
pub fn replay(params: &DiskParams, requests: &[TraceRequest]) -> Result<Vec<u64>, ParamsError> {
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

/// Root mean square of the horizontal distance between two distributions of as many times each, in nanoseconds.
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
