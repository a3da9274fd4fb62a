//! What a recording looks like: a head of 64 bytes, then frames. Numbers are little-endian.
//!
//! | head | size | |
//! |---|---|---|
//! | 0 | 8 | `BMflight` |
//! | 8 | 4 | version of this format |
//! | 12 | 4 | 0 |
//! | 16 | 8 | name of the engine: a hash of its source |
//! | 24 | 16 | version of the program, zeros behind it |
//! | 40 | 16 | identity of the volume |
//! | 56 | 4 | 0 |
//! | 60 | 4 | CRC32C of all before |
//!
//! | frame | size | |
//! |---|---|---|
//! | 0 | 4 | bytes behind this head of 24 |
//! | 4 | 4 | 1: a piece of a state; 2: its last piece; 3: calls |
//! | 8 | 8 | number of the frame: one more than that of the one before |
//! | 16 | 4 | 0 |
//! | 20 | 4 | CRC32C of these 20 bytes and of those behind |
//!
//! What is in the pieces is in the form of postcard: a state is the engine and its arena; calls are items, one behind
//! the other, none of which is in two frames, nor apart from the checksums that its call asked for.

use std::io::{self, Read};

/// The version of the format.
pub const VERSION: u32 = 1;
/// Bytes of the file's head.
pub(crate) const HEAD: usize = 64;
/// Bytes of a frame's head.
pub(crate) const FRAME_HEAD: usize = 24;
/// A frame is closed when it has so many bytes.
pub(crate) const FRAME_BYTES: usize = 256 << 10;
/// Longest frame that is taken: one item may be as long as the longest read of metadata.
pub(crate) const MAX_FRAME_BYTES: u32 = 64 << 20;
const MAGIC: &[u8; 8] = b"BMflight";

/// The engine that is compiled in, by its source.
pub(crate) const ENGINE: u64 = include!(concat!(env!("OUT_DIR"), "/engine_name.rs"));

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    State = 1,
    StateEnd = 2,
    Calls = 3,
}

/// Why something is no recording that can be done again.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no recording of `bimetal flight`")]
    Foreign,
    /// Its head is damaged.
    #[error("its head is damaged; nothing in it can be believed")]
    Head,
    /// It has another format.
    #[error("it has format {0}, and this program knows format {VERSION}; use the release that recorded it")]
    Format(u32),
    /// Another engine was recorded.
    #[error(
        "it was recorded by another build of the engine (release {release}, {engine:016x}); only that one does the same again, and this is {ENGINE:016x}"
    )]
    OtherEngine {
        /// The release that recorded it.
        release: String,
        /// The engine's name.
        engine: u64,
    },
    /// It has no state to begin from.
    #[error(
        "it ends before it has told how the engine was at its beginning; nothing of it can be done again"
    )]
    NoState,
    /// Its state makes no sense.
    #[error("how the engine was at its beginning makes no sense: {0}")]
    State(String),
}

/// The head of a recording.
pub(crate) fn head(volume: [u8; 16], engine: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&engine.to_le_bytes());
    let release = env!("CARGO_PKG_VERSION").as_bytes();
    let length = release.len().min(16);
    head[24..24 + length].copy_from_slice(&release[..length]);
    head[40..56].copy_from_slice(&volume);
    let sum = crc32c::crc32c(&head[..60]);
    head[60..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// Looks at a head: the volume's identity.
pub(crate) fn check_head(head: &[u8; HEAD]) -> Result<[u8; 16], RecordingError> {
    if head[..8] != *MAGIC {
        return Err(RecordingError::Foreign);
    }
    if word(&head[60..]) != crc32c::crc32c(&head[..60]) {
        return Err(RecordingError::Head);
    }
    if word(&head[8..]) != VERSION {
        return Err(RecordingError::Format(word(&head[8..])));
    }
    let engine = long(&head[16..]);
    if engine != ENGINE {
        let release = String::from_utf8_lossy(&head[24..40]).trim_end_matches('\0').to_owned();
        return Err(RecordingError::OtherEngine { release, engine });
    }
    let mut volume = [0; 16];
    volume.copy_from_slice(&head[40..56]);
    Ok(volume)
}

/// Makes a frame of its bytes, which have room for the head in front.
pub(crate) fn seal(frame: &mut [u8], kind: Kind, number: u64) {
    let (head, rest) = frame.split_at_mut(FRAME_HEAD);
    head[..4].copy_from_slice(&(rest.len() as u32).to_le_bytes());
    head[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..20].fill(0);
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..20]), rest);
    head[20..24].copy_from_slice(&sum.to_le_bytes());
}

/// The next frame of a recording: what it holds, its number, its bytes. None at the end; where that is no frame's end, or
/// what follows is damaged, the recording is torn.
pub(crate) fn next(from: &mut impl Read, torn: &mut bool) -> io::Result<Option<(Kind, u64, Vec<u8>)>> {
    let mut head = Vec::with_capacity(FRAME_HEAD);
    from.by_ref().take(FRAME_HEAD as u64).read_to_end(&mut head)?;
    if head.is_empty() {
        return Ok(None);
    }
    *torn = true;
    let length = if head.len() == FRAME_HEAD { word(&head) } else { u32::MAX };
    if length > MAX_FRAME_BYTES {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    from.by_ref().take(u64::from(length)).read_to_end(&mut bytes)?;
    let kind = match word(&head[4..]) {
        1 => Kind::State,
        2 => Kind::StateEnd,
        3 => Kind::Calls,
        _ => return Ok(None),
    };
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..20]), &bytes);
    if bytes.len() != length as usize || sum != word(&head[20..]) {
        return Ok(None);
    }
    *torn = false;
    Ok(Some((kind, long(&head[8..]), bytes)))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|at: usize| bytes[at]))
}

fn long(bytes: &[u8]) -> u64 {
    u64::from(word(&bytes[4..])) << 32 | u64::from(word(bytes))
}
