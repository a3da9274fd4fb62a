//! A session with an export, sans-I/O: operations in, requests to send out; replies in, answers out. It owns no socket, no
//! clock and no payload, and outlives its connections: when one breaks, all are closed, and what had been promised or
//! asked is made good on the next.
//!
//! ```text
//!          connected                 is it the same?         write the journal again
//!   Away ─────────────> Comparing ───────────────> Rewriting ──────────────────────> Up
//!    ^                      │                         │                              │ ^
//!    └── Closing <──────────┴──── a connection breaks ┴──────────────────────────────┘ │ a flush failed:
//!        (until the kernel has let go of the buffers)              Draining ───────────┘ all in flight ends,
//!                                                                                       then Comparing, as after a break
//! ```
//! After a pause in its use there is Looking beside Up: whether it still is the same comes first, as in Comparing, and nothing is
//! written again.
//!
//! What keeps data safe:
//! - **What is answered and not flushed is in the journal**, cut by what is newer. A server that restarts has lost it perhaps:
//!   it is written again, and that is answered, before anything else is sent. So a break is invisible but for time.
//! - **A flush covers what had been answered when it was sent**, and takes no more than that out of the journal.
//! - **The first flush is always sent**: what a process wrote that is dead may be in the server's memory only.
//! - **Each sending of a request has a name of its own**, so that a late answer to an earlier one is none to this.
//! - **A flush that failed is told**, and the journal is written again before the next one is sent.
//! - **A flush never fails for the time it takes.** Reads, writes and trims do, after the patience of the volume, and sooner
//!   where the export has been away for as long as that: a flush that
//!   waits loses nothing, as the journal has what it is to cover; one that failed would end the volume. Before there is a seal,
//!   nothing has been promised to anybody yet, and flushes do, too: who opens a volume is not to wait for ever.
//! - **Another export is never written to**: its size and its superblocks are compared before the journal goes there. While it
//!   is used, they are compared each second; after a pause, before anything else is asked.

mod breaks;
mod flushes;
mod look;
mod terms;

pub use terms::{Agreed, Ask, Doubt, Judge, News, Outbox, Part, Payload, Seal, Standing, Wish};

use crate::bugs::{Bug, planted};
use crate::journal::{Journal, Moment};
use crate::piece::{Piece, Stage, Whose, cut};
use crate::replies::Incoming;
use bimetal_engine::arena::Buf;
use bimetal_engine::slab::Slab;
use bimetal_nbd::{Command, Request, encode_request};
use bimetal_units::Nanos;
use breaks::{FIRST_PAUSE_NS, MOST_PAUSE_NS};
use look::Look;
use std::collections::VecDeque;

/// What has been written and not flushed may take so much memory; the session flushes by itself when half of it is used,
/// and takes no more writes when all of it is.
pub const JOURNAL_BYTES: u64 = 64 << 20;
/// The longest read or write that is sent as one request: long enough for any server's full speed, and short beside the
/// others that wait for the same connection.
pub const PIECE_BYTES: u32 = 1 << 20;
/// The longest trim that is sent as one request: a request has 32 bits for a length, of which some servers use 31.
const TRIM_BYTES: u64 = 1 << 30;
/// A request is not answered, and nothing else comes either, for so long: the connection leads nowhere.
const SILENCE_NS: u64 = 30 * Nanos::SECOND;
/// A request is not answered for so long, whatever else is: the server has forgotten it.
const FORGOTTEN_NS: u64 = 300 * Nanos::SECOND;
/// Bytes that are handed to the kernel at a time, beyond which no request is begun: what waits longer is not yet counted as
/// asked.
const SEND_BYTES: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
    Looking,
    Draining,
    Rewriting,
    Comparing,
    Closing,
    Away { next: Nanos },
    Dialing,
    Lost,
}

#[derive(Debug)]
struct Op {
    tag: u64,
    since: Nanos,
    /// Requests that are not answered.
    left: u32,
    /// What the answer is when all went well.
    bytes: u32,
    error: Option<i32>,
    /// It ends with a flush: it is one, or a durable write to a server that has no FUA.
    flushes: bool,
    is_flush: bool,
}

#[derive(Debug, Default)]
struct Conn {
    incoming: Incoming,
    /// Requests in the order in which they were sent, with when; those that are answered leave late.
    sent: VecDeque<(u32, u64, Nanos)>,
    /// Requests of the send that is in flight.
    sending: Vec<u32>,
    /// Requests that are not answered.
    unanswered: u32,
    /// When anything was heard of it.
    heard_at: Nanos,
}

impl Conn {
    /// When it counts as broken, if nothing is heard until then.
    fn broken_at(&self) -> Option<Nanos> {
        let sent_at = self.sent.front()?.2;
        Some(sent_at.max(self.heard_at).after(SILENCE_NS).min(sent_at.after(FORGOTTEN_NS)))
    }
}

/// A flush that is under way.
#[derive(Debug)]
struct Flight {
    ops: Vec<u32>,
    covers: Moment,
}

/// A session with an export.
pub struct Session {
    agreed: Agreed,
    patience_ns: u64,
    mode: Mode,
    conns: Vec<Conn>,
    ops: Slab<Op>,
    pieces: Slab<Piece>,
    serial: u64,
    /// Requests sent so far: with its number, each has a name that no other has.
    sends: u64,
    /// To be sent next.
    waiting: VecDeque<u32>,
    /// Writes for which the journal has no room.
    held: VecDeque<u32>,
    /// What has to wait until the server has what it may have lost.
    parked: VecDeque<u32>,
    journal: Journal,
    /// It may grow to this.
    journal_most: u64,
    /// What others wrote before the session began may not be durable: no flush has ended since.
    is_unsure: bool,
    /// Bytes of writes that will be in the journal when they are answered.
    writing_bytes: u64,
    /// Operations that wait for the next flush.
    flush_wanted: Vec<u32>,
    flight: Option<Flight>,
    /// A part of the journal could not be written again: with this.
    unwritten: Option<i32>,
    seal: Option<Seal>,
    look: Look,
    /// When it was heard last how late it is.
    time: Nanos,
    /// It is to be given up as soon as the kernel has let go of all buffers.
    is_lost: bool,
    pause_ns: u64,
    away_since: Option<Nanos>,
    /// It answers, and refuses what has to be written there before anything else: the error.
    refusal: Option<i32>,
    breaks: u64,
    resent: u64,
    resent_before: u64,
    news: Vec<News>,
    done: Vec<(u64, i32)>,
}

impl Session {
    /// A session that has no connection yet.
    pub fn new(agreed: Agreed, patience_ns: u64, now: Nanos) -> Session {
        Session {
            agreed,
            patience_ns,
            mode: Mode::Away { next: now },
            conns: Vec::new(),
            ops: Slab::new(usize::MAX),
            pieces: Slab::new(usize::MAX),
            serial: 0,
            sends: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            parked: VecDeque::new(),
            journal: Journal::default(),
            journal_most: JOURNAL_BYTES,
            is_unsure: true,
            writing_bytes: 0,
            flush_wanted: Vec::new(),
            flight: None,
            unwritten: None,
            seal: None,
            look: Look::default(),
            time: now,
            is_lost: false,
            pause_ns: FIRST_PAUSE_NS,
            away_since: None,
            refusal: None,
            breaks: 0,
            resent: 0,
            resent_before: 0,
            news: Vec::new(),
            done: Vec::new(),
        }
    }

    /// From now on an export is compared before it is written to again, and while it is used.
    pub fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Whether there is something by which the export is known.
    pub fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// What is written and not flushed may take so much memory: one request at least.
    pub fn limit_journal(&mut self, bytes: u64) {
        self.journal_most = bytes;
    }

    /// Takes an operation; its answer comes with the tag.
    pub fn ask(&mut self, now: Nanos, ask: Ask, tag: u64) {
        if self.mode == Mode::Lost {
            return self.done.push((tag, -libc::EIO));
        }
        let since = now;
        let mut op = Op { tag, since, left: 0, bytes: 0, error: None, flushes: false, is_flush: false };
        match ask {
            Ask::Flush => {
                (op.flushes, op.is_flush) = (true, true);
                let place = self.ops.insert(op);
                self.want_flush(place);
                self.begin_flush();
            }
            Ask::Read { offset, buf } => {
                op.bytes = buf.len;
                self.begin(op, Command::Read, offset, &[buf], false);
            }
            Ask::Write { offset, bufs, durable } => {
                op.bytes = bufs.iter().map(|buf| buf.len).sum();
                op.flushes = durable && !self.agreed.fua;
                self.begin(op, Command::Write, offset, &bufs, durable && self.agreed.fua);
            }
            Ask::Trim { offset, len } => self.begin_trim(op, offset, len),
        }
    }

    fn begin(&mut self, op: Op, command: Command, offset: u64, bufs: &[Buf], fua: bool) {
        let place = self.ops.insert(op);
        let most = self.agreed.most_bytes.min(PIECE_BYTES);
        for (at, len, bufs) in cut(bufs, most) {
            let piece = Piece { fua, bufs, ..self.piece_of(Whose::Op(place), command, offset + at, len) };
            self.queue(place, piece);
        }
    }

    fn begin_trim(&mut self, op: Op, offset: u64, len: u64) {
        if !self.agreed.trim || len == 0 {
            return self.done.push((op.tag, 0));
        }
        let place = self.ops.insert(op);
        let mut at = 0;
        while at < len {
            let step = (len - at).min(TRIM_BYTES);
            let piece = self.piece_of(Whose::Op(place), Command::Trim, offset + at, step as u32);
            self.queue(place, piece);
            at += step;
        }
    }

    fn piece_of(&mut self, whose: Whose, command: Command, offset: u64, len: u32) -> Piece {
        self.serial += 1;
        Piece::new(self.serial, whose, command, offset, len)
    }

    fn queue(&mut self, op: u32, piece: Piece) {
        if let Some(op) = self.ops.get_mut(op) {
            op.left += 1;
        }
        let piece = self.pieces.insert(piece);
        match self.mode {
            Mode::Up => self.waiting.push_back(piece),
            Mode::Rewriting if planted(Bug::HastyRewriting) => self.waiting.push_back(piece),
            _ => self.parked.push_back(piece),
        }
    }

    /// Answers, with their tags.
    pub fn take_done(&mut self) -> Option<(u64, i32)> {
        self.done.pop()
    }

    /// What is to be told.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        Standing {
            connections: self.conns.len() as u32,
            away_since: self.away_since,
            breaks: self.breaks,
            resent: self.resent,
            journal_bytes: self.journal.bytes(),
        }
    }

    /// What its owner is to do now.
    pub fn wish(&self, now: Nanos) -> Wish {
        match self.mode {
            Mode::Closing => Wish::Close,
            Mode::Away { next } if next <= now && self.is_needed() => Wish::Dial,
            Mode::Away { .. } | Mode::Dialing | Mode::Lost => Wish::Rest,
            Mode::Up | Mode::Looking | Mode::Draining | Mode::Rewriting | Mode::Comparing => Wish::Serve,
        }
    }

    /// When it is to be looked again, at the latest.
    pub fn deadline(&self) -> Option<Nanos> {
        let next = match self.mode {
            Mode::Away { next } if self.is_needed() => Some(next),
            _ => None,
        };
        let broken = self.conns.iter().filter_map(Conn::broken_at).min();
        let silent = broken.filter(|_| self.mode != Mode::Closing);
        let patience = match self.is_away() {
            true => self.mortal().map(|(_, op)| self.given_up_at(op)).min(),
            false => None,
        };
        [next, silent, patience].into_iter().flatten().min()
    }

    /// Whether a connection is worth having: before anybody has asked for anything, none is.
    fn is_needed(&self) -> bool {
        !self.ops.is_empty() || !self.journal.is_empty() || self.away_since.is_some()
    }

    /// Whether nothing that clients asked for is under way.
    fn is_away(&self) -> bool {
        matches!(self.mode, Mode::Away { .. } | Mode::Dialing | Mode::Comparing | Mode::Rewriting)
    }

    /// Operations that do not wait for ever.
    fn mortal(&self) -> impl Iterator<Item = (u32, &Op)> {
        self.ops.iter().filter(|(_, op)| !op.is_flush && op.left > 0 || self.seal.is_none())
    }

    /// When an operation has waited long enough. Once the export has been away for longer than the patience, what is asked of it
    /// only waits for another attempt to connect: who asks for one thing after another would wait that long for each.
    fn given_up_at(&self, op: &Op) -> Nanos {
        let alone = op.since.after(self.patience_ns);
        match self.away_since {
            Some(away) => alone.min(away.after(self.patience_ns).max(op.since.after(MOST_PAUSE_NS))),
            None => alone,
        }
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Nanos) {
        self.look_after_gap(now);
        for conn in 0..self.conns.len() {
            while let Some(&(place, sending, _)) = self.conns[conn].sent.front() {
                if self
                    .pieces
                    .get(place)
                    .is_some_and(|piece| piece.sending == sending && piece.answer.is_none())
                {
                    break;
                }
                self.conns[conn].sent.pop_front();
            }
        }
        if self.conns.iter().filter_map(Conn::broken_at).any(|at| at <= now) {
            self.break_off(now, "a request was not answered, and nothing else either".to_owned());
        }
        if self.is_away() {
            let late = |(place, op): (u32, &Op)| (self.given_up_at(op) <= now).then_some(place);
            let late: Vec<u32> = self.mortal().filter_map(late).collect();
            let errno = self.refusal.unwrap_or(libc::ETIMEDOUT);
            late.into_iter().for_each(|place| self.give_up(place, errno));
        }
    }

    /// Ends an operation of which nothing is under way.
    fn give_up(&mut self, place: u32, errno: i32) {
        let Session { pieces, parked, waiting, held, .. } = self;
        for queue in [parked, waiting, held] {
            queue.retain(|piece| {
                let is_its = pieces.get(*piece).is_some_and(|piece| piece.whose == Whose::Op(place));
                if is_its {
                    pieces.take(*piece);
                }
                !is_its
            });
        }
        self.flush_wanted.retain(|waiting| *waiting != place);
        if let Some(op) = self.ops.take(place) {
            let is_success = errno == libc::ETIMEDOUT && planted(Bug::TimeoutIsSuccess);
            self.done.push((op.tag, if is_success { op.bytes as i32 } else { -op.error.unwrap_or(errno) }));
        }
    }

    /// Requests that a connection has room for go out; false where there are none. `most` requests at most.
    pub fn fill(&mut self, conn: usize, now: Nanos, most: usize, out: &mut Outbox<'_>) -> bool {
        if self.conns.get(conn).is_none_or(|conn| !conn.sending.is_empty()) {
            return false;
        }
        if !self.waiting.is_empty() {
            self.look(now);
        }
        let (mut count, mut bytes) = (0, 0);
        while count < most && bytes < SEND_BYTES {
            let Some(&place) = self.waiting.front() else { break };
            let Some(piece) = self.pieces.get(place) else {
                self.waiting.pop_front();
                continue;
            };
            if !self.has_journal_room(piece) {
                self.waiting.pop_front();
                self.held.push_back(place);
                // Where nothing is on its way, nothing else would make room.
                self.begin_flush();
                continue;
            }
            let inline = if piece.whose == Whose::Journal { piece.len as usize } else { 0 };
            if !out.has_room(bimetal_nbd::REQUEST_HEADER_BYTES + inline, piece.bufs.len() + 1) {
                break;
            }
            bytes += if piece.command == Command::Write { u64::from(piece.len) } else { 0 };
            self.waiting.pop_front();
            self.send(conn, place, now, out);
            count += 1;
        }
        count > 0
    }

    /// Requests that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn has_journal_room(&self, piece: &Piece) -> bool {
        let after = self.journal.bytes() + self.writing_bytes + u64::from(piece.len);
        !piece.is_volatile_write() || after <= self.journal_most
    }

    fn send(&mut self, conn: usize, place: u32, now: Nanos, out: &mut Outbox<'_>) {
        let Some(piece) = self.pieces.get_mut(place) else { return };
        self.sends += 1;
        piece.sending = self.sends;
        let cookie = piece.sending << 32 | u64::from(place);
        let request =
            Request { fua: piece.fua, ..Request::new(cookie, piece.command, piece.offset, piece.len) };
        out.put(&encode_request(&request));
        if piece.command == Command::Write {
            match piece.whose {
                Whose::Journal => {
                    let (begin, from) = (piece.offset - u64::from(piece.entry_at), piece.entry_at as usize);
                    out.put(&self.journal.at(begin)[from..from + piece.len as usize]);
                }
                _ => piece.bufs.iter().for_each(|&buf| out.add(buf)),
            }
        }
        if piece.is_volatile_write() {
            self.writing_bytes += u64::from(piece.len);
        }
        (piece.stage, piece.sent_at) = (Stage::Sending(conn), now);
        let conn = &mut self.conns[conn];
        conn.sent.push_back((place, piece.sending, now));
        conn.sending.push(place);
        conn.unanswered += 1;
    }

    /// The kernel has let go of the buffers of what was sent last on a connection.
    pub fn sent(&mut self, conn: usize, now: Nanos, payload: &mut dyn Payload) {
        let Some(sending) = self.conns.get_mut(conn).map(|conn| std::mem::take(&mut conn.sending)) else {
            return;
        };
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.heard_at = now;
        }
        for place in sending {
            let Some(piece) = self.pieces.get_mut(place) else { continue };
            piece.stage = Stage::Sent(conn);
            if let Some(result) = piece.answer.filter(|_| piece.whose != Whose::Seal) {
                self.finish(place, result, payload);
            }
        }
        self.advance(now);
    }

    /// Requests on a connection that are not answered.
    pub fn unanswered(&self, conn: usize) -> u32 {
        self.conns.get(conn).map_or(0, |conn| conn.unanswered)
    }

    /// Bytes have come on a connection.
    pub fn received(&mut self, conn: usize, now: Nanos, bytes: &[u8], payload: &mut dyn Payload) {
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.heard_at = now;
        }
        if let Err(why) = self.take(conn, bytes, payload) {
            self.break_off(now, why);
        }
        self.advance(now);
    }

    pub(super) fn incoming(&mut self, conn: usize) -> Option<&mut Incoming> {
        self.conns.get_mut(conn).map(|conn| &mut conn.incoming)
    }

    pub(super) fn piece(&self, place: u32) -> Option<&Piece> {
        self.pieces.get(place)
    }

    pub(super) fn piece_mut(&mut self, place: u32) -> Option<&mut Piece> {
        self.pieces.get_mut(place)
    }

    /// The request on this connection that a reply names.
    pub(super) fn known(&self, conn: usize, cookie: u64) -> Result<u32, String> {
        let (sending, place) = (cookie >> 32, cookie as u32);
        let is_it = |piece: &&Piece| {
            (piece.sending & u64::from(u32::MAX) == sending || planted(Bug::LateAnswerTaken))
                && piece.conn() == Some(conn)
                && piece.answer.is_none()
        };
        self.pieces
            .get(place)
            .filter(is_it)
            .map(|_| place)
            .ok_or_else(|| "it answers what was not asked".to_owned())
    }

    /// A request has its answer.
    pub(super) fn answered(
        &mut self,
        place: u32,
        result: Result<(), i32>,
        payload: &mut dyn Payload,
    ) -> Result<(), String> {
        if result == Err(libc::ESHUTDOWN) {
            return Err("the server is shutting down".to_owned());
        }
        let Some(piece) = self.pieces.get_mut(place) else { return Ok(()) };
        piece.answer = Some(result);
        let (stage, whose) = (piece.stage, piece.whose);
        if let Some(conn) = piece.conn().and_then(|conn| self.conns.get_mut(conn)) {
            conn.unanswered -= 1;
        }
        if whose == Whose::Seal {
            return Ok(());
        }
        if self.mode == Mode::Up {
            self.pause_ns = FIRST_PAUSE_NS;
        }
        if matches!(stage, Stage::Sent(_)) {
            self.finish(place, result, payload);
        }
        Ok(())
    }

    /// A request has ended, and nobody looks at its buffers.
    fn finish(&mut self, place: u32, result: Result<(), i32>, payload: &mut dyn Payload) {
        let Some(piece) = self.pieces.take(place) else { return };
        if piece.is_volatile_write() {
            self.writing_bytes -= u64::from(piece.len);
        }
        match piece.whose {
            Whose::Op(op) => {
                if result.is_ok() {
                    self.note(&piece, payload);
                }
                self.op_went_on(op, result);
            }
            Whose::Journal => {
                if let Err(errno) = result {
                    self.unwritten = Some(errno);
                }
            }
            Whose::Flush => self.flush_ended(result),
            Whose::Seal => {}
        }
    }

    /// What was written goes into the journal; what is durable or trimmed leaves it.
    fn note(&mut self, piece: &Piece, payload: &mut dyn Payload) {
        match piece.command {
            Command::Write if piece.is_volatile_write() => {
                let mut bytes = Vec::with_capacity(piece.len as usize);
                piece.bufs.iter().for_each(|&buf| payload.load(buf, &mut bytes));
                match planted(Bug::UncutJournal) {
                    true => self.journal.keep_uncut(piece.offset, bytes),
                    false => self.journal.keep(piece.offset, bytes),
                }
            }
            Command::Write | Command::Trim => self.journal.cut(piece.offset, u64::from(piece.len)),
            _ => {}
        }
    }

    fn op_went_on(&mut self, place: u32, result: Result<(), i32>) {
        let Some(op) = self.ops.get_mut(place) else { return };
        op.left -= 1;
        if let Err(errno) = result {
            op.error.get_or_insert(errno);
        }
        if op.left > 0 {
            return;
        }
        if op.flushes && op.error.is_none() {
            return self.want_flush(place);
        }
        self.end(place);
    }

    fn end(&mut self, place: u32) {
        let Some(op) = self.ops.take(place) else { return };
        self.done.push((op.tag, op.error.map_or(op.bytes as i32, |errno| -errno)));
    }
}
