//! An export of an NBD server as a device: connections that break and come back, and the session that outlives them.

#[cfg(test)]
mod adversary;
mod dial;
mod journal;
mod piece;
mod replies;
mod session;

pub use dial::{DialError, dial};
