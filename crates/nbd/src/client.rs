//! The client's side, as far as tests and load tools need it: perhaps STRUCTURED_REPLY and
//! SET_META_CONTEXT, then GO for one export. Replies are in `reply.rs`.

use crate::export::TransmissionFlags;
use crate::limits::{MAX_CLIENT_OPTION_REPLIES, MAX_OPTION_DATA_BYTES, MAX_STRING_BYTES};
use crate::request::Request;
use crate::terms::{MetaContext, Terms};
use crate::wire::{self, Fields, handshake_flag, info, opt, rep};
use crate::wire::{REQUEST_HEADER_BYTES, REQUEST_MAGIC};

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
    /// Section "STARTTLS": it does not encrypt, and nothing is said to it that is not.
    #[error("the server does not encrypt (it refused with error {code}{}{message})", if .message.is_empty() { "" } else { ": " })]
    NotSecure {
        /// The error's number, without the bit that all errors share.
        code: u32,
        /// What the server said, perhaps nothing.
        message: String,
    },
    /// Section "STARTTLS": what came before encryption could have been put there by anybody.
    #[error("the server goes on talking when it is to begin to encrypt")]
    TalksOn,
    /// Section "Structured reply chunk message".
    #[error("a chunk of type {kind} is malformed, or longer than what was asked for")]
    BadChunk {
        /// Its type.
        kind: u16,
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
    /// What was agreed on of what the client wished for.
    pub terms: Terms,
}

/// Where the client's negotiation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStep {
    /// The next message is not complete.
    NeedMore,
    /// The server is ready for TLS: from its next byte on, all is encrypted. Call [`ClientHandshake::secured`] then.
    Secure,
    /// The export is granted: send requests.
    Transmission(RemoteExport),
}

#[derive(Debug, Clone)]
enum Stage {
    Greeting,
    /// Replies to this option are expected.
    Replies(u32),
    /// TLS is to begin.
    Securing,
    Granted(RemoteExport),
    Failed(ClientError),
}

/// Fixed newstyle negotiation, the client's side (section "Option types"). Options are sent one at a time, the
/// next one when the one before is answered.
#[derive(Debug)]
pub struct ClientHandshake {
    name: String,
    wishes: Terms,
    terms: Terms,
    is_secure: bool,
    stage: Stage,
    export: Option<(u64, TransmissionFlags)>,
    block_size: Option<BlockSize>,
    replies_seen: u32,
}

impl ClientHandshake {
    /// A client that wants the export of this name, and simple replies; the name is empty for the server's
    /// default.
    pub fn new(name: &str) -> Result<Self, ClientError> {
        Self::wishing(name, Terms::default())
    }

    /// A client that would like these terms. A server that does not know them grants less, which
    /// [`RemoteExport::terms`] tells; contexts are asked for only where replies are structured.
    pub fn wishing(name: &str, wishes: Terms) -> Result<Self, ClientError> {
        if name.len() > MAX_STRING_BYTES {
            return Err(ClientError::NameTooLong { length: name.len() });
        }
        Ok(ClientHandshake {
            name: name.to_owned(),
            wishes,
            terms: Terms::default(),
            is_secure: false,
            stage: Stage::Greeting,
            export: None,
            block_size: None,
            replies_seen: 0,
        })
    }

    /// The same, where nothing is said that is not encrypted: the first thing that is asked for is TLS, and a server that does
    /// not speak it is left.
    #[must_use]
    pub fn securely(self) -> Self {
        ClientHandshake { is_secure: true, ..self }
    }

    /// From now on what is shown and sent is encrypted: negotiation goes on.
    pub fn secured(&mut self, out: &mut Vec<u8>) {
        if matches!(self.stage, Stage::Securing) {
            self.ask_first(out);
        }
    }

    /// Takes as many whole messages as `input` holds, appends what is to be sent to `out`, and returns how
    /// many bytes were used. Works as [`Handshake::on_bytes`](crate::Handshake::on_bytes) does.
    pub fn on_bytes(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, ClientStep), ClientError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let advanced = match &self.stage {
                Stage::Greeting => self.greeting(rest, out),
                &Stage::Replies(option) => self.reply(option, rest, out),
                Stage::Securing if rest.is_empty() => return Ok((consumed, ClientStep::Secure)),
                Stage::Securing => Err(ClientError::TalksOn),
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
        match self.is_secure {
            true => self.ask(opt::STARTTLS, out),
            false => self.ask_first(out),
        }
        Ok(Some(wire::GREETING_BYTES))
    }

    fn ask_first(&mut self, out: &mut Vec<u8>) {
        self.ask(if self.wishes.structured { opt::STRUCTURED_REPLY } else { opt::GO }, out);
    }

    /// Sends an option and expects its replies.
    fn ask(&mut self, option: u32, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        if !matches!(option, opt::STRUCTURED_REPLY | opt::STARTTLS) {
            // `wishing` bounds the name, so the lengths fit.
            put_string(&mut data, self.name.as_bytes());
        }
        match option {
            opt::SET_META_CONTEXT => {
                data.extend_from_slice(&(self.wishes.contexts.iter().count() as u32).to_be_bytes());
                for context in self.wishes.contexts.iter() {
                    put_string(&mut data, context.name().as_bytes());
                }
            }
            opt::GO => {
                data.extend_from_slice(&1u16.to_be_bytes());
                data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
            }
            _ => {}
        }
        out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(&data);
        self.stage = Stage::Replies(option);
    }

    fn reply(
        &mut self,
        expected: u32,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, ClientError> {
        let mut fields = Fields::new(input);
        let (Some(magic), Some(option), Some(kind), Some(length)) =
            (fields.u64(), fields.u32(), fields.u32(), fields.u32())
        else {
            return Ok(None);
        };
        let sound = magic == wire::OPTION_REPLY_MAGIC
            && option == expected
            && length as usize <= MAX_OPTION_DATA_BYTES
            && self.replies_seen < MAX_CLIENT_OPTION_REPLIES;
        if !sound {
            return Err(ClientError::BadOptionReply);
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(None) };
        self.replies_seen += 1;
        match (expected, kind) {
            (opt::GO, rep::INFO) => self.info(data).ok_or(ClientError::BadOptionReply)?,
            (opt::GO, rep::ACK) => self.granted()?,
            (opt::GO, kind) if kind & rep::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(ClientError::Refused { code: kind & !rep::ERROR_BIT, message });
            }
            (opt::SET_META_CONTEXT, rep::META_CONTEXT) => {
                self.context(data).ok_or(ClientError::BadOptionReply)?;
            }
            (opt::STARTTLS, rep::ACK) => self.stage = Stage::Securing,
            (opt::STARTTLS, kind) if kind & rep::ERROR_BIT != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(ClientError::NotSecure { code: kind & !rep::ERROR_BIT, message });
            }
            (opt::STRUCTURED_REPLY, rep::ACK) => {
                self.terms.structured = true;
                let more = !self.wishes.contexts.is_empty();
                self.ask(if more { opt::SET_META_CONTEXT } else { opt::GO }, out);
            }
            (opt::SET_META_CONTEXT, rep::ACK) => self.ask(opt::GO, out),
            // A server that cannot is done without.
            (_, kind) if kind & rep::ERROR_BIT != 0 => self.ask(opt::GO, out),
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

    /// Takes a context that the server selected. Its number must be the one that this crate's server uses:
    /// replies are told apart by it.
    fn context(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Fields::new(data);
        let id = fields.u32()?;
        let known = |context: &MetaContext| {
            context.name().as_bytes() == fields.rest() && self.wishes.contexts.contains(*context)
        };
        let context = MetaContext::ALL.into_iter().find(known)?;
        self.terms.contexts = self.terms.contexts.with(context);
        (id == context.id()).then_some(())
    }

    fn granted(&mut self) -> Result<(), ClientError> {
        // An ACK without the export's size before it breaks the specification.
        let (size_bytes, flags) = self.export.ok_or(ClientError::BadOptionReply)?;
        let (block_size, terms) = (self.block_size, self.terms);
        self.stage = Stage::Granted(RemoteExport { size_bytes, flags, block_size, terms });
        Ok(())
    }
}

/// A length and the bytes of a string that is known to be short.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
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
