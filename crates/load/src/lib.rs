//! The engine of load: streams of commands, each with a bound on what is in flight, on any target: a model in virtual
//! time ([`Bench`]), or whatever else has a clock.
//!
//! A [`Source`] says what is asked for next, and for when. What is asked for at no time in particular is submitted as
//! soon as there is room (a closed loop); what has a time is submitted then, or as soon as there is room after it, and
//! its response counts from the time that was meant (an open loop).
//!
//! ```
//! use bimetal_load::{Bench, Job, Pattern, Until};
//! use bimetal_models::spec;
//! use bimetal_units::Nanos;
//!
//! let disk = spec::named("disk-1tb-2012")?.build(1)?;
//! let mut bench = Bench::new(disk, 1);
//! let random = Job {
//!     pattern: Pattern::Random,
//!     read_percent: 100,
//!     block_bytes: 4096,
//!     depth: 1,
//!     from_byte: 0,
//!     span_bytes: 500 << 30,
//! };
//! let sequential = Job { pattern: Pattern::Sequential, ..random };
//! // Ten seconds of each, in virtual time.
//! let [random, sequential] =
//!     [random, sequential].map(|job| bench.run(&[job], Until::Elapsed(10 * Nanos::SECOND)).remove(0));
//! // An arm that has to move reads a hundred blocks a second, more or less; one that has not, many more.
//! assert!(random.iops() > 30.0 && random.iops() < 300.0, "{}", random.iops());
//! assert!(sequential.mb_per_s() > 20.0 * random.mb_per_s());
//! assert!(random.reads.value_at_quantile(0.99) > random.reads.value_at_quantile(0.5));
//! # Ok::<(), bimetal_models::spec::SpecError>(())
//! ```

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
