//! Chunks that a stream has begun, and has written to their beginning only: that stays in memory, so that the chunk is written to
//! a fresh slot as a whole with what completes it.
//!
//! A stream whose requests do not end where chunks do would write each chunk in two parts. Both would land, be merged by two
//! seeks later, and hold the zone until then. So the first lands, as any write does, and is answered; the memory of it is
//! joined by the second, and what landed is superseded by the record of the whole ([`Engine::join_begun`]).

use crate::base::arena::{Arena, Buf, Pool};
use crate::base::bugs::{Bug, planted};
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::path::piece::PieceKind;
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Chunks that are begun at a time: each takes a chunk of memory for the background.
const MAX_BEGUN: usize = 16;

/// A chunk of which a stream has written the beginning.
#[derive(Serialize, Deserialize)]
struct BegunChunk {
    chunk: Chunk,
    /// Tells it from others that were begun of the same chunk.
    id: u32,
    /// What was written: the chunk's first bytes. It has room for all.
    buf: Buf,
    written_bytes: u32,
    /// Pieces that wrote it and have not ended.
    in_flight: u32,
}

/// All such chunks, in the order in which they were begun.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Begun {
    chunks: Vec<BegunChunk>,
    next_id: u32,
}

impl Begun {
    fn find(&self, chunk: Chunk, id: u32) -> Option<usize> {
        self.chunks.iter().position(|begun| begun.chunk == chunk && begun.id == id)
    }
}

impl<A: Arena> Engine<A> {
    /// A piece comes that changes its chunk: it begins the chunk, goes on with it, or what is in memory holds no more.
    pub(crate) fn note_begun(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        if p.kind == PieceKind::Read {
            return;
        }
        let (chunk, (from, to)) = (p.chunk, p.bytes_in_chunk());
        let request = &self.front.requests[p.request];
        let streams = p.kind == PieceKind::Write
            && request.is_stream()
            && request.goes_on()
            && request.bytes() >= self.tuning.economy.joined_bytes
            && !self.commit.flushes_are_frequent(self.tuning.economy.frequent_writes);
        let chunk_bytes = self.state.geo.chunk_bytes;
        let begun = self.front.begun.chunks.iter().position(|begun| begun.chunk == chunk);
        match begun {
            Some(i) if streams && self.front.begun.chunks[i].written_bytes == from => {
                if to < chunk_bytes {
                    self.go_on_with(i, piece, (from, to));
                } else {
                    self.front.pieces[piece].completes = Some(self.front.begun.chunks[i].id);
                }
            }
            Some(_) if planted(Bug::BegunOutlivesWrite) => {}
            Some(i) => self.forget_begun(i),
            None if streams && from == 0 && to < chunk_bytes => {
                if self.front.begun.chunks.len() == MAX_BEGUN {
                    self.forget_begun(0);
                }
                let Some(buf) = self.io.arena.alloc(Pool::Background, chunk_bytes) else { return };
                let begun = &mut self.front.begun;
                begun.next_id = begun.next_id.wrapping_add(1);
                let id = begun.next_id;
                begun.chunks.push(BegunChunk { chunk, id, buf, written_bytes: 0, in_flight: 0 });
                let i = begun.chunks.len() - 1;
                self.go_on_with(i, piece, (from, to));
            }
            None => {}
        }
    }

    fn go_on_with(&mut self, i: usize, piece: u32, (from, to): (u32, u32)) {
        let begun = &mut self.front.begun.chunks[i];
        let p = &mut self.front.pieces[piece];
        p.begins = Some(begun.id);
        let payload = p.payload();
        self.io.arena.copy(begun.buf.slice(from, to - from), payload);
        (begun.written_bytes, begun.in_flight) = (to, begun.in_flight + 1);
    }

    /// A piece that wrote the beginning of a chunk has ended.
    pub(crate) fn begun_ended(&mut self, chunk: Chunk, id: u32, ok: bool) {
        let Some(i) = self.front.begun.find(chunk, id) else { return };
        self.front.begun.chunks[i].in_flight -= 1;
        if !ok {
            self.forget_begun(i);
        }
        self.wanted.wake |= !self.front.blocked.is_empty();
    }

    fn forget_begun(&mut self, i: usize) {
        let begun = self.front.begun.chunks.remove(i);
        self.io.arena.free(begun.buf);
        self.wanted.wake |= !self.front.blocked.is_empty();
    }

    /// Nothing that is begun stays in memory.
    pub(crate) fn forget_all_begun(&mut self) {
        while !self.front.begun.chunks.is_empty() {
            self.forget_begun(0);
        }
    }

    /// Memory for the background: what is begun gives way to whoever needs it.
    pub(crate) fn background_buffer(&mut self, bytes: u32) -> Option<Buf> {
        loop {
            let buf = self.io.arena.alloc(Pool::Background, bytes);
            if buf.is_some() || self.front.begun.chunks.is_empty() {
                return buf;
            }
            self.forget_begun(0);
        }
    }

    /// Makes a piece that completes what is begun of its chunk the write of the whole: it holds the lock on all of it from
    /// here on, and goes on as any whole chunk of a stream does. True where it is on its way, or waits to be.
    pub(crate) fn join_begun(&mut self, piece: u32) -> bool {
        let p = &self.front.pieces[piece];
        let (chunk, (from, to)) = (p.chunk, p.bytes_in_chunk());
        // What was begun since comes after this piece, and may wait for it.
        let Some(i) = p.completes.and_then(|id| self.front.begun.find(chunk, id)) else { return false };
        if !self.may_go_whole(chunk) {
            return false;
        }
        let whole = self.state.geo.blocks_per_chunk();
        if self.front.begun.chunks[i].in_flight > 0 {
            self.block_piece(piece);
            return true;
        }
        if !self.front.locks.widen(chunk, piece, whole) {
            return false;
        }
        let begun = self.front.begun.chunks.remove(i);
        let p = &mut self.front.pieces[piece];
        self.io.arena.copy(begun.buf.slice(from, to - from), p.payload());
        (p.first, p.count, p.head, p.tail) = (0, whole, 0, 0);
        (p.buf, p.joined_bytes, p.sectors) = (Some(begun.buf), from, [Sectors::ALL; 2]);
        self.filled(piece);
        true
    }
}
