//! Where clients connect: unix sockets, TCP on loopback, and sockets inherited from a service manager.
//!
//! A dead server's socket file is replaced, a living one's is not. Nobody is asked who he is, so TCP is for this
//! machine only: a unix socket is kept by its file's permissions, a loopback port by nothing but distance.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path of a unix socket, bytes: the kernel's limit less the closing zero.
const MAX_PATH_BYTES: usize = 107;
/// Sockets that one server listens on at most: each may hold one accepted client that waits for a place.
pub const MAX_LISTENERS: usize = 16;

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another server answers there.
    #[error("another server is listening on {}; stop it or choose another socket", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{} exists and is not a socket; choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel has no room for such a path.
    #[error("the socket path {} is longer than {MAX_PATH_BYTES} bytes; choose a shorter one", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen on {}: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An address that other machines can reach.
    #[error(
        "{address} can be reached from other machines and clients are not asked who they are; \
         use 127.0.0.1, [::1] or a unix socket, and a tunnel to it from elsewhere"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The system refused a TCP address.
    #[error("cannot listen on {address}: {source}; choose another port, or 0 for any free one")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// What was inherited cannot be accepted on.
    #[error(
        "the inherited file descriptor {fd} is not a listening stream socket (unix or TCP); \
         in the socket unit use ListenStream= and Accept=no"
    )]
    NotListening {
        /// Its number in this process.
        fd: RawFd,
    },
    /// More than [`MAX_LISTENERS`].
    #[error("there are {count} sockets to listen on, more than {MAX_LISTENERS}; leave some out")]
    TooMany {
        /// How many were asked for.
        count: usize,
    },
    /// Nowhere to listen.
    #[error("there is no socket to listen on; give one with --nbd")]
    Nowhere,
}

/// Where to listen.
#[derive(Debug)]
pub enum Address {
    /// A unix socket at this path.
    Unix(PathBuf),
    /// TCP on a loopback address; port 0 is any free one.
    Tcp(SocketAddr),
    /// A socket that already listens, from a service manager.
    Inherited(OwnedFd),
}

impl Address {
    /// TCP, or an error where other machines could reach the address: said before a volume is opened for it.
    pub fn loopback(address: SocketAddr) -> Result<Address, ListenError> {
        match address.ip().is_loopback() {
            true => Ok(Address::Tcp(address)),
            false => Err(ListenError::NotLoopback { address }),
        }
    }
}

/// Where clients connect to a server that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket at this path.
    Unix(PathBuf),
    /// TCP, with the port that it got.
    Tcp(SocketAddr),
    /// An inherited unix socket without a path (an abstract one).
    Unnamed,
}

/// A listening socket; a file made for it goes away with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    endpoint: Endpoint,
    /// The file to remove.
    made: Option<PathBuf>,
}

impl Listener {
    pub(crate) fn bind(address: Address) -> Result<Listener, ListenError> {
        match address {
            Address::Unix(path) => Listener::unix(&path),
            Address::Tcp(address) => Listener::tcp(address),
            Address::Inherited(socket) => Listener::inherited(socket),
        }
    }

    pub(crate) fn unix(path: &Path) -> Result<Listener, ListenError> {
        let system = |source| ListenError::System { path: path.into(), source };
        if path.as_os_str().len() > MAX_PATH_BYTES {
            return Err(ListenError::TooLong { path: path.into() });
        }
        match std::fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(system(error)),
            Ok(meta) if !meta.file_type().is_socket() => {
                return Err(ListenError::NotASocket { path: path.into() });
            }
            Ok(_) => match UnixStream::connect(path) {
                Ok(_) => return Err(ListenError::InUse { path: path.into() }),
                // Nobody has it open: its server is dead.
                Err(_) => std::fs::remove_file(path).map_err(system)?,
            },
        }
        let socket = UnixListener::bind(path).map_err(system)?;
        Ok(Listener { socket: socket.into(), endpoint: Endpoint::Unix(path.into()), made: Some(path.into()) })
    }

    fn tcp(address: SocketAddr) -> Result<Listener, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback { address });
        }
        let system = |source| ListenError::Tcp { address, source };
        let socket = TcpListener::bind(address).map_err(system)?;
        let endpoint = Endpoint::Tcp(socket.local_addr().map_err(system)?);
        Ok(Listener { socket: socket.into(), endpoint, made: None })
    }

    /// Takes a socket that somebody else made; its file, if it has one, stays his.
    fn inherited(socket: OwnedFd) -> Result<Listener, ListenError> {
        use rustix::net::{SocketType, sockopt};
        let fd = socket.as_raw_fd();
        let refused = || ListenError::NotListening { fd };
        let listens = sockopt::socket_acceptconn(&socket).unwrap_or(false);
        let stream = sockopt::socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
        if !listens || !stream {
            return Err(refused());
        }
        // An accept on a socket that does not block would end at once instead of waiting in the ring.
        rustix::io::ioctl_fionbio(&socket, false).map_err(|_| refused())?;
        let (socket, endpoint) = match tcp_address(socket) {
            (socket, Some(address)) if address.ip().is_loopback() => (socket, Endpoint::Tcp(address)),
            (_, Some(address)) => return Err(ListenError::NotLoopback { address }),
            (socket, None) => {
                let socket = UnixListener::from(socket);
                let address = socket.local_addr().map_err(|_| refused())?;
                let named = |path: &Path| Endpoint::Unix(path.into());
                let endpoint = address.as_pathname().map_or(Endpoint::Unnamed, named);
                (socket.into(), endpoint)
            }
        };
        Ok(Listener { socket, endpoint, made: None })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Makes an accepted connection ready. A refusal of the system costs only speed.
    pub(crate) fn prepare(&self, connection: impl AsFd) {
        use rustix::net::sockopt;
        // Room for a whole batch of replies.
        let _ = sockopt::set_socket_send_buffer_size(&connection, 1 << 20);
        if matches!(self.endpoint, Endpoint::Tcp(_)) {
            // Replies are gathered already: waiting for more would only add time.
            let _ = sockopt::set_tcp_nodelay(&connection, true);
        }
    }
}

/// The address of a TCP socket; none for a socket of another family.
fn tcp_address(socket: OwnedFd) -> (OwnedFd, Option<SocketAddr>) {
    let socket = TcpListener::from(socket);
    let address = socket.local_addr().ok();
    (socket.into(), address)
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // A file that is already gone is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("socket");
        let first = Listener::unix(&path).expect("bind");
        assert!(matches!(Listener::unix(&path), Err(ListenError::InUse { .. })));
        // As SIGKILL leaves it: closed, but the file stays.
        let copy = dir.path().join("dead");
        drop(UnixListener::bind(&copy).expect("bind"));
        assert!(copy.exists());
        drop(Listener::unix(&copy).expect("replace"));
        assert!(!copy.exists());
        std::fs::write(&copy, "x").expect("write");
        assert!(matches!(Listener::unix(&copy), Err(ListenError::NotASocket { .. })));
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn tcp_is_for_this_machine_only() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
            let error = Listener::bind(Address::Tcp(address.parse().expect("an address")));
            assert!(matches!(error, Err(ListenError::NotLoopback { .. })), "{address}");
        }
        let first = Listener::bind(Address::Tcp("127.0.0.1:0".parse().expect("an address"))).expect("bind");
        let Endpoint::Tcp(address) = *first.endpoint() else { panic!("{first:?}") };
        assert_ne!(address.port(), 0);
        assert!(matches!(Listener::bind(Address::Tcp(address)), Err(ListenError::Tcp { .. })));
    }

    #[test]
    fn what_is_inherited_must_listen() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("socket");
        let socket = UnixListener::bind(&path).expect("bind");
        let inherited = Listener::bind(Address::Inherited(socket.into())).expect("it listens");
        assert_eq!(*inherited.endpoint(), Endpoint::Unix(path.clone()));
        let (one, _other) = UnixStream::pair().expect("a pair");
        let error = Listener::bind(Address::Inherited(one.into()));
        assert!(matches!(error, Err(ListenError::NotListening { .. })), "{error:?}");
        let file = std::fs::File::open(dir.path()).expect("open");
        let error = Listener::bind(Address::Inherited(file.into()));
        assert!(matches!(error, Err(ListenError::NotListening { .. })), "{error:?}");
        let tcp = TcpListener::bind("0.0.0.0:0").expect("bind");
        let error = Listener::bind(Address::Inherited(tcp.into()));
        assert!(matches!(error, Err(ListenError::NotLoopback { .. })), "{error:?}");
        drop(inherited);
        assert!(path.exists(), "the file is not ours");
    }
}
