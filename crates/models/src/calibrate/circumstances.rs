//! How far a model is from what was measured, by what a request was and what came before it.
//!
//! Over all requests, a mistake of one kind can make up for one of another: hits that take too long for misses that
//! are none. So what is compared for the fit is like with like: reads and writes, by what came before, and by where it
//! was. By the triangle of such distances this is never less than the demerit figure over all requests.

use super::TraceRequest;

/// Kinds of requests.
const KINDS: usize = 12;
/// Sectors up to which two requests are near each other: about what a buffer's segment holds.
const NEAR: u64 = 1024;

/// The requests of a trace by kind.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    kinds: Vec<u8>,
    /// The measured times of each kind, sorted.
    measured: [Vec<u64>; KINDS],
}

impl Circumstances {
    /// Sorts the requests by kind.
    pub(super) fn of(requests: &[TraceRequest]) -> Circumstances {
        let mut measured: [Vec<u64>; KINDS] = Default::default();
        let mut kinds = Vec::with_capacity(requests.len());
        let mut before: Option<&TraceRequest> = None;
        for request in requests {
            let (after_write, place) =
                before.map_or((false, 2), |before| (before.write, place(before, request)));
            let kind = usize::from(request.write) + 2 * usize::from(after_write) + 4 * place;
            measured[kind].push(request.service_ns);
            kinds.push(kind as u8);
            before = Some(request);
        }
        for times in &mut measured {
            times.sort_unstable();
        }
        Circumstances { kinds, measured }
    }

    /// Root mean square of the horizontal distance between the distributions of each kind, in nanoseconds.
    pub(super) fn distance_ns(&self, modelled: &[u64]) -> f64 {
        let mut by_kind: [Vec<u64>; KINDS] = Default::default();
        for (&kind, &time) in self.kinds.iter().zip(modelled) {
            by_kind[usize::from(kind)].push(time);
        }
        let mut squares = 0.0;
        for (measured, modelled) in self.measured.iter().zip(&mut by_kind) {
            modelled.sort_unstable();
            let pairs = measured.iter().zip(modelled.iter());
            squares += pairs.map(|(&a, &b)| (a.abs_diff(b) as f64).powi(2)).sum::<f64>();
        }
        (squares / modelled.len().max(1) as f64).sqrt()
    }
}

/// Where a request is from the one before it: right behind it, near, or far.
fn place(before: &TraceRequest, request: &TraceRequest) -> usize {
    let end = before.sector + u64::from(before.sectors);
    match request.sector.abs_diff(end) {
        0 => 0,
        1..=NEAR => 1,
        _ => 2,
    }
}
