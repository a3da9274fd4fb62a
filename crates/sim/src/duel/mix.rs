//! The requests of a workload, and what became of them.

use super::grammar::{Arrival, FOR_EVER, StreamSpec, Workload};
use bimetal_load::{Ask, Next, Source};
use bimetal_models::{Command, Kind};
use bimetal_units::Nanos;
use bimetal_units::rng::{Rng, mix};

const MIB: u64 = 1 << 20;
/// The places that are told apart by how often they are drawn: more are alike.
const MOST_RANKS: u64 = 1 << 14;
/// Runs that may begin again.
const RECENT: usize = 64;

/// A request that was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// When it was meant to begin, or began, since the first; pauses do not count.
    pub(super) at: Nanos,
    /// How long it took; none while it is in flight, and where it failed.
    pub(super) took: Option<Nanos>,
    /// Whether it was a read; none where it was neither a read nor a write.
    pub(super) is_read: Option<bool>,
}

/// What the streams of a workload ask for, one part after the other.
pub(super) struct Mix {
    streams: Vec<Stream>,
    weights: Vec<u32>,
    rng: Rng,
    turn: u16,
    /// Which stream has its turn, and how many of its requests are left in it.
    current: (usize, u16),
    flush_every: u16,
    since_flush: u16,
    fua_percent: u8,
    pace: Option<Pace>,
    /// Requests that are left in this part.
    left: u32,
    asked: Vec<Asked>,
    /// The first request of this part, and when it began on the clock of all parts.
    part: (usize, Nanos),
}

/// When the requests of an open loop come.
struct Pace {
    rng: Rng,
    burst: u16,
    left_in_burst: u16,
    /// Between two bursts on average, nanoseconds.
    gap_ns: u64,
    at: u64,
}

struct Stream {
    spec: StreamSpec,
    /// Bytes: where its span begins, and how long it is.
    from: u64,
    span: u64,
    places: u64,
    ranks: Option<Ranks>,
    /// Where the next request of the run begins within the span.
    cursor: u64,
    left_in_run: u32,
    recent: Vec<u64>,
    asked: u64,
}

/// Zipf's law by a table, in arithmetic that is the same everywhere.
struct Ranks(Vec<u64>);

impl Ranks {
    fn new(count: u64, eighths: u8) -> Ranks {
        let root = |n: f64| n.sqrt().sqrt().sqrt();
        let mut sum = 0.0;
        let weight = |rank: u64| {
            let root = root(rank as f64);
            1.0 / (0..eighths).fold(1.0, |power, _| power * root)
        };
        let sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += weight(rank);
                sum
            })
            .collect();
        Ranks(sums.iter().map(|part| (part / sum * (1u64 << 53) as f64) as u64).collect())
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.below(1 << 53);
        (self.0.partition_point(|&sum| sum <= at) as u64).min(self.0.len() as u64 - 1)
    }
}

impl Stream {
    fn new(spec: StreamSpec, size_bytes: u64, filled_bytes: u64) -> Stream {
        let only_writes = spec.read_percent == 0 && spec.discard_percent == 0;
        let whole = if only_writes { size_bytes } else { filled_bytes };
        let part = |permille: u16| whole / 1000 * u64::from(permille) / MIB * MIB;
        let (grid, bytes) = (u64::from(spec.grid_bytes), u64::from(spec.bytes));
        let need = bytes + u64::from(spec.shift_sectors) * 512;
        // What is too short for one request becomes as long as it must be; away from what is discarded.
        let least = need.next_multiple_of(MIB);
        let (mut from, mut end) = (part(spec.from_permille), part(spec.from_permille + spec.span_permille));
        match spec.discard_percent {
            0 => {
                end = end.max(least);
                from = from.min(end - least);
            }
            _ => {
                from = from.min(whole - least);
                end = end.max(from + least);
            }
        }
        let span = end - from;
        let places = ((span - need) / grid + 1).max(1);
        let ranks = (spec.zipf_eighths > 0).then(|| Ranks::new(places.min(MOST_RANKS), spec.zipf_eighths));
        Stream { spec, from, span, places, ranks, cursor: 0, left_in_run: 0, recent: Vec::new(), asked: 0 }
    }

    fn place(&self, rng: &mut Rng) -> u64 {
        let drawn = match &self.ranks {
            None => rng.below(self.places),
            Some(ranks) => match (ranks.draw(rng), self.spec.clustered) {
                (rank, true) => rank,
                (rank, false) => mix(rank) % self.places,
            },
        };
        let drift = u128::from(self.asked) * u128::from(self.places) * u128::from(self.spec.drift_permille);
        (drawn + (drift / 1_000_000) as u64) % self.places
    }

    /// Where the next request begins.
    fn offset(&mut self, rng: &mut Rng) -> u64 {
        let shift = u64::from(self.spec.shift_sectors) * 512;
        if self.left_in_run == 0 {
            let again = !self.recent.is_empty() && rng.below(100) < u64::from(self.spec.reuse_percent);
            let place = match again {
                true => rng.pick(&self.recent),
                false => self.place(rng),
            };
            match (again, self.recent.len() < RECENT) {
                (true, _) => {}
                (false, true) => self.recent.push(place),
                (false, false) => self.recent[self.asked as usize % RECENT] = place,
            }
            self.cursor = place * u64::from(self.spec.grid_bytes);
            self.left_in_run = self.spec.run;
        }
        if shift + self.cursor + u64::from(self.spec.bytes) > self.span {
            self.cursor = 0;
        }
        let offset = self.from + shift + self.cursor;
        self.cursor += u64::from(self.spec.bytes);
        if self.spec.run != FOR_EVER {
            self.left_in_run -= 1;
        }
        self.asked += 1;
        offset
    }
}

impl Mix {
    /// The requests of a workload on a volume of which so much was filled; `rate` is what 100 % of the load are, requests
    /// a second.
    pub(super) fn new(workload: &Workload, seed: u64, size_bytes: u64, filled_bytes: u64, rate: f64) -> Mix {
        let streams: Vec<Stream> =
            workload.streams.iter().map(|&spec| Stream::new(spec, size_bytes, filled_bytes)).collect();
        let pace = match workload.arrival {
            Arrival::Closed { .. } => None,
            Arrival::Open { load_permille, burst } => Some(Pace {
                rng: Rng::new(seed, 2),
                burst,
                left_in_burst: burst,
                gap_ns: (f64::from(burst) * 1e12 / (rate * f64::from(load_permille))) as u64,
                at: 0,
            }),
        };
        Mix {
            weights: workload.streams.iter().map(|stream| stream.weight.into()).collect(),
            streams,
            rng: Rng::new(seed, 1),
            turn: workload.turn,
            current: (0, 0),
            flush_every: workload.flush_every,
            since_flush: 0,
            fua_percent: workload.fua_percent,
            pace,
            left: 0,
            asked: Vec::new(),
            part: (0, Nanos(0)),
        }
    }

    /// So many requests more, at a time of the clock of all parts.
    pub(super) fn begin_part(&mut self, requests: u32, at: Nanos) {
        self.left = requests;
        self.part = (self.asked.len(), at);
        if let Some(pace) = &mut self.pace {
            (pace.at, pace.left_in_burst) = (0, pace.burst);
        }
    }

    /// What has become of all requests.
    pub(super) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    fn command(&mut self) -> Command {
        if self.flush_every > 0 && self.since_flush >= self.flush_every {
            self.since_flush = 0;
            return Command { kind: Kind::Flush, offset: 0, len: 0 };
        }
        self.since_flush += 1;
        self.left -= 1;
        if self.current.1 == 0 {
            self.current = (self.rng.weighted(&self.weights), self.turn);
        }
        self.current.1 -= 1;
        let stream = &mut self.streams[self.current.0];
        let spec = stream.spec;
        let offset = stream.offset(&mut self.rng);
        let mut hit = |percent: u8| percent > 0 && self.rng.below(100) < u64::from(percent);
        let kind = if hit(spec.read_percent) {
            Kind::Read
        } else if hit(spec.discard_percent) {
            Kind::Discard
        } else {
            Kind::Write { fua: hit(self.fua_percent) }
        };
        Command { kind, offset, len: u64::from(spec.bytes) }
    }
}

impl Pace {
    fn next(&mut self) -> u64 {
        if self.left_in_burst == 0 {
            self.left_in_burst = self.burst;
            self.at += self.rng.range(self.gap_ns / 2, self.gap_ns + self.gap_ns / 2);
        }
        self.left_in_burst -= 1;
        self.at
    }
}

impl Source for Mix {
    fn next(&mut self, now: u64, _: &mut Rng) -> Next {
        if self.left == 0 {
            return Next::End;
        }
        let at = self.pace.as_mut().map(Pace::next);
        let command = self.command();
        let is_read = match command.kind {
            Kind::Read => Some(true),
            Kind::Write { .. } => Some(false),
            Kind::Flush | Kind::Sync | Kind::Discard => None,
        };
        let begun = self.part.1.after(at.unwrap_or(now));
        self.asked.push(Asked { at: begun, took: None, is_read });
        Next::Ask(Ask { at, command })
    }

    fn ended(&mut self, number: u64, now: u64, done: bool) {
        let (first, began) = self.part;
        let asked = &mut self.asked[first + number as usize];
        asked.took = done.then(|| Nanos(began.after(now).since(asked.at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is drawn, each request lies within the volume, and what is read was filled and is never discarded.
    #[test]
    fn requests_keep_to_what_they_may_touch() {
        let (size, filled) = (1 << 30, 600 << 20);
        for seed in 0..300 {
            let workload = Workload::drawn(seed, None);
            let mut mix = Mix::new(&workload, seed, size, filled, 1000.0);
            mix.begin_part(2000, Nanos(0));
            let mut discarded = u64::MAX;
            let mut reads_to = 0;
            let mut rng = Rng::new(0, 0);
            while let Next::Ask(Ask { command, .. }) = mix.next(0, &mut rng) {
                let end = command.offset + command.len;
                assert!(end <= size, "seed {seed}: {command:?}");
                match command.kind {
                    Kind::Read => reads_to = reads_to.max(end),
                    Kind::Discard => discarded = discarded.min(command.offset),
                    _ => {}
                }
            }
            assert!(reads_to <= filled && reads_to <= discarded, "seed {seed}: {reads_to} {discarded}");
        }
    }

    #[test]
    fn the_first_of_many_is_drawn_as_often_as_the_law_says() {
        let ranks = Ranks::new(1000, 8);
        let mut rng = Rng::new(1, 1);
        let first = (0..100_000).filter(|_| ranks.draw(&mut rng) == 0).count();
        // One part in the sum of 1/n up to 1000, which is 7.485.
        assert!((12_800..13_900).contains(&first), "{first}");
    }
}
