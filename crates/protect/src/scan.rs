//! The ring as a crash, or the loss of the fast device, has left it.

use crate::bugs::{Bug, planted};
use crate::extents::{Extents, Held};
use crate::group::{Group, Kind};
use crate::header::Header;
use crate::layout::Layout;
use crate::ring::{Pos, place_of};
use bimetal_engine::format::Id;
use bimetal_units::BLOCK_BYTES;

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
}

/// Goes through the ring. What does not match its checksum is lost, if that is to be looked at.
pub fn scan(reader: &mut impl Reader, header: &Header, verifies: bool) -> Scanned {
    let mut scanned = Scanned { head: header.tail, fast: Extents::default(), slow: Extents::default() };
    let number = header.image.map_or(0, |image| image.number);
    let mut session = if planted(Bug::StaleTail) { 0 } else { header.tail.session };
    while let Some((at, group)) = next(reader, header, scanned.head, session) {
        session = group.session;
        let start = header.layout.ring_at() + at % header.layout.ring_bytes;
        for (entry, behind) in group.places() {
            let sum =
                entry.sum.filter(|sum| !verifies || matches(reader, start + behind, &entry.blocks, *sum));
            let held = sum.map_or(Held::Lost, |_| Held::At(start + behind));
            match group.kind {
                Kind::Redo if group.freeze <= number => scanned.fast.insert(entry.blocks.clone(), held),
                Kind::Undo if group.freeze >= number => {
                    scanned.slow.insert_missing(entry.blocks.clone(), held);
                }
                _ => {}
            }
        }
        scanned.head = Pos { at: at + group.bytes(), seq: group.seq + 1, session };
    }
    if !planted(Bug::UnreadIsCopied) {
        header.lost.iter().for_each(|range| scanned.fast.insert(range.clone(), Held::Lost));
    }
    scanned
}

fn matches(reader: &mut impl Reader, at: u64, blocks: &std::ops::Range<u64>, sum: u32) -> bool {
    reader.read(at, (blocks.end - blocks.start) * BLOCK).is_some_and(|bytes| crc32c::crc32c(&bytes) == sum)
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
