//! A store of objects over a network: each request takes its time, some take long, some fail.
//!
//! A request's time to the first byte is drawn: a lognormal body and, for a small share, a Pareto tail. Then its bytes
//! pass at the rate of one stream, or slower where all streams together reach the limit. Requests beyond a granted
//! rate are answered with "slow down". What is written is on the medium when the request is complete.

pub(crate) mod draw;

use crate::device::{Command, Done, Failure, Kind, Model, Usage};
use crate::queue::{Queue, Queued};
use crate::rate::{Meter, Rate};
use crate::spec::{SpecError, within};
use bimetal_units::Nanos;
use bimetal_units::rng::Rng;
use serde::{Deserialize, Serialize};

/// An object store, seen from one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectStoreParams {
    /// What it stands for, for people.
    pub description: String,
    /// Bytes that the host sees.
    pub size_bytes: u64,
    /// Requests in flight at most; more wait before it.
    pub requests_in_flight: u32,
    /// Median time to the first byte of a read.
    pub read_median_ns: u64,
    /// Median time of a write or a discard beside its bytes.
    pub write_median_ns: u64,
    /// Standard deviation of the logarithm of these times, in hundredths.
    pub sigma_percent: u32,
    /// How many of a million requests are in the tail.
    pub tail_per_million: u32,
    /// The least that a request in the tail takes.
    pub tail_from_ns: u64,
    /// The tail's exponent, in hundredths: the smaller, the longer.
    pub tail_alpha_percent: u32,
    /// What no request exceeds beside its bytes: the client's patience.
    pub longest_ns: u64,
    /// One request.
    pub stream_bytes_per_s: u64,
    /// All reads together.
    pub read_bytes_per_s: u64,
    /// All writes together.
    pub write_bytes_per_s: u64,
    /// Requests granted in the long run.
    pub requests_per_s: u32,
    /// Requests granted at once after a rest.
    pub burst_requests: u32,
    /// When a request beyond them has its refusal.
    pub refusal_ns: u64,
    /// How many of a million requests fail.
    pub errors_per_million: u32,
}

/// A minute.
const LONGEST_NS: u64 = 60_000_000_000;

impl ObjectStoreParams {
    /// Checks that a model can be made of it; in one sentence why not.
    pub fn validate(&self) -> Result<(), SpecError> {
        let rates = 1_000..=1_000_000_000_000;
        within("size_bytes", self.size_bytes, 1 << 20..=1 << 60)?;
        within("requests_in_flight", self.requests_in_flight.into(), 1..=65_536)?;
        within("read_median_ns", self.read_median_ns, 1..=LONGEST_NS)?;
        within("write_median_ns", self.write_median_ns, 1..=LONGEST_NS)?;
        within("sigma_percent", self.sigma_percent.into(), 0..=200)?;
        within("tail_per_million", self.tail_per_million.into(), 0..=1_000_000)?;
        within("tail_from_ns", self.tail_from_ns, 1..=LONGEST_NS)?;
        within("tail_alpha_percent", self.tail_alpha_percent.into(), 50..=1000)?;
        within("longest_ns", self.longest_ns, 1..=LONGEST_NS)?;
        within("stream_bytes_per_s", self.stream_bytes_per_s, rates.clone())?;
        within("read_bytes_per_s", self.read_bytes_per_s, rates.clone())?;
        within("write_bytes_per_s", self.write_bytes_per_s, rates)?;
        within("requests_per_s", self.requests_per_s.into(), 1..=1_000_000_000)?;
        within("burst_requests", self.burst_requests.into(), 1..=1_000_000)?;
        within("refusal_ns", self.refusal_ns, 1..=LONGEST_NS)?;
        within("errors_per_million", self.errors_per_million.into(), 0..=1_000_000)
    }
}

/// An object store in virtual time.
#[derive(Debug)]
pub struct ObjectStore {
    params: ObjectStoreParams,
    rng: Rng,
    queue: Queue,
    stream: Rate,
    /// All reads, all writes.
    rates: [Rate; 2],
    links: [Meter; 2],
    /// When the requests granted so far would have come at the granted rate.
    granted_until: u64,
}

impl ObjectStore {
    /// A store; in one sentence why the parameters make none. The same seed draws the same times.
    pub fn new(params: ObjectStoreParams, seed: u64) -> Result<ObjectStore, SpecError> {
        params.validate()?;
        Ok(ObjectStore {
            rng: Rng::new(seed, 0),
            queue: Queue::new(params.requests_in_flight),
            stream: Rate::new(params.stream_bytes_per_s),
            rates: [Rate::new(params.read_bytes_per_s), Rate::new(params.write_bytes_per_s)],
            links: [Meter::default(); 2],
            granted_until: 0,
            params,
        })
    }

    /// Whether the store grants a request now (a leaky bucket).
    fn grant(&mut self, now: u64) -> bool {
        let apart = 1_000_000_000 / u64::from(self.params.requests_per_s);
        let next = self.granted_until.max(now) + apart;
        let granted = next <= now + apart * u64::from(self.params.burst_requests);
        if granted {
            self.granted_until = next;
        }
        granted
    }

    /// When a request is answered, and how.
    fn request(&mut self, now: u64, median_ns: u64, way: usize, bytes: u64) -> (u64, Option<Failure>) {
        let p = &self.params;
        let in_million = |rng: &mut Rng, share: u32| rng.below(1_000_000) < u64::from(share);
        let drawn = if in_million(&mut self.rng, p.tail_per_million) {
            draw::pareto(&mut self.rng, p.tail_from_ns, f64::from(p.tail_alpha_percent) / 100.0)
        } else {
            draw::lognormal(&mut self.rng, median_ns, f64::from(p.sigma_percent) / 100.0)
        };
        let answered = now + drawn.min(p.longest_ns);
        if in_million(&mut self.rng, p.errors_per_million) {
            return (answered, Some(Failure::Error));
        }
        let taken = self.links[way].take(now, self.rates[way].ns(bytes));
        ((answered + self.stream.ns(bytes)).max(taken), None)
    }
}

impl Queued for ObjectStore {
    fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    fn start(&mut self, now: u64, tag: u64, command: Command) {
        let (end, failure) = match command.kind {
            Kind::Flush | Kind::Sync => (now, None),
            _ if !self.grant(now) => (now + self.params.refusal_ns, Some(Failure::Throttled)),
            Kind::Read => self.request(now, self.params.read_median_ns, 0, command.len),
            Kind::Write { .. } => self.request(now, self.params.write_median_ns, 1, command.len),
            Kind::Discard => self.request(now, self.params.write_median_ns, 1, 0),
        };
        self.queue.start(now, end, tag, command, failure);
    }
}

impl Model for ObjectStore {
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
