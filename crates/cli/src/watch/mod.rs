//! Seeing what a volume does and did: its events, and who keeps them.

pub(crate) mod args;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod http;
mod times;
