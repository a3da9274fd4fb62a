//! Connections that break, and what must come first on the next.

use super::look::Look;
use super::terms::Doubt;
use super::terms::{Agreed, News, Payload};
use super::{Conn, Mode, PIECE_BYTES, Session};
use crate::bugs::{Bug, planted};
use crate::journal::Journal;
use crate::piece::{Piece, Whose};
use bimetal_engine::slab::Slab;
use bimetal_nbd::Command;
use bimetal_units::Nanos;
use std::collections::VecDeque;

/// The first pause before a new connection is tried ...
pub(super) const FIRST_PAUSE_NS: u64 = 50 * Nanos::MS;
/// ... which doubles with each that fails, up to this.
pub(super) const MOST_PAUSE_NS: u64 = 5 * Nanos::SECOND;

impl Session {
    /// A connection attempt has begun.
    pub fn dialing(&mut self) {
        self.mode = Mode::Dialing;
    }

    /// There is nobody to connect to.
    pub fn refused(&mut self, now: Nanos, why: &str) {
        if self.away_since.is_none() {
            self.away_since = Some(now);
            self.breaks += 1;
            self.resent_before = self.resent;
            self.news.push(News::Broke(why.to_owned()));
        }
        self.rest_a_while(now);
    }

    pub(super) fn rest_a_while(&mut self, now: Nanos) {
        self.mode = Mode::Away { next: now.after(self.pause_ns) };
        self.pause_ns = (2 * self.pause_ns).min(MOST_PAUSE_NS);
    }

    /// So many connections are there, on which this was agreed.
    pub fn connected(&mut self, now: Nanos, agreed: Agreed, conns: usize) {
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

    pub(super) fn compare(&mut self, now: Nanos) {
        if self.seal.is_none() {
            return self.rewrite(now);
        }
        self.mode = Mode::Comparing;
        self.look = Look::alone(now);
        self.read_seal();
        self.advance(now);
    }

    /// All that the server may have lost is written again, before anything else.
    pub(super) fn rewrite(&mut self, now: Nanos) {
        self.mode = Mode::Rewriting;
        self.unwritten = None;
        let mut places: Vec<(u64, u32)> = self.journal.places().collect();
        if planted(Bug::NothingRewritten) {
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
        if planted(Bug::HastyRewriting) {
            let parked: Vec<u32> = self.parked.drain(..).collect();
            parked.into_iter().for_each(|piece| self.waiting.push_front(piece));
        }
        self.advance(now);
    }

    /// Goes on where all that had to come first has ended.
    pub(super) fn advance(&mut self, now: Nanos) {
        let is_still = |conn: &Conn| conn.unanswered == 0 && conn.sending.is_empty();
        let is_idle = self.waiting.is_empty() && self.conns.iter().all(is_still);
        match self.mode {
            Mode::Up | Mode::Looking if self.has_looked() => self.looked(now),
            Mode::Comparing if is_idle => self.judge(now),
            Mode::Draining if is_idle => self.compare(now),
            Mode::Rewriting if is_idle => self.rewritten(now),
            _ => {}
        }
        self.begin_flush();
    }

    /// The journal has been written again. Where it could not be, the export is not what was promised: nothing is read there
    /// before a later attempt, and who waits for a flush is told.
    pub(super) fn rewritten(&mut self, now: Nanos) {
        if let Some(errno) = self.unwritten.take() {
            self.refusal = Some(errno);
            let ops = std::mem::take(&mut self.flush_wanted);
            self.flush_failed(ops, errno);
            let why = format!("it does not take again what it may have lost (error {errno})");
            return self.break_off(now, why);
        }
        (self.mode, self.refusal) = (Mode::Up, None);
        let resent = self.resent - self.resent_before;
        self.waiting.append(&mut self.parked);
        if let Some(since) = self.away_since.take() {
            self.news.push(News::Back { away_ns: now.since(since), resent });
        }
    }

    pub(super) fn judge(&mut self, now: Nanos) {
        match self.verdict() {
            Err(errno) => self.break_off(now, format!("its superblocks cannot be read (error {errno})")),
            Ok(Ok(())) => self.rewrite(now),
            Ok(Err(Doubt::Nothing(why) | Doubt::Other(why))) => self.lose(why),
        }
    }

    /// Nothing more is asked of it: whoever waits gets an error, once nobody looks at his buffers any more. Else what takes their
    /// place would be sent in their stead.
    pub(super) fn lose(&mut self, why: String) {
        self.news.push(News::Lost(why));
        let is_sending = self.conns.iter().any(|conn| !conn.sending.is_empty());
        match is_sending && !planted(Bug::LostWhileSending) {
            true => (self.mode, self.is_lost) = (Mode::Closing, true),
            false => self.give_all_up(),
        }
    }

    fn give_all_up(&mut self) {
        self.mode = Mode::Lost;
        self.conns.clear();
        (self.pieces, self.journal, self.flight) = (Slab::new(usize::MAX), Journal::default(), None);
        [&mut self.waiting, &mut self.held, &mut self.parked].into_iter().for_each(VecDeque::clear);
        self.flush_wanted.clear();
        let places: Vec<u32> = self.ops.iter().map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| self.give_up(place, libc::EIO));
    }

    /// A connection has broken: all are to be closed.
    pub fn break_off(&mut self, now: Nanos, why: String) {
        if matches!(self.mode, Mode::Away { .. } | Mode::Dialing | Mode::Closing | Mode::Lost) {
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

    /// A planted bug: nobody learns that it was never done.
    fn drop_request(&mut self, place: u32) {
        let Some(piece) = self.pieces.take(place) else { return };
        self.writing_bytes -= if piece.is_volatile_write() { u64::from(piece.len) } else { 0 };
        if let Whose::Op(op) = piece.whose {
            self.op_went_on(op, Ok(()));
        }
    }

    /// The connections are closed, and nobody looks at any buffer any more.
    pub fn closed(&mut self, now: Nanos, payload: &mut dyn Payload) {
        if self.mode != Mode::Closing {
            return;
        }
        if self.is_lost {
            return self.give_all_up();
        }
        let on_wire: Vec<u32> =
            self.pieces.iter().filter(|(_, piece)| piece.conn().is_some()).map(|(place, _)| place).collect();
        self.conns.clear();
        for place in on_wire {
            let Some(piece) = self.pieces.get_mut(place) else { continue };
            match piece.answer {
                // The kernel had not said yet that it was sent.
                Some(result) if piece.whose != Whose::Seal => self.finish(place, result, payload),
                None if piece.whose != Whose::Seal
                    && piece.command == Command::Write
                    && planted(Bug::RequestDropped) =>
                {
                    self.drop_request(place);
                }
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
        self.look = Look::default();
        let Session { pieces, parked, .. } = self;
        let (mut kept, mut gone): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for (place, piece) in pieces.iter() {
            let is_op = matches!(piece.whose, Whose::Op(_));
            if is_op { kept.push(place) } else { gone.push(place) }
        }
        gone.into_iter().for_each(|place| drop(pieces.take(place)));
        kept.sort_by_key(|place| pieces.get(*place).map(|piece| piece.serial));
        *parked = kept.into();
        if planted(Bug::FlushAnsweredOverBreak) {
            self.flush_ended(Ok(()));
        }
        if let Some(flight) = self.flight.take() {
            self.flush_wanted.extend(flight.ops);
        }
        self.rest_a_while(now);
    }
}
