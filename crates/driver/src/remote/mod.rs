//! An export of an NBD server as a device. What is promised of it is the session's (`bimetal_remote`); here is what it needs of
//! the system.
//!
//! | file | owns |
//! |---|---|
//! | `link` | the sockets of a session, on the driver's ring; the thread that connects |
//! | `export`, `line` | an export that nobody drives yet: to be looked at, and erased |
//! | `dial` | connecting, as far as an export being granted |
//! | `tls` | encryption, and the thread that carries it |

mod dial;
mod export;
mod line;
mod link;
mod tls;

pub(crate) use bimetal_remote::{Ask, Standing};
pub use dial::{DialError, dial};
pub use export::REMOTE_PATIENCE;
pub(crate) use export::{Export, Unfit};
pub(crate) use link::{FIRST_TAG, RAM_BYTES, Remote, device_of};
