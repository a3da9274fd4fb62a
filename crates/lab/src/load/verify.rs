//! What a job has written and not read back yet: by part of the target, which of its writes is the newest there.

use super::stamp;
use crate::job::{Job, Order, gcd, side};
use std::collections::BTreeMap;
use std::ops::Range;

/// Parts of a chunk of the table.
const CHUNK_PARTS: u64 = 1 << 16;
/// Chunks at most, 256 MiB: 256 GiB of blocks of 4 KiB.
const MOST_CHUNKS: usize = 1 << 10;

/// The newest writes, and those that are in flight.
pub(super) struct Written {
    seed: u64,
    /// No write begins or ends within a part.
    part_bytes: u64,
    /// By the number of the chunk: which write each part is of, counted from the first as 1; 0 for none.
    chunks: BTreeMap<u64, Box<[u32]>>,
    /// The number of the first write that the table may hold.
    first_number: u64,
    last_number: u64,
    /// The part that is looked at next, for what is to be read back.
    next_part: u64,
    /// Writes and discards in flight: by where they begin, where they end; they do not overlap. And by their numbers,
    /// where they begin.
    in_flight: BTreeMap<u64, u64>,
    begins: BTreeMap<u64, u64>,
}

impl Written {
    /// Of a job that has written nothing yet.
    pub(super) fn new(job: &Job) -> Written {
        Written {
            seed: job.seed,
            part_bytes: part_bytes(job),
            chunks: BTreeMap::new(),
            first_number: 0,
            last_number: 0,
            next_part: 0,
            in_flight: BTreeMap::new(),
            begins: BTreeMap::new(),
        }
    }

    /// Whether a range has a part in common with a write or a discard that is in flight. Which of two such is done last,
    /// no target promises.
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.in_flight.range(..range.end).next_back();
        before.is_some_and(|(_, &end)| end > range.start)
    }

    /// A write or a discard is begun as the job's n-th I/O; it overlaps none that is in flight.
    pub(super) fn begun(&mut self, range: &Range<u64>, number: u64) {
        self.in_flight.insert(range.start, range.end);
        self.begins.insert(number, range.start);
    }

    /// The job's n-th I/O has ended.
    pub(super) fn ended(&mut self, number: u64) {
        if let Some(start) = self.begins.remove(&number) {
            self.in_flight.remove(&start);
        }
    }

    /// A range is written as the job's n-th I/O.
    pub(super) fn note(&mut self, range: &Range<u64>, number: u64) {
        if self.chunks.is_empty() {
            self.first_number = number;
        }
        self.last_number = number;
        let of = u32::try_from(number - self.first_number + 1).unwrap_or(u32::MAX);
        self.each(range, |part| *part = of);
    }

    /// A range is discarded: what it reads as is not known.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        if !self.chunks.is_empty() {
            self.each(range, |part| *part = 0);
        }
    }

    fn each(&mut self, range: &Range<u64>, mut put: impl FnMut(&mut u32)) {
        for part in range.start / self.part_bytes..range.end.div_ceil(self.part_bytes) {
            let chunk = self.chunks.entry(part / CHUNK_PARTS);
            let chunk = chunk.or_insert_with(|| vec![0; CHUNK_PARTS as usize].into_boxed_slice());
            put(&mut chunk[(part % CHUNK_PARTS) as usize]);
        }
    }

    /// The table can take no more: what it holds is to be read back first.
    pub(super) fn is_full(&self) -> bool {
        self.chunks.len() >= MOST_CHUNKS || self.last_number - self.first_number >= u64::from(u32::MAX - 1)
    }

    /// The next range that is wholly of one write, ascending.
    pub(super) fn next_back(&mut self) -> Option<Range<u64>> {
        let (start, of) = self.first_from(self.next_part)?;
        let mut end = start + 1;
        while self.at(end) == of {
            end += 1;
        }
        self.next_part = end;
        Some(start * self.part_bytes..end * self.part_bytes)
    }

    fn first_from(&self, part: u64) -> Option<(u64, u32)> {
        let chunks = self.chunks.range(part / CHUNK_PARTS..);
        chunks
            .flat_map(|(&n, chunk)| {
                let skip = part.saturating_sub(n * CHUNK_PARTS).min(CHUNK_PARTS);
                let parts = chunk.iter().enumerate().skip(skip as usize);
                parts.map(move |(at, &of)| (n * CHUNK_PARTS + at as u64, of))
            })
            .find(|(_, of)| *of > 0)
    }

    /// Which write a part is of.
    fn at(&self, part: u64) -> u32 {
        self.chunks.get(&(part / CHUNK_PARTS)).map_or(0, |chunk| chunk[(part % CHUNK_PARTS) as usize])
    }

    /// All of it was read back.
    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.next_part = 0;
    }

    /// Fills what is written from an offset on as the job's n-th I/O.
    pub(super) fn fill(&self, bytes: &mut [u8], offset: u64, number: u64) {
        for (part, at) in self.parts(offset).zip(bytes.chunks_mut(self.part_bytes as usize)) {
            stamp::fill(at, self.seed, part, number);
        }
    }

    /// Whether what was read from an offset on is what was written there last.
    pub(super) fn is_there(&self, bytes: &[u8], offset: u64) -> bool {
        self.parts(offset).zip(bytes.chunks(self.part_bytes as usize)).all(|(part, bytes)| {
            let of = self.at(part / self.part_bytes);
            of == 0 || stamp::is_filled(bytes, self.seed, part, self.first_number + u64::from(of) - 1)
        })
    }

    fn parts(&self, offset: u64) -> impl Iterator<Item = u64> + use<> {
        let part_bytes = self.part_bytes;
        (0..).map(move |n: u64| offset + n * part_bytes)
    }
}

/// The largest part within which no write of a job begins or ends.
fn part_bytes(job: &Job) -> u64 {
    let sides = [side::WRITE, side::DISCARD].into_iter().filter(|side| job.sides().any(|one| one == *side));
    let lengths = sides.flat_map(|side| {
        let Order { random_percent, step_bytes } = job.order[side];
        let align = (random_percent > 0).then_some(job.align_bytes[side]);
        let cut = (random_percent > 0 && job.each_once).then(|| job.part_bytes().0);
        let step = Some(step_bytes.unsigned_abs()).filter(|step| *step > 0);
        job.sizes[side].each().into_iter().chain(align).chain(cut).chain(step)
    });
    gcd(lengths.fold(0, gcd), job.span.start).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Ops, Sizes};
    use bimetal_units::rng::Rng;

    fn written(part: u64) -> Written {
        let mut job = Job { ops: Ops::ReadWrite { read_percent: 0 }, ..Job::new("j", 0..1 << 40) };
        (job.sizes, job.align_bytes) = (std::array::from_fn(|_| Sizes::one(part)), [part; 3]);
        Written::new(&job)
    }

    /// Writes of any length over each other, against a list that has the newest of each byte.
    #[test]
    fn all_that_was_written_is_read_back_as_it_was_written_last() {
        const PARTS: u64 = 3 * CHUNK_PARTS;
        for (seed, part) in [(1, 512), (2, 4096), (3, 700), (4, 24)] {
            let (mut written, mut rng) = (written(part), Rng::new(seed, 1));
            let mut newest = vec![0u32; PARTS as usize];
            for number in 10..2000 {
                let len = 1 + rng.below(64);
                let start = rng.below(if number % 2 == 0 { PARTS } else { 4000 } - len);
                newest[start as usize..(start + len) as usize].fill(number);
                written.note(&(start * part..(start + len) * part), u64::from(number));
            }
            let mut back = vec![0u32; PARTS as usize];
            while let Some(range) = written.next_back() {
                let parts = (range.start / part) as usize..(range.end / part) as usize;
                let number = newest[parts.start];
                assert!(newest[parts.clone()].iter().all(|one| *one == number) && number > 0, "{range:?}");
                back[parts].fill(number);
                let mut bytes = vec![0; (range.end - range.start) as usize];
                written.fill(&mut bytes, range.start, number.into());
                assert!(written.is_there(&bytes, range.start), "{range:?}");
                bytes[rng.below(range.end - range.start) as usize] ^= 8;
                assert!(!written.is_there(&bytes, range.start), "{range:?}");
            }
            assert!(back == newest);
            written.clear();
            assert!(written.next_back().is_none());
        }
    }

    #[test]
    fn what_is_in_flight_is_found() {
        let mut written = written(512);
        written.begun(&(4096..8192), 7);
        written.begun(&(16_384..20_480), 8);
        for (range, overlaps) in [
            (0..4096, false),
            (0..4097, true),
            (5000..5001, true),
            (8191..16_384, true),
            (8192..16_384, false),
            (0..1 << 30, true),
            (20_480..20_992, false),
        ] {
            assert_eq!(written.overlaps(&range), overlaps, "{range:?}");
        }
        written.ended(7);
        assert!(!written.overlaps(&(4096..8192)));
    }

    #[test]
    fn no_write_begins_within_a_part() {
        let mut job = Job { ops: Ops::ReadWrite { read_percent: 0 }, ..Job::new("j", 0..1 << 30) };
        job.sizes[side::WRITE] = Sizes::Split(vec![(4096, 1), (6144, 1)]);
        assert_eq!(part_bytes(&job), 2048);
        job.order = [Order { random_percent: 0, step_bytes: -512 }; 3];
        assert_eq!(part_bytes(&job), 512);
        job.sizes[side::WRITE] = Sizes::Range { from: 1000, to: 2500 };
        job.order = [Order::SEQUENTIAL; 3];
        assert_eq!(part_bytes(&job), 500);
    }
}
