//! Structured replies, the server's side (section "Structured reply chunk message").
//!
//! ```text
//!   READ          OFFSET_DATA (28 bytes, then the data) and OFFSET_HOLE (32 bytes) in ascending order,
//!                 the last one with DONE;   or one ERROR with DONE
//!   BLOCK_STATUS  one BLOCK_STATUS for each context, the last one with DONE;   or one ERROR with DONE
//! ```

use crate::error::NbdErrno;
use crate::limits::MAX_ERROR_MESSAGE_BYTES;
use crate::terms::{MetaContext, Placement};
use crate::wire::{CHUNK_HEADER_BYTES, STRUCTURED_REPLY_MAGIC, chunk_flag, chunk_type};

/// Length of what precedes the data of an OFFSET_DATA chunk in bytes.
pub const DATA_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 8;
/// Length of an OFFSET_HOLE chunk in bytes.
pub const HOLE_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 12;

fn header(cookie: u64, done: bool, kind: u16, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    let flags = if done { chunk_flag::DONE } else { 0 };
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// What precedes `length` bytes of data that begin at `offset` in the export; `length` is bounded by
/// [`MAX_PAYLOAD_BYTES`](crate::limits::MAX_PAYLOAD_BYTES).
#[inline]
pub fn data_chunk(cookie: u64, done: bool, offset: u64, length: u32) -> [u8; DATA_CHUNK_BYTES] {
    let mut bytes = [0; DATA_CHUNK_BYTES];
    let header = header(cookie, done, chunk_type::OFFSET_DATA, length + 8);
    bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header);
    bytes[CHUNK_HEADER_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A range of a READ that is all zeros and is not sent.
pub fn hole_chunk(cookie: u64, done: bool, offset: u64, length: u32) -> [u8; HOLE_CHUNK_BYTES] {
    let mut bytes = [0; HOLE_CHUNK_BYTES];
    bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&header(cookie, done, chunk_type::OFFSET_HOLE, 12));
    bytes[CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES + 8].copy_from_slice(&offset.to_be_bytes());
    bytes[CHUNK_HEADER_BYTES + 8..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The whole of a structured reply that says that a request failed, with a few words for people.
pub fn error_chunk(cookie: u64, error: NbdErrno) -> Vec<u8> {
    let message = error.to_string();
    let message = &message.as_bytes()[..message.len().min(MAX_ERROR_MESSAGE_BYTES)];
    // Bounded just now, so the lengths fit.
    let mut bytes = header(cookie, true, chunk_type::ERROR, (4 + 2 + message.len()) as u32).to_vec();
    bytes.extend_from_slice(&error.code().to_be_bytes());
    bytes.extend_from_slice(&(message.len() as u16).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes
}

/// Appends the chunk that tells one context's words for consecutive extents, given by their length in bytes,
/// from the offset of the request. Neighbours with one word are merged; with `one` only the first is told
/// (section "Command flags", REQ_ONE). There must be at least one extent, and their number bounded by
/// [`MAX_STATUS_EXTENTS`](crate::limits::MAX_STATUS_EXTENTS).
pub fn status_chunk(
    out: &mut Vec<u8>,
    cookie: u64,
    done: bool,
    context: MetaContext,
    extents: impl IntoIterator<Item = (u32, Placement)>,
    one: bool,
) {
    let start = out.len();
    out.extend_from_slice(&[0; CHUNK_HEADER_BYTES]);
    out.extend_from_slice(&context.id().to_be_bytes());
    let mut run: Option<(u32, u32)> = None;
    for (length, placement) in extents {
        let word = context.word(placement);
        match &mut run {
            // A request has at most 4 GiB less one byte, and so has the sum of its extents.
            Some((sum, same)) if *same == word => *sum += length,
            Some(_) if one => break,
            _ => {
                push_extent(out, run);
                run = Some((length, word));
            }
        }
    }
    push_extent(out, run);
    let length = (out.len() - start - CHUNK_HEADER_BYTES) as u32;
    let header = header(cookie, done, chunk_type::BLOCK_STATUS, length);
    out[start..start + CHUNK_HEADER_BYTES].copy_from_slice(&header);
}

fn push_extent(out: &mut Vec<u8>, extent: Option<(u32, u32)>) {
    if let Some((length, word)) = extent {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&word.to_be_bytes());
    }
}
