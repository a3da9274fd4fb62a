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
//!                                                                                       then as after a break
//! ```
//!
//! What keeps data safe:
//! - **What is answered and not flushed is in the journal**, cut by what is newer. A server that restarts has lost it perhaps:
//!   it is written again, and that is answered, before anything else is sent. So a break is invisible but for time.
//! - **A flush covers what had been answered when it was sent**, and takes no more than that out of the journal.
//! - **A flush that failed is told**, and the journal is written again before the next one is sent.
//! - **A flush never fails for the time it takes.** Reads, writes and trims do, after the patience of the volume: a flush that
//!   waits loses nothing, as the journal has what it is to cover; one that failed would end the volume.
//! - **Another export is never written to**: its size and its superblocks are compared before the journal goes there.

use super::journal::{Journal, Moment};
use super::piece::{Piece, Slab, Stage, Whose, cut};
use super::replies::Incoming;
use bimetal_engine::action::BufList;
use bimetal_engine::arena::Buf;
use bimetal_nbd::{Command, Request, encode_request};
use bimetal_units::Nanos;
use std::collections::VecDeque;

/// What has been written and not flushed may take so much memory; the session flushes by itself when half of it is used,
/// and takes no more writes when all of it is.
pub(super) const JOURNAL_BYTES: u64 = 64 << 20;
/// The longest read or write that is sent as one request: long enough for any server's full speed, and short beside the
/// others that wait for the same connection.
pub(super) const PIECE_BYTES: u32 = 1 << 20;
/// The longest trim that is sent as one request: a request has 32 bits for a length, of which some servers use 31.
const TRIM_BYTES: u64 = 1 << 30;
/// A request that is not answered for so long: the connection leads nowhere.
const SILENCE_NS: u64 = 30 * Nanos::SECOND;
/// The first pause before a new connection is tried ...
const FIRST_PAUSE_NS: u64 = 50 * Nanos::MS;
/// ... which doubles with each that fails, up to this.
const MOST_PAUSE_NS: u64 = 5 * Nanos::SECOND;

/// Where the payload of operations is.
pub(crate) trait Payload {
    /// Appends the bytes of a buffer.
    fn load(&self, buf: Buf, out: &mut Vec<u8>);
    /// Puts bytes at the front of a buffer.
    fn store(&mut self, buf: Buf, bytes: &[u8]);
}

/// What is asked of an export.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read { offset: u64, buf: Buf },
    Write { offset: u64, bufs: BufList, durable: bool },
    Flush,
    Trim { offset: u64, len: u64 },
}

/// What was agreed on with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) size_bytes: u64,
    pub(crate) read_only: bool,
    pub(crate) flush: bool,
    pub(crate) fua: bool,
    pub(crate) trim: bool,
    /// A flush on one connection covers all.
    pub(crate) multi: bool,
    /// The longest payload.
    pub(crate) most_bytes: u32,
}

/// Says in a sentence what is wrong with blocks.
pub(crate) type Judge = Box<dyn Fn(&[Vec<u8>]) -> Result<(), String>>;

/// By what an export is known as the one that it was: the blocks at these places, and who judges them.
pub(crate) struct Seal {
    pub(crate) places: Vec<u64>,
    pub(crate) judge: Judge,
}

/// Something to be told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A connection broke, for this reason.
    Broke(String),
    /// It is back after so long; so many requests were sent again.
    Back { away_ns: u64, resent: u64 },
    /// It is not what it was, and nothing more is asked of it.
    Lost(String),
    /// It answers with errors where it must not.
    Failed(String),
}

/// What the owner of the sockets is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Send and receive.
    Serve,
    /// Close all connections, and say when the kernel has let go of all buffers.
    Close,
    /// Connect.
    Dial,
    /// Nothing, for now.
    Rest,
}

/// How it stands, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) connections: u32,
    pub(crate) away_since: Option<Nanos>,
    pub(crate) breaks: u64,
    pub(crate) resent: u64,
    pub(crate) journal_bytes: u64,
}

/// A fault of the session's own, to see that tests find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// A newer write leaves what it overlaps in the journal.
    UncutJournal,
    /// The journal is not written again.
    NothingRewritten,
    /// What waits is sent while the journal is still being written again.
    HastyRewriting,
    /// A flush takes out of the journal what was answered after it was sent.
    GreedyFlush,
    /// After a failed flush the next one is sent at once.
    FailedFlushForgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
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
}

/// A flush that is under way.
#[derive(Debug)]
struct Flight {
    ops: Vec<u32>,
    covers: Moment,
}

/// What is to be sent on a connection.
pub(crate) struct Outbox<'a> {
    /// Room for headers, and for payload that is in no buffer.
    pub(crate) scratch: &'a mut [u8],
    pub(crate) used: usize,
    pub(crate) parts: Vec<Part>,
    /// Parts at most.
    pub(crate) most_parts: usize,
}

/// A part of what is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes of the scratch room.
    Scratch { at: usize, len: usize },
    /// A buffer of an operation.
    Buf(Buf),
}

impl Outbox<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let at = self.used;
        self.scratch[at..at + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        match self.parts.last_mut() {
            Some(Part::Scratch { at: first, len }) if *first + *len == at => *len += bytes.len(),
            _ => self.parts.push(Part::Scratch { at, len: bytes.len() }),
        }
    }

    fn has_room(&self, bytes: usize, parts: usize) -> bool {
        self.scratch.len() - self.used >= bytes && self.parts.len() + parts < self.most_parts
    }
}

/// A session with an export.
pub(crate) struct Session {
    agreed: Agreed,
    patience_ns: u64,
    mode: Mode,
    conns: Vec<Conn>,
    ops: Slab<Op>,
    pieces: Slab<Piece>,
    serial: u64,
    /// To be sent next.
    waiting: VecDeque<u32>,
    /// Writes for which the journal has no room.
    held: VecDeque<u32>,
    /// What has to wait until the server has what it may have lost.
    parked: VecDeque<u32>,
    journal: Journal,
    /// It may grow to this.
    pub(super) journal_most: u64,
    /// Bytes of writes that will be in the journal when they are answered.
    writing_bytes: u64,
    /// Operations that wait for the next flush.
    flush_wanted: Vec<u32>,
    flight: Option<Flight>,
    /// A part of the journal could not be written again: with this.
    unwritten: Option<i32>,
    seal: Option<Seal>,
    pause_ns: u64,
    away_since: Option<Nanos>,
    breaks: u64,
    resent: u64,
    resent_before: u64,
    news: Vec<News>,
    done: Vec<(u64, i32)>,
    pub(super) planted: Option<Planted>,
}

impl Session {
    /// A session that has no connection yet.
    pub(crate) fn new(agreed: Agreed, patience_ns: u64, now: Nanos) -> Session {
        Session {
            agreed,
            patience_ns,
            mode: Mode::Away { next: now },
            conns: Vec::new(),
            ops: Slab::default(),
            pieces: Slab::default(),
            serial: 0,
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            parked: VecDeque::new(),
            journal: Journal::default(),
            journal_most: JOURNAL_BYTES,
            writing_bytes: 0,
            flush_wanted: Vec::new(),
            flight: None,
            unwritten: None,
            seal: None,
            pause_ns: FIRST_PAUSE_NS,
            away_since: None,
            breaks: 0,
            resent: 0,
            resent_before: 0,
            news: Vec::new(),
            done: Vec::new(),
            planted: None,
        }
    }

    /// From now on an export is compared before it is written to again.
    pub(crate) fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Takes an operation; its answer comes with the tag.
    pub(crate) fn ask(&mut self, now: Nanos, ask: Ask, tag: u64) {
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
            Mode::Rewriting if self.has(Planted::HastyRewriting) => self.waiting.push_back(piece),
            _ => self.parked.push_back(piece),
        }
    }

    /// Whether the fault is planted.
    fn has(&self, fault: Planted) -> bool {
        self.planted == Some(fault)
    }

    /// Answers, with their tags.
    pub(crate) fn take_done(&mut self) -> Option<(u64, i32)> {
        self.done.pop()
    }

    /// What is to be told.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// How it stands.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            connections: self.conns.len() as u32,
            away_since: self.away_since,
            breaks: self.breaks,
            resent: self.resent,
            journal_bytes: self.journal.bytes(),
        }
    }

    /// What its owner is to do now.
    pub(crate) fn wish(&self, now: Nanos) -> Wish {
        match self.mode {
            Mode::Closing => Wish::Close,
            Mode::Away { next } if next <= now && self.is_needed() => Wish::Dial,
            Mode::Away { .. } | Mode::Dialing | Mode::Lost => Wish::Rest,
            Mode::Up | Mode::Draining | Mode::Rewriting | Mode::Comparing => Wish::Serve,
        }
    }

    /// When it is to be looked again, at the latest.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let next = match self.mode {
            Mode::Away { next } if self.is_needed() => Some(next),
            _ => None,
        };
        let sent = self.conns.iter().filter_map(|conn| conn.sent.front()).map(|sent| sent.2).min();
        let silent = sent.filter(|_| self.mode != Mode::Closing).map(|sent| sent.after(SILENCE_NS));
        let patience = match self.is_away() {
            true => self.mortal().map(|(_, op)| op.since.after(self.patience_ns)).min(),
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
        self.ops.iter().filter(|(_, op)| !op.is_flush && op.left > 0)
    }

    /// Time has passed.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        for conn in 0..self.conns.len() {
            while let Some(&(place, serial, _)) = self.conns[conn].sent.front() {
                if self
                    .pieces
                    .get(place)
                    .is_some_and(|piece| piece.serial == serial && piece.answer.is_none())
                {
                    break;
                }
                self.conns[conn].sent.pop_front();
            }
        }
        let mut sent = self.conns.iter().filter_map(|conn| conn.sent.front());
        if sent.any(|sent| sent.2.after(SILENCE_NS) <= now) {
            let seconds = SILENCE_NS / Nanos::SECOND;
            self.break_off(now, format!("a request was not answered for {seconds} seconds"));
        }
        if self.is_away() {
            let late = |(place, op): (u32, &Op)| (op.since.after(self.patience_ns) <= now).then_some(place);
            let late: Vec<u32> = self.mortal().filter_map(late).collect();
            late.into_iter().for_each(|place| self.give_up(place, libc::ETIMEDOUT));
        }
    }

    /// Ends an operation of which nothing is under way.
    fn give_up(&mut self, place: u32, errno: i32) {
        let Session { pieces, parked, waiting, held, .. } = self;
        for queue in [parked, waiting, held] {
            queue.retain(|piece| {
                let is_its = pieces.get(*piece).is_some_and(|piece| piece.whose == Whose::Op(place));
                if is_its {
                    pieces.remove(*piece);
                }
                !is_its
            });
        }
        self.flush_wanted.retain(|waiting| *waiting != place);
        if let Some(op) = self.ops.remove(place) {
            self.done.push((op.tag, -op.error.unwrap_or(errno)));
        }
    }

    /// A connection attempt has begun.
    pub(crate) fn dialing(&mut self) {
        self.mode = Mode::Dialing;
    }

    /// There is nobody to connect to.
    pub(crate) fn refused(&mut self, now: Nanos, why: &str) {
        if self.away_since.is_none() {
            self.away_since = Some(now);
            self.breaks += 1;
            self.resent_before = self.resent;
            self.news.push(News::Broke(why.to_owned()));
        }
        self.rest_a_while(now);
    }

    fn rest_a_while(&mut self, now: Nanos) {
        self.mode = Mode::Away { next: now.after(self.pause_ns) };
        self.pause_ns = (2 * self.pause_ns).min(MOST_PAUSE_NS);
    }

    /// So many connections are there, on which this was agreed.
    pub(crate) fn connected(&mut self, now: Nanos, agreed: Agreed, conns: usize) {
        let was = self.agreed;
        let why = if agreed.size_bytes < was.size_bytes {
            format!("it has shrunk from {} to {} bytes", was.size_bytes, agreed.size_bytes)
        } else if agreed.read_only && !was.read_only {
            "it has become read-only".to_owned()
        } else if was.flush && !agreed.flush || was.fua && !agreed.fua {
            "its server cannot make durable any more what it could".to_owned()
        } else if agreed.most_bytes < was.most_bytes.min(PIECE_BYTES) {
            format!("its server takes {} bytes at a time by now, not {}", agreed.most_bytes, was.most_bytes)
        } else {
            self.agreed = Agreed { size_bytes: was.size_bytes, ..agreed };
            self.conns = std::iter::repeat_with(Conn::default).take(conns).collect();
            return self.compare(now);
        };
        self.lose(why);
    }

    fn compare(&mut self, now: Nanos) {
        let Some(seal) = &self.seal else { return self.rewrite(now) };
        self.mode = Mode::Comparing;
        for offset in seal.places.clone() {
            let piece = self.piece_of(Whose::Seal, Command::Read, offset, bimetal_units::BLOCK_BYTES);
            let piece = self.pieces.insert(piece);
            self.waiting.push_back(piece);
        }
    }

    /// All that the server may have lost is written again, before anything else.
    fn rewrite(&mut self, now: Nanos) {
        self.mode = Mode::Rewriting;
        self.unwritten = None;
        let mut places: Vec<(u64, u32)> = self.journal.places().collect();
        if self.has(Planted::NothingRewritten) {
            places.clear();
        }
        for (offset, len) in places {
            let most = self.agreed.most_bytes.min(PIECE_BYTES);
            let mut at = 0;
            while at < len {
                let step = (len - at).min(most);
                let piece = self.piece_of(Whose::Journal, Command::Write, offset + u64::from(at), step);
                let piece = self.pieces.insert(Piece { entry_at: at, ..piece });
                self.waiting.push_back(piece);
                at += step;
            }
        }
        if self.has(Planted::HastyRewriting) {
            let parked: Vec<u32> = self.parked.drain(..).collect();
            parked.into_iter().for_each(|piece| self.waiting.push_front(piece));
        }
        self.advance(now);
    }

    /// Goes on where all that had to come first has ended.
    fn advance(&mut self, now: Nanos) {
        let is_still = |conn: &Conn| conn.unanswered == 0 && conn.sending.is_empty();
        let is_idle = self.waiting.is_empty() && self.conns.iter().all(is_still);
        match self.mode {
            Mode::Comparing if is_idle => self.judge(now),
            Mode::Draining if is_idle => self.rewrite(now),
            Mode::Rewriting if is_idle => self.rewritten(now),
            _ => {}
        }
        self.begin_flush();
    }

    /// The journal has been written again. Where it could not be, the export is not what was promised: nothing is read there
    /// before a later attempt, and who waits for a flush is told.
    fn rewritten(&mut self, now: Nanos) {
        if let Some(errno) = self.unwritten.take() {
            let ops = std::mem::take(&mut self.flush_wanted);
            self.flush_failed(ops, errno);
            let why = format!("it does not take again what it may have lost (error {errno})");
            return self.break_off(now, why);
        }
        self.mode = Mode::Up;
        let resent = self.resent - self.resent_before;
        self.waiting.append(&mut self.parked);
        if let Some(since) = self.away_since.take() {
            self.news.push(News::Back { away_ns: now.since(since), resent });
        }
    }

    fn judge(&mut self, now: Nanos) {
        let of_seal = |(place, piece): (u32, &Piece)| (piece.whose == Whose::Seal).then_some(place);
        let places: Vec<u32> = self.pieces.iter().filter_map(of_seal).collect();
        let mut blocks: Vec<Piece> =
            places.into_iter().filter_map(|place| self.pieces.remove(place)).collect();
        blocks.sort_by_key(|piece| piece.serial);
        if let Some(errno) = blocks.iter().find_map(|piece| piece.answer.and_then(Result::err)) {
            return self.break_off(now, format!("its superblock cannot be read (error {errno})"));
        }
        let blocks: Vec<Vec<u8>> = blocks.into_iter().map(|piece| piece.bytes).collect();
        match self.seal.as_ref().map_or(Ok(()), |seal| (seal.judge)(&blocks)) {
            Ok(()) => self.rewrite(now),
            Err(why) => self.lose(why),
        }
    }

    /// Nothing more is asked of it: whoever waits gets an error.
    fn lose(&mut self, why: String) {
        self.news.push(News::Lost(why));
        self.mode = Mode::Lost;
        self.conns.clear();
        (self.pieces, self.journal, self.flight) = (Slab::default(), Journal::default(), None);
        [&mut self.waiting, &mut self.held, &mut self.parked].into_iter().for_each(VecDeque::clear);
        self.flush_wanted.clear();
        let places: Vec<u32> = self.ops.iter().map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| self.give_up(place, libc::EIO));
    }

    /// A connection has broken: all are to be closed.
    pub(crate) fn break_off(&mut self, now: Nanos, why: String) {
        if !matches!(self.mode, Mode::Up | Mode::Draining | Mode::Rewriting | Mode::Comparing) {
            return;
        }
        self.mode = Mode::Closing;
        if self.away_since.is_none() {
            self.away_since = Some(now);
            self.breaks += 1;
            self.resent_before = self.resent;
            self.news.push(News::Broke(why));
        }
    }

    /// The connections are closed, and nobody looks at any buffer any more.
    pub(crate) fn closed(&mut self, now: Nanos, payload: &mut dyn Payload) {
        if self.mode != Mode::Closing {
            return;
        }
        let on_wire: Vec<u32> =
            self.pieces.iter().filter(|(_, piece)| piece.conn().is_some()).map(|(place, _)| place).collect();
        self.conns.clear();
        for place in on_wire {
            let Some(piece) = self.pieces.get_mut(place) else { continue };
            match piece.answer {
                // The kernel had not said yet that it was sent.
                Some(result) if piece.whose != Whose::Seal => self.finish(place, result, payload),
                _ => {
                    if piece.is_volatile_write() {
                        self.writing_bytes -= u64::from(piece.len);
                    }
                    self.resent += u64::from(matches!(piece.whose, Whose::Op(_)));
                    piece.again();
                }
            }
        }
        self.waiting.clear();
        self.held.clear();
        let Session { pieces, parked, .. } = self;
        let (mut kept, mut gone): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for (place, piece) in pieces.iter() {
            let is_op = matches!(piece.whose, Whose::Op(_));
            if is_op { kept.push(place) } else { gone.push(place) }
        }
        gone.into_iter().for_each(|place| drop(pieces.remove(place)));
        kept.sort_by_key(|place| pieces.get(*place).map(|piece| piece.serial));
        *parked = kept.into();
        if let Some(flight) = self.flight.take() {
            self.flush_wanted.extend(flight.ops);
        }
        self.rest_a_while(now);
    }

    /// Requests that a connection has room for go out; false where there are none. `most` requests at most.
    pub(crate) fn fill(&mut self, conn: usize, now: Nanos, most: usize, out: &mut Outbox<'_>) -> bool {
        if self.conns.get(conn).is_none_or(|conn| !conn.sending.is_empty()) {
            return false;
        }
        let mut count = 0;
        while count < most {
            let Some(&place) = self.waiting.front() else { break };
            let Some(piece) = self.pieces.get(place) else {
                self.waiting.pop_front();
                continue;
            };
            if !self.has_journal_room(piece) {
                self.waiting.pop_front();
                self.held.push_back(place);
                continue;
            }
            let inline = if piece.whose == Whose::Journal { piece.len as usize } else { 0 };
            if !out.has_room(bimetal_nbd::REQUEST_HEADER_BYTES + inline, piece.bufs.len() + 1) {
                break;
            }
            self.waiting.pop_front();
            self.send(conn, place, now, out);
            count += 1;
        }
        count > 0
    }

    /// Requests that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn has_journal_room(&self, piece: &Piece) -> bool {
        let after = self.journal.bytes() + self.writing_bytes + u64::from(piece.len);
        !piece.is_volatile_write() || after <= self.journal_most
    }

    fn send(&mut self, conn: usize, place: u32, now: Nanos, out: &mut Outbox<'_>) {
        let Some(piece) = self.pieces.get_mut(place) else { return };
        let cookie = piece.serial << 32 | u64::from(place);
        let request =
            Request { fua: piece.fua, ..Request::new(cookie, piece.command, piece.offset, piece.len) };
        out.put(&encode_request(&request));
        if piece.command == Command::Write {
            match piece.whose {
                Whose::Journal => {
                    let (begin, from) = (piece.offset - u64::from(piece.entry_at), piece.entry_at as usize);
                    out.put(&self.journal.at(begin)[from..from + piece.len as usize]);
                }
                _ => out.parts.extend(piece.bufs.iter().map(|&buf| Part::Buf(buf))),
            }
        }
        if piece.is_volatile_write() {
            self.writing_bytes += u64::from(piece.len);
        }
        (piece.stage, piece.sent_at) = (Stage::Sending(conn), now);
        let conn = &mut self.conns[conn];
        conn.sent.push_back((place, piece.serial, now));
        conn.sending.push(place);
        conn.unanswered += 1;
    }

    /// The kernel has let go of the buffers of what was sent last on a connection.
    pub(crate) fn sent(&mut self, conn: usize, now: Nanos, payload: &mut dyn Payload) {
        let Some(sending) = self.conns.get_mut(conn).map(|conn| std::mem::take(&mut conn.sending)) else {
            return;
        };
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
    pub(crate) fn unanswered(&self, conn: usize) -> u32 {
        self.conns.get(conn).map_or(0, |conn| conn.unanswered)
    }

    /// Bytes have come on a connection.
    pub(crate) fn received(&mut self, conn: usize, now: Nanos, bytes: &[u8], payload: &mut dyn Payload) {
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
        let (serial, place) = (cookie >> 32, cookie as u32);
        let is_it = |piece: &&Piece| {
            piece.serial & u64::from(u32::MAX) == serial
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
        let Some(piece) = self.pieces.remove(place) else { return };
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
    fn note(&mut self, piece: &Piece, payload: &dyn Payload) {
        match piece.command {
            Command::Write if piece.is_volatile_write() => {
                let mut bytes = Vec::with_capacity(piece.len as usize);
                piece.bufs.iter().for_each(|&buf| payload.load(buf, &mut bytes));
                match self.has(Planted::UncutJournal) {
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
        let Some(op) = self.ops.remove(place) else { return };
        self.done.push((op.tag, op.error.map_or(op.bytes as i32, |errno| -errno)));
    }

    fn want_flush(&mut self, place: u32) {
        // There is nothing that a server could have lost.
        if self.journal.is_empty() {
            return self.end(place);
        }
        self.flush_wanted.push(place);
    }

    /// Sends a flush, where somebody waits for one or the journal grows, and none is under way.
    fn begin_flush(&mut self) {
        if self.mode != Mode::Up || self.flight.is_some() {
            return;
        }
        let held = self.held.front().and_then(|place| self.pieces.get(*place));
        if held.is_some_and(|piece| self.has_journal_room(piece)) {
            self.release();
        }
        let is_full = self.journal.bytes() >= self.journal_most / 2;
        if self.flush_wanted.is_empty() && self.held.is_empty() && !is_full {
            return;
        }
        if self.journal.is_empty() {
            // All of it was overwritten by what is durable.
            let ops = std::mem::take(&mut self.flush_wanted);
            return ops.into_iter().for_each(|op| self.end(op));
        }
        let (ops, covers) = (std::mem::take(&mut self.flush_wanted), self.journal.now());
        self.flight = Some(Flight { ops, covers });
        let piece = self.piece_of(Whose::Flush, Command::Flush, 0, 0);
        let piece = self.pieces.insert(piece);
        self.waiting.push_front(piece);
    }

    fn flush_ended(&mut self, result: Result<(), i32>) {
        let Some(Flight { ops, covers }) = self.flight.take() else { return };
        match result {
            Ok(()) => {
                let covers = if self.has(Planted::GreedyFlush) { self.journal.now() } else { covers };
                self.journal.forget(covers);
                ops.into_iter().for_each(|op| self.end(op));
                self.release();
            }
            Err(errno) => self.flush_failed(ops, errno),
        }
    }

    /// Writes that waited for room go on.
    fn release(&mut self) {
        while let Some(piece) = self.held.pop_back() {
            self.waiting.push_front(piece);
        }
    }

    /// Whoever waits is told, and writes that wait for room as well: the server keeps nothing. All that it may have dropped is
    /// written again before the next flush.
    fn flush_failed(&mut self, ops: Vec<u32>, errno: i32) {
        if ops.is_empty() {
            self.news.push(News::Failed(format!("a flush failed (error {errno})")));
        }
        for place in ops {
            if let Some(op) = self.ops.get_mut(place) {
                op.error.get_or_insert(errno);
            }
            self.end(place);
        }
        let held: Vec<u32> = self.held.drain(..).collect();
        for piece in held {
            if let Some(Whose::Op(op)) = self.pieces.remove(piece).map(|piece| piece.whose) {
                self.op_went_on(op, Err(errno));
            }
        }
        if !self.has(Planted::FailedFlushForgotten) && self.mode == Mode::Up {
            self.mode = Mode::Draining;
            self.parked.append(&mut self.waiting);
        }
    }
}
