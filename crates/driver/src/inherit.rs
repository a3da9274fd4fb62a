//! Listening sockets handed over by a service manager (socket activation: `LISTEN_PID`, `LISTEN_FDS`).

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is handed over, by the convention of `sd_listen_fds(3)`.
const FIRST_FD: RawFd = 3;
/// Descriptors taken at most; more are nonsense for a server of a few sockets.
const MAX_FDS: u32 = 64;

/// Why what was handed over cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// Not a number, or beyond any sense.
    #[error("LISTEN_FDS is {value:?}; it must be a number from 1 to {MAX_FDS}, as a service manager sets it")]
    Count {
        /// What it is.
        value: OsString,
    },
    /// A descriptor is not open.
    #[error("LISTEN_FDS promises file descriptor {fd}, which cannot be taken: {source}")]
    Closed {
        /// Its number.
        fd: RawFd,
        /// What the system said.
        source: io::Error,
    },
    /// They have been taken before.
    #[error("the inherited sockets were taken before")]
    Twice,
}

/// Takes the descriptors that a service manager meant for this process: none where the variables are not set, or
/// name another process (a parent's, left in the environment).
///
/// To be called first of all, while no descriptor has been opened: after that the numbers may belong to others.
/// They are not passed on to programs that this one starts. The second call is refused.
pub fn inherited_sockets() -> Result<Vec<OwnedFd>, InheritError> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let ours = std::env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let Some(value) = std::env::var_os("LISTEN_FDS").filter(|_| ours) else { return Ok(Vec::new()) };
    let count = value.to_str().and_then(|text| text.parse::<u32>().ok());
    let Some(count) = count.filter(|count| (1..=MAX_FDS).contains(count)) else {
        return Err(InheritError::Count { value });
    };
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(InheritError::Twice);
    }
    (FIRST_FD..FIRST_FD + count as RawFd).map(take).collect()
}

fn take(fd: RawFd) -> Result<OwnedFd, InheritError> {
    // SAFETY: only asks about the number, which need not be open: the call fails where it is not.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)
        .map_err(|errno| InheritError::Closed { fd, source: errno.into() })?;
    // SAFETY: the descriptor is open; it was handed to this process by its number, and is taken once, before
    // anything else in the process can own it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
