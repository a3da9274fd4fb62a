//! Requests as they go over the wire: an operation is one, or several where it is long.

use bimetal_engine::action::BufList;
use bimetal_engine::arena::Buf;
use bimetal_nbd::Command;
use bimetal_units::Nanos;

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// An operation, by its place.
    Op(u32),
    /// Nobody: what a server may have lost is written again.
    Journal,
    /// Nobody: a place by which it is seen whether the export still is the one it was.
    Seal,
    /// All who wait for a flush.
    Flush,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has not been sent, or has to be sent again.
    Waiting,
    /// Its bytes are being handed to the kernel for this connection: its buffers must stay as they are.
    Sending(usize),
    /// It is with the server.
    Sent(usize),
}

/// One request.
#[derive(Debug)]
pub(super) struct Piece {
    /// Rises with every request that is made.
    pub(super) serial: u64,
    /// The number of its last sending; its lower half is in the cookie.
    pub(super) sending: u64,
    pub(super) whose: Whose,
    pub(super) command: Command,
    pub(super) fua: bool,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// The payload of an operation.
    pub(super) bufs: BufList,
    pub(super) stage: Stage,
    /// When it was sent last.
    pub(super) sent_at: Nanos,
    /// The answer, where it has come before the kernel let go of the buffers.
    pub(super) answer: Option<Result<(), i32>>,
    /// The error that a chunk told, of a reply that goes on.
    pub(super) error: Option<i32>,
    /// Bytes of a read that have come.
    pub(super) come: u32,
    /// Of the journal: where in its entry it begins.
    pub(super) entry_at: u32,
    /// What was read of a seal.
    pub(super) bytes: Vec<u8>,
}

impl Piece {
    /// A request that has not been sent.
    pub(super) fn new(serial: u64, whose: Whose, command: Command, offset: u64, len: u32) -> Piece {
        Piece {
            serial,
            sending: 0,
            whose,
            command,
            fua: false,
            offset,
            len,
            bufs: BufList::new(),
            stage: Stage::Waiting,
            sent_at: Nanos(0),
            answer: None,
            error: None,
            come: 0,
            entry_at: 0,
            bytes: Vec::new(),
        }
    }

    /// It is to be sent from its beginning.
    pub(super) fn again(&mut self) {
        (self.stage, self.answer, self.error, self.come) = (Stage::Waiting, None, None, 0);
        self.bytes.clear();
    }

    /// The connection that it is on.
    pub(super) fn conn(&self) -> Option<usize> {
        match self.stage {
            Stage::Waiting => None,
            Stage::Sending(conn) | Stage::Sent(conn) => Some(conn),
        }
    }

    /// Whether a server that is given it may forget it again.
    pub(super) fn is_volatile_write(&self) -> bool {
        self.command == Command::Write && !self.fua && matches!(self.whose, Whose::Op(_))
    }
}

/// Cuts buffers that follow each other into pieces of at most `most` bytes; gives where each begins, and its length.
pub(super) fn cut(bufs: &[Buf], most: u32) -> Vec<(u64, u32, BufList)> {
    let mut pieces: Vec<(u64, u32, BufList)> = Vec::new();
    let (mut at, mut room) = (0u64, 0u32);
    for &buf in bufs {
        let mut used = 0;
        while used < buf.len {
            if room == 0 {
                pieces.push((at, 0, BufList::new()));
                room = most;
            }
            let len = room.min(buf.len - used);
            if let Some((_, bytes, list)) = pieces.last_mut() {
                list.push(buf.slice(used, len));
                *bytes += len;
            }
            (used, room, at) = (used + len, room - len, at + u64::from(len));
        }
    }
    pieces
}
