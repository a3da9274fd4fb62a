//! A request as the volume sees it, and its check against an export.

use crate::error::NbdErrno;
use crate::export::Export;
use crate::limits::{MAX_PAYLOAD_BYTES, PREFERRED_BLOCK_BYTES};
use crate::terms::Terms;
use crate::wire::{cmd, cmd_flag};

/// What a client asks for (section "Request types").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read,
    /// `NBD_CMD_WRITE`; `length` bytes of payload follow the header in the stream.
    Write,
    /// `NBD_CMD_FLUSH`: covers all writes answered before it came, on every connection.
    Flush,
    /// `NBD_CMD_TRIM`: the range is not needed any more.
    Trim,
    /// `NBD_CMD_CACHE`: the range is going to be read soon; where it can, the server makes that fast.
    Cache,
    /// `NBD_CMD_BLOCK_STATUS`: what the negotiated metadata contexts say of the range.
    BlockStatus,
    /// `NBD_CMD_WRITE_ZEROES`: the range reads as zeros from now on.
    WriteZeroes,
    /// `NBD_CMD_DISC`: answer what is in flight, then close; it has no reply of its own.
    Disconnect,
    /// A command that this server does not know; [`Request::validate`] refuses it with EINVAL and the
    /// connection goes on. It is taken to carry no payload, as all commands but WRITE.
    Unknown(u16),
}

impl Command {
    pub(crate) const fn from_code(code: u16) -> Self {
        match code {
            cmd::READ => Command::Read,
            cmd::WRITE => Command::Write,
            cmd::DISC => Command::Disconnect,
            cmd::FLUSH => Command::Flush,
            cmd::TRIM => Command::Trim,
            cmd::CACHE => Command::Cache,
            cmd::BLOCK_STATUS => Command::BlockStatus,
            cmd::WRITE_ZEROES => Command::WriteZeroes,
            other => Command::Unknown(other),
        }
    }

    pub(crate) const fn code(self) -> u16 {
        match self {
            Command::Read => cmd::READ,
            Command::Write => cmd::WRITE,
            Command::Disconnect => cmd::DISC,
            Command::Flush => cmd::FLUSH,
            Command::Trim => cmd::TRIM,
            Command::Cache => cmd::CACHE,
            Command::BlockStatus => cmd::BLOCK_STATUS,
            Command::WriteZeroes => cmd::WRITE_ZEROES,
            Command::Unknown(code) => code,
        }
    }

    /// The command flags that mean something with this command. FUA is accepted on all of them: clients are
    /// known to set it on reads (section "Command flags"). Whether DF was offered is for the terms to say.
    const fn known_flags(self) -> u16 {
        match self {
            Command::WriteZeroes => cmd_flag::FUA | cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            Command::Read => cmd_flag::FUA | cmd_flag::DF,
            Command::BlockStatus => cmd_flag::FUA | cmd_flag::REQ_ONE,
            _ => cmd_flag::FUA,
        }
    }
}

/// One request (section "Request message").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the client, returned in the reply; not necessarily unique.
    pub cookie: u64,
    /// What to do.
    pub command: Command,
    /// The reply waits until what this request wrote is durable; without meaning on reads.
    pub fua: bool,
    /// With WRITE_ZEROES: keep space allocated rather than punching a hole.
    pub no_hole: bool,
    /// With WRITE_ZEROES: fail with ENOTSUP rather than be no faster than writing zeros.
    pub fast_zero: bool,
    /// With READ: the structured reply carries at most one chunk of content.
    pub df: bool,
    /// With BLOCK_STATUS: one extent per context is enough.
    pub req_one: bool,
    /// Flags that do not belong to this command or that nobody knows, as they stand on the wire; [`Request::validate`] refuses a request that has any.
    pub unsupported_flags: u16,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u32,
}

impl Request {
    /// A request without flags.
    pub const fn new(cookie: u64, command: Command, offset: u64, length: u32) -> Self {
        Request {
            cookie,
            command,
            fua: false,
            no_hole: false,
            fast_zero: false,
            df: false,
            req_one: false,
            unsupported_flags: 0,
            offset,
            length,
        }
    }

    /// The same with FUA set.
    pub const fn with_fua(self) -> Self {
        Request { fua: true, ..self }
    }

    #[inline]
    pub(crate) const fn from_wire(flags: u16, code: u16, cookie: u64, offset: u64, length: u32) -> Self {
        let command = Command::from_code(code);
        let known = flags & command.known_flags();
        Request {
            cookie,
            command,
            fua: known & cmd_flag::FUA != 0,
            no_hole: known & cmd_flag::NO_HOLE != 0,
            fast_zero: known & cmd_flag::FAST_ZERO != 0,
            df: known & cmd_flag::DF != 0,
            req_one: known & cmd_flag::REQ_ONE != 0,
            unsupported_flags: flags & !known,
            offset,
            length,
        }
    }

    pub(crate) const fn wire_flags(&self) -> u16 {
        const fn bit(set: bool, flag: u16) -> u16 {
            if set { flag } else { 0 }
        }
        self.unsupported_flags
            | bit(self.fua, cmd_flag::FUA)
            | bit(self.no_hole, cmd_flag::NO_HOLE)
            | bit(self.fast_zero, cmd_flag::FAST_ZERO)
            | bit(self.df, cmd_flag::DF)
            | bit(self.req_one, cmd_flag::REQ_ONE)
    }

    /// Bytes of payload that follow this request's header in the stream: `length` for a WRITE, valid or not,
    /// else 0. The driver must move or skip exactly these before it parses the next request.
    #[inline]
    pub const fn payload_bytes(&self) -> u32 {
        match self.command {
            Command::Write => self.length,
            _ => 0,
        }
    }

    /// Whether the reply has to be structured under these terms: a READ's, which carries payload, and a
    /// BLOCK_STATUS's (section "Structured reply chunk message"). All others stay simple.
    #[inline]
    pub const fn wants_structured(&self, terms: &Terms) -> bool {
        terms.structured && matches!(self.command, Command::Read | Command::BlockStatus)
    }

    /// Checks the request against the export it is for and the terms agreed on: flags, permission, range.
    ///
    /// On an error the driver replies with it and the connection goes on. **When an invalid request is a
    /// WRITE, its payload still follows in the stream**: skip [`Request::payload_bytes`] bytes. DISC is always
    /// valid. Where several things are wrong, flags come before permission, and permission before the range.
    ///
    /// Errors are those of section "Error values": EINVAL for an unknown command, a flag that was not offered,
    /// a read or trim beyond the end, a read above 32 MiB (with DF it is EOVERFLOW, which says that smaller
    /// ones work); ENOSPC for a write or zeroing beyond the end; EPERM for one on a read-only export; EINVAL
    /// for a BLOCK_STATUS without a metadata context. An empty range, on which the specification leaves
    /// behaviour open, is EINVAL, so that the volume never sees one; so is a FLUSH whose reserved offset or
    /// length is not 0. ENOTSUP is for a FAST_ZERO whose range cuts a block: zeroing part of one reads and
    /// writes it, as a plain write does; whole blocks are one record in the log, however many they are.
    pub fn validate(&self, export: &Export, terms: &Terms) -> Result<(), NbdErrno> {
        if self.command == Command::Disconnect {
            return Ok(());
        }
        if self.unsupported_flags != 0 || self.df && !terms.structured {
            return Err(NbdErrno::Invalid);
        }
        match self.command {
            Command::Read if self.length > MAX_PAYLOAD_BYTES && self.df => Err(NbdErrno::Overflow),
            Command::Read if self.length > MAX_PAYLOAD_BYTES => Err(NbdErrno::Invalid),
            Command::BlockStatus if !terms.structured || terms.contexts.is_empty() => Err(NbdErrno::Invalid),
            Command::Read | Command::Cache | Command::BlockStatus => {
                self.check_range(export, NbdErrno::Invalid)
            }
            Command::Write | Command::Trim | Command::WriteZeroes if export.read_only => {
                Err(NbdErrno::NotPermitted)
            }
            Command::Write => self.check_range(export, NbdErrno::NoSpace),
            Command::WriteZeroes => {
                self.check_range(export, NbdErrno::NoSpace)?;
                if self.fast_zero && !self.is_whole_blocks() { Err(NbdErrno::NotSupported) } else { Ok(()) }
            }
            Command::Trim => self.check_range(export, NbdErrno::Invalid),
            Command::Flush if self.offset != 0 || self.length != 0 => Err(NbdErrno::Invalid),
            Command::Flush | Command::Disconnect => Ok(()),
            Command::Unknown(_) => Err(NbdErrno::Invalid),
        }
    }

    fn is_whole_blocks(&self) -> bool {
        let unit = PREFERRED_BLOCK_BYTES;
        self.offset.is_multiple_of(u64::from(unit)) && self.length.is_multiple_of(unit)
    }

    fn check_range(&self, export: &Export, beyond: NbdErrno) -> Result<(), NbdErrno> {
        if self.length == 0 {
            return Err(NbdErrno::Invalid);
        }
        match self.offset.checked_add(u64::from(self.length)) {
            Some(end) if end <= export.size_bytes => Ok(()),
            _ => Err(beyond),
        }
    }
}
