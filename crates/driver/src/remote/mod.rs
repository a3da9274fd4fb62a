//! An export of an NBD server as a device: connections that break and come back, and the session that outlives them.
//!
//! | file | owns |
//! |---|---|
//! | `session` | **what is promised**: what is asked, what is on its way, what is not flushed. Sans-I/O |
//! | `journal` | the bytes that a server may still forget |
//! | `piece`, `replies` | requests, and what is answered to them |
//! | `link` | the sockets, on the driver's ring; the thread that connects |
//! | `export`, `line` | an export that nobody drives yet: to be looked at, and erased |
//! | `dial` | connecting, as far as an export being granted |

#[cfg(test)]
mod adversary;
mod dial;
mod export;
mod journal;
mod line;
mod link;
mod piece;
mod replies;
mod session;

pub use dial::{DialError, dial};
pub use export::REMOTE_PATIENCE;
pub(crate) use export::{Export, Unfit};
pub(crate) use link::{FIRST_TAG, RAM_BYTES, Remote, device_of};
pub(crate) use session::{Ask, Standing};
