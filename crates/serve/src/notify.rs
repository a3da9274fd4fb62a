//! What a service manager wants to hear (`sd_notify(3)`): ready, stopping, how it is, and that the loop is alive.
//!
//! A few datagrams to the socket in `NOTIFY_SOCKET`; nothing at all where that is not set. They are sent without
//! waiting: a manager that does not read is no reason to keep clients waiting.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Watchdog>,
}

/// The manager takes a server for dead that it has not heard of for some time.
#[derive(Debug)]
struct Watchdog {
    every: Duration,
    next: Instant,
}

impl Notifier {
    /// As the environment says. A socket that cannot be reached is an error: the manager would wait in vain.
    pub(crate) fn from_environment() -> io::Result<Notifier> {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Ok(Notifier { socket: None, watchdog: None });
        };
        let socket = connect(&address)?;
        let own = std::process::id().to_string();
        let ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == own);
        let usec =
            std::env::var("WATCHDOG_USEC").ok().filter(|_| ours).and_then(|text| text.parse::<u64>().ok());
        let watchdog = usec.filter(|&usec| usec > 0).map(|usec| {
            // Half of the time, as sd_watchdog_enabled(3) advises.
            Watchdog { every: Duration::from_micros(usec / 2), next: Instant::now() }
        });
        Ok(Notifier { socket: Some(socket), watchdog })
    }

    /// Clients can connect.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// One line on how the server is.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}\n"));
    }

    /// The server was told to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=closing the volume\n");
    }

    /// How often a sign of life is to be given, where somebody waits for one.
    pub(crate) fn every(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|watchdog| watchdog.every)
    }

    /// How long the loop may sleep before the next sign of life; no limit where nobody waits for one.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.watchdog.as_ref().map(|watchdog| watchdog.next.saturating_duration_since(Instant::now()))
    }

    /// The loop came around: a sign of life, if it is time for one.
    pub(crate) fn alive(&mut self) {
        let Some(watchdog) = self.watchdog.as_mut() else { return };
        let now = Instant::now();
        if watchdog.next <= now {
            watchdog.next = now + watchdog.every;
            self.send("WATCHDOG=1\n");
        }
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket {
            // What cannot be sent now is not worth waiting for; the next sign of life says as much.
            let _ = socket.send(message.as_bytes());
        }
    }
}

/// A socket to a path, or to a name without a file (`@name`).
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
