//! What a server answers, as it comes: in pieces, of several replies at a time, simple or structured.

use super::piece::Piece;
use super::session::{Payload, Session};
use bimetal_nbd::{Chunk, Command, NbdErrno, SIMPLE_REPLY_BYTES, parse_chunk, parse_simple_reply};

/// Bytes of a header that are looked at together at first; all but errors in words are shorter.
const HEADER_STEP: usize = 64;
/// The longest header: an error in words, with room.
const HEADER_BYTES: usize = 8 << 10;

/// Where one connection's stream of replies stands.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// The beginning of a header whose rest has not come.
    head: Vec<u8>,
    /// Payload that is coming in.
    data: Option<Data>,
}

#[derive(Clone, Copy, Debug)]
struct Data {
    /// The request that it answers.
    place: u32,
    /// Where the next byte belongs in the request's range.
    at: u32,
    left: u32,
    /// With it the reply ends.
    is_last: bool,
}

/// A reply, as both kinds come to it.
enum Heard {
    /// The request has ended so.
    End(u64, Result<(), i32>),
    /// Payload follows: whose, where it begins in the export (where the request does, if that is not said), how much.
    Data(u64, Option<(u64, u32)>, bool),
    /// Zeros: whose, where, how many, and whether the reply ends.
    Zeros(u64, u64, u32, bool),
    /// An error in a reply that goes on.
    Error(u64, i32),
    /// The end of a reply of several chunks.
    Done(u64),
    /// Nothing new.
    Nothing,
}

impl Session {
    /// Bytes have come on a connection. The error says why nothing more of it can be understood or used.
    pub(super) fn take(
        &mut self,
        conn: usize,
        mut bytes: &[u8],
        payload: &mut dyn Payload,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            let Some(incoming) = self.incoming(conn) else { return Ok(()) };
            if let Some(data) = incoming.data {
                let len = (data.left as usize).min(bytes.len());
                self.data_came(conn, data, &bytes[..len], payload)?;
                bytes = &bytes[len..];
                continue;
            }
            let (heard, used) = parse(&mut incoming.head, bytes)?;
            bytes = &bytes[used..];
            if let Some(heard) = heard {
                self.hear(conn, heard, payload)?;
            }
        }
        Ok(())
    }

    fn data_came(
        &mut self,
        conn: usize,
        data: Data,
        bytes: &[u8],
        payload: &mut dyn Payload,
    ) -> Result<(), String> {
        let piece = self.piece_mut(data.place).ok_or("payload came for a request that is gone")?;
        store(piece, data.at, bytes, payload);
        let len = bytes.len() as u32;
        piece.come += len;
        let left = data.left - len;
        let goes_on = (left > 0).then_some(Data { at: data.at + len, left, ..data });
        if let Some(incoming) = self.incoming(conn) {
            incoming.data = goes_on;
        }
        match left == 0 && data.is_last {
            true => self.ended(data.place, payload),
            false => Ok(()),
        }
    }

    /// A reply with payload has ended.
    fn ended(&mut self, place: u32, payload: &mut dyn Payload) -> Result<(), String> {
        let piece = self.piece_mut(place).ok_or("a reply ended twice")?;
        let result = match piece.error {
            Some(errno) => Err(errno),
            None if piece.command == Command::Read && piece.come != piece.len => {
                return Err(format!("a read of {} bytes was answered with {}", piece.len, piece.come));
            }
            None => Ok(()),
        };
        self.answered(place, result, payload)
    }

    fn hear(&mut self, conn: usize, heard: Heard, payload: &mut dyn Payload) -> Result<(), String> {
        match heard {
            Heard::Nothing => Ok(()),
            Heard::End(cookie, result) => {
                let place = self.known(conn, cookie)?;
                self.answered(place, result, payload)
            }
            Heard::Done(cookie) => {
                let place = self.known(conn, cookie)?;
                self.ended(place, payload)
            }
            Heard::Error(cookie, errno) => {
                let place = self.known(conn, cookie)?;
                if let Some(piece) = self.piece_mut(place) {
                    piece.error.get_or_insert(errno);
                }
                Ok(())
            }
            Heard::Data(cookie, part, is_last) => {
                let place = self.known(conn, cookie)?;
                let (at, left) = self.part(place, part)?;
                let write = || "payload came for a request that reads nothing".to_owned();
                // A simple reply without error to what reads nothing has none.
                match self.piece_mut(place).map(|piece| piece.command) {
                    Some(Command::Read) => {}
                    _ if part.is_none() => return self.answered(place, Ok(()), payload),
                    _ => return Err(write()),
                }
                if let Some(incoming) = self.incoming(conn) {
                    incoming.data = Some(Data { place, at, left, is_last });
                }
                Ok(())
            }
            Heard::Zeros(cookie, offset, len, is_last) => {
                let place = self.known(conn, cookie)?;
                let (at, len) = self.part(place, Some((offset, len)))?;
                let piece = self.piece_mut(place).filter(|piece| piece.command == Command::Read);
                let piece = piece.ok_or("zeros came for a request that reads nothing")?;
                store(piece, at, &vec![0; len as usize], payload);
                piece.come += len;
                if is_last { self.ended(place, payload) } else { Ok(()) }
            }
        }
    }

    /// Where a part of the export lies in the range of a request; all of it where none is given.
    fn part(&self, place: u32, part: Option<(u64, u32)>) -> Result<(u32, u32), String> {
        let piece = self.piece(place).ok_or("a request is gone")?;
        let Some((offset, len)) = part else { return Ok((0, piece.len)) };
        let at = offset.checked_sub(piece.offset).filter(|at| at + u64::from(len) <= u64::from(piece.len));
        let room = piece.len - piece.come.min(piece.len);
        match at {
            Some(at) if len <= room => Ok((at as u32, len)),
            _ => Err(format!(
                "{len} bytes at {offset} were answered to a read of {} at {}",
                piece.len, piece.offset
            )),
        }
    }
}

/// Takes a header off the stream, perhaps begun earlier; with the bytes used. None where it is not whole yet.
fn parse(head: &mut Vec<u8>, bytes: &[u8]) -> Result<(Option<Heard>, usize), String> {
    if head.is_empty() {
        if let Some((used, heard)) = header(bytes)? {
            return Ok((Some(heard), used));
        }
        if bytes.len() < HEADER_STEP {
            head.extend_from_slice(bytes);
            return Ok((None, bytes.len()));
        }
    }
    let mut taken = 0;
    while taken < bytes.len() && head.len() < HEADER_BYTES {
        let before = head.len();
        let step = HEADER_STEP.min(bytes.len() - taken);
        head.extend_from_slice(&bytes[taken..taken + step]);
        if let Some((used, heard)) = header(head)? {
            head.clear();
            return Ok((Some(heard), taken + (used - before)));
        }
        taken += step;
    }
    match head.len() < HEADER_BYTES {
        true => Ok((None, taken)),
        false => Err("a reply's header does not end".to_owned()),
    }
}

fn header(bytes: &[u8]) -> Result<Option<(usize, Heard)>, String> {
    /// What simple replies begin with.
    const SIMPLE: [u8; 4] = 0x6744_6698u32.to_be_bytes();
    if bytes.len() < SIMPLE.len() {
        return Ok(None);
    }
    if bytes.starts_with(&SIMPLE) {
        let reply = parse_simple_reply(bytes).map_err(|error| error.to_string())?;
        return Ok(reply.map(|reply| {
            let heard = match reply.result {
                Ok(()) => Heard::Data(reply.cookie, None, true),
                Err(error) => Heard::End(reply.cookie, Err(errno(error))),
            };
            (SIMPLE_REPLY_BYTES, heard)
        }));
    }
    let Some((used, head, chunk)) = parse_chunk(bytes).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let heard = match chunk {
        Chunk::Data { offset, length } => Heard::Data(head.cookie, Some((offset, length)), head.done),
        Chunk::Hole { offset, length } => Heard::Zeros(head.cookie, offset, length, head.done),
        Chunk::Error { error, .. } if head.done => Heard::End(head.cookie, Err(errno(error))),
        Chunk::Error { error, .. } => Heard::Error(head.cookie, errno(error)),
        Chunk::None | Chunk::Status { .. } if head.done => Heard::Done(head.cookie),
        Chunk::None | Chunk::Status { .. } => Heard::Nothing,
    };
    Ok(Some((used, heard)))
}

/// An error of the protocol as the system numbers it.
fn errno(error: NbdErrno) -> i32 {
    match error {
        NbdErrno::NotPermitted => libc::EPERM,
        NbdErrno::Io => libc::EIO,
        NbdErrno::NoMemory => libc::ENOMEM,
        NbdErrno::Invalid => libc::EINVAL,
        NbdErrno::NoSpace => libc::ENOSPC,
        NbdErrno::Overflow => libc::EOVERFLOW,
        NbdErrno::NotSupported => libc::EOPNOTSUPP,
        NbdErrno::Shutdown => libc::ESHUTDOWN,
    }
}

/// Puts bytes of a read where they belong.
fn store(piece: &mut Piece, at: u32, bytes: &[u8], payload: &mut dyn Payload) {
    match piece.bufs.first() {
        Some(buf) => payload.store(buf.slice(at, bytes.len() as u32), bytes),
        None => {
            piece.bytes.resize(piece.len as usize, 0);
            piece.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        }
    }
}
