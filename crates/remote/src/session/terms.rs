//! What goes into a session and comes out of it.

use bimetal_engine::action::BufList;
use bimetal_engine::arena::Buf;
use bimetal_nbd::{RemoteExport, TransmissionFlags, limits};
use bimetal_units::Nanos;

/// Where the payload of operations is.
pub trait Payload {
    /// Appends the bytes of a buffer.
    fn load(&mut self, buf: Buf, out: &mut Vec<u8>);
    /// Puts bytes at the front of a buffer.
    fn store(&mut self, buf: Buf, bytes: &[u8]);
}

/// What is asked of an export.
#[derive(Clone, Debug)]
pub enum Ask {
    /// As many bytes as the buffer has.
    Read {
        /// Where they are.
        offset: u64,
        /// Where they go.
        buf: Buf,
    },
    /// The bytes of these buffers, one behind the other.
    Write {
        /// Where they go.
        offset: u64,
        /// What they are; they stay as they are until the answer.
        bufs: BufList,
        /// Whether the answer says that they outlive the server.
        durable: bool,
    },
    /// All that has been answered is to outlive the server.
    Flush,
    /// What a range holds is of no value any more.
    Trim {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        len: u64,
    },
}

/// What was agreed on with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// How large the export is.
    pub size_bytes: u64,
    /// It takes no writes.
    pub read_only: bool,
    /// It can be flushed.
    pub flush: bool,
    /// A write can be made durable by itself.
    pub fua: bool,
    /// It takes trims.
    pub trim: bool,
    /// A flush on one connection covers all.
    pub multi: bool,
    /// The longest payload.
    pub most_bytes: u32,
}

impl Agreed {
    /// What a server granted.
    pub fn of(export: &RemoteExport) -> Agreed {
        let has = |flag| export.flags.contains(flag);
        let most_bytes = export.block_size.map_or(limits::MAX_PAYLOAD_BYTES, |size| size.maximum);
        Agreed {
            size_bytes: export.size_bytes,
            read_only: has(TransmissionFlags::READ_ONLY),
            flush: has(TransmissionFlags::SEND_FLUSH),
            fua: has(TransmissionFlags::SEND_FUA),
            trim: has(TransmissionFlags::SEND_TRIM),
            multi: has(TransmissionFlags::CAN_MULTI_CONN),
            most_bytes: most_bytes / bimetal_units::BLOCK_BYTES * bimetal_units::BLOCK_BYTES,
        }
    }
}

/// Says what is wrong with blocks.
pub type Judge = Box<dyn Fn(&[Vec<u8>]) -> Result<(), Doubt>>;

/// Why an export is not known as the one that it was: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nothing is there by which it could be known. Amid its use that may be a write of ours that is under way.
    Nothing(String),
    /// It is known as something else.
    Other(String),
}

/// By what an export is known as the one that it was: the blocks at these places, and who judges them.
pub struct Seal {
    /// Where they are.
    pub places: Vec<u64>,
    /// Who judges them, in this order.
    pub judge: Judge,
}

/// Something to be told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A connection broke, for this reason.
    Broke(String),
    /// It is back after so long; so many requests were sent again.
    Back {
        /// How long it was away.
        away_ns: u64,
        /// Requests that were sent again.
        resent: u64,
    },
    /// It is not what it was, and nothing more is asked of it.
    Lost(String),
    /// It answers with errors where it must not.
    Failed(String),
}

/// What the owner of the sockets is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
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
pub struct Standing {
    /// Connections there are.
    pub connections: u32,
    /// Since when it is away.
    pub away_since: Option<Nanos>,
    /// How often it went away.
    pub breaks: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// Bytes that are written and not flushed.
    pub journal_bytes: u64,
}

/// What is to be sent on a connection.
pub struct Outbox<'a> {
    /// Room for headers, and for payload that is in no buffer.
    scratch: &'a mut [u8],
    used: usize,
    parts: Vec<Part>,
    most_parts: usize,
}

/// A part of what is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Bytes of the scratch room.
    Scratch {
        /// Where they begin.
        at: usize,
        /// How many.
        len: usize,
    },
    /// A buffer of an operation.
    Buf(Buf),
}

impl<'a> Outbox<'a> {
    /// An empty one, for so many parts at most.
    pub fn new(scratch: &'a mut [u8], most_parts: usize) -> Outbox<'a> {
        Outbox { scratch, used: 0, parts: Vec::with_capacity(most_parts.min(16)), most_parts }
    }

    /// What is to be sent, in this order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The scratch room as far as it is used.
    pub fn scratch(&self) -> &[u8] {
        &self.scratch[..self.used]
    }

    /// Bytes of the scratch room that are used.
    pub fn used(&self) -> usize {
        self.used
    }

    pub(super) fn add(&mut self, buf: Buf) {
        self.parts.push(Part::Buf(buf));
    }

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
