//! What can be measured.

mod buffers;
mod files;
mod nbd;
mod null;
mod simulated;

pub use files::{FileError, Files, OpenFile, OpenHow};
pub use nbd::{MAX_CONNECTIONS, Nbd, NbdAddress, NbdError};
pub use null::Null;
