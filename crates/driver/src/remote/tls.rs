//! Encryption: a server is known by its certificate, and we to it by ours where it asks. Nothing falls back to what is not
//! encrypted.
//!
//! The ring knows sockets and nothing of keys. So a thread stands between the encrypted connection and a pair of sockets, of
//! which the ring has the other end: it carries bytes from one to the other, holds a few hundred kilobytes at most, sleeps
//! while nothing comes, and ends both where one ends. What it holds then is dropped: a session takes nothing for done that
//! was not answered.

use super::dial::DialError;
use crate::signals::block_stop_signals;
use bimetal_nbd::{REQUEST_HEADER_BYTES, Secure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// How usual servers are made to encrypt.
pub(super) const SERVERS: &str = "`nbdkit --tls=require --tls-certificates=FOLDER`, `qemu-nbd --tls-creds`";
/// Bytes that are carried at a time, from the ring to the server.
const UP_BYTES: usize = 64 << 10;
/// Bytes that have come from the server and are carried on, at which no more are taken.
const DOWN_BYTES: usize = 128 << 10;

/// A connection on which all is encrypted.
pub(super) type Line = StreamOwned<ClientConnection, File>;

/// Encrypts, and knows the server.
pub(super) fn begin(socket: File, secure: &Secure) -> Result<Line, DialError> {
    let config = config(&secure.certificates).map_err(DialError::Insecure)?;
    let name = ServerName::try_from(secure.name.clone()).map_err(|_| {
        DialError::Insecure(format!(
            "{:?} is no name that a certificate is made out to; give tls-hostname=NAME",
            secure.name
        ))
    })?;
    let connection = ClientConnection::new(Arc::new(config), name);
    let connection = connection.map_err(|error| DialError::Insecure(error.to_string()))?;
    let mut line = StreamOwned::new(connection, socket);
    while line.conn.is_handshaking() {
        if let Err(error) = line.conn.complete_io(&mut line.sock) {
            return Err(explained(error.into(), secure));
        }
    }
    Ok(line)
}

/// What is in the folder.
fn config(folder: &Path) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = folder.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for authority in certificates(&authorities)? {
        roots.add(authority).map_err(|error| unfit(&authorities, &error.to_string()))?;
    }
    let revoked = folder.join("ca-crl.pem");
    let lists: Vec<CertificateRevocationListDer<'static>> = match revoked.exists() {
        true => read_all(&revoked)?,
        false => Vec::new(),
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .with_crls(lists)
        .only_check_end_entity_revocation()
        .build()
        .map_err(|error| unfit(&authorities, &error.to_string()))?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_webpki_verifier(verifier);
    let (ours, key) = (folder.join("client-cert.pem"), folder.join("client-key.pem"));
    match (ours.exists(), key.exists()) {
        (false, false) => Ok(config.with_no_client_auth()),
        (true, true) => {
            let secret = PrivateKeyDer::from_pem_file(&key).map_err(|error| unreadable(&key, &error))?;
            let known = config.with_client_auth_cert(certificates(&ours)?, secret);
            known.map_err(|error| unfit(&ours, &error.to_string()))
        }
        _ => Err(format!(
            "of client-cert.pem and client-key.pem only one is in {}; put both there, or none",
            folder.display()
        )),
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<CertificateDer<'static>> = read_all(file)?;
    match found.is_empty() {
        true => Err(unfit(file, "there is none in it")),
        false => Ok(found),
    }
}

fn read_all<T: PemObject>(file: &Path) -> Result<Vec<T>, String> {
    let parts = T::pem_file_iter(file).map_err(|error| unreadable(file, &error))?;
    parts.collect::<Result<_, _>>().map_err(|error| unreadable(file, &error))
}

fn unreadable(file: &Path, error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => {
            format!(
                "{} cannot be read ({error}); put it there, or name the folder where it is",
                file.display()
            )
        }
        error => unfit(file, &error.to_string()),
    }
}

fn unfit(file: &Path, why: &str) -> String {
    format!("{} holds no certificates or keys that can be used ({why}); make it again", file.display())
}

/// What went wrong, and what can be done, where it has to do with encryption.
pub(super) fn explained(error: DialError, secure: &Secure) -> DialError {
    let DialError::System(system) = &error else { return error };
    let folder = secure.certificates.display();
    let has_ours = secure.certificates.join("client-cert.pem").exists();
    let refused = match has_ours {
        true => format!(
            "the server does not take client-cert.pem of {folder}; have it signed by an authority that it knows"
        ),
        false => format!(
            "the server wants to know its clients; put client-cert.pem and client-key.pem, signed by an authority that it knows, \
             into {folder}"
        ),
    };
    let tls = system.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let why = match tls {
        Some(rustls::Error::InvalidCertificate(why)) => distrusted(why, secure),
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::HandshakeFailure,
        )) => refused,
        Some(other) => format!(
            "encryption was not agreed on ({other}); see to the server's certificates and its release"
        ),
        // Some servers say so by leaving.
        None if system.kind() != io::ErrorKind::Other => {
            format!(
                "the server left while encryption was agreed on ({system}); see to its log. Perhaps {refused}"
            )
        }
        None => return error,
    };
    DialError::Insecure(why)
}

/// Why a server is not who it should be.
fn distrusted(why: &CertificateError, secure: &Secure) -> String {
    let (name, folder) = (&secure.name, secure.certificates.display());
    match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "the server's certificate is not made out to {name} ({why}); name the server as it is, or give tls-hostname=NAME"
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the server's certificate is signed by nobody in {folder}/ca-cert.pem; put its authority's certificate there, if it is to \
             be trusted"
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired ({why}); renew it, or set the clock")
        }
        CertificateError::Revoked => {
            format!(
                "the server's certificate was revoked, by {folder}/ca-crl.pem; give the server another one"
            )
        }
        why => format!("the server's certificate cannot be trusted ({why}); make it again"),
    }
}

/// From now on a thread carries what is said; the other end is a socket as any.
pub(super) fn carry(line: Line) -> io::Result<OwnedFd> {
    let (pair, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let StreamOwned { mut conn, sock } = line;
    ioctl_fionbio(&pair, true)?;
    ioctl_fionbio(&sock, true)?;
    conn.set_buffer_limit(None);
    let carrier = Carrier {
        tls: conn,
        socket: sock,
        pair: pair.into(),
        down: Vec::new(),
        carried: 0,
        has_ended: false,
    };
    std::thread::Builder::new().name("tls".to_owned()).spawn(move || carrier.run())?;
    Ok(theirs)
}

/// Stands between a server and the ring.
struct Carrier {
    tls: ClientConnection,
    socket: File,
    pair: File,
    /// What the server said, as far as it was not carried on, behind what was.
    down: Vec<u8>,
    carried: usize,
    /// The server says nothing more.
    has_ended: bool,
}

impl Carrier {
    fn run(mut self) {
        // Signals are for the thread that serves: one that finds this thread would end the process.
        let _ = block_stop_signals();
        // Why it ends is the same to both: the connection is over.
        let _ = self.carry();
        let _ = (shutdown(&self.pair, Shutdown::Both), shutdown(&self.socket, Shutdown::Both));
    }

    fn carry(&mut self) -> io::Result<()> {
        self.take_in()?;
        loop {
            self.send()?;
            self.hand_on()?;
            if self.has_ended && self.is_carried() {
                return Ok(());
            }
            let (server, ours) = self.wait()?;
            if ours.intersects(PollFlags::HUP | PollFlags::ERR) {
                return self.farewell();
            }
            if ours.contains(PollFlags::IN) {
                self.take_out()?;
            }
            if server.contains(PollFlags::IN) {
                self.receive()?;
            } else if server.intersects(PollFlags::HUP | PollFlags::ERR) {
                return Ok(());
            }
        }
    }

    fn is_carried(&self) -> bool {
        self.carried == self.down.len()
    }

    /// Sleeps until one of them has something, or takes something.
    fn wait(&self) -> io::Result<(PollFlags, PollFlags)> {
        let when = |is_so, flag| if is_so { flag } else { PollFlags::empty() };
        let is_sending = self.tls.wants_write();
        let server =
            when(self.is_carried() && !self.has_ended, PollFlags::IN) | when(is_sending, PollFlags::OUT);
        let ours = when(!is_sending, PollFlags::IN) | when(!self.is_carried(), PollFlags::OUT);
        let mut fds = [PollFd::new(&self.socket, server), PollFd::new(&self.pair, ours)];
        match poll(&mut fds, None) {
            Ok(_) => Ok((fds[0].revents(), fds[1].revents())),
            Err(rustix::io::Errno::INTR) => Ok((PollFlags::empty(), PollFlags::empty())),
            Err(error) => Err(error.into()),
        }
    }

    /// What is encrypted goes to the server, as far as it takes it.
    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) => return later(error),
            }
        }
        Ok(())
    }

    /// What the server said goes to the ring, as far as that takes it.
    fn hand_on(&mut self) -> io::Result<()> {
        while !self.is_carried() {
            match self.pair.write(&self.down[self.carried..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.carried += bytes,
                Err(error) => return later(error),
            }
        }
        self.down.clear();
        self.carried = 0;
        Ok(())
    }

    /// What the server says.
    fn receive(&mut self) -> io::Result<()> {
        while self.down.len() < DOWN_BYTES {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(());
                }
                Ok(_) => self.take_in()?,
                Err(error) => return later(error),
            }
        }
        Ok(())
    }

    /// Decrypts what has come.
    fn take_in(&mut self) -> io::Result<()> {
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let from = self.down.len();
        self.down.resize(from + state.plaintext_bytes_to_read(), 0);
        self.tls.reader().read_exact(&mut self.down[from..])?;
        self.has_ended |= state.peer_has_closed();
        Ok(())
    }

    /// What the ring says is encrypted, one part at a time.
    fn take_out(&mut self) -> io::Result<()> {
        let mut bytes = [0; UP_BYTES];
        match self.pair.read(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.tls.writer().write_all(&bytes[..count]),
            Err(error) => later(error),
        }
    }

    /// Our end is closed. A word of parting goes out; requests that nobody waits for do not: they could come to the server after
    /// those of the next connection.
    fn farewell(&mut self) -> io::Result<()> {
        let mut bytes = [0; REQUEST_HEADER_BYTES + 1];
        let count = self.pair.read(&mut bytes).unwrap_or(0);
        if (1..=REQUEST_HEADER_BYTES).contains(&count) && !self.tls.wants_write() {
            self.tls.writer().write_all(&bytes[..count])?;
        }
        self.tls.send_close_notify();
        self.send()
    }
}

/// What cannot be done now, or was interrupted, is no error.
fn later(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
