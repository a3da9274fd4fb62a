//! The engine of load: streams of commands, each with a bound on what is in flight, on any target: a model in virtual
//! time ([`Bench`]), or whatever else has a clock.
//!
//! A [`Source`] says what is asked for next, and for when. What is asked for at no time in particular is submitted as
//! soon as there is room (a closed loop); what has a time is submitted then, or as soon as there is room after it, and
//! its response counts from the time that was meant (an open loop).

mod bench;
pub mod claims;
mod engine;
mod seconds;
mod seen;
mod source;
mod target;

pub use bench::{Bench, Observer, Ran};
pub use engine::{Io, Sample, Stream, Until, Witness, run};
pub use hdrhistogram::Histogram;
pub use seen::Seen;
pub use source::{Ask, Job, Looped, Next, Paced, Pattern, Ranks, Source};
pub use target::{Ended, Fault, Target};
