//! Cells: fast slots with copies, cut into the smallest parts of chunks that have a copy of their own.
//!
//! Such a slot is a *tray*, and its cells hold parts of any chunks: of a chunk that is read here and there, only what is
//! read takes space. Which cell gives way is decided as S3-FIFO does it (Yang et al., SOSP 2023): what is new waits in a
//! small queue; what was read there goes on to the main one, where whatever was read since gets another round; and what
//! left unread but is asked for again soon goes to the main one at once (`volume/ghosts.rs`).

use super::ghosts::{self, Ghosts, Queue};
use crate::api::economy::Economy;
use crate::base::bugs::{Bug, planted};
use crate::format::hints::CopyHint;
use crate::volume::places::{self, Places};
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Cells at most, unless there are more slots: what they take is 25 to 36 bytes each. So their size is 4 KiB up to a fast
/// tier of 8 GiB, 64 KiB at 128 GiB.
const MOST_CELLS: u64 = 2 << 20;
/// Cells looked at to find one that gives way.
const EVICTION_STEPS: usize = 64;
/// Trays looked at to find free cells, or the one that is missed least.
const TRAYS_LOOKED_AT: usize = 64;
/// Slots looked at to find any tray, where the queues name none.
const SLOTS_LOOKED_AT: u32 = 4096;

/// Read since it was looked at for the last time as one to give way.
const USED: u8 = 1;
/// Experience goes by it.
const ASKED: u8 = 2;
/// Read at all.
const REPAID: u8 = 4;
/// It came along with what was asked for, and was not read yet.
const EXTRA: u8 = 8;
/// An entry of the small queue names it.
const IN_SMALL: u8 = 16;
/// An entry of the main queue names it.
const IN_MAIN: u8 = 32;
/// It is being written.
const FILLING: u8 = 64;
/// It was at home in its slot, and was not read since.
const KEPT: u8 = 128;
const QUEUED: u8 = IN_SMALL | IN_MAIN;
/// What an opening may be told of a copy.
const TOLD: u8 = USED | ASKED | REPAID | EXTRA | KEPT;

/// A place for a part in a fast slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Cell(pub u32);

/// A block of a cell, counted through all fast slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CellBlock(u64);

impl CellBlock {
    /// So many blocks further.
    pub fn after(self, blocks: u32) -> CellBlock {
        CellBlock(self.0 + u64::from(blocks))
    }
}

/// Why a part gets a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// It is the first of what a client reads.
    First,
    /// A client reads it as well.
    Asked,
    /// It came along.
    Extra,
    /// It came along, and a client read it meanwhile; or it cost nothing.
    Given,
    /// It was at home there.
    Kept,
}

/// A copy has ended that experience goes by: whether it was read.
pub type Ended = Option<bool>;

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Tray {
    /// Cells that hold a part, or into which one is being written.
    taken: u16,
    exists: bool,
    /// Among those with room.
    listed: bool,
    /// It ends as soon as nothing is being written into it.
    leaving: bool,
}

/// See the module.
#[derive(Serialize, Deserialize)]
pub struct Cells {
    /// Where each part is. A part's key is its number through the whole volume.
    places: Places,
    state: Vec<u8>,
    trays: Vec<Tray>,
    part_blocks: u32,
    per_slot: u32,
    /// Cells of trays into which something could be written.
    free: u32,
    /// Trays with free cells, and some that had.
    with_room: VecDeque<Slot>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: Ghosts,
    /// Cells of what was at home there, and was not read since.
    kept: u32,
    /// The slot that was looked at last for one of them.
    kept_hand: u32,
    /// The slot that was looked at last for any tray.
    hand: u32,
    /// Slots before this one are wanted for homes too.
    homes: u32,
}

/// What cells for so many fast slots take at most.
pub fn ram_bytes_at_most(slots: u64, chunk_blocks: u32) -> u64 {
    let cells = slots * u64::from(chunk_blocks / part_blocks(slots, chunk_blocks));
    let queues = 2 * cells.next_power_of_two() * 4 + slots.next_power_of_two() * 4;
    places::ram_bytes(cells, cells)
        + cells
        + slots * size_of::<Tray>() as u64
        + queues
        + ghosts::ram_bytes(cells)
}

fn part_blocks(slots: u64, chunk_blocks: u32) -> u32 {
    let mut blocks = 1;
    while slots * u64::from(chunk_blocks / blocks) > MOST_CELLS && blocks < chunk_blocks {
        blocks *= 2;
    }
    blocks
}

impl Cells {
    /// For so many fast slots, of which so many, the first ones, are wanted for homes too; none of them is a tray.
    pub fn new(homes: u32, slots: u32, chunk_blocks: u32, economy: &Economy) -> Cells {
        let part_blocks = part_blocks(u64::from(slots), chunk_blocks);
        let per_slot = chunk_blocks / part_blocks;
        let cells = slots * per_slot;
        Cells {
            places: Places::new(cells, cells),
            state: vec![0; cells as usize],
            trays: vec![Tray::default(); slots as usize],
            part_blocks,
            per_slot,
            free: 0,
            with_room: VecDeque::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(cells, economy),
            kept: 0,
            kept_hand: 0,
            hand: 0,
            homes,
        }
    }

    /// Bytes of RAM.
    pub fn ram_bytes(&self) -> u64 {
        let queues = self.small.capacity() + self.main.capacity() + self.with_room.capacity();
        let trays = self.trays.len() * size_of::<Tray>();
        self.places.ram_bytes(self.state.len() as u32)
            + self.ghosts.ram_bytes()
            + (self.state.len() + trays + queues * 4) as u64
    }

    /// Blocks of a part.
    pub fn part_blocks(&self) -> u32 {
        self.part_blocks
    }

    /// Parts with a copy, those being written included.
    pub fn len(&self) -> u32 {
        self.places.len()
    }

    /// Cells into which something could be written without another tray.
    pub fn free(&self) -> u32 {
        self.free
    }

    fn key(&self, chunk: Chunk, part: u32) -> u64 {
        u64::from(chunk.0) * u64::from(self.per_slot) + u64::from(part)
    }

    fn chunk_in(&self, cell: u32) -> Option<Chunk> {
        self.places.key(cell).map(|key| Chunk((key / u64::from(self.per_slot)) as u32))
    }

    fn slot_of(&self, cell: u32) -> Slot {
        Slot(cell / self.per_slot)
    }

    fn cells_of(&self, slot: Slot) -> std::ops::Range<u32> {
        slot.0 * self.per_slot..(slot.0 + 1) * self.per_slot
    }

    fn states_of(&self, slot: Slot) -> &[u8] {
        let cells = self.cells_of(slot);
        &self.state[cells.start as usize..cells.end as usize]
    }

    /// Where a block's copy is, if it has one that can be read.
    pub fn find(&self, chunk: Chunk, block: u32) -> Option<CellBlock> {
        if self.len() == 0 {
            return None;
        }
        let cell = self.places.get(self.key(chunk, block / self.part_blocks))?;
        let at = u64::from(cell) * u64::from(self.part_blocks) + u64::from(block % self.part_blocks);
        (self.state[cell as usize] & FILLING == 0).then_some(CellBlock(at))
    }

    /// The slot of a block of a cell, and which block of the slot it is.
    pub fn place(&self, at: CellBlock) -> (Slot, u32) {
        let per_slot = u64::from(self.per_slot * self.part_blocks);
        (Slot((at.0 / per_slot) as u32), (at.0 % per_slot) as u32)
    }

    /// The first block of a cell.
    pub fn block_of(&self, cell: Cell) -> CellBlock {
        CellBlock(u64::from(cell.0) * u64::from(self.part_blocks))
    }

    /// Whether a part has a copy, or will.
    pub fn has(&self, chunk: Chunk, part: u32) -> bool {
        self.places.get(self.key(chunk, part)).is_some()
    }

    /// How many parts of a chunk have a copy, or will.
    pub fn parts_of(&self, chunk: Chunk) -> u32 {
        (0..self.per_slot).filter(|part| self.has(chunk, *part)).count() as u32
    }

    /// Whether a slot is a tray.
    pub fn is_tray(&self, slot: Slot) -> bool {
        self.trays[slot.0 as usize].exists
    }

    /// Whether a slot is a tray, into which nothing is being written, and nothing in it was ever read.
    pub fn is_unread(&self, slot: Slot) -> bool {
        self.is_tray(slot) && self.states_of(slot).iter().all(|state| state & (USED | REPAID | FILLING) == 0)
    }

    /// The chunks with parts in a tray, and how many parts of each; one may come twice.
    pub fn chunks_in(&self, slot: Slot) -> impl Iterator<Item = (Chunk, u32)> {
        let mut cells = self.cells_of(slot).filter_map(|cell| self.chunk_in(cell)).peekable();
        std::iter::from_fn(move || {
            let chunk = cells.next()?;
            let mut parts = 1;
            while cells.next_if_eq(&chunk).is_some() {
                parts += 1;
            }
            Some((chunk, parts))
        })
    }

    /// Parts of a chunk.
    pub fn parts_per_chunk(&self) -> u32 {
        self.per_slot
    }

    /// Some trays whose slots are for homes, and into which nothing is being written: those whose cells give way next, and
    /// some from a slot on. Gives the slot from which to go on as well.
    pub fn some_trays(&self, from: u32) -> (Vec<Slot>, u32) {
        let next = self.small.iter().take(EVICTION_STEPS).chain(self.main.iter().take(EVICTION_STEPS));
        let mut slots: Vec<Slot> = next.map(|cell| self.slot_of(*cell)).collect();
        slots.extend(self.with_room.iter().take(TRAYS_LOOKED_AT));
        let (mut hand, mut found) = (from, 0);
        for _ in 0..SLOTS_LOOKED_AT.min(self.homes) {
            if found == TRAYS_LOOKED_AT {
                break;
            }
            hand = (hand + 1) % self.homes;
            if self.trays[hand as usize].exists {
                found += 1;
                slots.push(Slot(hand));
            }
        }
        slots.sort_unstable();
        slots.dedup();
        let is_written = |slot: Slot| self.states_of(slot).iter().any(|state| state & FILLING != 0);
        slots.retain(|slot| self.may_leave(*slot) && !is_written(*slot));
        (slots, hand)
    }

    /// Whether a slot is a tray that homes may have.
    fn may_leave(&self, slot: Slot) -> bool {
        let tray = self.trays[slot.0 as usize];
        slot.0 < self.homes && tray.exists && !tray.leaving
    }

    /// Makes a slot a tray with free cells.
    pub fn add_tray(&mut self, slot: Slot) {
        assert!(!self.is_tray(slot), "a tray is somebody's already");
        let listed = self.trays[slot.0 as usize].listed;
        self.trays[slot.0 as usize] = Tray { exists: true, listed, ..Tray::default() };
        self.free += self.per_slot;
        self.list(slot);
    }

    fn list(&mut self, slot: Slot) {
        let tray = &mut self.trays[slot.0 as usize];
        if tray.exists && !tray.leaving && !tray.listed {
            tray.listed = true;
            self.with_room.push_back(slot);
        }
    }

    /// Whether nothing is in a cell, nor on its way there.
    fn is_free(&self, cell: u32) -> bool {
        self.state[cell as usize] & FILLING == 0 && self.places.key(cell).is_none()
    }

    /// Takes up to so many free cells, of trays that may be written, neighbours where there are.
    pub fn take(&mut self, most: usize, may_write: impl Fn(Slot) -> bool) -> Vec<Cell> {
        let mut taken = Vec::new();
        for _ in 0..TRAYS_LOOKED_AT.min(self.with_room.len()) {
            let Some(slot) = self.with_room.pop_front() else { break };
            self.trays[slot.0 as usize].listed = false;
            let tray = self.trays[slot.0 as usize];
            if !tray.exists || tray.leaving || u32::from(tray.taken) == self.per_slot {
                continue;
            }
            if may_write(slot) || planted(Bug::CopyFreedUnderRead) {
                for cell in self.cells_of(slot) {
                    if taken.len() < most && self.is_free(cell) {
                        self.state[cell as usize] |= FILLING;
                        self.trays[slot.0 as usize].taken += 1;
                        self.free -= 1;
                        taken.push(Cell(cell));
                    }
                }
            }
            if u32::from(self.trays[slot.0 as usize].taken) < self.per_slot {
                self.list(slot);
            }
            if taken.len() == most {
                break;
            }
        }
        taken.sort_unstable();
        taken
    }

    /// A cell that was taken is being written with a part; gives whether a client asked for it, and it had left of late.
    pub fn fill(&mut self, chunk: Chunk, part: u32, cell: Cell, wish: Wish) -> bool {
        let key = self.key(chunk, part);
        assert!(!self.has(chunk, part), "a part has one copy");
        self.places.insert(key, cell.0, false);
        let flags = match wish {
            Wish::First => ASKED,
            Wish::Asked => 0,
            Wish::Extra => EXTRA,
            Wish::Given => USED | REPAID,
            Wish::Kept => KEPT,
        };
        let was_there = self.ghosts.is_back(key, wish != Wish::Extra) && wish != Wish::Extra;
        let state = &mut self.state[cell.0 as usize];
        *state = *state & (QUEUED | FILLING) | flags;
        if *state & QUEUED == 0 {
            let (queue, flag) =
                if was_there { (&mut self.main, IN_MAIN) } else { (&mut self.small, IN_SMALL) };
            queue.push_back(cell.0);
            *state |= flag;
        }
        was_there && wish == Wish::First
    }

    /// Up to so many copies, in the order in which they are to give way, of those from this place on in that order; and the
    /// place behind them. Those that are being written are left out, and those in slots that are the log's at other times.
    pub fn hints(&self, from: usize, most: usize) -> (Vec<CopyHint>, usize) {
        let (small, all) = (self.small.len(), self.small.len() + self.main.len());
        let of_small = self.small.range(from.min(small)..).map(|cell| (*cell, false));
        let of_main = self.main.range(from.clamp(small, all) - small..).map(|cell| (*cell, true));
        let (mut hints, mut next) = (Vec::new(), all);
        for (at, (cell, main)) in (from..).zip(of_small.chain(of_main)) {
            if hints.len() == most {
                next = at;
                break;
            }
            let slot = self.slot_of(cell);
            let state = self.state[cell as usize];
            if let Some(key) = self.places.key(cell)
                && state & FILLING == 0
                && self.may_leave(slot)
            {
                let (chunk, part) = (key / u64::from(self.per_slot), key % u64::from(self.per_slot));
                let chunk = Chunk(chunk as u32);
                hints.push(CopyHint { cell, chunk, part: part as u16, flags: state & TOLD, main });
            }
        }
        (hints, next)
    }

    /// The slot of a cell that there is for homes, too.
    pub fn slot_for_homes(&self, cell: u32) -> Option<Slot> {
        Some(self.slot_of(cell)).filter(|slot| slot.0 < self.homes)
    }

    /// A copy is in a free cell of a tray, as it was before the volume was opened; nothing where it cannot be.
    pub fn recall(&mut self, hint: CopyHint) {
        let (part, slot) = (u32::from(hint.part), self.slot_of(hint.cell));
        if part >= self.per_slot || self.has(hint.chunk, part) || !self.is_free(hint.cell) {
            return;
        }
        self.places.insert(self.key(hint.chunk, part), hint.cell, false);
        self.trays[slot.0 as usize].taken += 1;
        self.free -= 1;
        let (queue, flag) = if hint.main { (&mut self.main, IN_MAIN) } else { (&mut self.small, IN_SMALL) };
        queue.push_back(hint.cell);
        self.state[hint.cell as usize] = hint.flags & TOLD | flag;
        self.kept += u32::from(hint.flags & KEPT != 0);
    }

    /// Whether one cell follows the other in the same slot.
    pub fn are_neighbours(&self, cell: Cell, next: Cell) -> bool {
        cell.0 + 1 == next.0 && !next.0.is_multiple_of(self.per_slot)
    }

    /// A slot that holds a chunk as it is becomes a tray with its copies.
    pub fn keep(&mut self, chunk: Chunk, slot: Slot) {
        self.add_tray(slot);
        for (part, cell) in self.cells_of(slot).enumerate() {
            self.state[cell as usize] |= FILLING;
            self.trays[slot.0 as usize].taken += 1;
            self.free -= 1;
            self.fill(chunk, part as u32, Cell(cell), Wish::Kept);
            self.kept += 1;
            self.filled(Cell(cell), true);
        }
    }

    /// Nothing is being written into a cell any more. Gives the slot of a tray that must not be used any more, and now can.
    pub fn filled(&mut self, cell: Cell, ok: bool) -> Option<Slot> {
        let state = &mut self.state[cell.0 as usize];
        if *state & FILLING == 0 {
            return None;
        }
        *state &= !FILLING;
        match self.places.key(cell.0) {
            Some(_) if ok => return None,
            Some(key) => _ = self.places.remove(key),
            None => {}
        }
        self.vacate(cell.0)
    }

    /// A cell holds nothing any more; gives its tray's slot if that is empty.
    fn vacate(&mut self, cell: u32) -> Option<Slot> {
        self.state[cell as usize] &= QUEUED;
        let slot = self.slot_of(cell);
        let tray = &mut self.trays[slot.0 as usize];
        tray.taken -= 1;
        if !tray.leaving {
            self.free += 1;
        }
        let is_empty = tray.taken == 0;
        self.list(slot);
        is_empty.then_some(slot)
    }

    /// A cell does not hold its part any more.
    fn end(&mut self, cell: u32) -> (Ended, Option<Slot>) {
        let state = self.state[cell as usize];
        let ended = (state & ASKED != 0).then_some(state & REPAID != 0);
        let key = self.places.key(cell).expect("a cell that ends holds a part");
        self.places.remove(key);
        self.kept -= u32::from(state & KEPT != 0);
        if state & FILLING != 0 && !planted(Bug::CopyFreedWhileWritten) {
            // What is written into it late must not meet its next part.
            self.state[cell as usize] &= QUEUED | FILLING;
            return (ended, None);
        }
        (ended, self.vacate(cell))
    }

    /// A chunk has no copies from here on. Calls back with what ended, and with the slots of trays that are empty now.
    pub fn drop_chunk(&mut self, chunk: Chunk, mut ended: impl FnMut(Ended, Option<Slot>)) {
        if self.len() == 0 {
            return;
        }
        for part in 0..self.per_slot {
            if let Some(cell) = self.places.get(self.key(chunk, part)) {
                let (how, emptied) = self.end(cell);
                ended(how, emptied);
            }
        }
    }

    /// A tray is not to be used any more: true when its slot can be had at once, else [`Cells::filled`] gives it later.
    pub fn drop_tray(&mut self, slot: Slot, mut ended: impl FnMut(Ended)) -> bool {
        let tray = &mut self.trays[slot.0 as usize];
        if !tray.leaving {
            self.free -= self.per_slot - u32::from(tray.taken);
            tray.leaving = true;
        }
        for cell in self.cells_of(slot) {
            if self.places.key(cell).is_some() {
                ended(self.end(cell).0);
            }
        }
        self.trays[slot.0 as usize].taken == 0
    }

    /// A slot that holds nothing is no tray any more.
    pub fn remove_tray(&mut self, slot: Slot) {
        let tray = &mut self.trays[slot.0 as usize];
        assert!(tray.exists && tray.taken == 0, "a tray with something in it stays");
        if !tray.leaving {
            self.free -= self.per_slot;
        }
        *tray = Tray { listed: tray.listed, ..Tray::default() };
    }

    /// Blocks were read from copies, or from the memory from which they are being written: whether some of them had only
    /// come along.
    pub fn read(&mut self, chunk: Chunk, first: u32, count: u32) -> bool {
        let mut extra = false;
        for part in first / self.part_blocks..=(first + count - 1) / self.part_blocks {
            if let Some(cell) = self.places.get(self.key(chunk, part)) {
                let state = &mut self.state[cell as usize];
                extra |= *state & EXTRA != 0;
                self.kept -= u32::from(*state & KEPT != 0);
                *state = *state & !(EXTRA | KEPT) | USED | REPAID;
            }
        }
        extra
    }

    /// Whether something that was at home here, and was not read since, may give way to what a stream reads.
    pub fn has_kept(&self) -> bool {
        self.kept > 0
    }

    /// Frees such a cell, where one is found soon.
    pub fn evict_kept(&mut self) -> bool {
        let slots = self.trays.len() as u32;
        for _ in 0..SLOTS_LOOKED_AT.min(slots) {
            let gives_way = |cell: &u32| self.state[*cell as usize] & (KEPT | FILLING) == KEPT;
            if let Some(cell) = self.cells_of(Slot(self.kept_hand)).find(gives_way) {
                self.end(cell);
                return true;
            }
            self.kept_hand = (self.kept_hand + 1) % slots;
        }
        false
    }

    /// Frees the cell that gives way next.
    pub fn evict(&mut self) -> Option<Ended> {
        for _ in 0..EVICTION_STEPS {
            let from = self.ghosts.gives_way(self.small.len(), self.main.len());
            let (queue, flag) = match from {
                Queue::Small => (&mut self.small, IN_SMALL),
                Queue::Main => (&mut self.main, IN_MAIN),
            };
            let cell = queue.pop_front()?;
            let state = &mut self.state[cell as usize];
            *state &= !flag;
            let Some(key) = self.places.key(cell) else { continue };
            if *state & FILLING != 0 {
                *state |= flag;
                queue.push_back(cell);
            } else if *state & USED != 0 {
                *state = *state & !USED | IN_MAIN;
                self.main.push_back(cell);
            } else {
                self.ghosts.left(key, from);
                return Some(self.end(cell).0);
            }
        }
        None
    }

    /// The chunk that gives way next where it is known when each is used: the last of some.
    pub fn last_used<U: Ord>(&mut self, next_use: impl Fn(Chunk) -> U) -> Option<(U, Chunk)> {
        let of_small = self.small.len() >= self.main.len();
        let queue = if of_small { &mut self.small } else { &mut self.main };
        let steps = EVICTION_STEPS.min(queue.len());
        queue.rotate_left(steps);
        let queue = if of_small { &self.small } else { &self.main };
        let ready = queue.iter().rev().take(steps).filter(|c| self.state[**c as usize] & FILLING == 0);
        let mut chunks: Vec<Chunk> = ready.filter_map(|cell| self.chunk_in(*cell)).collect();
        chunks.dedup();
        chunks.into_iter().map(|chunk| (next_use(chunk), chunk)).max()
    }

    /// The tray whose slot, one for homes, is missed least: an empty one, or of those whose cells give way next, the one of
    /// which least was read.
    pub fn next_tray(&self) -> Option<Slot> {
        let stays = |slot: &Slot| self.may_leave(*slot);
        let mut empty = self.with_room.iter().take(TRAYS_LOOKED_AT).copied();
        if let Some(slot) = empty.find(|slot| stays(slot) && self.trays[slot.0 as usize].taken == 0) {
            return Some(slot);
        }
        let next = self.small.iter().take(EVICTION_STEPS).chain(self.main.iter().take(EVICTION_STEPS));
        let mut slots: Vec<Slot> = next.map(|cell| self.slot_of(*cell)).collect();
        slots.dedup();
        slots.retain(stays);
        slots.truncate(TRAYS_LOOKED_AT);
        let used = |slot: &Slot| {
            self.states_of(*slot).iter().filter(|state| **state & (USED | FILLING) != 0).count()
        };
        slots.into_iter().min_by_key(used)
    }

    /// The same, or any.
    pub fn tray_to_leave(&mut self) -> Option<Slot> {
        let count = self.homes;
        self.next_tray().or_else(|| {
            for _ in 0..SLOTS_LOOKED_AT.min(count) {
                self.hand = (self.hand + 1) % count;
                if self.may_leave(Slot(self.hand)) {
                    return Some(Slot(self.hand));
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash::mix;
    use std::collections::BTreeMap;

    const SLOTS: u32 = 12;
    const CHUNK_BLOCKS: u32 = 32;

    /// What is counted beside the cells is what they say.
    fn is_consistent(cells: &Cells) {
        let (mut free, mut held) = (0, 0);
        for slot in (0..SLOTS).map(Slot) {
            let tray = cells.trays[slot.0 as usize];
            let taken = cells.cells_of(slot).filter(|cell| !cells.is_free(*cell)).count() as u32;
            assert_eq!(u32::from(tray.taken), taken);
            assert!(tray.exists || taken == 0, "only trays hold something");
            let has_room = tray.exists && !tray.leaving && taken < cells.per_slot;
            assert!(!has_room || tray.listed && cells.with_room.contains(&slot), "free cells are found");
            free += if tray.exists && !tray.leaving { cells.per_slot - taken } else { 0 };
            held += cells.cells_of(slot).filter(|cell| cells.places.key(*cell).is_some()).count() as u32;
        }
        assert_eq!((cells.free, cells.len()), (free, held));
        let queued = cells.state.iter().filter(|state| **state & QUEUED != 0).count();
        assert_eq!(queued, cells.small.len() + cells.main.len(), "each is in one queue, once");
    }

    /// Random steps, beside a table of which parts have copies and where: every step leaves both the same.
    #[test]
    fn agree_with_a_table_whatever_comes_and_goes() {
        let mut cells = Cells::new(SLOTS, SLOTS, CHUNK_BLOCKS, &Economy::default());
        assert_eq!((cells.part_blocks(), cells.per_slot), (1, CHUNK_BLOCKS));
        let mut model: BTreeMap<(u32, u32), Cell> = BTreeMap::new();
        let mut filling: Vec<Cell> = Vec::new();
        let mut n = 1u64;
        for step in 0..40_000 {
            n = mix(n + step);
            let (chunk, slot, part) = (
                Chunk((n >> 8) as u32 % 20),
                Slot((n >> 16) as u32 % SLOTS),
                (n >> 24) as u32 % CHUNK_BLOCKS,
            );
            match n % 16 {
                0..=2 if !cells.is_tray(slot) => cells.add_tray(slot),
                3 if cells.is_tray(slot) => {
                    if cells.drop_tray(slot, |_| {}) {
                        cells.remove_tray(slot);
                    }
                    model.retain(|_, cell| cells.slot_of(cell.0) != slot);
                }
                4 => {
                    cells.drop_chunk(chunk, |_, _| {});
                    model.retain(|(c, _), _| *c != chunk.0);
                }
                5..=7 => {
                    let before = cells.len();
                    let evicted = cells.evict().is_some();
                    assert_eq!(cells.len(), before - u32::from(evicted));
                    model.retain(|(chunk, part), _| cells.has(Chunk(*chunk), *part));
                }
                8..=9 if !filling.is_empty() => {
                    let cell = filling.swap_remove((n >> 32) as usize % filling.len());
                    let ok = n >> 40 & 3 != 0;
                    if let Some(slot) = cells.filled(cell, ok) {
                        cells.remove_tray(slot);
                    }
                    if !ok {
                        model.retain(|_, c| *c != cell);
                    }
                }
                10 => _ = cells.read(chunk, part, (CHUNK_BLOCKS - part).min(3)),
                _ => {
                    let wish = [Wish::First, Wish::Asked, Wish::Extra, Wish::Given][(n >> 48) as usize % 4];
                    let missing: Vec<u32> = (part..CHUNK_BLOCKS).filter(|p| !cells.has(chunk, *p)).collect();
                    for (cell, part) in cells.take(missing.len().min(5), |_| true).into_iter().zip(missing) {
                        cells.fill(chunk, part, cell, wish);
                        assert!(cells.find(chunk, part).is_none(), "not before it is written");
                        model.insert((chunk.0, part), cell);
                        filling.push(cell);
                    }
                }
            }
            is_consistent(&cells);
            for ((chunk, part), cell) in &model {
                let found = cells.find(Chunk(*chunk), *part);
                assert!(filling.contains(cell) == found.is_none(), "what was written is found");
                assert!(found.is_none_or(|at| at == cells.block_of(*cell)));
            }
            assert_eq!(model.len() as u32, cells.len());
        }
    }

    /// What one table tells another has: the same copies at the same places, which give way in the same order.
    #[test]
    fn what_is_told_is_recalled_and_nothing_that_cannot_be() {
        let new = || Cells::new(SLOTS, SLOTS, CHUNK_BLOCKS, &Economy::default());
        let mut cells = new();
        (0..SLOTS).for_each(|slot| cells.add_tray(Slot(slot)));
        for n in 0..300 {
            if cells.free() == 0 {
                cells.evict().expect("something gives way");
            }
            let cell = cells.take(1, |_| true)[0];
            cells.fill(Chunk(n / 7), n % 7, cell, [Wish::First, Wish::Extra, Wish::Given][n as usize % 3]);
            if n % 10 > 0 {
                cells.filled(cell, true);
            }
            cells.read(Chunk(n / 9), n % 5, 1);
        }
        let (all, end) = cells.hints(0, usize::MAX);
        assert_eq!(cells.hints(end, 1).0, [], "there is no more");
        let (mut told, mut from) = (Vec::new(), 0);
        while let (some, next) = cells.hints(from, 11)
            && !some.is_empty()
        {
            told.extend(some);
            from = next;
        }
        assert_eq!((told.len(), &told), (270, &all), "in pieces as in one, without what is being written");
        let mut again = new();
        (0..SLOTS).for_each(|slot| again.add_tray(Slot(slot)));
        for hint in &told {
            again.recall(*hint);
            // Twice, in a cell that has something, and a part that there is not.
            again.recall(*hint);
            again.recall(CopyHint { chunk: Chunk(999), ..*hint });
            again.recall(CopyHint { part: CHUNK_BLOCKS as u16, ..*hint });
        }
        is_consistent(&again);
        assert_eq!((again.hints(0, usize::MAX).0, again.len()), (told.clone(), 270));
        for hint in told {
            assert_eq!(again.find(hint.chunk, hint.part.into()), Some(again.block_of(Cell(hint.cell))));
        }
    }

    /// What is read only once leaves before what is read again, however much of it comes.
    #[test]
    fn what_is_read_again_outlives_what_is_not() {
        let mut cells = Cells::new(SLOTS, SLOTS, CHUNK_BLOCKS, &Economy::default());
        (0..SLOTS).for_each(|slot| cells.add_tray(Slot(slot)));
        let mut fill = |chunk: u32| {
            while cells.free() < CHUNK_BLOCKS {
                cells.evict().expect("something gives way");
            }
            for (part, cell) in cells.take(CHUNK_BLOCKS as usize, |_| true).into_iter().enumerate() {
                cells.fill(Chunk(chunk), part as u32, cell, Wish::Extra);
                cells.filled(cell, true);
            }
            // One block of each of the first chunks is read all the time.
            (0..chunk.min(8)).for_each(|hot| _ = cells.read(Chunk(hot), 7, 1));
            (0..8).filter(|hot| cells.find(Chunk(*hot), 7).is_some()).count()
        };
        (0..9).for_each(|chunk| _ = fill(chunk));
        assert!((9..1000).all(|chunk| fill(chunk) == 8), "the hot blocks stay");
        assert!((0..8).all(|hot| cells.find(Chunk(hot), 8).is_none()), "and they alone");
    }

    #[test]
    fn parts_are_as_small_as_memory_allows() {
        let gib = |gib: u64| gib << 30 >> 17;
        assert_eq!([1, 8, 16, 128, 1024].map(|size| part_blocks(gib(size), 32)), [1, 1, 2, 16, 32]);
        assert!(ram_bytes_at_most(gib(128), 32) < 72 << 20);
        let cells = Cells::new(1000, 1000, 64, &Economy::default());
        assert!(cells.ram_bytes() <= ram_bytes_at_most(1000, 64));
    }
}
