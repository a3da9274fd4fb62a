//! Numbers of the wire format, and the reading of big-endian fields.

/// "NBDMAGIC", the first eight bytes a server sends (section "Newstyle negotiation").
pub(crate) const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", sent by the server in its greeting and before every option by the client.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request (section "Request message").
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts every simple reply (section "Simple reply message").
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts every chunk of a structured reply (section "Structured reply chunk message").
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Length of the server's greeting: two magic numbers and the handshake flags.
pub(crate) const GREETING_BYTES: usize = 18;
/// Length of the client's flags.
pub(crate) const CLIENT_FLAGS_BYTES: usize = 4;
/// Length of an option's header: magic, option, length of data.
pub(crate) const OPTION_HEADER_BYTES: usize = 16;
/// Length of an option reply's header: magic, option, type, length of data.
pub(crate) const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Reserved zeros at the end of the answer to EXPORT_NAME, unless NO_ZEROES was agreed.
pub(crate) const EXPORT_NAME_PADDING: [u8; 124] = [0; 124];
/// Length of a request's header in bytes (section "Request message").
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Length of a simple reply's header in bytes (section "Simple reply message").
pub const SIMPLE_REPLY_BYTES: usize = 16;

/// Length of the header of a structured reply's chunk in bytes: magic, flags, type, cookie, length of data
/// (section "Structured reply chunk message").
pub const CHUNK_HEADER_BYTES: usize = 20;

/// Handshake flags (server) and client flags share their first two bits (sections "Handshake flags" and
/// "Client flags").
pub(crate) mod handshake_flag {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(crate) const NO_ZEROES: u16 = 1 << 1;
}

/// Section "Option types".
pub(crate) mod opt {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Section "Option reply types".
pub(crate) mod rep {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const ERROR_BIT: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR_BIT | 1;
    pub(crate) const ERR_INVALID: u32 = ERROR_BIT | 3;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR_BIT | 6;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Information types in the replies to INFO and GO (section "Option reply types", `NBD_REP_INFO`).
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Section "Request types".
pub(crate) mod cmd {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Section "Command flags".
pub(crate) mod cmd_flag {
    pub(crate) const FUA: u16 = 1 << 0;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
}

/// Section "Structured reply flags".
pub(crate) mod chunk_flag {
    pub(crate) const DONE: u16 = 1 << 0;
}

/// Section "Structured reply types".
pub(crate) mod chunk_type {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = ERROR_BIT | 1;
}

/// Takes big-endian fields off the front of a slice; `None` where it is too short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Fields(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}
