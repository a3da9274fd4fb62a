//! Timing models of devices: when a command would be complete on a disk, an SSD, a flash card or an object store.
//!
//! A model holds no data, knows no clock, and starts no thread: it is told the time and says when it is done. So the
//! same model serves a simulation in virtual time and a file that is answered in real time. The same commands at the
//! same times give the same completions, to the nanosecond.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod constant;
pub mod device;
pub mod disk;
pub mod disksim;
pub mod object;
mod queue;
mod rate;
pub mod size;
pub mod spec;
pub mod ssd;

pub use device::{Command, Done, Failure, Kind, Model, Usage};
