//! What the engine takes and gives: requests, actions, options, status, stages, and why something is where it is.

pub mod action;
pub mod audit;
pub mod coverage;
pub mod economy;
pub mod extents;
pub mod loss;
pub mod moments;
pub mod options;
pub mod scrub;
pub mod setting;
pub(crate) mod stats;
pub mod tally;
pub(crate) mod told;
pub mod unused;
pub mod why;
