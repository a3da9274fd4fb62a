//! Requests, cut into pieces at chunk borders.
//!
//! A request holds a cursor; pieces are made as room allows, so that a discard of terabytes is as
//! bounded as a read of one sector.

use crate::api::action::{Request, RequestError, RequestId, RequestKind};
use crate::api::coverage::Stage;
use crate::base::arena::{Arena, Buf};
use crate::base::bugs::{Bug, planted};
use crate::engine::Engine;
use crate::path::piece::{Piece, PieceKind};
use bimetal_units::*;
use serde::{Deserialize, Serialize};

/// Pieces in flight at most: as many as requests, most of which are within one chunk.
pub const MAX_PIECES: usize = 1024;
/// Pieces of one request in flight at most, so that one large request does not starve the others.
const PIECES_PER_REQUEST: u32 = 64;
/// Chunks that one call looks at, so that a discard of a blank volume stays in short steps.
const CHUNKS_PER_CALL: u32 = 4096;

/// A request in flight.
#[derive(Serialize, Deserialize)]
pub struct InRequest {
    id: RequestId,
    kind: RequestKind,
    start: u64,
    cursor: u64,
    end: u64,
    buf: Option<Buf>,
    in_flight: u32,
    error: Option<RequestError>,
    /// Who had a part in what has been done of it.
    pub served: ServedBy,
    /// Some piece is durable only after a commit.
    pub needs_commit: bool,
    /// Some piece is found again after a commit only, even where nothing but the process ends.
    unshown: bool,
    /// How long the sequential stream is that it ends, itself included, bytes.
    pub stream_bytes: u64,
    /// That is long enough to count as one.
    is_stream: bool,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl InRequest {
    /// Whether it is part of a sequential stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// How long it is, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it begins where another one ended.
    pub(crate) fn goes_on(&self) -> bool {
        self.stream_bytes > self.bytes()
    }

    fn fua(&self) -> bool {
        match self.kind {
            RequestKind::Write { fua } | RequestKind::Discard { fua } | RequestKind::WriteZeroes { fua } => {
                fua
            }
            RequestKind::Read | RequestKind::Flush => false,
        }
    }
}

impl<A: Arena> Engine<A> {
    pub(crate) fn admit(&mut self, request: Request) {
        let Request { id, kind, offset, len, buf } = request;
        let mut state = InRequest {
            id,
            kind,
            start: offset,
            cursor: offset,
            end: offset + len,
            buf,
            in_flight: 0,
            error: None,
            served: ServedBy::default(),
            needs_commit: false,
            unshown: false,
            stream_bytes: 0,
            is_stream: false,
        };
        if let RequestKind::Discard { .. } = kind {
            // A discard leaves partial blocks alone.
            state.cursor = offset.next_multiple_of(BLOCK);
            state.end = (state.end / BLOCK * BLOCK).max(state.cursor);
        }
        match kind {
            RequestKind::Write { .. } => {
                state.stream_bytes = self.front.streams[1].observe(offset, len, self.io.now);
                self.commit.count_write();
            }
            RequestKind::Read => state.stream_bytes = self.front.streams[0].observe(offset, len, self.io.now),
            _ => {}
        }
        state.is_stream = state.stream_bytes >= self.tuning.economy.stream_bytes;
        let request = self.front.requests.insert(state);
        if kind == RequestKind::Flush {
            self.join_commit(request);
        } else {
            self.front.request_queue.push_back(request);
        }
    }

    /// Makes pieces of waiting requests, and lets blocked pieces try again.
    pub(crate) fn pump_requests(&mut self) {
        let mut granted = std::mem::take(&mut self.front.granted);
        granted.drain(..).for_each(|piece| self.start_piece(piece));
        if self.front.granted.is_empty() {
            self.front.granted = granted;
        }
        if std::mem::take(&mut self.wanted.wake) {
            for _ in 0..self.front.blocked.len() {
                let Some(piece) = self.front.blocked.pop_front() else { break };
                self.start_piece(piece);
            }
        }
        let mut chunks = CHUNKS_PER_CALL;
        for _ in 0..self.front.request_queue.len() {
            let Some(request) = self.front.request_queue.pop_front() else { break };
            // Pieces may end while they are being made; the request must not end before it is cut.
            self.front.requests[request].in_flight += 1;
            let cut = self.cut(request, &mut chunks);
            self.front.requests[request].in_flight -= 1;
            let room = self.front.pieces.has_room();
            if cut {
                self.finish_request_if_done(request);
            } else if room {
                self.front.request_queue.push_back(request);
            } else {
                // Its turn comes first when there is room again: piece by piece of one request after the other, nothing
                // that was asked for in sequence would reach the devices so.
                self.front.request_queue.push_front(request);
            }
            if !room || chunks == 0 {
                break;
            }
        }
        // Blank chunks make no pieces, so no completion would bring the engine back here.
        self.wanted.cut = chunks == 0 && !self.front.request_queue.is_empty();
    }

    /// Cuts pieces off a request; true when it has been cut to its end.
    fn cut(&mut self, request: u32, chunks: &mut u32) -> bool {
        while self.front.requests[request].cursor < self.front.requests[request].end {
            let r = &self.front.requests[request];
            if r.error.is_some() {
                break;
            }
            if *chunks == 0 || !self.front.pieces.has_room() || r.in_flight >= PIECES_PER_REQUEST {
                return false;
            }
            *chunks -= 1;
            let chunk_bytes = u64::from(self.state.geo.chunk_bytes);
            let (from, kind) = (r.cursor, r.kind);
            let to = r.end.min((from / chunk_bytes + 1) * chunk_bytes);
            let (to, kind) = slice(kind, from, to);
            self.front.requests[request].cursor = to;
            let chunk = Chunk((from / chunk_bytes) as u32);
            let idle =
                kind == PieceKind::Discard && self.state.map.is_blank(chunk) && !self.front.locks.any(chunk);
            if idle {
                // It reads zeros already, perhaps by a discard that is not durable yet.
                self.front.requests[request].needs_commit |= !planted(Bug::BlankFuaAnsweredEarly);
            } else {
                self.spawn(request, kind, chunk, from, to);
            }
        }
        true
    }

    fn spawn(&mut self, request: u32, kind: PieceKind, chunk: Chunk, from: u64, to: u64) {
        let in_chunk = (from % u64::from(self.state.geo.chunk_bytes)) as u32;
        let (first, head) = (in_chunk / BLOCK_BYTES, in_chunk % BLOCK_BYTES);
        let bytes = (to - from) as u32;
        let count = (head + bytes).div_ceil(BLOCK_BYTES);
        let tail = count * BLOCK_BYTES - head - bytes;
        let r = &mut self.front.requests[request];
        r.in_flight += 1;
        let cover = r.start / BLOCK * BLOCK;
        let buf = match kind {
            PieceKind::Read | PieceKind::Write => {
                let buf = r.buf.expect("a read or write comes with its buffer");
                Some(buf.slice((from / BLOCK * BLOCK - cover) as u32, count * BLOCK_BYTES))
            }
            PieceKind::Discard | PieceKind::Zero => None,
        };
        let fua = r.fua();
        let writes = matches!(kind, PieceKind::Write | PieceKind::Zero);
        let may_take_slot = writes && self.state.map.home(chunk).is_none();
        self.front.slot_takers += u32::from(may_take_slot);
        let piece = Piece {
            request,
            kind,
            chunk,
            first,
            count,
            head,
            tail,
            buf,
            fua,
            may_take_slot,
            ..Piece::default()
        };
        let piece = self.front.pieces.insert(piece);
        self.note_begun(piece);
        if self.front.locks.acquire(chunk, piece, first, count, kind == PieceKind::Read) {
            self.start_piece(piece);
        }
    }

    /// A piece has ended: its blocks are free for the next.
    pub(crate) fn finish_piece(&mut self, piece: u32, result: Result<(), RequestError>) {
        let done = self.front.pieces.remove(piece);
        self.front.slot_takers -= u32::from(done.may_take_slot);
        self.drop_piece_buffers(&done);
        if let Some(begun) = done.begins {
            self.begun_ended(done.chunk, begun, result.is_ok());
        }
        let request = &mut self.front.requests[done.request];
        request.in_flight -= 1;
        request.needs_commit |= done.fua && done.needs_commit;
        request.unshown |= done.unshown;
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        self.front.locks.release(done.chunk, piece, &mut self.front.granted);
        self.finish_request_if_done(done.request);
    }

    pub(crate) fn finish_request_if_done(&mut self, request: u32) {
        let r = &self.front.requests[request];
        if r.in_flight > 0 || r.error.is_none() && r.cursor < r.end {
            return;
        }
        let waits = r.fua() && r.needs_commit || self.front.outlives_kills && r.unshown;
        if r.error.is_none() && waits {
            self.join_commit(request);
        } else {
            self.answer(request, r.error.map_or(Ok(()), Err));
        }
    }

    /// Answers a request and forgets it.
    pub(crate) fn answer(&mut self, request: u32, result: Result<(), RequestError>) {
        let r = &self.front.requests[request];
        let queued = r.cursor < r.end && r.kind != RequestKind::Flush;
        if queued {
            // It ended early by an error while still being cut.
            self.front.request_queue.retain(|q| *q != request);
        }
        let r = self.front.requests.remove(request);
        if r.kind == RequestKind::Flush {
            self.told.stats.client_flushes += 1;
        }
        self.reply(r.id, result, r.served);
    }

    /// Pieces that wait for space or for a flush that will not come any more fail.
    pub(crate) fn fail_waiting_writes(&mut self) {
        self.wanted.wake = true;
        self.fail_log_jobs();
    }

    /// Whether a piece may still write.
    pub(crate) fn refuse_if_read_only(&mut self, piece: u32) -> bool {
        if self.life.is_read_only() {
            self.front.pieces[piece].stage = None;
            self.finish_piece(piece, Err(self.life.failed_with(RequestError::ReadOnly)));
        }
        self.life.is_read_only()
    }

    pub(crate) fn set_stage(&mut self, piece: u32, stage: Stage) {
        self.front.pieces[piece].stage = Some(stage);
    }
}

/// Where the piece that begins at `from` ends, and its kind. Zeroing splits off partial blocks,
/// which are written, from whole ones, which are discarded.
fn slice(kind: RequestKind, from: u64, to: u64) -> (u64, PieceKind) {
    match kind {
        RequestKind::Read | RequestKind::Flush => (to, PieceKind::Read),
        RequestKind::Write { .. } => (to, PieceKind::Write),
        RequestKind::Discard { .. } => (to, PieceKind::Discard),
        RequestKind::WriteZeroes { .. } => {
            let whole_end = to / BLOCK * BLOCK;
            if from.is_multiple_of(BLOCK) && whole_end > from {
                (whole_end, PieceKind::Discard)
            } else {
                (to.min((from / BLOCK + 1) * BLOCK), PieceKind::Zero)
            }
        }
    }
}
