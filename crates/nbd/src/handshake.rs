//! The server's side of negotiation, from the greeting to the choice of an export.
//!
//! ```text
//!   new ──greeting──> ClientFlags ──4 bytes──> Options ──EXPORT_NAME, GO──> Transmission
//!                                               │  ^└──────ABORT──────────> Closed
//!                                               └──┘ INFO, LIST, STRUCTURED_REPLY,
//!                                                    metadata contexts, refusals
//!   any of them ──ProtocolError──> Failed
//! ```

use std::sync::Arc;

use crate::error::ProtocolError;
use crate::export::{ExportIndex, Exports};
use crate::limits::{MAX_HANDSHAKE_REPLY_BYTES, MAX_OPTION_DATA_BYTES, MAX_OPTIONS};
use crate::option::{self, Answer, Haggle};
use crate::terms::Terms;
use crate::wire::{self, CLIENT_FLAGS_BYTES, Fields, handshake_flag, opt};

/// Where negotiation stands after the bytes shown so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// The next message is not complete.
    NeedMore,
    /// The client chose an export: what follows in the stream are requests for a
    /// [`Transmission`](crate::Transmission) (section "Transmission").
    Transmission {
        /// The chosen export.
        export: ExportIndex,
        /// What was agreed on beside it.
        terms: Terms,
    },
    /// The client ended negotiation with ABORT: send the output, then close the connection.
    Closed,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    ClientFlags,
    Options,
    Ended(HandshakeStep),
    Failed(ProtocolError),
}

/// Fixed newstyle negotiation, the server's side (section "Newstyle negotiation").
#[derive(Debug)]
pub struct Handshake {
    exports: Arc<Exports>,
    stage: Stage,
    fixed_newstyle: bool,
    haggle: Haggle,
    options_seen: u32,
    reply_bytes: usize,
}

impl Handshake {
    /// Starts a connection: the server speaks first, so its greeting is appended to `out` at once.
    pub fn new(exports: Arc<Exports>, out: &mut Vec<u8>) -> Self {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.extend_from_slice(&wire::NBD_MAGIC.to_be_bytes());
        out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&flags.to_be_bytes());
        Handshake {
            exports,
            stage: Stage::ClientFlags,
            fixed_newstyle: false,
            haggle: Haggle::default(),
            options_seen: 0,
            reply_bytes: 0,
        }
    }

    /// Takes as many whole messages as `input` holds and appends the replies to `out`.
    ///
    /// Returns how many bytes of `input` were used; the rest must be shown again, with more behind it. A
    /// buffer of [`MAX_HANDSHAKE_MESSAGE_BYTES`](crate::limits::MAX_HANDSHAKE_MESSAGE_BYTES) is always enough.
    /// With [`HandshakeStep::Transmission`] the rest is the start of the request stream. After an error, too,
    /// `out` may hold replies to earlier options.
    pub fn on_bytes(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, HandshakeStep), ProtocolError> {
        let mut consumed = 0;
        loop {
            match self.advance(&input[consumed..], out) {
                Ok(Some(used)) => consumed += used,
                Ok(None) => return Ok((consumed, self.step())),
                Err(error) => {
                    self.stage = Stage::Failed(error);
                    return Err(error);
                }
            }
        }
    }

    fn step(&self) -> HandshakeStep {
        match self.stage {
            Stage::Ended(step) => step,
            _ => HandshakeStep::NeedMore,
        }
    }

    /// Takes one message; `None` where there is none to take.
    fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, ProtocolError> {
        match self.stage {
            Stage::ClientFlags => self.client_flags(input),
            Stage::Options => self.option(input, out),
            Stage::Ended(_) => Ok(None),
            Stage::Failed(error) => Err(error),
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let Some(flags) = Fields::new(input).u32() else { return Ok(None) };
        let fixed_newstyle = u32::from(handshake_flag::FIXED_NEWSTYLE);
        let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
        if flags & !(fixed_newstyle | no_zeroes) != 0 {
            return Err(ProtocolError::UnknownClientFlags { flags });
        }
        self.fixed_newstyle = flags & fixed_newstyle != 0;
        self.haggle.no_zeroes = flags & no_zeroes != 0;
        self.stage = Stage::Options;
        Ok(Some(CLIENT_FLAGS_BYTES))
    }

    /// Takes one option. Its header is judged before its data has come, so that nonsense is not waited for.
    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, ProtocolError> {
        let mut fields = Fields::new(input);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return Ok(None);
        };
        if magic != wire::OPTION_MAGIC {
            return Err(ProtocolError::BadOptionMagic { found: magic });
        }
        if !self.fixed_newstyle && option != opt::EXPORT_NAME {
            return Err(ProtocolError::OptionWithoutFixedNewstyle { option });
        }
        if length as usize > MAX_OPTION_DATA_BYTES {
            return Err(ProtocolError::OptionTooLong { option, length });
        }
        if self.options_seen >= MAX_OPTIONS {
            return Err(ProtocolError::TooManyOptions);
        }
        let Some(data) = fields.bytes(length as usize) else { return Ok(None) };
        self.options_seen += 1;
        self.answer(option, data, out)?;
        Ok(Some(wire::OPTION_HEADER_BYTES + data.len()))
    }

    fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        // Nothing is made that is not sent: a list is long, and this client's share may be used up.
        let listed = if option == opt::LIST { self.exports.list_bytes() } else { 0 };
        if self.reply_bytes + listed > MAX_HANDSHAKE_REPLY_BYTES {
            return Err(ProtocolError::TooManyReplies);
        }
        let before = out.len();
        let answer = option::answer(&self.exports, &mut self.haggle, option, data, out)?;
        self.reply_bytes += out.len() - before;
        if self.reply_bytes > MAX_HANDSHAKE_REPLY_BYTES {
            out.truncate(before);
            return Err(ProtocolError::TooManyReplies);
        }
        match answer {
            Answer::GoOn => {}
            Answer::Chosen(export) => {
                let terms = self.haggle.terms_for(export);
                self.stage = Stage::Ended(HandshakeStep::Transmission { export, terms });
            }
            Answer::Aborted => self.stage = Stage::Ended(HandshakeStep::Closed),
        }
        Ok(())
    }
}
