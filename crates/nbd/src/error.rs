//! Errors: fatal ones that end a connection, those of a configuration, and the numbers sent to clients.

use crate::limits::{MAX_EXPORT_SIZE_BYTES, MAX_EXPORTS, MAX_HANDSHAKE_REPLY_BYTES};
use crate::limits::{MAX_OPTION_DATA_BYTES, MAX_OPTIONS, MAX_PAYLOAD_BYTES, MAX_STRING_BYTES};

/// What a client did that cannot be answered: the driver sends what is already in its output, then closes
/// this connection and no other (section "Terminating the transmission phase", hard disconnect).
///
/// Once a [`Handshake`](crate::Handshake) or [`Transmission`](crate::Transmission) has returned one, it
/// returns the same again: the place in the stream is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Section "Client flags": an unknown flag must end the connection.
    #[error("the client set unknown handshake flags {flags:#x}")]
    UnknownClientFlags {
        /// All flags that the client sent.
        flags: u32,
    },
    /// Section "Newstyle negotiation": an option starts with IHAVEOPT.
    #[error("an option starts with {found:#018x} instead of its magic number")]
    BadOptionMagic {
        /// What stood there.
        found: u64,
    },
    /// Section "Option types": only EXPORT_NAME is valid in negotiation that is not fixed newstyle.
    #[error("option {option} was sent without agreeing on fixed newstyle negotiation")]
    OptionWithoutFixedNewstyle {
        /// The option's number.
        option: u32,
    },
    /// Longer than [`MAX_OPTION_DATA_BYTES`].
    #[error("option {option} announces {length} bytes of data, more than {MAX_OPTION_DATA_BYTES}")]
    OptionTooLong {
        /// The option's number.
        option: u32,
        /// The announced length in bytes.
        length: u32,
    },
    /// More than [`MAX_OPTIONS`] in one handshake.
    #[error("the client sent more than {MAX_OPTIONS} options without choosing an export")]
    TooManyOptions,
    /// More than [`MAX_HANDSHAKE_REPLY_BYTES`] in one handshake.
    #[error("the client asked for more than {MAX_HANDSHAKE_REPLY_BYTES} bytes of replies to options")]
    TooManyReplies,
    /// Section "Option types", EXPORT_NAME: the option has no error reply, so the session must end.
    #[error("the client chose an export that does not exist")]
    UnknownExport,
    /// Section "Request message": a request starts with its magic number.
    #[error("a request starts with {found:#010x} instead of its magic number")]
    BadRequestMagic {
        /// What stood there.
        found: u32,
    },
    /// A WRITE longer than [`MAX_PAYLOAD_BYTES`]: skipping its payload would let a client keep us busy.
    #[error("a write announces {length} bytes of payload, more than {MAX_PAYLOAD_BYTES}")]
    PayloadTooLong {
        /// The announced length in bytes.
        length: u32,
    },
    /// Section "Terminating the transmission phase": nothing may follow DISC.
    #[error("the client sent a request after asking to disconnect")]
    RequestAfterDisconnect,
}

/// Why a set of exports cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// A server offers at least one.
    #[error("there is no export to serve")]
    Empty,
    /// More than [`MAX_EXPORTS`].
    #[error("there are {count} exports, more than {MAX_EXPORTS}")]
    TooMany {
        /// How many were given.
        count: usize,
    },
    /// Two exports of one name.
    #[error("two exports are named {name:?}")]
    DuplicateName {
        /// The name they share.
        name: String,
    },
    /// A name or description longer than [`MAX_STRING_BYTES`].
    #[error("the name or description of export {name:?} is longer than {MAX_STRING_BYTES} bytes")]
    StringTooLong {
        /// The export's name, cut to its first characters.
        name: String,
    },
    /// A size beyond [`MAX_EXPORT_SIZE_BYTES`].
    #[error("export {name:?} has {size_bytes} bytes, more than {MAX_EXPORT_SIZE_BYTES}")]
    TooLarge {
        /// The export's name.
        name: String,
        /// Its size in bytes.
        size_bytes: u64,
    },
}

/// An error number in a reply (section "Error values"); the numbers are those of the protocol, whatever the
/// operating system calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum NbdErrno {
    /// `NBD_EPERM`: a write to a read-only export.
    #[error("operation not permitted")]
    NotPermitted = 1,
    /// `NBD_EIO`: the device failed.
    #[error("input/output error")]
    Io = 5,
    /// `NBD_ENOMEM`: the server is out of buffers.
    #[error("cannot allocate memory")]
    NoMemory = 12,
    /// `NBD_EINVAL`: the request makes no sense.
    #[error("invalid argument")]
    Invalid = 22,
    /// `NBD_ENOSPC`: a write past the end, or a full volume.
    #[error("no space left on device")]
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: a READ with DF that is too long; only with structured replies.
    #[error("value too large")]
    Overflow = 75,
    /// `NBD_ENOTSUP`: only for a WRITE_ZEROES that cannot be fast.
    #[error("operation not supported")]
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is going away.
    #[error("server is shutting down")]
    Shutdown = 108,
}

impl NbdErrno {
    /// The number as it stands in a reply (section "Error values").
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The meaning of a reply's error field other than 0. A number that the protocol does not define counts
    /// as EINVAL, as clients are told to do (section "Error values").
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => NbdErrno::NotPermitted,
            5 => NbdErrno::Io,
            12 => NbdErrno::NoMemory,
            28 => NbdErrno::NoSpace,
            75 => NbdErrno::Overflow,
            95 => NbdErrno::NotSupported,
            108 => NbdErrno::Shutdown,
            _ => NbdErrno::Invalid,
        }
    }
}
