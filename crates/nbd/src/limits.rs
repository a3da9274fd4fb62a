//! Every bound this crate sets, with its unit and its reason.

use crate::wire::OPTION_HEADER_BYTES;

/// Longest export name or description, in bytes: the bound the specification puts on any string
/// (section "String encoding").
pub const MAX_STRING_BYTES: usize = 4096;

/// Most data one option may carry, in bytes. The largest sensible option is a GO with a 4096-byte name and a
/// few information requests; metadata queries carry a name and a handful of short queries. Beyond this the length is taken for nonsense and the connection ends.
pub const MAX_OPTION_DATA_BYTES: usize = 16 * 1024;

/// Longest message of a handshake, in bytes: a receive buffer of this size always makes progress.
pub const MAX_HANDSHAKE_MESSAGE_BYTES: usize = OPTION_HEADER_BYTES + MAX_OPTION_DATA_BYTES;

/// Most options one client may send in a handshake. A client that lists the exports and asks for information
/// on each of [`MAX_EXPORTS`] needs a few per export; a client that never ends its haggling is cut off.
pub const MAX_OPTIONS: u32 = 512;

/// Most bytes one handshake may be answered with. A LIST is a small question with a large answer; a full one
/// takes about 1 MiB, so this allows a few and stops a client that asks for hundreds.
pub const MAX_HANDSHAKE_REPLY_BYTES: usize = 4 * 1024 * 1024;

/// Most exports one server offers: bounds the search for a name and the answer to LIST.
pub const MAX_EXPORTS: usize = 128;

/// Largest export, in bytes: clients hold sizes and offsets in a signed 64-bit `off_t`.
pub const MAX_EXPORT_SIZE_BYTES: u64 = i64::MAX as u64;

/// Longest payload of a READ or WRITE, in bytes: 32 MiB is what a client may assume without negotiation
/// (section "Block size constraints"), and what we announce as the maximum. TRIM and WRITE_ZEROES carry no
/// payload and are not bound by it.
pub const MAX_PAYLOAD_BYTES: u32 = 32 * 1024 * 1024;

/// Most chunks of content in one structured reply to a READ: a reply that alternated between data and holes
/// at every block would cost more in headers and parts of a send than the zeros it spares. What is beyond is
/// sent as data.
pub const MAX_READ_CHUNKS: usize = 16;

/// Most extents reported for one metadata context in the reply to a BLOCK_STATUS: 8 KiB, a small part of a
/// send buffer. A client that wants to know more asks again from where the answer ended (section "Request
/// types", BLOCK_STATUS).
pub const MAX_STATUS_EXTENTS: usize = 1024;

/// Longest message beside an error in a structured reply, in bytes: one short sentence. A client that gets a
/// longer one reads it within the 4096 bytes of any string.
pub const MAX_ERROR_MESSAGE_BYTES: usize = 128;

/// Smallest unit of offset and length we accept, in bytes: requests need no alignment.
pub const MIN_BLOCK_BYTES: u32 = 1;

/// Unit of offset and length that costs no read-modify-write, in bytes: a block of the volume.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;

/// Most replies the client side reads to one GO: a server has four kinds of information to give, so one that
/// sends more than this is not going to end.
pub const MAX_CLIENT_OPTION_REPLIES: u32 = 64;
