//! A volume in virtual time without its payload: the engine, with all its metadata, on modelled devices of any size.
//!
//! Payload is taken for zeros everywhere. Buffers for it are handles to nothing, devices keep only what was written
//! from buffers that the engine itself looks into, and whatever else is read is zeros. So a volume of terabytes takes
//! the memory of its metadata, and an hour of load no more time than the engine's own decisions.

pub mod arena;
pub mod device;
mod image;
mod store;
pub mod volume;
pub mod world;

pub use arena::NoDataArena;
pub use device::TimedDevice;
pub use volume::TimedVolume;
pub use world::{TimedWorld, WorldError};
