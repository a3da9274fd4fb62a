//! A connection to an NBD server, as far as its export being granted.

use bimetal_nbd::{ClientError, ClientHandshake, ClientStep, NbdAddress, NbdUri, RemoteExport, Terms};
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that says nothing for so long during the handshake is given up, and one that cannot be connected to.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// A handshake has a few messages of a few hundred bytes.
const MAX_HANDSHAKE_BYTES: usize = 1 << 20;
/// An idle connection is asked for a sign of life after so long, and then as often ...
const KEEPALIVE: Duration = Duration::from_secs(10);
/// ... until so many went unanswered.
const KEEPALIVE_PROBES: u32 = 3;

/// Why no export was granted.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody is there, or it went away.
    #[error("cannot reach the server")]
    System(#[from] io::Error),
    /// It does not speak as it should, or refuses.
    #[error(transparent)]
    Protocol(#[from] ClientError),
    /// It has said more than a handshake has.
    #[error("the server's handshake does not end")]
    Endless,
}

impl DialError {
    /// The error with what lies below it.
    pub(crate) fn whole(&self) -> String {
        match self {
            DialError::System(error) => format!("{self} ({error})"),
            _ => self.to_string(),
        }
    }
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Connects, and is granted the export, with as many of these terms as the server has.
pub fn dial(uri: &NbdUri, wishes: Terms) -> Result<(OwnedFd, RemoteExport), DialError> {
    dial_within(uri, wishes, HANDSHAKE_PATIENCE)
}

/// The same with other patience for each step.
pub(super) fn dial_within(
    uri: &NbdUri,
    wishes: Terms,
    patience: Duration,
) -> Result<(OwnedFd, RemoteExport), DialError> {
    match &uri.address {
        NbdAddress::Unix(path) => {
            let mut socket = uninterrupted(|| UnixStream::connect(path))?;
            socket.set_read_timeout(Some(patience))?;
            socket.set_write_timeout(Some(patience))?;
            let granted = negotiate(&mut socket, uri, wishes, patience)?;
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(None)?;
            Ok((socket.into(), granted))
        }
        NbdAddress::Tcp(address) => {
            let mut socket = connect(address, patience)?;
            socket.set_nodelay(true)?;
            keep_alive(&socket)?;
            socket.set_read_timeout(Some(patience))?;
            socket.set_write_timeout(Some(patience))?;
            let granted = negotiate(&mut socket, uri, wishes, patience)?;
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(None)?;
            Ok((socket.into(), granted))
        }
    }
}

/// To the first of the addresses of a name that answers.
fn connect(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::other(format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        match uninterrupted(|| TcpStream::connect_timeout(&address, patience)) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Lets the kernel find out when the other side is gone without a word.
fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    Ok(())
}

/// Tries again what the kernel interrupts: a ring that was given up a moment ago may still have something to tell.
pub(super) fn uninterrupted<R>(mut attempt: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn negotiate(
    socket: &mut dyn Stream,
    uri: &NbdUri,
    wishes: Terms,
    patience: Duration,
) -> Result<RemoteExport, DialError> {
    let mut client = ClientHandshake::wishing(&uri.export, wishes)?;
    let (mut input, mut taken) = (Vec::new(), 0);
    loop {
        let mut out = Vec::new();
        let (used, step) = client.on_bytes(&input[taken..], &mut out)?;
        taken += used;
        socket.write_all(&out)?;
        if let ClientStep::Transmission(export) = step {
            return Ok(export);
        }
        if input.len() > MAX_HANDSHAKE_BYTES {
            return Err(DialError::Endless);
        }
        let mut more = [0; 4096];
        let read = uninterrupted(|| socket.read(&mut more)).map_err(|error| match error.kind() {
            // What a socket's timeout is to the system.
            io::ErrorKind::WouldBlock => {
                io::Error::other(format!("it has said nothing for {} seconds", patience.as_secs()))
            }
            _ => error,
        })?;
        if read == 0 {
            return Err(io::Error::other("it ended the connection before anything was agreed").into());
        }
        input.extend_from_slice(&more[..read]);
    }
}
