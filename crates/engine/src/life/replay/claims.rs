//! What stands behind the log's end and claims that more than was found had been durable: proof that the end is damage.
//!
//! A claim is true for ever: a group up to which a device had flushed is found by every later recovery, whatever is lost
//! behind it, unless the device broke its word. So a claim beyond the last good group accuses the device, and never
//! a crash. The first claim to cover a group is written after the flush that made it durable, and a client may write
//! any number of segments before it flushes; so the claims must be looked for in all of the zone. They are only counted:
//! what the log says is still found by following its chain.

use super::{LogEnd, Walk};
use crate::api::options::OpenError;
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::place::Place;
use crate::format::log::{GroupHeader, SegmentHeader};
use crate::life::open::no_memory;
use crate::life::recovery::Reader;
use crate::volume::state::State;
use bimetal_units::*;
use smallvec::SmallVec;

/// Segment headers read at a time.
const HEADERS_IN_FLIGHT: usize = 16;

impl<A: Arena> Reader<A> {
    /// Refuses an end that something behind it proves wrong.
    pub(super) async fn refuse_claims(
        &self,
        walk: &mut Walk<'_>,
        state: &State,
        end: &LogEnd,
    ) -> Result<(), OpenError> {
        let began = self.gather_claims(walk, state, end.place).await?;
        if walk.durable <= walk.last {
            return Ok(());
        }
        let left = end.cursor >= state.geo.area_blocks() && !began;
        let successor = state.zone.get(end.place).successor;
        let (place, block) = if left { (successor, 0) } else { (end.place, end.cursor) };
        Err(self.was_durable(walk, state.zone.offset(place, block.min(state.geo.area_blocks() - 1))))
    }

    /// Takes the claims of everything behind a segment of the chain, the last one that was reached; whether its successor
    /// has begun.
    pub(super) async fn gather_claims(
        &self,
        walk: &mut Walk<'_>,
        state: &State,
        place: Place,
    ) -> Result<bool, OpenError> {
        let last = state.zone.get(place);
        let (ordinal, successor) = (last.ordinal, last.successor);
        let (mut newest, mut began) = (None, false);
        for places in state.zone.outside_chain().chunks(HEADERS_IN_FLIGHT) {
            for (place, header) in self.headers(walk, state, places).await? {
                if header.ordinal <= ordinal || header.epoch < walk.epoch {
                    continue;
                }
                walk.durable = walk.durable.max(header.durable);
                if let Some(index) = self.index(walk, state, state.zone.area(place), header.ordinal).await? {
                    walk.durable = walk.durable.max(index.last);
                }
                began |= place == successor;
                newest = newest.max(Some(((header.epoch, header.ordinal), place, header.successor)));
            }
        }
        let seen = self.claims_along(walk, state, state.zone.area(successor), ordinal + 1).await?;
        // The newest segment may be one that these do not lead to. Header and first group of a segment are one write, which may
        // be what is missing: then only its predecessor knows of it.
        let suspects = newest
            .map(|((_, ordinal), place, next)| [(state.zone.area(place), ordinal), (next, ordinal + 1)]);
        for (area, ordinal) in suspects.into_iter().flatten() {
            if !seen.contains(&(area, ordinal)) {
                self.claims_in(walk, state, area, ordinal).await?;
            }
        }
        Ok(began)
    }

    /// Takes the claims of segments that follow each other from one on; gives those of which the groups were asked, with their
    /// ordinals. They may lie among the slots, where nothing else names them. Where a segment's header is gone, its groups say
    /// where the chain goes on. The groups of each are asked that has no index, not of the last alone: where an opening has
    /// ended the log, only groups there say what it found, and behind that may stand segments that the crash before it cut off.
    async fn claims_along(
        &self,
        walk: &mut Walk<'_>,
        state: &State,
        mut area: Area,
        mut ordinal: u64,
    ) -> Result<Vec<(Area, u64)>, OpenError> {
        let mut seen = Vec::new();
        for _ in 0..state.geo.areas {
            if area.0 >= state.geo.areas {
                break;
            }
            let decode = |b: &[u8]| SegmentHeader::decode(b, walk.volume, area);
            let read = self.lone_block(state.geo.area_at(area), decode).await?;
            let follows = |h: &SegmentHeader| h.ordinal == ordinal && h.epoch >= walk.epoch;
            let header = read.flatten().filter(follows);
            let index = self.index(walk, state, area, ordinal).await?;
            let claims = [header.map(|h| h.durable), index.as_ref().map(|index| index.last)];
            walk.durable = claims.into_iter().flatten().fold(walk.durable, Seq::max);
            let mut successor = header.map(|h| h.successor);
            if successor.is_none() || index.is_none() {
                seen.push((area, ordinal));
                let said = self.claims_in(walk, state, area, ordinal).await?;
                successor = successor.or(said);
            }
            let Some(next) = successor else { break };
            (area, ordinal) = (next, ordinal + 1);
        }
        Ok(seen)
    }

    /// The valid segment headers of these places. One that cannot be read, while the device reads something else, claims
    /// nothing: most of these segments are out of use, and a bad sector there must not keep the volume closed.
    async fn headers(
        &self,
        walk: &Walk<'_>,
        state: &State,
        places: &[Place],
    ) -> Result<SmallVec<[(Place, SegmentHeader); HEADERS_IN_FLIGHT]>, OpenError> {
        let buf = self.io.alloc(Pool::Meta, places.len() as u32 * BLOCK_BYTES).ok_or_else(no_memory)?;
        let block = |i: usize| buf.slice(i as u32 * BLOCK_BYTES, BLOCK_BYTES);
        let read = |(i, place): (usize, &Place)| self.io.read(FAST, state.zone.offset(*place, 0), block(i));
        let reads: SmallVec<[_; HEADERS_IN_FLIGHT]> = places.iter().enumerate().map(read).collect();
        let (mut found, mut failed) = (SmallVec::new(), SmallVec::<[Place; HEADERS_IN_FLIGHT]>::new());
        for (i, read) in reads.into_iter().enumerate() {
            if read.await.is_err() {
                failed.push(places[i]);
                continue;
            }
            let area = state.zone.area(places[i]);
            let decode = |a: &mut A| SegmentHeader::decode(a.bytes(block(i)), walk.volume, area);
            found.extend(self.io.with(decode).map(|h| (places[i], h)));
        }
        self.io.free(buf);
        for place in failed {
            let decode = |b: &[u8]| SegmentHeader::decode(b, walk.volume, state.zone.area(place));
            let read = self.lone_block(state.zone.offset(place, 0), decode).await?;
            found.extend(read.flatten().map(|h| (place, h)));
        }
        Ok(found)
    }

    /// Takes the claims of the groups in a segment of this ordinal, whatever its header says; gives where they say that the
    /// chain goes on.
    pub(super) async fn claims_in(
        &self,
        walk: &mut Walk<'_>,
        state: &State,
        area: Area,
        ordinal: u64,
    ) -> Result<Option<Area>, OpenError> {
        if area.0 >= state.geo.areas {
            return Ok(None);
        }
        let buf = self.io.alloc(Pool::Log, state.geo.area_bytes).ok_or_else(no_memory)?;
        let read = self.read_around(state.geo.area_at(area), buf).await;
        let mut successor = None;
        if read.is_ok() {
            let newest = self.newest_group(walk, state, 0, ordinal, buf);
            walk.durable = walk.durable.max(newest.map_or(Seq(0), |group| group.durable));
            successor = newest.and_then(|group| group.successor);
        }
        self.io.free(buf);
        read.map(|_| successor)
    }

    /// Of the valid groups from a block on, in a segment that has, or would have, this ordinal, the one that claims most to be
    /// durable.
    pub(super) fn newest_group(
        &self,
        walk: &Walk<'_>,
        state: &State,
        cursor: u32,
        ordinal: u64,
        buf: Buf,
    ) -> Option<GroupHeader> {
        let group = |offset: u32| {
            let at = (offset * BLOCK_BYTES) as usize;
            let group =
                self.io.with(|a| GroupHeader::decode(&a.bytes(buf)[at..], walk.volume).map(|g| g.0))?;
            let later = group.ordinal == ordinal && group.epoch >= walk.epoch && group.offset == offset;
            (later && !planted(Bug::TornGroupAccepted)).then_some(group)
        };
        (cursor..state.geo.area_blocks())
            .filter_map(group)
            .max_by_key(|group| (group.durable, group.epoch, group.seq))
    }
}
