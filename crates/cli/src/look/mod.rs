//! Looking at a volume: what is wrong with it, what is where on it, which files that are, and what it does now.

pub(crate) mod args;
pub(crate) mod doctor;
pub(crate) mod files;
pub(crate) mod map;
mod source;
pub(crate) mod top;
pub(crate) mod tree;
