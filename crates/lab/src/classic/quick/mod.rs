//! The quick test: what a target is good at, in less than two minutes, and which drive it is like.
//!
//! **Source.** The eight speeds are those of Xbench's uncached disk test, by which readers compared the drives of 2012:
//! blocks of 4 KiB and 256 KiB, in order and at random, written and read, one in flight. The four rows that reviewers print
//! today are those of CrystalDiskMark 8. Latencies and flushed writes are ours.

mod compare;
mod figures;
mod marks;
mod page;
mod run;
mod verdict;

pub use compare::{Compared, compare};
pub use figures::{Figure, MEASURED_ONCE, Unit};
pub use marks::{Mark, MarkSide};
pub use page::{marks_text, page, text};
pub use run::{Quick, QuickPlan, layout, quick};
pub use verdict::{Peer, Verdict, peers};
