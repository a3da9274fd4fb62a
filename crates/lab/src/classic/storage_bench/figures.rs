//! What Storage Bench reports of a run.

use crate::record::{JobRun, Latency, Side};
use crate::stats::{merged, quantile};
use serde::Serialize;

/// What counts as long.
const LONG_NS: [u64; 2] = [10_000_000, 100_000_000];

/// Reads, writes, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SideFigures {
    /// Done.
    pub ios: u64,
    /// Bytes done.
    pub bytes: u64,
    /// For how long at least one of them was in flight.
    pub busy_seconds: f64,
    /// Bytes by that time, MB/s of 10^6 bytes: the average data rate.
    pub mb_per_s: f64,
    /// Service time, microseconds; none where nothing was done.
    pub mean_us: Option<f64>,
    /// The time that 99 of a hundred did not exceed.
    pub p99_us: Option<f64>,
    /// The longest.
    pub max_us: Option<f64>,
    /// The share above 10 ms, 0 to 1.
    pub above_10_ms: f64,
    /// The share above 100 ms.
    pub above_100_ms: f64,
}

impl SideFigures {
    fn new(ios: u64, bytes: u64, busy_ns: u64, service: &Latency) -> SideFigures {
        let us = |ns: u64| ns as f64 / 1e3;
        let some = service.count > 0;
        let above = LONG_NS.map(|ns| share_above(service, ns));
        SideFigures {
            ios,
            bytes,
            busy_seconds: busy_ns as f64 / 1e9,
            mb_per_s: bytes as f64 * 1e3 / busy_ns.max(1) as f64,
            mean_us: some.then_some(service.mean_ns / 1e3),
            p99_us: quantile(service, 0.99).map(us),
            max_us: some.then_some(us(service.max_ns)),
            above_10_ms: above[0],
            above_100_ms: above[1],
        }
    }
}

/// The share of what took longer than this; exact to the 0.1 % of the histogram's times.
fn share_above(service: &Latency, ns: u64) -> f64 {
    let above: u64 = service.bins.iter().filter(|bin| bin.0 > ns).map(|bin| bin.1).sum();
    above as f64 / service.count.max(1) as f64
}

/// A run on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The target, and the state that it was in.
    pub name: String,
    /// Whether it was in virtual time.
    pub simulated: bool,
    /// How long it took, with the idle time that was kept.
    pub seconds: f64,
    /// Reads and writes together.
    pub all: SideFigures,
    /// Reads.
    pub read: SideFigures,
    /// Writes.
    pub write: SideFigures,
    /// The share of the bytes that the fast tier served, where the target tells, 0 to 1.
    pub fast_share: Option<f64>,
}

impl Figures {
    /// Of what was recorded, in virtual time or not.
    pub fn new(ran: &JobRun, simulated: bool) -> Figures {
        let side = |side: &Side| SideFigures::new(side.ios, side.bytes, side.busy_ns, &side.service);
        // Whatever was in flight: a flush keeps a target busy, too.
        let busy_ns = ran.depths_ns.iter().filter(|depth| depth.0 > 0).map(|depth| depth.1).sum();
        let tiers = ran.intervals.iter().filter_map(|interval| interval.tiers);
        let (fast, served) = tiers.fold((0, 0), |sum, tiers| (sum.0 + tiers.0, sum.1 + tiers.1));
        let (read, write) = (&ran.read, &ran.write);
        Figures {
            name: ran.name.clone(),
            simulated,
            seconds: ran.elapsed_ns as f64 / 1e9,
            all: SideFigures::new(
                read.ios + write.ios,
                read.bytes + write.bytes,
                busy_ns,
                &merged(&read.service, &write.service),
            ),
            read: side(read),
            write: side(write),
            fast_share: (served > 0).then(|| fast as f64 / served as f64),
        }
    }
}
