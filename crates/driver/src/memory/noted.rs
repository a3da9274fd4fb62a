//! What an arena tells of itself, so that another one can stand in its place: which buffers are taken, what metadata is in
//! them, and what checksums payload had. Payload itself is never told.

use super::{PoolSizes, PoolState, RealArena};
use crate::buddy::Buddy;
use bimetal_engine::arena::{Buf, Pool};
use bimetal_units::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

/// Pools whose buffers the engine itself fills and looks into.
const METADATA: [Pool; 2] = [Pool::Log, Pool::Meta];
/// Pools that the engine takes buffers from.
const ENGINES: [Pool; 3] = [Pool::Log, Pool::Background, Pool::Meta];
/// The largest pool that is made for somebody else's arena.
const MAX_POOL_BYTES: u32 = 1 << 30;

/// What an arena keeps of its own doings.
#[derive(Debug)]
pub(super) struct Notes {
    sums: RefCell<Sums>,
    /// Blocks of metadata pools that hold payload, since some was copied there.
    payload: Vec<u64>,
}

#[derive(Debug)]
enum Sums {
    /// Checksums that were asked for and not taken yet.
    Noted(Vec<u32>),
    /// Checksums that payload is said to have, and how many were asked for beyond those.
    Told(VecDeque<u32>, u64),
}

impl Notes {
    fn new(sums: Sums) -> Option<Box<Notes>> {
        Some(Box::new(Notes { sums: RefCell::new(sums), payload: Vec::new() }))
    }

    /// The checksum of a buffer: its own, or what it is said to be.
    pub(super) fn sum(&self, own: impl FnOnce() -> u32) -> u32 {
        match &mut *self.sums.borrow_mut() {
            Sums::Noted(noted) => {
                let sum = own();
                noted.push(sum);
                sum
            }
            Sums::Told(told, missed) => told.pop_front().unwrap_or_else(|| {
                *missed += 1;
                0
            }),
        }
    }

    /// Payload was copied to a buffer of a metadata pool.
    pub(super) fn payload_came(&mut self, buf: Buf) {
        self.payload.extend(blocks_of(buf));
    }

    /// Whether a buffer holds payload that was copied there.
    fn holds_payload(&self, buf: Buf) -> bool {
        !self.payload.is_empty() && blocks_of(buf).any(|block| self.payload.contains(&block))
    }

    /// A buffer is given back; whether it held payload.
    pub(super) fn given_back(&mut self, buf: Buf) -> bool {
        let held = self.holds_payload(buf);
        if held {
            self.payload.retain(|block| blocks_of(buf).all(|own| own != *block));
        }
        held
    }
}

fn blocks_of(buf: Buf) -> impl Iterator<Item = u64> {
    let block = u64::from(BLOCK_BYTES);
    buf.start / block..(buf.start + u64::from(buf.len)).div_ceil(block)
}

/// What another arena needs to stand in the place of this one.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArenaState {
    sizes: PoolSizes,
    /// Of the pools that the engine takes buffers from.
    taken: Vec<Buddy>,
    /// Metadata in buffers that are taken, by where they begin.
    metadata: Vec<(u64, Vec<u8>)>,
    /// Blocks that hold payload instead.
    payload: Vec<u64>,
}

impl RealArena {
    /// From now on notes each checksum that it is asked for. What earlier buffers held is forgotten where nothing is kept, so
    /// that no payload is left in pools for metadata.
    pub fn note_sums(&mut self) {
        for pool in METADATA {
            let place = &self.pools[pool.index()];
            let (start, free) = (place.start, place.buddy.free_runs());
            for (page, count) in free {
                let block = u64::from(BLOCK_BYTES);
                let buf = Buf { start: start + u64::from(page) * block, len: count * BLOCK_BYTES };
                self.memory.bytes_mut(buf).fill(0);
            }
        }
        self.notes = Notes::new(Sums::Noted(Vec::new()));
    }

    /// Notes no checksums any more.
    pub fn forget_sums(&mut self) {
        self.notes = None;
    }

    /// The checksums that were asked for since the last call, in order.
    pub fn take_sums(&mut self, out: &mut Vec<u32>) {
        if let Some(notes) = &mut self.notes
            && let Sums::Noted(noted) = notes.sums.get_mut()
        {
            out.append(noted);
        }
    }

    /// Tells an arena that was made by [`ArenaState::arena`] what checksums it will be asked for.
    pub fn tell_sums(&mut self, sums: impl Iterator<Item = u32>) {
        if let Some(notes) = &mut self.notes
            && let Sums::Told(told, _) = notes.sums.get_mut()
        {
            told.extend(sums);
        }
    }

    /// Whether such an arena was asked for exactly the checksums that it was told.
    pub fn is_told_out(&self) -> bool {
        self.notes.as_ref().is_none_or(|notes| match &*notes.sums.borrow() {
            Sums::Noted(_) => true,
            Sums::Told(told, missed) => told.is_empty() && *missed == 0,
        })
    }

    /// Whether the engine itself filled a buffer, or will look into it.
    pub fn is_metadata(&self, buf: Buf) -> bool {
        self.is_of_metadata(buf) && self.notes.as_ref().is_none_or(|notes| !notes.holds_payload(buf))
    }

    /// Whether a buffer is of a pool for metadata, and nowhere else.
    pub(super) fn is_of_metadata(&self, buf: Buf) -> bool {
        METADATA.iter().any(|&pool| {
            let PoolState { start, buddy } = &self.pools[pool.index()];
            let end = start + u64::from(buddy.pages()) * u64::from(BLOCK_BYTES);
            let last = buf.start.checked_add(u64::from(buf.len));
            (*start..end).contains(&buf.start) && last.is_some_and(|last| last <= end)
        })
    }

    /// What another arena needs to stand in the place of this one.
    pub fn state(&self) -> ArenaState {
        let notes = self.notes.as_ref();
        let payload = notes.map(|notes| notes.payload.clone()).unwrap_or_default();
        let mut metadata = Vec::new();
        for pool in METADATA {
            let PoolState { start, buddy } = &self.pools[pool.index()];
            for page in buddy.taken_pages() {
                let at = start + u64::from(page) * u64::from(BLOCK_BYTES);
                let buf = Buf { start: at, len: BLOCK_BYTES };
                if self.is_metadata(buf) {
                    metadata.push((at, self.memory.bytes(buf).to_vec()));
                }
            }
        }
        let taken = ENGINES.map(|pool| self.pools[pool.index()].buddy.clone()).to_vec();
        ArenaState { sizes: self.sizes, taken, metadata, payload }
    }
}

impl ArenaState {
    /// An arena like the one that told this, but for its payload, which is zeros. What its checksums are is told to it.
    ///
    /// # Errors
    /// When what was told cannot be of an arena, or there is no memory.
    pub fn arena(self) -> io::Result<RealArena> {
        let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "its buffers are of no arena");
        let block = u64::from(BLOCK_BYTES);
        let fits = |pool: Pool| {
            let bytes = self.sizes.list()[pool.index()];
            let is_enough = bytes > 0 || !ENGINES.contains(&pool);
            is_enough && bytes <= MAX_POOL_BYTES && bytes.is_multiple_of(BLOCK_BYTES)
        };
        if !Pool::ALL.into_iter().all(fits) || self.taken.len() != ENGINES.len() {
            return Err(nonsense());
        }
        let mut arena = RealArena::new(self.sizes)?;
        for (pool, buddy) in ENGINES.into_iter().zip(self.taken) {
            let place = &mut arena.pools[pool.index()].buddy;
            if buddy.pages() != place.pages() || !buddy.is_sound() {
                return Err(nonsense());
            }
            *place = buddy;
        }
        for (start, bytes) in self.metadata {
            let buf = Buf { start, len: BLOCK_BYTES };
            if bytes.len() as u64 != block || !start.is_multiple_of(block) || !arena.is_of_metadata(buf) {
                return Err(nonsense());
            }
            arena.memory.bytes_mut(buf).copy_from_slice(&bytes);
        }
        arena.notes = Notes::new(Sums::Told(VecDeque::new(), 0));
        if let Some(notes) = &mut arena.notes {
            notes.payload = self.payload;
        }
        Ok(arena)
    }
}
