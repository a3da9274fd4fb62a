//! The history and the events of served volumes, and how they are seen.
//!
//! A server's thread tells a [`Reporter`] once a second how its volume is, and of each event. The reporter makes samples
//! of that and hands them to a thread of its own, the keeper, which writes the two files beside the volume file, runs the
//! user's hook and tells the journal. Nothing here makes the server wait: what has no room is counted and left out.
#![forbid(unsafe_code)]

pub mod events;
mod history;
mod hook;
pub mod http;
#[cfg(test)]
mod incidents;
mod journal;
mod keeper;
mod ledger;
mod metrics;
mod page;
mod sample;
mod shares;

pub use history::{HistoryError, PutAside, read};
pub use hook::{HOOK_WITHIN, HookEvent};
pub use journal::JOURNAL_SOCKET;
pub use keeper::{Keeper, KeeperPlan, Reporter, watches};
pub use ledger::{Ledger, LedgerDay, LedgerSums, ledger};
pub use sample::{FIELDS, Sample, Step, place_of};
pub use shares::{Shares, shares};
