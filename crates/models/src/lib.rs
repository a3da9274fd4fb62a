//! Timing models of devices: when a command would be complete on a disk, an SSD, a flash card, a
//! cluster or an object store.
//!
//! A model holds no data, knows no clock, and starts no thread: it is told the time and says when it is done. So the
//! same model serves a simulation in virtual time and a file that is answered in real time. The same commands at the
//! same times give the same completions, to the nanosecond.
//!
//! ```
//! use bimetal_models::{Command, Kind, spec};
//! use bimetal_units::Nanos;
//!
//! let mut disk = spec::named("disk-1tb-2012")?.build(1)?;
//! // Two blocks, one at the beginning and one in the middle of the disk: a seek and a part of a turn for each.
//! for (tag, offset) in [(0, 0), (1, disk.size_bytes() / 2)] {
//!     disk.submit(Nanos(0), tag, Command { kind: Kind::Read, offset, len: 4096 });
//! }
//! let mut done = Vec::new();
//! while let Some(deadline) = disk.deadline() {
//!     disk.advance(deadline, &mut done);
//! }
//! assert!(done.len() == 2 && done.iter().all(|done| done.failure.is_none()));
//! let last = done[1].at.since(Nanos(0));
//! assert!(last > Nanos::MS && last < 100 * Nanos::MS, "{last} ns");
//! assert_eq!(disk.usage().read_bytes, 2 * 4096);
//! # Ok::<(), bimetal_models::spec::SpecError>(())
//! ```
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod cluster;
pub mod constant;
pub mod device;
pub mod disk;
pub mod disksim;
pub mod object;
mod queue;
mod rate;
pub mod spec;
pub mod ssd;

pub use bimetal_units::size;
pub use device::{Command, Done, Failure, Kind, Model, Usage};
