//! The tiered volume: a sans-I/O state machine.
pub mod action;
pub mod arena;
pub mod bugs;
pub mod coverage;
mod engine;
pub mod options;
pub mod units;

pub use action::Machine;
pub use engine::{Engine, Task, check, create, open};
