//! The landing zone: segments of the log, oldest first, and those that are free.
//!
//! Its own areas lie at the end of the fast device. It may borrow further ones that held slots.

use crate::base::hash::IndexMap;
use crate::base::place::Place;
use crate::format::geometry::Geometry;
use crate::format::log::Index;
use crate::volume::landed::ZoneBlock;
use bimetal_units::*;
use std::collections::VecDeque;
use std::iter;
use std::ops::Range;

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
pub struct Zone {
    segments: Vec<Segment>,
    /// The area of each place.
    areas: Vec<Area>,
    /// Places for areas that may be borrowed.
    vacant: Vec<Place>,
    /// Where borrowed areas have theirs.
    borrowed: IndexMap<Area, Place>,
    /// The chain, oldest first; the last is the one being written.
    pub chain: VecDeque<Place>,
    /// Free, and the device keeps nothing of what was in them, as far as is known.
    free: VecDeque<Place>,
    /// Free as well, those longest so first; the device still keeps what was in them.
    spent: VecDeque<Place>,
    /// The one of these that is being discarded.
    trimming: Option<Place>,
    /// Out of the chain, but reads are in flight.
    retiring: Vec<Place>,
    /// Free, and lent to copies: the last one is recalled first.
    lent: Vec<Place>,
    /// Those that were recalled, until nothing is in flight in them.
    recalled: Vec<Place>,
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
            chain: VecDeque::new(),
            free: VecDeque::new(),
            spent: VecDeque::new(),
            trimming: None,
            retiring: Vec::new(),
            lent: Vec::new(),
            recalled: Vec::new(),
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
        (self.free.len() + self.spent.len()) as u32
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
        self.spent.push_back(place);
    }

    /// Gives up a borrowed area whose segment is free.
    pub fn give_back(&mut self) -> Option<Area> {
        let own = self.own_len();
        let place = remove_first(&mut self.spent, |place| place.0 >= own)
            .or_else(|| remove_first(&mut self.free, |place| place.0 >= own))?;
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
        let mut outside: Vec<bool> = self.areas.iter().map(|area| *area != NO_AREA).collect();
        self.chain.iter().for_each(|place| outside[place.0 as usize] = false);
        (0..self.areas.len() as u32).map(Place).filter(|place| outside[place.0 as usize]).collect()
    }

    /// Puts every segment that is neither in the chain nor the named successor on the free list.
    pub fn rebuild_free(&mut self) {
        let successor = self.chain.back().map(|p| self.get(*p).successor);
        self.free = self.outside_chain().into_iter().filter(|p| successor != Some(*p)).collect();
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
        self.chain.len() > 1 && self.chain.front().is_some_and(|place| self.get(*place).live == 0)
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
        let free = u64::from(self.unused_segments()) + self.retiring.len() as u64;
        free * u64::from(self.area_blocks) + self.emptied_blocks
    }

    /// Segments in which nothing of the log is: those that are free, and those that copies will leave.
    pub fn unused_segments(&self) -> u32 {
        self.free_segments()
            + (self.lent.len() + self.recalled.len() + usize::from(self.is_trimming())) as u32
    }

    /// Lends a free segment of the zone's own.
    pub fn lend(&mut self) -> Option<Area> {
        let own = self.own_len();
        let place = remove_last(&mut self.spent, |place| place.0 < own)
            .or_else(|| remove_last(&mut self.free, |place| place.0 < own))?;
        self.lent.push(place);
        Some(self.area(place))
    }

    /// Whether an area's segment is lent, and was not recalled.
    pub fn is_lent(&self, area: Area) -> bool {
        self.lent.iter().any(|place| self.area(*place) == area)
    }

    /// Wants a lent segment back.
    pub fn recall(&mut self) -> Option<Area> {
        let place = self.lent.pop()?;
        self.recalled.push(place);
        Some(self.area(place))
    }

    /// Segments that were recalled and are not free yet.
    pub fn recalled(&self) -> u32 {
        self.recalled.len() as u32
    }

    /// Those recalled segments are free whose areas have been left; whether there was one.
    pub fn take_recalled(&mut self, is_left: impl Fn(Area) -> bool) -> bool {
        let areas = &self.areas;
        release(&mut self.recalled, &mut self.spent, |place| is_left(areas[place.0 as usize]))
    }

    /// Takes a free segment to be named as a successor; one of the zone's own, if there is one, where borrowed ones are to
    /// be given back.
    pub fn take_free(&mut self, gives_back: bool) -> Option<Place> {
        let own = self.own_len();
        let stays = |place: Place| !gives_back || place.0 < own;
        remove_first(&mut self.free, stays)
            .or_else(|| remove_first(&mut self.spent, stays))
            .or_else(|| self.free.pop_front())
            .or_else(|| self.spent.pop_front())
    }

    /// Whether a free segment is being discarded.
    pub fn is_trimming(&self) -> bool {
        self.trimming.is_some()
    }

    /// Takes a free segment that the device is to be told of, until [`Zone::end_trim`].
    pub fn begin_trim(&mut self) -> Option<Place> {
        self.trimming = self.spent.pop_front();
        self.trimming
    }

    /// The device was told.
    pub fn end_trim(&mut self) {
        self.free.extend(self.trimming.take());
    }

    /// Whether a segment's area is borrowed.
    pub fn is_borrowed(&self, place: Place) -> bool {
        place.0 >= self.own_len()
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
            self.change(place, |segment| {
                assert!(segment.live == 0, "a segment with landed blocks is never dropped");
                (segment.index, segment.emptying) = (None, None);
            });
            self.retiring.push(place);
        }
        self.recycle();
    }

    /// Moves retired segments without reads in flight to the free list.
    pub fn recycle(&mut self) {
        let segments = &self.segments;
        release(&mut self.retiring, &mut self.spent, |place| segments[place.0 as usize].pins == 0);
    }

    /// Bytes of segments in the chain.
    pub fn used_bytes(&self) -> u64 {
        self.chain.len() as u64 * self.area_bytes
    }
}

fn remove_first(places: &mut VecDeque<Place>, is_it: impl Fn(Place) -> bool) -> Option<Place> {
    let at = places.iter().position(|place| is_it(*place))?;
    places.remove(at)
}

fn remove_last(places: &mut VecDeque<Place>, is_it: impl Fn(Place) -> bool) -> Option<Place> {
    let at = places.iter().rposition(|place| is_it(*place))?;
    places.remove(at)
}

/// Moves the places for which nothing is waited any more to the free list; whether there was one.
fn release(waiting: &mut Vec<Place>, free: &mut VecDeque<Place>, is_done: impl Fn(Place) -> bool) -> bool {
    let before = waiting.len();
    waiting.retain(|place| {
        let done = is_done(*place);
        if done {
            free.push_back(*place);
        }
        !done
    });
    waiting.len() < before
}
