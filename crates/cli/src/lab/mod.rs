//! `bimetal lab`, and what it shares with `bimetal trace replay`.

pub(crate) mod args;
mod busy;
mod disks;
pub(crate) mod disktester;
pub(crate) mod fio;
pub(crate) mod orion;
mod precondition;
pub(crate) mod quick;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod snia;
mod stop;
pub(crate) mod storage_bench;
mod target;
mod tested;
pub(crate) mod torture_recovery;
mod turns;
mod watcher;
pub(crate) mod words;

pub(crate) use stop::Stop;

/// What records say that they were made by.
const PROGRAM: &str = concat!("bimetal ", env!("CARGO_PKG_VERSION"));
