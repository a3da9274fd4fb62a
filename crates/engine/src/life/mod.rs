//! From creation to shutdown: opening, recovery, replay, check, repair.

pub(crate) mod check;
pub(crate) mod create;
pub(crate) mod health;
pub(crate) mod hints;
pub(crate) mod lone;
pub(crate) mod marks;
pub(crate) mod open;
pub(crate) mod pins;
pub(crate) mod ram;
pub(crate) mod recovery;
pub(crate) mod repair;
mod replace;
pub(crate) mod replay;
pub(crate) mod salvage;
pub(crate) mod scrub;
pub(crate) mod shutdown;
pub(crate) mod stall;
pub(crate) mod task;
