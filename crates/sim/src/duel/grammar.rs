//! The workloads there are: what one is made of, and how a seed draws one.
//!
//! All of it is whole numbers, and each feature is drawn from a stream of its own: so a seed means the same workload on
//! every machine, and a feature that is added leaves the others as they were.

use bimetal_models::spec;
use bimetal_units::rng::{Rng, mix};
use serde::{Deserialize, Serialize};

/// The version of the grammar. Another one draws other workloads from the same seeds.
pub const GRAMMAR: u32 = 1;

/// Streams of a workload at most.
const MAX_STREAMS: usize = 16;
/// Requests of a workload at most.
const MAX_REQUESTS: u32 = 1_000_000;
/// A run that never ends.
pub(super) const FOR_EVER: u32 = u32::MAX;

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// The least fast device on which every volume of the grammar can be made.
const LEAST_FAST_BYTES: u64 = 72 * MIB;
/// On a smaller slow device a span could be less than a request.
const LEAST_SLOW_BYTES: u64 = 256 * MIB;
/// A larger volume takes longer to fill than anybody waits.
const MOST_BYTES: u64 = 1 << 40;
/// What all requests of a drawn workload move together, bytes: its run is to take a fraction of a second.
const MOST_MOVED_BYTES: u64 = 4 << 30;
/// The devices that are put together, fast and slow: a decade of machines.
const PAIRS: [(&str, &str); 4] = [
    ("nvme-present", "disk-20tb"),
    ("ssd-128gb-2012", "disk-1tb-2012"),
    ("ssd-480gb-2012-pcie", "disk-2tb-2012-rotational"),
    ("nvme-present", "disk-1tb-2012-rotational"),
];

/// A workload, and the devices that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The model of the fast device, and its bytes.
    pub fast: String,
    /// See [`Workload::fast`].
    pub fast_bytes: u64,
    /// The model of the slow device, and its bytes.
    pub slow: String,
    /// See [`Workload::slow`].
    pub slow_bytes: u64,
    /// How much of the volume is written before, of a hundred parts; then it is left alone for ten minutes.
    pub fill_percent: u8,
    /// Whether that is written in random order, MiB by MiB.
    #[serde(default)]
    pub fill_shuffled: bool,
    /// Requests of all streams together, flushes beside them.
    pub requests: u32,
    /// Requests in a row of one stream.
    #[serde(default = "one")]
    pub turn: u16,
    /// A flush after so many requests; none where it is 0.
    #[serde(default)]
    pub flush_every: u16,
    /// Of a hundred writes, so many with FUA.
    #[serde(default)]
    pub fua_percent: u8,
    /// When requests come.
    pub arrival: Arrival,
    /// What is asked for.
    #[serde(rename = "stream")]
    pub streams: Vec<StreamSpec>,
    /// Pauses: the requests are divided evenly before, between and behind them.
    #[serde(default, rename = "pause")]
    pub pauses: Vec<Pause>,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrival {
    /// The next when one has ended, with so many in flight.
    Closed {
        /// Requests in flight.
        depth: u16,
    },
    /// At times of their own.
    Open {
        /// Of a thousand parts of the rate that the static policy sustains with 32 in flight, so many.
        load_permille: u16,
        /// Requests that come at the same instant.
        burst: u16,
    },
}

/// What one stream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Its share of the turns, beside the others' weights.
    #[serde(default = "one")]
    pub weight: u16,
    /// Of a hundred requests, so many reads.
    pub read_percent: u8,
    /// Of a hundred requests that are no reads, so many discards. What is discarded nobody reads.
    #[serde(default)]
    pub discard_percent: u8,
    /// Bytes of a request, whole sectors.
    pub bytes: u32,
    /// Where its span begins, and how long it is, in a thousand parts of what was filled; where it only writes, of the
    /// whole volume.
    #[serde(default)]
    pub from_permille: u16,
    /// See [`StreamSpec::from_permille`].
    pub span_permille: u16,
    /// Places are multiples of so many bytes ...
    pub grid_bytes: u32,
    /// ... and so many sectors.
    #[serde(default)]
    pub shift_sectors: u8,
    /// Requests from a place on, one behind the other.
    #[serde(default = "one")]
    pub run: u32,
    /// How uneven places are drawn: by Zipf's law with so many eighths as its exponent; 0 is evenly.
    #[serde(default)]
    pub zipf_eighths: u8,
    /// Whether what is hot lies together.
    #[serde(default)]
    pub clustered: bool,
    /// Of a hundred runs, so many begin where one of the last 64 did.
    #[serde(default)]
    pub reuse_percent: u8,
    /// How far all places move on in a thousand requests of the stream, in a thousand parts of its span.
    #[serde(default)]
    pub drift_permille: u16,
}

/// A pause, and what happens in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// How long nothing is asked for.
    pub seconds: u32,
    /// How the volume ends and is opened again behind it, if it does. Only ours is: the others go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopen: Option<crate::scenario::Reopen>,
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

/// The numbers of the streams of random numbers, one for each feature.
#[derive(Clone, Copy)]
enum Feature {
    Devices = 1,
    Sizes,
    Fill,
    Requests,
    Turn,
    Flushes,
    Arrival,
    Pauses,
    Discards,
    Streams,
}

impl Workload {
    /// The workload of a seed; on these devices, or where none are named on a pair that is drawn, too.
    pub fn drawn(seed: u64, devices: Option<&(String, String)>) -> Workload {
        let rng = |feature: Feature| Rng::new(seed, feature as u64);
        let (fast, slow) = match devices {
            Some((fast, slow)) => (fast.clone(), slow.clone()),
            None => {
                let (fast, slow) = rng(Feature::Devices).pick(&PAIRS);
                (fast.to_owned(), slow.to_owned())
            }
        };
        let (fast_bytes, slow_bytes) = sizes(&mut rng(Feature::Sizes));
        let mut fill = rng(Feature::Fill);
        let mut flushes = rng(Feature::Flushes);
        let mut streams: Vec<StreamSpec> = Vec::new();
        let mut of_streams = rng(Feature::Streams);
        for number in 0..1 + of_streams.weighted(&[4, 3, 2, 1]) {
            streams.push(stream(&mut Rng::new(mix(seed ^ Feature::Streams as u64), number as u64)));
        }
        set_discards(&mut streams, &mut rng(Feature::Discards));
        let mut drawn = Workload {
            fast,
            fast_bytes,
            slow,
            slow_bytes,
            fill_percent: fill.range(50, 100) as u8,
            fill_shuffled: fill.one_in(3),
            requests: rng(Feature::Requests).range(4_000, 16_000) as u32,
            turn: 1 << rng(Feature::Turn).weighted(&[6, 1, 1, 1, 1, 1, 1, 1, 1]),
            flush_every: match flushes.weighted(&[6, 1, 1, 1, 1]) {
                0 => 0,
                1 => 1,
                2 => flushes.range(2, 16) as u16,
                3 => flushes.range(17, 256) as u16,
                _ => flushes.range(257, 2048) as u16,
            },
            fua_percent: if flushes.one_in(8) { flushes.range(1, 100) as u8 } else { 0 },
            arrival: arrival(&mut rng(Feature::Arrival)),
            streams,
            pauses: pauses(&mut rng(Feature::Pauses)),
        };
        drawn.bound_moved();
        drawn
    }

    /// Whether requests come at times of their own.
    pub fn is_open(&self) -> bool {
        matches!(self.arrival, Arrival::Open { .. })
    }

    /// The same, with one feature drawn anew.
    #[must_use]
    pub(super) fn mutated(&self, rng: &mut Rng) -> Workload {
        let other = Workload::drawn(rng.next_u64(), Some(&(self.fast.clone(), self.slow.clone())));
        let mut changed = self.clone();
        match rng.below(8) {
            0 => (changed.fast_bytes, changed.slow_bytes) = (other.fast_bytes, other.slow_bytes),
            1 => (changed.fill_percent, changed.fill_shuffled) = (other.fill_percent, other.fill_shuffled),
            2 => changed.turn = other.turn,
            3 => (changed.flush_every, changed.fua_percent) = (other.flush_every, other.fua_percent),
            4 => changed.arrival = other.arrival,
            5 => changed.pauses = other.pauses,
            6 => {
                let (at, with) =
                    (rng.below(self.streams.len() as u64), rng.below(other.streams.len() as u64));
                changed.streams[at as usize] = other.streams[with as usize];
            }
            _ => {
                let at = rng.below(self.streams.len() as u64) as usize;
                let with = other.streams[rng.below(other.streams.len() as u64) as usize];
                mix_streams(&mut changed.streams[at], &with, rng);
            }
        }
        keep_discards_apart(&mut changed.streams);
        changed.bound_moved();
        changed
    }

    /// Fewer requests, where they would move too much.
    fn bound_moved(&mut self) {
        let weights: u64 = self.streams.iter().map(|stream| u64::from(stream.weight)).sum();
        let bytes: u64 =
            self.streams.iter().map(|stream| u64::from(stream.weight) * u64::from(stream.bytes)).sum();
        let most = MOST_MOVED_BYTES / (bytes / weights.max(1)).max(1);
        self.requests = self.requests.min(most.max(1000) as u32);
    }

    /// Reads a workload of one's own.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Workload, String> {
        let workload: Workload = toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        workload.check()?;
        Ok(workload)
    }

    /// As [`Workload::parse`] reads it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers, words and lists of them are TOML")
    }

    fn check(&self) -> Result<(), String> {
        for model in [&self.fast, &self.slow] {
            spec::named(model).map_err(|error| error.to_string())?;
        }
        let within = |what: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("{what} is {value}, not from {least} to {most}")),
        };
        within("fast_bytes", self.fast_bytes, LEAST_FAST_BYTES, MOST_BYTES)?;
        within("slow_bytes", self.slow_bytes, LEAST_SLOW_BYTES, MOST_BYTES)?;
        within("fill_percent", self.fill_percent.into(), 5, 100)?;
        within("requests", self.requests.into(), 100, MAX_REQUESTS.into())?;
        within("turn", self.turn.into(), 1, u16::MAX.into())?;
        within("fua_percent", self.fua_percent.into(), 0, 100)?;
        match self.arrival {
            Arrival::Closed { depth } => within("depth", depth.into(), 1, 4096)?,
            Arrival::Open { load_permille, burst } => {
                within("load_permille", load_permille.into(), 1, 10_000)?;
                within("burst", burst.into(), 1, 4096)?;
            }
        }
        within("the number of streams", self.streams.len() as u64, 1, MAX_STREAMS as u64)?;
        within("the number of pauses", self.pauses.len() as u64, 0, 16)?;
        for pause in &self.pauses {
            within("seconds", pause.seconds.into(), 0, 1_000_000)?;
        }
        self.streams.iter().try_for_each(StreamSpec::check)?;
        let mut apart = self.streams.clone();
        keep_discards_apart(&mut apart);
        match apart == self.streams {
            true => Ok(()),
            false => Err(format!(
                "a stream with discards does not read, and has parts {DISCARDED_FROM} to 1000 of the volume for itself"
            )),
        }
    }

    /// What it is, in a line.
    pub fn what(&self) -> String {
        let fast = self.fast_bytes as f64 * 100.0 / self.slow_bytes as f64;
        let mut what = format!(
            "{} of {:.1} % on {} of {:.1} GiB, {} % full{}; ",
            self.fast,
            fast,
            self.slow,
            self.slow_bytes as f64 / (1u64 << 30) as f64,
            self.fill_percent,
            if self.fill_shuffled { " in random order" } else { "" },
        );
        what += &match self.arrival {
            Arrival::Closed { depth } => format!("{depth} in flight"),
            Arrival::Open { load_permille, burst: 1 } => {
                format!("open at {:.1} % of static", f64::from(load_permille) / 10.0)
            }
            Arrival::Open { load_permille, burst } => {
                format!("open at {:.1} % of static in bursts of {burst}", f64::from(load_permille) / 10.0)
            }
        };
        for stream in &self.streams {
            what += &format!("; {}", stream.what());
        }
        if self.streams.len() > 1 {
            what += &format!("; turns of {}", self.turn);
        }
        if self.flush_every > 0 {
            what += &format!("; a flush after {}", self.flush_every);
        }
        if self.fua_percent > 0 {
            what += &format!("; {} % FUA", self.fua_percent);
        }
        for pause in &self.pauses {
            what += &format!("; {} s of rest", pause.seconds);
            what += if pause.reopen.is_some() { " and opened again" } else { "" };
        }
        what
    }
}

impl StreamSpec {
    fn check(&self) -> Result<(), String> {
        let bad = |what: String| Err(what);
        if self.read_percent > 100 || self.discard_percent > 100 || self.reuse_percent > 100 {
            return bad("a share is more than 100 of a hundred".into());
        }
        let sectors = u64::from(self.bytes) % SECTOR == 0 && u64::from(self.grid_bytes) % SECTOR == 0;
        if !sectors || self.bytes == 0 || self.grid_bytes == 0 || u64::from(self.bytes) > 4 * MIB {
            return bad(format!(
                "bytes are {} and grid_bytes {}: whole sectors of 512, up to 4 MiB a request",
                self.bytes, self.grid_bytes
            ));
        }
        if self.span_permille == 0 || u32::from(self.from_permille) + u32::from(self.span_permille) > 1000 {
            return bad(format!(
                "a span of {} from {} on is not within a thousand parts",
                self.span_permille, self.from_permille
            ));
        }
        if self.weight == 0 || self.run == 0 {
            return bad("a weight and a run are at least 1".into());
        }
        match self.zipf_eighths <= 32 {
            true => Ok(()),
            false => bad(format!("zipf_eighths is {}, not from 0 to 32", self.zipf_eighths)),
        }
    }

    fn what(&self) -> String {
        let size = match self.bytes {
            bytes if bytes % 1024 == 0 => format!("{} KiB", bytes / 1024),
            bytes => format!("{bytes} B"),
        };
        let run = match self.run {
            FOR_EVER => ", in order".to_owned(),
            1 => String::new(),
            run => format!(", runs of {run}"),
        };
        let zipf = match self.zipf_eighths {
            0 => String::new(),
            eighths => format!(", zipf {}", f64::from(eighths) / 8.0),
        };
        let shift = match self.shift_sectors {
            0 => String::new(),
            sectors => format!(", {sectors} sectors off"),
        };
        let more: String = [
            (self.reuse_percent, "% reuse"),
            (self.discard_percent, "% discards"),
            (self.drift_permille.min(255) as u8, "permille drift"),
        ]
        .into_iter()
        .filter(|(value, _)| *value > 0)
        .map(|(value, of)| format!(", {value} {of}"))
        .collect();
        format!(
            "{size} {} % reads over {:.1} %{run}{zipf}{shift}{more}",
            self.read_percent,
            f64::from(self.span_permille) / 10.0
        )
    }
}

fn sizes(rng: &mut Rng) -> (u64, u64) {
    let slow = match rng.one_in(20) {
        true => rng.range(8 << 10, 32 << 10),
        false => rng.range(512, 4096),
    } * MIB;
    // In even steps of the ratio: a fiftieth is drawn as often as a half.
    let steps = [20, 30, 50, 75, 100, 150, 200, 250, 350, 500];
    let fast = slow / 1000 * rng.pick(&steps);
    ((fast / MIB * MIB).max(LEAST_FAST_BYTES), slow)
}

fn arrival(rng: &mut Rng) -> Arrival {
    if rng.one_in(2) {
        return Arrival::Closed { depth: 1 << rng.below(6) };
    }
    Arrival::Open {
        load_permille: rng.pick(&[20, 50, 100, 200, 300, 400, 500, 600, 700, 800]),
        burst: match rng.weighted(&[4, 2, 2, 1]) {
            0 => 1,
            1 => 1 << rng.range(1, 5),
            2 => 1 << rng.range(6, 9),
            _ => 1 << rng.range(10, 12),
        },
    }
}

fn pauses(rng: &mut Rng) -> Vec<Pause> {
    use crate::scenario::Reopen;
    if !rng.one_in(4) {
        return Vec::new();
    }
    let pause = |rng: &mut Rng| Pause {
        seconds: rng.pick(&[1, 5, 30, 120, 600]),
        reopen: rng.one_in(5).then(|| if rng.one_in(2) { Reopen::Kill } else { Reopen::Close }),
    };
    (0..rng.range(1, 3)).map(|_| pause(rng)).collect()
}

fn stream(rng: &mut Rng) -> StreamSpec {
    let bytes = match rng.weighted(&[1, 8, 1]) {
        0 => 512 << rng.below(3),
        1 => 4096 << rng.below(9),
        _ => rng.range(1, 2048) as u32 * 512,
    };
    let span_permille = rng.pick(&[5, 10, 20, 50, 100, 200, 400, 700, 1000]);
    let run = match rng.weighted(&[4, 3, 1, 2]) {
        0 => 1,
        1 => rng.range(2, 16) as u32,
        2 => rng.range(17, 256) as u32,
        _ => FOR_EVER,
    };
    let read_percent = match rng.weighted(&[2, 2, 3]) {
        0 => 0,
        1 => 100,
        _ => rng.range(5, 95) as u8,
    };
    StreamSpec {
        weight: rng.range(1, 8) as u16,
        read_percent,
        discard_percent: 0,
        bytes,
        from_permille: rng.range(0, 1000 - u64::from(span_permille)) as u16,
        span_permille,
        grid_bytes: match rng.weighted(&[3, 2, 1, 1]) {
            0 => bytes,
            1 => bytes.max(4096),
            2 => bytes.next_multiple_of(128 << 10),
            _ => 512,
        },
        shift_sectors: match rng.weighted(&[6, 1, 1, 2, 1]) {
            0 => 0,
            1 => 63,
            2 => rng.range(1, 7) as u8,
            3 => rng.range(1, 31) as u8 * 8,
            _ => rng.range(0, 255) as u8,
        },
        run,
        zipf_eighths: rng.pick(&[0, 0, 0, 4, 6, 8, 9, 10, 11]),
        clustered: rng.one_in(2),
        reuse_percent: rng.pick(&[0, 0, 0, 20, 50, 80]),
        drift_permille: rng.pick(&[0, 0, 0, 5, 20, 100]),
    }
}

/// The part of the volume that belongs to streams with discards begins here, of a thousand parts.
const DISCARDED_FROM: u16 = 900;

fn set_discards(streams: &mut [StreamSpec], rng: &mut Rng) {
    if rng.one_in(10)
        && let Some(one) = streams.iter_mut().find(|stream| stream.read_percent < 50)
    {
        one.discard_percent = rng.pick(&[5, 20, 50]);
    }
    keep_discards_apart(streams);
}

/// What is discarded nobody reads: such streams read nothing themselves, and keep to a part of their own.
fn keep_discards_apart(streams: &mut [StreamSpec]) {
    if streams.iter().all(|stream| stream.discard_percent == 0) {
        return;
    }
    for stream in streams {
        if stream.discard_percent > 0 {
            stream.read_percent = 0;
            stream.from_permille = stream.from_permille.clamp(DISCARDED_FROM, 999);
            stream.span_permille = stream.span_permille.min(1000 - stream.from_permille);
        } else {
            stream.from_permille = stream.from_permille.min(DISCARDED_FROM - 1);
            stream.span_permille = stream.span_permille.min(DISCARDED_FROM - stream.from_permille);
        }
    }
}

/// Takes one of the other's features.
fn mix_streams(stream: &mut StreamSpec, other: &StreamSpec, rng: &mut Rng) {
    match rng.below(8) {
        0 => stream.read_percent = other.read_percent,
        1 => stream.bytes = other.bytes,
        2 => (stream.from_permille, stream.span_permille) = (other.from_permille, other.span_permille),
        3 => stream.grid_bytes = other.grid_bytes,
        4 => stream.shift_sectors = other.shift_sectors,
        5 => stream.run = other.run,
        6 => (stream.zipf_eighths, stream.clustered) = (other.zipf_eighths, other.clustered),
        _ => {
            (stream.reuse_percent, stream.drift_permille) = (other.reuse_percent, other.drift_permille);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is drawn, and what is made of it, keeps to the rules of the grammar, and survives being written down.
    #[test]
    fn what_is_drawn_can_be_written_down() {
        let mut rng = Rng::new(1, 1);
        for seed in 0..2000 {
            let drawn = Workload::drawn(seed, None);
            for workload in [drawn.mutated(&mut rng), drawn] {
                assert_eq!(Workload::parse(&workload.to_toml()).as_ref(), Ok(&workload), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_seed_means_the_same_workload() {
        assert_eq!(Workload::drawn(7, None), Workload::drawn(7, None));
        let other = ("nvme-present".to_owned(), "disk-1tb-2012".to_owned());
        let on_others = Workload::drawn(7, Some(&other));
        let here = Workload::drawn(7, None);
        assert_eq!((on_others.fast, on_others.slow), other);
        assert_eq!(on_others.streams, here.streams);
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        let good = Workload::drawn(3, None).to_toml();
        let wrongs = [
            ("fast_bytes = ", "fast_bytes = 99999"),
            ("requests = ", "requests = 9000"),
            ("fast = \"", "fast = \"no "),
            ("from_permille = ", "from_permille = 65000 # "),
            ("fill_percent = ", "fill_percent = 1 # "),
        ];
        for (from, to) in wrongs {
            let wrong = good.replacen(from, to, 1);
            assert!(Workload::parse(&wrong).is_err_and(|why| why.len() > 10), "{wrong}");
        }
    }
}
