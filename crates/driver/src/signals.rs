//! SIGINT and SIGTERM as something to read, so that the one thread need not be interrupted anywhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Lets SIGHUP pass: a server outlives the terminal it was started from, and has no configuration to read again.
pub fn ignore_hangup() {
    // SAFETY: the default disposition is replaced by "ignore", which runs no code of this process.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Keeps SIGINT and SIGTERM from this thread, and from those it starts later, so that they are left to whoever asked
/// for [`StopSignals`].
pub fn block_stop_signals() -> io::Result<()> {
    mask(libc::SIG_BLOCK, &stop_signals())
}

fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `set` is initialised; null is allowed for what is not wanted.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

fn stop_signals() -> libc::sigset_t {
    // SAFETY: `set` is initialised by `sigemptyset` before any other use; all calls get valid pointers to it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        set
    }
}

/// A descriptor that becomes readable when the process is asked to end.
pub struct StopSignals {
    fd: OwnedFd,
    set: libc::sigset_t,
}

impl StopSignals {
    /// Keeps SIGINT and SIGTERM from this thread and catches them here instead; every other thread must block them, too.
    pub fn new() -> io::Result<StopSignals> {
        StopSignals::of(stop_signals())
    }

    /// SIGHUP, too: for work that has something to say when its terminal goes away.
    pub fn with_hangup() -> io::Result<StopSignals> {
        let mut set = stop_signals();
        // SAFETY: `set` is initialised.
        unsafe { libc::sigaddset(&mut set, libc::SIGHUP) };
        StopSignals::of(set)
    }

    fn of(set: libc::sigset_t) -> io::Result<StopSignals> {
        mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` is initialised; a new descriptor is asked for.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        Ok(StopSignals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, set })
    }

    /// Takes the signal that came, so that only another one makes the descriptor readable again. Whether it was SIGINT:
    /// somebody is at the terminal.
    pub fn acknowledge(&self) -> bool {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        // Nothing to read is as good. The signal's number comes first.
        let read = rustix::io::read(&self.fd, &mut info).unwrap_or(0);
        read >= 4 && info[..4] == libc::SIGINT.to_ne_bytes()
    }

    /// Lets the next signal do what signals do, again.
    pub fn release(self) -> io::Result<()> {
        mask(libc::SIG_UNBLOCK, &self.set)
    }

    /// To be watched with [`crate::Ring::poll_in`].
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
