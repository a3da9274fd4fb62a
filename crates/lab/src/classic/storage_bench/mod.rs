//! Storage Bench's kind of test: a long trace of real work, replayed with the queue that it had, on an empty and on a
//! full target; what counts is how long the target was busy.
//!
//! **Sources.** AnandTech's Storage Bench of 2011 (heavy, light) and of 2013 (the Destroyer): average data rate and busy
//! time without idle, service times, and later the 99th percentile, each for reads, writes and both; idle kept to 25 ms.
//! Their traces were never published: what is replayed is a clone of their published statistics ([`crate::synth`]).

mod figures;
mod measure;
mod print;

pub use figures::{Figures, SideFigures};
pub use measure::{BenchError, IDLE_AT_MOST_NS, Measured, Plan, State, measure};
pub use print::{extra, text};
