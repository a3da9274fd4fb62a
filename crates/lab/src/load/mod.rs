//! The load: what a job asks for next, and what comes of it.

mod apart;
mod ending;
mod flow;
mod logs;
mod map;
mod meter;
pub(crate) mod pick;
mod run;
mod script;
mod search;
mod source;
pub(crate) mod stamp;
mod steady;
mod verify;
mod walk;

pub use apart::Own;
pub use ending::{Ended, Ending};
pub use flow::Flow;
pub use logs::{Log, LogFile, Logged};
pub(crate) use map::MOST_PARTS;
pub use meter::Meter;
pub(crate) use meter::TOO_LONG;
pub use run::{
    Going, Granule, Inside, LoadTarget, MAX_BUFFER_BYTES, MAX_IN_FLIGHT, MAX_TRANSFER_BYTES, PATIENCE_NS,
    RunError, SlotSpec, Watch, run, run_sources,
};
pub use script::{Does, Script, Step};
pub use source::JobSource;
pub use stamp::{is_stamped, stamped};
