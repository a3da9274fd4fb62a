//! A small load generator in virtual time: streams of commands, each with a bound on what is in flight.
//!
//! A [`Source`] says what is asked for next, and for when. What is asked for at no time in particular is submitted as
//! soon as there is room (a closed loop); what has a time is submitted then, or as soon as there is room after it, and
//! its response counts from the time that was meant (an open loop).

mod bench;
mod seconds;
mod seen;
mod source;

pub use bench::{Bench, Observer, Ran, Sample, Stream, Until};
pub use hdrhistogram::Histogram;
pub use seen::Seen;
pub use source::{Ask, Job, Looped, Paced, Pattern, Source};
