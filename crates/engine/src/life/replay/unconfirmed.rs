//! Groups behind the log's end that are there and do not count: nothing says that they were durable.
//!
//! A crash leaves such groups where one before them was torn. So would one that rotted after its flush was answered, if
//! nothing was written since that claims it. Nobody can tell these apart, so the log ends all the same; but they are told
//! of, and as long as nothing is written over them they can be looked at.

use super::{Found, Segment, Walk};
use crate::api::options::{OpenError, UnconfirmedBlocks, UnconfirmedGroup};
use crate::base::arena::{Arena, Pool};
use crate::format::codec::Get;
use crate::format::log::{GroupHeader, Record, SegmentHeader};
use crate::life::open::no_memory;
use crate::life::recovery::Reader;
use crate::volume::state::State;
use bimetal_units::*;
use std::ops::Range;

/// Groups told of at most.
const MOST_GROUPS: usize = 4096;
/// Segments behind the end that are looked at.
const MOST_SEGMENTS: u32 = 64;

/// Where to look for groups that do not count.
pub(super) struct Behind {
    pub(super) area: Area,
    pub(super) ordinal: u64,
    /// From this block of it on, ...
    pub(super) from: u32,
    /// ... with numbers behind this one, ...
    pub(super) after: Seq,
    /// ... and written by these openings.
    pub(super) epochs: Range<Generation>,
}

impl<A: Arena> Reader<A> {
    /// Groups behind the log's end.
    pub(super) async fn behind_the_end(
        &self,
        walk: &Walk<'_>,
        state: &State,
        end: &super::LogEnd,
    ) -> Result<Vec<UnconfirmedGroup>, OpenError> {
        let segment = state.zone.get(end.place);
        let epochs = walk.epoch..Generation(u64::MAX);
        let area = state.zone.area(end.place);
        let (after, ordinal) = (walk.last, segment.ordinal);
        let mut found = Vec::new();
        let mut behind = Behind { area, ordinal, from: end.cursor, after, epochs };
        let mut next = state.zone.area(segment.successor);
        for _ in 0..MOST_SEGMENTS {
            self.unconfirmed_in(walk.volume, state, &behind, &mut found).await?;
            behind = Behind { area: next, ordinal: behind.ordinal + 1, from: 0, ..behind };
            if next.0 >= state.geo.areas {
                break;
            }
            let decode = |b: &[u8]| SegmentHeader::decode(b, walk.volume, next);
            let header = self.blocks(FAST, state.geo.area_at(next), 1, decode).await.ok().flatten();
            // Header and first group are one write, which may be what is missing: then the chain is known so far.
            next = header.filter(|h| h.ordinal == behind.ordinal).map_or(Area(u32::MAX), |h| h.successor);
        }
        found.sort_by_key(|group| group.group);
        Ok(found)
    }

    /// Groups that earlier openings left behind in segments of the chain, because the log ended before them.
    pub(crate) async fn left_behind(
        &self,
        volume: &crate::format::Id,
        state: &State,
    ) -> Result<Vec<UnconfirmedGroup>, OpenError> {
        let mut found = Vec::new();
        let chain: Vec<_> = state.zone.chain().iter().copied().collect();
        for pair in chain.windows(2) {
            let (place, next) = (pair[0], state.zone.area(pair[1]));
            let segment = state.zone.get(place);
            // One with an index has nothing behind its groups.
            let Some(index) = &segment.index else { continue };
            let decode = |b: &[u8]| SegmentHeader::decode(b, volume, next);
            let Some(header) = self.blocks(FAST, state.geo.area_at(next), 1, decode).await? else { continue };
            let behind = Behind {
                area: state.zone.area(place),
                ordinal: segment.ordinal,
                from: 1,
                after: index.last,
                epochs: Generation(0)..header.epoch,
            };
            self.unconfirmed_in(volume, state, &behind, &mut found).await?;
        }
        found.sort_by_key(|group| group.group);
        Ok(found)
    }

    async fn unconfirmed_in(
        &self,
        volume: &crate::format::Id,
        state: &State,
        behind: &Behind,
        found: &mut Vec<UnconfirmedGroup>,
    ) -> Result<(), OpenError> {
        let buf = self.io.alloc(Pool::Log, state.geo.area_bytes).ok_or_else(no_memory)?;
        let read = self.read_around(state.geo.area_at(behind.area), buf).await;
        if let Ok(unreadable) = read {
            let segment = Segment { buf, unreadable };
            for block in behind.from..state.geo.area_blocks() {
                if found.len() < MOST_GROUPS {
                    found.extend(self.unconfirmed_at(volume, state, behind, block, &segment));
                }
            }
        }
        self.io.free(buf);
        Ok(())
    }

    /// The group that begins at a block, if it is one that is looked for.
    fn unconfirmed_at(
        &self,
        volume: &crate::format::Id,
        state: &State,
        behind: &Behind,
        block: u32,
        segment: &Segment,
    ) -> Option<UnconfirmedGroup> {
        let (group, records) = self.io.with(|a| {
            let bytes = a.bytes(segment.buf);
            let (header, records, blocks) =
                GroupHeader::decode(&bytes[(block * BLOCK_BYTES) as usize..], volume)?;
            let ours = header.ordinal == behind.ordinal && behind.epochs.contains(&header.epoch);
            let fits = header.offset == block && block.checked_add(blocks)? <= state.geo.area_blocks();
            if !ours || !fits || header.seq <= behind.after {
                return None;
            }
            let start = records.as_ptr() as usize - bytes.as_ptr() as usize;
            let range = start..start + records.len();
            Some((Found { header, records: range, blocks }, records.to_vec()))
        })?;
        let whole = self.payload_is_whole(state, &group, segment);
        let at = state.geo.area_at(behind.area);
        let byte = |block: u32| at + u64::from(block) * u64::from(BLOCK_BYTES);
        let mut payload = block + group.blocks - group.header.payload_blocks;
        let (mut landed, mut others) = (Vec::new(), 0);
        let mut get = Get(&records);
        while !get.0.is_empty() {
            let record = Record::decode(&mut get, state.geo.mask_words())?;
            if let Record::Data { block, sums, .. } = &record {
                landed.push(UnconfirmedBlocks {
                    volume_byte: block.0.checked_mul(u64::from(BLOCK_BYTES))?,
                    fast_byte: byte(payload),
                    bytes: sums.len() as u64 * u64::from(BLOCK_BYTES),
                });
            } else {
                others += 1;
            }
            payload = payload.checked_add(record.payload_blocks())?;
        }
        Some(UnconfirmedGroup {
            group: group.header.seq.0,
            offset: byte(block),
            blocks: group.blocks,
            whole,
            landed,
            other_records: others,
        })
    }
}
