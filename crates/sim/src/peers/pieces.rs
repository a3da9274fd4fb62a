//! A command in pieces of chunks, and pieces that lie together as one device command.

use super::rig::{Rig, Ticket};
use bimetal_models::{Command, Kind};

/// A part of a command that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The chunk.
    pub(super) number: u64,
    /// Where in it.
    pub(super) within: u64,
    /// Bytes.
    pub(super) len: u64,
}

/// The pieces of a range, in order.
pub(super) fn pieces(offset: u64, len: u64, chunk: u64) -> impl Iterator<Item = Piece> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let (number, within) = (at / chunk, at % chunk);
        let len = (chunk - within).min(end - at);
        at += len;
        (len > 0).then_some(Piece { number, within, len })
    })
}

/// The chunks that lie wholly in a range.
pub(super) fn whole_chunks(offset: u64, len: u64, chunk: u64) -> std::ops::Range<u64> {
    let first = offset.div_ceil(chunk);
    first..((offset + len) / chunk).max(first)
}

/// Device commands of a client, joined where one goes on where the other ends: the layers below a mapping do so, too.
pub(super) struct Runs {
    kind: Kind,
    run: Option<(usize, u64, u64)>,
}

impl Runs {
    pub(super) fn new(kind: Kind) -> Runs {
        Runs { kind, run: None }
    }

    /// A piece lies there.
    pub(super) fn add(&mut self, rig: &mut Rig, ticket: Ticket, device: usize, offset: u64, len: u64) {
        if let Some((same, from, run_len)) = &mut self.run
            && *same == device
            && *from + *run_len == offset
        {
            *run_len += len;
            return;
        }
        self.end(rig, ticket);
        self.run = Some((device, offset, len));
    }

    /// There are no more pieces.
    pub(super) fn end(&mut self, rig: &mut Rig, ticket: Ticket) {
        if let Some((device, offset, len)) = self.run.take() {
            rig.client(ticket, device, Command { kind: self.kind, offset, len });
        }
    }
}
