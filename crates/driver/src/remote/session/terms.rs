//! What goes into a session and comes out of it.

use bimetal_engine::action::BufList;
use bimetal_engine::arena::Buf;
use bimetal_units::Nanos;

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
pub(crate) enum Planted {
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
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let at = self.used;
        self.scratch[at..at + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        match self.parts.last_mut() {
            Some(Part::Scratch { at: first, len }) if *first + *len == at => *len += bytes.len(),
            _ => self.parts.push(Part::Scratch { at, len: bytes.len() }),
        }
    }

    pub(super) fn has_room(&self, bytes: usize, parts: usize) -> bool {
        self.scratch.len() - self.used >= bytes && self.parts.len() + parts < self.most_parts
    }
}
