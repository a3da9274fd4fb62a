//! The landing zone: segments of the log, oldest first, and those that are free.

use crate::format::geometry::Geometry;
use crate::format::log::Index;
use crate::landed::ZoneBlock;
use crate::units::*;
use std::collections::VecDeque;

/// A segment's place in RAM: its area less the zone's first area.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord, Default)]
pub struct Place(pub u32);

/// One segment of the log.
#[derive(Default)]
pub struct Segment {
    /// Its place in the chain; grows by one with each segment begun.
    pub ordinal: u64,
    /// Its first group.
    pub first: Seq,
    /// Its last good group; below `first` when it has none.
    pub last: Seq,
    /// Blocks whose newest copy is here.
    pub live: u32,
    /// Those of them of which that copy is lost: nothing can be done for them but say so again.
    pub lost: u32,
    /// Reads in flight here.
    pub pins: u32,
    /// The index, gathered until it is written.
    pub index: Option<Index>,
    /// Where the chain goes on.
    pub successor: Place,
}

impl Segment {
    /// Whether only lost blocks are left in it, if any.
    pub fn is_lost(&self) -> bool {
        self.live == self.lost
    }
}

/// All segments.
pub struct Zone {
    segments: Vec<Segment>,
    /// The chain, oldest first; the last is the one being written.
    pub chain: VecDeque<Place>,
    free: VecDeque<Place>,
    /// Out of the chain, but reads are in flight.
    retiring: Vec<Place>,
    first_area: Area,
    area_blocks: u32,
    base: u64,
    area_bytes: u64,
}

impl Zone {
    /// A zone whose segments are all out of use.
    pub fn new(geo: &Geometry) -> Zone {
        Zone {
            segments: (0..geo.zone_areas()).map(|_| Segment::default()).collect(),
            chain: VecDeque::new(),
            free: VecDeque::new(),
            retiring: Vec::new(),
            first_area: geo.zone_first,
            area_blocks: geo.area_blocks(),
            base: geo.area_at(geo.zone_first),
            area_bytes: u64::from(geo.area_bytes),
        }
    }

    /// Segments in all.
    pub fn len(&self) -> u32 {
        self.segments.len() as u32
    }
    /// Segments that can be named as a successor.
    pub fn free_segments(&self) -> u32 {
        self.free.len() as u32
    }
    /// The area of a place.
    pub fn area(&self, place: Place) -> Area {
        Area(self.first_area.0 + place.0)
    }
    /// The place of an area, if it lies in the zone.
    pub fn place(&self, area: Area) -> Option<Place> {
        let place = area.0.checked_sub(self.first_area.0)?;
        (place < self.len()).then_some(Place(place))
    }
    /// A segment.
    pub fn get(&self, place: Place) -> &Segment {
        &self.segments[place.0 as usize]
    }
    /// A segment.
    pub fn get_mut(&mut self, place: Place) -> &mut Segment {
        &mut self.segments[place.0 as usize]
    }
    /// Byte offset of a block of a segment on the fast device.
    pub fn offset(&self, place: Place, block: u32) -> u64 {
        self.base + u64::from(place.0) * self.area_bytes + u64::from(block) * u64::from(BLOCK_BYTES)
    }
    /// Byte offset of a zone block on the fast device.
    pub fn offset_of(&self, z: ZoneBlock) -> u64 {
        self.base + u64::from(z.0) * u64::from(BLOCK_BYTES)
    }
    /// The zone block at a block of a segment.
    pub fn zone_block(&self, place: Place, block: u32) -> ZoneBlock {
        ZoneBlock(place.0 * self.area_blocks + block)
    }
    /// The segment of a zone block.
    pub fn place_of(&self, z: ZoneBlock) -> Place {
        Place(z.0 / self.area_blocks)
    }
    /// A place in the log.
    pub fn pos(&self, place: Place, block: u32) -> LogPos {
        LogPos(self.get(place).ordinal * u64::from(self.area_blocks) + u64::from(block))
    }
    /// Where in the log a zone block lies.
    pub fn pos_of(&self, z: ZoneBlock) -> LogPos {
        self.pos(self.place_of(z), z.0 % self.area_blocks)
    }

    /// The segments that are not in the chain.
    pub fn outside_chain(&self) -> Vec<Place> {
        let mut outside = vec![true; self.segments.len()];
        self.chain.iter().for_each(|place| outside[place.0 as usize] = false);
        (0..self.len()).map(Place).filter(|place| outside[place.0 as usize]).collect()
    }

    /// Puts every segment that is neither in the chain nor the named successor on the free list.
    pub fn rebuild_free(&mut self) {
        let successor = self.chain.back().map(|p| self.get(*p).successor);
        let used = |p: Place| self.chain.contains(&p) || successor == Some(p);
        self.free = (0..self.len()).map(Place).filter(|p| !used(*p)).collect();
    }

    /// Takes a free segment to be named as a successor.
    pub fn take_free(&mut self) -> Option<Place> {
        self.free.pop_front()
    }

    /// Gives back a segment that was named as a successor by a segment that never began.
    pub fn give_free(&mut self, place: Place) {
        self.free.push_front(place);
    }

    /// Takes the segments before `tail` out of the chain: a durable checkpoint needs them no more.
    /// They are reused once no read is in flight in them.
    pub fn drop_before(&mut self, tail: Place) {
        while self.chain.front().is_some_and(|p| *p != tail) {
            let place = self.chain.pop_front().expect("the chain has a front");
            let segment = self.get_mut(place);
            assert!(segment.live == 0, "a segment with landed blocks is never dropped");
            segment.index = None;
            self.retiring.push(place);
        }
        self.recycle();
    }

    /// Moves retired segments without reads in flight to the free list.
    pub fn recycle(&mut self) {
        let segments = &self.segments;
        let free = &mut self.free;
        self.retiring.retain(|p| {
            let idle = segments[p.0 as usize].pins == 0;
            if idle {
                free.push_back(*p);
            }
            !idle
        });
    }

    /// Bytes of segments in the chain.
    pub fn used_bytes(&self) -> u64 {
        self.chain.len() as u64 * self.area_bytes
    }
}
