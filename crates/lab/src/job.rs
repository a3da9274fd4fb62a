//! The one description of a workload: fio's job files, the classic tests and the lab's own commands all become this.

use crate::load::{Ending, Flow, Log, Script};
use crate::stats::FioRule;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Reads, writes and discards, where something is given for each: in this order.
pub type PerSide<T> = [T; 3];

/// A place in [`PerSide`].
pub mod side {
    /// Reads.
    pub const READ: usize = 0;
    /// Writes.
    pub const WRITE: usize = 1;
    /// Discards.
    pub const DISCARD: usize = 2;
}

/// One stream of I/O.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name, in the report.
    pub name: String,
    /// Jobs of one group are reported together.
    pub group: u32,
    /// The options as they were written, for the report.
    pub options: BTreeMap<String, String>,
    /// Which of the targets.
    pub place: u32,
    /// What it asks for.
    pub ops: Ops,
    /// In which order.
    pub order: PerSide<Order>,
    /// So many I/Os follow each other from a random place before another one is drawn, or are all at that place.
    pub run_ios: u32,
    /// They are all at that place.
    pub run_in_place: bool,
    /// How often which part of the span is asked for, where the order is random.
    pub distribution: PerSide<Distribution>,
    /// Bytes of an I/O.
    pub sizes: PerSide<Sizes>,
    /// Offsets are multiples of it, counted from the beginning of the span.
    pub align_bytes: PerSide<u64>,
    /// What is asked for on the target.
    pub span: Range<u64>,
    /// Where the target ends: the last I/O of a span that is no multiple of its size reaches over the span's end, but not
    /// over this. Nothing before the span's end counts.
    pub target_bytes: u64,
    /// It works in zones, one after the other.
    pub zones: Option<Zones>,
    /// In random order each block is asked for once in a pass, whichever side asks; what would reach into one that was is
    /// cut. Without effect where the distribution is not uniform.
    pub each_once: bool,
    /// A pass ends when so many bytes were asked for; `None`: as many as the span has. It may end earlier, where there is no
    /// more to ask for.
    pub pass_bytes: Option<u64>,
    /// There are passes until so many bytes were asked for in all; `None`: as many as a pass has. Less than a pass ends
    /// the first before its end.
    pub bytes: Option<u64>,
    /// ... and so many of them at least; the bytes are this many times as many then.
    pub loops: u64,
    /// What is drawn at random in a pass is drawn again in the next one.
    pub passes_alike: bool,
    /// Or after so many I/Os.
    pub ios: Option<u64>,
    /// Or after so long, from when it begins to count.
    pub runtime_ns: Option<u64>,
    /// It goes on until then, however often it has to begin again.
    pub time_based: bool,
    /// It begins so much after the run does.
    pub start_delay_ns: u64,
    /// It runs so long before it counts.
    pub ramp_ns: u64,
    /// I/Os in flight at most.
    pub depth: u32,
    /// When I/Os are meant to begin; `None` as soon as there is room.
    pub rate: PerSide<Option<Rate>>,
    /// Whether they come at random instants, as independent users do, instead of at even distances.
    pub poisson: bool,
    /// I/Os are meant to begin at certain times: lateness counts. So it does where there is a rate.
    pub is_paced: bool,
    /// A pause that the user of the data makes.
    pub think: Option<Think>,
    /// A flush after so many writes.
    pub flush_every_writes: Option<u64>,
    /// A sync after so many writes: a flush, and of a file what its file system knows of it.
    pub sync_every_writes: Option<u64>,
    /// A sync at the end of each pass.
    pub end_flush: bool,
    /// Writes are durable when they are answered.
    pub fua: bool,
    /// What is written.
    pub content: Content,
    /// What was written in a pass is read after it, and held against what it should be; a job that only reads finds
    /// what another one has stamped. Writes that overlap wait for each other.
    pub verify: bool,
    /// Looks for the highest depth at which latencies keep to a limit.
    pub depth_search: Option<DepthSearch>,
    /// Ends when it has become steady.
    pub until_steady: Option<UntilSteady>,
    /// An I/O that takes longer ends it, and is an error.
    pub max_latency_ns: PerSide<Option<u64>>,
    /// It goes on after an I/O that was not done.
    pub goes_on: bool,
    /// What ends it before its time, and what its end ends.
    pub ending: Ending,
    /// The jobs that it keeps in step with.
    pub flow: Option<Flow>,
    /// What it does one by one, whatever else would be drawn.
    pub script: Option<Script>,
    /// What it logs.
    pub logs: Vec<Log>,
    /// Its randomness.
    pub seed: u64,
}

/// What a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ops {
    /// Reads, so many of a hundred; the others are writes.
    ReadWrite {
        /// Of a hundred.
        read_percent: u32,
    },
    /// Discards.
    Discard,
    /// Each block is discarded, then written.
    DiscardWrite,
}

/// In which order a job asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// How many of a hundred are at a random place; the others follow the one before. 0 is sequential, 100 random.
    pub random_percent: u32,
    /// Sequential I/O goes on so much behind the end of the one before (or, below zero, before it).
    pub step_bytes: i64,
}

impl Order {
    /// One after the other.
    pub const SEQUENTIAL: Order = Order { random_percent: 0, step_bytes: 0 };
    /// Anywhere.
    pub const RANDOM: Order = Order { random_percent: 100, step_bytes: 0 };
}

/// Zones of a target: in each of them so much is done, then comes the next one. Behind the target's end the first one
/// follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zones {
    /// Bytes that are asked for in a zone.
    pub bytes: u64,
    /// Bytes that it has: what is in order begins again at its beginning when it has come to its end.
    pub range_bytes: u64,
    /// Bytes between two of them.
    pub skip_bytes: u64,
}

/// How often which part of the span is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// The n-th most frequent block in proportion to n to the power of minus theta; they lie scattered.
    Zipf {
        /// How uneven: above 0.
        theta: f64,
    },
    /// A share of `1 - h` of the I/Os goes to a share of `h` of the blocks, and so on within these; scattered.
    Pareto {
        /// Above 0, below 1.
        h: f64,
    },
    /// A bell over the blocks, which lie scattered: it deviates by a twelfth of them, and by what is said below.
    Normal {
        /// It is moved by up to half of so many percent of the blocks.
        deviation_percent: f64,
    },
    /// Zones, one behind the other: shares of the I/Os, and of the span; both add up to 1.
    Zoned(Vec<(f64, f64)>),
}

/// Sizes of I/Os.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Each of these as often as its weight says; at least one, weights above 0.
    Split(Vec<(u64, u32)>),
    /// Any multiple of the least below the most, and the most.
    Range {
        /// The least.
        from: u64,
        /// The most.
        to: u64,
    },
    /// Any number of bytes from the least to the most; the least stands for what lies below it, from a byte on.
    Any {
        /// The least.
        from: u64,
        /// The most.
        to: u64,
    },
}

impl Sizes {
    /// All of one size.
    pub fn one(bytes: u64) -> Sizes {
        Sizes::Split(vec![(bytes, 1)])
    }

    /// The largest.
    pub fn most(&self) -> u64 {
        match self {
            Sizes::Split(sizes) => sizes.iter().map(|size| size.0).max().unwrap_or(0),
            Sizes::Range { to, .. } | Sizes::Any { to, .. } => *to,
        }
    }

    /// Those that all others are multiples of, or lie between.
    pub fn each(&self) -> Vec<u64> {
        match self {
            Sizes::Split(sizes) => sizes.iter().map(|size| size.0).collect(),
            Sizes::Range { from, to } | Sizes::Any { from, to } => vec![*from, *to],
        }
    }

    /// The smallest.
    pub fn least(&self) -> u64 {
        match self {
            Sizes::Split(sizes) => sizes.iter().map(|size| size.0).min().unwrap_or(0),
            Sizes::Range { from, .. } | Sizes::Any { from, .. } => *from,
        }
    }
}

/// So much in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// I/Os.
    Ios(f64),
    /// Bytes.
    Bytes(f64),
}

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// How long, counted from when all before it have ended.
    pub ns: u64,
    /// After so many I/Os each; 0 for never.
    pub every_ios: u64,
    /// After so long since the one before; 0 for never.
    pub every_ns: u64,
    /// A rate does not make up for it.
    pub delays_rate: bool,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Random bytes, the same again and again.
    Random,
    /// New random bytes in each I/O.
    Fresh,
    /// Zeros.
    Zeros,
    /// These bytes, over and over: at least one.
    Pattern(Arc<[u8]>),
    /// New bytes that can be stored in less.
    Reducible(Reducible),
}

/// By how much what is written can be reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reducible {
    /// So many of a hundred bytes are zeros, at the end of ...
    pub zero_percent: u8,
    /// ... each so many bytes.
    pub chunk_bytes: u32,
    /// So many of a hundred I/Os have the bytes that others have.
    pub same_percent: u8,
}

/// The search for a depth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthSearch {
    /// Responses are to take no longer ...
    pub target_ns: u64,
    /// ... so many of a hundred ...
    pub percentile: f64,
    /// ... of those of a time of this length.
    pub window_ns: u64,
    /// The job goes on at that depth when it is found; else it ends.
    pub goes_on: bool,
}

/// When a job has become steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UntilSteady {
    /// The rule.
    pub rule: FioRule,
    /// The length of its rounds.
    pub interval_ns: u64,
    /// It is not looked at before.
    pub ramp_ns: u64,
}

/// The greatest common divisor; 0 is divided by all.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Job {
    /// Random reads of 4 KiB at depth 1, once over a span.
    pub fn new(name: &str, span: Range<u64>) -> Job {
        Job {
            name: name.to_owned(),
            group: 0,
            options: BTreeMap::new(),
            place: 0,
            ops: Ops::ReadWrite { read_percent: 100 },
            order: [Order::RANDOM; 3],
            run_ios: 1,
            run_in_place: false,
            distribution: std::array::from_fn(|_| Distribution::Uniform),
            sizes: std::array::from_fn(|_| Sizes::one(4096)),
            align_bytes: [4096; 3],
            target_bytes: span.end,
            span,
            zones: None,
            each_once: true,
            pass_bytes: None,
            bytes: None,
            loops: 1,
            passes_alike: false,
            ios: None,
            runtime_ns: None,
            time_based: false,
            start_delay_ns: 0,
            ramp_ns: 0,
            depth: 1,
            rate: [None; 3],
            poisson: false,
            is_paced: false,
            think: None,
            flush_every_writes: None,
            sync_every_writes: None,
            end_flush: false,
            fua: false,
            content: Content::Random,
            verify: false,
            depth_search: None,
            until_steady: None,
            max_latency_ns: [None; 3],
            goes_on: false,
            ending: Ending::default(),
            flow: None,
            script: None,
            logs: Vec::new(),
            seed: 1,
        }
    }

    /// Writes of so many bytes each, one behind the other, once over a span.
    pub fn writes_in_order(name: &str, span: Range<u64>, bytes: u64) -> Job {
        Job {
            ops: Ops::ReadWrite { read_percent: 0 },
            order: [Order::SEQUENTIAL; 3],
            sizes: std::array::from_fn(|_| Sizes::one(bytes)),
            ..Job::new(name, span)
        }
    }

    /// Gives the first so many bytes back, in pieces of 32 MiB, or in one where they are less; what is left at the end is no
    /// whole piece.
    pub fn give_back(name: &str, bytes: u64) -> Job {
        const PIECE_BYTES: u64 = 32 << 20;
        const BLOCK_BYTES: u64 = 4096;
        let piece = PIECE_BYTES.min(bytes / BLOCK_BYTES * BLOCK_BYTES);
        let mut job = Job::new(name, 0..bytes / piece.max(1) * piece);
        (job.ops, job.order) = (Ops::Discard, [Order::SEQUENTIAL; 3]);
        job.sizes[side::DISCARD] = Sizes::one(piece);
        job
    }

    /// Bytes of a pass at most, unless it goes on until a time.
    pub fn bytes_of_a_pass(&self) -> u64 {
        let pass = self.pass_bytes.unwrap_or(self.span.end - self.span.start);
        // Random writes that may meet a block again need no second pass for more than the span has.
        let random = self.sides().any(|side| self.order[side].random_percent > 0);
        let again = random && !self.each_once && self.sides().any(|side| side == side::WRITE);
        if again { pass.max(self.bytes.unwrap_or(0)) } else { pass }
    }

    /// Bytes that it asks for at most, if neither time nor a number of I/Os ends it before.
    pub fn bytes_in_all(&self) -> u64 {
        let pass = self.pass_bytes.unwrap_or(self.span.end - self.span.start);
        self.bytes.unwrap_or(pass).saturating_mul(self.loops).max(1)
    }

    /// The largest part of the span that all I/Os at random places begin at multiples of, of all sides together; and
    /// whether each I/O is one such part.
    pub fn part_bytes(&self) -> (u64, bool) {
        let sizes = || self.sides().map(|side| &self.sizes[side]);
        let part = sizes().fold(0, |part, sizes| gcd(part, sizes.least()));
        let part = self.sides().fold(part, |part, side| gcd(part, self.align_bytes[side])).max(1);
        (part, sizes().all(|sizes| sizes.least() == part && sizes.most() == part))
    }

    /// The share of it that is done, after so long and so much.
    pub fn share(&self, at_ns: u64, ios: u64, bytes: u64) -> f64 {
        let all_ns = self.runtime_ns.map(|ns| self.start_delay_ns + self.ramp_ns + ns);
        let time = all_ns.map(|all| at_ns as f64 / all.max(1) as f64);
        let bytes = (!self.time_based).then(|| bytes as f64 / self.bytes_in_all() as f64);
        let ios = self.ios.map(|all| ios as f64 / all.max(1) as f64);
        [time, bytes, ios].into_iter().flatten().fold(0.0, f64::max).min(1.0)
    }

    /// The sides that it uses.
    pub fn sides(&self) -> impl Iterator<Item = usize> + '_ {
        let uses = |side: usize| match self.ops {
            _ if self.script.is_some() => {
                self.script.as_ref().is_some_and(|script| script.longest_bytes()[side] > 0)
            }
            Ops::ReadWrite { read_percent } => match side {
                side::READ => read_percent > 0,
                side::WRITE => read_percent < 100,
                _ => false,
            },
            Ops::Discard => side == side::DISCARD,
            Ops::DiscardWrite => side != side::READ,
        };
        (0..3).filter(move |&side| uses(side))
    }

    /// Whether it changes what is on the target.
    pub fn destroys(&self) -> bool {
        self.sides().any(|side| side != side::READ)
    }

    /// Whether what it writes is not any data, or what it reads is compared.
    pub fn has_payload(&self) -> bool {
        self.verify || matches!(self.content, Content::Fresh | Content::Pattern(_) | Content::Reducible(_))
    }

    /// The largest I/O, bytes.
    pub fn most_bytes(&self) -> u64 {
        let verified = if self.verify { self.sizes[side::WRITE].most() } else { 0 };
        self.sides().map(|side| self.sizes[side].most()).max().unwrap_or(0).max(verified)
    }
}
