//! Torture and recovery: how far random writes on a full drive pull it down, and what brings it back.
//!
//! **Source.** AnandTech's reviews of SSDs, 2010 to 2013: 20 minutes of random 4 KiB writes, 32 in flight, over all of a
//! full drive; then a pass of sequential writes over all of it, another one, then TRIM, and a pass again.

mod figures;
mod run;
mod verdict;

pub use figures::extra;
pub use run::{Found, PART_COUNT, TorturePlan, layout, torture_recovery};
pub use verdict::{Pass, Recovered, Verdict};
