//! The ring as a crash, or the loss of the fast device, has left it.

use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Held};
use crate::group::{Entry, Group, Kind};
use crate::header::{Header, Image, Map, Newest, NoImage};
use crate::layout::Layout;
use crate::ring::{Pos, place_of};
use crate::salvage::Salvage;
use bimetal_engine::format::Id;
use bimetal_engine::format::superblock::Superblock;
use bimetal_units::BLOCK_BYTES;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Bytes of the ring that are looked through behind its end, ...
const LOOKED_THROUGH: u64 = 16 << 20;
/// ... and read at once.
const LOOKED_AT_ONCE: u64 = 256 << 10;

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

/// The newer of two that are written in turns and numbered, and whether the other one is the one before.
fn newer<T>(
    reader: &mut impl Reader,
    places: [u64; 2],
    decode: impl Fn(&[u8]) -> Option<T>,
    number: impl Fn(&T) -> u64,
) -> Option<(T, bool)> {
    let mut found: Vec<T> = places.map(|at| decode(&reader.read(at, BLOCK)?)).into_iter().flatten().collect();
    found.sort_by_key(&number);
    let newer = found.pop()?;
    let follows = found.first().is_some_and(|before| number(before) + 1 == number(&newer));
    Some((newer, follows))
}

/// The newest header of a volume.
pub fn newest_header(reader: &mut impl Reader, places: [u64; 2], volume: Id) -> Option<Newest> {
    let decode = |block: &[u8]| Header::decode(block).filter(|header| header.volume == volume);
    let (header, follows) = newer(reader, places, decode, |header| header.number)?;
    Some(Newest { header, is_doubtful: !follows })
}

/// The newest map of a volume, and whether it is believed: not where it may be another one that cannot be read, or has rotted.
pub(crate) fn newest_map(reader: &mut impl Reader, places: [u64; 2], volume: Id) -> Option<(Map, bool)> {
    let decode = |block: &[u8]| Map::decode(block).filter(|map| map.volume == volume);
    let (map, follows) = newer(reader, places, decode, |map| map.number)?;
    Some((map, follows || planted(Bug::DoubtIgnored)))
}

/// The image in the place of the devices, as of when it is, if a slow device of so many bytes has one.
///
/// # Errors
/// Why it has none.
pub fn image(
    reader: &mut impl Reader,
    newest: &Newest,
    superblock: &Superblock,
    slow_device_bytes: u64,
) -> Result<(Salvage, Image), NoImage> {
    let image = newest.image_of(superblock, slow_device_bytes)?;
    let scanned = scan(reader, &newest.header, true);
    match scanned.broken_at {
        Some(at) => Err(NoImage::Broken(at)),
        None => Ok((Salvage::new(newest.header.layout, scanned), image)),
    }
}

/// What the ring holds that counts.
pub struct Scanned {
    /// Where it ends.
    pub head: Pos,
    /// What the image has of the fast device in the ring.
    pub(crate) fast: Extents,
    /// What the slow device held at the freeze of the image, where it is another now.
    pub(crate) slow: Extents,
    /// What should be there from this byte of the slow device on is not: it cannot be read, or has rotted.
    pub(crate) broken_at: Option<u64>,
    /// What of that the ring should have and has not, though it is known otherwise.
    pub(crate) unkept: Vec<Unkept>,
    /// The checksums of what the ring has of the fast device, by where it is, if they are still to be looked at.
    pub(crate) sums: Vec<(u64, Vec<u32>)>,
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
    let mut scanned = Scanned {
        head: header.tail,
        fast: Extents::default(),
        slow: Extents::default(),
        broken_at: None,
        unkept: Vec::new(),
        sums: Vec::new(),
    };
    let mut undos = Vec::new();
    let number = header.image.map_or(0, |image| image.number);
    let mut session = if planted(Bug::StaleTail) { 0 } else { header.tail.session };
    let ended = loop {
        let (at, group) = match next(reader, header, scanned.head, session) {
            Ok(found) => found,
            Err(ended) => break ended,
        };
        session = group.session;
        let start = header.layout.ring_at() + at % header.layout.ring_bytes;
        scanned.head = Pos { at: at + group.bytes(), seq: group.seq + 1, session };
        for (entry, behind) in group.places() {
            match group.kind {
                Kind::Redo if group.freeze <= number => {
                    let sums = entry.sums.iter().filter(|_| !verifies);
                    scanned.sums.extend(sums.map(|sums| (start + behind, sums.clone())));
                    for (blocks, held) in held(reader, entry, start + behind, verifies) {
                        scanned.fast.insert(blocks, held);
                    }
                }
                Kind::Undo if group.freeze >= number => undos.push((entry.clone(), start + behind)),
                _ => {}
            }
        }
    };
    scanned.broken_at = match ended {
        Ended::Unreadable(at) => Some(at),
        Ended::Nothing if scanned.head.seq < header.durable => Some(scanned.head_at(header)),
        Ended::Nothing if is_claimed(reader, header, &scanned) => Some(scanned.head_at(header)),
        Ended::Nothing => None,
    }
    .filter(|_| !planted(Bug::BreakIgnored));
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
    /// The first byte behind its last group on the slow device.
    fn head_at(&self, header: &Header) -> u64 {
        header.layout.ring_at() + self.head.at % header.layout.ring_bytes
    }

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

/// Why there are no more groups.
enum Ended {
    /// There is nothing that follows.
    Nothing,
    /// The next one may be at this byte of the slow device, which cannot be read.
    Unreadable(u64),
}

/// The group at a place, with where it is: groups that do not fit before the end are at the beginning.
fn next(reader: &mut impl Reader, header: &Header, pos: Pos, session: u64) -> Result<(u64, Group), Ended> {
    let Layout { ring_bytes, .. } = header.layout;
    let round = pos.at.next_multiple_of(ring_bytes);
    let places = [pos.at, round];
    let mut ended = Ended::Nothing;
    for at in places.into_iter().take(1 + usize::from(round != pos.at)) {
        if at >= header.tail.at + ring_bytes {
            continue;
        }
        let place = header.layout.ring_at() + at % ring_bytes;
        let Some(block) = reader.read(place, BLOCK) else {
            ended = Ended::Unreadable(place);
            continue;
        };
        let found = Group::decode(&block).filter(|group| {
            let fits = place_of(at, group.bytes(), ring_bytes) == at
                && at + group.bytes() <= header.tail.at + ring_bytes;
            fits && is_of(group, header, session) && group.seq == pos.seq
        });
        if let Some(group) = found {
            return Ok((at, group));
        }
    }
    Err(ended)
}

/// Whether a group is of the ring of this header, from this session on.
fn is_of(group: &Group, header: &Header, session: u64) -> bool {
    group.volume == header.volume
        && (group.ring_id == header.ring_id || planted(Bug::OldGroupsCount))
        && (session..=header.session).contains(&group.session)
}

/// Whether a group behind the last one that follows says that more was durable. So much is looked through as may have been written
/// while a flush was on its way.
fn is_claimed(reader: &mut impl Reader, header: &Header, scanned: &Scanned) -> bool {
    let (ring_at, ring_bytes) = (header.layout.ring_at(), header.layout.ring_bytes);
    let (head, end) = (scanned.head, header.tail.at + ring_bytes);
    let mut at = head.at;
    while at < end.min(head.at + LOOKED_THROUGH) {
        let place = at % ring_bytes;
        let bytes = LOOKED_AT_ONCE.min(ring_bytes - place).min(end - at);
        let whole = reader.read(ring_at + place, bytes);
        let mut blocks = (0..bytes / BLOCK).filter_map(|block| match &whole {
            Some(whole) => Group::decode(&whole[(block * BLOCK) as usize..][..BLOCK as usize]),
            None => Group::decode(&reader.read(ring_at + place + block * BLOCK, BLOCK)?),
        });
        let claims = |group: Group| {
            is_of(&group, header, head.session) && group.seq > head.seq && group.durable > head.seq
        };
        if blocks.any(claims) {
            return true;
        }
        at += bytes;
    }
    false
}
