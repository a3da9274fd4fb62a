//! Replies, the client's side: simple ones, and the chunks of structured ones.

use crate::client::ClientError;
use crate::error::NbdErrno;
use crate::limits::{MAX_PAYLOAD_BYTES, MAX_STATUS_EXTENTS, MAX_STRING_BYTES};
use crate::wire::{CHUNK_HEADER_BYTES, Fields, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC};
use crate::wire::{STRUCTURED_REPLY_MAGIC, chunk_flag, chunk_type};

/// The header of a reply; where it answers a READ without error, the data follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleReply {
    /// The cookie of the request that it answers.
    pub cookie: u64,
    /// Whether the request succeeded.
    pub result: Result<(), NbdErrno>,
}

/// Parses the reply header at the front of `input`, [`SIMPLE_REPLY_BYTES`] long; `None` where it is not
/// complete (section "Simple reply message").
#[inline]
pub fn parse_simple_reply(input: &[u8]) -> Result<Option<SimpleReply>, ClientError> {
    let Some(header) = input.first_chunk::<SIMPLE_REPLY_BYTES>() else { return Ok(None) };
    let fields = u128::from_be_bytes(*header);
    let (magic, code, cookie) = ((fields >> 96) as u32, (fields >> 64) as u32, fields as u64);
    if magic != SIMPLE_REPLY_MAGIC {
        return Err(ClientError::BadReplyMagic { found: magic });
    }
    let result = if code == 0 { Ok(()) } else { Err(NbdErrno::from_code(code)) };
    Ok(Some(SimpleReply { cookie, result }))
}

/// The header of a structured reply's chunk (section "Structured reply chunk message").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead {
    /// The cookie of the request that it answers.
    pub cookie: u64,
    /// Whether it is the reply's last.
    pub done: bool,
}

/// One extent of a BLOCK_STATUS chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub length: u32,
    /// What the context says of it.
    pub word: u32,
}

/// What a chunk carries (section "Structured reply types").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Nothing: the end of a reply.
    None,
    /// Data of a READ; its bytes follow in the stream.
    Data {
        /// Where it begins in the export.
        offset: u64,
        /// How many bytes follow; at most [`MAX_PAYLOAD_BYTES`].
        length: u32,
    },
    /// Zeros of a READ.
    Hole {
        /// Where they begin in the export.
        offset: u64,
        /// How many they are.
        length: u32,
    },
    /// What a metadata context says, from the offset of the request on.
    Status {
        /// The context's number.
        context: u32,
        /// Consecutive extents; at most [`MAX_STATUS_EXTENTS`].
        extents: Vec<Extent>,
    },
    /// The request failed.
    Error {
        /// How.
        error: NbdErrno,
        /// In words, perhaps none.
        message: String,
    },
}

/// Parses the chunk at the front of `input`; `None` where it is not complete. Gives the bytes used up: all of
/// the chunk but the data of [`Chunk::Data`], which the caller takes off the stream itself. Types that this
/// client does not know are an error, as the specification has it.
pub fn parse_chunk(input: &[u8]) -> Result<Option<(usize, ChunkHead, Chunk)>, ClientError> {
    let mut fields = Fields::new(input);
    let Some(magic) = fields.u32() else { return Ok(None) };
    if magic != STRUCTURED_REPLY_MAGIC {
        return Err(ClientError::BadReplyMagic { found: magic });
    }
    let (Some(flags), Some(kind), Some(cookie), Some(length)) =
        (fields.u16(), fields.u16(), fields.u64(), fields.u32())
    else {
        return Ok(None);
    };
    let bad = || ClientError::BadChunk { kind };
    if length as usize > longest(kind) {
        return Err(bad());
    }
    let taken = if kind == chunk_type::OFFSET_DATA { 8.min(length) } else { length } as usize;
    let Some(data) = fields.bytes(taken) else { return Ok(None) };
    let chunk = content(kind, Fields::new(data), length).ok_or_else(bad)?;
    let head = ChunkHead { cookie, done: flags & chunk_flag::DONE != 0 };
    Ok(Some((CHUNK_HEADER_BYTES + taken, head, chunk)))
}

/// Most bytes that a chunk of this type may carry.
fn longest(kind: u16) -> usize {
    match kind {
        chunk_type::NONE => 0,
        chunk_type::OFFSET_DATA => 8 + MAX_PAYLOAD_BYTES as usize,
        chunk_type::OFFSET_HOLE => 12,
        chunk_type::BLOCK_STATUS => 4 + 8 * MAX_STATUS_EXTENTS,
        kind if kind & chunk_type::ERROR_BIT != 0 => 4 + 2 + MAX_STRING_BYTES + 8,
        _ => 0,
    }
}

fn content(kind: u16, mut fields: Fields<'_>, length: u32) -> Option<Chunk> {
    let chunk = match kind {
        chunk_type::NONE => Chunk::None,
        chunk_type::OFFSET_DATA => {
            let offset = fields.u64()?;
            // An empty piece of data would let a reply go on for ever.
            Chunk::Data { offset, length: length.checked_sub(8).filter(|&length| length > 0)? }
        }
        chunk_type::OFFSET_HOLE => Chunk::Hole { offset: fields.u64()?, length: fields.u32()? },
        chunk_type::BLOCK_STATUS => {
            let context = fields.u32()?;
            let mut extents = Vec::new();
            while !fields.rest().is_empty() {
                extents.push(Extent { length: fields.u32()?, word: fields.u32()? });
            }
            Chunk::Status { context, extents }
        }
        kind if kind & chunk_type::ERROR_BIT != 0 => {
            let error = NbdErrno::from_code(fields.u32()?);
            let length = fields.u16()?;
            let message = String::from_utf8_lossy(fields.bytes(usize::from(length))?).into_owned();
            // What else an error of another type says (the offset of ERROR_OFFSET) is of no use here.
            return (kind != chunk_type::ERROR || fields.rest().is_empty())
                .then_some(Chunk::Error { error, message });
        }
        _ => return None,
    };
    fields.rest().is_empty().then_some(chunk)
}
