//! A piece: the part of a request that falls into one chunk.

use crate::api::action::{DeviceError, RequestError};
use crate::api::coverage::Stage;
use crate::base::arena::{Arena, Buf};
use crate::base::sectors::Sectors;
use crate::engine::Engine;
use crate::volume::cells::CellBlock;
use crate::volume::landed::ZoneBlock;
use bimetal_units::*;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// What a piece does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum PieceKind {
    /// Reads.
    #[default]
    Read,
    /// Writes the client's payload.
    Write,
    /// Writes zeros into part of one block.
    Zero,
    /// Makes whole blocks read zeros.
    Discard,
}

/// Where a block's newest copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Nowhere: it reads zeros.
    Zero,
    /// In the log.
    Landed(ZoneBlock),
    /// Some sectors in the log, the others beneath.
    Part(ZoneBlock),
    /// In a slot, recorded or pending.
    Slot(Home),
    /// In a copy of what is in a slow home.
    Copy(Home, CellBlock),
    /// Some sectors in the log, and the others are lost.
    Remnant(ZoneBlock),
    /// Lost: reading it is an error.
    Bad,
}

/// Neighbouring blocks from one source.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Extent {
    /// The source of the first block.
    pub source: Source,
    /// The first block in the chunk.
    pub first: u32,
    /// Blocks.
    pub count: u32,
    /// Where they are read to.
    pub buf: Buf,
}

/// What landed of a block, to be laid over what is beneath it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Overlay {
    /// Where it landed.
    pub at: ZoneBlock,
    /// The sectors that landed.
    pub sectors: Sectors,
    /// What landed.
    pub from: Buf,
    /// What is beneath.
    pub to: Buf,
}

/// A piece in flight.
#[derive(Default, Serialize, Deserialize)]
pub struct Piece {
    /// The request.
    pub request: u32,
    /// What it does.
    pub kind: PieceKind,
    /// Its chunk.
    pub chunk: Chunk,
    /// First block in the chunk.
    pub first: u32,
    /// Blocks, partial ones included.
    pub count: u32,
    /// Bytes of the first block that are not the request's.
    pub head: u32,
    /// Bytes of the last block that are not the request's.
    pub tail: u32,
    /// Cover of the blocks.
    pub buf: Option<Buf>,
    /// Durable when answered.
    pub fua: bool,
    /// Durable only after a commit.
    pub needs_commit: bool,
    /// Found again after a commit only, even where nothing but the process ends.
    pub unshown: bool,
    /// Where it stands; none while it waits for its lock.
    pub stage: Option<Stage>,
    /// I/Os in flight, or landing blocks not yet in the log.
    pub left: u32,
    /// Some I/O failed, or what is to be read is lost: what the client is told.
    pub failed: Option<RequestError>,
    /// What the device said.
    pub error: Option<DeviceError>,
    /// What is being read.
    pub extents: SmallVec<[Extent; 2]>,
    /// Blocks of the extents that matched their checksums: those are not looked up again when a page
    /// of checksums has to be waited for, or pages that push each other out would never let it end.
    pub verified: u32,
    /// Where old contents of partial blocks are read to: of the first block (0) or the last (1).
    pub fill: SmallVec<[(usize, Buf); 2]>,
    /// The sectors of the first block and of the last that land.
    pub sectors: [Sectors; 2],
    /// What is laid over what was read, once all is read.
    pub overlays: Vec<Overlay>,
    /// The engine's own buffer that fill and overlays are read to.
    pub scratch: Option<Buf>,
    /// Where it is being written.
    pub home: Option<Home>,
    /// It was read again, as a device had failed it, or a checksum did not match.
    pub again: bool,
    /// What of it is at home in fast slots is read from the shadows of these.
    pub from_shadows: bool,
    /// It writes, and its chunk had no home when it came: it may take a slot for it.
    pub may_take_slot: bool,
    /// It writes what is begun of its chunk: which beginning that is.
    pub begins: Option<u32>,
    /// It completes what is begun of its chunk: which beginning that is.
    pub completes: Option<u32>,
    /// It was made the write of a whole chunk, of which so many bytes had been written before: its buffer is the engine's own.
    pub joined_bytes: u32,
    /// It has been counted among those that read neighbours or are written alone: once, however often it starts again.
    pub neighbours_counted: bool,
}

impl Piece {
    /// The bytes of a block, by its place in the piece, that are the request's.
    pub fn bytes_in(&self, i: u32) -> (u32, u32) {
        let from = if i == 0 { self.head } else { 0 };
        let to = if i + 1 == self.count { BLOCK_BYTES - self.tail } else { BLOCK_BYTES };
        (from, to)
    }

    /// The bytes of its chunk that are the request's.
    pub(crate) fn bytes_in_chunk(&self) -> (u32, u32) {
        (self.first * BLOCK_BYTES + self.head, (self.first + self.count) * BLOCK_BYTES - self.tail)
    }

    /// The client's bytes. Panics where it has no cover.
    pub(crate) fn payload(&self) -> Buf {
        let buf = self.buf.expect("a write has its buffer");
        buf.slice(self.head, buf.len - self.head - self.tail)
    }

    /// The sectors of a block, by its place in the piece, that land.
    pub fn landing_sectors(&self, i: u32) -> Sectors {
        let first = if i == 0 { self.sectors[0] } else { Sectors::ALL };
        let last = if i + 1 == self.count { self.sectors[1] } else { Sectors::ALL };
        first.and(last).expect("some sector lands of each block")
    }

    /// So many blocks of it, from one by its place in the piece on. Panics where it has no cover.
    pub(crate) fn landing_buf(&self, from: u32, count: u32) -> Buf {
        let buf = self.buf.expect("a landing piece has its buffer");
        buf.slice(from * BLOCK_BYTES, count * BLOCK_BYTES)
    }
}

impl<A: Arena> Engine<A> {
    /// Takes a piece that holds its lock on its way.
    pub(crate) fn start_piece(&mut self, piece: u32) {
        let p = &self.front.pieces[piece];
        self.mark_change(p.kind, p.chunk);
        match self.front.pieces[piece].kind {
            PieceKind::Read => self.read_piece(piece),
            PieceKind::Write => self.fill_piece(piece),
            PieceKind::Zero => self.zero_piece(piece),
            PieceKind::Discard => self.discard_piece(piece),
        }
    }

    /// The piece tries again when something is freed.
    pub(crate) fn block_piece(&mut self, piece: u32) {
        self.front.pieces[piece].stage = None;
        self.front.blocked.push_back(piece);
    }

    /// An I/O of a piece has ended.
    pub(crate) fn piece_io_done(&mut self, piece: u32, result: Result<(), DeviceError>) {
        let p = &mut self.front.pieces[piece];
        if let Err(error) = result {
            p.error.get_or_insert(error);
            p.failed.get_or_insert(error.into());
        }
        p.left -= 1;
        if p.left > 0 {
            return;
        }
        match p.stage.expect("a piece with I/O in flight has a stage") {
            Stage::ReadData | Stage::WriteFill => self.data_arrived(piece),
            Stage::WriteInPlace => self.in_place_done(piece),
            Stage::WriteFresh => self.fresh_done(piece),
            Stage::WriteStream => self.stream_done(piece),
            other => unreachable!("a piece does no I/O of its own in stage {other:?}"),
        }
    }

    /// Gives back the buffers that the engine took for the piece.
    pub(crate) fn drop_piece_buffers(&mut self, piece: &Piece) {
        let own = piece.buf.filter(|_| piece.kind == PieceKind::Zero || piece.joined_bytes > 0);
        for buf in own.into_iter().chain(piece.scratch) {
            self.io.arena.free(buf);
            self.wanted.wake = true;
        }
    }

    /// A buffer for a piece to read so many blocks to, all at once: who waits for one holds none, not even the block that it
    /// was to write. None where the piece is blocked until there is one.
    pub(crate) fn take_scratch(&mut self, piece: u32, blocks: u32) -> Option<Buf> {
        let buf = self.background_buffer(blocks * BLOCK_BYTES);
        if buf.is_none() {
            let p = &mut self.front.pieces[piece];
            let own = p.buf.take_if(|_| p.kind == PieceKind::Zero);
            own.into_iter().for_each(|own| self.io.arena.free(own));
            self.block_piece(piece);
        }
        self.front.pieces[piece].scratch = buf;
        buf
    }

    /// Gives back what a piece has read so far.
    pub(crate) fn drop_scratch(&mut self, piece: u32) {
        let p = &mut self.front.pieces[piece];
        p.fill.clear();
        p.overlays.clear();
        if let Some(buf) = p.scratch.take() {
            self.io.arena.free(buf);
            self.wanted.wake |= !self.front.blocked.is_empty();
        }
    }

    /// A block-sized buffer of the engine's own; when there is none the piece is blocked until there is.
    pub(crate) fn block_buffer(&mut self, piece: u32) -> Option<Buf> {
        let buf = self.background_buffer(BLOCK_BYTES);
        if buf.is_none() {
            self.block_piece(piece);
        }
        buf
    }
}
