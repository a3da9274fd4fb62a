//! SNIA's kind of test: preconditioned, in rounds, and measured only once it is steady.
//!
//! **Source.** SNIA, Solid State Storage Performance Test Specification 2.0.2 (2020): purge, workload-independent
//! preconditioning (twice the capacity in order, 128 KiB), then rounds of one minute for each kind of load, until the last
//! five keep to the rule of `stats::SniaRule`, in 25 rounds at most. What is scaled down is no result of that
//! specification, and says so.

mod determination;
mod figures;
mod header;
mod histogram;
mod loads;
mod run;
mod stages;

pub use figures::{page, text};
pub use histogram::Histogram;
pub use loads::Test;
pub use run::{Found, Load, MAX_ROUNDS, SniaPlan, Stage, StagePoint, Steady, layout, snia};
