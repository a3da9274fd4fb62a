//! Whether a target holds something that is not the lab's: looked for before a run that would destroy it.

use crate::load::{LoadTarget, RunError, SlotSpec, is_stamped};
use bimetal_load::{Ask, Io, Next, Source, Stream, Target, Until, Witness};
use bimetal_models::{Command, Kind};
use bimetal_units::rng::Rng;

/// Bytes that are looked at in each place.
const LOOK_BYTES: u64 = 4096;
/// At both ends all of so much is looked at: there file systems, partition tables and volumes have their heads.
const END_BYTES: u64 = 512 << 10;
/// Places between, at even distances: a few seconds of a disk.
const PLACES: u64 = 256;
/// Ranges of data in a sparse file that are looked at one by one: a second of a disk that is slow.
const MAX_RANGES: usize = 1024;
/// Reads in flight.
const DEPTH: u32 = 16;
/// What the lab writes is recognised in sectors of so many bytes.
const SECTOR_BYTES: usize = 512;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeros, or what the lab wrote, wherever it was looked.
    Nothing,
    /// Something else, first here.
    Data {
        /// Its offset.
        offset: u64,
    },
    /// It could not be read, first here.
    Unreadable {
        /// Its offset.
        offset: u64,
    },
}

struct Looks {
    places: std::vec::IntoIter<(u64, u64)>,
    begun: Vec<u64>,
    found: Option<u64>,
    failed: Option<u64>,
}

impl Source for Looks {
    fn next(&mut self, _now: u64, _: &mut Rng) -> Next {
        if self.found.is_some() || self.failed.is_some() {
            return Next::End;
        }
        let Some((offset, len)) = self.places.next() else { return Next::End };
        self.begun.push(offset);
        Next::Ask(Ask { at: None, command: Command { kind: Kind::Read, offset, len } })
    }

    fn ended(&mut self, number: u64, _now: u64, done: bool) {
        if !done {
            self.failed = Some(self.begun[number as usize]);
        }
    }

    fn check(&mut self, _number: u64, command: &Command, bytes: &[u8]) -> bool {
        let ours = |sector: &[u8]| is_stamped(sector) || sector.iter().all(|&byte| byte == 0);
        if !bytes.chunks(SECTOR_BYTES).all(ours) {
            self.found = Some(self.found.map_or(command.offset, |found| found.min(command.offset)));
        }
        true
    }
}

struct Nobody;

impl<T> Witness<T> for Nobody {
    fn ended(&mut self, _io: &Io) {}
}

/// Looks at samples of one place of a target, of so many bytes. Reads are of multiples of `granule` bytes: what is left
/// over at the end, a run that is bound by it cannot write either.
///
/// # Errors
/// When the target has no room for a few reads.
pub fn survey<T: LoadTarget + Target>(
    target: &mut T,
    place: u32,
    size_bytes: u64,
    granule: u64,
) -> Result<Found, RunError> {
    let size_bytes = size_bytes - size_bytes % granule.max(1);
    let blocks = size_bytes.div_ceil(LOOK_BYTES);
    let ends = (END_BYTES / LOOK_BYTES).min(blocks);
    let mut places: Vec<u64> = (0..ends).chain(blocks - ends..blocks).collect();
    places.extend((0..PLACES).map(|n| (u128::from(blocks) * u128::from(n) / u128::from(PLACES)) as u64));
    if let Some(ranges) = target.data(place, MAX_RANGES) {
        // Data that lies alone among holes is in no sample of the whole: so both ends of each range are looked at, and
        // as many places of the data as else of the whole.
        let all: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        for range in &ranges {
            let bytes = range.end - range.start;
            let share = (u128::from(bytes) * u128::from(PLACES)).div_ceil(u128::from(all.max(1))) as u64;
            places.extend((0..share).map(|n| (range.start + bytes / share.max(1) * n) / LOOK_BYTES));
            places.push((range.end - 1) / LOOK_BYTES);
        }
    }
    places.retain(|&place| place < blocks);
    places.sort_unstable();
    places.dedup();
    let look = |number: u64| (number * LOOK_BYTES, LOOK_BYTES.min(size_bytes - number * LOOK_BYTES));
    let places: Vec<(u64, u64)> = places.into_iter().map(look).collect();
    let slot = SlotSpec { bytes: LOOK_BYTES, longest: LOOK_BYTES, random: false, seed: 0 };
    target.prepare(&vec![slot; DEPTH as usize])?;
    let mut looks = Looks { places: places.into_iter(), begun: Vec::new(), found: None, failed: None };
    let stream = Stream { source: &mut looks, depth: DEPTH, place, payload: true };
    bimetal_load::run(target, vec![stream], Until::Dry, u64::MAX, &mut Rng::new(0, 0), &mut Nobody);
    Ok(match (looks.found, looks.failed) {
        (Some(offset), _) => Found::Data { offset },
        (None, Some(offset)) => Found::Unreadable { offset },
        (None, None) => Found::Nothing,
    })
}
