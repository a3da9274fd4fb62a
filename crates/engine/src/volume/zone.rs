//! The landing zone: segments of the log, oldest first, and those that are free.
//!
//! Its own areas lie at the end of the fast device. It may borrow further ones that held slots.

use crate::base::hash::IndexMap;
use crate::base::place::Place;
use crate::format::geometry::Geometry;
use crate::format::log::Index;
use crate::volume::landed::ZoneBlock;
use crate::volume::uses::{End, Use, Uses};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::iter;
use std::ops::Range;

/// One segment of the log.
#[derive(Default, Serialize, Deserialize)]
pub struct Segment {
    /// Its place in the chain; grows by one with each segment begun.
    pub ordinal: u64,
    /// Its first group.
    pub first: Seq,
    /// Its last good group; below `first` when it has none.
    pub last: Seq,
    /// Blocks whose newest copy is here.
    pub live: u32,
    /// Those of them of which something is lost: nothing can be done for them but say so again.
    pub lost: u32,
    /// Reads in flight here.
    pub pins: u32,
    /// The index, gathered until it is written.
    pub index: Option<Index>,
    /// Where the chain goes on.
    pub successor: Place,
    /// While it is being emptied: the blocks that were live when that began.
    emptying: Option<u32>,
}

impl Segment {
    /// Of so many blocks, the share that has been emptied.
    fn emptied_blocks(&self, blocks: u32) -> u64 {
        match self.emptying {
            None => 0,
            Some(live) => {
                u64::from(blocks) * u64::from(live.saturating_sub(self.live)) / u64::from(live.max(1))
            }
        }
    }

    /// Whether only lost blocks are left in it, if any.
    pub fn is_lost(&self) -> bool {
        self.live == self.lost
    }
}

/// No area: the place is not in use.
const NO_AREA: Area = Area(u32::MAX);

/// All segments.
#[derive(Serialize, Deserialize)]
pub struct Zone {
    segments: Vec<Segment>,
    /// The area of each place.
    areas: Vec<Area>,
    /// Places for areas that may be borrowed.
    vacant: Vec<Place>,
    /// Where borrowed areas have theirs.
    borrowed: IndexMap<Area, Place>,
    uses: Uses,
    /// The zone's own areas.
    own: Range<u32>,
    area_blocks: u32,
    /// Where area 0 begins, bytes.
    base: u64,
    area_bytes: u64,
    /// Blocks of segments being emptied, in proportion to how far that has come.
    emptied_blocks: u64,
}

impl Zone {
    /// A zone whose segments are all out of use, and which has only its own areas: of `most` at most.
    pub fn new(geo: &Geometry, most: u32) -> Zone {
        let own = geo.zone_first.0..geo.areas;
        Zone {
            segments: (0..most).map(|_| Segment::default()).collect(),
            areas: own.clone().map(Area).chain(iter::repeat(NO_AREA)).take(most as usize).collect(),
            vacant: (own.len() as u32..most).rev().map(Place).collect(),
            borrowed: IndexMap::default(),
            uses: Uses::new(most),
            own,
            area_blocks: geo.area_blocks(),
            base: geo.area_at(Area(0)),
            area_bytes: u64::from(geo.area_bytes),
            emptied_blocks: 0,
        }
    }

    /// Segments in all, borrowed ones included.
    pub fn len(&self) -> u32 {
        (self.areas.len() - self.vacant.len()) as u32
    }
    /// One part in so many of it, of so many bytes at most, segments.
    pub fn part(&self, share: u32, most_bytes: u64) -> u32 {
        (self.len() / share).min((most_bytes / self.area_bytes) as u32)
    }
    /// Segments in the zone's own areas.
    pub fn own_len(&self) -> u32 {
        self.own.len() as u32
    }
    /// Segments that can be named as a successor.
    pub fn free_segments(&self) -> u32 {
        self.uses.free_count() as u32
    }
    /// The area of a place.
    pub fn area(&self, place: Place) -> Area {
        self.areas[place.0 as usize]
    }
    /// Areas that may still be borrowed.
    pub fn may_borrow(&self) -> usize {
        self.vacant.len()
    }
    /// The areas that are borrowed.
    pub fn borrowed(&self) -> impl Iterator<Item = Area> + '_ {
        self.areas[self.own.len()..].iter().copied().filter(|area| *area != NO_AREA)
    }

    /// The place of an area, if it has one.
    pub fn place(&self, area: Area) -> Option<Place> {
        if self.own.contains(&area.0) {
            return Some(Place(area.0 - self.own.start));
        }
        self.borrowed.get(&area).copied()
    }

    /// The place of an area that the log names; one that held slots is borrowed. None where there is no such area, or
    /// more are named than can be borrowed.
    pub fn adopt(&mut self, area: Area) -> Option<Place> {
        if let Some(place) = self.place(area) {
            return Some(place);
        }
        let place = if area.0 < self.own.start { self.vacant.pop()? } else { return None };
        self.areas[place.0 as usize] = area;
        self.borrowed.insert(area, place);
        Some(place)
    }

    /// Makes a free segment of an area that held slots, all of which are free and stay out of use.
    pub fn borrow(&mut self, area: Area) {
        let place = self.adopt(area).expect("there is a place for an area that is borrowed");
        self.uses.pass(place, Use::Spent, End::Back);
    }

    /// Gives up a borrowed area whose segment is free.
    pub fn give_back(&mut self) -> Option<Area> {
        let place = self.uses.free(Use::Spent, End::Front, |place| self.is_borrowed(place))?;
        self.uses.pass(place, Use::Vacant, End::Back);
        let area = std::mem::replace(&mut self.areas[place.0 as usize], NO_AREA);
        self.borrowed.remove(&area);
        self.vacant.push(place);
        Some(area)
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
        self.base
            + u64::from(self.area(place).0) * self.area_bytes
            + u64::from(block) * u64::from(BLOCK_BYTES)
    }
    /// Byte offset of a zone block on the fast device.
    pub fn offset_of(&self, z: ZoneBlock) -> u64 {
        self.offset(self.place_of(z), z.index() % self.area_blocks)
    }
    /// The zone block at a block of a segment.
    pub fn zone_block(&self, place: Place, block: u32) -> ZoneBlock {
        ZoneBlock::new(place.0 * self.area_blocks + block)
    }
    /// The segment of a zone block.
    pub fn place_of(&self, z: ZoneBlock) -> Place {
        Place(z.index() / self.area_blocks)
    }
    /// A place in the log.
    pub fn pos(&self, place: Place, block: u32) -> LogPos {
        LogPos(self.get(place).ordinal * u64::from(self.area_blocks) + u64::from(block))
    }
    /// Where in the log a zone block lies.
    pub fn pos_of(&self, z: ZoneBlock) -> LogPos {
        self.pos(self.place_of(z), z.index() % self.area_blocks)
    }

    /// The segments that are not in the chain.
    pub fn outside_chain(&self) -> Vec<Place> {
        let places = (0..self.areas.len() as u32).map(Place);
        let outside = |place: &Place| self.area(*place) != NO_AREA && self.uses.of(*place) != Use::Chain;
        places.filter(outside).collect()
    }

    /// The chain, oldest first; the last is the one being written.
    pub fn chain(&self) -> &VecDeque<Place> {
        self.uses.all(Use::Chain)
    }

    /// The chain goes on with a segment.
    pub fn begin(&mut self, place: Place) {
        self.uses.pass(place, Use::Chain, End::Back);
    }

    /// Takes the last segment out of the chain, of which nothing was applied: it is named again, and what it named is free.
    pub fn unbegin(&mut self) {
        let place = *self.chain().back().expect("the chain has a back");
        self.uses.pass(self.get(place).successor, Use::Clean, End::Front);
        self.uses.pass(place, Use::Named, End::Back);
        self.get_mut(place).index = None;
    }

    /// Recovery has found the chain: what it names is its next segment, and all others are free.
    pub fn rest_is_free(&mut self) {
        let named = self.chain().back().map(|place| self.get(*place).successor);
        for place in self.outside_chain() {
            let to = if named == Some(place) { Use::Named } else { Use::Clean };
            self.uses.pass(place, to, End::Back);
        }
    }

    /// A block of a segment is some block's newest copy.
    pub fn enter(&mut self, place: Place, is_bad: bool) {
        self.change(place, |segment| {
            segment.live += 1;
            segment.lost += u32::from(is_bad);
        });
    }

    /// Of a block that is there, something is lost.
    pub fn lose(&mut self, place: Place) {
        self.change(place, |segment| segment.lost += 1);
    }

    /// It is not any more.
    pub fn leave(&mut self, place: Place, was_bad: bool) {
        self.change(place, |segment| {
            segment.live -= 1;
            segment.lost -= u32::from(was_bad);
        });
    }

    /// Whether nothing is left in the oldest segment, while the log goes on in another.
    pub fn front_is_empty(&self) -> bool {
        self.chain().len() > 1 && self.chain().front().is_some_and(|place| self.get(*place).live == 0)
    }

    /// Whether its blocks were to leave it already.
    pub fn is_emptying(&self, place: Place) -> bool {
        self.get(place).emptying.is_some()
    }

    /// The blocks of a segment of the chain, to which no group is added any more, will leave it now.
    pub fn begin_emptying(&mut self, place: Place) {
        self.change(place, |segment| segment.emptying = segment.emptying.or(Some(segment.live)));
    }

    fn change(&mut self, place: Place, change: impl FnOnce(&mut Segment)) {
        let segment = &mut self.segments[place.0 as usize];
        let before = segment.emptied_blocks(self.area_blocks);
        change(segment);
        self.emptied_blocks = self.emptied_blocks + segment.emptied_blocks(self.area_blocks) - before;
    }

    /// Blocks that are free, or about to be: those of free segments, and of each that is being emptied as large a share
    /// as has been done of that.
    pub fn room_blocks(&self) -> u64 {
        let free = u64::from(self.unused_segments()) + self.uses.all(Use::Retiring).len() as u64;
        free * u64::from(self.area_blocks) + self.emptied_blocks
    }

    /// Segments in which nothing of the log is: those that are free, and those that copies will leave.
    pub fn unused_segments(&self) -> u32 {
        let left = [Use::Lent, Use::Recalled, Use::Trimming];
        self.free_segments() + left.iter().map(|with| self.uses.all(*with).len() as u32).sum::<u32>()
    }

    /// Lends a free segment of the zone's own.
    pub fn lend(&mut self) -> Option<Area> {
        let place = self.uses.free(Use::Spent, End::Back, |place| !self.is_borrowed(place))?;
        self.uses.pass(place, Use::Lent, End::Back);
        Some(self.area(place))
    }

    /// Whether an area's segment is lent, and was not recalled.
    pub fn is_lent(&self, area: Area) -> bool {
        self.place(area).is_some_and(|place| self.uses.of(place) == Use::Lent)
    }

    /// Wants a lent segment back.
    pub fn recall(&mut self) -> Option<Area> {
        let place = *self.uses.all(Use::Lent).back()?;
        self.uses.pass(place, Use::Recalled, End::Back);
        Some(self.area(place))
    }

    /// Segments that were recalled and are not free yet.
    pub fn recalled(&self) -> u32 {
        self.uses.all(Use::Recalled).len() as u32
    }

    /// Those recalled segments are free whose areas have been left; whether there was one.
    pub fn take_recalled(&mut self, is_left: impl Fn(Area) -> bool) -> bool {
        let areas = &self.areas;
        self.uses.settle(Use::Recalled, |place| is_left(areas[place.0 as usize]))
    }

    /// Takes a free segment to be named as a successor; one of the zone's own, if there is one, where borrowed ones are to
    /// be given back.
    pub fn take_free(&mut self, gives_back: bool) -> Option<Place> {
        let stays = |place: Place| !gives_back || !self.is_borrowed(place);
        let place = self.uses.free(Use::Clean, End::Front, stays);
        let place = place.or_else(|| self.uses.free(Use::Clean, End::Front, |_| true))?;
        self.uses.pass(place, Use::Named, End::Back);
        Some(place)
    }

    /// Whether a free segment is being discarded.
    pub fn is_trimming(&self) -> bool {
        !self.uses.all(Use::Trimming).is_empty()
    }

    /// Takes a free segment that the device is to be told of, until [`Zone::end_trim`].
    pub fn begin_trim(&mut self) -> Option<Place> {
        let place = *self.uses.all(Use::Spent).front()?;
        self.uses.pass(place, Use::Trimming, End::Back);
        Some(place)
    }

    /// The device was told.
    pub fn end_trim(&mut self) {
        if let Some(place) = self.uses.all(Use::Trimming).front() {
            self.uses.pass(*place, Use::Clean, End::Back);
        }
    }

    /// Whether a segment's area is borrowed.
    pub fn is_borrowed(&self, place: Place) -> bool {
        place.0 >= self.own_len()
    }

    /// Takes the segments before `tail` out of the chain: a durable checkpoint needs them no more.
    /// They are reused once no read is in flight in them.
    pub fn drop_before(&mut self, tail: Place) {
        while let Some(place) = self.chain().front().copied().filter(|place| *place != tail) {
            self.change(place, |segment| {
                assert!(segment.live == 0, "a segment with landed blocks is never dropped");
                (segment.index, segment.emptying) = (None, None);
            });
            self.uses.pass(place, Use::Retiring, End::Back);
        }
        self.recycle();
    }

    /// Moves retired segments without reads in flight to the free list.
    pub fn recycle(&mut self) {
        let segments = &self.segments;
        self.uses.settle(Use::Retiring, |place| segments[place.0 as usize].pins == 0);
    }

    /// Bytes of segments in the chain.
    pub fn used_bytes(&self) -> u64 {
        self.chain().len() as u64 * self.area_bytes
    }
}
