//! Whether the export still is what it was: after a break, each second while it is used, and after a pause before anything else.

use super::terms::Doubt;
use super::{Mode, Session};
use crate::bugs::{Bug, planted};
use crate::piece::{Piece, Stage, Whose};
use bimetal_nbd::Command;
use bimetal_units::Nanos;

/// While it is used, its superblocks are read so often.
const EVERY_NS: u64 = Nanos::SECOND;
/// Where they were not read for so long, nothing is asked before they have been: somebody else may have opened the volume.
const PAUSE_NS: u64 = 2 * Nanos::SECOND;
/// Looks in a row that must find nothing there.
const LOOKS: u32 = 3;

/// When it was looked.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The last time.
    at: Option<Nanos>,
    is_under_way: bool,
    /// It took so long that another is due.
    is_due: bool,
    /// Looks in a row that found nothing.
    doubts: u32,
}

impl Look {
    /// It begins now, and nothing else is asked meanwhile.
    pub(super) fn alone(now: Nanos) -> Look {
        Look { at: Some(now), ..Look::default() }
    }
}

impl Session {
    /// Something is about to be sent: looks first, or beside it, where nobody has of late. An export that nobody uses is let
    /// alone.
    pub(super) fn look(&mut self, now: Nanos) {
        let since = self.look.at.map_or(u64::MAX, |at| now.since(at));
        if self.mode != Mode::Up || self.seal.is_none() || since < EVERY_NS || planted(Bug::NobodyLooks) {
            return;
        }
        if self.look.is_under_way {
            self.look.is_due = true;
            return;
        }
        if since >= PAUSE_NS {
            self.hold();
        }
        self.begin_look(now);
    }

    /// This process was stopped perhaps, or its machine slept: looks before it goes on with what it had begun.
    pub(super) fn look_after_gap(&mut self, now: Nanos) {
        let gap = now.since(std::mem::replace(&mut self.time, now));
        if gap < PAUSE_NS || self.mode != Mode::Up || self.seal.is_none() || self.pieces.is_empty() {
            return;
        }
        self.hold();
        match self.look.is_under_way {
            true => self.look.is_due = true,
            false => self.begin_look(now),
        }
    }

    /// What has not been sent waits until it was looked.
    fn hold(&mut self) {
        self.mode = Mode::Looking;
        let (seal, held) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|place| self.pieces.get(*place).is_some_and(|piece| piece.whose == Whose::Seal));
        self.waiting = seal;
        self.parked = held;
    }

    fn begin_look(&mut self, now: Nanos) {
        self.look = Look { at: Some(now), is_under_way: true, is_due: false, ..self.look };
        self.read_seal();
    }

    /// It will be looked anew before anything else is sent.
    pub(super) fn forget_look(&mut self) {
        let Session { waiting, pieces, .. } = self;
        waiting.retain(|place| {
            let is_seal = pieces.get(*place).is_some_and(|piece| piece.whose == Whose::Seal);
            if is_seal {
                pieces.take(*place);
            }
            !is_seal
        });
        self.look = Look::default();
    }

    /// Reads what it is known by.
    pub(super) fn read_seal(&mut self) {
        let places = self.seal.as_ref().map(|seal| seal.places.clone()).unwrap_or_default();
        for offset in places {
            let piece = self.piece_of(Whose::Seal, Command::Read, offset, bimetal_units::BLOCK_BYTES);
            let piece = self.pieces.insert(piece);
            self.waiting.push_back(piece);
        }
    }

    /// Whether all of that has been read, and nobody looks at the requests any more.
    pub(super) fn has_looked(&self) -> bool {
        let is_read = |piece: &Piece| piece.answer.is_some() && matches!(piece.stage, Stage::Sent(_));
        let mut pieces = self.pieces.iter().filter(|(_, piece)| piece.whose == Whose::Seal);
        self.look.is_under_way && pieces.all(|(_, piece)| is_read(piece))
    }

    /// It was looked while it is used. Errors of a device are what whoever reads there hears; they say nothing of whose it is.
    pub(super) fn looked(&mut self, now: Nanos) {
        let verdict = self.verdict();
        self.look.is_under_way = false;
        self.look.doubts = match verdict {
            Ok(Err(Doubt::Other(why))) => return self.lose(why),
            Ok(Err(Doubt::Nothing(why))) if self.look.doubts + 1 >= LOOKS => return self.lose(why),
            Ok(Err(Doubt::Nothing(_))) => self.look.doubts + 1,
            Ok(Ok(())) | Err(_) => 0,
        };
        if self.look.is_due {
            return self.begin_look(now);
        }
        if self.mode == Mode::Looking {
            self.mode = Mode::Up;
            self.waiting.append(&mut self.parked);
        }
    }

    /// What the blocks say that were read; the error where none could be.
    pub(super) fn verdict(&mut self) -> Result<Result<(), Doubt>, i32> {
        let of_seal = |(place, piece): (u32, &Piece)| (piece.whose == Whose::Seal).then_some(place);
        let places: Vec<u32> = self.pieces.iter().filter_map(of_seal).collect();
        let mut blocks: Vec<Piece> = places.into_iter().filter_map(|place| self.pieces.take(place)).collect();
        blocks.sort_by_key(|piece| piece.serial);
        // Those of a look that was given up are older.
        let places = self.seal.as_ref().map_or(0, |seal| seal.places.len());
        blocks.drain(..blocks.len().saturating_sub(places));
        let failed: Vec<i32> = blocks.iter().filter_map(|piece| piece.answer.and_then(Result::err)).collect();
        if let Some(errno) = failed.first().filter(|_| failed.len() == blocks.len()) {
            return Err(*errno);
        }
        // One that cannot be read says nothing, as long as another does.
        let read = |piece: Piece| match piece.answer {
            Some(Ok(())) => piece.bytes,
            _ => vec![0; piece.len as usize],
        };
        let blocks: Vec<Vec<u8>> = blocks.into_iter().map(read).collect();
        Ok(self.seal.as_ref().map_or(Ok(()), |seal| (seal.judge)(&blocks)))
    }
}
