//! Listening on unix sockets: a dead server's socket file is replaced, a living one's is not.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path of a unix socket, bytes: the kernel's limit less the closing zero.
const MAX_PATH_BYTES: usize = 107;

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
}

/// A listening socket whose file goes away with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    pub(crate) fn bind(path: &Path) -> Result<Listener, ListenError> {
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
        Ok(Listener { socket, path: path.into() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A file that is already gone is as good.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_servers_socket_is_replaced_and_a_living_ones_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("socket");
        let first = Listener::bind(&path).expect("bind");
        assert!(matches!(Listener::bind(&path), Err(ListenError::InUse { .. })));
        // As SIGKILL leaves it: closed, but the file stays.
        let Listener { .. } = &first;
        let copy = dir.path().join("dead");
        drop(UnixListener::bind(&copy).expect("bind"));
        assert!(copy.exists());
        drop(Listener::bind(&copy).expect("replace"));
        assert!(!copy.exists());
        std::fs::write(&copy, "x").expect("write");
        assert!(matches!(Listener::bind(&copy), Err(ListenError::NotASocket { .. })));
        drop(first);
        assert!(!path.exists());
    }
}
