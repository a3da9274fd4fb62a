//! A piece on its way: read of the old device, written to the new one, or left out where it cannot be read.

use crate::bugs::{Bug, planted};
use crate::copying::Stage;
use crate::replacement::{Own, Replacement, SUCCESSOR};
use bimetal_engine::Machine;
use bimetal_engine::action::{Action, BufList, Class, DeviceError};
use bimetal_engine::arena::{Arena, Buf, Pool};
use bimetal_engine::format::left_out;
use bimetal_units::{BLOCK_BYTES, Nanos};
use std::ops::Range;

impl Replacement {
    /// Begins what it is time for, and goes on with what waited for writes.
    pub(crate) fn begin_pieces<M: Machine>(&mut self, now: Nanos, machine: &mut M) {
        if self.has_failed() {
            for range in self.copying.waiting() {
                let freed = self.copying.give_up(range.start);
                machine.with_arena(|arena| freed.into_iter().for_each(|buf| arena.free(buf)));
            }
            return;
        }
        let tier = self.plan.tier;
        let needed = |machine: &M, rest: Range<u64>, most| match planted(Bug::NeededLeftOut) {
            true => None,
            false => machine.next_needed(tier, rest, most),
        };
        while let Some(range) = self.copying.choose(now, |rest, most| needed(machine, rest, most)) {
            match machine.with_arena(|arena| arena.alloc(pool(), (range.end - range.start) as u32)) {
                Some(buf) => self.copying.begin(range, buf, now),
                None => self.copying.put_back(range, now),
            }
        }
        for range in self.copying.waiting() {
            if !self.is_being_written(&range) || planted(Bug::PieceNotAwaited) {
                self.read_piece(range.start, Stage::Reading, range.start, now);
            }
        }
    }

    /// A device answered what was asked for a piece.
    pub(crate) fn piece_done<A: Arena>(
        &mut self,
        start: u64,
        now: Nanos,
        result: Result<(), DeviceError>,
        arena: &mut A,
    ) {
        let Some(piece) = self.copying.piece(start) else { return };
        let (stage, buf) = (piece.stage, piece.buf);
        let freed = match (stage, result) {
            _ if self.has_failed() => self.copying.give_up(start),
            (Stage::Reading, Ok(())) => {
                self.old_has_read();
                return self.write_piece(start, now);
            }
            (Stage::Reading, Err(_)) if planted(Bug::UnreadIsCopied) => self.copying.copied(start, now),
            (Stage::Reading, Err(_)) if self.copying.wants_probe(start) => {
                let own = self.plan.own[usize::from(self.probes_second)];
                return self.read_piece(start, Stage::Probing, own, now);
            }
            (Stage::Probing, Ok(())) => {
                self.old_has_read();
                return self.leave_out(start, buf, now, arena);
            }
            (Stage::Probing, Err(_)) if planted(Bug::LeftUnproven) => {
                return self.leave_out(start, buf, now, arena);
            }
            (Stage::Reading | Stage::Probing, _) => {
                // A superblock may be bad as well.
                self.probes_second ^= stage == Stage::Probing;
                self.copying.unread(start, now)
            }
            (_, Ok(())) => self.copying.copied(start, now),
            (_, Err(_)) => {
                self.must(result);
                self.copying.give_up(start)
            }
        };
        freed.into_iter().for_each(|buf| arena.free(buf));
    }

    /// A block could not be read, and the device reads other things: another time, it is tried again; at last it is left out.
    fn leave_out<A: Arena>(&mut self, start: u64, payload: Buf, now: Nanos, arena: &mut A) {
        let text = self.copying.is_proven(start).then(|| arena.alloc(Pool::CopyMeta, BLOCK_BYTES)).flatten();
        let Some(text) = text else {
            let freed = self.copying.unread(start, now);
            return freed.into_iter().for_each(|buf| arena.free(buf));
        };
        arena.bytes_mut(text).copy_from_slice(left_out::block());
        arena.free(payload);
        self.copying.leave_out(start, text);
        self.write_piece(start, now);
    }

    /// The old device reads so many bytes as the piece has, from a byte on.
    fn read_piece(&mut self, start: u64, stage: Stage, offset: u64, now: Nanos) {
        let Some(piece) = self.copying.piece(start) else { return };
        piece.stage = stage;
        let (device, buf) = (self.plan.tier, piece.buf);
        self.ask(Own::Piece(start), device, now, |token| Action::Read {
            device,
            offset,
            buf,
            token,
            class: Class::Background,
        });
    }

    fn write_piece(&mut self, start: u64, now: Nanos) {
        let Some(piece) = self.copying.piece(start) else { return };
        piece.stage = Stage::Writing;
        let (offset, bufs) = (start, BufList::from_elem(piece.buf, 1));
        self.ask_new(Own::Piece(start), now, |token| Action::Write {
            device: SUCCESSOR,
            offset,
            bufs,
            fua: false,
            token,
            class: Class::Background,
        });
    }
}

/// Where memory for payload comes from. Who waits for that of the engine's would not hear that it is there again.
fn pool() -> Pool {
    if planted(Bug::MemoryShared) { Pool::Background } else { Pool::Successor }
}
