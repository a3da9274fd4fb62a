//! The field's classic tests: what each does and prints, on the lab's one engine of load.

pub mod disktester;
