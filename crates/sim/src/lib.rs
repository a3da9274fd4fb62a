//! Simulated devices, torture and the model that checks the promise.
pub mod arena;
pub mod coverage;
pub mod disk;
pub mod model;
pub mod peers;
pub mod scenario;
mod side_by_side;
pub mod timed;
pub mod torture;
pub mod world;

pub use side_by_side::side_by_side;
