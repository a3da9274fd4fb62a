//! The quick test: what a target is good at, in less than two minutes, and which drive it is like.
//!
//! **Source.** The eight speeds are those of Xbench's uncached disk test, by which readers compared the drives of 2012:
//! blocks of 4 KiB and 256 KiB, in order and at random, written and read, one in flight. Latencies, flushed writes and a
//! deep queue are ours.

mod compare;
mod figures;
mod page;
mod run;
mod verdict;

pub use compare::{Compared, compare};
pub use figures::{Figure, MEASURED_ONCE, Unit};
pub use page::{page, text};
pub use run::{QuickPlan, layout, quick};
pub use verdict::{Peer, Verdict, peers};
