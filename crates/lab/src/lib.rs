//! The lab: measures storage, real and simulated, the way the field does.
//!
//! A workload is described, run against a target, and leaves one raw [`record`]; every face (fio's text and JSON, the
//! HTML report, comparisons) is printed from such a record, then or later.

pub mod classic;
pub mod environment;
pub mod fio;
pub mod job;
pub mod layout;
pub mod load;
pub mod record;
pub mod replay;
pub mod report;
pub mod session;
pub mod stats;
pub mod survey;
pub mod synth;
pub mod target;
