//! The way of a request: cut, locked, read or written, logged, committed, shown, answered.

pub(crate) mod admission;
pub(crate) mod again;
pub(crate) mod begun;
pub(crate) mod checkpoint;
pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod draft;
pub(crate) mod flushes;
pub(crate) mod front;
pub(crate) mod gate;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod marks;
pub(crate) mod mend;
pub(crate) mod pending;
pub(crate) mod piece;
pub(crate) mod pins;
pub(crate) mod probe;
pub(crate) mod read;
pub(crate) mod requests;
pub(crate) mod sumload;
pub(crate) mod write;
