//! Scenarios in virtual time: volumes without payload on modelled devices, the policies of peers, and tables of them.
pub mod duel;
pub mod peers;
pub mod plan;
pub mod scenario;
mod side_by_side;
pub mod timed;

pub use side_by_side::side_by_side;
