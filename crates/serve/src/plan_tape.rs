//! What was asked of a volume in the last day, for `plan`: of a sample of its regions, in bounded memory.
//!
//! A region is in the sample when the hash of its number is small enough. Where the tape is full, half of the sample goes,
//! what they were asked for as well; so all that is left is what was asked of the same regions all the time. What is left out
//! is counted with the next request that is not: a plan has to know who else used the devices, and when. Beside them stands how
//! long answers took, to all regions: what the plan says of the present is to be that.

mod responses;

pub use responses::Answered;

use bimetal_engine::action::{MAX_PAYLOAD_BYTES, RequestKind};
use bimetal_units::Nanos;
use bimetal_units::rng::mix;
use responses::Responses;
use std::io;

/// Bytes of a region, which is in the sample or is not.
pub const REGION_BYTES: u64 = 1 << 20;
/// Bytes of an entry, in memory and on the socket.
pub const ENTRY_BYTES: usize = 24;
/// What a server keeps, unless somebody says otherwise: some 350,000 requests.
pub const TAPE_BYTES: u64 = 8 << 20;
/// What it keeps where its memory is limited and nobody says.
pub const SMALL_TAPE_BYTES: u64 = 1 << 20;
/// What is older is forgotten where there is no room.
const WINDOW: Nanos = Nanos(86_400 * Nanos::SECOND);
/// A sample of fewer regions is not halved: with half of them, hit shares were more than two points off.
const LEAST_REGIONS: u64 = 4096;
/// The fast tier must have so much to each sample of it: of a smaller one, a volume needs most for itself.
const LEAST_FAST_BYTES: u64 = 256 << 20;
/// Where nothing is in the sample, those who came are noted so often at most.
const STEP: Nanos = Nanos(Nanos::SECOND);
/// Regions of a request at most: only discards and writes of zeros are larger, of whole drives, and are not noted.
const MOST_REGIONS: u64 = 64;
const _: () = assert!(MAX_PAYLOAD_BYTES / REGION_BYTES < MOST_REGIONS);
/// Places by which the regions of a sample are counted.
const PLACES: usize = 1 << 16;

const OTHERS_BITS: u32 = 28;
const MOST_OTHERS: u32 = (1 << OTHERS_BITS) - 1;
const FUA: u32 = 1 << OTHERS_BITS;
const KIND_SHIFT: u32 = OTHERS_BITS + 1;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const ZEROES: u32 = 4;
/// It only says how many were left out.
const NOBODY: u32 = 7;

/// What one request asked of one region of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taped {
    /// When it came.
    pub at: Nanos,
    /// What was asked for; none where this only says how many were left out.
    pub kind: Option<RequestKind>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u32,
    /// Parts of requests, by region, that were left out since the entry before.
    pub others: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    at: Nanos,
    offset: u64,
    bytes: u32,
    /// Its kind, and others.
    rest: u32,
}

impl Entry {
    fn is_flush(&self) -> bool {
        self.rest >> KIND_SHIFT == FLUSH
    }

    fn is_read(&self) -> bool {
        self.rest >> KIND_SHIFT == READ
    }

    /// Whether it is of a request to the sample.
    fn is_seen(&self) -> bool {
        self.bytes > 0
    }

    fn others(&self) -> u32 {
        self.rest & MOST_OTHERS
    }

    fn with_others(self, others: u32) -> Entry {
        Entry { rest: self.rest & !MOST_OTHERS | others.min(MOST_OTHERS), ..self }
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..8].copy_from_slice(&self.at.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        out[20..].copy_from_slice(&self.rest.to_le_bytes());
        out
    }
}

/// A kind as it stands in an entry.
fn noted(kind: RequestKind) -> u32 {
    let (number, fua) = match kind {
        RequestKind::Read => (READ, false),
        RequestKind::Write { fua } => (WRITE, fua),
        RequestKind::Flush => (FLUSH, false),
        RequestKind::Discard { fua } => (DISCARD, fua),
        RequestKind::WriteZeroes { fua } => (ZEROES, fua),
    };
    number << KIND_SHIFT | if fua { FUA } else { 0 }
}

impl Taped {
    /// What the bytes of an entry say; none where they make no sense.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Taped> {
        let long = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[at + byte]));
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let (rest, length) = (word(20), word(16));
        let fua = rest & FUA != 0;
        let kind = match rest >> KIND_SHIFT {
            READ if !fua => Some(RequestKind::Read),
            WRITE => Some(RequestKind::Write { fua }),
            FLUSH if !fua => Some(RequestKind::Flush),
            DISCARD => Some(RequestKind::Discard { fua }),
            ZEROES => Some(RequestKind::WriteZeroes { fua }),
            NOBODY if !fua => None,
            _ => return None,
        };
        let (at, offset) = (Nanos(long(0)), long(8));
        let has_place = !matches!(kind, None | Some(RequestKind::Flush));
        // A place has bytes that end somewhere, and what has none has none.
        let is_sound = if has_place { length > 0 } else { length == 0 && offset == 0 };
        let ends = offset.checked_add(u64::from(length)).is_some_and(|end| end <= i64::MAX as u64);
        (is_sound && ends).then_some(Taped { at, kind, offset, bytes: length, others: rest & MOST_OTHERS })
    }
}

/// A sample in which regions are whose hash is at most this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit(u64);

impl Limit {
    const ALL: Limit = Limit(u64::MAX);

    fn has(self, region: u64) -> bool {
        mix(region) <= self.0
    }

    fn share(self) -> f64 {
        (self.0 as f64 + 1.0) / 2f64.powi(64)
    }

    fn halved(self) -> Limit {
        Limit(self.0 >> 1)
    }

    fn doubled(self) -> Limit {
        Limit(self.0 << 1 | 1)
    }
}

/// The tape of a volume.
pub struct PlanTape {
    entries: Vec<Entry>,
    most: usize,
    limit: Limit,
    /// Until then the sample was smaller, and how small.
    smaller: Option<(Nanos, Limit)>,
    least_share: f64,
    /// Left out since the last entry.
    others: u32,
    /// Something of the sample was changed since the last flush.
    unflushed: bool,
    step_ns: u64,
    responses: Responses,
}

impl PlanTape {
    /// A tape of so much memory, of a volume with such a fast tier. Too little for anything is none.
    pub fn new(memory_bytes: u64, fast_bytes: u64) -> Option<PlanTape> {
        let most = usize::try_from(memory_bytes).ok()? / ENTRY_BYTES;
        if most < 16 {
            return None;
        }
        // Whoever only comes must not fill more than a quarter of a day's tape.
        let step_ns = (WINDOW.0 / (most as u64 / 4)).max(STEP.0);
        Some(PlanTape {
            entries: Vec::with_capacity(most),
            most,
            limit: Limit::ALL,
            smaller: None,
            least_share: LEAST_FAST_BYTES as f64 / fast_bytes.max(1) as f64,
            others: 0,
            unflushed: false,
            step_ns,
            responses: Responses::default(),
        })
    }

    /// A request has come.
    pub fn note(&mut self, now: Nanos, kind: RequestKind, offset: u64, length: u64) {
        if kind == RequestKind::Flush {
            // Nobody has to wait for what was not written.
            if std::mem::take(&mut self.unflushed) {
                self.push(now, noted(kind), (0, 0));
            }
            return;
        }
        let end = offset.saturating_add(length);
        let regions = offset / REGION_BYTES..end.div_ceil(REGION_BYTES);
        if regions.end - regions.start > MOST_REGIONS {
            return;
        }
        for region in regions {
            if !self.limit.has(region) {
                self.others = self.others.saturating_add(1);
                continue;
            }
            let from = offset.max(region * REGION_BYTES);
            let bytes = end.min((region + 1) * REGION_BYTES) - from;
            self.push(now, noted(kind), (from, bytes as u32));
            self.unflushed |= kind != RequestKind::Read;
        }
        let last = self.entries.last().map_or(Nanos(0), |entry| entry.at);
        if self.others > 0 && now.since(last) >= self.step_ns {
            self.push(now, NOBODY << KIND_SHIFT, (0, 0));
        }
    }

    /// A read or a write was answered, after so long.
    pub fn answered(&mut self, now: Nanos, took_ns: u64) {
        self.responses.answered(now, took_ns, self.first(now));
    }

    /// When it begins.
    fn first(&self, now: Nanos) -> Nanos {
        self.entries.first().map_or(now, |entry| entry.at)
    }

    fn push(&mut self, at: Nanos, kind: u32, (offset, bytes): (u64, u32)) {
        if self.entries.len() >= self.most {
            self.make_room(at);
            if bytes > 0 && !self.limit.has(offset / REGION_BYTES) {
                self.others = self.others.saturating_add(1);
                return;
            }
        }
        let others = std::mem::take(&mut self.others).min(MOST_OTHERS);
        self.entries.push(Entry { at, offset, bytes, rest: kind | others });
    }

    /// Forgets what is too old; or else takes a smaller sample, or one of a shorter time.
    fn make_room(&mut self, now: Nanos) {
        let begin = Nanos(now.0.saturating_sub(WINDOW.0));
        let old = self.entries.partition_point(|entry| entry.at < begin);
        if old >= self.most / 8 {
            self.entries.drain(..old);
            if self.smaller.is_some_and(|(until, _)| until <= begin) {
                self.smaller = None;
            }
            if self.entries.len() < self.most / 4 && self.limit != Limit::ALL && self.smaller.is_none() {
                self.smaller = Some((now, self.limit));
                self.limit = self.limit.doubled();
            }
        } else if self.limit.share() / 2.0 >= self.least_share && regions(&self.entries) >= LEAST_REGIONS {
            self.limit = self.limit.halved();
            self.others = self.others.saturating_add(reduce(&mut self.entries, self.limit));
        }
        if self.entries.len() > self.most / 4 * 3 {
            self.entries.drain(..self.most / 4);
        }
    }

    /// What it has, to be handed over.
    pub fn shot(&self, now: Nanos) -> TapeShot {
        let first = self.first(now);
        let smaller = self.smaller.filter(|(until, _)| first < *until);
        let limit = smaller.map_or(self.limit, |(_, limit)| limit);
        let answered = self.responses.since(first);
        TapeShot { entries: self.entries.clone(), others: self.others, limit, now, answered }
    }
}

/// About how many regions are asked for something: exact enough for a bound, in little memory.
fn regions(entries: &[Entry]) -> u64 {
    let mut places = vec![0u64; PLACES / 64];
    for entry in entries.iter().filter(|entry| entry.is_seen()) {
        // The hash that chooses has all its upper bits alike here.
        let place = (mix(entry.offset / REGION_BYTES) % PLACES as u64) as usize;
        places[place / 64] |= 1 << (place % 64);
    }
    let free: u32 = places.iter().map(|places| places.count_zeros()).sum();
    let all = PLACES as f64;
    (all * (all / f64::from(free.max(1))).ln()) as u64
}

/// Takes out what is not in a smaller sample; how many were left out behind the last one that stays.
fn reduce(entries: &mut Vec<Entry>, limit: Limit) -> u32 {
    let (mut others, mut unflushed, mut kept) = (0u32, false, 0);
    for place in 0..entries.len() {
        let entry = entries[place];
        others = others.saturating_add(entry.others());
        let stays = match entry.is_seen() {
            true => limit.has(entry.offset / REGION_BYTES),
            false if entry.is_flush() => std::mem::take(&mut unflushed),
            false => true,
        };
        if !stays {
            others = others.saturating_add(u32::from(entry.is_seen()));
            continue;
        }
        unflushed |= entry.is_seen() && !entry.is_read();
        entries[kept] = entry.with_others(std::mem::take(&mut others));
        kept += 1;
    }
    entries.truncate(kept);
    others
}

/// What a tape had at a time.
pub struct TapeShot {
    entries: Vec<Entry>,
    others: u32,
    limit: Limit,
    now: Nanos,
    answered: Answered,
}

impl TapeShot {
    /// Takes out what is only of the last part of the time; what is said of the rest.
    pub fn finish(&mut self) -> TapeFacts {
        self.others = self.others.saturating_add(reduce(&mut self.entries, self.limit));
        TapeFacts {
            entries: self.entries.len() as u64,
            share: self.limit.share(),
            others_after: self.others,
            until: self.now,
            answered: self.answered,
        }
    }

    /// Writes the entries, as many as was said.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, out: &mut impl io::Write) -> io::Result<()> {
        self.entries.iter().try_for_each(|entry| out.write_all(&entry.encode()))
    }
}

/// What is to be known of a tape beside its entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TapeFacts {
    /// How many there are.
    pub entries: u64,
    /// The part of all regions that is in the sample; 1 where all are.
    pub share: f64,
    /// Parts of requests that were left out since the last entry.
    pub others_after: u32,
    /// When it was taken.
    pub until: Nanos,
    /// Reads and writes that were answered in its time, of all regions.
    pub answered: Answered,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_units::rng::Rng;

    const MIB: u64 = 1 << 20;

    fn taken(tape: &PlanTape, now: Nanos) -> (TapeFacts, Vec<Taped>) {
        let mut shot = tape.shot(now);
        let (facts, mut bytes) = (shot.finish(), Vec::new());
        shot.write(&mut bytes).expect("memory takes it");
        let (entries, rest) = bytes.as_chunks::<ENTRY_BYTES>();
        assert!(rest.is_empty());
        let entries = entries.iter().map(|entry| Taped::decode(entry).expect("an entry")).collect();
        (facts, entries)
    }

    /// Asks for something of one of so many regions, and counts its parts.
    fn ask(tape: &mut PlanTape, rng: &mut Rng, now: Nanos, regions: u64) -> u64 {
        let kind = match rng.below(8) {
            0..4 => RequestKind::Read,
            4..6 => RequestKind::Write { fua: false },
            6 => RequestKind::Write { fua: true },
            _ => RequestKind::Flush,
        };
        let (offset, length) = (rng.below(regions * 256) * 4096, 4096 << rng.below(9));
        tape.note(now, kind, offset, length);
        match kind {
            RequestKind::Flush => 0,
            _ => (offset + length).div_ceil(MIB) - offset / MIB,
        }
    }

    #[test]
    fn what_is_noted_is_what_is_taken_while_there_is_room() {
        let mut tape = PlanTape::new(1 << 20, 1 << 30).expect("a tape");
        tape.note(Nanos(5), RequestKind::Flush, 0, 0);
        tape.note(Nanos(7), RequestKind::Read, 3 * MIB - 512, 1024);
        tape.note(Nanos(8), RequestKind::Write { fua: true }, 4096, 512);
        tape.note(Nanos(9), RequestKind::Flush, 0, 0);
        tape.note(Nanos(9), RequestKind::Flush, 0, 0);
        tape.note(Nanos(10), RequestKind::Discard { fua: false }, 0, 1 << 40);
        tape.note(Nanos(11), RequestKind::WriteZeroes { fua: false }, 0, MIB);
        tape.answered(Nanos(11), 4);
        tape.answered(Nanos(12), 3);
        let (facts, entries) = taken(&tape, Nanos(12));
        let answered = Answered { count: 2, took_ns: 7 };
        assert_eq!(facts, TapeFacts { entries: 5, share: 1.0, others_after: 0, until: Nanos(12), answered });
        let of = |at: u64, kind, offset, bytes| Taped {
            at: Nanos(at),
            kind: Some(kind),
            offset,
            bytes,
            others: 0,
        };
        let expected = [
            of(7, RequestKind::Read, 3 * MIB - 512, 512),
            of(7, RequestKind::Read, 3 * MIB, 512),
            of(8, RequestKind::Write { fua: true }, 4096, 512),
            of(9, RequestKind::Flush, 0, 0),
            of(11, RequestKind::WriteZeroes { fua: false }, 0, 1 << 20),
        ];
        assert_eq!(entries, expected);
    }

    /// Halved some times, it has all that was asked of its regions, nothing of the others, and their number.
    #[test]
    fn a_full_tape_has_a_smaller_sample_of_all_the_time() {
        let mut tape = PlanTape::new(1 << 20, 1 << 40).expect("a tape");
        let (mut rng, mut parts) = (Rng::new(3, 0), 0);
        for number in 0..400_000u64 {
            parts += ask(&mut tape, &mut rng, Nanos(number * 1_000_000), 100_000);
        }
        let (facts, entries) = taken(&tape, Nanos(400_000 * 1_000_000));
        assert!(facts.share <= 1.0 / 8.0 && tape.entries.len() <= tape.most, "{facts:?}");
        let limit = tape.limit;
        assert!(entries.iter().filter(|entry| entry.bytes > 0).all(|entry| limit.has(entry.offset / MIB)));
        let seen = entries.iter().filter(|entry| entry.bytes > 0).count() as u64;
        let others: u64 = entries.iter().map(|entry| u64::from(entry.others)).sum();
        assert_eq!(seen + others + u64::from(facts.others_after), parts, "nobody is forgotten");
        let of_all = seen as f64 / parts as f64;
        assert!((of_all / facts.share - 1.0).abs() < 0.05, "{of_all} {facts:?}");
        assert!(entries[0].at.0 < 1_000_000_000, "from the beginning");
        assert!(entries.is_sorted_by_key(|entry| entry.at));
        let flushes = entries.iter().filter(|entry| entry.kind == Some(RequestKind::Flush)).count();
        assert!(flushes > 0 && flushes < entries.len() / 2);
    }

    /// Where half of a sample would say too little, or the fast tier be too small for it, what is old goes.
    #[test]
    fn a_sample_that_cannot_be_halved_is_of_a_shorter_time() {
        for (regions, fast_bytes) in [(1000, 1u64 << 40), (100_000, 300 << 20)] {
            let mut tape = PlanTape::new(256 << 10, fast_bytes).expect("a tape");
            let mut rng = Rng::new(5, 0);
            (0..100_000u64).for_each(|number| _ = ask(&mut tape, &mut rng, Nanos(number * 1000), regions));
            let (facts, entries) = taken(&tape, Nanos(100_000_000));
            assert!(facts.share == 1.0 && entries[0].at.0 > 80_000_000, "{facts:?} {:?}", entries[0]);
            assert!(tape.entries.len() >= tape.most / 2);
        }
    }

    /// After a day of much and one of little, the sample is larger; until it has been so for a day, what is taken is not.
    #[test]
    fn a_sample_grows_again_and_is_only_taken_when_it_is_whole() {
        let mut tape = PlanTape::new(256 << 10, 1 << 40).expect("a tape");
        let mut rng = Rng::new(9, 0);
        (0..60_000u64).for_each(|number| _ = ask(&mut tape, &mut rng, Nanos(number * 1000), 100_000));
        let before = tape.limit;
        assert!(before != Limit::ALL);
        let (mut now, mut grew) = (Nanos(WINDOW.0 * 2), None);
        for _ in 0..400_000 {
            now.0 += 30 * Nanos::SECOND;
            ask(&mut tape, &mut rng, now, 100_000);
            let (facts, taken) = (tape.limit.share(), tape.smaller);
            match (grew, taken) {
                (None, Some((at, limit))) => {
                    assert!(limit == before && facts > before.share());
                    assert_eq!(tape.shot(now).limit, before);
                    grew = Some(at);
                }
                (Some(at), None) => {
                    assert!(now.since(at) >= WINDOW.0);
                    assert_eq!(tape.shot(now).limit, tape.limit);
                    return;
                }
                _ => {}
            }
        }
        panic!("it never grew: {grew:?}");
    }

    #[test]
    fn where_nobody_is_seen_it_is_noted_who_came() {
        let mut tape = PlanTape::new(1 << 20, 1 << 40).expect("a tape");
        tape.limit = Limit(0);
        for number in 0..10_000u64 {
            tape.note(Nanos(number * 10_000_000), RequestKind::Read, number * MIB, 4096);
        }
        let (facts, entries) = taken(&tape, Nanos(100 * Nanos::SECOND));
        let others: u64 = entries.iter().map(|entry| u64::from(entry.others)).sum();
        assert!(entries.len() <= 101 && entries.iter().all(|entry| entry.kind.is_none()));
        assert_eq!(others + u64::from(facts.others_after), 10_000);
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_entry() {
        let mut state = Rng::new(11, 0);
        let mut taken = 0;
        for _ in 0..50_000 {
            let mut bytes = [0u8; ENTRY_BYTES];
            bytes.iter_mut().for_each(|byte| *byte = state.below(256) as u8);
            bytes[15] &= state.below(256) as u8;
            if let Some(entry) = Taped::decode(&bytes) {
                taken += 1;
                assert!(entry.offset.checked_add(u64::from(entry.bytes)).is_some());
            }
        }
        assert!(taken > 100 && taken < 45_000, "{taken}");
        assert!(PlanTape::new(0, 1 << 30).is_none());
    }
}
