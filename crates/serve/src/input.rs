//! From received bytes to requests in the engine.

use crate::answer::Reply;
use crate::connection::{Connection, Incoming, LARGE_WRITE_BYTES, MAX_QUESTIONS, Phase};
use crate::requests::Pending;
use crate::served::Served;
use crate::server::Server;
use bimetal_engine::action::{Request as EngineRequest, RequestKind};
use bimetal_engine::arena::{Arena as _, Buf, Pool};
use bimetal_nbd::limits::{MAX_PAYLOAD_BYTES, MAX_STATUS_EXTENTS};
use bimetal_nbd::{Command, HandshakeStep, NbdErrno, Parse, Request, Transmission};
use bimetal_units::BLOCK_BYTES;
use std::time::Instant;

/// Writes larger than this are few, and many would fill the pool.
const HUGE_WRITE_BYTES: u32 = 1 << 20;
/// Buffers of huge writes that are coming in, and of large ones, take this much at most: whoever announces payload and
/// goes silent must leave room for everybody else's requests. Of a pool of 64 MiB, in which one of the largest has room.
const MAX_HUGE_ARRIVING_BYTES: u64 = 34 << 20;
/// See [`MAX_HUGE_ARRIVING_BYTES`].
const MAX_ARRIVING_BYTES: u64 = 48 << 20;
const _: () = assert!(MAX_PAYLOAD_BYTES as u64 + 2 * BLOCK_BYTES as u64 <= MAX_HUGE_ARRIVING_BYTES);

/// What to do after one step through the input.
enum Step {
    /// There may be more.
    Again,
    /// More bytes are needed.
    Starved,
    /// Room is needed: for a request, or (true) for its buffer.
    Blocked(bool),
}

impl<V: Served> Server<V> {
    /// Goes through what a connection has received as far as that goes now.
    pub(crate) fn advance(&mut self, place: usize) {
        loop {
            let Some(mut conn) = self.conns[place].take() else { return };
            let step = if conn.dead || conn.draining { Step::Starved } else { self.step(&mut conn) };
            let conn = self.conns[place].insert(conn);
            match step {
                Step::Again => continue,
                Step::Starved => return,
                Step::Blocked(buffer) => {
                    self.buffers_short |= buffer;
                    if !conn.blocked {
                        conn.blocked = true;
                        self.blocked.push_back(conn.id);
                    }
                    return;
                }
            }
        }
    }

    fn step(&mut self, conn: &mut Connection) -> Step {
        if conn.blocked || conn.leaving.is_some() {
            return Step::Starved;
        }
        if conn.skip > 0 || conn.incoming.is_some() {
            return self.payload(conn);
        }
        match &mut conn.phase {
            Phase::Handshake(_) => self.negotiate(conn),
            Phase::Requests(_) => self.next_request(conn),
        }
    }

    /// Moves payload; a write that is complete goes to the engine.
    fn payload(&mut self, conn: &mut Connection) -> Step {
        self.engine.with_arena(|arena| conn.take_payload(&self.memory, arena));
        match &conn.incoming {
            Some(incoming) if incoming.rest.len > 0 => Step::Starved,
            Some(_) if !self.engine.has_room() || !self.requests.has_room() => Step::Blocked(false),
            Some(incoming) => {
                let (request, buf) = (incoming.request, incoming.buf);
                self.arriving_bytes -= incoming.arriving_bytes();
                conn.incoming = None;
                self.hand_over(conn, request, RequestKind::Write { fua: request.fua }, Some(buf));
                Step::Again
            }
            None if conn.skip > 0 => Step::Starved,
            None => Step::Again,
        }
    }

    fn negotiate(&mut self, conn: &mut Connection) -> Step {
        let input = conn.input(&self.memory);
        let Phase::Handshake(handshake) = &mut conn.phase else { return Step::Again };
        match handshake.on_bytes(input, &mut conn.out_bytes) {
            Err(_) => conn.draining = true,
            Ok((used, step)) => {
                conn.consume(used);
                match step {
                    HandshakeStep::NeedMore => {}
                    HandshakeStep::Closed => conn.draining = true,
                    HandshakeStep::Transmission { export, terms }
                        if export.get() != self.tenant.place() && !conn.machine =>
                    {
                        conn.terms = terms;
                        conn.leaving = Some(export);
                    }
                    HandshakeStep::Transmission { terms, .. } => {
                        conn.terms = terms;
                        conn.phase = Phase::Requests(Transmission::new());
                        return Step::Again;
                    }
                }
            }
        }
        Step::Starved
    }

    fn next_request(&mut self, conn: &mut Connection) -> Step {
        let input = conn.input(&self.memory);
        if input.is_empty() {
            return Step::Starved;
        }
        let Phase::Requests(parser) = &mut conn.phase else { return Step::Again };
        // Looked at, not yet used up: a request that must wait for room is parsed again when there is some.
        let (used, request) = match parser.next(input) {
            Ok(Parse::NeedMore) => {
                conn.half_since.get_or_insert_with(Instant::now);
                return Step::Starved;
            }
            Ok(Parse::Request { consumed, request }) => (consumed, request),
            Err(_) => {
                conn.draining = true;
                return Step::Starved;
            }
        };
        conn.half_since = None;
        conn.has_asked = true;
        if request.command == Command::Disconnect {
            (conn.draining, conn.goodbye) = (true, true);
            return Step::Starved;
        }
        let is_question = matches!(request.command, Command::BlockStatus | Command::Cache);
        if !self.has_room_for(conn) || is_question && conn.questions >= MAX_QUESTIONS {
            return Step::Blocked(false);
        }
        if let Err(errno) = request.validate(self.export(), &conn.terms) {
            conn.consume(used);
            conn.skip = u64::from(request.payload_bytes());
            conn.refuse(&request, errno);
            return Step::Again;
        }
        let (offset, length) = (request.offset, u64::from(request.length));
        let kind = match request.command {
            Command::Read => RequestKind::Read,
            Command::Write => RequestKind::Write { fua: request.fua },
            Command::Flush => RequestKind::Flush,
            Command::Trim => RequestKind::Discard { fua: request.fua },
            // NO_HOLE asks that later writes find room. They always do: the volume promises no more than its
            // tiers hold, so a hole keeps its place in the sum and costs a record instead of a range of zeros.
            Command::WriteZeroes => RequestKind::WriteZeroes { fua: request.fua },
            Command::Cache => {
                conn.consume(used);
                conn.questions += 1;
                self.engine.prefer_fast(self.now(), offset, length);
                conn.answer(Reply::plain(&request, &conn.terms, None));
                return Step::Again;
            }
            Command::BlockStatus => {
                conn.consume(used);
                conn.questions += 1;
                let extents = self.engine.extents(offset, length, MAX_STATUS_EXTENTS);
                conn.answer(Reply::status(&request, &conn.terms, &extents));
                return Step::Again;
            }
            Command::Disconnect | Command::Unknown(_) => {
                conn.consume(used);
                conn.refuse(&request, NbdErrno::Invalid);
                return Step::Again;
            }
        };
        self.begin(conn, used, request, kind)
    }

    /// Gives a valid request its buffer and, unless its payload is still to come, hands it over.
    fn begin(&mut self, conn: &mut Connection, used: usize, request: Request, kind: RequestKind) -> Step {
        let is_write = matches!(kind, RequestKind::Write { .. });
        if !is_write && kind != RequestKind::Read {
            conn.consume(used);
            self.hand_over(conn, request, kind, None);
            return Step::Again;
        }
        if self.buffers_short {
            return Step::Blocked(true);
        }
        let cover = cover_bytes(request.offset, request.length);
        let most = match request.length {
            _ if !is_write => u64::MAX,
            small if small < LARGE_WRITE_BYTES => u64::MAX,
            large if large <= HUGE_WRITE_BYTES => MAX_ARRIVING_BYTES,
            _ => MAX_HUGE_ARRIVING_BYTES,
        };
        if self.arriving_bytes + u64::from(cover) > most {
            self.arrivals_short = true;
            return Step::Blocked(false);
        }
        let Some(buf) = self.engine.with_arena(|arena| arena.alloc(Pool::Client, cover)) else {
            return Step::Blocked(true);
        };
        conn.consume(used);
        conn.bytes += u64::from(cover);
        conn.expect_large = is_write && request.length >= LARGE_WRITE_BYTES;
        if is_write {
            let rest = payload_of(buf, &request);
            let now = Instant::now();
            let incoming = Incoming { request, buf, rest, since: now, progress: now };
            self.arriving_bytes += incoming.arriving_bytes();
            conn.incoming = Some(incoming);
        } else {
            self.hand_over(conn, request, kind, Some(buf));
        }
        Step::Again
    }

    fn hand_over(&mut self, conn: &mut Connection, request: Request, kind: RequestKind, buf: Option<Buf>) {
        let read = buf.filter(|_| kind == RequestKind::Read).map(|buf| payload_of(buf, &request));
        let now = self.now();
        let id = self.requests.insert(Pending { conn: conn.id, request, buf, read, began: now });
        conn.requests += 1;
        let (offset, len) = (request.offset, u64::from(request.length));
        self.note_for_plans(now, kind, offset, len);
        self.engine.on_request(now, EngineRequest { id, kind, offset, len, buf });
    }
}

/// Bytes of the whole blocks that a range touches.
pub(crate) fn cover_bytes(offset: u64, length: u32) -> u32 {
    let block = u64::from(BLOCK_BYTES);
    let end = (offset + u64::from(length)).next_multiple_of(block);
    // At most the largest payload and two blocks.
    (end - offset / block * block) as u32
}

/// The payload in the cover of a request.
pub(crate) fn payload_of(cover: Buf, request: &Request) -> Buf {
    cover.slice((request.offset % u64::from(BLOCK_BYTES)) as u32, request.length)
}
