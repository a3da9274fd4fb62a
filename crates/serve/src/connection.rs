//! One client: bytes in, requests out; replies in, one gathered send out.
//!
//! ```text
//!   recv ──> rx bytes ──> handshake ──> out_bytes ─┐
//!                  └────> request headers          ├──> one send at a time
//!                  └────> payload ──> arena        │
//!   recv ─────────(large payload)───> arena        │
//!   replies ──> out ───────────────────────────────┘
//! ```

use crate::answer::{Reply, read_chunks};
use crate::requests::{ConnId, Pending};
use bimetal_driver::Memory;
use bimetal_driver::memory::RealArena;
use bimetal_driver::ring::{ARENA, MAX_PARTS, Mem};
use bimetal_engine::action::RequestError;
use bimetal_engine::arena::{Arena as _, Buf};
use bimetal_engine::extents::Extents;
use bimetal_nbd::{ExportIndex, Handshake, NbdErrno, Request, Terms, Transmission};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Bytes received at once: 32 writes of 4 KiB with their headers, twice.
pub(crate) const RX_BYTES: u32 = 256 << 10;
/// Bytes of reply headers and of payload small enough to be copied, per send.
pub(crate) const TX_BYTES: u32 = 128 << 10;
/// Payload up to this is copied behind its reply header: one contiguous piece costs the kernel less than a part of its own.
const COPY_BYTES: u32 = 1 << 10;
/// What is left of a payload is received straight into its buffer from here on.
const DIRECT_BYTES: u32 = 16 << 10;
/// A write from here on makes the next receive short, so that its payload is not received into the wrong place.
pub(crate) const LARGE_WRITE_BYTES: u32 = 64 << 10;
/// That short receive.
const SHORT_RX_BYTES: u32 = 512;
/// Requests of one client in flight or waiting to be sent, at most.
pub(crate) const MAX_CLIENT_REQUESTS: u32 = 256;
/// Bytes of buffers of one client at most, unless it is a single request.
pub(crate) const MAX_CLIENT_BYTES: u64 = 16 << 20;

/// Bytes of heads that wait to be sent to one client, beyond which it is not answered further: all its requests
/// as reads in the largest number of chunks.
pub(crate) const MAX_CLIENT_HEAD_BYTES: usize = 128 << 10;

/// Questions of one client (BLOCK_STATUS, CACHE) that are answered in one turn: each may take the better part of a
/// millisecond, and others wait.
pub(crate) const MAX_QUESTIONS: u32 = 8;

/// Where a connection stands.
pub(crate) enum Phase {
    /// Negotiation.
    Handshake(Handshake),
    /// Requests.
    Requests(Transmission),
}

/// A write whose payload is coming in.
pub(crate) struct Incoming {
    pub(crate) request: Request,
    /// The block cover.
    pub(crate) buf: Buf,
    /// What is still to be received.
    pub(crate) rest: Buf,
    pub(crate) since: Instant,
    /// When the last bytes came.
    pub(crate) progress: Instant,
}

impl Incoming {
    /// What it counts for among the large writes that are coming in.
    pub(crate) fn arriving_bytes(&self) -> u64 {
        if self.request.length >= LARGE_WRITE_BYTES { u64::from(self.buf.len) } else { 0 }
    }
}

/// A client.
pub(crate) struct Connection {
    pub(crate) id: ConnId,
    pub(crate) fd: OwnedFd,
    pub(crate) phase: Phase,
    /// What the handshake agreed on.
    pub(crate) terms: Terms,
    /// When it was accepted.
    accepted: Instant,
    /// When its last bytes came, and whether a request was among them ever.
    heard: Instant,
    pub(crate) has_asked: bool,
    /// Since when part of a request's header has been here without the rest.
    pub(crate) half_since: Option<Instant>,
    /// Where its memory begins in the sockets' region.
    memory_start: u64,
    rx_start: u32,
    rx_end: u32,
    /// The next receive goes to the short window.
    pub(crate) expect_large: bool,
    pub(crate) receiving: bool,
    receiving_direct: bool,
    pub(crate) incoming: Option<Incoming>,
    /// Payload of a refused write, to be dropped.
    pub(crate) skip: u64,
    pub(crate) out_bytes: Vec<u8>,
    pub(crate) out: VecDeque<Reply>,
    /// Bytes of the heads in `out`.
    pub(crate) head_bytes: usize,
    /// Questions answered since the last send.
    pub(crate) questions: u32,
    /// Covers whose payload the send in flight names.
    sending_covers: Vec<Buf>,
    sending_requests: u32,
    /// Bytes of the send in flight.
    pub(crate) sending_bytes: u64,
    pub(crate) sending: Option<Instant>,
    /// Requests not yet answered on the wire.
    pub(crate) requests: u32,
    /// Bytes of their covers.
    pub(crate) bytes: u64,
    /// Reads no more; closes when everything is answered.
    pub(crate) draining: bool,
    /// The socket failed: nothing can be sent any more.
    pub(crate) dead: bool,
    /// In the server's queue of those that wait for room.
    pub(crate) blocked: bool,
    /// It chose the volume of another thread: it goes there when it has its last reply.
    pub(crate) leaving: Option<ExportIndex>,
    /// A device of the machine is at its other end. It takes no client's place, and keeps its own.
    pub(crate) machine: bool,
    /// It said that it goes.
    pub(crate) goodbye: bool,
}

impl Connection {
    /// Bytes of the sockets' region that one connection needs.
    pub(crate) const MEMORY_BYTES: u64 = (RX_BYTES + TX_BYTES) as u64;

    pub(crate) fn new(id: ConnId, fd: OwnedFd, phase: Phase, terms: Terms, greeting: Vec<u8>) -> Self {
        Connection {
            id,
            fd,
            phase,
            terms,
            accepted: Instant::now(),
            heard: Instant::now(),
            has_asked: false,
            half_since: None,
            memory_start: id.place as u64 * Self::MEMORY_BYTES,
            rx_start: 0,
            rx_end: 0,
            expect_large: false,
            receiving: false,
            receiving_direct: false,
            incoming: None,
            skip: 0,
            out_bytes: greeting,
            out: VecDeque::new(),
            head_bytes: 0,
            questions: 0,
            sending_covers: Vec::new(),
            sending_requests: 0,
            sending_bytes: 0,
            sending: None,
            requests: 0,
            bytes: 0,
            draining: false,
            dead: false,
            blocked: false,
            leaving: None,
            machine: false,
            goodbye: false,
        }
    }

    fn rx(&self, from: u32, len: u32) -> Buf {
        Buf { start: self.memory_start + u64::from(from), len }
    }

    fn tx(&self, from: u32, len: u32) -> Buf {
        Buf { start: self.memory_start + u64::from(RX_BYTES) + u64::from(from), len }
    }

    /// The bytes received and not yet used.
    pub(crate) fn input<'m>(&self, memory: &'m Memory) -> &'m [u8] {
        memory.bytes(self.rx(self.rx_start, self.rx_end - self.rx_start))
    }

    /// Puts bytes that another thread received where this one looks for them.
    pub(crate) fn take_input(&mut self, bytes: &[u8], memory: &mut Memory) {
        memory.bytes_mut(self.rx(0, bytes.len() as u32)).copy_from_slice(bytes);
        self.rx_end = bytes.len() as u32;
    }

    /// Marks received bytes as used.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.rx_start += bytes as u32;
        if self.rx_start == self.rx_end {
            (self.rx_start, self.rx_end) = (0, 0);
        }
    }

    /// Moves received bytes to where they belong: to nowhere, or into the write that waits for them.
    pub(crate) fn take_payload(&mut self, memory: &Memory, arena: &mut RealArena) {
        let have = u64::from(self.rx_end - self.rx_start);
        if self.skip > 0 {
            let dropped = have.min(self.skip);
            self.skip -= dropped;
            self.consume(dropped as usize);
        } else if let Some(incoming) = &mut self.incoming {
            let taken = have.min(u64::from(incoming.rest.len)) as u32;
            let target = incoming.rest.slice(0, taken);
            incoming.rest = incoming.rest.slice(taken, incoming.rest.len - taken);
            let source = self.rx(self.rx_start, taken);
            arena.payload_mut(target).copy_from_slice(memory.bytes(source));
            self.consume(taken as usize);
        }
    }

    /// Where the next bytes are to be received, and whether none are expected at this moment.
    /// Only when everything received has been looked at.
    pub(crate) fn receive_target(&mut self, memory: &mut Memory, sockets: usize) -> Mem {
        if let Some(incoming) = &self.incoming
            && (incoming.rest.len >= DIRECT_BYTES || self.expect_large)
            && incoming.rest.len > 0
            && self.rx_start == self.rx_end
        {
            self.receiving_direct = true;
            return Mem { region: ARENA, buf: incoming.rest };
        }
        self.receiving_direct = false;
        if self.rx_start > 0 {
            let rest = self.rx_end - self.rx_start;
            let whole = self.rx(0, self.rx_end);
            memory.bytes_mut(whole).copy_within(self.rx_start as usize.., 0);
            (self.rx_start, self.rx_end) = (0, rest);
        }
        let window = if self.expect_large { SHORT_RX_BYTES } else { RX_BYTES };
        let room = window.saturating_sub(self.rx_end).max(1).min(RX_BYTES - self.rx_end);
        Mem { region: sockets, buf: self.rx(self.rx_end, room) }
    }

    /// `bytes` more have been received into the last target.
    pub(crate) fn received(&mut self, bytes: u32) {
        self.heard = Instant::now();
        match &mut self.incoming {
            Some(incoming) if self.receiving_direct => {
                incoming.rest = incoming.rest.slice(bytes, incoming.rest.len - bytes);
                incoming.progress = Instant::now();
            }
            _ => self.rx_end += bytes,
        }
    }

    fn queue(&mut self, reply: Reply) {
        self.head_bytes += reply.head.len();
        self.out.push_back(reply);
    }

    /// Queues the answer to a request; returns the buffer that nothing needs any more. `holes` is what is
    /// known of the range of a read that is answered with chunks.
    pub(crate) fn reply(
        &mut self,
        pending: &Pending,
        result: Result<(), RequestError>,
        holes: &Extents,
    ) -> Option<Buf> {
        let errno = result.err().map(|error| match error {
            RequestError::Io => NbdErrno::Io,
            RequestError::NoSpace => NbdErrno::NoSpace,
            RequestError::ReadOnly => NbdErrno::NotPermitted,
            RequestError::Invalid => NbdErrno::Invalid,
            RequestError::ShuttingDown => NbdErrno::Shutdown,
        });
        let (request, cover) = (&pending.request, pending.buf);
        let kept = match pending.read.filter(|_| errno.is_none()) {
            Some(payload) if request.wants_structured(&self.terms) => {
                let (chunks, kept) = read_chunks(request, payload, cover, holes);
                chunks.into_iter().for_each(|chunk| self.queue(chunk));
                kept
            }
            Some(payload) => {
                self.queue(Reply::simple_read(request, payload, cover));
                true
            }
            None => {
                self.queue(Reply::plain(request, &self.terms, errno));
                false
            }
        };
        if kept {
            return None;
        }
        self.bytes -= cover.map_or(0, |cover| u64::from(cover.len));
        cover
    }

    /// Queues the answer to a request that the engine never sees.
    pub(crate) fn answer(&mut self, reply: Reply) {
        self.requests += 1;
        self.queue(reply);
    }

    /// Refuses a request.
    pub(crate) fn refuse(&mut self, request: &Request, errno: NbdErrno) {
        let reply = Reply::plain(request, &self.terms, Some(errno));
        self.answer(reply);
    }

    /// Whether there is something to send and no send in flight.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.sending.is_none() && !self.dead && !(self.out.is_empty() && self.out_bytes.is_empty())
    }

    /// Gathers all that is ready into parts of one send.
    pub(crate) fn gather(
        &mut self,
        memory: &mut Memory,
        arena: &mut RealArena,
        sockets: usize,
        parts: &mut Vec<Mem>,
    ) {
        self.questions = 0;
        let mut used = 0u32;
        // The piece of the send buffer that is being filled: its start.
        let mut piece = 0u32;
        if !self.out_bytes.is_empty() {
            let take = self.out_bytes.len().min(TX_BYTES as usize / 2);
            memory.bytes_mut(self.tx(0, take as u32)).copy_from_slice(&self.out_bytes[..take]);
            self.out_bytes.drain(..take);
            used = take as u32;
            if !self.out_bytes.is_empty() {
                // Replies to requests come after all of the handshake.
                parts.push(Mem { region: sockets, buf: self.tx(0, used) });
                return;
            }
        }
        while let Some(reply) = self.out.front() {
            let copied =
                reply.payload.map_or(0, |payload| if payload.len <= COPY_BYTES { payload.len } else { 0 });
            let need = reply.head.len() as u32 + copied;
            if used + need > TX_BYTES || parts.len() + 3 > MAX_PARTS {
                break;
            }
            let Some(reply) = self.out.pop_front() else { break };
            let (head, payload_target) = memory.bytes_mut(self.tx(used, need)).split_at_mut(reply.head.len());
            head.copy_from_slice(&reply.head);
            used += need;
            self.head_bytes -= reply.head.len();
            self.sending_requests += u32::from(reply.last);
            let Some(payload) = reply.payload else { continue };
            if copied > 0 {
                payload_target.copy_from_slice(arena.payload(payload));
                match reply.cover {
                    Some(cover) if reply.alone => {
                        self.bytes -= u64::from(cover.len);
                        arena.free(cover);
                    }
                    // Other chunks of the reply may still be on their way out of it.
                    cover => self.sending_covers.extend(cover),
                }
            } else {
                parts.push(Mem { region: sockets, buf: self.tx(piece, used - piece) });
                parts.push(Mem { region: ARENA, buf: payload });
                piece = used;
                self.sending_covers.extend(reply.cover);
            }
        }
        if used > piece {
            parts.push(Mem { region: sockets, buf: self.tx(piece, used - piece) });
        }
    }

    /// The send in flight has ended.
    pub(crate) fn sent(&mut self, arena: &mut RealArena) {
        self.sending = None;
        self.requests -= std::mem::take(&mut self.sending_requests);
        for cover in self.sending_covers.drain(..) {
            self.bytes -= u64::from(cover.len);
            arena.free(cover);
        }
    }

    /// Frees what will never be sent or received. Only when no operation is in flight.
    pub(crate) fn release(&mut self, arena: &mut RealArena) {
        for cover in self.out.drain(..).filter_map(|reply| reply.cover) {
            arena.free(cover);
        }
        if let Some(incoming) = self.incoming.take() {
            arena.free(incoming.buf);
        }
    }

    /// Whether it can be taken down now.
    pub(crate) fn is_over(&self) -> bool {
        let idle = !self.receiving && self.sending.is_none();
        let answered = self.requests == 0 && self.out.is_empty() && self.out_bytes.is_empty();
        idle && (self.dead || (self.draining && answered))
    }

    /// A write whose payload is not whole: its peer keeps a buffer. One that is whole waits for us.
    fn arriving(&self) -> Option<&Incoming> {
        self.incoming.as_ref().filter(|incoming| incoming.rest.len > 0)
    }

    /// Since when its peer has kept a buffer waiting, if it does.
    fn waiting_since(&self) -> Option<Instant> {
        [self.sending, self.arriving().map(|incoming| incoming.since)].into_iter().flatten().min()
    }

    /// Whether its peer keeps buffers from others: nothing more of a write has come for `stalled`, or it has been
    /// coming, or replies going, for longer than `patience`.
    pub(crate) fn hoards(&self, stalled: Duration, patience: Duration) -> bool {
        // The kernel reads what it asked for, and sends what it began.
        !self.machine && self.hoards_buffers(stalled, patience)
    }

    fn hoards_buffers(&self, stalled: Duration, patience: Duration) -> bool {
        self.arriving().is_some_and(|incoming| incoming.progress.elapsed() > stalled)
            || self.waiting_since().is_some_and(|since| since.elapsed() > patience)
    }

    /// Whether it negotiates.
    pub(crate) fn is_shaking_hands(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// For how long it has asked for nothing, with nothing under way; none while something is.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        let quiet = self.requests == 0 && self.incoming.is_none() && self.half_since.is_none();
        let told = self.sending.is_none() && self.out.is_empty() && self.out_bytes.is_empty();
        let leaves = self.leaving.is_some() || self.machine || self.dead || self.draining || self.blocked;
        (quiet && told && !leaves && !self.is_shaking_hands()).then(|| self.heard.elapsed())
    }

    /// Whether it keeps its place from others without using it: negotiating for longer than `handshake`, or
    /// for longer than `request` half way through a request, or not reading its replies. A client that asks
    /// for nothing is none of these.
    pub(crate) fn squats(&self, handshake: Duration, request: Duration) -> bool {
        match self.phase {
            Phase::Requests(_) if self.machine => false,
            Phase::Handshake(_) => self.accepted.elapsed() > handshake,
            Phase::Requests(_) => {
                let since = [self.half_since, self.waiting_since()].into_iter().flatten().min();
                since.is_some_and(|since| since.elapsed() > request)
            }
        }
    }
}
