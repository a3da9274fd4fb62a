//! The bytes of a volume at rest: where what lies on its devices, read with the engine's own decoders.

use crate::story::BLOCK;
use bimetal_engine::format::codec::Get;
use bimetal_engine::format::geometry::{Geometry, HEADER_COPIES, header_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::log::{GroupHeader, Index, SegmentHeader};
use bimetal_engine::format::page::{self, PageKind};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_torture::disk::{Disk, IoId};
use std::ops::Range;

const B: usize = BLOCK as usize;

/// What blocks hold, whether or not they can be read.
pub fn get(disk: &Disk, block: u64, count: u64) -> Vec<u8> {
    let mut bytes = vec![0; count as usize * B];
    for (at, page) in (block..).zip(bytes.chunks_exact_mut(B)) {
        disk.peek(at, page);
    }
    bytes
}

/// Writes blocks, durably.
pub fn put(disk: &mut Disk, block: u64, bytes: &[u8]) {
    disk.submit_write(IoId(0), block * BLOCK, bytes.to_vec(), false);
    disk.complete(IoId(0));
    disk.submit_flush(IoId(0));
    disk.complete(IoId(0));
}

/// A group of the log: where on the fast device, and what it says.
#[derive(Clone, Copy)]
pub struct Group {
    pub at: u64,
    pub blocks: u64,
    pub header: GroupHeader,
    /// Its segment has an index, so that opening need not look at it.
    pub indexed: bool,
}

/// A segment of the log.
#[derive(Clone, Copy)]
pub struct Segment {
    pub at: u64,
    pub header: SegmentHeader,
    /// Blocks of its index before the trailer.
    pub index: Option<u64>,
}

/// Where the parts in force lie, in blocks of the fast device.
#[derive(Clone)]
pub struct Layout {
    pub superblocks: [Superblock; 2],
    pub geo: Geometry,
    pub header: CheckpointHeader,
    pub root: Vec<u64>,
    pub map_pages: Vec<u64>,
    pub sum_pages: Vec<u64>,
    pub directory: Vec<u64>,
    pub segments: Vec<Segment>,
    pub groups: Vec<Group>,
    /// Where the log would go on.
    pub end: u64,
}

impl Layout {
    pub fn of(disks: &[Disk]) -> Layout {
        let superblock = |disk: &Disk| match Superblock::decode(&get(disk, 0, 1), 0) {
            Found::Valid(s) => *s,
            other => panic!("{other:?} is no superblock"),
        };
        let superblocks = [superblock(&disks[0]), superblock(&disks[1])];
        let geo = superblocks[0].geometry.clone();
        let volume = superblocks[0].volume;
        let fast = &disks[0];
        let newest = (0..2).flat_map(|p| {
            (0..HEADER_COPIES).filter_map(move |c| {
                CheckpointHeader::decode(&get(fast, header_at(p) / BLOCK + c, 1), &volume, p)
            })
        });
        let header = newest.max_by_key(|h| h.number).expect("a checkpoint");
        let first = geo.roots_at[(header.number % 2) as usize] / BLOCK;
        let root: Vec<u64> = (first..first + u64::from(header.root_blocks)).collect();
        let tables = geo.table_pages();
        assert_eq!(geo.root_ref_blocks(), 1, "small volumes");
        let directory = in_force(fast, &volume, &geo, (PageKind::Root, 0, first), tables..geo.pages());
        let mut leaves = Vec::new();
        for (number, at) in &directory {
            let listed = geo.listed_in(number - tables);
            let page = (PageKind::Directory, u64::from(*number), *at);
            leaves.extend(in_force(fast, &volume, &geo, page, listed));
        }
        let (map, sums): (Vec<_>, Vec<_>) = leaves.into_iter().partition(|(n, _)| *n < geo.map_pages);
        let places = |pages: Vec<(u32, u64)>| pages.into_iter().map(|(_, at)| at).collect();
        let mut layout = Layout {
            map_pages: places(map),
            sum_pages: places(sums),
            directory: places(directory),
            superblocks,
            geo,
            header,
            root,
            segments: Vec::new(),
            groups: Vec::new(),
            end: 0,
        };
        layout.walk(fast, &volume);
        layout
    }

    pub fn area_blocks(&self) -> u64 {
        u64::from(self.geo.area_blocks())
    }

    /// Blocks of the fast device that hold slots.
    pub fn fast_slots(&self) -> std::ops::Range<u64> {
        self.geo.areas_at / BLOCK..self.zone().start
    }

    /// Blocks of the fast device that hold the log.
    pub fn zone(&self) -> std::ops::Range<u64> {
        let first = self.geo.area_at(self.geo.zone_first) / BLOCK;
        first..first + u64::from(self.geo.zone_areas()) * self.area_blocks()
    }

    /// Follows the log.
    fn walk(&mut self, fast: &Disk, volume: &[u8; 16]) {
        let (mut area, mut ordinal) = (self.header.tail_area, self.header.tail_ordinal);
        let mut seq = self.header.tail_first.0;
        loop {
            let at = self.geo.area_at(area) / BLOCK;
            let header = SegmentHeader::decode(&get(fast, at, 1), volume, area);
            let Some(header) = header.filter(|h| h.ordinal == ordinal && h.first.0 == seq) else { return };
            let trailer = get(fast, at + self.area_blocks() - 1, 1);
            let index = Index::decode_trailer(&trailer, volume, ordinal).map(u64::from);
            self.segments.push(Segment { at, header, index });
            seq = self.walk_segment(fast, volume, at, ordinal, seq, index.is_some());
            (area, ordinal) = (header.successor, ordinal + 1);
        }
    }

    fn walk_segment(
        &mut self,
        fast: &Disk,
        volume: &[u8; 16],
        at: u64,
        ordinal: u64,
        mut seq: u64,
        indexed: bool,
    ) -> u64 {
        let bytes = get(fast, at, self.area_blocks());
        let mut offset = 1;
        while offset < self.area_blocks() as usize {
            let Some((header, _, blocks)) = GroupHeader::decode(&bytes[offset * B..], volume) else { break };
            if header.ordinal != ordinal || header.seq.0 != seq {
                break;
            }
            let blocks = u64::from(blocks);
            self.groups.push(Group { at: at + offset as u64, blocks, header, indexed });
            (offset, seq) = (offset + blocks as usize, seq + 1);
        }
        self.end = at + offset as u64;
        seq
    }
}

/// The pages in force that another page refers to: their numbers, and where they lie.
fn in_force(
    fast: &Disk,
    volume: &[u8; 16],
    geo: &Geometry,
    (kind, number, at): (PageKind, u64, u64),
    listed: Range<u32>,
) -> Vec<(u32, u64)> {
    let block = get(fast, at, 1);
    let (payload, _) = page::decode(&block, kind, volume, number).expect("a page in force");
    let mut refs = Get(payload);
    let at = |page: u32| {
        let version = page::get_ref(&mut refs).expect("a reference");
        version.index().map(|place| (page, geo.page_at(page, place) / BLOCK))
    };
    listed.filter_map(at).collect()
}

/// Computes the checksum of a sealed structure again; of whatever stands there, if another damage came first.
pub fn reseal(bytes: &mut [u8]) {
    let len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let len = len.min(bytes.len() - 16);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..8]), &bytes[12..16 + len]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
}
