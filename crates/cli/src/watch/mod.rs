//! Seeing what a volume does and did: its events, who keeps them, and its flight recorder.

pub(crate) mod args;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod flight;
pub(crate) mod http;
pub(crate) mod times;
