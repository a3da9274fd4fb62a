//! The ring as a crash, or the loss of the fast device, has left it.

use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Held};
use crate::group::{Group, Kind};
use crate::header::Header;
use crate::layout::Layout;
use crate::ring::{Pos, place_of};
use bimetal_engine::format::Id;
use bimetal_units::BLOCK_BYTES;
use std::ops::Range;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Reads bytes of the slow device; none where they cannot be read.
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

/// What the slow device held, which a crash has kept from the ring: it was not written over before that crash.
pub(crate) struct Unkept {
    /// Where its parts are, in order: how many bytes, and from where on.
    pub(crate) parts: Vec<(u64, u64)>,
    /// Where it belongs in the ring.
    pub(crate) ring_at: u64,
}

/// A range of a group that says what the slow device held.
struct Undo {
    blocks: Range<u64>,
    sum: Option<u32>,
    at: u64,
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
        for (entry, behind) in group.places() {
            let (blocks, sum, at) = (entry.blocks.clone(), entry.sum, start + behind);
            match group.kind {
                Kind::Redo if group.freeze <= number => {
                    let held = match sum {
                        Some(sum) if !verifies || matches(reader, &[(bytes_of(&blocks), at)], sum) => {
                            Held::At(at)
                        }
                        _ => Held::Lost,
                    };
                    scanned.fast.insert(blocks, held);
                }
                Kind::Undo if group.freeze >= number => undos.push(Undo { blocks, sum, at }),
                _ => {}
            }
        }
        scanned.head = Pos { at: at + group.bytes(), seq: group.seq + 1, session };
    }
    // The oldest counts: it comes last.
    for undo in undos.into_iter().rev() {
        scanned.take_back(reader, undo, verifies);
    }
    if !planted(Bug::UnreadIsCopied) {
        header.lost.iter().for_each(|range| scanned.fast.insert(range.clone(), Held::Lost));
    }
    scanned
}

impl Scanned {
    /// What the slow device held before all that was looked at so far.
    fn take_back(&mut self, reader: &mut impl Reader, undo: Undo, verifies: bool) {
        let Undo { blocks, sum, at } = undo;
        let bytes = bytes_of(&blocks);
        let Some(sum) = sum else {
            self.slow.insert(blocks, Held::Lost);
            return;
        };
        if !verifies || matches(reader, &[(bytes, at)], sum) {
            self.slow.insert(blocks, Held::At(at));
            return;
        }
        // Where a crash came before it was flushed, the slow device was not written over until later, and that is known.
        let part = |(part, held): (Range<u64>, Option<Held>)| match held {
            None => Some((bytes_of(&part), part.start * BLOCK)),
            Some(Held::At(at)) => Some((bytes_of(&part), at)),
            Some(Held::Lost) => None,
        };
        let parts: Option<Vec<_>> = self.slow.parts(&blocks).into_iter().map(part).collect();
        match parts.filter(|parts| matches(reader, parts, sum)) {
            Some(parts) => {
                let mut from = blocks.start;
                for &(bytes, at) in &parts {
                    self.slow.insert(from..from + bytes / BLOCK, Held::At(at));
                    from += bytes / BLOCK;
                }
                self.unkept.push(Unkept { parts, ring_at: at });
            }
            None => self.slow.insert(blocks, Held::Lost),
        }
    }
}

fn bytes_of(blocks: &Range<u64>) -> u64 {
    (blocks.end - blocks.start) * BLOCK
}

/// Whether parts, one behind the other, have this checksum.
fn matches(reader: &mut impl Reader, parts: &[(u64, u64)], sum: u32) -> bool {
    let mut found = 0;
    for &(bytes, at) in parts {
        let Some(read) = reader.read(at, bytes) else { return false };
        found = crc32c::crc32c_append(found, &read);
    }
    found == sum
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
