//! The server's side of the transmission phase: requests in, reply headers out.

use crate::error::{NbdErrno, ProtocolError};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::request::{Command, Request};
use crate::wire::{Fields, REQUEST_HEADER_BYTES, REQUEST_MAGIC, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC};

/// What stands at the front of the bytes shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parse {
    /// Less than a whole header.
    NeedMore,
    /// A request.
    Request {
        /// Bytes of the header, now used up.
        consumed: usize,
        /// What it asks for; for a WRITE the payload follows.
        request: Request,
    },
}

/// The parser of a request stream (section "Request message").
///
/// It looks at headers only. After a request whose [`Request::payload_bytes`] is not 0 the driver takes that
/// many bytes off the stream itself, some perhaps from its receive buffer and the rest straight into a write
/// buffer, and shows the parser what comes after them. Nothing here allocates.
#[derive(Debug, Default)]
pub struct Transmission {
    ended: Option<ProtocolError>,
}

impl Transmission {
    /// A parser at the first request.
    pub const fn new() -> Self {
        Transmission { ended: None }
    }

    /// Parses the request at the front of `input`.
    ///
    /// A request that parses is not yet a valid one: see [`Request::validate`]. An error is fatal to the
    /// connection: bad magic, or a WRITE above 32 MiB, means that the place in the stream is lost; and
    /// nothing may follow a DISC.
    #[inline]
    pub fn next(&mut self, input: &[u8]) -> Result<Parse, ProtocolError> {
        if let Some(error) = self.ended
            && !input.is_empty()
        {
            return Err(error);
        }
        let Some(header) = input.first_chunk::<REQUEST_HEADER_BYTES>() else {
            return Ok(Parse::NeedMore);
        };
        match parse_header(header) {
            Ok(request) => {
                if request.command == Command::Disconnect {
                    self.ended = Some(ProtocolError::RequestAfterDisconnect);
                }
                Ok(Parse::Request { consumed: REQUEST_HEADER_BYTES, request })
            }
            Err(error) => {
                self.ended = Some(error);
                Err(error)
            }
        }
    }
}

#[inline]
fn parse_header(header: &[u8; REQUEST_HEADER_BYTES]) -> Result<Request, ProtocolError> {
    let mut fields = Fields::new(header);
    // The array holds all fields, so the defaults are never taken.
    let magic = fields.u32().unwrap_or_default();
    if magic != REQUEST_MAGIC {
        return Err(ProtocolError::BadRequestMagic { found: magic });
    }
    let flags = fields.u16().unwrap_or_default();
    let code = fields.u16().unwrap_or_default();
    let cookie = fields.u64().unwrap_or_default();
    let offset = fields.u64().unwrap_or_default();
    let length = fields.u32().unwrap_or_default();
    let request = Request::from_wire(flags, code, cookie, offset, length);
    if request.payload_bytes() > MAX_PAYLOAD_BYTES {
        return Err(ProtocolError::PayloadTooLong { length });
    }
    Ok(request)
}

/// The header of a reply (section "Simple reply message"). After a READ without error, and only then, the
/// data read follows it.
#[inline]
pub const fn simple_reply(cookie: u64, error: Option<NbdErrno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let code = match error {
        Some(error) => error.code(),
        None => 0,
    };
    let fields = (SIMPLE_REPLY_MAGIC as u128) << 96 | (code as u128) << 64 | cookie as u128;
    fields.to_be_bytes()
}
