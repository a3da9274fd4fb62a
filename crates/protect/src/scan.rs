//! The ring as a crash, or the loss of the fast device, has left it.

use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Held};
use crate::group::{Entry, Group, Kind};
use crate::header::{Header, Map};
use crate::layout::Layout;
use crate::ring::{Pos, place_of};
use bimetal_engine::format::Id;
use bimetal_units::BLOCK_BYTES;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads bytes of a device, in whole blocks; none where they cannot be read.
pub trait Reader {
    /// So many bytes from there on.
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>>;
}

impl<F: FnMut(u64, u64) -> Option<Vec<u8>>> Reader for F {
    fn read(&mut self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        self(at, bytes)
    }
}

/// The newest header of a volume.
pub fn newest_header(reader: &mut impl Reader, places: [u64; 2], volume: Id) -> Option<Header> {
    let header = |at| reader.read(at, BLOCK).and_then(|block| Header::decode(&block));
    places.map(header).into_iter().flatten().filter(|header| header.volume == volume).max_by_key(|h| h.number)
}

/// The newest map of a volume.
pub(crate) fn newest_map(reader: &mut impl Reader, places: [u64; 2], volume: Id) -> Option<Map> {
    let map = |at| reader.read(at, BLOCK).and_then(|block| Map::decode(&block));
    places.map(map).into_iter().flatten().filter(|map| map.volume == volume).max_by_key(|map| map.number)
}

/// What the ring holds that counts.
pub struct Scanned {
    /// Where it ends.
    pub head: Pos,
    /// What the image has of the fast device in the ring.
    pub(crate) fast: Extents,
    /// What the slow device held at the freeze of the image, where it is another now.
    pub(crate) slow: Extents,
    /// What of that the ring should have and has not, though it is known otherwise.
    pub(crate) unkept: Vec<Unkept>,
}

/// A block that a crash has kept from the ring: the slow device was not written over before that crash.
pub(crate) struct Unkept {
    /// Where it is.
    pub(crate) at: u64,
    /// Where it belongs in the ring.
    pub(crate) ring_at: u64,
}

/// Goes through the ring. What does not match its checksum is lost, if that is to be looked at.
pub fn scan(reader: &mut impl Reader, header: &Header, verifies: bool) -> Scanned {
    let mut scanned =
        Scanned { head: header.tail, fast: Extents::default(), slow: Extents::default(), unkept: Vec::new() };
    let mut undos = Vec::new();
    let number = header.image.map_or(0, |image| image.number);
    let mut session = if planted(Bug::StaleTail) { 0 } else { header.tail.session };
    while let Some((at, group)) = next(reader, header, scanned.head, session) {
        session = group.session;
        let start = header.layout.ring_at() + at % header.layout.ring_bytes;
        scanned.head = Pos { at: at + group.bytes(), seq: group.seq + 1, session };
        for (entry, behind) in group.places() {
            match group.kind {
                Kind::Redo if group.freeze <= number => {
                    for (blocks, held) in held(reader, entry, start + behind, verifies) {
                        scanned.fast.insert(blocks, held);
                    }
                }
                Kind::Undo if group.freeze >= number => undos.push((entry.clone(), start + behind)),
                _ => {}
            }
        }
    }
    // The oldest counts: it comes last.
    for (entry, at) in undos.into_iter().rev() {
        scanned.take_back(reader, &entry, at, verifies);
    }
    if !planted(Bug::UnreadIsCopied) {
        header.lost.iter().for_each(|range| scanned.fast.insert(range.clone(), Held::Lost));
    }
    scanned
}

/// Where the ring holds the blocks of a range, which begins there.
fn held(reader: &mut impl Reader, entry: &Entry, at: u64, verifies: bool) -> Vec<(Range<u64>, Held)> {
    let Range { start, end } = entry.blocks;
    let sums = match &entry.sums {
        None => return vec![(start..end, Held::Lost)],
        Some(_) if !verifies => return vec![(start..end, Held::At(at))],
        Some(sums) => sums,
    };
    let read = reader.read(at, (end - start) * BLOCK).unwrap_or_default();
    let mut all: Vec<(Range<u64>, Held)> = Vec::new();
    for (place, sum) in sums.iter().enumerate() {
        let bytes = read.get(place * BLOCK as usize..(place + 1) * BLOCK as usize);
        let is_good = bytes.is_some_and(|bytes| crc32c::crc32c(bytes) == *sum);
        let block = start + place as u64;
        match all.last_mut() {
            Some((run, Held::At(_))) if is_good => run.end += 1,
            _ if is_good => all.push((block..block + 1, Held::At(at + place as u64 * BLOCK))),
            _ => all.push((block..block + 1, Held::Lost)),
        }
    }
    all
}

impl Scanned {
    /// What the slow device held before all that was looked at so far.
    fn take_back(&mut self, reader: &mut impl Reader, entry: &Entry, at: u64, verifies: bool) {
        for (blocks, held) in held(reader, entry, at, verifies) {
            let place = (blocks.start - entry.blocks.start) as usize;
            let sum = entry.sums.as_ref().filter(|_| held == Held::Lost).map(|sums| sums[place]);
            let known = match self.slow.parts(&blocks).first() {
                Some((_, None)) => Some(blocks.start * BLOCK),
                Some((_, Some(Held::At(at)))) => Some(*at),
                _ => None,
            };
            let is_good =
                |at: &u64| reader.read(*at, BLOCK).is_some_and(|bytes| Some(crc32c::crc32c(&bytes)) == sum);
            // Where a crash came before it was flushed, the slow device was not written over until later, and that is known.
            match known.filter(is_good) {
                Some(known) => self.unkept.push(Unkept { at: known, ring_at: at + place as u64 * BLOCK }),
                None => self.slow.insert(blocks, held),
            }
        }
    }
}

/// The group at a place, with where it is: groups that do not fit before the end are at the beginning.
fn next(reader: &mut impl Reader, header: &Header, pos: Pos, session: u64) -> Option<(u64, Group)> {
    let Layout { ring_bytes, .. } = header.layout;
    let round = pos.at.next_multiple_of(ring_bytes);
    let places = [pos.at, round];
    places.into_iter().take(1 + usize::from(round != pos.at)).find_map(|at| {
        let block = reader.read(header.layout.ring_at() + at % ring_bytes, BLOCK)?;
        let group = Group::decode(&block)?;
        let fits = place_of(at, group.bytes(), ring_bytes) == at
            && at + group.bytes() <= header.tail.at + ring_bytes;
        let follows = group.volume == header.volume
            && (group.ring_id == header.ring_id || planted(Bug::OldGroupsCount))
            && group.seq == pos.seq
            && group.session >= session;
        (fits && follows && group.session <= header.session).then_some((at, group))
    })
}
