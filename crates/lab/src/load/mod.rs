//! The load: what a job asks for next, and what comes of it.

mod ending;
mod flow;
mod logs;
mod meter;
pub(crate) mod pick;
mod run;
mod search;
mod source;
pub(crate) mod stamp;
mod steady;

pub use ending::{Ended, Ending};
pub use flow::Flow;
pub use logs::{Log, LogFile, Logged};
pub use meter::Meter;
pub use run::{
    Going, Inside, LoadTarget, MAX_BUFFER_BYTES, MAX_IN_FLIGHT, PATIENCE_NS, RunError, SlotSpec, Watch, run,
    run_sources,
};
pub use source::JobSource;
pub use stamp::{is_stamped, stamped};
