//! Moves: one operation for promotion, demotion, destage (merging landed blocks into their home) and
//! settling (giving landed blocks a home).
//!
//! A batch of chunks goes through the stages together: quiesce (writes land from here on, those in
//! flight to the old home end), read, write to the destination, flush the destination, record, flush
//! the log, show. A chunk whose I/O fails stays as it was.

mod ending;
mod reading;
mod remnants;

use crate::api::action::{Class, DeviceError};
use crate::api::coverage::Stage;
use crate::api::options::Level;
use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::base::mask::BlockMask;
use crate::base::sectors::{Remains, Sectors};
use crate::base::slab::Slab;
use crate::engine::Engine;
use crate::io::flush::{Awaited, DataFlushed, Waiter};
use crate::io::issue::Command;
use crate::io::patience::Unread;
use crate::io::tokens::Owner;
use crate::mover::copies::Copies;
use crate::mover::plan::Planner;
use crate::mover::scrub::Scrub;
use crate::path::log::{Homes, Job};
use crate::path::sumload::SumWaiter;
use crate::placement::policy::{Destination, Move};
use crate::placement::policy::{Pace, Policy as _};
use crate::volume::landed::ZoneBlock;
use crate::volume::sums::Lookup;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Batches in flight: two that free the zone, of which one has been written, and one that places chunks.
pub const MAX_BATCHES: usize = 3;
/// Which of the two that are laid together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
enum Which {
    /// What landed.
    Landed,
    /// What is beneath it, of which not all sectors landed.
    Beneath,
}

/// What is left of a block of which the other sectors are lost.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Remnant {
    block: u32,
    /// Where its newest copy is.
    z: ZoneBlock,
    sectors: Sectors,
    /// Where it is in the item's buffer, by block.
    at: u32,
}

#[derive(Serialize, Deserialize)]
struct Item {
    chunk: Chunk,
    to: Destination,
    from: Option<Home>,
    home: Option<Home>,
    /// Blocks that are copied; none where the shadow of the old home becomes the new one.
    copy: BlockMask,
    /// Those of them that were not discarded since.
    have: BlockMask,
    landed: Vec<(u32, ZoneBlock)>,
    /// Those of them of which not all sectors landed: they are read behind the blocks of `copy` in the buffer.
    parts: BlockMask,
    /// Blocks of `parts` that the old home does not hold.
    bare: BlockMask,
    /// Blocks of a home on the fast tier that were looked up, and have no checksum.
    unsummed: BlockMask,
    /// What will be as it was of blocks of `parts` that are to be overwritten.
    rests: Vec<(u32, Remains)>,
    /// Blocks of the buffer that could not be read.
    unreadable: Vec<u32>,
    /// Landed blocks, before they were let go.
    merged: u32,
    /// Halves of blocks of the zone that these leave: of one that two parts share, each leaves one.
    room_halves: u32,
    /// Landed blocks that are lost, and where: said again before the record that ends what landed so far.
    lost: Vec<(Block, LogPos)>,
    /// What is left of others: said again with them.
    remnants: Vec<Remnant>,
    ends: LogPos,
    /// None where nothing is copied.
    buf: Option<Buf>,
    /// Whether that is the engine's spare one.
    spare: bool,
    /// Whether there was none to be had.
    lacks_memory: bool,
    /// Blocks of which the log has the checksum, and which go to the fast tier for the first time: they keep it there.
    logged: BlockMask,
    /// Expected, later computed, checksums of `copy`, ascending.
    sums: Vec<Option<u32>>,
    /// What it has is all in its home.
    whole: bool,
    failed: bool,
}

impl Item {
    /// Where a block landed, if it did.
    fn landed_at(&self, block: u32) -> Option<ZoneBlock> {
        self.landed.iter().find(|(b, _)| *b == block).map(|(_, z)| *z)
    }

    /// Whether more comes of it than that what is left of lost blocks is said again.
    fn copies_or_ends(&self) -> bool {
        !self.copy.is_empty() || self.merged > 0
    }

    /// Where, in the item's buffer, what landed of the nth block of `parts` is read to.
    fn part_buf(&self, buf: Buf, nth: u32) -> Buf {
        buf.slice((self.copy.count() + nth) * BLOCK_BYTES, BLOCK_BYTES)
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct Io {
    item: u32,
    tier: Tier,
    offset: u64,
    buf: Buf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
enum BatchStage {
    Quiesce,
    Sums,
    Read,
    Intend,
    FlushLanded,
    Write,
    FlushData,
    Append,
    FlushLog,
}

#[derive(Serialize, Deserialize)]
struct Batch {
    stage: BatchStage,
    items: Vec<Item>,
    ios: Vec<Io>,
    issued: usize,
    in_flight: u32,
    awaited: Awaited,
    /// What it moves has been flushed.
    data: Option<DataFlushed>,
    records_left: u32,
    flush_failed: bool,
    first: Option<Seq>,
    last: Seq,
    /// Every landed block of the batch is in a group up to here.
    landed_upto: Seq,
    started: Nanos,
    /// What the slow device had worked for the background until then, ns.
    worked_ns: u64,
    frees_zone: bool,
    /// The log has no room to say again what is left of blocks of its chunks.
    lacks_room: bool,
    /// What a device said that failed an I/O.
    io_failed: Option<DeviceError>,
    /// What was read of some chunk is wrong, or there is nothing to hold it against.
    damaged: bool,
}

/// Batches that bring the zone nothing: the devices fail them, or they only say again what is left of lost blocks.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Barren {
    /// When the first of them ended, ...
    pub(crate) since: Nanos,
    /// ... and the last.
    pub(crate) last: Nanos,
    /// How many blocks of clients had landed then.
    pub(crate) landed_blocks: u64,
    /// What a device said when the last of them failed.
    pub(crate) error: Option<DeviceError>,
    /// Writes have failed for it.
    pub(crate) told: bool,
}

/// Batches in flight and what plans them.
#[derive(Serialize, Deserialize)]
pub struct Mover {
    batches: Slab<Batch>,
    pub(crate) planner: Planner,
    /// Blocks that landed, by place in the log, for that of a zone block is used again; and what is beneath parts of them.
    unread: Unread<(Block, LogPos, Which)>,
    /// Since batches bring nothing.
    pub(crate) barren: Option<Barren>,
    pub(crate) copies: Copies,
    /// What is looked at in search of damage.
    pub(crate) scrub: Scrub,
    /// A buffer for a chunk and what landed of it, for the batch that empties the zone: those who wait for the zone may
    /// hold all others.
    pub(crate) spare: Option<Buf>,
}

impl Mover {
    pub(crate) fn new(planner: Planner, copies: Copies, spare: Option<Buf>) -> Mover {
        let batches = Slab::new(MAX_BATCHES);
        let (unread, scrub) = (Unread::default(), Scrub::default());
        Mover { batches, planner, unread, barren: None, copies, scrub, spare }
    }

    /// Whether no batch is in flight.
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// Chunks in all batches.
    pub fn chunks(&self) -> usize {
        self.batches.iter().map(|(_, b)| b.items.len()).sum()
    }

    /// Changes with every stage of every batch.
    pub fn steps(&self) -> impl PartialEq + use<> {
        [0, 1, 2].map(|batch| self.stage(batch))
    }

    /// Whether a batch of this kind is in flight.
    pub fn is_busy(&self, frees_zone: bool) -> bool {
        self.batches.iter().any(|(_, b)| b.frees_zone == frees_zone)
    }

    /// Whether a batch that frees the zone is still to be written, or in part.
    pub fn is_freeing_data(&self) -> bool {
        use BatchStage::{Append, FlushData, FlushLog};
        let written = |stage| matches!(stage, FlushData | Append | FlushLog);
        self.batches.iter().any(|(_, b)| b.frees_zone && !written(b.stage))
    }

    /// Batches in flight that free the zone.
    pub fn freeing(&self) -> usize {
        self.batches.iter().filter(|(_, b)| b.frees_zone).count()
    }

    /// Whether a placement copies data; it waits for nothing but devices then.
    pub fn is_placing_data(&self) -> bool {
        let copies = |stage| stage != BatchStage::Append && stage != BatchStage::FlushLog;
        self.batches.iter().any(|(_, b)| !b.frees_zone && copies(b.stage))
    }

    /// Whether this batch empties the zone.
    pub fn frees_zone(&self, batch: u32) -> bool {
        self.batches.get(batch).is_some_and(|b| b.frees_zone)
    }

    /// The first group with records that the map does not hold yet.
    pub fn unapplied(&self) -> Option<Seq> {
        self.batches.iter().filter_map(|(_, b)| b.first).min()
    }

    /// The stage of a batch.
    pub fn stage(&self, batch: u32) -> Option<Stage> {
        self.batches.get(batch).map(|b| match b.stage {
            BatchStage::Quiesce => Stage::MoveQuiesce,
            BatchStage::Sums | BatchStage::Read => Stage::MoveRead,
            BatchStage::Intend => Stage::MoveIntend,
            BatchStage::FlushLanded => Stage::MoveFlushLanded,
            BatchStage::Write => Stage::MoveWrite,
            BatchStage::FlushData => Stage::MoveFlushData,
            BatchStage::Append => Stage::MoveAppend,
            BatchStage::FlushLog => Stage::MoveFlushLog,
        })
    }

    /// The stages of all batches.
    pub fn coverage(&self, f: &mut dyn FnMut(Stage)) {
        self.batches.iter().filter_map(|(i, _)| self.stage(i)).for_each(f);
    }
}

impl<A: Arena> Engine<A> {
    /// Begins a batch. Chunks that something else is under way with are left out.
    pub(crate) fn start_batch(&mut self, moves: &[Move], frees_zone: bool) {
        let mut items = Vec::with_capacity(moves.len());
        for m in moves {
            let (chunk, map) = (m.chunk, &mut self.state.map);
            if map.is_busy(chunk) {
                continue;
            }
            map.set_moving(chunk, true);
            items.push(Item {
                chunk,
                to: m.to,
                from: None,
                home: None,
                copy: BlockMask::EMPTY,
                have: BlockMask::EMPTY,
                landed: Vec::new(),
                parts: BlockMask::EMPTY,
                bare: BlockMask::EMPTY,
                unsummed: BlockMask::EMPTY,
                rests: Vec::new(),
                unreadable: Vec::new(),
                merged: 0,
                room_halves: 0,
                lost: Vec::new(),
                remnants: Vec::new(),
                ends: LogPos(0),
                buf: None,
                spare: false,
                lacks_memory: false,
                logged: BlockMask::EMPTY,
                sums: Vec::new(),
                whole: false,
                failed: false,
            });
        }
        let batch = self.mover.batches.insert(Batch {
            stage: BatchStage::Quiesce,
            items,
            ios: Vec::new(),
            issued: 0,
            in_flight: 0,
            awaited: Awaited::default(),
            data: None,
            records_left: 0,
            flush_failed: false,
            first: None,
            last: Seq(0),
            landed_upto: Seq(0),
            started: self.io.now,
            worked_ns: self.io.tokens.background_ns(SLOW),
            frees_zone,
            lacks_room: false,
            io_failed: None,
            damaged: false,
        });
        self.try_quiesced(batch);
    }

    /// A write to the home of a moving chunk has ended.
    pub(crate) fn home_writers_changed(&mut self) {
        let waiting: Vec<u32> = self
            .mover
            .batches
            .iter()
            .filter(|(_, b)| b.stage == BatchStage::Quiesce)
            .map(|(i, _)| i)
            .collect();
        waiting.into_iter().for_each(|b| self.try_quiesced(b));
    }

    fn try_quiesced(&mut self, batch: u32) {
        let writers = &self.front.home_writers;
        let ignore = planted(Bug::InPlaceWhileMoving);
        if !ignore && self.mover.batches[batch].items.iter().any(|i| writers.contains_key(&i.chunk)) {
            return;
        }
        let frees_zone = self.mover.frees_zone(batch);
        let mut items = std::mem::take(&mut self.mover.batches[batch].items);
        for item in &mut items {
            item.failed = !self.snapshot(item, frees_zone);
        }
        if frees_zone {
            self.mover.planner.does_not_fit(items.iter().filter(|i| i.lacks_memory).map(|i| i.chunk));
        }
        self.mover.batches[batch].lacks_room = self.leave_remnants(&mut items);
        self.mover.batches[batch].items = items;
        self.mover.batches[batch].landed_upto = self.log.applied;
        self.drop_failed(batch);
        self.mover.batches[batch].stage = BatchStage::Sums;
        self.gather_sums(batch);
    }

    /// Fixes what is to be copied, from where, to where. False when the chunk cannot be moved now.
    fn snapshot(&mut self, item: &mut Item, frees_zone: bool) -> bool {
        let chunk = item.chunk;
        let st = &self.state;
        if st.map.is_pending(chunk) {
            return false;
        }
        item.from = st.map.home(chunk);
        item.ends = self.log.applied_end;
        let (bad, landed): (Vec<_>, Vec<_>) =
            st.landed_in(chunk).into_iter().partition(|(_, z)| st.landed.is_bad(*z));
        let (left, bad): (Vec<_>, Vec<_>) =
            bad.into_iter().partition(|(_, z)| st.landed.remnant(*z).is_some());
        let remnants_hold_tail = left.iter().any(|(_, z)| self.holds_tail(*z));
        let lost =
            bad.iter().chain(&left).fold(BlockMask::EMPTY, |lost, (b, _)| lost.or(BlockMask::range(*b, 1)));
        // The record of this move ends whatever landed before it, so a loss is said again behind it; one that
        // holds the tail is said whether the chunk moves or not.
        let (at_once, if_moved): (Vec<_>, Vec<_>) = bad.into_iter().partition(|(_, z)| self.holds_tail(*z));
        self.record_losses(chunk, at_once);
        let st = &self.state;
        item.whole = landed.is_empty() && lost.is_empty();
        let mut copy = BlockMask::EMPTY;
        let mut parts = BlockMask::EMPTY;
        landed.iter().filter(|(_, z)| !st.landed.sectors(*z).is_all()).for_each(|(b, _)| parts.set(*b));
        landed.iter().for_each(|(b, _)| copy.set(*b));
        if frees_zone
            && item.to == Destination::Tier(FAST)
            && item.from.is_some()
            && !self.outdoes_copies(chunk)
        {
            item.to = Destination::Merge;
        }
        if item.to == Destination::Merge && item.from.is_none() && !landed.is_empty() {
            let pinned = self.placement.pins.list().tier_of(chunk);
            let fast = pinned.map_or_else(
                || {
                    self.placement.policy.settles_fast(self.space.slots[FAST].free())
                        && self.outdoes_copies(chunk)
                },
                |tier| tier == FAST,
            );
            let fast = fast || self.lacks_slow();
            item.to = Destination::Tier(if fast { FAST } else { SLOW });
        }
        if item.to != Destination::Merge {
            copy = copy.or(st.map.valid(chunk)).minus(lost);
        }
        if copy.is_empty() && !remnants_hold_tail {
            return false;
        }
        if copy.is_empty() {
            // Nothing moves: what is left of blocks is said again.
            (item.to, item.home) = (Destination::Merge, item.from);
        }
        match (item.to, item.from) {
            (Destination::Merge, Some(home)) if !planted(Bug::ShadowOutlivesMerge) => self.end_shadow(home),
            (Destination::Tier(SLOW), Some(home)) if item.whole => item.home = self.take_shadow(home),
            _ => {}
        }
        if item.home.is_some() && !copy.is_empty() {
            item.have = copy;
            return true;
        }
        let blocks = copy.count() + parts.count() + left.len() as u32;
        item.buf = self.background_buffer(blocks * BLOCK_BYTES);
        if item.buf.is_none() && frees_zone {
            item.buf = self.mover.spare.take();
            item.spare = item.buf.is_some();
        }
        item.lacks_memory = item.buf.is_none();
        if item.lacks_memory {
            return false;
        }
        let halves = |z| if self.state.landed.is_shared(z) { 1 } else { 2 };
        item.room_halves = landed.iter().map(|(_, z)| halves(*z)).sum();
        (item.copy, item.have, item.merged, item.landed) = (copy, copy, landed.len() as u32, landed);
        (item.parts, item.bare) = (parts, parts.minus(self.state.map.valid(chunk)));
        self.add_remnants(item, left);
        item.sums = vec![None; copy.count() as usize];
        // Whoever waits for it waits for a seek less where what goes down together lies together.
        let in_order = !frees_zone && self.is_idle();
        item.home = match item.to {
            Destination::Merge => item.from,
            Destination::Tier(tier) => {
                self.take_slot(tier, item.chunk, in_order).map(|slot| Home { tier, slot })
            }
        };
        if let Destination::Tier(tier) = item.to
            && item.home.is_none()
            && item.from.is_none()
        {
            // Landed blocks without a home take what there is: while they wait, they hold the log's tail.
            let other = if tier == FAST { SLOW } else { FAST };
            item.home = self.take_slot(other, item.chunk, in_order).map(|slot| Home { tier: other, slot });
        }
        item.logged = self.sums_that_stay(item);
        let pins = item.landed.iter().map(|(_, z)| self.state.zone.place_of(*z)).collect::<Vec<_>>();
        pins.into_iter().for_each(|place| self.state.zone.get_mut(place).pins += 1);
        let at = |(block, z)| (self.state.map.join(chunk, block), self.state.zone.pos_of(z));
        item.lost = if_moved.into_iter().map(at).collect();
        item.home.is_some() || copy.is_empty()
    }

    /// The blocks that come to the fast tier out of the log, and none that a home held before: those are written again and
    /// again, and a write must find no checksum to be one in place.
    fn sums_that_stay(&self, item: &Item) -> BlockMask {
        let mut whole = BlockMask::EMPTY;
        let landed = item.landed.iter().filter(|(_, z)| self.state.landed.sectors(*z).is_all());
        landed.for_each(|(block, _)| whole.set(*block));
        let new = whole.and(item.copy).minus(self.state.map.valid(item.chunk));
        let room = self.state.sums.fast.room();
        let fits = item.home.is_some_and(|home| home.tier == FAST) && new.count() as usize <= room;
        if fits { new } else { BlockMask::EMPTY }
    }

    fn record_losses(&mut self, chunk: Chunk, lost: Vec<(u32, ZoneBlock)>) {
        for (block, was) in lost {
            self.record_loss(self.state.map.join(chunk, block), was);
        }
    }

    fn begin_ios(&mut self, batch: u32, stage: BatchStage, mut ios: Vec<Io>) {
        ios.sort_by_key(|io| (io.tier, io.offset));
        let b = &mut self.mover.batches[batch];
        (b.stage, b.ios, b.issued) = (stage, ios, 0);
        self.issue_batch(batch);
    }

    /// Keeps a bounded number of the batch's I/Os in flight; goes on to the next stage after the last.
    fn issue_batch(&mut self, batch: u32) {
        // Whoever asks for something meanwhile finds one I/O of a batch before his in a device, not a queue of them; unless he
        // writes, and the zone runs short.
        let depth = match self.pace() {
            Pace::Busy => 1,
            Pace::Short if self.merges_beside_reads() => self.tuning.economy.merge_beside_reads as usize,
            Pace::Short | Pace::Idle => self.tuning.background_depth,
        };
        let depth = depth.min(self.tuning.background_depth);
        loop {
            let b = &mut self.mover.batches[batch];
            if b.issued == b.ios.len() || b.in_flight as usize >= depth {
                break;
            }
            let (io, index, writes) = (b.ios[b.issued], b.issued as u32, b.stage == BatchStage::Write);
            b.issued += 1;
            b.in_flight += 1;
            let Io { tier: device, offset, buf, .. } = io;
            let owner = Owner::Batch { batch, io: index };
            let command = Command { device, offset, owner, class: Class::Background };
            if writes {
                self.io.write(command, buf);
            } else {
                self.io.read(command, buf);
            }
        }
        let b = &self.mover.batches[batch];
        if b.issued == b.ios.len() && b.in_flight == 0 {
            if b.stage == BatchStage::Read { self.reads_done(batch) } else { self.writes_done(batch) }
        }
    }

    pub(crate) fn batch_io_done(&mut self, batch: u32, io: u32, result: Result<(), DeviceError>) {
        let b = &mut self.mover.batches[batch];
        let io = b.ios[io as usize];
        b.in_flight -= 1;
        let writes = b.stage == BatchStage::Write;
        let item = &mut b.items[io.item as usize];
        item.failed |= result.is_err();
        if let (Err(_), Some(buf), false) = (result, item.buf, writes) {
            let first = ((io.buf.start - buf.start) / u64::from(BLOCK_BYTES)) as u32;
            item.unreadable.extend(first..first + io.buf.len / BLOCK_BYTES);
        }
        if writes {
            self.io.flushers[io.tier].dirty = true;
        }
        if let Err(error) = result {
            b.io_failed = Some(error);
            let (name, what) = (&self.told.names[io.tier], if writes { "write" } else { "read" });
            self.told.event(
                Level::Warning,
                format!("{name}: a background {what} at byte {} failed", io.offset),
                Some(error),
            );
        }
        self.issue_batch(batch);
    }

    fn reads_done(&mut self, batch: u32) {
        let mut items = std::mem::take(&mut self.mover.batches[batch].items);
        for item in &mut items {
            self.verify_item(item);
            item.landed.iter().for_each(|(_, z)| self.unpin_landed(*z));
            item.landed.clear();
        }
        self.mover.batches[batch].damaged |= items.iter().any(|item| item.failed);
        self.mover.batches[batch].items = items;
        if self.life.is_read_only() {
            return self.end_batch(batch, false);
        }
        let b = &mut self.mover.batches[batch];
        let merges_parts = b.items.iter().any(|i| !i.failed && !i.rests.is_empty());
        if merges_parts && !planted(Bug::MergeUnannounced) {
            let state = &self.state;
            for item in &mut b.items {
                // What the log has is not said again: a batch that fails may be tried for ever.
                let chunk = item.chunk;
                item.rests
                    .retain(|(block, rest)| state.remains(state.map.join(chunk, *block)) != Some(*rest));
            }
            if b.items.iter().all(|i| i.failed || i.rests.is_empty()) {
                return self.flush_landed(batch);
            }
            let to = b.items.len() as u32;
            (b.stage, b.records_left) = (BatchStage::Intend, to);
            return self.log.internal.push_back(Job::Merging { batch, from: 0, to });
        }
        // On the fast tier what is overwritten may have a checksum of which the end is not durable yet.
        let sums = &self.state.sums;
        let summed = |i: &Item, h: Home| h.tier == SLOW || sums.any_fast(h.slot, &i.copy);
        let overwrites =
            |i: &Item| i.home == i.from && !i.copy.is_empty() && i.home.is_some_and(|h| summed(i, h));
        let unsafe_yet = b.items.iter().any(overwrites) && b.landed_upto > self.log.durable();
        if unsafe_yet && !planted(Bug::MergeBeforeLandedDurable) {
            // A crash may lose a landed block that was never flushed, but keep what is merged over the
            // old, flushed one, which its recorded checksum would then deny.
            return self.flush_landed(batch);
        }
        self.plan_writes(batch);
    }

    fn flush_landed(&mut self, batch: u32) {
        let b = &mut self.mover.batches[batch];
        b.stage = BatchStage::FlushLanded;
        b.awaited.one_more();
        self.request_flush(FAST, Waiter::Batch(batch));
    }

    /// What an item is about to overwrite.
    pub(crate) fn merging(&self, batch: u32, i: u32) -> (Chunk, Vec<(u32, Remains)>) {
        let item = &self.mover.batches[batch].items[i as usize];
        (item.chunk, if item.failed { Vec::new() } else { item.rests.clone() })
    }

    /// What items are about to overwrite is in the log, or never will be: with that durable, and what landed, they may.
    pub(crate) fn merging_recorded(&mut self, batch: u32, items: u32, ok: bool) {
        let b = &mut self.mover.batches[batch];
        b.records_left -= items;
        b.flush_failed |= !ok;
        if b.records_left > 0 {
            return;
        }
        if b.flush_failed {
            return self.end_batch(batch, false);
        }
        self.flush_landed(batch);
    }

    fn plan_writes(&mut self, batch: u32) {
        self.charge_wear(batch);
        let mut ios = Vec::new();
        let items = &self.mover.batches[batch].items;
        for (i, item) in items.iter().enumerate().filter(|(_, item)| !item.failed) {
            let Some((buf, home)) = item.buf.zip(item.home) else { continue };
            if home.tier == FAST {
                self.state.sums.forget_fast(home.slot, &item.copy);
            }
            let mut k = 0;
            for (first, count) in item.copy.runs() {
                let offset = self.state.geo.block_at(home, first);
                let buf = buf.slice(k * BLOCK_BYTES, count * BLOCK_BYTES);
                ios.push(Io { item: i as u32, tier: home.tier, offset, buf });
                k += count;
            }
        }
        self.begin_ios(batch, BatchStage::Write, ios);
    }

    /// What is about to be moved up is counted; where the budget does not last for it, it stays.
    fn charge_wear(&mut self, batch: u32) {
        let mut items = std::mem::take(&mut self.mover.batches[batch].items);
        let rises = |item: &&mut Item| {
            let on = |home: Option<Home>, tier| home.is_some_and(|home| home.tier == tier);
            !item.failed && on(item.from, SLOW) && on(item.home, FAST)
        };
        for item in items.iter_mut().filter(rises) {
            let bytes = u64::from(item.copy.count()) * u64::from(BLOCK_BYTES);
            item.failed = !self.wear_by_move(item.chunk, bytes);
        }
        self.mover.batches[batch].items = items;
    }

    fn writes_done(&mut self, batch: u32) {
        self.drop_failed(batch);
        self.note_copied_sums(batch);
        let b = &mut self.mover.batches[batch];
        b.stage = BatchStage::FlushData;
        b.flush_failed = false;
        b.awaited.one_more();
        for tier in [SLOW, FAST] {
            let b = &mut self.mover.batches[batch];
            // What becomes a home without being written was flushed when it was one before.
            if b.items.iter().any(|i| i.home.is_some_and(|h| h.tier == tier) && !i.copy.is_empty())
                && !planted(Bug::RecordBeforeData)
            {
                b.awaited.one_more();
                let tier = if planted(Bug::WrongDeviceFlushed) { FAST } else { tier };
                self.request_flush(tier, Waiter::Batch(batch));
            }
        }
        self.batch_flushed(batch, true);
    }

    pub(crate) fn batch_flushed(&mut self, batch: u32, ok: bool) {
        let b = &mut self.mover.batches[batch];
        let Some(flushed) = b.awaited.ended(ok) else { return };
        b.flush_failed |= flushed.is_err();
        if b.flush_failed || b.items.is_empty() || self.life.is_read_only() {
            return self.end_batch(batch, false);
        }
        match b.stage {
            BatchStage::FlushLanded => return self.plan_writes(batch),
            BatchStage::FlushLog => return self.end_batch(batch, true),
            _ => {}
        }
        (b.stage, b.data) = (BatchStage::Append, flushed.ok());
        let to = b.items.len() as u32;
        b.records_left = to;
        // Only now, for saying it takes space in the log, and a batch may fail again and again before it comes to this.
        let lost: Vec<_> = b.items.iter_mut().flat_map(|item| std::mem::take(&mut item.lost)).collect();
        self.log.losses += lost.len() as u32;
        self.log.internal.extend(lost.into_iter().map(|(block, was)| Job::Bad { block, was }));
        self.say_remnants(batch);
        self.log.internal.push_back(Job::Homes { of: Homes::Batch(batch), from: 0, to });
    }
}
