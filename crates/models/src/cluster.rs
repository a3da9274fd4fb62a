//! A device on a cluster over a network, such as an image of Ceph's: it has no head to move, and answers many requests at once.
//!
//! A request's time is drawn around a median, and a small share of them takes far longer. Then its bytes pass at the rate of one
//! request, or slower where all together reach the limit of their way. Each request takes some time of processors which all
//! share. What is written is on the medium when the request is complete, so a flush is a request without bytes.

use crate::device::{Command, Done, Kind, Model, Usage};
use crate::object::draw;
use crate::queue::{Queue, Queued};
use crate::rate::{Meter, Rate};
use crate::spec::{SpecError, within};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use serde::{Deserialize, Serialize};

/// One way, in or out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Median time of a request beside its bytes.
    pub median_ns: u64,
    /// Standard deviation of the logarithm of that, in hundredths.
    pub sigma_percent: u32,
    /// One request.
    pub stream_bytes_per_s: u64,
    /// All together.
    pub bytes_per_s: u64,
}

/// A device on a cluster, seen from its client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterParams {
    /// What it stands for, for people.
    pub description: String,
    /// Bytes that the host sees.
    pub size_bytes: u64,
    /// Requests that are answered at once; more wait before it.
    pub requests_in_flight: u32,
    /// What each request takes of the processors that all share.
    pub request_ns: u64,
    /// How many of a million requests are in the tail.
    pub tail_per_million: u32,
    /// The least that a request in the tail takes.
    pub tail_from_ns: u64,
    /// The tail's exponent, in hundredths: the smaller, the longer.
    pub tail_alpha_percent: u32,
    /// What no request exceeds beside its bytes.
    pub longest_ns: u64,
    /// Reads, and flushes.
    pub read: Way,
    /// Writes and discards.
    pub write: Way,
}

/// A minute.
const LONGEST_NS: u64 = 60_000_000_000;

impl ClusterParams {
    /// Checks that a model can be made of it; in one sentence why not.
    pub fn validate(&self) -> Result<(), SpecError> {
        within("size_bytes", self.size_bytes, 1 << 20..=1 << 60)?;
        within("requests_in_flight", self.requests_in_flight.into(), 1..=65_536)?;
        within("request_ns", self.request_ns, 0..=LONGEST_NS)?;
        within("tail_per_million", self.tail_per_million.into(), 0..=1_000_000)?;
        within("tail_from_ns", self.tail_from_ns, 1..=LONGEST_NS)?;
        within("tail_alpha_percent", self.tail_alpha_percent.into(), 50..=1000)?;
        within("longest_ns", self.longest_ns, 1..=LONGEST_NS)?;
        self.read.validate()?;
        self.write.validate()
    }
}

impl Way {
    fn validate(&self) -> Result<(), SpecError> {
        let rates = 1_000..=1_000_000_000_000;
        within("median_ns", self.median_ns, 1..=LONGEST_NS)?;
        within("sigma_percent", self.sigma_percent.into(), 0..=200)?;
        within("stream_bytes_per_s", self.stream_bytes_per_s, rates.clone())?;
        within("bytes_per_s", self.bytes_per_s, rates)
    }
}

/// A device on a cluster, in virtual time.
#[derive(Debug)]
pub struct Cluster {
    params: ClusterParams,
    rng: Rng,
    queue: Queue,
    processors: Meter,
    /// Reads, writes.
    links: [Meter; 2],
}

impl Cluster {
    /// A device; in one sentence why the parameters make none. The same seed draws the same times.
    pub fn new(params: ClusterParams, seed: u64) -> Result<Cluster, SpecError> {
        params.validate()?;
        Ok(Cluster {
            rng: Rng::new(seed, 0),
            queue: Queue::new(params.requests_in_flight),
            processors: Meter::default(),
            links: [Meter::default(); 2],
            params,
        })
    }

    /// When a request is answered.
    fn request(&mut self, now: u64, writes: bool, bytes: u64) -> u64 {
        let p = &self.params;
        let way = if writes { &p.write } else { &p.read };
        let drawn = if self.rng.below(1_000_000) < u64::from(p.tail_per_million) {
            draw::pareto(&mut self.rng, p.tail_from_ns, f64::from(p.tail_alpha_percent) / 100.0)
        } else {
            draw::lognormal(&mut self.rng, way.median_ns, f64::from(way.sigma_percent) / 100.0)
        };
        let alone = now + drawn.min(p.longest_ns) + Rate::new(way.stream_bytes_per_s).ns(bytes);
        let passed = self.links[usize::from(writes)].take(now, Rate::new(way.bytes_per_s).ns(bytes));
        let worked = self.processors.take(now, p.request_ns);
        alone.max(passed).max(worked)
    }
}

impl Queued for Cluster {
    fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn start(&mut self, now: u64, tag: u64, command: Command) {
        let end = match command.kind {
            Kind::Read => self.request(now, false, command.len),
            Kind::Flush | Kind::Sync => self.request(now, false, 0),
            Kind::Write { .. } => self.request(now, true, command.len),
            Kind::Discard => self.request(now, true, 0),
        };
        self.queue.start(now, end, tag, command, None);
    }
}

impl Model for Cluster {
    fn size_bytes(&self) -> u64 {
        self.params.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        command.assert_within(self.params.size_bytes);
        self.take(now, tag, command);
    }

    fn deadline(&self) -> Option<Nanos> {
        self.queue.deadline()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.end(now, done);
    }

    fn usage(&self) -> Usage {
        self.queue.usage()
    }
}
