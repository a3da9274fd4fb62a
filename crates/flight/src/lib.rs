//! The flight recorder: what an engine was told and did in the last minutes, kept in memory, and done again elsewhere.
//!
//! An engine does the same whenever it is told the same. So a recording is how it was at some moment, and each call since,
//! with its time and what came of it. [`Flight`] is an engine that is recorded; [`replay`] makes the engine of a recording
//! do it again, and says where it first did something else.
//!
//! A recording holds no payload. What an engine learns of payload are its checksums: these are recorded, and told again.
//! Metadata that it reads is recorded as it was read.
#![forbid(unsafe_code)]

mod flight;
mod frame;
mod item;
mod replay;
mod tape;

pub use flight::{Flight, FlightPlan};
pub use frame::{RecordingError, VERSION};
pub use replay::{Difference, Longest, Replayed, Told, replay};
pub use tape::{STATE_PART, Shot};
