//! Orion's kind of test: small random I/Os and large ones at a matrix of loads, in Orion's own files, and what these do
//! not have: the knee of a line of loads with its interval, what small I/Os lose to large ones, and proof of what was
//! touched.

mod cover;
mod figures;
mod files;
mod jobs;
mod json;
mod luns;
mod measure;
mod run;
mod spec;
mod verdicts;

pub use cover::Coverage;
pub use figures::figures;
pub use files::{File, Head, files, results, stamp};
pub use json::json;
pub use luns::{LunError, MAX_LUN_FILE_BYTES, MAX_LUNS, parse as parse_luns};
pub use measure::{Class, Measured};
pub use run::{Again, Outcome, Progress, check, run};
pub use spec::{LargeOrder, MAX_DISKS, MAX_POINTS, Matrix, Point, Ramp, RunType, Simulate, Spec, SpecError};
pub use verdicts::{Pass, Trade, passes, tradeoff, verdicts};
