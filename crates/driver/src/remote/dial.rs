//! A connection to an NBD server, as far as its export being granted.

use super::tls;
use bimetal_nbd::{ClientError, ClientHandshake, ClientStep, NbdAddress, NbdUri, RemoteExport, Terms};
use rustix::net::sockopt::{self, Timeout, set_socket_timeout};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that says nothing for so long during the handshake is given up, and one that cannot be connected to.
pub(super) const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// `NBD_REP_ERR_TLS_REQD`, without the bit that all errors share.
const TLS_NEEDED: u32 = 5;
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
    /// What is said cannot be kept from others, or the server is not who it should be, or does not take us for whom it wants. A
    /// sentence that ends with what can be done.
    #[error("{0}")]
    Insecure(String),
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
    let client = ClientHandshake::wishing(&uri.export, wishes)?;
    let NbdAddress::Secure(secure) = &uri.address else {
        let mut socket = open(&uri.address, patience)?;
        return match negotiate(&mut socket, &mut { client }, patience) {
            Ok(Met::Granted(export)) => Ok((in_use(socket)?, export)),
            Ok(Met::Secure) => Err(ClientError::TalksOn.into()),
            Err(DialError::Protocol(ClientError::Refused { code: TLS_NEEDED, .. })) => Err(
                DialError::Insecure("the server encrypts or says nothing; name it with nbds://".to_owned()),
            ),
            Err(error) => Err(error),
        };
    };
    let (mut client, mut socket) = (client.securely(), open(&secure.address, patience)?);
    match negotiate(&mut socket, &mut client, patience) {
        Ok(Met::Secure) => {}
        Ok(Met::Granted(_)) => return Err(ClientError::TalksOn.into()),
        Err(DialError::Protocol(error @ ClientError::NotSecure { .. })) => {
            return Err(DialError::Insecure(format!(
                "{error}; let it ({}), or name it with nbd:// where nobody can listen",
                tls::SERVERS
            )));
        }
        Err(error) => return Err(error),
    }
    let mut line = tls::begin(socket, secure)?;
    let mut out = Vec::new();
    client.secured(&mut out);
    let met = line.write_all(&out).map_err(DialError::from);
    let met = met.and_then(|()| negotiate(&mut line, &mut client, patience));
    match met.map_err(|error| tls::explained(error, secure))? {
        Met::Granted(export) => Ok((tls::carry(line)?, export)),
        Met::Secure => Err(ClientError::TalksOn.into()),
    }
}

/// A connection that nothing has been said on; each step has so much time.
fn open(address: &NbdAddress, patience: Duration) -> io::Result<File> {
    let socket: OwnedFd = match address {
        NbdAddress::Unix(path) => uninterrupted(|| UnixStream::connect(path))?.into(),
        NbdAddress::Tcp(address) => {
            let socket = connect(address, patience)?;
            socket.set_nodelay(true)?;
            keep_alive(&socket)?;
            socket.into()
        }
        NbdAddress::Secure(_) => return Err(io::Error::other("one address is behind another")),
    };
    for kind in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, kind, Some(patience))?;
    }
    Ok(socket.into())
}

/// Its steps take as long as they take.
pub(super) fn in_use(socket: File) -> io::Result<OwnedFd> {
    let socket = OwnedFd::from(socket);
    for kind in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, kind, None)?;
    }
    Ok(socket)
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

/// How far a negotiation has come.
enum Met {
    Secure,
    Granted(RemoteExport),
}

fn negotiate<S: Read + Write>(
    socket: &mut S,
    client: &mut ClientHandshake,
    patience: Duration,
) -> Result<Met, DialError> {
    let (mut input, mut taken) = (Vec::new(), 0);
    loop {
        let mut out = Vec::new();
        let (used, step) = client.on_bytes(&input[taken..], &mut out)?;
        taken += used;
        socket.write_all(&out)?;
        match step {
            ClientStep::Transmission(export) => return Ok(Met::Granted(export)),
            ClientStep::Secure => return Ok(Met::Secure),
            ClientStep::NeedMore => {}
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
            let why = "it ended the connection before anything was agreed";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why).into());
        }
        input.extend_from_slice(&more[..read]);
    }
}
