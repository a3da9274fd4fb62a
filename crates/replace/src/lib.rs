//! A device takes another's place while the volume is used, sans-I/O.
//!
//! A [`Replacement`] stands between a machine and its driver. All that the machine writes to the old device goes to the
//! **successor** as well, as far as that has been copied; the rest is copied beside it. Until the last step the old device is the
//! volume's: one block of the other device says which of the two is.
//!
//! | file | owns |
//! |---|---|
//! | `plan` | whose place is to be taken, how, and how far that has come |
//! | `replacement` | what is asked of the old device, and answered by both |
//! | `copying` | **what is still to be copied**, and at which pace |
//! | `pieces` | one that is on its way: read, written, or left out |
//! | `regions` | where the two may differ after a crash |
//! | `header` | what the successor says of itself meanwhile |
//! | `takeover` | the steps at the end |

pub mod bugs;
mod copying;
mod header;
mod pieces;
mod plan;
mod regions;
mod replacement;
mod takeover;
#[cfg(test)]
mod tests;

pub use header::Header;
pub use plan::{Before, Pace, Plan, Progress, Standing};
pub use replacement::{Replacement, SUCCESSOR};
