//! Block locks: requests to the same blocks are served in the order they came.

use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use bimetal_units::Chunk;
use smallvec::SmallVec;

/// A holder or waiter: blocks `[first, end)` of a chunk.
#[derive(Clone, Copy)]
struct Span {
    piece: u32,
    first: u32,
    end: u32,
    shared: bool,
}

impl Span {
    fn conflicts(&self, other: &Span) -> bool {
        self.first < other.end
            && other.first < self.end
            && !(self.shared && other.shared)
            && !planted(Bug::LocksIgnored)
    }
}

#[derive(Default)]
struct ChunkLocks {
    held: SmallVec<[Span; 2]>,
    waiting: SmallVec<[Span; 1]>,
}

/// Locks of all chunks that have pieces in flight; as many as there are pieces.
#[derive(Default)]
pub struct Locks {
    chunks: IndexMap<Chunk, ChunkLocks>,
}

impl Locks {
    /// Asks for blocks `[first, first + count)`: true when granted at once; else the piece comes
    /// out of a later [`Locks::release`].
    pub fn acquire(&mut self, chunk: Chunk, piece: u32, first: u32, count: u32, shared: bool) -> bool {
        let span = Span { piece, first, end: first + count, shared };
        let locks = self.chunks.entry(chunk).or_default();
        let free = !locks.held.iter().chain(&locks.waiting).any(|s| s.conflicts(&span));
        if free {
            locks.held.push(span)
        } else {
            locks.waiting.push(span)
        }
        free
    }

    /// Gives the piece's blocks back and adds the pieces that now hold theirs to `granted`.
    pub fn release(&mut self, chunk: Chunk, piece: u32, granted: &mut Vec<u32>) {
        let locks = self.chunks.get_mut(&chunk).expect("a released chunk has locks");
        let held =
            locks.held.iter().position(|s| s.piece == piece).expect("a released piece holds its blocks");
        locks.held.swap_remove(held);
        let mut i = 0;
        while i < locks.waiting.len() {
            let span = locks.waiting[i];
            if locks.held.iter().chain(&locks.waiting[..i]).any(|s| s.conflicts(&span)) {
                i += 1;
            } else {
                locks.held.push(locks.waiting.remove(i));
                granted.push(span.piece);
            }
        }
        if locks.held.is_empty() {
            self.chunks.remove(&chunk);
        }
    }

    /// Whether pieces are in flight in the chunk.
    pub fn any(&self, chunk: Chunk) -> bool {
        self.chunks.contains_key(&chunk)
    }
}
