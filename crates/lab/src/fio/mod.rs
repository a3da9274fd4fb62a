//! fio's faces: its job files are read, and its reports are printed from a record.

mod check;
pub mod error;
pub mod file;
pub mod ini;
mod json;
pub mod lower;
mod not_read;
pub mod number;
pub mod open;
pub mod options;
pub mod set;
mod sharing;
mod table;
mod text;
pub mod value;
mod view;

pub use error::{At, Error, Errors};
pub use file::{JobFile, JobSection, parse};
pub use ini::{Machine, Surroundings};
pub use json::json;
pub use lower::{LowerError, Needed, Plan, plan};
pub use open::open;
pub use options::JobOptions;
pub use sharing::shared_writes;
pub use text::text;
