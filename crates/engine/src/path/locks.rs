//! Block locks: requests to the same blocks are served in the order they came.

use crate::base::bugs::{Bug, planted};
use crate::base::hash::IndexMap;
use bimetal_units::Chunk;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A holder or waiter: blocks `[first, end)` of a chunk.
#[derive(Clone, Copy, Serialize, Deserialize)]
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

#[derive(Default, Serialize, Deserialize)]
struct ChunkLocks {
    held: SmallVec<[Span; 2]>,
    waiting: SmallVec<[Span; 1]>,
}

/// Locks of all chunks that have pieces in flight; as many as there are pieces.
#[derive(Default, Serialize, Deserialize)]
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

    /// Lets a piece that holds blocks hold the chunk's first `count`, where nobody else holds or wants any; whether it does.
    pub fn widen(&mut self, chunk: Chunk, piece: u32, count: u32) -> bool {
        let locks = self.chunks.get_mut(&chunk).expect("a piece that holds blocks has locks");
        let alone = locks.held.len() == 1 && locks.held[0].piece == piece && locks.waiting.is_empty();
        if alone {
            (locks.held[0].first, locks.held[0].end) = (0, count);
        }
        alone
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who completes a chunk may have all of it while nobody else is there; who comes then waits.
    #[test]
    fn a_piece_that_is_alone_may_have_more() {
        let (mut locks, mut granted) = (Locks::default(), Vec::new());
        assert!(locks.acquire(Chunk(1), 7, 4, 4, false));
        assert!(locks.acquire(Chunk(1), 8, 0, 2, true));
        assert!(!locks.widen(Chunk(1), 7, 8), "somebody reads");
        locks.release(Chunk(1), 8, &mut granted);
        assert!(!locks.acquire(Chunk(1), 9, 7, 1, false));
        assert!(!locks.widen(Chunk(1), 7, 8), "somebody waits");
        locks.release(Chunk(1), 7, &mut granted);
        assert_eq!(granted, [9]);
        assert!(locks.widen(Chunk(1), 9, 8));
        assert!(!locks.acquire(Chunk(1), 10, 0, 1, false), "it has the first block, too");
        locks.release(Chunk(1), 9, &mut granted);
        assert_eq!(granted, [9, 10]);
    }
}
