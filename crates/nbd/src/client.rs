//! The client's side, as far as tests and load tools need it: GO for one export, then simple replies.

use crate::error::NbdErrno;
use crate::export::TransmissionFlags;
use crate::limits::{MAX_CLIENT_OPTION_REPLIES, MAX_OPTION_DATA_BYTES, MAX_STRING_BYTES};
use crate::request::Request;
use crate::wire::{self, Fields, handshake_flag, info, opt, rep};
use crate::wire::{REQUEST_HEADER_BYTES, REQUEST_MAGIC, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC};

/// Why a client cannot go on with a server; fatal to the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Section "String encoding".
    #[error("the export name has {length} bytes, more than {MAX_STRING_BYTES}")]
    NameTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// Section "Newstyle negotiation".
    #[error("the server does not greet as an NBD server with fixed newstyle negotiation does")]
    BadGreeting,
    /// Section "Option reply types".
    #[error("the server's reply to an option is malformed")]
    BadOptionReply,
    /// Section "Option reply types", `NBD_REP_ERR_*`.
    #[error("the server refused the export with error {code}: {message}")]
    Refused {
        /// The error's number, without the bit that all errors share.
        code: u32,
        /// What the server said, perhaps nothing.
        message: String,
    },
    /// Section "Simple reply message".
    #[error("a reply starts with {found:#010x} instead of its magic number")]
    BadReplyMagic {
        /// What stood there.
        found: u32,
    },
}

/// The block sizes a server announces, in bytes (section "Block size constraints").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    /// Offsets and lengths must be multiples of it.
    pub minimum: u32,
    /// Offsets and lengths should be multiples of it.
    pub preferred: u32,
    /// Longest payload.
    pub maximum: u32,
}

/// What a server says of the export it granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteExport {
    /// Size in bytes.
    pub size_bytes: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
    /// Block sizes, where the server gave them.
    pub block_size: Option<BlockSize>,
}

/// Where the client's negotiation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStep {
    /// The next message is not complete.
    NeedMore,
    /// The export is granted: send requests.
    Transmission(RemoteExport),
}

#[derive(Debug, Clone)]
enum Stage {
    Greeting,
    Replies,
    Granted(RemoteExport),
    Failed(ClientError),
}

/// Fixed newstyle negotiation, the client's side: one GO (section "Option types").
#[derive(Debug)]
pub struct ClientHandshake {
    name: String,
    stage: Stage,
    export: Option<(u64, TransmissionFlags)>,
    block_size: Option<BlockSize>,
    replies_seen: u32,
}

impl ClientHandshake {
    /// A client that wants the export of this name; empty for the server's default.
    pub fn new(name: &str) -> Result<Self, ClientError> {
        if name.len() > MAX_STRING_BYTES {
            return Err(ClientError::NameTooLong { length: name.len() });
        }
        Ok(ClientHandshake {
            name: name.to_owned(),
            stage: Stage::Greeting,
            export: None,
            block_size: None,
            replies_seen: 0,
        })
    }

    /// Takes as many whole messages as `input` holds, appends what is to be sent to `out`, and returns how
    /// many bytes were used. Works as [`Handshake::on_bytes`](crate::Handshake::on_bytes) does.
    pub fn on_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, ClientStep), ClientError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let advanced = match &self.stage {
                Stage::Greeting => self.greeting(rest, out),
                Stage::Replies => self.reply(rest),
                Stage::Granted(export) => return Ok((consumed, ClientStep::Transmission(*export))),
                Stage::Failed(error) => Err(error.clone()),
            };
            match advanced {
                Ok(Some(used)) => consumed += used,
                Ok(None) => return Ok((consumed, ClientStep::NeedMore)),
                Err(error) => {
                    self.stage = Stage::Failed(error.clone());
                    return Err(error);
                }
            }
        }
    }

    fn greeting(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, ClientError> {
        let mut fields = Fields::new(input);
        let (Some(magic), Some(style), Some(flags)) = (fields.u64(), fields.u64(), fields.u16()) else {
            return Ok(None);
        };
        let fixed_newstyle = flags & handshake_flag::FIXED_NEWSTYLE != 0;
        if magic != wire::NBD_MAGIC || style != wire::OPTION_MAGIC || !fixed_newstyle {
            return Err(ClientError::BadGreeting);
        }
        let ours = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        out.extend_from_slice(&u32::from(ours).to_be_bytes());
        self.go(out);
        self.stage = Stage::Replies;
        Ok(Some(wire::GREETING_BYTES))
    }

    fn go(&self, out: &mut Vec<u8>) {
        let name = self.name.as_bytes();
        // `new` bounds the name, so the lengths fit.
        let data_length = (4 + name.len() + 2 + 2) as u32;
        out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&opt::GO.to_be_bytes());
        out.extend_from_slice(&data_length.to_be_bytes());
        out.extend_from_slice(&(name.len() as u32).to_be_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&1u16.to_be_bytes());
        out.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    }

    fn reply(&mut self, input: &[u8]) -> Result<Option<usize>, ClientError> {
        let mut fields = Fields::new(input);
        let (Some(magic), Some(option), Some(kind), Some(length)) =
            (fields.u64(), fields.u32(), fields.u32(), fields.u32())
        else {
            return Ok(None);
        };
        let sound = magic == wire::OPTION_REPLY_MAGIC
            && option == opt::GO
            && length as usize <= MAX_OPTION_DATA_BYTES
            && self.replies_seen < MAX_CLIENT_OPTION_REPLIES;
        if !sound {
            return Err(ClientError::BadOptionReply);
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(None) };
        self.replies_seen += 1;
        match kind {
            rep::INFO => self.info(data).ok_or(ClientError::BadOptionReply)?,
            rep::ACK => self.granted()?,
            kind if kind & rep::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(ClientError::Refused { code: kind & !rep::ERROR_BIT, message });
            }
            _ => return Err(ClientError::BadOptionReply),
        }
        Ok(Some(wire::OPTION_REPLY_HEADER_BYTES + data.len()))
    }

    /// Takes one piece of information; unknown kinds are ignored. `None` where it is malformed.
    fn info(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields::new(data);
        match fields.u16()? {
            info::EXPORT => {
                let (size_bytes, flags) = (fields.u64()?, fields.u16()?);
                self.export = Some((size_bytes, TransmissionFlags::from_bits(flags)));
            }
            info::BLOCK_SIZE => {
                let (minimum, preferred, maximum) = (fields.u32()?, fields.u32()?, fields.u32()?);
                self.block_size = Some(BlockSize { minimum, preferred, maximum });
            }
            _ => return Some(()),
        }
        fields.rest().is_empty().then_some(())
    }

    fn granted(&mut self) -> Result<(), ClientError> {
        // An ACK without the export's size before it breaks the specification.
        let (size_bytes, flags) = self.export.ok_or(ClientError::BadOptionReply)?;
        self.stage = Stage::Granted(RemoteExport { size_bytes, flags, block_size: self.block_size });
        Ok(())
    }
}

/// The header of a request; the payload of a WRITE is sent behind it (section "Request message").
#[inline]
pub fn encode_request(request: &Request) -> [u8; REQUEST_HEADER_BYTES] {
    let mut header = [0; REQUEST_HEADER_BYTES];
    header[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&request.wire_flags().to_be_bytes());
    header[6..8].copy_from_slice(&request.command.code().to_be_bytes());
    header[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    header[16..24].copy_from_slice(&request.offset.to_be_bytes());
    header[24..28].copy_from_slice(&request.length.to_be_bytes());
    header
}

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
