//! Flushes: one at a time, shared by all who wait; and the room that the journal has.

use super::terms::News;
use super::{Flight, Mode, Session};
use crate::bugs::{Bug, planted};
use crate::piece::Whose;
use bimetal_nbd::Command;

impl Session {
    pub(super) fn want_flush(&mut self, place: u32) {
        if self.has_nothing_to_flush() {
            return self.end(place);
        }
        self.flush_wanted.push(place);
    }

    /// Whether there is nothing that a server could lose.
    fn has_nothing_to_flush(&self) -> bool {
        self.journal.is_empty() && (!self.is_unsure || planted(Bug::FirstFlushSpared))
    }

    /// Sends a flush, where somebody waits for one or the journal grows, and none is under way.
    pub(super) fn begin_flush(&mut self) {
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
        if self.has_nothing_to_flush() {
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

    pub(super) fn flush_ended(&mut self, result: Result<(), i32>) {
        let Some(Flight { ops, covers }) = self.flight.take() else { return };
        match result {
            Ok(()) => {
                let covers = if planted(Bug::GreedyFlush) { self.journal.now() } else { covers };
                self.journal.forget(covers);
                self.is_unsure = false;
                ops.into_iter().for_each(|op| self.end(op));
                self.release();
            }
            Err(errno) => self.flush_failed(ops, errno),
        }
    }

    /// Writes that waited for room go on.
    pub(super) fn release(&mut self) {
        let queue = if self.mode == Mode::Looking { &mut self.parked } else { &mut self.waiting };
        while let Some(piece) = self.held.pop_back() {
            queue.push_front(piece);
        }
    }

    /// Whoever waits is told, and writes that wait for room as well: the server keeps nothing. All that it may have dropped is
    /// written again before the next flush.
    pub(super) fn flush_failed(&mut self, ops: Vec<u32>, errno: i32) {
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
            if let Some(Whose::Op(op)) = self.pieces.take(piece).map(|piece| piece.whose) {
                self.op_went_on(op, Err(errno));
            }
        }
        if !planted(Bug::FailedFlushForgotten) && matches!(self.mode, Mode::Up | Mode::Looking) {
            self.mode = Mode::Draining;
            self.forget_look();
            self.parked.append(&mut self.waiting);
        }
    }
}
