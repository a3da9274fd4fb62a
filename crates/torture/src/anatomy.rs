//! Where what of a volume lies on its fast device, read with the engine's own decoders: so that damage can be aimed, and
//! what it leads to be judged by what was hurt.

use crate::disk::{Disk, PAGE_BYTES};
use bimetal_engine::format::codec::Get;
use bimetal_engine::format::geometry::{Geometry, HEADER_COPIES, header_at, pins_at};
use bimetal_engine::format::header::CheckpointHeader;
use bimetal_engine::format::log::{GroupHeader, Index, SegmentHeader};
use bimetal_engine::format::page::{self, PageKind};
use bimetal_engine::format::superblock::{Found, Superblock};
use bimetal_units::{Area, FAST, SLOW};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const PAGE: u64 = PAGE_BYTES as u64;
/// Blocks of a group's header at most.
const GROUP_HEADER_BLOCKS: u64 = 4;

/// What a page of the fast device is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Part {
    /// A copy of the superblock.
    Superblock,
    /// A copy of a checkpoint header, in this place.
    Header(u64),
    /// The list of pins.
    Pins,
    /// The root in force.
    Root,
    /// A page of the directory in force.
    Directory,
    /// A page of the map in force.
    Map,
    /// A page of checksums in force.
    Sums,
    /// The header of a segment of the log, or of the one where it would go on.
    SegmentHeader,
    /// The header of a group.
    GroupHeader,
    /// Payload of a group.
    Payload,
    /// Where the log would go on.
    End,
    /// A segment's index, or its trailer.
    Index,
    /// A segment that the log does not have.
    Leftover,
    /// A slot.
    Slot,
    /// A version of a page of metadata that is not in force, or nothing.
    OutOfForce,
}

impl Part {
    /// All, of headers those of place 0, and how often each of them is to be hurt in proportion.
    pub const TARGETS: [(Part, u32); 15] = [
        (Part::Superblock, 3),
        (Part::Header(0), 2),
        (Part::Pins, 1),
        (Part::Root, 1),
        (Part::Directory, 1),
        (Part::Map, 1),
        (Part::Sums, 2),
        (Part::SegmentHeader, 1),
        (Part::GroupHeader, 2),
        (Part::Payload, 7),
        (Part::End, 1),
        (Part::Index, 2),
        (Part::Leftover, 1),
        (Part::Slot, 5),
        (Part::OutOfForce, 1),
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Part::Superblock => "rest-superblock",
            Part::Header(_) => "rest-checkpoint-header",
            Part::Pins => "rest-pins",
            Part::Root => "rest-root",
            Part::Directory => "rest-directory",
            Part::Map => "rest-map",
            Part::Sums => "rest-checksums",
            Part::SegmentHeader => "rest-segment-header",
            Part::GroupHeader => "rest-group-header",
            Part::Payload => "rest-payload",
            Part::End => "rest-log-end",
            Part::Index => "rest-index",
            Part::Leftover => "rest-leftover",
            Part::Slot => "rest-fast-slot",
            Part::OutOfForce => "rest-out-of-force",
        }
    }

    /// Whether damage to it alone may close the volume: what is listed in the format, *A block that cannot be read* and
    /// *A write that was lost*.
    pub fn may_close(self) -> bool {
        use Part::{Directory, End, GroupHeader, Map, Root, SegmentHeader};
        matches!(self, Root | Directory | Map | SegmentHeader | GroupHeader | End)
    }
}

/// A group of the log.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its number.
    pub seq: u64,
    /// Its pages, the header's first.
    pub pages: Range<u64>,
    /// Those of its payload.
    pub payload: Range<u64>,
    /// The last group that its segment, an index there or the next segment's header says was durable.
    pub claimed_near: u64,
}

/// A segment of the log.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Its pages.
    pub pages: Range<u64>,
    ordinal: u64,
    successor: Area,
}

/// The first pages of areas in which claims are found.
pub struct Claiming {
    /// In segments' headers.
    pub headers: BTreeSet<u64>,
    /// In groups.
    pub groups: BTreeSet<u64>,
}

/// A volume's parts.
pub struct Anatomy {
    /// The layout.
    pub geo: Geometry,
    parts: BTreeMap<u64, Part>,
    /// Of what stands twice, where the other copy is.
    twins: BTreeMap<u64, u64>,
    /// The log's groups, oldest first.
    pub groups: Vec<Group>,
    /// Its segments, oldest first.
    pub segments: Vec<Segment>,
}

struct Reader<'a>(&'a Disk, [u8; 16]);

impl Reader<'_> {
    fn pages(&self, pages: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; ((pages.end - pages.start) * PAGE) as usize];
        pages.zip(bytes.chunks_exact_mut(PAGE_BYTES)).for_each(|(page, out)| _ = self.0.peek(page, out));
        bytes
    }

    /// Where the body of a segment's index is, if its last page is a trailer that says so.
    fn index_body(&self, pages: &Range<u64>, ordinal: u64) -> Option<Range<u64>> {
        let trailer = pages.end - 1;
        let body = Index::decode_trailer(&self.pages(trailer..pages.end), &self.1, ordinal)?;
        Some(trailer.saturating_sub(body.into()).max(pages.start + 1)..trailer)
    }

    /// What pages of this kind are referred to from one: number and page of the device.
    fn refers(&self, geo: &Geometry, from: (PageKind, u64, u64), to: Range<u32>) -> Vec<(u32, u64)> {
        let (kind, number, at) = from;
        let bytes = self.pages(at..at + 1);
        let Some((payload, _)) = page::decode(&bytes, kind, &self.1, number) else { return Vec::new() };
        let mut get = Get(payload);
        to.filter_map(|number| {
            let place = page::get_ref(&mut get)?.index()?;
            Some((number, geo.page_at(number, place) / PAGE))
        })
        .collect()
    }
}

/// Byte offset of the other copy of a page of metadata, which is at this page of the device.
fn twin_of(geo: &Geometry, number: u32, page: u64) -> Option<u64> {
    let place = u8::from(page * PAGE != geo.page_at(number, 0));
    geo.page_twin_at(number, place)
}

impl Anatomy {
    /// Of a volume on this device, as far as it makes sense; none where no superblock does.
    pub fn of(disk: &Disk, volume: [u8; 16]) -> Option<Anatomy> {
        let last = disk.size_bytes() / PAGE - 1;
        let read = Reader(disk, volume);
        let superblock = [0, last].into_iter().find_map(|page| {
            match Superblock::decode(&read.pages(page..page + 1), page * PAGE) {
                Found::Valid(superblock) => Some(superblock),
                Found::Newer(_) | Found::Nothing => None,
            }
        })?;
        let geo = superblock.geometry;
        let mut a = Anatomy {
            geo,
            parts: BTreeMap::new(),
            twins: BTreeMap::new(),
            groups: Vec::new(),
            segments: Vec::new(),
        };
        a.note_fixed();
        let copies = (0..2).flat_map(|place| (0..HEADER_COPIES).map(move |copy| (place, copy)));
        let header = copies.filter_map(|(place, copy)| {
            let page = header_at(place) / PAGE + copy;
            CheckpointHeader::decode(&read.pages(page..page + 1), &volume, place)
        });
        if let Some(header) = header.max_by_key(|h| h.number) {
            a.note_pages(&read, &header);
            a.follow_log(&read, &header);
        }
        Some(a)
    }

    fn note_fixed(&mut self) {
        self.superblocks(0).into_iter().for_each(|page| _ = self.parts.insert(page, Part::Superblock));
        for place in 0..2 {
            let at = header_at(place) / PAGE;
            (at..at + HEADER_COPIES).for_each(|page| _ = self.parts.insert(page, Part::Header(place)));
            self.parts.insert(pins_at(place as u8) / PAGE, Part::Pins);
        }
    }

    fn note_pages(&mut self, read: &Reader<'_>, header: &CheckpointHeader) {
        let geo = self.geo.clone();
        let first = geo.roots_at[(header.number % 2) as usize] / PAGE;
        let blocks = header.root_blocks.min(geo.root_blocks);
        for block in 0..blocks {
            self.insert_twice(
                first + u64::from(block),
                geo.root_twin_at(header.number % 2, block),
                Part::Root,
            );
            if block >= geo.root_ref_blocks() {
                continue;
            }
            let root = (PageKind::Root, u64::from(block), first + u64::from(block));
            for (number, at) in read.refers(&geo, root, geo.named_in_root(block)) {
                self.insert_twice(at, twin_of(&geo, number, at), Part::Directory);
                let listed = geo.listed_in(number - geo.table_pages());
                for (number, at) in read.refers(&geo, (PageKind::Directory, u64::from(number), at), listed) {
                    let part = if number < geo.map_pages { Part::Map } else { Part::Sums };
                    self.insert_twice(at, twin_of(&geo, number, at), part);
                }
            }
        }
    }

    fn insert_twice(&mut self, page: u64, twin_at: Option<u64>, part: Part) {
        self.parts.insert(page, part);
        if let Some(twin) = twin_at.map(|at| at / PAGE) {
            self.parts.insert(twin, part);
            self.twins.extend([(page, twin), (twin, page)]);
        }
    }

    /// Where the other copy is of a page of the fast device.
    pub fn twin(&self, page: u64) -> Option<u64> {
        self.twins.get(&page).copied()
    }

    fn follow_log(&mut self, read: &Reader<'_>, header: &CheckpointHeader) {
        let (mut area, mut ordinal, mut seq) = (header.tail_area, header.tail_ordinal, header.tail_first.0);
        let mut epoch = 0;
        let mut end = None;
        while area.0 < self.geo.areas && self.segments.len() < self.geo.areas as usize {
            let first = self.geo.area_at(area) / PAGE;
            self.parts.insert(first, Part::SegmentHeader);
            let head = SegmentHeader::decode(&read.pages(first..first + 1), &read.1, area);
            let Some(head) = head.filter(|h| h.ordinal == ordinal && h.epoch.0 >= epoch) else { break };
            if head.first.0 > seq {
                break;
            }
            (seq, epoch) = (head.first.0, head.epoch.0);
            let pages = first..first + u64::from(self.geo.area_blocks());
            let near = self.claims_beside(read, pages.clone(), &head);
            end = Some(self.groups_of(read, pages.clone(), ordinal, &mut seq, &mut epoch, near));
            self.note_index(read, pages.clone(), ordinal);
            self.segments.push(Segment { pages, ordinal, successor: head.successor });
            (area, ordinal) = (head.successor, ordinal + 1);
        }
        if let Some(end) = end {
            end.for_each(|page| _ = self.parts.entry(page).or_insert(Part::End));
        }
    }

    /// Follows the groups of a segment; gives where the next one would begin.
    fn groups_of(
        &mut self,
        read: &Reader<'_>,
        pages: Range<u64>,
        ordinal: u64,
        seq: &mut u64,
        epoch: &mut u64,
        claimed: u64,
    ) -> Range<u64> {
        let bytes = read.pages(pages.clone());
        let blocks = pages.end - pages.start;
        let (mut offset, mut claimed, first) = (1, claimed, self.groups.len());
        while offset < blocks {
            let group = GroupHeader::decode(&bytes[(offset * PAGE) as usize..], &read.1);
            let Some((header, _, len)) = group else { break };
            let end = offset + u64::from(len);
            let fits = u64::from(header.offset) == offset && end <= blocks && header.ordinal == ordinal;
            if !fits || header.seq.0 != *seq || header.epoch.0 < *epoch {
                break;
            }
            let payload = end - u64::from(header.payload_blocks);
            let own = pages.start + offset..pages.start + end;
            for page in own.clone() {
                let part = if page < pages.start + payload { Part::GroupHeader } else { Part::Payload };
                self.parts.insert(page, part);
            }
            claimed = claimed.max(header.durable.0);
            let payload = pages.start + payload..own.end;
            self.groups.push(Group { seq: *seq, pages: own, payload, claimed_near: 0 });
            (*seq, *epoch, offset) = (*seq + 1, header.epoch.0, end);
        }
        self.groups[first..].iter_mut().for_each(|group| group.claimed_near = claimed);
        let end = pages.start + offset;
        end..(end + GROUP_HEADER_BLOCKS).min(pages.end)
    }

    /// What is said to be durable by a segment's header, its index, and the header of the next one.
    fn claims_beside(&self, read: &Reader<'_>, pages: Range<u64>, head: &SegmentHeader) -> u64 {
        if read.index_body(&pages, head.ordinal).is_some() {
            return u64::MAX;
        }
        let next = self.geo.area_at(head.successor) / PAGE;
        let next = SegmentHeader::decode(&read.pages(next..next + 1), &read.1, head.successor);
        let next = next.filter(|next| next.ordinal == head.ordinal + 1);
        head.durable.0.max(next.map_or(0, |next| next.durable.0))
    }

    fn note_index(&mut self, read: &Reader<'_>, pages: Range<u64>, ordinal: u64) {
        let Some(body) = read.index_body(&pages, ordinal) else { return };
        (body.start..pages.end).for_each(|page| _ = self.parts.entry(page).or_insert(Part::Index));
    }

    /// The pages of the segments that have a whole index on this device: who opens the volume asks that, not their groups.
    pub fn indexed(&self, disk: &Disk, volume: [u8; 16]) -> Vec<Range<u64>> {
        let read = Reader(disk, volume);
        let has_index = |segment: &&Segment| {
            let body = read.index_body(&segment.pages, segment.ordinal);
            let body = body.filter(|body| !(body.start..segment.pages.end).any(|page| disk.has_bad(page)));
            body.and_then(|body| Index::decode(&read.pages(body), &volume, segment.ordinal)).is_some()
        };
        self.segments.iter().filter(has_index).map(|segment| segment.pages.clone()).collect()
    }

    /// Where an opening finds claims. Headers: those of the zone, wherever they stand in the log; of areas that it borrowed among
    /// the slots those that the log has, and those that headers or whole groups lead to from its end. Groups: those of the
    /// log, of what they lead to, and of the segment with the newest header and its successor.
    pub fn claiming(&self, disk: &Disk, volume: [u8; 16]) -> Claiming {
        let read = Reader(disk, volume);
        let first = |area: Area| self.geo.area_at(area) / PAGE;
        let header = |area: Area| {
            let page = first(area);
            let head = SegmentHeader::decode(&read.pages(page..page + 1), &volume, area);
            head.filter(|_| !disk.has_bad(page))
        };
        let own = (self.geo.zone_first.0..self.geo.areas).map(Area);
        let newest = own.clone().filter_map(header).max_by_key(|head| (head.epoch, head.ordinal));
        let newest = newest.iter().flat_map(|head| [head.area, head.successor]);
        let groups = newest.filter(|area| area.0 < self.geo.areas).map(first);
        let mut claiming = Claiming {
            headers: own.map(first).collect(),
            groups: groups.chain(self.segments.iter().map(|s| s.pages.start)).collect(),
        };
        let mut next = self.segments.last().map(|last| (last.successor, last.ordinal + 1));
        while let Some((area, ordinal)) = next.filter(|(area, _)| area.0 < self.geo.areas) {
            let pages = first(area)..first(area) + u64::from(self.geo.area_blocks());
            claiming.groups.insert(pages.start);
            let group = |page: u64| {
                let header = read.pages(page..(page + GROUP_HEADER_BLOCKS).min(pages.end));
                GroupHeader::decode(&header, &volume)
                    .map(|(group, ..)| group)
                    .filter(|g| g.ordinal == ordinal)
            };
            let head = header(area).filter(|head| head.ordinal == ordinal);
            let successor =
                head.map(|head| head.successor).or_else(|| pages.clone().find_map(group)?.successor);
            next = successor.map(|area| (area, ordinal + 1));
        }
        claiming.headers.extend(&claiming.groups);
        claiming
    }

    /// What a page of the fast device is part of.
    pub fn part(&self, page: u64) -> Part {
        if let Some(part) = self.parts.get(&page) {
            return *part;
        }
        let at = page * PAGE;
        let zone = self.geo.area_at(self.geo.zone_first);
        if at < self.geo.areas_at || at >= self.geo.area_at(Area(self.geo.areas)) {
            Part::OutOfForce
        } else if at >= zone || self.segments.iter().any(|segment| segment.pages.contains(&page)) {
            Part::Leftover
        } else {
            Part::Slot
        }
    }

    /// The pages of a part that were written at some time.
    pub fn pages_of(&self, disk: &Disk, part: Part) -> Vec<u64> {
        let same = |p: Part| p == part || matches!((p, part), (Part::Header(_), Part::Header(_)));
        let written = |page: &u64| disk.peek(*page, &mut [0; PAGE_BYTES]);
        match part {
            Part::Leftover | Part::Slot | Part::OutOfForce => {
                (0..disk.size_bytes() / PAGE).filter(|p| same(self.part(*p))).filter(written).collect()
            }
            _ => {
                self.parts.iter().filter(|(_, p)| same(**p)).map(|(page, _)| *page).filter(written).collect()
            }
        }
    }

    /// The pages of the two superblocks of a device.
    pub fn superblocks(&self, device: usize) -> [u64; 2] {
        [0, self.geo.second_superblock_at([FAST, SLOW][device]) / PAGE]
    }
}
