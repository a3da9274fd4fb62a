//! Where clients connect: unix sockets, TCP on loopback, and sockets inherited from a service manager.
//!
//! A dead server's socket file is replaced, a living one's is not. Nobody is asked who he is, so TCP is for this
//! machine only: a unix socket is kept by its file's permissions, a loopback port by nothing but distance. The
//! permissions are those of [`Access`], whatever the umask is, and nobody can connect before they are set: a socket that
//! is bound refuses until it listens.

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Clients that may wait to be accepted, as the standard library has it.
const BACKLOG: i32 = 128;

/// How long a server may take to die, as long as for the locks of its devices.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);

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
    /// The socket cannot be given to the group.
    #[error("cannot give {} to that group; name one that this user is a member of, or run as root", path.display())]
    Group {
        /// The socket.
        path: PathBuf,
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
    /// More than `MAX_LISTENERS`.
    #[error("there are {count} sockets to listen on, more than {MAX_LISTENERS}; leave some out")]
    TooMany {
        /// How many were asked for.
        count: usize,
    },
    /// Nowhere to listen.
    #[error("there is no socket to listen on; give one with --nbd")]
    Nowhere,
}

/// Who may connect to the unix sockets that this process makes. What a service manager made is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The permissions of the socket's file; who may write to it may connect.
    pub mode: u32,
    /// The group of the file, by its number; that of this process where there is none.
    pub group: Option<u32>,
}

impl Access {
    /// Only the user that this process runs as (and root).
    pub const OWNER: Access = Access { mode: 0o600, group: None };
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
    made: Option<Made>,
}

impl Listener {
    pub(crate) fn bind(address: Address, access: Access) -> Result<Listener, ListenError> {
        match address {
            Address::Unix(path) => Listener::unix(&path, access),
            Address::Tcp(address) => Listener::tcp(address),
            Address::Inherited(socket) => Listener::inherited(socket),
        }
    }

    pub(crate) fn unix(path: &Path, access: Access) -> Result<Listener, ListenError> {
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
            Ok(_) => remove_dead(path)?,
        }
        let socket = bind(path, access).map_err(|errno| system(errno.into()))?;
        let made = Made::of(path).map_err(system)?;
        // Taken down again if what follows fails.
        let listener = Listener { socket, endpoint: Endpoint::Unix(path.into()), made: Some(made) };
        let listens = admit(path, access).and_then(|()| rustix::net::listen(&listener.socket, BACKLOG));
        listens.map_err(|errno| match errno {
            Errno::PERM if access.group.is_some() => ListenError::Group { path: path.into() },
            errno => system(errno.into()),
        })?;
        Ok(listener)
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

/// Takes away the socket file of a server that is dead. One that was killed a moment ago may still listen, as the kernel takes a
/// process down piece by piece.
fn remove_dead(path: &Path) -> Result<(), ListenError> {
    let system = |source| ListenError::System { path: path.into(), source };
    let until = Instant::now() + DEATH_PATIENCE;
    loop {
        match try_connect(path) {
            // Nobody has it open: its server is dead.
            Err(Errno::CONNREFUSED | Errno::NOENT) => break,
            // Its server lives, or is stopped with too many waiting.
            Ok(_) | Err(Errno::AGAIN) if Instant::now() >= until => {
                return Err(ListenError::InUse { path: path.into() });
            }
            Ok(_) | Err(Errno::AGAIN) => std::thread::sleep(DEATH_PATIENCE / 10),
            Err(errno) => return Err(system(errno.into())),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system(error)),
        _ => Ok(()),
    }
}

/// A socket with a file that nobody else may use yet, and that does not listen yet.
fn bind(path: &Path, access: Access) -> Result<OwnedFd, Errno> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets what the socket has, less the umask: never more than is meant.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(access.mode & 0o600))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Lets those use a socket that was just made who are meant to.
fn admit(path: &Path, access: Access) -> Result<(), Errno> {
    // By what is there, not by its name: whoever may write to the folder could put a link in its place.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    if let Some(group) = access.group {
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)?;
    }
    // There is no call for this that takes such a descriptor (before Linux 6.6).
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(access.mode), AtFlags::empty())
}

/// Connects without waiting: `EAGAIN` where too many wait already, as before a server that is stopped.
pub(crate) fn try_connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// A file that a listener made, and takes away if it is still that one.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    identity: (u64, u64),
}

impl Made {
    fn of(path: &Path) -> io::Result<Made> {
        let meta = std::fs::symlink_metadata(path)?;
        Ok(Made { path: path.into(), identity: (meta.dev(), meta.ino()) })
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
        if let Some(Made { path, identity }) = &self.made
            && Made::of(path).is_ok_and(|now| now.identity == *identity)
        {
            // A file that is already gone is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("socket");
        let first = Listener::unix(&path, Access::OWNER).expect("bind");
        assert!(matches!(Listener::unix(&path, Access::OWNER), Err(ListenError::InUse { .. })));
        // As SIGKILL leaves it: closed, but the file stays.
        let copy = dir.path().join("dead");
        drop(UnixListener::bind(&copy).expect("bind"));
        assert!(copy.exists());
        drop(Listener::unix(&copy, Access::OWNER).expect("replace"));
        assert!(!copy.exists());
        std::fs::write(&copy, "x").expect("write");
        assert!(matches!(Listener::unix(&copy, Access::OWNER), Err(ListenError::NotASocket { .. })));
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn tcp_is_for_this_machine_only() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:10809"] {
            let error = Listener::bind(Address::Tcp(address.parse().expect("an address")), Access::OWNER);
            assert!(matches!(error, Err(ListenError::NotLoopback { .. })), "{address}");
        }
        let first = Listener::bind(Address::Tcp("127.0.0.1:0".parse().expect("an address")), Access::OWNER)
            .expect("bind");
        let Endpoint::Tcp(address) = *first.endpoint() else { panic!("{first:?}") };
        assert_ne!(address.port(), 0);
        assert!(matches!(Listener::bind(Address::Tcp(address), Access::OWNER), Err(ListenError::Tcp { .. })));
    }

    #[test]
    fn what_is_inherited_must_listen() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("socket");
        let socket = UnixListener::bind(&path).expect("bind");
        let inherited = Listener::bind(Address::Inherited(socket.into()), Access::OWNER).expect("it listens");
        assert_eq!(*inherited.endpoint(), Endpoint::Unix(path.clone()));
        let (one, _other) = UnixStream::pair().expect("a pair");
        let error = Listener::bind(Address::Inherited(one.into()), Access::OWNER);
        assert!(matches!(error, Err(ListenError::NotListening { .. })), "{error:?}");
        let file = std::fs::File::open(dir.path()).expect("open");
        let error = Listener::bind(Address::Inherited(file.into()), Access::OWNER);
        assert!(matches!(error, Err(ListenError::NotListening { .. })), "{error:?}");
        let tcp = TcpListener::bind("0.0.0.0:0").expect("bind");
        let error = Listener::bind(Address::Inherited(tcp.into()), Access::OWNER);
        assert!(matches!(error, Err(ListenError::NotLoopback { .. })), "{error:?}");
        drop(inherited);
        assert!(path.exists(), "the file is not ours");
    }
}
