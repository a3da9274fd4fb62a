//! What else can be had today: models of other ways to use a fast and a slow device as one volume, to compare with.
//!
//! Each is a set of rules (`rules::Rules`) over the same two modelled devices that the engine would run on. They are
//! not further implementations of a volume: they keep no data, no log and no metadata on the devices, never crash, and
//! do exactly what decides about time: which device a command goes to, and what is copied between the devices, when.
//! So they are faster than the real ones where those wait for their own metadata.
//!
//! The same commands at the same times, with the same seed, give the same completions.

mod bcache;
mod bits;
mod dm_cache;
mod fusion;
mod levels;
mod pieces;
mod rig;
mod rules;
mod spill;
mod tiers;

use bimetal_models::{Command, Done, Model, Usage};
use bimetal_units::Nanos;
use bimetal_units::event_hash::EventHash;
use rig::Rig;
use rules::Rules;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The largest volume of a peer, bytes: its blocks of 4 KiB, and one more, are counted in 32 bits.
pub const MAX_BYTES: u64 = (u32::MAX as u64 - 1) * 4096;

/// What decides where data lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The engine of this project: the real one, with all its metadata.
    #[default]
    Bimetal,
    /// Its first placement, and nothing ever moves.
    Static,
    /// First come, first served, and nothing ever moves.
    SpillOnly,
    /// The hybrid drive of 2012.
    Fusion,
    /// A write-back cache as bcache is.
    Bcache,
    /// The same, but what is read is cached only when it is read again.
    BcacheSecond,
    /// A cache as dm-cache is with its smq policy.
    DmCacheSmq,
    /// The engine of this project, to which a trace is known before it is replayed.
    Clairvoyant,
    /// No placement at all: a device like the fast one that holds everything.
    AllFast,
}

impl Policy {
    /// All that can be had.
    pub const ALL: [Policy; 7] = [
        Policy::Bimetal,
        Policy::Static,
        Policy::SpillOnly,
        Policy::Fusion,
        Policy::Bcache,
        Policy::BcacheSecond,
        Policy::DmCacheSmq,
    ];

    /// What shows how far one could get.
    pub const BOUNDS: [Policy; 2] = [Policy::Clairvoyant, Policy::AllFast];

    /// As a scenario names it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Bimetal => "bimetal",
            Policy::Static => "static",
            Policy::SpillOnly => "spill-only",
            Policy::Fusion => "fusion",
            Policy::Bcache => "bcache",
            Policy::BcacheSecond => "bcache-second",
            Policy::DmCacheSmq => "dm-cache-smq",
            Policy::Clairvoyant => "clairvoyant",
            Policy::AllFast => "all-fast",
        }
    }

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().chain(Policy::BOUNDS).find(|policy| policy.name() == name)
    }

    /// Whether it is the engine of this project.
    pub fn is_ours(self) -> bool {
        matches!(self, Policy::Bimetal | Policy::Clairvoyant)
    }

    /// Whether the fast device holds copies only, so that the slow one must hold the whole volume.
    pub fn is_cache(self) -> bool {
        matches!(self, Policy::Bcache | Policy::BcacheSecond | Policy::DmCacheSmq)
    }
}

/// What a peer is made of, beside its devices.
#[derive(Clone, Copy, Debug)]
pub struct PeerSpec {
    /// Bytes of the volume. A cache's slow device is at least so large; the devices of the others are so together.
    pub size_bytes: u64,
    /// Bytes of the fast device that our own volume would keep for its log; what is static leaves them alone, too.
    pub landing_bytes: u64,
    /// Where random choices begin.
    pub seed: u64,
}

/// What a peer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of clients that the fast device served.
    pub fast_bytes: u64,
    /// Bytes of clients that either device served.
    pub all_bytes: u64,
    /// Bytes that were copied up in the background, or because a client missed them.
    pub promoted_bytes: u64,
    /// Bytes that were copied down to free space.
    pub demoted_bytes: u64,
    /// Bytes of a cache that were written back, and stay cached.
    pub destaged_bytes: u64,
}

/// A volume under the rules of a peer, as a device in virtual time.
pub struct Peer {
    rig: Rig,
    rules: Box<dyn Rules>,
    size_bytes: u64,
    hash: EventHash,
    /// Kept for their memory.
    done: Vec<Done>,
    finished: VecDeque<u64>,
}

impl Peer {
    /// A new volume on a fast and a slow device; none under [`Policy::Bimetal`] and others that are not of a peer, and none
    /// above [`MAX_BYTES`].
    pub fn new(policy: Policy, devices: [Box<dyn Model>; 2], spec: PeerSpec) -> Option<Peer> {
        let sizes = [devices[0].size_bytes(), devices[1].size_bytes()];
        if sizes.into_iter().chain([spec.size_bytes]).any(|bytes| bytes > MAX_BYTES) {
            return None;
        }
        let rules: Box<dyn Rules> = match policy {
            Policy::Bimetal | Policy::Clairvoyant | Policy::AllFast => return None,
            Policy::Static => Box::new(spill::Spill::new(sizes, spec.size_bytes, spec.landing_bytes)),
            Policy::SpillOnly => Box::new(spill::Spill::new(sizes, spec.size_bytes, 0)),
            Policy::Fusion => Box::new(fusion::Fusion::new(sizes, spec.size_bytes)),
            Policy::Bcache => Box::new(bcache::Bcache::new(sizes[0], spec, bcache::Admission::FirstTouch)),
            Policy::BcacheSecond => {
                Box::new(bcache::Bcache::new(sizes[0], spec, bcache::Admission::SecondTouch))
            }
            Policy::DmCacheSmq => Box::new(dm_cache::DmCache::new(sizes[0], spec.size_bytes)),
        };
        Some(Peer {
            rig: Rig::new(devices),
            rules,
            size_bytes: spec.size_bytes,
            hash: EventHash::default(),
            done: Vec::new(),
            finished: VecDeque::new(),
        })
    }

    /// The hash of all answers and their times so far.
    pub fn hash(&self) -> u64 {
        self.hash.value()
    }

    /// What was done so far.
    pub fn tally(&self) -> Tally {
        self.rig.tally
    }

    /// What each device has done so far: the fast one, the slow one.
    pub fn device_usage(&self) -> Vec<Usage> {
        self.rig.usage()
    }

    /// When the next thing happens by itself.
    fn next_event(&self) -> Option<Nanos> {
        let wake = self.rules.wake_at(&self.rig).map(|wake| wake.max(self.rig.now));
        match (self.rig.deadline(), wake) {
            (Some(device), Some(wake)) => Some(device.min(wake)),
            (device, wake) => device.or(wake),
        }
    }

    /// Lets happen what happens up to `now`.
    fn run_to(&mut self, now: Nanos) {
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            self.rig.now = self.rig.now.max(at);
            self.rig.advance(&mut self.done, &mut self.finished);
            while let Some(job) = self.finished.pop_front() {
                self.rules.finished(&mut self.rig, job);
            }
            if self.rules.wake_at(&self.rig).is_some_and(|wake| wake <= self.rig.now) {
                self.rules.wake(&mut self.rig);
            }
        }
        self.rig.now = self.rig.now.max(now);
    }
}

impl Model for Peer {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn submit(&mut self, now: Nanos, tag: u64, command: Command) {
        let end = command.offset.checked_add(command.len);
        assert!(end.is_some_and(|end| end <= self.size_bytes), "{command:?} lies within the volume");
        self.run_to(now);
        let ticket = self.rig.open(tag, command);
        self.rules.serve(&mut self.rig, ticket, command);
        self.rig.release(ticket);
    }

    fn deadline(&self) -> Option<Nanos> {
        if self.rig.has_ended() {
            return Some(self.rig.now);
        }
        if self.rig.is_quiet() { None } else { self.next_event() }
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Done>) {
        self.run_to(now);
        let before = done.len();
        self.rig.take_ended(done);
        done[before..].iter().for_each(|end| self.hash.add([end.at.0, end.tag]));
    }

    fn usage(&self) -> Usage {
        let busy = self.rig.usage().iter().map(|usage| usage.busy_ns).max();
        Usage { busy_ns: busy.unwrap_or(0), ..self.rig.served }
    }
}
