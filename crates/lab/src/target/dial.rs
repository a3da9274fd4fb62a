//! A connection to an NBD server, as far as its export being granted.

use super::nbd::{NbdAddress, NbdError};
use bimetal_nbd::{ClientHandshake, ClientStep, RemoteExport};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A server that says nothing for so long during the handshake is given up.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// A handshake has a few messages of a few hundred bytes.
const MAX_HANDSHAKE_BYTES: usize = 1 << 20;

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Connects, and is granted the export.
pub(super) fn shake_hands(address: &NbdAddress, export: &str) -> Result<(OwnedFd, RemoteExport), NbdError> {
    match address {
        NbdAddress::Unix(path) => {
            let mut socket = uninterrupted(|| UnixStream::connect(path))?;
            socket.set_read_timeout(Some(HANDSHAKE_PATIENCE))?;
            let granted = negotiate(&mut socket, export)?;
            socket.set_read_timeout(None)?;
            Ok((socket.into(), granted))
        }
        NbdAddress::Tcp(address) => {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(HANDSHAKE_PATIENCE))?;
            let granted = negotiate(&mut socket, export)?;
            socket.set_read_timeout(None)?;
            Ok((socket.into(), granted))
        }
    }
}

/// Tries again what the kernel interrupts: a ring that was given up a moment ago may still have something to tell.
fn uninterrupted<R>(mut attempt: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn negotiate(socket: &mut dyn Stream, export: &str) -> Result<RemoteExport, NbdError> {
    let mut client = ClientHandshake::new(export)?;
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
            return Err(NbdError::Endless);
        }
        let mut more = [0; 4096];
        let read = uninterrupted(|| socket.read(&mut more)).map_err(|error| match error.kind() {
            // What a socket's timeout is to the system.
            io::ErrorKind::WouldBlock => {
                let seconds = HANDSHAKE_PATIENCE.as_secs();
                io::Error::other(format!("it has said nothing for {seconds} seconds"))
            }
            _ => error,
        })?;
        if read == 0 {
            return Err(io::Error::other("it ended the connection before anything was agreed").into());
        }
        input.extend_from_slice(&more[..read]);
    }
}
