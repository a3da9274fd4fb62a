//! What can be measured.

mod array;
mod buffers;
mod files;
mod folder;
mod name;
mod nbd;
mod null;
mod simulated;
mod volume;

pub use array::{Array, Layout, Spread};
pub use bimetal_nbd::NbdAddress;
pub use files::{FileError, FileKind, Files, OpenFile, OpenHow};
pub use folder::{FOLDER, Folder, FolderError, Listing, MAX_FILES, device_bytes, free_bytes};
pub use name::{NameError, TargetName};
pub use nbd::{MAX_CONNECTIONS, Nbd, NbdError};
pub use null::Null;
pub use simulated::Simulated;
pub use volume::Volume;
