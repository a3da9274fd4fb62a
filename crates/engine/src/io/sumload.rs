//! Loads pages of checksums from the fast tier, once for all who wait.

use crate::base::arena::Buf;
use crate::base::hash::IndexMap;
use crate::format::page::PageRef;
use crate::io::patience::Unread;
use smallvec::SmallVec;

/// Who waits for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SumWaiter {
    /// A read or fill.
    Piece(u32),
    /// A batch of moves.
    Batch(u32),
    /// The checkpoint, which folds recent checksums into it.
    Checkpoint,
}

pub(crate) struct Load {
    pub(crate) buf: Option<Buf>,
    /// The checkpoint in force when the read was issued; a later one may have moved the page.
    pub(crate) checkpoint: u64,
    pub(crate) waiters: SmallVec<[SumWaiter; 4]>,
}

/// Pages being loaded.
#[derive(Default)]
pub struct SumLoads {
    pub(crate) loads: IndexMap<u32, Load>,
    /// Pages that wait for a buffer.
    pub(crate) starved: Vec<u32>,
    pub(crate) unread: Unread<u32>,
    /// Versions of pages that were given up: where the cache has forgotten one, nobody waits for it as long again.
    pub(crate) given_up: IndexMap<u32, PageRef>,
}
