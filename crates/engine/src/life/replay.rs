//! Replays the log: follows the chain of segments from the checkpoint's tail, never searches.
//!
//! A group that is not valid is the log's end, but only behind the last group known durable; before
//! it, it is corruption, and is reported.

mod claims;
mod unconfirmed;

use crate::api::options::{OpenError, UnconfirmedGroup};
use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::base::place::Place;
use crate::format::Id;
use crate::format::codec::Get;
use crate::format::header::CheckpointHeader;
use crate::format::log::{GroupHeader, Index, Record, SegmentHeader};
use crate::life::open::no_memory;
use crate::life::recovery::{Reader, Unreadable};
use crate::path::log::LogEnd;
use crate::volume::state::State;
use bimetal_units::*;

struct Walk<'a> {
    volume: &'a Id,
    header: &'a CheckpointHeader,
    durable: Seq,
    epoch: Generation,
    last: Seq,
}

/// A segment as it was read.
struct Segment {
    buf: Buf,
    unreadable: Unreadable,
}

/// A group found in a segment.
struct Found {
    header: GroupHeader,
    records: std::ops::Range<usize>,
    blocks: u32,
}

/// The groups of a segment that count.
struct GroupsRead {
    whole: Vec<Found>,
    /// Whether the segment ends with them, by its length or by what its successor says.
    ended: bool,
    /// Whether one follows of which only the payload is not as it should be.
    torn: bool,
}

/// Times that the segment in which the log ends is read at most: that many groups are whole must have been seen twice, and
/// never more.
const END_READS: u32 = 5;

impl<A: Arena> Reader<A> {
    pub(crate) async fn replay(
        &self,
        volume: &Id,
        header: &CheckpointHeader,
        state: &mut State,
    ) -> Result<(LogEnd, Vec<UnconfirmedGroup>), OpenError> {
        let first = Seq(header.tail_first.0.saturating_sub(1));
        let mut walk = Walk { volume, header, durable: header.durable, epoch: Generation(0), last: first };
        let tail = state
            .zone
            .adopt(header.tail_area)
            .ok_or_else(|| self.no_area(state, 0, "the checkpoint names a tail that is no area"))?;
        let mut segment =
            self.segment(volume, state, tail).await?.filter(|s| s.ordinal == header.tail_ordinal);
        let mut end = LogEnd { place: tail, cursor: 0, last: first, claimed: walk.durable };
        let mut place = tail;
        let mut named = IndexMap::from_iter([(tail, ())]);
        while let Some(s) = segment {
            let next_place = state.zone.adopt(s.successor).filter(|next| named.insert(*next, ()).is_none());
            let next_place = next_place.ok_or_else(|| {
                self.no_area(state, state.zone.offset(place, 0), "a segment names no valid successor")
            })?;
            state.zone.begin(place);
            let own = state.zone.get_mut(place);
            (own.ordinal, own.first, own.last) = (s.ordinal, s.first, walk.last);
            own.successor = next_place;
            walk.epoch = walk.epoch.max(s.epoch);
            walk.durable = walk.durable.max(s.durable);
            let next = self.segment(volume, state, next_place).await?;
            let further_on = next.filter(|n| n.ordinal > s.ordinal + 1);
            let next = next.filter(|n| n.ordinal == s.ordinal + 1);
            end = self.walk_segment(&mut walk, state, place, next).await?;
            if further_on.is_some_and(|n| n.epoch >= walk.epoch) {
                // The log went on from here, and was cut behind here by a checkpoint that we do not see.
                // One of an earlier epoch is what a crash left of a future that was lost.
                let at = state.zone.offset(next_place, 0);
                return Err(self.corrupt(
                    FAST,
                    at,
                    "the newest checkpoint header was durable and is not valid",
                ));
            }
            state.zone.get_mut(place).last = walk.last;
            // A successor of an epoch before the last group's was lost in a crash before this one.
            segment = next.filter(|n| n.epoch >= walk.epoch && n.first.0 == walk.last.0 + 1);
            if let Some(n) = next.filter(|n| n.epoch >= walk.epoch && segment.is_none()) {
                walk.durable = walk.durable.max(n.durable);
            }
            place = next_place;
        }
        if state.zone.chain().is_empty() {
            let at = state.zone.offset(tail, 0);
            return Err(self.corrupt(FAST, at, "the log segment that the checkpoint names is not valid"));
        }
        self.refuse_claims(&mut walk, state, &end).await?;
        let unconfirmed = self.behind_the_end(&walk, state, &end).await?;
        Ok((LogEnd { claimed: walk.durable, ..end }, unconfirmed))
    }

    async fn segment(
        &self,
        volume: &Id,
        state: &State,
        place: Place,
    ) -> Result<Option<SegmentHeader>, OpenError> {
        let area = state.zone.area(place);
        self.blocks(FAST, state.zone.offset(place, 0), 1, |b| SegmentHeader::decode(b, volume, area)).await
    }

    async fn walk_segment(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State,
        place: Place,
        next: Option<SegmentHeader>,
    ) -> Result<LogEnd, OpenError> {
        let ordinal = state.zone.get(place).ordinal;
        if let Some(index) = self.index(walk, state, state.zone.area(place), ordinal).await? {
            return self.apply_index(walk, state, place, &index);
        }
        self.walk_groups(walk, state, place, next).await
    }

    /// Walks the groups of a segment without an index. Where they end before the segment does, it is read again before that
    /// counts; and where a group is whole but for its payload, what claims that it was durable is looked for first, for then
    /// only who reads that payload is told.
    async fn walk_groups(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State,
        place: Place,
        next: Option<SegmentHeader>,
    ) -> Result<LogEnd, OpenError> {
        let (mut most, mut torn, mut claims_known) = (None, false, false);
        for _ in 0..END_READS {
            let buf = self.io.alloc(Pool::Log, state.geo.area_bytes).ok_or_else(no_memory)?;
            let read = match self.read_around(state.zone.offset(place, 0), buf).await {
                Ok(unreadable) => self.read_groups(walk, state, place, next, &Segment { buf, unreadable }),
                Err(error) => Err(error),
            };
            let sure = |read: &GroupsRead| read.ended || most == Some(read.whole.len());
            let result = match read {
                Ok(read) if sure(&read) => Some(self.apply_groups(walk, state, place, read, buf)),
                Ok(read) => {
                    most = most.max(Some(read.whole.len()));
                    torn |= read.torn;
                    None
                }
                Err(error) => Some(Err(error)),
            };
            self.io.free(buf);
            if let Some(result) = result {
                return result;
            }
            if torn && !std::mem::replace(&mut claims_known, true) {
                // Of its own groups, too: those behind one whose header is not valid were not seen.
                let ordinal = state.zone.get(place).ordinal;
                self.claims_in(walk, state, state.zone.area(place), ordinal).await?;
                self.gather_claims(walk, state, place).await?;
            }
        }
        let at = state.zone.offset(place, 0);
        Err(self.corrupt(FAST, at, "what is read of the log's last segment is not the same twice"))
    }

    /// The index of a sealed segment: it was written when all its groups were durable. One that cannot be
    /// read is done without.
    async fn index(
        &self,
        walk: &Walk<'_>,
        state: &State,
        area: Area,
        ordinal: u64,
    ) -> Result<Option<Index>, OpenError> {
        let end = state.geo.area_blocks();
        let block = |n: u32| state.geo.area_at(area) + u64::from(n) * u64::from(BLOCK_BYTES);
        let trailer = block(end - 1);
        let body = self.lone_block(trailer, |b| Index::decode_trailer(b, walk.volume, ordinal)).await?;
        if body.is_none() {
            self.unreadable.borrow_mut().push((FAST, trailer));
        }
        let Some(body) = body.flatten().filter(|n| (1..end - 1).contains(n)) else { return Ok(None) };
        let at = block(end - 1 - body);
        let buf = self.io.alloc(Pool::Log, body * BLOCK_BYTES).ok_or_else(no_memory)?;
        let read = self.io.read(FAST, at, buf).await;
        let decode = |a: &mut A| Index::decode(a.bytes(buf), walk.volume, ordinal);
        let at_once = read.is_ok().then(|| self.io.with(decode));
        self.io.free(buf);
        let index = match at_once {
            Some(index) => index,
            None => {
                let blocks = self.lone_blocks(at, body).await?;
                blocks.and_then(|blocks| Index::decode(&blocks, walk.volume, ordinal))
            }
        };
        Ok(index.filter(|i| i.epoch >= walk.epoch))
    }

    /// Reads blocks one by one; none where one of them cannot be read.
    async fn lone_blocks(&self, at: u64, count: u32) -> Result<Option<Vec<u8>>, OpenError> {
        let mut bytes = Vec::with_capacity((count * BLOCK_BYTES) as usize);
        for at in (0..count).map(|block| at + u64::from(block * BLOCK_BYTES)) {
            if self.lone_block(at, |b| bytes.extend_from_slice(b)).await?.is_none() {
                self.unreadable.borrow_mut().push((FAST, at));
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    fn apply_index(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State,
        place: Place,
        index: &Index,
    ) -> Result<LogEnd, OpenError> {
        let bad = |s: &State| {
            self.corrupt(
                FAST,
                s.zone.offset(place, s.geo.area_blocks() - 1),
                "a segment's index is malformed",
            )
        };
        let mut end = 1;
        for group in index.groups() {
            let (seq, offset, header_blocks, records) = group.ok_or_else(|| bad(state))?;
            // Groups lie behind each other, or two would claim the same blocks.
            let payload = offset.checked_add(header_blocks).filter(|_| offset >= end && header_blocks > 0);
            let payload = payload.filter(|_| seq.0 == walk.last.0 + 1).ok_or_else(|| bad(state))?;
            end = self.apply(walk, state, place, seq, payload, records).ok_or_else(|| bad(state))?;
        }
        if walk.last != index.last {
            return Err(bad(state));
        }
        walk.epoch = walk.epoch.max(index.epoch);
        walk.durable = walk.durable.max(index.last);
        Ok(LogEnd { place, cursor: state.geo.area_blocks(), last: walk.last, claimed: walk.durable })
    }

    /// Finds the groups of a segment without an index, as far as they are whole or known to have been.
    fn read_groups(
        &self,
        walk: &mut Walk<'_>,
        state: &State,
        place: Place,
        next: Option<SegmentHeader>,
        segment: &Segment,
    ) -> Result<GroupsRead, OpenError> {
        let mut groups = self.find_groups(walk, state, place, next, segment)?;
        for g in &groups {
            walk.durable = walk.durable.max(g.header.durable);
            if g.header.checkpoint > walk.header.number {
                let at = state.zone.offset(place, g.header.offset);
                return Err(self.corrupt(
                    FAST,
                    at,
                    "the newest checkpoint header was durable and is not valid",
                ));
            }
        }
        let found = groups.len();
        let whole = |g: &Found| {
            g.header.seq <= walk.durable
                || planted(Bug::TornGroupAccepted)
                || self.payload_is_whole(state, g, segment)
        };
        groups.truncate(groups.iter().take_while(|g| whole(g)).count());
        let end = groups.last().map_or(1, |g| g.header.offset + g.blocks);
        let last = groups.last().map_or(walk.last, |g| g.header.seq);
        let left = next.is_some_and(|n| n.first.0 == last.0 + 1 && n.epoch >= walk.epoch);
        let torn = groups.len() < found;
        let ended = !torn && (left || end >= state.geo.area_blocks());
        Ok(GroupsRead { whole: groups, ended, torn })
    }

    fn apply_groups(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State,
        place: Place,
        read: GroupsRead,
        buf: Buf,
    ) -> Result<LogEnd, OpenError> {
        let mut index = Index::default();
        let mut cursor = 1;
        for g in read.whole {
            let payload = g.header.offset + g.blocks - g.header.payload_blocks;
            let records = self.io.with(|a| a.bytes(buf)[g.records.clone()].to_vec());
            let end = self.apply(walk, state, place, g.header.seq, payload, &records);
            if end != Some(g.header.offset + g.blocks) {
                let at = state.zone.offset(place, g.header.offset);
                return Err(self.corrupt(FAST, at, "a log group names what does not exist"));
            }
            walk.epoch = g.header.epoch;
            cursor = g.header.offset + g.blocks;
            index.add(g.header.seq, g.header.epoch, g.header.offset, payload - g.header.offset, &records);
        }
        let ordinal = state.zone.get(place).ordinal;
        self.refuse_later_groups(walk, state, (place, cursor), ordinal, buf)?;
        state.zone.get_mut(place).index = Some(index);
        Ok(LogEnd { place, cursor, last: walk.last, claimed: walk.durable })
    }

    /// Groups whose headers follow each other, from the segment's start. Where the next header would be
    /// and cannot be read, nobody knows whether the log ends.
    fn find_groups(
        &self,
        walk: &Walk<'_>,
        state: &State,
        place: Place,
        next: Option<SegmentHeader>,
        segment: &Segment,
    ) -> Result<Vec<Found>, OpenError> {
        let ordinal = state.zone.get(place).ordinal;
        let (mut offset, mut seq, mut least) = (1, walk.last.0 + 1, (walk.epoch, 0));
        let mut found = Vec::new();
        let mut hidden = false;
        self.io.with(|a| {
            let bytes = a.bytes(segment.buf);
            while offset < state.geo.area_blocks() {
                let at = (offset * BLOCK_BYTES) as usize;
                let Some((header, records, blocks)) = GroupHeader::decode(&bytes[at..], walk.volume) else {
                    let claimed = GroupHeader::claimed_blocks(&bytes[at..]);
                    // Behind where the index begins there is no group.
                    let trailer = &bytes[((state.geo.area_blocks() - 1) * BLOCK_BYTES) as usize..];
                    let index = Index::decode_trailer(trailer, walk.volume, ordinal).unwrap_or(0);
                    let groups_end = state.geo.area_blocks().saturating_sub(1 + index);
                    hidden = offset < groups_end
                        && segment.unreadable.any(offset..offset.saturating_add(claimed))
                        && !next.is_some_and(|n| n.first.0 == seq && n.epoch >= least.0);
                    break;
                };
                let stale = header.ordinal != ordinal || (header.epoch, header.attempt) < least;
                let end = offset.checked_add(blocks).filter(|end| *end <= state.geo.area_blocks());
                let fits = end.is_some() && header.offset == offset;
                // The successor says where this segment ended, unless it is older than what is here.
                let ended = next.is_some_and(|n| n.first.0 == seq && n.epoch >= header.epoch);
                let in_order = header.seq.0 == seq || planted(Bug::StaleGroupAccepted);
                if !fits || ended || !in_order || stale && !planted(Bug::StaleGroupAccepted) {
                    break;
                }
                let start = records.as_ptr() as usize - bytes.as_ptr() as usize;
                let header = GroupHeader { seq: Seq(seq), ..header };
                found.push(Found { header, records: start..start + records.len(), blocks });
                (offset, seq, least) = (offset + blocks, seq + 1, (header.epoch, header.attempt));
            }
        });
        if hidden {
            let at = state.zone.offset(place, offset);
            return Err(self.corrupt(FAST, at, "the log goes on, or ends, in a block that cannot be read"));
        }
        Ok(found)
    }

    /// Whether all payload of a group matches its checksums. A block that cannot be read counts as there:
    /// whoever reads it gets the error, and the groups behind it are not lost.
    fn payload_is_whole(&self, state: &State, group: &Found, segment: &Segment) -> bool {
        self.io.with(|a| {
            let records = a.bytes(segment.buf)[group.records.clone()].to_vec();
            let mut at = group.header.offset + group.blocks - group.header.payload_blocks;
            let mut get = Get(&records);
            while !get.0.is_empty() {
                let Some(record) = Record::decode(&mut get, state.geo.mask_words()) else { return false };
                let Record::Data { sums, .. } = record else {
                    at += record.payload_blocks();
                    continue;
                };
                for sum in sums {
                    if at >= state.geo.area_blocks()
                        || !segment.unreadable.any(at..at + 1)
                            && a.crc32c(segment.buf.slice(at * BLOCK_BYTES, BLOCK_BYTES)) != sum
                    {
                        return false;
                    }
                    at += 1;
                }
            }
            true
        })
    }

    /// A valid group behind the end that knows more to be durable proves that the end is damage. `end` is
    /// the first block that holds no part of the log, in a segment of this ordinal.
    fn refuse_later_groups(
        &self,
        walk: &Walk<'_>,
        state: &State,
        (place, cursor): (Place, u32),
        ordinal: u64,
        buf: Buf,
    ) -> Result<(), OpenError> {
        let newest = self.newest_group(walk, state, cursor, ordinal, buf);
        if newest.is_none_or(|group| group.durable <= walk.last) {
            return Ok(());
        }
        Err(self.was_durable(walk, state.zone.offset(place, cursor)))
    }

    fn was_durable(&self, walk: &Walk<'_>, at: u64) -> OpenError {
        self.corrupt(FAST, at, format!("log group {} was durable and is not valid", walk.last.0 + 1))
    }

    /// Applies the records of a group whose payload begins at `payload`; gives where it ends. `None` when
    /// they name what does not exist.
    fn apply(
        &self,
        walk: &mut Walk<'_>,
        state: &mut State,
        place: Place,
        seq: Seq,
        payload: u32,
        records: &[u8],
    ) -> Option<u32> {
        let mut get = Get(records);
        let mut at = payload;
        while !get.0.is_empty() {
            let record = Record::decode(&mut get, state.geo.mask_words())?;
            let end = at.checked_add(record.payload_blocks()).filter(|e| *e <= state.geo.area_blocks())?;
            let (group, z) = (state.zone.zone_block(place, payload), state.zone.zone_block(place, at));
            if !state.replay(&record, group, z, seq <= walk.header.applied) {
                return None;
            }
            at = end;
        }
        walk.last = seq;
        Some(at)
    }
}
