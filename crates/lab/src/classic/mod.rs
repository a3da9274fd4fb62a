//! The classic tests of the field, on the lab's one engine of load: what they run, and how they print it.

mod cell;
pub mod disktester;
pub mod orion;
pub mod quick;
pub mod snia;
pub mod storage_bench;
pub mod torture_recovery;
