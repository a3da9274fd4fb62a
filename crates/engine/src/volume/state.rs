//! What the log says, applied: the same code for a running volume, for recovery and for the check.

use crate::api::options::Tuning;
use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use crate::base::mask::BlockMask;
use crate::base::sectors::{Remains, Sectors};
use crate::format::geometry::Geometry;
use crate::format::log::{HomeRecord, Record};
use crate::volume::landed::{self, Landed, ZoneBlock};
use crate::volume::map::Map;
use crate::volume::sums::Sums;
use crate::volume::zone::Zone;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Map, landed blocks, checksums and log segments.
#[derive(Serialize, Deserialize)]
pub struct State {
    /// The layout.
    pub geo: Geometry,
    /// Homes.
    pub map: Map,
    /// Landed blocks.
    pub landed: Landed,
    /// Checksums of the slow tier.
    pub sums: Sums,
    /// Segments.
    pub zone: Zone,
    /// Blocks of which a part landed and whose homes were, or are being, overwritten: a home that does not match its
    /// checksum may be torn, and is whole with the part if this is as it was.
    merging: IndexMap<Block, Remains>,
    /// Chunks whose page of the map is missing, and whether the log has told where they are since.
    forgotten: IndexMap<Chunk, bool>,
}

impl State {
    /// An empty volume.
    pub fn new(geo: Geometry, tuning: &Tuning) -> State {
        let most_areas = landed::most_zone_areas(&geo, tuning);
        State {
            map: Map::new(&geo),
            landed: Landed::new(most_areas * geo.area_blocks(), landed::parts_may_share(&geo, tuning)),
            sums: Sums::new(&geo, tuning),
            zone: Zone::new(&geo, most_areas),
            merging: IndexMap::default(),
            forgotten: IndexMap::default(),
            geo,
        }
    }

    /// A block landed.
    pub fn land(&mut self, block: Block, z: ZoneBlock, bad: bool) {
        // A part that lands on a block that is lost brings back its own sectors, and no others.
        let whole = self.landed.sectors(z).is_all();
        let was_lost = self.landed.get(block).is_some_and(|old| self.landed.is_bad(old));
        let bad = bad || !whole && was_lost && !planted(Bug::PartRevivesLost);
        if bad || whole {
            self.merging.remove(&block);
        }
        self.zone.enter(self.zone.place_of(z), bad);
        if let Some((old, was_bad)) = self.landed.insert(block, z, bad) {
            self.leave(old, was_bad);
        }
        let (chunk, at) = self.map.split(block);
        self.map.set_may_be_landed(chunk, true);
        // By this record the home is superseded: before it is overwritten where it is, this is durable.
        self.end_fast_sums(chunk, &BlockMask::range(at, 1));
    }

    /// What a part of a block does not hold is lost: it stays at `z`, and is all that there is of the block.
    pub fn lose_rest(&mut self, block: Block, z: ZoneBlock) {
        assert!(self.landed.get(block) == Some(z), "the part is the newest copy");
        if self.landed.lose_rest(z) {
            self.zone.lose(self.zone.place_of(z));
        }
        self.merging.remove(&block);
    }

    /// Of a part that landed at `was`, which is still the newest copy, `z` has what is left of the block.
    pub fn land_remnant(&mut self, block: Block, was: LogPos, z: ZoneBlock) {
        if self.landed_at(block) == Some(was) {
            self.land(block, z, true);
        }
    }

    /// The copy of a landed block at `was` is lost, and `z` says so from here on. A newer copy stays.
    pub fn lose(&mut self, block: Block, was: LogPos, z: ZoneBlock) {
        if self.landed_at(block) == Some(was) {
            self.land(block, z, true);
        }
    }

    /// The same in recovery, where the segment of the lost copy may be gone: such a copy was still the
    /// newest when the record was made, or the record would not have been made.
    fn replay_loss(&mut self, block: Block, was: LogPos, z: ZoneBlock) -> bool {
        let blocks = self.volume_blocks();
        if block.0 >= blocks {
            return false;
        }
        let tail = self.zone.chain().front().map(|place| self.zone.pos(*place, 0));
        let gone = self.landed_at(block).is_none() && tail.is_some_and(|tail| was < tail);
        if gone {
            self.land(block, z, true);
        } else {
            self.lose(block, was, z);
        }
        true
    }

    /// Where in the log the block's newest copy is landed, if it is.
    pub fn landed_at(&self, block: Block) -> Option<LogPos> {
        self.landed.get(block).map(|z| self.zone.pos_of(z))
    }

    fn unland(&mut self, block: Block) {
        if let Some((z, was_bad)) = self.landed.remove(block) {
            self.merging.remove(&block);
            self.leave(z, was_bad);
        }
    }

    /// A zone block is no block's newest copy any more.
    fn leave(&mut self, z: ZoneBlock, was_bad: bool) {
        self.zone.leave(self.zone.place_of(z), was_bad);
    }

    /// The landed blocks of a chunk, ascending.
    pub fn landed_in(&self, chunk: Chunk) -> Vec<(u32, ZoneBlock)> {
        if !self.map.may_be_landed(chunk) {
            return Vec::new();
        }
        let blocks = 0..self.geo.blocks_per_chunk();
        blocks.filter_map(|b| self.landed.get(self.map.join(chunk, b)).map(|z| (b, z))).collect()
    }

    /// Ends the landed blocks of a chunk that lie before `before`: the home holds them.
    pub fn end_landed(&mut self, chunk: Chunk, before: LogPos) {
        let mut left = false;
        for (block, z) in self.landed_in(chunk) {
            if self.zone.pos_of(z) < before || planted(Bug::MoveEndsLaterLandings) {
                self.unland(self.map.join(chunk, block));
            } else {
                left = true;
            }
        }
        self.map.set_may_be_landed(chunk, left);
    }

    /// Blocks of a chunk read zeros from now on.
    pub fn discard(&mut self, chunk: Chunk, first: u32, count: u32) {
        if self.map.may_be_landed(chunk) {
            (first..first + count).for_each(|b| self.unland(self.map.join(chunk, b)));
        }
        self.end_fast_sums(chunk, &BlockMask::range(first, count));
        let valid = self.map.valid(chunk);
        let left = valid.minus(BlockMask::range(first, count));
        if left != valid {
            self.map.set(chunk, self.map.home(chunk), &left);
        }
    }

    /// Takes the home from a chunk of which it holds nothing; gives the slot.
    pub fn drop_empty_home(&mut self, chunk: Chunk) -> Option<Home> {
        let home = self.map.home(chunk)?;
        if !self.map.valid(chunk).is_empty() {
            return None;
        }
        self.map.set(chunk, None, &BlockMask::EMPTY);
        Some(home)
    }

    /// Replays a record of a group whose payload begins at `group`; the record's, if any, begins at `payload`. Records that
    /// the checkpoint already holds (`in_map`) only bring landed blocks up to date. False when the record names what does
    /// not exist.
    pub fn replay(&mut self, record: &Record, group: ZoneBlock, payload: ZoneBlock, in_map: bool) -> bool {
        self.sums.settled(in_map);
        let replayed = self.replay_record(record, group, payload, in_map);
        self.sums.settled(false);
        replayed
    }

    fn replay_record(&mut self, record: &Record, group: ZoneBlock, payload: ZoneBlock, in_map: bool) -> bool {
        match record {
            Record::Data { block, sums, sectors, lost } => {
                self.replay_data(*block, sums, (*sectors, *lost), payload)
            }
            Record::Shared { block, sectors, back } => {
                let first = payload.index().checked_sub(u32::from(*back)).filter(|_| *back > 0);
                let first = first.filter(|first| *first >= group.index()).map(ZoneBlock::new);
                first.is_some_and(|z| self.replay_shared(*block, *sectors, z))
            }
            Record::Bad { block, was } => self.replay_loss(*block, *was, payload),
            Record::Merging { chunk, rests } => self.replay_merging(*chunk, rests),
            Record::Discard { block, count } => self.replay_discard(*block, *count, in_map),
            Record::Home(r) => self.replay_home(r, in_map),
        }
    }

    fn replay_data(
        &mut self,
        block: Block,
        sums: &[u32],
        (sectors, lost): (Sectors, bool),
        payload: ZoneBlock,
    ) -> bool {
        let blocks = self.volume_blocks();
        if block.0.checked_add(sums.len() as u64).is_none_or(|end| end > blocks) {
            return false;
        }
        for (i, sum) in sums.iter().enumerate() {
            let block = Block(block.0 + i as u64);
            if planted(Bug::LandedNotSuperseded) && self.landed.get(block).is_some() {
                continue;
            }
            let z = payload.after(i as u32);
            self.landed.note(z, *sum, sectors);
            self.land(block, z, lost);
        }
        true
    }

    /// Blocks of the volume: a record that names one beyond them is damage.
    fn volume_blocks(&self) -> u64 {
        u64::from(self.geo.chunks) * u64::from(self.geo.blocks_per_chunk())
    }

    /// A part that lies in the block of payload of another one.
    fn replay_shared(&mut self, block: Block, sectors: Sectors, z: ZoneBlock) -> bool {
        let blocks = self.volume_blocks();
        let taken = self.landed.is_shared(z) || self.landed.owner(z) == Some(block);
        if block.0 >= blocks || taken || self.landed.sectors(z).and(sectors).is_some() {
            return false;
        }
        if planted(Bug::SecondPartForgotten) {
            return true;
        }
        self.landed.note_second(z, sectors);
        self.land(block, z.second(), false);
        true
    }

    /// Blocks of a chunk's home are about to be overwritten with what landed of them.
    pub fn begin_merging(&mut self, chunk: Chunk, rests: &[(u32, Remains)]) {
        for (b, remains) in rests {
            let block = self.map.join(chunk, *b);
            let part = |z: ZoneBlock| {
                let sectors = self.landed.sectors(z);
                !self.landed.is_bad(z) && !sectors.is_all() && sectors.has(remains.landed)
            };
            if self.landed.get(block).is_some_and(part) {
                self.merging.insert(block, *remains);
            }
        }
    }

    /// Whether some home was, or is being, overwritten with a part and what is beneath it.
    pub(crate) fn may_have_torn_homes(&self) -> bool {
        !self.merging.is_empty()
    }

    /// What is known to be as it was of a block whose home was, or is being, overwritten.
    pub fn remains(&self, block: Block) -> Option<Remains> {
        self.merging.get(&block).copied()
    }

    fn replay_merging(&mut self, chunk: Chunk, rests: &[(u32, Remains)]) -> bool {
        let known =
            chunk.0 < self.geo.chunks && rests.iter().all(|(block, _)| *block < self.geo.blocks_per_chunk());
        if known {
            self.begin_merging(chunk, rests);
        }
        known
    }

    /// Takes the chunks of these pages of the map as unknown, until a record says where they are: then it counts also
    /// where the page would have had it.
    pub(crate) fn forget_pages(&mut self, pages: &[u32]) {
        for page in pages {
            for chunk in self.map.chunks_of(*page) {
                self.map.set(chunk, None, &BlockMask::EMPTY);
                self.forgotten.insert(chunk, false);
            }
        }
    }

    /// Chunks of which neither page nor log said where they are, ascending.
    pub(crate) fn unknown_chunks(&self) -> Vec<Chunk> {
        let unknown = self.forgotten.iter().filter(|(_, known)| !**known).map(|(chunk, _)| *chunk);
        let mut chunks: Vec<Chunk> = unknown.collect();
        chunks.sort_unstable();
        chunks
    }

    fn replay_discard(&mut self, block: Block, count: u32, in_map: bool) -> bool {
        let per = self.geo.blocks_per_chunk();
        let (chunk, first) = self.map.split(block);
        if block.0 / u64::from(per) >= u64::from(self.geo.chunks) || count > per || first + count > per {
            return false;
        }
        if planted(Bug::DiscardResurrected) {
            return true;
        }
        let whole = count == per;
        let forgotten = self.forgotten.get_mut(&chunk).map(|known| *known |= whole).is_some();
        if in_map && !forgotten {
            (first..first + count).for_each(|b| self.unland(self.map.join(chunk, b)));
        } else {
            self.discard(chunk, first, count);
            self.drop_empty_home(chunk);
        }
        true
    }

    fn replay_home(&mut self, r: &HomeRecord, in_map: bool) -> bool {
        if r.chunk.0 >= self.geo.chunks
            || !self.geo.can_hold(r.home, &r.valid)
            || !r.summed.minus(BlockMask::range(0, self.geo.blocks_per_chunk())).is_empty()
        {
            return false;
        }
        let forgotten = self.forgotten.get_mut(&r.chunk).map(|known| *known = true).is_some();
        if !in_map {
            // What the log says of the chunk behind this may have been said while it was still at home there.
            let left = self.map.home(r.chunk).filter(|home| home.tier == FAST);
            if let Some(home) = left.filter(|_| !planted(Bug::LeftRegionStaysClosed)) {
                self.sums.regions.open_slot(home.slot);
            }
            self.set_home(r);
            return true;
        }
        // The checksums of what the checkpoint holds are in its list and its pages, which are not missing.
        self.end_landed(r.chunk, r.ends);
        if forgotten {
            self.map.set(r.chunk, r.home, &r.valid);
        }
        true
    }

    /// A chunk has this home from now on, and what landed of it before is ended.
    pub fn set_home(&mut self, r: &HomeRecord) {
        self.end_landed(r.chunk, r.ends);
        let old = self.map.home(r.chunk);
        self.map.set(r.chunk, r.home, &r.valid);
        let on_fast = |home: &Home| home.tier == FAST;
        if old != r.home {
            old.into_iter()
                .chain(r.home)
                .filter(on_fast)
                .for_each(|home| self.sums.fast.forget_slot(home.slot));
        }
        if let Some(home) = r.home.filter(on_fast) {
            self.sums.regions.open_slot(home.slot);
        }
        match r.home {
            Some(home) if home.tier == SLOW => self.sums.note(home.slot, &r.summed, &r.sums),
            // What landed since is newer than what the home holds, and has its own checksum.
            Some(home) if !r.summed.is_empty() => {
                let landed = self.landed_in(r.chunk);
                let (blocks, sums) = r.sums_where(|block| landed.iter().all(|(landed, _)| *landed != block));
                self.sums.fast.note(home.slot, &blocks, sums.into_iter());
            }
            _ => {}
        }
    }

    /// These blocks of a chunk's home are not what it should show any more, or will not be.
    fn end_fast_sums(&mut self, chunk: Chunk, blocks: &BlockMask) {
        if let Some(home) = self.map.home(chunk).filter(|home| home.tier == FAST) {
            self.sums.end_fast(home.slot, blocks);
        }
    }

    /// After a replay that began amid what pages show, only homes have checksums, and blocks that they show.
    pub fn settle_fast_sums(&mut self) {
        self.sums.regions.settle();
        if self.sums.fast.len() == 0 {
            return self.sums.fast.retain(|_| BlockMask::EMPTY);
        }
        let chunks = (0..self.map.chunks()).map(Chunk);
        let homes: IndexMap<Slot, Chunk> = chunks
            .filter_map(|chunk| {
                self.map.home(chunk).filter(|home| home.tier == FAST).map(|h| (h.slot, chunk))
            })
            .collect();
        let State { sums, map, landed, .. } = self;
        sums.fast.retain(|slot| {
            let Some(chunk) = homes.get(&slot) else { return BlockMask::EMPTY };
            let mut held = map.valid(*chunk);
            let is_landed = |block: &u32| landed.get(map.join(*chunk, *block)).is_some();
            let newer: Vec<u32> = held.iter().filter(is_landed).collect();
            newer.into_iter().for_each(|block| held = held.minus(BlockMask::range(block, 1)));
            held
        });
    }
}
