//! Simulated devices, torture and the model that checks the promise.
pub mod arena;
pub mod coverage;
pub mod disk;
pub mod model;
pub mod rng;
pub mod torture;
pub mod world;
