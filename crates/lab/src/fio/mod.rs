//! fio's faces: its job files are read, and its reports are printed from a record.

mod check;
pub mod command_line;
pub mod error;
pub mod file;
pub mod ini;
pub mod iolog;
mod json;
mod logs;
pub mod lower;
mod not_read;
pub mod number;
pub mod open;
pub mod options;
mod places;
pub mod set;
mod sharing;
mod table;
mod terse;
mod text;
pub mod value;
mod view;

pub use command_line::{CommandLine, Format};
pub use error::{At, Error, Errors};
pub use file::{JobFile, JobSection, parse};
pub use ini::{Machine, Surroundings};
pub use iolog::{IoLog, read_logs};
pub use json::json;
pub use lower::{LowerError, Needed, Plan, plan};
pub use open::{open, open_all};
pub use options::JobOptions;
pub use sharing::{idle_copies, shared_writes};
pub use terse::terse;
pub use text::text;
