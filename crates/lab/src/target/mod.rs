//! What can be measured.

mod files;
mod null;
mod simulated;

pub use files::{FileError, Files, OpenFile, OpenHow};
pub use null::Null;
