//! SIGINT and SIGTERM as something to read, so that the one thread need not be interrupted anywhere.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Lets SIGHUP pass: a server outlives the terminal it was started from, and has no configuration to read again.
pub fn ignore_hangup() {
    // SAFETY: the default disposition is replaced by "ignore", which runs no code of this process.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// A descriptor that becomes readable when the process is asked to end.
#[derive(Debug)]
pub struct StopSignals {
    fd: OwnedFd,
}

impl StopSignals {
    /// Blocks SIGINT and SIGTERM for this thread (and those it starts later) and catches them here instead.
    pub fn new() -> io::Result<StopSignals> {
        // SAFETY: `set` is initialised by `sigemptyset` before any other use; all calls get valid pointers
        // to it or null where the interface allows null.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        Ok(StopSignals { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Takes the signal that came, so that only another one makes the descriptor readable again.
    pub fn acknowledge(&self) {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        // Nothing to read is as good.
        let _ = rustix::io::read(&self.fd, &mut info);
    }

    /// To be watched with [`crate::Ring::poll_in`].
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
