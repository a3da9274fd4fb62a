//! One connection, used for a moment and waited on: to look at what an export holds, or to erase a part of it.

use super::dial::{DialError, dial_within, in_use, uninterrupted};
use bimetal_nbd::{Command, NbdErrno, NbdUri, RemoteExport, Request, SIMPLE_REPLY_BYTES, Terms};
use bimetal_nbd::{encode_request, parse_simple_reply};
use bimetal_remote::{Agreed, PIECE_BYTES};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A server that does not answer a request for so long is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// A server that says nothing for so long when it is looked at, is not there: several are looked at in a row, perhaps.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// An export, open for one request at a time.
#[derive(Debug)]
pub(crate) struct Line {
    socket: File,
    most_bytes: u32,
    next_cookie: u64,
}

impl Line {
    /// Connects.
    pub(crate) fn dial(uri: &NbdUri) -> Result<(Line, RemoteExport), DialError> {
        let (socket, export) = dial_within(uri, Terms::default(), LOOK_PATIENCE)?;
        let both = [Timeout::Recv, Timeout::Send];
        both.into_iter()
            .try_for_each(|kind| set_socket_timeout(&socket, kind, Some(ANSWER_PATIENCE)))
            .map_err(io::Error::from)?;
        let most_bytes = Agreed::of(&export).most_bytes.min(PIECE_BYTES);
        Ok((Line { socket: socket.into(), most_bytes, next_cookie: 0 }, export))
    }

    /// The connection, for somebody who waits in another way.
    pub(crate) fn into_socket(self) -> io::Result<OwnedFd> {
        in_use(self.socket)
    }

    /// Reads all of `bytes` at a place.
    pub(crate) fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let step = self.most_bytes as usize;
        for (nth, part) in bytes.chunks_mut(step).enumerate() {
            self.ask(Command::Read, at + (nth * step) as u64, part.len() as u32, &[])?;
            uninterrupted(|| self.socket.read_exact(part)).map_err(too_late)?;
        }
        Ok(())
    }

    /// Writes all of `bytes` at a place.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let step = self.most_bytes as usize;
        for (nth, part) in bytes.chunks(step).enumerate() {
            self.ask(Command::Write, at + (nth * step) as u64, part.len() as u32, part)?;
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.ask(Command::Flush, 0, 0, &[])
    }

    /// Leaves in good order.
    pub(crate) fn end(mut self) {
        // Who does not hear it sees the connection end.
        let _ = self.socket.write_all(&encode_request(&Request::new(0, Command::Disconnect, 0, 0)));
    }

    fn ask(&mut self, command: Command, offset: u64, length: u32, payload: &[u8]) -> io::Result<()> {
        self.next_cookie += 1;
        let cookie = self.next_cookie;
        self.socket
            .write_all(&encode_request(&Request::new(cookie, command, offset, length)))
            .map_err(too_late)?;
        self.socket.write_all(payload).map_err(too_late)?;
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.socket.read_exact(&mut header).map_err(too_late)?;
        let reply = parse_simple_reply(&header).map_err(io::Error::other)?;
        match reply.filter(|reply| reply.cookie == cookie) {
            Some(reply) => reply.result.map_err(|error| match error {
                NbdErrno::NotPermitted => io::Error::from_raw_os_error(libc::EPERM),
                NbdErrno::NoSpace => io::Error::from_raw_os_error(libc::ENOSPC),
                _ => io::Error::from_raw_os_error(libc::EIO),
            }),
            None => Err(io::Error::other("the server answers what was not asked")),
        }
    }
}

/// What a socket's timeout is to the system.
fn too_late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::from_raw_os_error(libc::ETIMEDOUT),
        _ => error,
    }
}
