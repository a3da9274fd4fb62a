//! Hints: what placement has learnt outlives an orderly stop. The last thing a stop writes before it marks the volume as
//! clean is how hot chunks are, and which copies there are; the next opening reads that first.
//!
//! They lie in fast slots that nothing names but the superblock of the closed volume. So the opening that raises the
//! generation ends them, before anything else is written: no copy is believed that anything may have outlived.

use crate::api::action::DeviceError;
use crate::api::options::{Level, OpenError, Tuning};
use crate::base::arena::{Arena, Buf, Pool};
use crate::engine::Engine;
use crate::format::geometry::Geometry;
use crate::format::hints::{COPIES_PER_BLOCK, HEATS_PER_BLOCK, Hints, HintsAt, HintsOf};
use crate::format::superblock::{OpenState, Superblock};
use crate::io::tokens::Owner;
use crate::life::recovery::{Reader, Recovered};
use crate::mover::copies::Copies;
use crate::placement::policy::HeatPolicy;
use crate::volume::cells::Cells;
use crate::volume::slots::Slots;
use crate::volume::state::State;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Of the fast slots, what hints may take. More are those of a fast tier that is far too small for its slow one.
const MOST_SLOTS_SHARE: u32 = 64;
/// Blocks of hints that are read or written at once.
const MOVED_BLOCKS: u32 = 16;

/// Where the telling of hints is: first copies, then heat.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Cursor {
    /// None where all copies were told.
    copy: Option<usize>,
    chunk: u32,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { copy: Some(0), chunk: 0 }
    }
}

/// Hints that are being written.
#[derive(Serialize, Deserialize)]
pub(crate) struct Writing {
    slots: Vec<Slot>,
    /// Blocks that were written, those in flight included.
    blocks: u32,
    cursor: Cursor,
}

/// What hints of this stop are told by.
fn hints_of(superblock: &Superblock, checkpoint: u64, cells: &Cells, tuning: &Tuning) -> HintsOf {
    HintsOf {
        volume: superblock.volume,
        generation: superblock.generation,
        checkpoint,
        part_blocks: cells.part_blocks(),
        touch_ns: tuning.touch_ns,
    }
}

/// What placement has learnt.
pub(crate) struct Learnt {
    pub(crate) policy: HeatPolicy,
    pub(crate) copies: Copies,
}

impl Learnt {
    /// Nothing yet.
    pub(crate) fn nothing(geo: &Geometry, tuning: &Tuning) -> Learnt {
        let policy = HeatPolicy::new(geo.chunks, geo.slots(FAST), tuning);
        Learnt { policy, copies: Copies::new(geo, &tuning.economy) }
    }

    /// Takes what a block tells, as far as it fits what was recovered.
    fn take(&mut self, hints: Hints, state: &State, fast: &mut Slots, now: Nanos) {
        match hints {
            Hints::Heats(first, heats) => {
                for (chunk, heat) in (first.0..state.geo.chunks).zip(heats) {
                    self.policy.recall(Chunk(chunk), heat, now);
                }
            }
            Hints::Copies(copies) => {
                for hint in copies {
                    let is_on_slow = hint.chunk.0 < state.geo.chunks && state.map.is_on(hint.chunk, SLOW);
                    let slot = self.copies.cells().slot_for_homes(hint.cell).filter(|_| is_on_slow);
                    if slot.is_some_and(|slot| self.is_tray(slot, fast)) {
                        self.copies.recall(hint);
                    }
                }
            }
        }
    }

    /// Makes a slot one with copies, unless it is somebody's.
    fn is_tray(&mut self, slot: Slot, fast: &mut Slots) -> bool {
        if !self.copies.are_in(slot) && fast.mark_used(slot) {
            fast.lend(slot, None);
            self.copies.add_tray(slot);
        }
        self.copies.are_in(slot)
    }
}

impl<A: Arena> Reader<A> {
    /// What placement had learnt when the volume was closed, and whether some of that could not be read.
    pub(crate) async fn learnt(
        &self,
        recovered: &Recovered,
        fast: &mut Slots,
        tuning: &Tuning,
    ) -> Result<(Learnt, bool), OpenError> {
        let (superblock, state) = (&recovered.superblocks[0], &recovered.state);
        let mut learnt = Learnt::nothing(&state.geo, tuning);
        let is_closed = superblock.state == OpenState::Clean && !self.is_missing(SLOW);
        let Some(HintsAt { slot, blocks }) = superblock.hints.filter(|_| is_closed) else {
            return Ok((learnt, false));
        };
        let of = hints_of(superblock, recovered.header.number, learnt.copies.cells(), tuning);
        let (mut slot, mut number, per_slot) = (Some(slot), 0, state.geo.blocks_per_chunk());
        let mut most = self.blocks_at_once([MOVED_BLOCKS, 1])?;
        while number < blocks {
            let Some(here) = slot.filter(|slot| slot.0 < state.geo.slots(FAST)) else {
                return Ok((learnt, true));
            };
            let within = number % per_slot;
            let count = most.min(per_slot - within).min(blocks - number);
            let at = state.geo.block_at(Home { tier: FAST, slot: here }, within);
            let decode = |bytes: &[u8]| {
                let blocks = bytes.chunks_exact(BLOCK_BYTES as usize).zip(number..);
                blocks.map(|(block, number)| Hints::decode(block, &of, number)).collect::<Option<Vec<_>>>()
            };
            let found = match self.blocks(FAST, at, count, decode).await {
                Ok(Some(found)) => found,
                // Once more, one by one: what is bad costs what is behind it, and a passing error nothing.
                _ if most > 1 => {
                    most = 1;
                    continue;
                }
                _ => return Ok((learnt, true)),
            };
            for (hints, next) in found {
                learnt.take(hints, state, fast, self.io.now());
                slot = if within + count == per_slot { next } else { Some(here) };
            }
            number += count;
        }
        Ok((learnt, false))
    }
}

impl<A: Arena> Engine<A> {
    /// Takes the slots that hints are written to; none where there is nothing to tell, or no room for it.
    pub(crate) fn begin_hints(&mut self) {
        if self.lacks_slow() {
            return;
        }
        let per_slot = self.state.geo.blocks_per_chunk();
        let most = self.slots_for_hints();
        let mut cursor = Cursor::default();
        let blocks = std::iter::from_fn(|| self.next_hints(&mut cursor)).take((most * per_slot) as usize);
        let slots = (blocks.count() as u32).div_ceil(per_slot);
        let slots: Vec<Slot> = (0..slots).map_while(|_| self.take_fast_slot()).collect();
        let writing = Writing { slots, blocks: 0, cursor: Cursor::default() };
        self.life.shutdown.hints = Some(writing).filter(|writing| !writing.slots.is_empty());
    }

    /// Fast slots that hints may have: free ones, or a few of those with copies.
    fn slots_for_hints(&self) -> u32 {
        let slots = &self.space.slots[FAST];
        let copies = slots.free() - slots.unused();
        let most = (slots.count() / MOST_SLOTS_SHARE).max(1);
        slots.unused().max(copies / MOST_SLOTS_SHARE).min(most)
    }

    fn next_hints(&self, cursor: &mut Cursor) -> Option<Hints> {
        if let Some(from) = cursor.copy {
            let (copies, next) = self.mover.copies.cells().hints(from, COPIES_PER_BLOCK);
            cursor.copy = Some(next).filter(|_| !copies.is_empty());
            if !copies.is_empty() {
                return Some(Hints::Copies(copies));
            }
        }
        let heats = self.placement.policy.hints(Chunk(cursor.chunk), self.io.now, HEATS_PER_BLOCK);
        let (first, heats) = heats?;
        cursor.chunk = first.0 + heats.len() as u32;
        Some(Hints::Heats(first, heats))
    }

    /// Writes the next of them; false when there is nothing more, and where they are is said.
    pub(crate) fn write_hints(&mut self) -> bool {
        let Some(mut writing) = self.life.shutdown.hints.take() else { return false };
        let (first, within) = (writing.blocks, writing.blocks % self.state.geo.blocks_per_chunk());
        let slot = writing.slots.get((first / self.state.geo.blocks_per_chunk()) as usize).copied();
        let buf = slot.and_then(|_| self.hint_buffer(within));
        let count = buf.map_or(0, |buf| self.fill_with_hints(&mut writing, buf));
        let (Some(slot), Some(buf), 1..) = (slot, buf, count) else {
            buf.into_iter().for_each(|buf| self.io.arena.free(buf));
            let (slot, blocks) = (writing.slots[0], writing.blocks);
            self.life.superblock.hints = (blocks > 0).then_some(HintsAt { slot, blocks });
            return false;
        };
        let offset = self.state.geo.block_at(Home { tier: FAST, slot }, within);
        (self.life.shutdown.hints, self.life.shutdown.buf) = (Some(writing), Some(buf));
        self.write_metadata(Owner::Shutdown, offset, buf.slice(0, count * BLOCK_BYTES));
        true
    }

    /// As many blocks as are moved at once, or as there is memory for, of what follows this block of a slot.
    fn hint_buffer(&mut self, within: u32) -> Option<Buf> {
        let most = MOVED_BLOCKS.min(self.state.geo.blocks_per_chunk() - within);
        [most, 1].into_iter().find_map(|blocks| self.io.arena.alloc(Pool::Meta, blocks * BLOCK_BYTES))
    }

    /// Tells hints into a buffer; how many blocks of it they take.
    fn fill_with_hints(&mut self, writing: &mut Writing, buf: Buf) -> u32 {
        let number = self.checkpoint.number;
        let of = hints_of(&self.life.superblock, number, self.mover.copies.cells(), &self.tuning);
        let place = (writing.blocks / self.state.geo.blocks_per_chunk()) as usize;
        let next = writing.slots.get(place + 1).copied();
        let mut count = 0;
        while count < buf.len / BLOCK_BYTES
            && let Some(hints) = self.next_hints(&mut writing.cursor)
        {
            let block = self.io.arena.bytes_mut(buf.slice(count * BLOCK_BYTES, BLOCK_BYTES));
            hints.encode(block, &of, writing.blocks, next);
            (count, writing.blocks) = (count + 1, writing.blocks + 1);
        }
        count
    }

    /// A slot of hints was written. Where it could not be, there are none.
    pub(crate) fn hints_written(&mut self, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.life.shutdown.hints = None;
            let what = format!(
                "{}: what placement has learnt cannot be kept: the next opening learns it anew",
                self.told.names[FAST]
            );
            self.told.event(Level::Warning, what, Some(error));
        }
    }
}
